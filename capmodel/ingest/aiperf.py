"""aiperf (profile_export_aiperf.json) and genai-perf (..._genai_perf.json): one object a run.

Every metric is {"unit": ..., "avg": ...}; the unit is read, since genai-perf's older files were
in ns and held numbers as text. `inter_token_latency` is (E2E - TTFT) / (OSL - 1), so a TPOT.
The GPU is named where its telemetry was collected, and all of them are one. A schema of another
major version than 1 is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from capmodel.ingest.serving import check_version, numbers, serving_runs

VARIABLE_MAP = {
    "input_config.endpoint.model_names": "model",
    "input_config.endpoint.model_selection.models.0": "model",
    "input_config.models.items.0.name": "model",
    "input_config.models": "model",
    "input_config.model_names": "model",
    "input_config.model": "model",
    "measured.gpu": "gpu",
    "measured.concurrency": "concurrency",
    "input_config.loadgen.concurrency": "concurrency",
    "input_config.perf_analyzer.stimulus.concurrency": "concurrency",
    "input_config.concurrency": "concurrency",
    "input_config.datasets.0.prompts.osl.mean": "target_output_len",
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
    """True for an export of either tool, of any schema."""
    latency = first.get("request_latency")
    if isinstance(latency, Mapping) and "avg" in latency:
        return "input_config" in first
    metrics = first.get("metrics")
    return {"aiperf_version", "schema_version", "run"} <= first.keys() and (
        isinstance(metrics, Mapping) and "request_latency" in metrics
    )


def records(export: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The export with what was measured on. Raises ValueError for another major schema."""
    schema = export.get("schema_version")
    check_version("aiperf's export", _major(schema), (1,))
    yield {**export, "measured": {"gpu": _gpu(export), "concurrency": _concurrency(export)}}


def _major(schema: object) -> object:
    """The major version of a schema; what is no version, as it is."""
    return schema if schema is None else str(schema).split(".")[0]


def _gpu(export: Mapping[str, Any]) -> str | None:
    """The name of the GPUs that were watched, where it is one."""
    endpoints = _at(_at(export, "telemetry_data"), "endpoints")
    watched = [_at(point, "gpus") for point in _values(endpoints)]
    names = {str(_at(gpu, "gpu_name") or "") for gpus in watched for gpu in _values(gpus)}
    return names.pop() if len(names) == 1 else None


def _concurrency(export: Mapping[str, Any]) -> object:
    """The concurrency of the one profiling phase of a newer configuration."""
    phases = _at(_at(export, "input_config"), "phases")
    found = [
        _at(phase, "concurrency")
        for phase in (phases if isinstance(phases, list) else [])
        if _at(phase, "name") != "warmup"
    ]
    return found[0] if len(found) == 1 else None


def _at(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _values(value: object) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else []


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
