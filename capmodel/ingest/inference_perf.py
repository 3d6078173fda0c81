"""inference-perf stage or summary lifecycle metrics: one JSON a stage.

Latencies are in seconds. `time_per_output_token` of older versions divides by stream chunks, not
by tokens (empty ones counted), so it is about half the truth: the step is derived as
(E2E - TTFT) / (output - 1) from the means, and the tool's figure is kept as the chunk gap.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import numbers, serving_runs

_OK = "successes"

VARIABLE_MAP = {
    "load_summary.count": "sent",
    "load_summary.send_duration": "duration_s [s]",
    "load_summary.concurrency": "concurrency",
    f"{_OK}.count": "completed",
    "failures.count": "failed",
    f"{_OK}.latency.request_latency.mean": "e2e_s [s]",
    f"{_OK}.latency.time_to_first_token.mean": "ttft_s [s]",
    f"{_OK}.latency.time_per_output_token.mean": "itl_s [s]",
    f"{_OK}.prompt_len.mean": "input_len",
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
    return serving_runs(
        raw.drop(columns=["sent", "failed"], errors="ignore").assign(requested=sent)
    )
