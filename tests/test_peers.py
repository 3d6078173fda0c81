"""The comparison with the peer, its session replaced by a stub; the peer itself is not needed."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from capmodel.calibration import fit

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "peers.py"
HEADER = (
    "id,backend,backend_version,model_path,system,precision,mode,isl,osl,gemm_quant_mode,"
    "moe_quant_mode,batch_size,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,"
    "decode_batch_size,decode_num_workers,decode_tp_size,decode_pp_size,"
    "decode_attention_dp_size,decode_moe_tp_size,decode_moe_ep_size,silicon_ttft_ms,"
    "silicon_tpot_ms"
)


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    if not SCRIPT.exists():
        pytest.skip("benchmarks/ is not in this copy")
    spec = importlib.util.spec_from_file_location("peers_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def rows() -> pd.DataFrame:
    """Three deployments of four rows; measured times are theirs, 10 ms times the batch."""
    table = pd.DataFrame({
        "backend": np.repeat(["vllm", "sglang", "trtllm"], 4), "system": "h200_sxm",
        "model_path": "Qwen/Qwen3-32B", "gemm_quant_mode": "fp8", "moe_quant_mode": "",
        "weight_dtype": "fp8", "tp": 2, "pp": 1, "dp": 1, "ep": 1,
        "batch_size": np.tile([1.0, 2.0, 4.0, 8.0], 3), "input_len": 1024.0, "output_len": 256.0,
    })  # fmt: skip
    # Neighbours lie apart, so that answers put into the wrong row would show.
    shuffled = table.sample(frac=1.0, random_state=3).reset_index(drop=True)
    return shuffled.assign(step_time_s=0.01 * shuffled["batch_size"])


def one_reading(peers: ModuleType, row: object) -> list:
    return peers.readings(row, lambda model: None)


def test_each_row_gets_its_own_answer_and_each_deployment_one_session(
    peers: ModuleType, rows: pd.DataFrame
) -> None:
    opened = []

    def opener(asked):  # type: ignore[no-untyped-def]
        opened.append(asked)
        if asked.backend == "trtllm":
            raise RuntimeError("no kernel tables")

        def tpot(row):  # type: ignore[no-untyped-def]
            if asked.backend == "sglang" and row.batch_size > 4:
                raise KeyError("batch outside the tables")
            return 0.011 * row.batch_size

        return tpot

    answers = peers.ask(rows, lambda row: one_reading(peers, row), opener)
    assert sorted(asked.backend for asked in opened) == ["sglang", "trtllm", "vllm"]
    refused = (rows["backend"] == "trtllm") | (
        (rows["backend"] == "sglang") & (rows["batch_size"] > 4)
    )
    np.testing.assert_array_equal(np.isnan(answers.tpot_s), refused)
    there = ~refused.to_numpy()
    np.testing.assert_allclose(answers.tpot_s[there], 0.011 * rows["batch_size"][there])
    np.testing.assert_array_equal(answers.as_named, there)
    assert sum(answers.reasons.values()) == 5
    assert answers.reasons["no kernel tables"] == 4
    assert {what: len(taken) for what, taken in answers.seconds.items()} == {
        "ready": 2,
        "answer": 5,
    }


def test_a_second_reading_is_asked_where_the_first_is_refused(
    peers: ModuleType, rows: pd.DataFrame
) -> None:
    def opener(asked):  # type: ignore[no-untyped-def]
        if asked.gemm is not None:
            raise ValueError("GEMM perf data missing for quant 'fp8'")
        return lambda row: 0.02

    answers = peers.ask(rows, lambda row: peers.readings(row, lambda model: "fp8"), opener)
    assert (answers.tpot_s == 0.02).all()
    assert not answers.as_named.any()
    assert not answers.reasons
    # The checkpoint holds other weights than the row: its own modes would be another deployment.
    answers = peers.ask(rows, lambda row: peers.readings(row, lambda model: "int4"), opener)
    assert np.isnan(answers.tpot_s).all()


def test_an_answer_that_is_no_time_is_a_refusal(peers: ModuleType, rows: pd.DataFrame) -> None:
    for value in (0.0, -1.0, float("nan"), float("inf")):
        answers = peers.ask(
            rows, lambda row: one_reading(peers, row), lambda asked, own=value: lambda row: own
        )
        assert np.isnan(answers.tpot_s).all()
        assert answers.reasons == {"its estimate is no time": 12}


def test_names_and_modes_are_read_as_the_package_writes_them(peers: ModuleType) -> None:
    row = SimpleNamespace(
        model_path="nvidia/Qwen3-32B-NVFP4", system="b200_sxm", backend="trtllm",
        gemm_quant_mode="", moe_quant_mode="", weight_dtype="nvfp4",
        tp=1, pp=1, dp=1, ep=1,
    )  # fmt: skip
    (asked,) = one_reading(peers, row)
    assert (asked.model, asked.gemm, asked.moe) == ("Qwen/Qwen3-32B", "nvfp4", None)


def test_like_refusals_count_together(peers: ModuleType) -> None:
    told = {
        peers.refusal(RuntimeError(
            f'perf database error: perf database error: MoE data missing for MoeKey {{ quant: "fp8"'
            f", topk: 8, moe_tp_size: {tp} }} at /some/where"
        ))
        for tp in (1, 2, 4)
    }  # fmt: skip
    assert told == {"MoE data missing for fp8"}
    assert peers.refusal(AssertionError()) == "AssertionError"


def test_errors_are_of_the_rows_answered_and_of_those_that_both_answer(
    peers: ModuleType, rows: pd.DataFrame
) -> None:
    measured = rows["step_time_s"].to_numpy()
    gone = (rows["backend"] == "trtllm").to_numpy()
    named = (rows["backend"] == "vllm").to_numpy()
    off = np.where(gone, np.nan, 1.2 * measured)
    peer = peers.Answers(off, named, {"no kernel tables": 4}, {"ready": [1.0, 3.0, 8.0]})
    ours = peers.Answers(np.where(gone, 2.0, 0.9) * measured, ~gone, {}, {"ready": [0.1]})
    found = peers.compared(rows, {peers.PEER: peer, peers.OURS: ours})
    theirs, own = found["each"][peers.PEER], found["each"][peers.OURS]
    assert (theirs["n"], theirs["refused"]) == (8, 4)
    assert theirs["mape"] == pytest.approx(0.2)
    assert theirs["by_backend"]["trtllm"] == {
        "n": 0, "mape": None, "median_ape": None, "bias": None,
    }  # fmt: skip
    assert own["mape"] == pytest.approx((8 * 0.1 + 4 * 1.0) / 12)
    assert found["both"][peers.OURS]["n"] == 8
    assert found["both"][peers.OURS]["mape"] == pytest.approx(0.1)
    assert found["both_as_named"][peers.PEER]["n"] == 4
    assert found["both_as_named"][peers.PEER]["by_backend"].keys() == {"vllm"}
    counts = {"read": 14, "without_a_step": {"no_batch": 1}, "set_aside": {"copied": 1},
              "disaggregated_not_asked": 0, "graded": 12}  # fmt: skip
    text = peers.told({"rows": counts, **found})
    assert "2 set aside for both: 1 no_batch, 1 copied" in text
    assert "4  no kernel tables" in text
    assert "first answer 3 s, the longest 8.0 s" in text


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """Two models at four tp under vLLM, one deployment ten times as slow; one disaggregated row."""
    lines = [HEADER]
    for tp in (1, 2, 4, 8):
        for model in ("Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B-Instruct"):
            for batch in (1, 2, 4, 8, 16, 32):
                odd = 10 if (tp, model) == (4, "Qwen/Qwen3-32B") else 1
                tpot = odd * (30.0 / tp + 0.4 * batch)
                lines.append(
                    f"x_tp{tp}_{model[:4]}_c{batch},vllm,0.12.0,{model},h200_sxm,bf16,agg,1024,"
                    f"1024,,,{batch},{tp},1,1,{tp},1,,,,,,,,100,{tpot}"
                )
    lines.append("y,vllm,0.12.0,Qwen/Qwen3-32B,h200_sxm,bf16,disagg,1024,1024,,,,,,,,,,,,,,,,100,9")
    lines.append(
        "z,vllm,0.12.0,Qwen/Qwen3-32B,h200_sxm,bf16,disagg,1024,1024,,,,,,,,,8,1,2,1,1,2,1,100,19"
    )
    path = tmp_path / "sample.csv"
    path.write_text("\n".join(lines))
    return path


def test_ours_never_sees_the_deployment_it_answers_for(peers: ModuleType, sample: Path) -> None:
    """One deployment's times are tenfold; a fit that saw it comes nearer."""
    rows, counts = peers.graded_rows(sample)
    assert (counts["read"], counts["without_a_step"]) == (50, {"no_batch": 1})
    assert counts["disaggregated_not_asked"] == 1
    assert counts["graded"] + sum(counts["set_aside"].values()) == 48
    answers = peers.held_out(rows, seed=0)
    np.testing.assert_array_equal(np.isfinite(answers.tpot_s), rows["aggregated"])
    odd = ((rows["tp"] == 4) & (rows["model"] == "qwen3-32b")).to_numpy()
    assert odd.sum() >= 3
    measured = rows["step_time_s"].to_numpy()[odd]
    seen = fit(rows).predict(rows.iloc[np.flatnonzero(odd)])
    assert (answers.tpot_s[odd] < 0.2 * measured).all()
    assert (seen > 2 * answers.tpot_s[odd]).all()


def test_the_whole_run_with_a_stub(
    peers: ModuleType, sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opener(asked):  # type: ignore[no-untyped-def]
        if asked.model == "meta-llama/Meta-Llama-3.1-8B":
            raise ValueError("no such model")
        return lambda row: 1.5 * row.step_time_s

    monkeypatch.setattr(peers, "open_peer", opener)
    monkeypatch.setattr(peers, "stored_weights", lambda model: None)
    found = peers.run(sample, seed=0)
    graded = found["rows"]["graded"]
    theirs, own = found["each"][peers.PEER], found["each"][peers.OURS]
    assert theirs["mape"] == pytest.approx(0.5)
    assert theirs["n"] + theirs["refused"] == graded
    assert theirs["reasons"] == {"no such model": theirs["refused"]}
    assert (own["n"], own["refused"]) == (graded, 0)
    assert found["both"][peers.OURS]["n"] == theirs["n"]
    assert json.loads(json.dumps(found)) == found
    assert "no such model" in peers.told(found)


def test_a_file_that_is_no_sample_is_named(peers: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "engine,model,gpu,weight_dtype,kv_dtype,batch_size,context_len,step_time_s\n"
        "vllm,qwen3-32b,h200-sxm,bf16,bf16,8,1024,0.02\n"
    )
    with pytest.raises(ValueError, match="lacks id, backend, system, model_path"):
        peers.graded_rows(path)


def test_without_the_peer_one_line_says_what_to_install(tmp_path: Path) -> None:
    if not SCRIPT.exists():
        pytest.skip("benchmarks/ is not in this copy")
    # The peer is hidden, so that the test also runs where it is installed.
    code = (
        "import importlib.util, runpy, sys; real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: "
        "None if name == 'aiconfigurator_core' else real(name, *a)\n"
        f"sys.argv = ['peers.py', 'absent.csv']; runpy.run_path({str(SCRIPT)!r}, "
        "run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "aiconfigurator-core is not installed" in line
    assert "pip install" in line
