"""One meaning per column: what each tool's words become. Worked numbers stand in the comments."""

import json
from pathlib import Path

import pandas as pd
import pytest

from capmodel.ingest import Given, read_files, read_runs
from capmodel.ingest.serving import serving_runs

MODEL = {"model": "llama-3.1-8b", "gpu": "h100", "engine": "vllm"}
DTYPES = {"weight_dtype": "bf16", "kv_dtype": "bf16"}


def read(path: Path, **facts: object) -> pd.DataFrame:
    return read_runs(path, given=Given(facts))


def test_vllm_serve_takes_the_batch_from_throughput_and_tpot(formats: Path) -> None:
    row = read(formats / "vllm_serve.json").iloc[0]
    assert row["step_time_s"] == pytest.approx(0.030)  # mean_tpot_ms, others' prefill inside
    assert row["step_time_definition"] == "tpot"
    assert row["batch_size"] == pytest.approx(512.0 * 0.030)  # 15.36, never the 16 offered
    assert row["concurrency"] == 16
    assert (row["input_len"], row["output_len"]) == (1024, 256)  # tokens over 200 requests
    assert row["context_len"] == 1024 + 128
    assert row["gpu"] == "h100-sxm"  # the metadata says h100
    assert row["completed"] == row["requested"] == 200


def test_published_running_batch() -> None:
    """529.33 tokens/s at a TPOT of 108.19 ms are 57.3 sequences (PHYSICS section 7)."""
    raw = pd.DataFrame({"output_throughput_tok_s": [529.33], "tpot_s": [0.10819],
                        "input_len": [1000.0], "output_len": [100.0]})  # fmt: skip
    assert serving_runs(raw)["batch_size"].iloc[0] == pytest.approx(57.3, abs=0.05)


def test_two_vllm_latency_runs_become_one_clean_decode_step(formats: Path) -> None:
    found = read_files([formats / "vllm_latency_out128.json", formats / "vllm_latency_out256.json"])
    assert not found.refused
    row = found.runs.iloc[0]
    assert len(found.runs) == 1
    assert row["step_time_definition"] == "differenced"
    assert row["step_time_s"] == pytest.approx((2.98 - 1.70) / 128)  # 10 ms, prefill gone
    assert row["context_len"] == 512 + (128 + 256) / 2
    assert row["batch_size"] == 8
    assert list(found.aside["rule"]) == ["differenced", "differenced"]


def test_one_vllm_latency_run_keeps_its_prefill_inside(formats: Path) -> None:
    row = read(formats / "vllm_latency_out128.json").iloc[0]
    assert row["step_time_definition"] == "e2e_over_output"
    assert row["step_time_s"] == pytest.approx(1.70 / 128)


def test_vllm_latency_pytorch_form_holds_its_arguments(formats: Path) -> None:
    row = read(formats / "vllm_latency.pytorch.json", gpu="h100", kv_dtype="bf16").iloc[0]
    assert (row["tp"], row["batch_size"], row["input_len"], row["output_len"]) == (2, 4, 1024, 128)
    assert row["weight_dtype"] == "bf16"  # no quantization: the compute dtype
    assert row["step_time_s"] == pytest.approx(0.01)


def test_vllm_throughput_needs_the_admitted_batch(formats: Path) -> None:
    path = formats / "vllm_throughput.json"
    with pytest.raises(ValueError, match=r"--batch --input-len --output-len"):
        read(path, **MODEL, **DTYPES)
    row = read(path, **MODEL, **DTYPES, batch_size=64, input_len=512, output_len=128).iloc[0]
    # 512 requests x 128 tokens / 64 at a time = 1,024 steps in 64 s
    assert row["step_time_s"] == pytest.approx(0.0625)
    assert row["output_len"] == 128


def test_sglang_serving_and_its_speculation(formats: Path) -> None:
    runs = read(formats / "sglang_serving.jsonl", **MODEL, **DTYPES)
    first, second = runs.iloc[0], runs.iloc[1]
    assert first["engine"] == "sglang"  # the file's word, not the flag's
    assert first["batch_size"] == pytest.approx(27.306666)
    assert first["target_output_len"] == 512  # (1 + ratio) / 2 of 512 at ratio 1.0
    assert second["accepted_tokens"] == 2.9


def test_sglang_older_file_derives_tpot_from_the_median_ttft(shared_data: Path) -> None:
    runs = read(shared_data / "formats" / "sglang_bench_serving.jsonl", **MODEL, **DTYPES)
    row = runs.iloc[0]
    output = 160347 / 300
    assert row["step_time_s"] == pytest.approx((7.840616 - 0.0857451) / (output - 1), rel=1e-6)
    assert row["target_output_len"] == 512  # ratio 0: uniform from 0 to 1,024
    assert "tpot_from_median_ttft" in row["flags"]


def test_sglang_one_batch_is_the_step_itself(formats: Path) -> None:
    found = read_files([formats / "sglang_one_batch.jsonl"], given=Given({**MODEL, **DTYPES}))
    assert len(found.runs) == 1
    row = found.runs.iloc[0]
    assert (row["step_time_s"], row["batch_size"]) == (0.0085, 16)
    assert row["context_len"] == 1024 + 32
    assert row["step_time_definition"] == "decode_step"
    assert list(found.aside["rule"]) == ["no_decode"]  # the run of one output token


def test_sglang_one_batch_server_leaves_the_prefill_out(formats: Path) -> None:
    row = read(formats / "sglang_one_batch_server.jsonl", **MODEL, **DTYPES).iloc[0]
    assert row["step_time_s"] == pytest.approx((1.0 - 0.36) / 64)


def test_trtllm_bench_names_weights_cache_and_parallelism(formats: Path) -> None:
    row = read(formats / "trtllm_bench.json").iloc[0]
    assert (row["weight_dtype"], row["kv_dtype"]) == ("fp8", "fp8")
    assert (row["tp"], row["n_gpus"], row["engine"]) == (2, 2, "tensorrt-llm")
    assert row["gpu"] == "h100-sxm"  # "NVIDIA H100 80GB HBM3"
    assert row["batch_size"] == pytest.approx(4000 * 0.015)
    assert row["duration_s"] == pytest.approx(50.25)


@pytest.mark.parametrize("name", ["llama_bench.json", "llama_bench.csv", "llama_bench.md"])
def test_llama_bench_batch_is_one_sequence_in_every_form(formats: Path, name: str) -> None:
    facts = {"model": "llama-3.1-8b", "gpu": "rtx-4090"}
    runs = read_files([formats / name], given=Given({**facts, "kv_dtype": "fp16"})).runs
    assert (runs["batch_size"] == 1).all()
    assert (runs["engine"] == "llama.cpp").all()
    # "llama 8B" is in no catalogue, so the given name stands; "qwen2 7B" is.
    assert set(runs["model"]) == {"qwen2-7b" if name.endswith("md") else "llama-3.1-8b"}


def test_llama_bench_context_grows_from_the_depth(formats: Path) -> None:
    facts = Given({"model": "llama-3.1-8b", "gpu": "rtx-4090"})
    found = read_files([formats / "llama_bench.json"], given=facts)
    row = found.runs.iloc[0]
    assert row["step_time_s"] == pytest.approx(1 / 125.0)
    assert row["context_len"] == 4096 + 64
    assert row["kv_dtype"] == "q8_0,fp16"
    assert row["weight_bits"] == pytest.approx(8 * 4912898048 / 8030261312)  # 4.89, not 4
    assert row["flags"] == "gguf_mixture"
    assert sorted(found.aside["rule"]) == ["prefill_and_decode", "prefill_only"]


def test_llama_bench_plain_types_are_exact(formats: Path) -> None:
    row = read(formats / "llama_bench.csv", model="llama-3.1-8b", gpu="rtx-4090").iloc[0]
    assert row["weight_dtype"] == "fp16"
    assert row["flags"] == ""
    assert row["prefill_chunk"] == 2048  # -b is no number of sequences


def test_llama_bench_markdown_depth(formats: Path) -> None:
    runs = read(formats / "llama_bench.md", model="qwen2-7b", gpu="rtx-4090")
    assert list(runs["step_time_s"]) == pytest.approx([0.01, 0.0125])
    assert list(runs["context_len"]) == [64, 512 + 64]


def test_guidellm_leaves_time_per_output_token_alone(formats: Path) -> None:
    row = read(formats / "guidellm.json", gpu="h100", engine="vllm", **DTYPES).iloc[0]
    assert row["step_time_s"] == pytest.approx(0.019)  # (3.984 - 0.184) / 200; not 0.01982
    assert row["batch_size"] == pytest.approx(1587.9 * 0.019)
    assert (row["requested"], row["completed"], row["concurrency"]) == (960, 950, 32)
    assert row["model"] == "qwen3-8b"


def test_aiperf_and_genai_perf_in_ns_and_text_agree(formats: Path) -> None:
    facts = {"gpu": "h100", "engine": "vllm", **DTYPES}
    new = read(formats / "aiperf.json", **facts).iloc[0]
    old = read(formats / "genai_perf_ns.json", **facts).iloc[0]
    for column in ("step_time_s", "batch_size", "context_len", "ttft_s", "e2e_s", "concurrency"):
        assert new[column] == pytest.approx(old[column])
    assert new["step_time_s"] == pytest.approx(0.02)
    assert (new["completed"], new["requested"]) == (400, 440)


def test_inference_perf_does_not_count_chunks(formats: Path) -> None:
    row = read(formats / "inference_perf.json", **MODEL, **DTYPES).iloc[0]
    assert row["step_time_s"] == pytest.approx((2.05 - 0.05) / 100)  # 20 ms, the tool says 10.1
    assert row["itl_s"] == pytest.approx(0.0101)


@pytest.mark.parametrize("name", ["optimum_benchmark.json", "optimum_benchmark.csv"])
def test_optimum_benchmark_decode_covers_all_but_one_token(formats: Path, name: str) -> None:
    row = read(formats / name, kv_dtype="fp16").iloc[0]
    assert row["step_time_s"] == pytest.approx(2.5 / 100)  # 101 tokens, the first is prefill's
    assert (row["gpu"], row["weight_dtype"]) == ("a100-80gb-sxm", "fp16")
    assert row["context_len"] == 256 + 50.5


def test_inferencex_counts_output_per_decode_worker(formats: Path) -> None:
    runs = read(formats / "inferencex.json", kv_dtype="fp8")
    whole, split = runs.iloc[0], runs.iloc[1]
    assert whole["weight_dtype"] == "mxfp4"  # gpt-oss
    assert whole["batch_size"] == pytest.approx(500 * 4 * 0.012)
    assert whole["input_len"] == pytest.approx(0.9 * 1024)
    # disaggregated: 1,000 tokens/s x 16 decode GPUs over 2 workers of 8
    assert split["step_time_definition"] == "tpot_decode_only"
    assert split["batch_size"] == pytest.approx(1000 * 16 / 2 * 0.03)
    assert (split["tp"], split["dp"], split["ep"], split["n_gpus"]) == (1, 8, 8, 8)
    assert split["concurrency"] == 256


def test_llmd_report_is_one_replica_and_derives_the_step(formats: Path) -> None:
    row = read(formats / "llmd_report.json", **DTYPES).iloc[0]
    assert row["step_time_s"] == pytest.approx((4.12 - 0.12) / 200)  # not the generator's 9 ms
    assert row["batch_size"] == pytest.approx(1608 / 2 * 0.02)  # two replicas
    assert (row["tp"], row["n_gpus"], row["concurrency"]) == (2, 2, 32)
    assert (row["gpu"], row["engine"], row["model"]) == ("h100-sxm", "vllm", "qwen3-32b")


def test_llmd_report_in_yaml_reads_the_same(formats: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML reads llm-d reports and is optional")
    path = tmp_path / "benchmark_report.yaml"
    path.write_text(yaml.safe_dump(json.loads((formats / "llmd_report.json").read_text())))
    one, other = read(path, **DTYPES), read(formats / "llmd_report.json", **DTYPES)
    columns = [name for name in one if name not in ("run_id", "source")]
    pd.testing.assert_frame_equal(one[columns], other[columns])


def test_argonne_leaves_throughput_and_llamacpp_batch_alone(formats: Path) -> None:
    runs = read(formats / "argonne.csv")
    assert list(runs["step_time_s"]) == pytest.approx([0.02, 0.03, 0.02])
    assert list(runs["batch_size"]) == [16, 1, 1]
    assert list(runs["pp"]) == [1, 2, 1]
    assert runs["gpu"].iloc[2] == "max-1550"  # "Intel PVC GPU"


def test_aiconfigurator_sample(formats: Path) -> None:
    found = read_files([formats / "aiconfigurator.csv"])
    runs = found.runs.set_index(found.runs["run_id"].str[-1])
    assert runs.loc["1", "batch_size"] == runs.loc["1", "concurrency"] == 64
    assert runs.loc["1", "kv_dtype"] == "fp8"  # MiniMax is launched with an fp8 cache
    # tp 64 is tp 8 times ep 8, as the id says
    assert (runs.loc["2", "tp"], runs.loc["2", "ep"], runs.loc["2", "n_gpus"]) == (8, 8, 8)
    assert "parallelism_mended" in runs.loc["2", "flags"]
    assert runs.loc["3", "weight_dtype"] == "mxfp4"  # gpt-oss
    assert runs.loc["4", "batch_size"] == 24  # per worker; c96 is four of them
    assert runs.loc["4", "step_time_definition"] == "tpot_decode_only"
    assert dict(found.aside[["row", "rule"]].to_numpy()) == {
        5: "no_batch",
        6: "batch_contradiction",  # 32 x 1, the id says 64
        7: "parallelism_unknown",  # tp 72
    }


def test_argonne_table_as_it_stands(shared_data: Path) -> None:
    runs = read(shared_data / "argonne_llm_inference_bench.csv")
    assert len(runs) == 4286
    assert runs["model"].nunique() == 14
    assert runs["gpu"].nunique() == 7


def test_measured_serving_runs_as_they_stand(shared_data: Path) -> None:
    found = read_files([shared_data / "measured_serving_runs.csv"])
    assert found.files[0].rows == 2518
    assert found.aside["rule"].value_counts().to_dict() == {
        "no_batch": 695,
        "parallelism_unknown": 37,
        "batch_contradiction": 20,
    }
