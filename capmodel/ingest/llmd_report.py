"""llm-d-benchmark's report, schema 0.2: JSON or YAML, one object a workload stage.

`scenario.stack` lists components; those of kind inference_engine say model, accelerator, its count
and parallelism. Every statistic carries its units. `time_per_output_token` means what the load
generator meant by it, so it is read only where that is known to be (E2E - TTFT) / (output - 1);
else the step is derived from the means. An unknown schema version is refused.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from capmodel.ingest.serving import check_version, numbers, serving_runs

_REQUESTS = "results.request_performance.aggregate"
_LOAD = "scenario.load.standardized"

VARIABLE_MAP = {
    "engine_component.model.name": "model",
    "engine_component.tool": "engine",
    "engine_component.tool_version": "engine_version",
    "engine_component.accelerator.model": "gpu",
    "engine_component.accelerator.count": "n_gpus",
    "engine_component.accelerator.parallelism.tp": "tp",
    "engine_component.accelerator.parallelism.pp": "pp",
    "engine_component.accelerator.parallelism.dp": "dp",
    "engine_component.accelerator.parallelism.ep": "ep",
    "engine_component.role": "role [text]",
    "engine_component.replicas": "replicas",
    f"{_LOAD}.tool": "generator [text]",
    f"{_LOAD}.concurrency": "concurrency",
    f"{_LOAD}.output_seq_len.value": "target_output_len",
    f"{_REQUESTS}.requests.total": "requested",
    f"{_REQUESTS}.requests.failures": "failed",
    f"{_REQUESTS}.requests.incomplete": "incomplete",
    f"{_REQUESTS}.requests.input_length.mean": "input_len",
    f"{_REQUESTS}.requests.output_length.mean": "output_len",
    f"{_REQUESTS}.latency.time_to_first_token.mean": "ttft_s [unit]",
    f"{_REQUESTS}.latency.time_per_output_token.mean": "reported_tpot_s [unit]",
    f"{_REQUESTS}.latency.inter_token_latency.mean": "itl_s [unit]",
    f"{_REQUESTS}.latency.request_latency.mean": "e2e_s [unit]",
    f"{_REQUESTS}.throughput.output_token_rate.mean": "output_throughput_tok_s",
}

VERSIONS = ("0.2", "0.2.1")
_ENGINES = ("vllm", "sglang", "tensorrt-llm", "trtllm")
_TRUE_TPOT = ("vllm", "vllm-benchmark", "inferencemax", "aiperf", "sglang")


def recognises(first: Mapping[str, object]) -> bool:
    """True for a benchmark report of any schema version."""
    return "version" in first and "results" in first and "scenario" in first


def records(report: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The report with the engine that decodes. Raises ValueError for another schema version."""
    check_version("llm-d's report", str(report.get("version")), VERSIONS)
    engines = [component for component in _components(report) if "accelerator" in component]
    decode = [item for item in engines if item.get("role") in ("decode", "replica")] or engines
    chosen = decode[0] if decode else {}
    alike = [item for item in decode if item.get("role") == chosen.get("role")]
    engine = {"tool": _engine(chosen, report), "tool_version": _version(chosen)}
    replicas = sum(_replicas(item) for item in alike) or 1
    yield {**report, "engine_component": {**chosen, **engine, "replicas": replicas}}


def _replicas(component: Mapping[str, Any]) -> float:
    """Copies of a component; it is there once where it does not say."""
    count = component.get("replicas")
    told = isinstance(count, int | float) and not isinstance(count, bool) and count >= 1
    return float(count) if told and count is not None else 1.0


def _engine(component: Mapping[str, Any], report: Mapping[str, Any]) -> object:
    """The engine inside; llm-d is the stack around one, so its variables tell which."""
    tool = component.get("tool")
    if not isinstance(tool, str) or not tool.lower().startswith("llm-d"):
        return tool
    text = f"{component.get('tool_version')} {_variables(report)}".lower()
    found = [name for name in _ENGINES if re.search(rf"\b{name}", text.replace("_", "-"))]
    return found[0] if len(found) == 1 else None


def _variables(report: Mapping[str, Any]) -> str:
    """Names of the environment of all components."""
    scenario = report.get("scenario")
    stack = scenario.get("stack") if isinstance(scenario, Mapping) else None
    natives = [item.get("native") for item in stack or [] if isinstance(item, Mapping)]
    named = [item.get("envars") for item in natives if isinstance(item, Mapping)]
    return " ".join(str(name) for names in named if isinstance(names, Mapping) for name in names)


def _version(component: Mapping[str, Any]) -> object:
    """The engine's own version; an image is named by its tag."""
    version = component.get("tool_version")
    tag = re.search(r"/[^/:]+:v?(\d[\w.+-]*)$", version) if isinstance(version, str) else None
    own = tag and not str(component.get("tool")).lower().startswith("llm-d")
    return tag.group(1) if tag and own else version


def _components(report: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    scenario = report.get("scenario")
    stack = scenario.get("stack") if isinstance(scenario, Mapping) else None
    for component in stack if isinstance(stack, list) else []:
        standard = component.get("standardized") if isinstance(component, Mapping) else None
        if isinstance(standard, Mapping):
            yield standard


def read_llmd_report(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked, for one replica of the engine. raw: as VARIABLE_MAP, times [s]."""
    generator, role = raw["generator"].astype(str), raw["role"].astype(str)
    replicas = np.nan_to_num(numbers(raw, "replicas"), nan=1.0)
    lost = np.nan_to_num(numbers(raw, "failed")) + np.nan_to_num(numbers(raw, "incomplete"))
    known = generator.str.lower().isin(_TRUE_TPOT).to_numpy()
    drop = ["generator", "role", "replicas", "failed", "incomplete", "reported_tpot_s"]
    runs = raw.drop(columns=drop, errors="ignore").assign(
        completed=numbers(raw, "requested") - lost,
        tpot_s=np.where(known, numbers(raw, "reported_tpot_s"), np.nan),
        concurrency=numbers(raw, "concurrency") / replicas,
        output_throughput_tok_s=numbers(raw, "output_throughput_tok_s") / replicas,
    )
    runs = serving_runs(runs)
    runs.loc[role.str.lower() == "decode", "step_time_definition"] = "tpot_decode_only"
    return runs
