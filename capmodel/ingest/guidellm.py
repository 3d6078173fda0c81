"""guidellm: one JSON with a list of benchmarks, one a rate or concurrency.

`time_per_output_token_ms` divides the whole latency, TTFT included, by the tokens: it is not read.
`inter_token_latency_ms` is (E2E - TTFT) / (n - 1) per request, weighted by n - 1, so it is the
TPOT of other tools. Statistics are kept per status; only those of successful requests are read.
A report of another schema than those known is refused; older ones name none.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from capmodel.ingest.serving import check_version, either, numbers, serving_runs

VARIABLE_MAP = {
    "config.backend.model": "model",
    "config.backend.model_name": "model",
    "worker.backend_model": "model",
    "benchmarker.backend.model": "model",
    "report_args.model": "model",
    "metrics.request_totals.total": "requested",
    "metrics.request_totals.successful": "completed",
    "run_stats.requests_made.total": "requested",
    "run_stats.requests_made.successful": "completed",
    "request_totals.total": "requested",
    "request_totals.successful": "completed",
    "duration": "duration_s [s]",
    "start_time": "start_s [s]",
    "end_time": "end_s [s]",
    "metrics.request_concurrency.successful.mean": "concurrency_mean",
    "config.strategy.max_concurrency": "concurrency",
    "config.strategy.streams": "concurrency",
    "args.strategy.streams": "concurrency",
    "args.strategy.max_concurrency": "concurrency",
    "metrics.prompt_token_count.successful.mean": "input_len",
    "metrics.output_token_count.successful.mean": "output_len",
    "metrics.output_tokens_per_second.successful.mean": "output_throughput_tok_s",
    "metrics.requests_per_second.successful.mean": "request_throughput",
    "metrics.time_to_first_token_ms.successful.mean": "ttft_s [ms]",
    "metrics.inter_token_latency_ms.successful.mean": "tpot_s [ms]",
    "metrics.request_latency.successful.mean": "e2e_s [s]",
    "metrics.iter_tokens_per_iteration.successful.mean": "tokens_per_chunk",
}


def recognises(first: Mapping[str, object]) -> bool:
    """True for a report of this tool."""
    runs = first.get("benchmarks")
    if not isinstance(runs, list):
        return False
    if not runs:
        return "args" in first or "metadata" in first
    metrics = runs[0].get("metrics") if isinstance(runs[0], Mapping) else None
    return isinstance(metrics, Mapping) and "inter_token_latency_ms" in metrics


VERSIONS = (1, 2)


def records(report: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The benchmarks of a report, each with its arguments. Raises ValueError for another schema."""
    metadata = report.get("metadata")
    version = metadata.get("version") if isinstance(metadata, Mapping) else None
    check_version("guidellm's report", version, VERSIONS)
    for benchmark in report.get("benchmarks", []):
        if isinstance(benchmark, Mapping):
            yield {**benchmark, "report_args": report.get("args", {})}


def read_guidellm(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked. raw: the fields of VARIABLE_MAP, times [s]."""
    duration = either(numbers(raw, "duration_s"), numbers(raw, "end_s") - numbers(raw, "start_s"))
    offered = either(numbers(raw, "concurrency"), numbers(raw, "concurrency_mean"))
    tpot = numbers(raw, "tpot_s")
    runs = raw.drop(columns=["start_s", "end_s", "concurrency_mean"], errors="ignore").assign(
        duration_s=duration,
        concurrency=offered,
        tpot_s=np.where(tpot > 0, tpot, np.nan),
    )
    return serving_runs(runs)
