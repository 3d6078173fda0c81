"""`capmodel profile`: what is in a runs table, in tables and figures."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import click

from capmodel.cli import options
from capmodel.cli.terminal import terminal
from capmodel.units import format_bytes
from capmodel.words import one_line

if TYPE_CHECKING:
    import pandas as pd

    from capmodel.profile import Profile


def _folder(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse before the reading where nothing could be drawn after it; make the folder."""
    from tempfile import TemporaryFile

    if path is None:
        return None
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise click.UsageError(
            f"Got --figures {path}, but expected a folder that can be written to ({error.strerror})"
        ) from None
    return path


@click.command(name="profile")
@click.argument("runs", nargs=-1)
@options.as_json
@click.option(
    "--figures",
    type=click.Path(path_type=Path),
    callback=_folder,
    help="Folder to draw figures into.",
)
def command(runs: tuple[str, ...], as_json: bool, figures: Path | None) -> None:
    """What is in a runs table: layouts, ranges, gaps, what binds, where batch stops paying.

    RUNS are files, folders or globs; without any, the bundled silicon runs.
    """
    from capmodel.profile import profile_runs

    if runs:
        from capmodel.ingest import read_runs

        table = read_runs(list(runs))
    else:
        from capmodel.datasets import load_silicon_runs

        table = load_silicon_runs()
    found = profile_runs(table)
    drawn = _draw(found, figures) if figures is not None else []
    if as_json:
        options.print_json({**found.to_dict(), "figures": [str(path) for path in drawn]})
        return
    _print(found)
    for path in drawn:
        click.echo(f"drawn: {path}")


def _draw(found: "Profile", folder: Path) -> list[Path]:
    from capmodel.plots.profile import (
        draw_bounds,
        draw_ceilings,
        draw_coverage,
        draw_roofline,
        draw_throughput,
    )
    from capmodel.plots.style import figure
    from capmodel.report.files import write_whole
    from capmodel.saturation import ceiling_counts

    pieces = {
        "coverage": (draw_coverage, found.features),
        "throughput": (draw_throughput, found.features),
        "roofline": (draw_roofline, found.features),
        "bounds": (draw_bounds, found.bounds),
        "ceilings": (draw_ceilings, ceiling_counts(found.saturation)),
    }
    paths = []
    for name, (draw, data) in pieces.items():
        path = folder / f"profile_{name}.png"
        with figure() as fig:
            draw(fig.subplots(), data)
            drawn = BytesIO()
            fig.savefig(drawn, format="png")
        paths.append(write_whole(path, drawn.getvalue()))
    return paths


def _print(found: "Profile") -> None:
    from capmodel.saturation import ceiling_counts

    console = terminal()
    pieces = {
        "Summary": found.summary,
        "Layouts": found.layouts,
        "Ranges": found.ranges,
        "Rows by what takes longest": found.bounds,
        "Where tokens/s stops growing with batch": ceiling_counts(found.saturation),
        "Rows by GPU, engine and weights": found.coverage,
    }
    for title, table in pieces.items():
        console.print(_as_table(title, table))
    absent = (found.missing["kind"] == "combination").sum()
    gaps = found.missing[found.missing["kind"] == "column"]
    bare = found.missing[found.missing["kind"] == "gpu"]
    console.print(f"{absent} combinations of GPU, engine and weights do not occur (--json).")
    if len(gaps):
        names = ", ".join(f"{row.what} ({row.empty_rows:,})" for row in gaps.itertuples())
        console.print(f"Columns with empty cells: {one_line(names)}.", markup=False)
    if len(bare):
        names = ", ".join(f"{row.what} ({row.empty_rows:,} rows)" for row in bare.itertuples())
        console.print(
            f"No bandwidth or peak is known of {one_line(names)}, so not what binds there.",
            markup=False,
        )


def _as_table(title: str, data: "pd.DataFrame") -> object:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE, pad_edge=False)
    for name in data.columns:
        numeric = data[name].dtype.kind in "iuf"
        table.add_column(str(name).replace("_", " "), justify="right" if numeric else "left")
    for row in data.itertuples(index=False):
        in_bytes = getattr(row, "unit", "") == "byte"
        table.add_row(*(Text(_shown(value, in_bytes)) for value in row))
    return table


def _shown(value: object, in_bytes: bool = False) -> str:
    if in_bytes and isinstance(value, float) and value >= 1e7:
        return format_bytes(value)
    if isinstance(value, float):
        if value != value:
            return "-"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else one_line(value)
