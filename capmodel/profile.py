"""What is in a runs table: what an analyst looks at before fitting anything.

Every table is a DataFrame; `profile_runs` gathers them. Nothing here is fitted: what bounds a
step is read off bytes over datasheet bandwidth and FLOP over peak.
"""

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from capmodel.features import add_features, shape_of_row
from capmodel.runs import SHAPE_COLUMNS, validate_runs
from capmodel.saturation import UNKNOWN, ceiling_counts, saturation_of
from capmodel.shapes import ModelShape
from capmodel.shapes.attention import CompressedAttention, LatentAttention, SoftmaxAttention
from capmodel.shapes.model import MoeMlp


@dataclass(frozen=True, slots=True)
class Profile:
    """Tables of `profile_runs`.

    summary: `what`, `value`. layouts: rows, models and cache bytes by attention layout.
    ranges: smallest, median and largest of the numbers. coverage: rows by GPU, engine and weight
    dtype. missing: combinations that do not occur, columns of the runs with gaps, and GPUs whose
    bandwidth or peak nobody published. bounds: rows by what takes longest, per GPU; "unknown", a
    column only where it occurs, on such GPUs. saturation: one row per series over the batch: where
    tokens/s stops growing [sequences] and the ceiling there. features: the runs and their features.
    """

    summary: pd.DataFrame
    layouts: pd.DataFrame
    ranges: pd.DataFrame
    coverage: pd.DataFrame
    missing: pd.DataFrame
    bounds: pd.DataFrame
    saturation: pd.DataFrame
    features: pd.DataFrame

    def to_dict(self) -> dict[str, list[dict[str, object]]]:
        """The tables as lists of records, `features` left out; `saturation` as its counts."""
        tables = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "features"}
        tables["saturation"] = ceiling_counts(self.saturation)
        return {name: table.to_dict("records") for name, table in tables.items()}


def profile_runs(runs: pd.DataFrame) -> Profile:
    """Profile of a runs table. Raises RunsError or ValueError as its checks and features do."""
    checked = validate_runs(runs)
    table = add_features(checked)
    table = table.assign(
        tokens_per_s=table["batch_size"] / table["step_time_s"],
        layout=_layouts(table),
        bound=_bound(table),
    )
    saturation = saturation_of(table)
    return Profile(
        summary=_summary(table),
        layouts=_by_layout(table),
        ranges=_ranges(table),
        coverage=_coverage(table),
        missing=_missing(table, list(checked.columns)),
        bounds=_bounds(table),
        saturation=saturation,
        features=table,
    )


def layout_name(shape: ModelShape) -> str:
    """`MHA`, `GQA`, `MQA`, `MLA`, `mixed` or `no attention`; windows, state and MoE after it."""
    kinds = [kind for _, kind in shape.attention_layers()]
    names = {_kind_name(kind) for kind in kinds}
    name = names.pop() if len(names) == 1 else ("mixed" if names else "no attention")
    if any(isinstance(kind, SoftmaxAttention) and (kind.window or kind.chunk) for kind in kinds):
        name += " windowed"
    if any(group.state is not None for group in shape.groups):
        name += " + state"
    return name + (" MoE" if any(isinstance(group.mlp, MoeMlp) for group in shape.groups) else "")


def _kind_name(kind: SoftmaxAttention | LatentAttention | CompressedAttention) -> str:
    if not isinstance(kind, SoftmaxAttention):
        return "MLA" if isinstance(kind, LatentAttention) else "compressed"
    if kind.n_kv_heads == kind.n_heads:
        return "MHA"
    return "MQA" if kind.n_kv_heads == 1 else "GQA"


def _layouts(table: pd.DataFrame) -> np.ndarray:
    keys = ["model", *[name for name in SHAPE_COLUMNS if name in table]]
    codes = table.groupby(keys, dropna=False, sort=False).ngroup().to_numpy()
    _, first = np.unique(codes, return_index=True)
    rows = table[keys].iloc[first].to_dict("records")
    names = [layout_name(shape_of_row({str(k): v for k, v in row.items()})) for row in rows]
    return np.array(names, dtype=object)[codes]


def _bound(table: pd.DataFrame) -> np.ndarray:
    seconds = table[["weight_s", "kv_s", "flop_s"]].to_numpy(float)
    memory = seconds[:, 0] + seconds[:, 1]
    part = np.where(seconds[:, 0] >= seconds[:, 1], "weights", "kv")
    bound = np.where(seconds[:, 2] > memory, "compute", part)
    return np.where(np.isnan(seconds).any(axis=1), UNKNOWN, bound)


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    speed, sources = table["tokens_per_s"], sorted(table["source"].unique())
    named = ", ".join(sources[:4])
    if len(sources) > 4:
        named += f" and {len(sources) - 4:,} more"
    unknown = int((table["bound"] == UNKNOWN).sum())
    rows: list[tuple[str, object]] = [
        ("rows", len(table)),
        ("sources", named),
        ("models", table["model"].nunique()),
        ("GPUs", table["gpu"].nunique()),
        ("engines", ", ".join(sorted(table["engine"].unique()))),
        ("attention layouts", ", ".join(sorted(table["layout"].unique()))),
        ("slowest tokens/s", float(speed.min())),
        ("fastest tokens/s", float(speed.max())),
        ("throughput range", float(speed.max() / speed.min())),
        ("memory-bound rows", int(table["bound"].isin(["weights", "kv"]).sum())),
        ("compute-bound rows", int((table["bound"] == "compute").sum())),
        ("rows below their floor", int((table["step_time_s"] < table["floor_s"]).sum())),
    ]
    if unknown:
        rows.append(("rows on GPUs without published figures", unknown))
    return pd.DataFrame(rows, columns=["what", "value"])


def _by_layout(table: pd.DataFrame) -> pd.DataFrame:
    found = table.groupby("layout").agg(
        rows=("layout", "size"),
        models=("model", "nunique"),
        least_kv_bytes_per_token=("kv_bytes_per_token", "min"),
        most_kv_bytes_per_token=("kv_bytes_per_token", "max"),
        memory_bound_share=("bound", _memory_bound),
    )
    return found.sort_values("rows", ascending=False).reset_index()


def _memory_bound(bound: pd.Series) -> float:
    """Share of the rows whose bound is known; NaN where none is."""
    known = bound[bound != UNKNOWN]
    return float((known != "compute").mean()) if len(known) else float("nan")


def _ranges(table: pd.DataFrame) -> pd.DataFrame:
    units = {
        "batch_size": "sequences", "context_len": "tokens", "tp": "GPUs", "step_time_s": "s",
        "tokens_per_s": "tokens/s", "kv_bytes_per_token": "byte", "weight_stored_bytes": "byte",
        "arithmetic_intensity": "FLOP/byte",
    }  # fmt: skip
    numbers = table[list(units)].astype(float)
    return pd.DataFrame(
        {
            "column": list(units),
            "unit": list(units.values()),
            "smallest": numbers.min().to_numpy(),
            "median": numbers.median().to_numpy(),
            "largest": numbers.max().to_numpy(),
            "values": numbers.nunique().to_numpy(),
        }
    )


def _coverage(table: pd.DataFrame) -> pd.DataFrame:
    keys = ["gpu", "engine", "weight_dtype"]
    return (
        table.groupby(keys).agg(rows=("model", "size"), models=("model", "nunique")).reset_index()
    )


def _missing(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Combinations of GPU, engine and weight dtype that never occur, `columns` with empty cells,
    and GPUs that lack a figure."""
    keys = ["gpu", "engine", "weight_dtype"]
    full = pd.MultiIndex.from_product([sorted(table[key].unique()) for key in keys], names=keys)
    absent = full.difference(pd.MultiIndex.from_frame(table[keys].drop_duplicates()))
    rows: list[tuple[str, str, int]] = [("combination", " / ".join(key), 0) for key in absent]
    for name in columns:
        empty = int(table[name].isna().sum())
        if empty:
            rows.append(("column", str(name), empty))
    bare = table.loc[table["bound"] == UNKNOWN, "gpu"].value_counts().sort_index()
    rows += [("gpu", str(gpu), int(count)) for gpu, count in bare.items()]
    return pd.DataFrame(rows, columns=["kind", "what", "empty_rows"])


def _bounds(table: pd.DataFrame) -> pd.DataFrame:
    counts = table.groupby("gpu")["bound"].value_counts().unstack(fill_value=0)
    known = ["weights", "kv", "compute", *([UNKNOWN] if UNKNOWN in counts else [])]
    counts = counts.reindex(columns=known, fill_value=0)
    return counts.reset_index().rename_axis(columns=None)
