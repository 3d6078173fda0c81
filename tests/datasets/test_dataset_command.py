"""`capmodel dataset`: what it prints, writes and refuses."""

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from capmodel.cli import main
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


def test_the_ending_says_how_it_is_written(tmp_path: Path) -> None:
    for name in ("runs.PARQUET", "runs.pq", "runs.csv"):
        file = tmp_path / name
        CliRunner().invoke(command, ["generate", "--rows", "5", "-o", str(file)])
        assert (file.read_bytes()[:4] == b"PAR1") == (file.suffix != ".csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "runs.PARQUET",
        "runs.csv",
        "runs.pq",
    ]


@pytest.mark.parametrize("asked", ["generate", "build-silicon"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("runs.json", "expected a name that ends in .parquet or .csv"),
        ("runs", "expected a name that ends in .parquet or .csv"),
        ("no/such/runs.csv", "is not there; make it first"),
        ("", "a folder, but expected the name of a file"),
        ("/proc/runs.csv", "but it cannot be written"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_built(
    asked: str, name: str, said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("capmodel.datasets.silicon_build.build_silicon_runs", None)
    monkeypatch.setattr("capmodel.datasets.make_runs", None)
    with pytest.raises(SystemExit) as stop:
        main(["dataset", asked, "-o", str(tmp_path / name)])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert said in error
    assert error.count("\n") == 1


def test_a_build_shows_its_progress_and_keeps_the_published_packing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(progress: object) -> pd.DataFrame:
        progress(15, 15)  # type: ignore[operator]
        return make_runs(50)

    monkeypatch.setattr("capmodel.datasets.silicon_build.build_silicon_runs", build)
    file = tmp_path / "runs.parquet"
    result = CliRunner().invoke(command, ["build-silicon", "-o", str(file)])
    assert "15/15 GPU and engine" in result.stderr
    make_runs(50).to_parquet(tmp_path / "own.parquet", index=False, compression="zstd")
    assert file.read_bytes() == (tmp_path / "own.parquet").read_bytes()
