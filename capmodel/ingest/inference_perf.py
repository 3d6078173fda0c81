"""inference-perf stage or summary lifecycle metrics: one JSON a stage.

Latencies are in seconds. `time_per_output_token` of older versions divides by stream chunks, not
by tokens (empty ones counted), so it is about half the truth: the step is derived as
(E2E - TTFT) / (output - 1) from the means, and the tool's figure is kept as the chunk gap.
Newer versions count the prompt in `prompt_tokens` (older: `prompt_len`), and the output as the
server reports it in `output_tokens`, which is exact where `output_len` is tokenised again.
The summary of a run is over all of its stages: where they differ in load it is no one step.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import add_flag, numbers, serving_runs

_OK = "successes"

VARIABLE_MAP = {
    "load_summary.count": "sent",
    "benchmark_time_seconds": "duration_s [s]",
    "load_summary.send_duration": "duration_s [s]",
    "load_summary.requested_rate": "stage_rate",
    "load_summary.concurrency": "concurrency",
    f"{_OK}.count": "completed",
    "failures.count": "failed",
    f"{_OK}.latency.request_latency.mean": "e2e_s [s]",
    f"{_OK}.latency.time_to_first_token.mean": "ttft_s [s]",
    f"{_OK}.latency.time_per_output_token.mean": "itl_s [s]",
    f"{_OK}.prompt_len.mean": "input_len",
    f"{_OK}.prompt_tokens.mean": "input_len",
    f"{_OK}.prompt_tokens.total": "prompt_tokens",
    f"{_OK}.prompt_tokens.cached": "cached_tokens",
    f"{_OK}.output_tokens.mean": "output_len",
    f"{_OK}.output_len.mean": "output_len",
    f"{_OK}.throughput.output_tokens_per_sec": "output_throughput_tok_s",
}


def recognises(first: Mapping[str, object]) -> bool:
    """True for a lifecycle report of this tool."""
    return {"load_summary", "successes", "failures"} <= first.keys()


def read_inference_perf(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked. raw: the fields of VARIABLE_MAP, times [s]."""
    completed, failed = numbers(raw, "completed"), np.nan_to_num(numbers(raw, "failed"))
    sent = np.fmax(numbers(raw, "sent"), completed + failed)
    duration = numbers(raw, "duration_s")
    whole = np.isnan(numbers(raw, "stage_rate"))
    extra = ["sent", "failed", "stage_rate", "prompt_tokens", "cached_tokens"]
    runs = raw.drop(columns=extra, errors="ignore").assign(
        requested=sent,
        duration_s=np.where(duration > 0, duration, np.nan),
        prefix_hit_share=numbers(raw, "cached_tokens") / numbers(raw, "prompt_tokens"),
    )
    runs = serving_runs(runs)
    add_flag(runs, whole, "all_stages")
    return runs
