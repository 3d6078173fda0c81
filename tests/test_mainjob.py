"""`capmodel run` from files to files: what it writes, and what bad input does."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from capmodel.cli import main
from capmodel.datasets import make_runs
from capmodel.mainjob import choose_deployment

FILES = {"capacity_plan.pdf", "metrics.json", "calibration.json", "runs_set_aside.csv"}


def run(*args: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command, in this process."""
    runner = CliRunner()
    with runner.isolation() as (out, err, _):
        try:
            main([str(arg) for arg in args])
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, out.getvalue().decode(), err.getvalue().decode()


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A small runs table with one row that cannot be true."""
    runs = make_runs(n=300, seed=5)
    runs.loc[7, "step_time_s"] = 1e-6
    path = tmp_path_factory.mktemp("runs") / "mine.csv"
    runs.drop(columns=["throughput_tok_s"], errors="ignore").to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def job(small, tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("out") / "reports"
    code, printed, errors = run("run", small, "--out", out)
    assert code == 0, errors
    return out, printed


def test_the_four_files_and_nothing_else(job) -> None:
    out, printed = job
    assert {path.name for path in out.iterdir()} == FILES
    assert "300 rows read, 299 used" in printed
    assert "below_floor" in printed


def test_the_plan_says_where_the_rows_are_from_and_what_it_took_of_the_memory(job) -> None:
    import pypdf

    pages = pypdf.PdfReader(job[0] / "capacity_plan.pdf").pages
    text = " ".join(" ".join(page.extract_text() for page in pages).split())
    assert "Where they are from. synthetic" in text
    assert "Share the engine may use 92.0 %" in text
    assert " ± " in text


def test_metrics_as_interfaces_define_them(job, small) -> None:
    metrics = json.loads((job[0] / "metrics.json").read_text())
    assert metrics["schema_version"] == 1
    assert metrics["target"] == "step_time_s"
    assert metrics["inputs"][0]["name"] == small.name
    assert len(metrics["inputs"][0]["sha256"]) == 64
    assert metrics["rows"]["read"] == 300
    assert metrics["rows"]["used"] + sum(metrics["rows"]["set_aside"].values()) == 300
    assert metrics["rows"]["set_aside"]["below_floor"] == 1
    cell = metrics["splits"]["random"]["roofline"]
    assert set(cell) == {
        "mape",
        "median_ape",
        "p90_ape",
        "bias",
        "r2",
        "r2_log",
        "coverage_90",
        "n",
    }
    assert cell["n"] == 299
    assert set(metrics["splits"]["gpu"]) == {
        "raw_linear", "raw_boosting", "nearest", "roofline", "regressor",
    }  # fmt: skip


def test_every_row_set_aside_has_a_rule_and_a_reason(job) -> None:
    aside = pd.read_csv(job[0] / "runs_set_aside.csv")
    assert len(aside) == 1
    assert aside["rule"][0] == "below_floor"
    assert len(aside["reason"][0]) > 20


def test_the_calibration_it_writes_predicts(job) -> None:
    code, printed, errors = run(
        "predict", "--model", "llama-3-8b", "--gpu", "h100", "--json",
        "--calibration", job[0] / "calibration.json",
    )  # fmt: skip
    assert code == 0, errors
    found = json.loads(printed)
    assert found["calibration_id"].startswith("mine-")
    assert found["low_s"] < found["step_time_s"] < found["high_s"]


def test_the_plan_says_that_its_runs_are_synthetic(job) -> None:
    from pypdf import PdfReader

    text = "".join(page.extract_text() for page in PdfReader(job[0] / "capacity_plan.pdf").pages)
    assert "synthetic" in text.lower()


BAD_FILES = {
    "empty.csv": (b"", "is empty"),
    "header.csv": (b"engine,model,gpu\n", "holds no runs"),
    "binary.csv": (bytes(range(256)) * 20, "binary"),
    "other.csv": (b"a,b\n1,2\n", "no benchmark"),
    "parquet.parquet": (b"PAR1 and then nothing", "Parquet"),
    "text.csv": (b"hello there\n", ""),
}


@pytest.mark.parametrize("name", list(BAD_FILES))
def test_bad_files_get_one_line_and_exit_code_2(name: str, tmp_path) -> None:
    content, said = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    code, _, errors = run("run", path, "--out", tmp_path / "out")
    assert code == 2
    assert said in errors
    assert "Traceback" not in errors
    assert len(errors.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


GOOD_ROW = (
    "run_id,engine,model,gpu,weight_dtype,kv_dtype,batch_size,context_len,step_time_s\n"
    "a,vllm,llama-3-8b,h100,bf16,bf16,{batch},1024,{time}\n"
)


@pytest.mark.parametrize(
    ("batch", "time", "said"),
    [
        ("8", "12", "millisecond"),
        ("-8", "0.012", "batch_size"),
        ("8", "nan", "step_time_s"),
        ('"1,2,3"', "0.012", "thousands separators"),
    ],
)
def test_bad_numbers_are_named(batch: str, time: str, said: str, tmp_path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(GOOD_ROW.format(batch=batch, time=time))
    code, _, errors = run("run", path, "--out", tmp_path / "out")
    assert code == 2
    assert said in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()


def test_bom_and_semicolons_are_read(tmp_path) -> None:
    from capmodel.ingest import read_runs

    path = tmp_path / "runs.csv"
    text = GOOD_ROW.format(batch="8", time="0,012").replace("0,012", "0§012")
    path.write_bytes(("\ufeff" + text.replace(",", ";").replace("§", ",")).encode())
    assert read_runs(path)["step_time_s"].iloc[0] == pytest.approx(0.012)


def test_directories_and_vanished_files(tmp_path) -> None:
    for path in (tmp_path, tmp_path / "gone.csv"):
        code, _, errors = run("run", path, "--out", tmp_path / "out")
        assert code in (1, 2)
        assert "Traceback" not in errors


def test_out_that_is_a_file(small, tmp_path) -> None:
    target = tmp_path / "file"
    target.write_text("mine")
    code, _, errors = run("run", small, "--out", target)
    assert code == 2
    assert "is a file" in errors
    assert target.read_text() == "mine"


@pytest.mark.parametrize("command", ["run", "predict", "fit", "grade", "kv", "plan", "ingest",
                                     "profile", "report", "diff", "dataset", "lab"])  # fmt: skip
def test_every_command_has_help(command: str) -> None:
    code, printed, _ = run(command, "--help")
    assert code == 0
    assert "Usage" in printed


def test_import_is_light() -> None:
    code = (
        "import sys, capmodel; "
        "print([m for m in ('matplotlib','lightgbm','fastapi','sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_deployment_has_a_range_of_batches_rather_than_many_rows_at_one() -> None:
    runs = make_runs(40, seed=1).assign(model="llama-3-8b", gpu="h100-sxm", tp=1)
    runs = runs.assign(weight_dtype="bf16", kv_dtype="bf16")
    at_one = runs.iloc[:30].assign(engine="llama.cpp", batch_size=1)
    spread = runs.iloc[30:].assign(engine="vllm", batch_size=[2, 4, 8, 16, 32] * 2)
    chosen = choose_deployment(pd.concat([at_one, spread]), None, None, None, None)
    assert chosen.engine == "vllm"
    assert "at 6 batch sizes" in chosen.chosen_because
