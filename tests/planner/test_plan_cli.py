"""`capmodel plan`: what is printed, what is written, and how it ends."""

import json

import pytest

from capmodel.cli import main

CHAT = ["plan", "--model", "llama-3.1-8b", "--gpu", "l40s", "--gpu", "h100", "--rate", "6",
        "--input-len", "900", "--output-len", "150", "--length-cv", "0.7"]  # fmt: skip
PROMISES = ["--slo-ttft-p95", "1", "--slo-tpot-p95", "0.05"]


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code, *capsys.readouterr()


def test_the_tables_say_what_the_json_says(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, text, _ = run(capsys, *CHAT, *PROMISES)
    assert code == 0
    assert max(map(len, text.splitlines()[1:40])) <= 80
    code, raw, _ = run(capsys, *CHAT, *PROMISES, "--json")
    plan = json.loads(raw)
    best = plan["recommendation"]
    assert code == 0
    assert plan["message"] in text
    assert f"{best['replicas']} x tp {best['tp']} = {best['n_gpus']} {best['gpu']}" in text
    for row in plan["what_ifs"]:
        assert row["name"].split(",")[0] in text
    for title in ("Recommendation", "What users feel (simulation)", "Money and energy",
                  "What moves the cost", "Cost against latency"):  # fmt: skip
        assert title in text


def test_an_impossible_promise_ends_with_one_and_the_closest(capsys, tmp_path):
    out = tmp_path / "plan.json"
    code, text, error = run(capsys, *CHAT, "--slo-tpot-p95", "0.0001", "-o", out)
    assert code == 1
    assert "the closest" in text
    assert "TPOT p95" in text
    assert "Traceback" not in text + error
    assert json.loads(out.read_text())["feasible"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan"], "Give --model"),
        (["plan", "--model", "llama-3.1-8b", "--gpu", "h100"], "expected both"),
        ([*CHAT, "--trace", "no.csv"], "lengths beside a trace"),
        ([*CHAT, "--price", "cheap"], "no price"),
        ([*CHAT, "--price", "-1"], "0 or more"),
        ([*CHAT, "--tp", "0"], "0 is not in the range"),
        ([*CHAT, "--no-simulate", "-o", "plan.docx"], "ends in .json, .pdf or .html"),
        ([*CHAT, "--calibration", "none.json"], "none.json"),
        (["sweep", "--model", "llama-3.1-8b"], "--out"),
    ],
)
def test_bad_usage_is_one_line_and_ends_with_two(capsys, arguments, said):
    code, _, error = run(capsys, *arguments)
    assert code == 2
    assert said in error
    assert len(error.strip().splitlines()) == 1


def test_a_price_by_gpu_decides(capsys):
    dear = [*CHAT, "--price", "h100-sxm=99", "--price", "l40s=1", "--no-simulate", "--json"]
    _, raw, _ = run(capsys, *dear)
    assert json.loads(raw)["recommendation"]["gpu"] == "l40s"
    cheap = [*CHAT, "--price", "h100-sxm=0.1", "--price", "l40s=1", "--no-simulate", "--json"]
    _, raw, _ = run(capsys, *cheap)
    assert json.loads(raw)["recommendation"]["gpu"] == "h100-sxm"


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".json", b"{"), (".pdf", b"%PDF-"), (".html", b"<!DOCTYPE html>")]
)
def test_the_plan_is_written_by_suffix_and_says_its_command(capsys, tmp_path, suffix, begins):
    """Twice on one day, the same bytes; of pages tests/report says so, and they take seconds."""
    arguments = [*CHAT, "--no-simulate", "--date", "2026-03-01"]
    first, second = (tmp_path / f"{name}{suffix}" for name in "ab")
    assert run(capsys, *arguments, "-o", first)[0] == 0
    assert first.read_bytes().lstrip().lower().startswith(begins.lower())
    if suffix == ".json":
        assert run(capsys, *arguments, "-o", second)[0] == 0
        assert first.read_bytes() == second.read_bytes()
        written = json.loads(first.read_text())
        assert written["command"] == "capmodel " + " ".join(arguments)
        assert written["date"] == "2026-03-01"


def test_what_cannot_be_written_is_refused_before_the_work(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("capmodel.cli.plan._plan", None)  # would not be callable
    for out in (tmp_path, tmp_path / "no" / "plan.json", tmp_path / "plan.docx"):
        code, _, error = run(capsys, *CHAT, "-o", out)
        assert code == 2
        assert str(out) in error


def test_without_a_promise_none_is_missed(capsys):
    code, text, _ = run(capsys, *CHAT, "--no-simulate")
    assert code == 0
    assert "nothing was promised" in text
    assert "miss" not in text
    assert "Promise" not in text


def test_a_sweep_writes_its_rows(capsys, tmp_path):
    out = tmp_path / "grid.parquet"
    code, raw, _ = run(
        capsys, "sweep", "--model", "llama-3.1-8b", "--gpu", "h100", "--tp", "1",
        "--kv-dtype", "bf16", "--points", "3000", "-o", out, "--json",
    )  # fmt: skip
    found = json.loads(raw)
    assert code == 0
    assert found["rows"] == pytest.approx(3000, rel=0.1)
    assert out.stat().st_size > 10_000
