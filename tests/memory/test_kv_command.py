"""`capmodel kv` in a terminal of 80 columns, and as JSON."""

import json

import pytest

from capmodel.cli import main


@pytest.fixture
def kv(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["kv", *map(str, arguments)])
        out = capsys.readouterr()
        return end.value.code, out.out, out.err

    return run


def test_deepseek_v3_reads_well(kv):
    code, out, _ = kv("--model", "deepseek-v3", "--context", 131072, "--batch", 8,
                      "--kv-dtype", "fp8", "--tp", 8)  # fmt: skip
    assert code == 0
    assert "35,136 bytes per GPU" in out
    assert "36.8 GB per GPU" in out  # 8 * 131,072 * 35,136 bytes
    assert "each of the 8 GPUs keeps all" in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_carries_the_same_figures(kv):
    code, out, _ = kv("--model", "gpt-oss-120b", "--context", 4096, "--gpu", "h100",
                      "--weight-dtype", "mxfp4", "--json")  # fmt: skip
    record = json.loads(out)
    assert code == 0
    assert record["kv_bytes_per_token"] == 73_728
    assert record["growth_bytes_per_token"] == 36_864
    assert record["fit"]["concurrency"] > 0
    assert record["fit"]["budget"]["mode"] == "nameplate"


def test_not_one_request_is_exit_code_1_with_levers(kv):
    code, out, err = kv("--model", "llama-2-7b", "--context", 65536, "--gpu", "l4")
    assert code == 1
    assert "Does not fit" in out
    for lever in ("GQA", "MLA", "KV quantisation", "shorter context", "more tp", "fewer long"):
        assert lever in out
    assert err.count("Note:") == 1
    assert "4,096 tokens llama-2-7b" in err


def test_replay_of_the_issue_s_example(kv):
    code, out, _ = kv("--model", "qwen3-14b", "--engine", "vllm", "--engine-version", "0.11",
                      "--available-gib", "6.51", "--context", 32768)  # fmt: skip
    assert code == 0
    assert "42,656 tokens" in out  # L001 of engine_kv_logs.csv
    assert "1.30x" in out


def test_replay_as_json_and_refusal(kv):
    code, out, _ = kv("--model", "llama-3.1-8b", "--engine-version", "0.6.4", "--available-gib",
                      "2.89", "--context", 29000, "--json")  # fmt: skip
    record = json.loads(out)
    assert code == 1  # the engine refuses: 0.82 of a request (PHYSICS section 2)
    assert record["tokens_low"] <= 23_648 <= record["tokens_high"]


def test_llama_cpp_needs_no_available_memory(kv):
    code, out, _ = kv("--model", "qwen3-8b", "--engine", "llama.cpp", "--context", 8192)
    assert code == 0
    assert "1,152.00 MiB" in out  # L064


def test_log_side_by_side(kv, tmp_path):
    log = tmp_path / "startup.log"
    log.write_text(
        "INFO vLLM version 0.11.0\nINFO Available KV cache memory: 6.51 GiB\n"
        "INFO GPU KV cache size: 42,656 tokens\n"
        "INFO Maximum concurrency for 32,768 tokens per request: 1.30x\n"
    )
    code, out, _ = kv("--log", log, "--model", "qwen3-14b", "--gpu", "a100-40gb-sxm")
    assert code == 0
    for step in ("unit", "activation peak", "CUDA graphs", "page unification", "window in flight"):
        assert step in out
    assert "gap: tokens +0.00%" in out
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = kv("--log", log, "--model", "qwen3-14b", "--json")
    assert json.loads(out)["tokens_error"] == 0


def test_both_ways_to_count_weights_are_named(kv):
    """70.55e9 parameters at 8 bits over 2 GPUs are 35.3 GB; its two tables stay in 16 bits."""
    arguments = ("--model", "llama-3-70b", "--gpu", "h100", "--weight-dtype", "fp8", "--tp", 2)
    _, nameplate, _ = kv(*arguments)
    assert "weights: parameters x bits   35.3 GB" in nameplate
    assert "35.3 GB as parameters x bits; 36.3 GB as stored" in nameplate
    _, engine, _ = kv(*arguments, "--mode", "engine")
    assert "weights: as stored" in engine
    _, raw, _ = kv(*arguments, "--json")
    found = json.loads(raw)["weight_bytes"]
    tables = 2 * 128_256 * 8192  # a byte more for each of their elements, on two GPUs
    assert found["engine"] - found["nameplate"] == pytest.approx(tables / 2, rel=0.01)


def test_curve_and_frontier(kv, tmp_path):
    code, out, _ = kv("--model", "llama-3.1-70b", "--curve")
    assert code == 0
    for name in ("MHA", "GQA 8*", "MQA", "MLA", "GQA 8 fp8", "GQA 8 int4"):
        assert name in out
    assert max(map(len, out.splitlines())) <= 80
    figure = tmp_path / "frontier.svg"
    code, out, _ = kv("--model", "llama-3.1-70b", "--frontier", "--gpu", "h100", "--weight-dtype",
                      "int4", "--figure", figure, "--json")  # fmt: skip
    record = json.loads(out)
    row = record["context_len"].index(32768)
    assert (record["series"]["bf16"][row], record["series"]["fp8"][row]) == (3, 7)
    assert figure.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--model"),
        (["--model", "llama-3-7b"], "llama-3"),
        (["--model", "llama-3-70b", "--kv-dtype", "fp9"], "fp8"),
        (["--model", "llama-3-70b", "--tp", "3"], "64 attention heads"),
        (["--model", "llama-3-70b", "--context", "0"], "context"),
        (["--model", "llama-3-70b", "--engine", "vllm"], "--available-gib"),
        (["--model", "llama-3-70b", "--engine", "vlm", "--available-gib", "3"], "vllm"),
        (["--model", "llama-3-70b", "--available-gib", "much"], "6.51"),
        (["--model", "llama-3-70b", "--frontier"], "--gpu"),
        (["--log", "absent.log"], "cannot be read"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(kv, arguments, message):
    code, _, err = kv(*arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
