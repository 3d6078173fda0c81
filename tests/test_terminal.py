"""Nothing printed is cut short, however narrow the terminal."""

import subprocess
import sys

import pytest
from rich.box import SIMPLE_HEAD
from rich.table import Table

from capmodel.cli.terminal import terminal

WIDTHS = (20, 40, 80, 200)


@pytest.fixture(params=["plain", "no_wrap"])
def table(request: pytest.FixtureRequest) -> Table:
    made = Table(title="figures")
    for place in range(12):
        made.add_column(f"column {place}", no_wrap=request.param == "no_wrap", justify="right")
    made.add_row(*[f"{10 ** (place % 7 + 3):,}" for place in range(12)])
    return made


@pytest.mark.parametrize("width", WIDTHS)
def test_no_value_is_cut(
    table: Table, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    terminal().print(table)
    printed = capsys.readouterr().out
    assert "…" not in printed
    for place in range(12):
        assert f"{10 ** (place % 7 + 3):,}" in printed


def test_the_width_is_restored(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    console = terminal()
    console.print(table)
    assert console.width == 30


def test_two_lines_of_a_heading_are_no_longer_than_the_longer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    made = Table(box=None, pad_edge=False, padding=0)
    made.add_column("bits a byte,\nlowest first", no_wrap=True)
    made.add_row("8.0 2.9")
    terminal().print(made)
    assert max(map(len, capsys.readouterr().out.splitlines())) == len("bits a byte,")


@pytest.mark.parametrize("width", range(20, 90, 3))
def test_one_column_of_many_words_gives_way_and_loses_none(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    made = Table("request one", "shared\nblocks", "block table", box=SIMPLE_HEAD, pad_edge=False)
    made.add_row("request 1", "0 of 8", " ".join(map(str, range(100, 120))))
    terminal().print(made)
    words = capsys.readouterr().out.split()
    assert sorted(words)[:20] == ["0", "1", *map(str, range(100, 118))]
    assert {"118", "119", "block", "table"} <= set(words)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize(
    "command", ["kv --model llama-3-8b --context 9", "lab model 'And he' --tokens 2"]
)
def test_a_closed_output_is_nobody_looking(command: str, closed: str) -> None:
    run = subprocess.run(
        f"'{sys.executable}' -m capmodel {command} {closed}",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0
    assert "Traceback" not in run.stderr + run.stdout
