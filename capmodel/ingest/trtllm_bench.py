"""`trtllm-bench throughput` and `latency` with `--report_json`: one object a run.

Written by tensorrt_llm/bench/dataclasses/reporting.py; latencies in ms, lengths are means.
Without --streaming there is no TPOT. `engine.quantization` null means the weights are in
`engine.dtype`; `kv_cache_dtype` null or "auto" means the cache is in `engine.dtype` too. An engine
that was built without expert parallelism says `ep_size` -1.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import numbers, serving_runs

VARIABLE_MAP = {
    "engine.model": "model",
    "engine.version": "engine_version",
    "engine.quantization": "weight_dtype",
    "engine.kv_cache_dtype": "kv_dtype",
    "engine.dtype": "compute_dtype [text]",
    "machine.name": "gpu",
    "world_info.tp_size": "tp",
    "world_info.pp_size": "pp",
    "world_info.ep_size": "ep",
    "world_info.world_size": "n_gpus",
    "request_info.num_requests": "requested",
    "request_info.avg_input_length": "input_len",
    "request_info.avg_output_length": "output_len",
    "request_info.avg_num_concurrent_requests": "concurrency",
    "performance.total_latency_ms": "duration_s [ms]",
    "performance.avg_request_latency_ms": "e2e_s [ms]",
    "performance.system_output_throughput_tok_s": "output_throughput_tok_s",
    "streaming_metrics.avg_ttft_ms": "ttft_s [ms]",
    "streaming_metrics.avg_tpot_ms": "tpot_s [ms]",
    "decoding_stats.acceptance_length_percentiles.average": "accepted_tokens",
}

_QUANTISATIONS = {
    "FP8": "fp8",
    "FP8_BLOCK_SCALES": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "NVFP4": "nvfp4",
    "W4A16": "int4",
    "W4A16_AWQ": "int4",
    "W4A16_GPTQ": "int4",
    "W4A8_AWQ": "int4",
    "W4A16_MXFP4": "mxfp4",
    "W4A8_MXFP4_MXFP8": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
    "W8A16": "int8",
    "INT8": "int8",
}


def recognises(first: Mapping[str, object]) -> bool:
    """True for an object that this tool writes."""
    return {"engine", "world_info", "request_info", "performance"} <= first.keys()


def read_trtllm_bench(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked. raw: the fields of VARIABLE_MAP, times [s]."""
    compute, given = raw["compute_dtype"], raw["weight_dtype"]
    weights = given.map(_QUANTISATIONS).fillna(given)
    cache = raw["kv_dtype"].astype(str).str.lower()
    runs = raw.drop(columns="compute_dtype").assign(
        engine="tensorrt-llm",
        weight_dtype=weights.where(weights != "", compute),
        kv_dtype=cache.where(~cache.isin(["", "auto"]), compute),
    )
    if "ep" in runs:
        runs["ep"] = np.where(numbers(raw, "ep") == -1, np.nan, numbers(raw, "ep"))
    if "requested" in runs:
        runs["completed"] = runs["requested"]  # the report counts finished requests only
    return serving_runs(runs)
