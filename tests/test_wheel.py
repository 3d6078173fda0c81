"""The wheel works with no checkout around it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_PART = """
import capmodel
from capmodel.datasets import load_silicon_runs
load_silicon_runs().iloc[::20].to_parquet("part.parquet")
print(capmodel.__file__)
"""


@pytest.mark.slow
def test_wheel_runs_the_main_job_elsewhere(tmp_path: Path) -> None:
    """Build the wheel, install it into a bare venv, run `capmodel run` on part of what it bundles.

    The venv sees this environment's libraries through a .pth file and capmodel only from the
    wheel: what is tested is that the package carries its data and needs no checkout. All bundled
    runs are graded in test_evaluation.py; a twentieth of them takes a sixth of the time.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", tmp_path, ROOT]
    subprocess.run(build, check=True, env=environment, cwd=tmp_path)
    wheel = next(tmp_path.glob("capmodel-*.whl"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--target", target]
    subprocess.run([*install, wheel], check=True, env=environment, cwd=tmp_path)
    import numpy

    libraries = Path(numpy.__file__).resolve().parents[1]
    environment["PYTHONPATH"] = os.pathsep.join([str(target), str(libraries)])
    python = tmp_path / "venv" / "bin" / "python"
    where = subprocess.run(
        [python, "-c", _PART],
        check=True, env=environment, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert str(target) in where.stdout
    done = subprocess.run(
        [python, "-m", "capmodel", "run", "part.parquet"],
        env=environment, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    reports = tmp_path / "reports"
    assert (reports / "capacity_plan.pdf").read_bytes()[:5] == b"%PDF-"
    metrics = json.loads((reports / "metrics.json").read_text())
    assert metrics["rows"]["used"] >= 1_100
    random, unseen = metrics["splits"]["random"], metrics["splits"]["gpu"]
    assert random["regressor"]["mape"] < random["roofline"]["mape"] < 0.1
    assert unseen["roofline"]["mape"] < unseen["raw_boosting"]["mape"]
