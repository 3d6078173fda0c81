"""What rows bring themselves instead of a catalogue entry: a model's shape, a GPU's figures.

One name means one thing: a model has one shape and a GPU one memory, whatever the number of rows.
"""

from collections.abc import Sequence

import pandas as pd

from capmodel.gpus import out_of_proportion
from capmodel.problems import RunsError, problem_table
from capmodel.shapes import shape_from_columns

_REMEDY = "mend it, or give the two variants names of their own"


def own_entry_problems(
    table: pd.DataFrame, shape_columns: Sequence[str], gpu_columns: Sequence[str]
) -> list[pd.DataFrame]:
    """Problems of rows whose own shape or GPU columns contradict each other, or lack some.

    table: text in `model`, `gpu` and `weight_dtype`, floats elsewhere.
    """
    found = [_differing(table, "model", ["model"], name) for name in shape_columns if name in table]
    for name in gpu_columns:
        if name in table:  # the peak is that of the matmul, so it goes with the weights
            keys = ["gpu", "weight_dtype"] if name == "flops_per_s" else ["gpu"]
            found.append(_differing(table, "GPU", keys, name))
    found.append(_partial(table, gpu_columns))
    found.append(_no_shape(table, shape_columns))
    if {"bandwidth_bytes_per_s", "flops_per_s"} <= set(table):
        found.append(_disproportion(table))
    return [problems for problems in found if len(problems)]


class OwnEntries:
    """What the rows read so far say of models and GPUs, across chunks and files."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[float, str]] = {}

    def add(
        self, runs: pd.DataFrame, shape_columns: Sequence[str], gpu_columns: Sequence[str],
        where: str,
    ) -> None:  # fmt: skip
        """Remember a checked table's own entries. Raises RunsError where they contradict others.

        where: the file, as another's message is to name it. Nothing is remembered of a bad table.
        """
        fresh: dict[tuple[str, ...], tuple[float, str]] = {}
        problems: list[tuple[int | None, str, object, str]] = []
        plain = [name for name in gpu_columns if name != "flops_per_s"]
        for what, keys, names in (
            ("model", ["model"], list(shape_columns)),
            ("GPU", ["gpu"], plain),
            ("GPU", ["gpu", "weight_dtype"], ["flops_per_s"]),
        ):
            here = [name for name in names if name in runs]
            if not here or runs[here].isna().all(axis=None):
                continue
            given = runs[[*keys, *here]].dropna(subset=here, how="all")
            for row in given.drop_duplicates().to_dict("records"):
                for name in here:
                    value = float(row[name])
                    place = (name, *(str(row[key]) for key in keys))
                    if value != value:
                        continue
                    other, said_by = self._known.get(place, (value, where))
                    if other != value:
                        reason = f"{said_by} gives {other:g} for the same {what} {place[1]!r}"
                        problems.append((None, name, value, f"{reason}; {_REMEDY}"))
                    fresh[place] = (other, said_by)
        if problems:
            raise RunsError(problem_table(problems), where)
        self._known |= fresh


def _differing(table: pd.DataFrame, what: str, keys: list[str], column: str) -> pd.DataFrame:
    """Rows that give `column` otherwise than the first row of their name does."""
    given = table[[*keys, column]].dropna(subset=[column])
    if not set(keys) <= set(table) or not len(given):
        return problem_table([])
    group = given.groupby(keys, sort=False, observed=True)[column]
    first = group.transform("first")
    bad = given[given[column] != first]
    if not len(bad):
        return problem_table([])
    label = pd.Series(given.index + 1, index=given.index)
    rows = label.groupby([given[key] for key in keys], sort=False, observed=True).transform("first")
    cells = zip(label[bad.index], bad[column], rows[bad.index], first[bad.index], bad[keys[0]],
                strict=True)  # fmt: skip
    return problem_table([
        (int(row), column, value,
         f"row {earlier} gives {other:g} for the same {what} {name!r}; {_REMEDY}")
        for row, value, earlier, other, name in cells
    ])  # fmt: skip


def _partial(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Rows that give some of a GPU's figures: the others are in no catalogue."""
    here = [name for name in columns if name in table]
    if not here:
        return problem_table([])
    absent = pd.DataFrame(
        {name: table[name].isna() if name in table else True for name in columns},
        index=table.index,
    )
    some = ~absent.all(axis=1) & absent.any(axis=1)
    problems: list[tuple[int | None, str, object, str]] = []
    for label, row in absent[some].iterrows():
        lacking = ", ".join(str(name) for name, gone in row.items() if gone)
        reason = f"it lacks {lacking}; give all of a GPU's figures, or none and a catalogue's name"
        problems.append((int(str(label)) + 1, here[0], None, reason))
    return problem_table(problems)


def _no_shape(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Rows whose shape columns make no model; of alike rows the first."""
    needed = list(columns[:_NEEDED])
    here = [name for name in columns if name in table]
    asked = [name for name in needed if name in table]
    if "model" not in table or not asked or table[asked].isna().all(axis=None):
        return problem_table([])
    given = table[["model", *here]].dropna(subset=asked, how="all").drop_duplicates()
    problems: list[tuple[int | None, str, object, str]] = []
    for label, row in zip(given.index, given.to_dict("records"), strict=True):
        name = str(row.pop("model"))
        shape = {str(key): int(value) for key, value in row.items() if value == value}
        lacking = [key for key in needed if key not in shape]
        try:
            if lacking:
                raise ValueError(f"its shape lacks {', '.join(lacking)}; give all of it or none")
            shape_from_columns(name=name, **shape)
        except ValueError as error:
            problems.append((int(label) + 1, "model", name, str(error)))
    return problem_table(problems)


_NEEDED = 7  # shape columns without which there is no shape: the first ones


def _disproportion(table: pd.DataFrame) -> pd.DataFrame:
    pairs = table[["bandwidth_bytes_per_s", "flops_per_s"]].dropna()
    why = {
        pair: out_of_proportion(*pair)
        for pair in pairs.drop_duplicates().itertuples(index=False, name=None)
    }
    reasons = {pair: reason for pair, reason in why.items() if reason}
    if not reasons:
        return problem_table([])
    return problem_table([
        (int(label) + 1, "bandwidth_bytes_per_s", pair[0], reasons[pair])
        for label, pair in zip(pairs.index, pairs.itertuples(index=False, name=None), strict=True)
        if pair in reasons
    ])  # fmt: skip
