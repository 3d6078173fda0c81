"""Two runs that differ only in output length, differenced into a clean decode step.

Latency = prefill + output x step, and two runs of one batch and prompt share the prefill. So
(e2 - e1) / (n2 - n1) is the mean step between the n1-th and n2-th token, at a mean context of
input + (n1 + n2) / 2, with nothing else inside.
"""

import numpy as np
import pandas as pd

from capmodel.ingest.serving import numbers

_SAME = ("engine", "engine_version", "model", "gpu", "tp", "pp", "dp", "ep", "n_gpus",
         "weight_dtype", "kv_dtype", "batch_size", "input_len", "prefill_chunk")  # fmt: skip
_STATIC = "e2e_over_output"


def difference(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`runs` with static batches differenced where they can be, and the rows that went into it.

    runs: a checked runs table. Repeats of one output length are averaged first. A pair whose
    latency does not grow is left as it is. Returns (runs, consumed).
    """
    static = (runs["step_time_definition"] == _STATIC) & (numbers(runs, "e2e_s") > 0)
    keys = [name for name in _SAME if name in runs]
    if not static.any() or not {"input_len", "output_len"} <= set(runs.columns):
        return runs, runs.iloc[:0]
    group = runs[static].groupby(keys, dropna=False, sort=False)["output_len"]
    several = group.transform("nunique") > 1
    chosen = runs[static][several].dropna(subset=["input_len", "output_len"])
    if chosen.empty:
        return runs, runs.iloc[:0]
    first = {name: "first" for name in chosen.columns if name not in (*keys, "output_len", "e2e_s")}
    cells = chosen.groupby([*keys, "output_len"], dropna=False, as_index=False, sort=True).agg(
        {**first, "e2e_s": "mean"}
    )
    by = cells.groupby(keys, dropna=False, sort=False)
    earlier, shorter = by["e2e_s"].shift(), by["output_len"].shift()
    step = (cells["e2e_s"] - earlier) / (cells["output_len"] - shorter)
    shrinks = by["e2e_s"].transform(lambda times: (times.diff() <= 0).any())
    made = cells[step.notna() & ~shrinks].copy()
    made["step_time_s"] = step[made.index]
    made["context_len"] = made["input_len"] + (made["output_len"] + shorter[made.index]) / 2
    made["step_time_definition"] = "differenced"
    made["run_id"] = made["run_id"] + "-differenced"
    made["throughput_tok_s"] = np.nan
    good = cells[~shrinks][keys].drop_duplicates()
    marked = chosen.reset_index().merge(good, on=keys, how="inner")["index"]
    made = made.reindex(columns=runs.columns)
    return (
        pd.concat([runs[~runs.index.isin(marked)], made], ignore_index=True),
        runs.loc[marked],
    )
