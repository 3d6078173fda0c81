"""Nothing printed is cut short, however narrow the terminal."""

import pytest
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
