"""`capmodel diff`: what changed between two plans, and why."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from capmodel.cli import options


@click.command(name="diff")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@options.as_json
def command(before: Path, after: Path, as_json: bool) -> None:
    """What changed from plan BEFORE to plan AFTER, and why.

    Results, then the inputs that differ (workload, promises, prices, calibration, engine, package,
    assumptions, candidates), then what follows from both.
    """
    from capmodel.report.diff import compare_plans
    from capmodel.report.load import load_plan

    found = compare_plans(load_plan(before), load_plan(after))
    if as_json:
        options.print_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    from rich.markup import escape

    from capmodel.cli.terminal import terminal

    console = terminal()
    if found["same"]:
        console.print("The plans say the same.")
        return
    console.print(f"Before: {escape(found['before'])}", soft_wrap=True)
    console.print(f"After:  {escape(found['after'])}", soft_wrap=True)
    _table(console, "What came out differently", found["results"])
    _table(console, "Which inputs differ", found["causes"])
    for sentence in found["why"]:
        console.print(escape(sentence), soft_wrap=True)


def _table(console: Any, title: str, rows: Sequence[dict[str, Any]]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from capmodel.report.diff import shown

    if not rows:
        return
    with_cause = "cause" in rows[0]
    console.print(f"\n{title}", style="bold")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    if with_cause:
        table.add_column("Cause", no_wrap=True)
    table.add_column("", min_width=24)
    for name in ("Before", "After"):
        table.add_column(name)
    table.add_column("Change", justify="right", no_wrap=True)
    for row in rows:
        cells = [escape(text) for text in shown(row)]
        table.add_row(*([row["cause"]] if with_cause else []), *cells)
    console.print(table)
