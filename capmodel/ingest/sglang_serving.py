"""SGLang `bench_serving`: one JSON object a line, a line a run.

Lengths of the random data set are uniform between ratio x length and length, so their mean is
(1 + ratio) / 2 of the flag; the measured means are used. Older versions wrote no TPOT and only the
median TTFT: the step is then (mean E2E - median TTFT) / (output - 1), and the row is flagged.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import add_flag, either, numbers, serving_runs

VARIABLE_MAP = {
    "backend": "engine",
    "model": "model",
    "model_id": "model",
    "server_info.model_path": "model",
    "server_info.tp_size": "tp",
    "server_info.pp_size": "pp",
    "server_info.version": "engine_version",
    "server_info.quantization": "weight_dtype",
    "server_info.kv_cache_dtype": "kv_dtype",
    "cache_report.cache_hit_rate_pct": "hit_percent",
    "num_prompts": "requested",
    "completed": "completed",
    "duration": "duration_s [s]",
    "max_concurrency": "concurrency",
    "total_input_tokens": "total_input_tokens",
    "total_output_tokens": "total_output_tokens",
    "output_throughput": "output_throughput_tok_s",
    "mean_ttft_ms": "ttft_s [ms]",
    "median_ttft_ms": "ttft_median_s [ms]",
    "mean_tpot_ms": "tpot_s [ms]",
    "mean_itl_ms": "itl_s [ms]",
    "median_itl_ms": "itl_median_s [ms]",
    "mean_e2e_latency_ms": "e2e_s [ms]",
    "random_output_len": "random_output_len",
    "random_range_ratio": "random_range_ratio",
    "dataset_name": "dataset [text]",
    "accept_length": "accepted_tokens",
}

_ENGINES = {
    "sglang": "sglang",
    "sglang-oai": "sglang",
    "sglang-oai-chat": "sglang",
    "sglang-native": "sglang",
    "vllm": "vllm",
    "vllm-chat": "vllm",
    "lmdeploy": "lmdeploy",
    "trt": "tensorrt-llm",
}

# What the server was started with, where that alone tells the dtype; "auto" tells none.
_WEIGHTS = {"fp8": "fp8", "awq": "int4", "awq_marlin": "int4", "gptq": "int4",
            "gptq_marlin": "int4", "modelopt_fp4": "nvfp4", "mxfp4": "mxfp4"}  # fmt: skip
_CACHES = {"fp8_e5m2": "fp8", "fp8_e4m3": "fp8", "bf16": "bf16", "bfloat16": "bf16"}


def recognises(first: Mapping[str, object]) -> bool:
    """True for an object that this tool writes."""
    return {"backend", "dataset_name", "completed", "output_throughput"} <= first.keys() and (
        "total_output_tokens_retokenized" in first or "mean_e2e_latency_ms" in first
    )


def read_sglang_serving(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked. raw: the fields of VARIABLE_MAP, times [s]."""
    ratio = numbers(raw, "random_range_ratio")
    random = raw["dataset"].astype(str).str.startswith("random")
    target = np.where(random, numbers(raw, "random_output_len") * (1 + ratio) / 2, np.nan)
    mean_ttft, median_ttft = numbers(raw, "ttft_s"), numbers(raw, "ttft_median_s")
    rough = np.isnan(mean_ttft) & np.isnan(numbers(raw, "tpot_s")) & ~np.isnan(median_ttft)
    extra = ["random_range_ratio", "random_output_len", "dataset", "ttft_median_s", "hit_percent"]
    runs = raw.drop(columns=extra, errors="ignore")
    runs = runs.assign(
        weight_dtype=raw["weight_dtype"].str.lower().map(_WEIGHTS).fillna(""),
        kv_dtype=raw["kv_dtype"].str.lower().map(_CACHES).fillna(""),
        prefix_hit_share=numbers(raw, "hit_percent") / 100,
        engine=raw["engine"].map(_ENGINES).fillna(raw["engine"]),
        ttft_s=either(mean_ttft, median_ttft),
        target_output_len=target,
    )
    runs = serving_runs(runs)
    add_flag(runs, rough, "tpot_from_median_ttft")
    return runs
