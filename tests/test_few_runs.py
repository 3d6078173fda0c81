"""The benchmark of few runs: what it says of draws and of suggested runs fits together."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from capmodel.datasets import make_runs

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "few_runs.py"


def test_suggested_runs_are_held_against_all_draws(tmp_path: Path) -> None:
    if not BENCHMARK.exists():
        pytest.skip("benchmarks/ is not in this copy")
    table = tmp_path / "runs.csv"
    make_runs(n=250, seed=3, noise=0.02).to_csv(table, index=False)
    asked = [sys.executable, str(BENCHMARK), str(table), "--draws", "5", "--json"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    drawn = {(r["gpu"], r["runs"]): r for r in rows if r["choice"] == "random"}
    suggested = {(r["gpu"], r["runs"]): r for r in rows if r["choice"] == "suggested"}
    assert drawn
    assert drawn.keys() == suggested.keys()
    for key, one in drawn.items():
        assert one["mape_p10"] <= one["mape"] <= one["mape_p90"]
        chosen = suggested[key]
        assert chosen["draws_worse"] * 5 == pytest.approx(round(chosen["draws_worse"] * 5))
        if chosen["mape"] < one["mape"]:  # better than the median of five: than three of them
            assert chosen["draws_worse"] >= 0.6
        else:
            assert chosen["draws_worse"] <= 0.4
