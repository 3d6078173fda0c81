"""`capmodel dataset`: what it prints, writes and refuses."""

import json
from pathlib import Path

import pandas as pd
from click.testing import CliRunner

from capmodel.cli.dataset import command
from capmodel.datasets import make_runs


def test_list_names_licences() -> None:
    result = CliRunner().invoke(command, ["list", "--json"])
    rows = {row["name"]: row for row in json.loads(result.output)}
    assert rows["argonne"]["licence"] == "BSD-3-Clause"
    assert rows["silicon"]["how"] == "bundled"
    assert "synthetic" in rows["generated"]["about"]


def test_generate_writes_what_make_runs_makes(tmp_path: Path) -> None:
    file = tmp_path / "runs.parquet"
    arguments = ["generate", "--rows", "50", "--seed", "3", "--truth", "-o", str(file), "--json"]
    result = CliRunner().invoke(command, arguments)
    assert json.loads(result.output)["rows"] == 50
    pd.testing.assert_frame_equal(pd.read_parquet(file), make_runs(50, 3, truth=True))
