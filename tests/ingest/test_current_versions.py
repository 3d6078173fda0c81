"""What the tools write in their newest versions, where it differs from older files."""

import copy
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from capmodel.ingest import Given, RunsError, read_files, read_runs

FACTS = {"gpu": "h100", "engine": "vllm", "weight_dtype": "bf16", "kv_dtype": "bf16"}
MODEL = {"model": "llama-3.1-8b", **FACTS}


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    return path


def only_row(tmp_path: Path, content: object, **facts: object) -> pd.Series:
    return read_runs(written(tmp_path, content), given=Given(facts)).iloc[0]


@pytest.fixture
def stage(formats: Path) -> dict[str, Any]:
    """inference-perf's stage report with the prompt under its newer name."""
    report: dict[str, Any] = json.loads((formats / "inference_perf.json").read_text())
    report["successes"]["prompt_tokens"] = {
        "total": 300_000.0, "cached": 0.0, "uncached": 300_000.0,
        **report["successes"].pop("prompt_len"),
    }  # fmt: skip
    report["benchmark_time_seconds"] = 62.5
    report["load_summary"]["concurrency"] = 32
    return report


def test_inference_perf_counts_the_prompt_in_prompt_tokens(
    tmp_path: Path, stage: dict[str, Any]
) -> None:
    row = only_row(tmp_path, stage, **MODEL)
    assert (row["input_len"], row["context_len"]) == (500, 550.5)
    assert (row["duration_s"], row["concurrency"], row["prefix_hit_share"]) == (62.5, 32, 0)
    assert row["flags"] == ""


def test_inference_perf_tells_cached_prompts_and_the_servers_count(
    tmp_path: Path, stage: dict[str, Any]
) -> None:
    stage["successes"]["prompt_tokens"]["cached"] = 240_000.0
    stage["successes"]["output_tokens"] = {"total": 60_600.0, "mean": 201.0}
    row = only_row(tmp_path, stage, **MODEL)
    assert row["prefix_hit_share"] == pytest.approx(0.8)
    assert row["step_time_s"] == pytest.approx(2.0 / 200)  # the server's 201 tokens, not 101


def test_inference_perf_summary_may_mix_its_stages(tmp_path: Path, stage: dict[str, Any]) -> None:
    for name in ("send_duration", "requested_rate", "achieved_rate", "concurrency"):
        del stage["load_summary"][name]
    assert only_row(tmp_path, stage, **MODEL)["flags"] == "all_stages"


@pytest.fixture
def export(formats: Path) -> dict[str, Any]:
    """aiperf's export with its second configuration, and telemetry."""
    content: dict[str, Any] = json.loads((formats / "aiperf.json").read_text())
    phase = {"name": "profiling", "type": "concurrency", "concurrency": 24}
    content["schema_version"] = "1.5"
    content["input_config"] = {
        "models": {"items": [{"name": "Qwen/Qwen3-8B"}]},
        "endpoint": {"type": "chat", "urls": ["http://localhost:8000"]},
        "datasets": [{"name": "main", "prompts": {"isl": {"mean": 550}, "osl": {"mean": 210}}}],
        "phases": [{"name": "warmup", "concurrency": 4}, phase],
    }
    gpus = {f"gpu_{i}": {"gpu_index": i, "gpu_name": "NVIDIA H100 80GB HBM3"} for i in range(2)}
    content["telemetry_data"] = {"endpoints": {"localhost:9400": {"gpus": gpus}}}
    return content


def test_aiperf_says_model_load_and_gpu_in_its_newer_form(
    tmp_path: Path, export: dict[str, Any]
) -> None:
    row = only_row(tmp_path, export, engine="vllm", weight_dtype="bf16", kv_dtype="bf16")
    assert (row["model"], row["gpu"]) == ("qwen3-8b", "h100-sxm")
    assert (row["concurrency"], row["target_output_len"]) == (24, 210)


def test_aiperf_with_two_kinds_of_gpu_is_asked_which(
    tmp_path: Path, export: dict[str, Any]
) -> None:
    gpus = export["telemetry_data"]["endpoints"]["localhost:9400"]["gpus"]
    gpus["gpu_1"]["gpu_name"] = ["NVIDIA A100-SXM4-80GB"]
    with pytest.raises(RunsError, match="give --gpu"):
        only_row(tmp_path, export, engine="vllm", weight_dtype="bf16", kv_dtype="bf16")


def test_a_model_that_is_no_name_is_asked_for(tmp_path: Path, export: dict[str, Any]) -> None:
    export["input_config"]["models"] = {"items": []}
    with pytest.raises(RunsError, match="give --model"):
        only_row(tmp_path, export, **FACTS)


@pytest.mark.parametrize("version", [99, "3", 2.5, [1], {"a": 1}])
def test_guidellm_of_an_unknown_schema_is_refused(
    tmp_path: Path, formats: Path, version: object
) -> None:
    report = json.loads((formats / "guidellm.json").read_text())
    report["metadata"]["version"] = version
    with pytest.raises(RunsError, match=r"version .* of guidellm's report, but expected one of 1"):
        only_row(tmp_path, report, **FACTS)


@pytest.mark.parametrize("version", [1, 2, "2", None])
def test_guidellm_of_the_known_schemas_is_read(
    tmp_path: Path, formats: Path, version: object
) -> None:
    report = json.loads((formats / "guidellm.json").read_text())
    report["metadata"]["version"] = version
    assert only_row(tmp_path, report, **FACTS)["step_time_s"] == pytest.approx(0.019)


def test_aiperf_of_another_major_schema_is_refused(tmp_path: Path, export: dict[str, Any]) -> None:
    native = {
        "schema_version": "2.0", "aiperf_version": "1.0.0", "run": {"model": "Qwen/Qwen3-8B"},
        "metrics": {"request_latency": {"type": "distribution", "unit": "ms", "series": []}},
    }  # fmt: skip
    for content in (native, {**export, "schema_version": "7.1"}):
        with pytest.raises(RunsError, match="of aiperf's export, but expected one of 1;"):
            only_row(tmp_path, content, **FACTS)


def test_llmd_divides_by_the_replicas_of_a_component(tmp_path: Path, formats: Path) -> None:
    report = json.loads((formats / "llmd_report.json").read_text())
    engines = report["scenario"]["stack"]
    del engines[2]  # one component of two replicas, not two components
    engines[1]["standardized"]["replicas"] = 2
    row = only_row(tmp_path, report, weight_dtype="bf16", kv_dtype="bf16")
    assert row["batch_size"] == pytest.approx(1608 / 2 * 0.02)
    assert row["concurrency"] == 32


def test_llmd_finds_the_engine_inside_the_stack(tmp_path: Path, formats: Path) -> None:
    report = json.loads((formats / "llmd_report.json").read_text())
    for component in report["scenario"]["stack"][1:]:
        component["standardized"].update(tool="llm-d", tool_version="ghcr.io/llm-d/llm-d-cuda:0.3")
    unknown = copy.deepcopy(report)
    report["scenario"]["stack"][1]["native"] = {"envars": {"VLLM_LOGGING_LEVEL": "DEBUG"}}
    dtypes = {"weight_dtype": "bf16", "kv_dtype": "bf16"}
    assert only_row(tmp_path, report, **dtypes)["engine"] == "vllm"
    with pytest.raises(RunsError, match="give --engine"):
        only_row(tmp_path, unknown, **dtypes)


def test_llmd_names_an_engine_version_by_its_image(tmp_path: Path, formats: Path) -> None:
    report = json.loads((formats / "llmd_report.json").read_text())
    for component in report["scenario"]["stack"][1:]:
        component["standardized"]["tool_version"] = "docker.io/vllm/vllm-openai:v0.11.0"
    row = only_row(tmp_path, report, weight_dtype="bf16", kv_dtype="bf16")
    assert row["engine_version"] == "0.11.0"


def test_trtllm_without_expert_parallelism_says_minus_one(tmp_path: Path, formats: Path) -> None:
    report = json.loads((formats / "trtllm_bench.json").read_text())
    report["world_info"]["ep_size"] = -1
    assert only_row(tmp_path, report)["ep"] == 1


def test_sglang_tells_dtypes_and_cached_prompts(tmp_path: Path, formats: Path) -> None:
    line = json.loads((formats / "sglang_serving.jsonl").read_text().splitlines()[0])
    line["server_info"] = {"model_path": "Qwen/Qwen3-8B", "tp_size": 2, "version": "0.5.6",
                           "quantization": "fp8", "kv_cache_dtype": "fp8_e4m3"}  # fmt: skip
    line["cache_report"] = {"cache_hit_rate_pct": 40.0}
    row = only_row(tmp_path, line, gpu="h100")
    assert (row["weight_dtype"], row["kv_dtype"], row["tp"]) == ("fp8", "fp8", 2)
    assert row["prefix_hit_share"] == pytest.approx(0.4)
    line["server_info"]["kv_cache_dtype"] = "auto"
    with pytest.raises(RunsError, match="give --kv-dtype"):
        only_row(tmp_path, line, gpu="h100")


def test_lengths_are_asked_for_by_name_and_give_the_context(tmp_path: Path, formats: Path) -> None:
    rows = json.loads((formats / "inferencex.json").read_text())
    row = {name: value for name, value in rows[0].items() if name not in ("isl", "osl")}
    with pytest.raises(RunsError, match="give --input-len --output-len"):
        only_row(tmp_path, row, kv_dtype="fp8")
    read = only_row(tmp_path, row, kv_dtype="fp8", input_len=1000, output_len=200)
    assert read["context_len"] == 1100


def test_a_count_beyond_every_float_is_none(tmp_path: Path, formats: Path) -> None:
    text = (formats / "vllm_serve.json").read_text()
    path = tmp_path / "run.json"
    path.write_text(text.replace('"completed": 200', '"completed": 1e400'))
    assert path.read_text() != text
    found = read_files([path], given=Given(FACTS))
    assert "no_decode" not in set(found.aside["rule"])
    assert found.refused  # the lengths cannot be told
