"""`vllm bench latency`: mean latency of one static batch, prefill inside.

The plain file holds only avg_latency, latencies and percentiles [s]; model, GPU, batch size and
lengths were flags and must be given. The `.pytorch.json` beside it holds them under
`benchmark.extra_info.args`. Two runs that differ only in output length are differenced later.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from capmodel.ingest.serving import either, numbers

_ARGS = "benchmark.extra_info.args"

VARIABLE_MAP = {
    "avg_latency": "e2e_s [s]",
    "metric.extra_info.avg_latency": "e2e_s [s]",
    "model.name": "model",
    f"{_ARGS}.model": "model",
    f"{_ARGS}.input_len": "input_len",
    f"{_ARGS}.output_len": "output_len",
    f"{_ARGS}.batch_size": "batch_size",
    f"{_ARGS}.tensor_parallel_size": "tp",
    f"{_ARGS}.pipeline_parallel_size": "pp",
    f"{_ARGS}.kv_cache_dtype": "kv_dtype",
    f"{_ARGS}.quantization": "weight_dtype",
    f"{_ARGS}.dtype": "compute_dtype [text]",
    f"{_ARGS}.speculative_config": "speculative",
}

# What `auto` leaves open is asked for.
_OPEN = ("auto", "none", "")

NEEDS = ("batch_size", "input_len", "output_len")


def recognises(first: Mapping[str, object]) -> bool:
    """True for an object that this tool writes, in either form."""
    plain = {"avg_latency", "latencies", "percentiles"} <= first.keys()
    benchmark, metric = first.get("benchmark"), first.get("metric")
    if isinstance(benchmark, Mapping) and isinstance(metric, Mapping):
        return metric.get("name") == "latency"
    return plain


def records(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The record without its `speculative_config` dict, which only counts as present."""
    args = record.get("benchmark", {})
    args = args.get("extra_info", {}) if isinstance(args, Mapping) else {}
    args = args.get("args", {}) if isinstance(args, Mapping) else {}
    if isinstance(args, dict) and args.get("speculative_config"):
        args["speculative_config"] = 1.0
    yield record


def read_vllm_latency(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked; step and context follow once the given facts are in."""
    weights = raw["weight_dtype"].where(~_open(raw["weight_dtype"]), raw["compute_dtype"])
    runs = raw.drop(columns="compute_dtype").assign(
        engine="vllm",
        step_time_definition="e2e_over_output",
        weight_dtype=weights.where(~_open(weights), ""),
        kv_dtype=raw["kv_dtype"].where(~_open(raw["kv_dtype"]), ""),
    )
    if "speculative" in runs:
        asked = runs.pop("speculative")
        runs["accepted_tokens"] = np.where(asked > 0, 2.0, np.where(asked.isna(), np.nan, 1.0))
    return runs


def _open(words: pd.Series) -> pd.Series:
    return words.astype(str).str.lower().isin(_OPEN)


def finish(runs: pd.DataFrame) -> pd.DataFrame:
    """Step and mean context of a static batch, from its latency and lengths."""
    prompt, output = numbers(runs, "input_len"), numbers(runs, "output_len")
    return runs.assign(
        step_time_s=either(numbers(runs, "step_time_s"), numbers(runs, "e2e_s") / output),
        context_len=either(numbers(runs, "context_len"), prompt + output / 2),
    )
