"""aiperf (profile_export_aiperf.json) and genai-perf (..._genai_perf.json): one object a run.

Every metric is {"unit": ..., "avg": ...}; the unit is read, since genai-perf's older files were
in ns and held numbers as text. `inter_token_latency` is (E2E - TTFT) / (OSL - 1), so a TPOT.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import numbers, serving_runs

VARIABLE_MAP = {
    "input_config.endpoint.model_names": "model",
    "input_config.endpoint.model_selection.models.0": "model",
    "input_config.models": "model",
    "input_config.model_names": "model",
    "input_config.model": "model",
    "input_config.loadgen.concurrency": "concurrency",
    "input_config.perf_analyzer.stimulus.concurrency": "concurrency",
    "input_config.concurrency": "concurrency",
    "input_config.input.prompt.output_tokens.mean": "target_output_len",
    "input_config.output_tokens_mean": "target_output_len",
    "request_count.avg": "completed",
    "error_request_count.avg": "failed",
    "benchmark_duration.avg": "duration_s [unit]",
    "time_to_first_token.avg": "ttft_s [unit]",
    "inter_token_latency.avg": "tpot_s [unit]",
    "inter_chunk_latency.avg": "itl_s [unit]",
    "request_latency.avg": "e2e_s [unit]",
    "input_sequence_length.avg": "input_len",
    "num_input_token.avg": "input_len",
    "output_sequence_length.avg": "output_len",
    "num_output_token.avg": "output_len",
    "output_token_throughput.avg": "output_throughput_tok_s",
    "request_throughput.avg": "request_throughput",
}

NEEDS_UNIT = ("ttft_s", "tpot_s", "e2e_s")


def recognises(first: Mapping[str, object]) -> bool:
    """True for an export of either tool."""
    latency = first.get("request_latency")
    return isinstance(latency, Mapping) and "avg" in latency and "input_config" in first


def read_aiperf(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked. raw: the fields of VARIABLE_MAP, times [s]."""
    completed, failed = numbers(raw, "completed"), np.nan_to_num(numbers(raw, "failed"))
    target = numbers(raw, "target_output_len")
    tpot = numbers(raw, "tpot_s")
    runs = raw.drop(columns="failed", errors="ignore").assign(
        requested=completed + failed,
        target_output_len=np.where(target > 0, target, np.nan),
        tpot_s=np.where(tpot > 0, tpot, np.nan),
    )
    return serving_runs(runs)
