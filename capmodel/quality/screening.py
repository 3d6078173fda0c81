"""From a runs table to rows one may fit: features added, checks made, every row accounted for."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from capmodel.features import add_features
from capmodel.gpus import load_gpu
from capmodel.quality.checks import split_aside
from capmodel.quality.physical import check_units, suspect_files
from capmodel.quality.thresholds import Thresholds
from capmodel.runs import GPU_COLUMNS, SHAPE_COLUMNS, RunsError
from capmodel.shapes import load_shape


@dataclass(frozen=True, slots=True)
class Screened:
    """used: rows with features and flags; aside: rows with `rule` and `reason`."""

    used: pd.DataFrame
    aside: pd.DataFrame

    @property
    def counts(self) -> dict[str, int]:
        """Rows set aside, by rule, the commonest first."""
        return {str(k): int(v) for k, v in self.aside["rule"].value_counts().items()}

    @property
    def flagged(self) -> dict[str, int]:
        """Rows used although flagged, by flag, the commonest first."""
        found: Counter[str] = Counter()
        for words, rows in self.used["flags"].astype(str).value_counts().items():
            found.update({word: int(rows) for word in str(words).split(",") if word})
        return dict(found.most_common())


def screen_runs(
    runs: pd.DataFrame, files: pd.Series | None = None, **thresholds: float
) -> Screened:
    """`runs` (a checked runs table) split into rows to use and rows set aside.

    files: the file of each row; a file most of whose rows are in a wrong unit is then set aside
    whole by `wrong_unit`, where it raises RunsError otherwise.

    Rows whose model or GPU is in no catalogue, and that bring no shape or GPU columns, are set
    aside by `unknown_model` and `unknown_gpu`, those whose bytes cannot be counted by
    `no_features`. thresholds: fields of `Thresholds`.
    """
    unknown = _without_entry(runs)
    known = runs[~runs.index.isin(unknown.index)]
    if known.empty:
        return Screened(runs.iloc[:0].assign(flags=""), unknown)
    featured, failed = _featured(known)
    if featured.empty:
        return Screened(featured.assign(flags=""), pd.concat([unknown, failed]))
    known = featured
    slipped = featured.iloc[:0].assign(rule="", reason="")
    if files is not None:
        why = _wrong_unit(featured, files[known.index], thresholds)
        bad = files[known.index].isin(list(why))
        slipped = featured[bad].assign(rule="wrong_unit", reason=files[known.index][bad].map(why))
        featured = featured[~bad]
    parts = [part for part in (slipped, unknown, failed) if len(part)]
    if featured.empty:
        return Screened(featured.assign(flags=""), pd.concat(parts))
    used, aside = split_aside(featured, **thresholds)
    return Screened(used, pd.concat([aside, *parts]) if parts else aside)


def _without_entry(runs: pd.DataFrame) -> pd.DataFrame:
    """Rows that name a model or GPU of no catalogue, with `rule` and `reason`."""
    rules = pd.Series("", index=runs.index, dtype=object)
    reasons = rules.copy()
    for column, rule, lookup, own in (
        ("model", "unknown_model", load_shape, "n_layers"),
        ("gpu", "unknown_gpu", load_gpu, "memory_bytes"),
    ):
        bare = runs[own].isna() if own in runs else pd.Series(True, index=runs.index)
        why = _unknown(runs.loc[bare, column], lookup)
        hit = bare & runs[column].isin(list(why)) & (rules == "")
        rules = rules.mask(hit, rule)
        reasons = reasons.mask(hit, runs[column].map(why))
    hit = rules != ""
    return runs[hit].assign(rule=rules[hit], reason=reasons[hit])


def _featured(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows with features, and those whose model or GPU allows none, with `rule` and `reason`."""
    try:
        return add_features(runs), runs.iloc[:0].assign(rule="", reason="")
    except ValueError:
        keys = [name for name in _DEPLOYMENT if name in runs]
        group = runs.groupby(keys, dropna=False, sort=False, observed=True).ngroup()
    why: dict[int, str] = {}
    for number, first in runs.groupby(group, sort=False).head(1).groupby(group, sort=False):
        try:
            add_features(first)
        except ValueError as error:
            why[int(str(number))] = str(error)
    bad = group.isin(list(why))
    failed = runs[bad].assign(rule="no_features", reason=group[bad].map(why))
    return (add_features(runs[~bad]) if not bad.all() else runs.iloc[:0]), failed


_DEPLOYMENT = ("model", "gpu", "weight_dtype", "kv_dtype", "tp", "dp", *SHAPE_COLUMNS, *GPU_COLUMNS)


def _wrong_unit(
    featured: pd.DataFrame, files: pd.Series, thresholds: dict[str, float]
) -> dict[str, str]:
    """Files most of whose rows are in a wrong unit, with the reason."""
    found: dict[str, str] = {}
    limits = Thresholds(**thresholds)
    for name in suspect_files(featured, files, limits):
        try:
            check_units(featured[(files == name).to_numpy()], limits, name)
        except RunsError as error:
            found[name] = str(error)
    return found


def _unknown(names: pd.Series, lookup: Callable[[str], object]) -> dict[str, str]:
    """Names that `lookup` does not know, with its reason."""
    found: dict[str, str] = {}
    for name in names.unique():
        try:
            lookup(str(name))
        except ValueError as error:
            found[name] = str(error)
    return found
