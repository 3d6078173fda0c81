"""Where tokens/s stops growing with the batch, and what the ceiling is there."""

import numpy as np
import pandas as pd

# A series has stopped growing once doubling the batch gains less than a tenth in tokens/s.
FLAT_GAIN = 0.1
# Columns that name a series of steps over the batch.
SERIES = ["model", "gpu", "engine", "weight_dtype", "kv_dtype", "tp", "pp", "dp", "context_len"]
UNKNOWN = "unknown"  # what binds on a GPU whose bandwidth or peak nobody published
CEILINGS = {
    "cache": "twice the last batch does not fit in memory beside the weights",
    "compute": "tokens/s is flat and FLOP over peak takes longest",
    "cache reads": "tokens/s is flat and reading the cache takes longest",
    "weight reads": "tokens/s is flat and reading the weights takes longest",
    UNKNOWN: "tokens/s is flat on a GPU without published bandwidth or peak",
    "not reached": "tokens/s still grows at the largest batch measured",
}


def saturation_of(table: pd.DataFrame) -> pd.DataFrame:
    """Where tokens/s stops growing with batch, for each series of at least three batches.

    table: features with `tokens_per_s` and `bound`. The knee is the first batch from which on
    every doubling gains less than FLAT_GAIN; NaN where there is none. Repeats are averaged.

    Returns SERIES with `batches`, `largest_batch`, `knee_batch`, `peak_tokens_per_s`, `ceiling`.
    """
    keys = [name for name in SERIES if name in table]
    kept = ["tokens_per_s", "weight_stored_bytes", "kv_stored_bytes", "gpu_memory_bytes"]
    means = table.groupby([*keys, "batch_size"], sort=True)[kept].mean()
    steps = means.join(table.groupby([*keys, "batch_size"])["bound"].first()).reset_index()
    group = steps.groupby(keys, sort=True).ngroup()
    number = group.map(group.value_counts())
    steps, group = steps[number >= 3], group[number >= 3]
    if not len(steps):
        columns = [*keys, "batches", "largest_batch", "knee_batch", "peak_tokens_per_s", "ceiling"]
        return pd.DataFrame(columns=columns)
    by = steps.groupby(group)
    doubled = np.log2(by["batch_size"].shift(-1) / steps["batch_size"])
    gain = (by["tokens_per_s"].shift(-1) / steps["tokens_per_s"]) ** (1 / doubled) - 1
    # Flat from here on: no later doubling of the series gains FLAT_GAIN.
    growing = (gain >= FLAT_GAIN).iloc[::-1].groupby(group.iloc[::-1]).cummax().iloc[::-1]
    flat = steps[(~growing & gain.notna()).to_numpy()]
    last = by.tail(1).set_index(group[by.tail(1).index])
    found = last[keys].assign(
        batches=by.size(),
        largest_batch=last["batch_size"],
        knee_batch=flat.groupby(group[flat.index])["batch_size"].min(),
        peak_tokens_per_s=by["tokens_per_s"].max(),
    )
    found["ceiling"] = _ceiling(last, found["knee_batch"].notna())
    return found.reset_index(drop=True)


def ceiling_counts(saturation: pd.DataFrame) -> pd.DataFrame:
    """Series by ceiling, with `series`, `share`, `flat_series`, `median_knee_batch` and `meaning`.

    flat_series: those that have a knee, whose median median_knee_batch is; a series that memory
    ends may have none. "unknown" is a row only where it occurs.
    """
    rows = []
    for name, meaning in CEILINGS.items():
        own = saturation.loc[saturation["ceiling"] == name, "knee_batch"]
        if len(own) or name != UNKNOWN:
            rows.append(
                {
                    "ceiling": name,
                    "series": len(own),
                    "share": len(own) / max(len(saturation), 1),
                    "flat_series": int(own.notna().sum()),
                    "median_knee_batch": own.median(),
                    "meaning": meaning,
                }
            )
    return pd.DataFrame(rows)


def _ceiling(last: pd.DataFrame, flat: pd.Series) -> np.ndarray:
    """What stops each series at its last step: memory first, else what takes longest if flat."""
    twice = last["weight_stored_bytes"] + 2 * last["kv_stored_bytes"]
    names = {"compute": "compute", "kv": "cache reads", "weights": "weight reads"}
    reads = last["bound"].map(names | {UNKNOWN: UNKNOWN})
    stopped = np.where(flat, reads, "not reached")
    full = (twice > last["gpu_memory_bytes"]) & ~(flat & (last["bound"] == "compute"))
    return np.where(full, "cache", stopped)
