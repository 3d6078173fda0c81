"""`vllm bench serve` (and the older benchmark_serving.py): one JSON object a run.

Written by vllm/benchmarks/serve.py; `--metadata KEY=VALUE` adds fields of one's own, so tp, gpu and
the dtypes may stand in the file. Input and output tokens are summed over completed requests.
`request_rate` may be the text "inf"; latencies are in ms; with --save-detailed each request's
lists follow, which are not read.
"""

from collections.abc import Mapping

import pandas as pd

from capmodel.ingest.serving import serving_runs

VARIABLE_MAP = {
    "model_id": "model",
    "engine": "engine",
    "gpu": "gpu",
    "tensor_parallel_size": "tp",
    "tp": "tp",
    "pp": "pp",
    "weight_dtype": "weight_dtype",
    "kv_dtype": "kv_dtype",
    "kv_cache_dtype": "kv_dtype",
    "version": "engine_version",
    "num_prompts": "requested",
    "completed": "completed",
    "duration": "duration_s [s]",
    "max_concurrency": "concurrency",
    "total_input_tokens": "total_input_tokens",
    "total_output_tokens": "total_output_tokens",
    "request_throughput": "request_throughput",
    "output_throughput": "output_throughput_tok_s",
    "mean_ttft_ms": "ttft_s [ms]",
    "mean_tpot_ms": "tpot_s [ms]",
    "mean_itl_ms": "itl_s [ms]",
    "mean_e2el_ms": "e2e_s [ms]",
    "output_len": "target_output_len",
    "spec_decode_acceptance_length": "accepted_tokens",
}


def recognises(first: Mapping[str, object]) -> bool:
    """True for an object that this tool writes."""
    return {"model_id", "num_prompts", "completed", "duration"} <= first.keys()


def read_vllm_serve(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked. raw: the fields of VARIABLE_MAP, times [s]."""
    return serving_runs(raw.assign(engine=raw["engine"].replace("", "vllm")))
