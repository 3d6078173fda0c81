"""`capmodel dataset`: list, build, fetch and generate reference runs."""

from pathlib import Path

import click

from capmodel.cli import options


def _checked(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse before a minute of building what could not be written after it."""
    from tempfile import TemporaryFile

    from capmodel.ingest.writing import PARQUET, check_target, writable

    if path is None:
        return None
    if path.is_dir():
        raise click.UsageError(f"Got --out {path}, a folder, but expected the name of a file")
    check_target(path, (*PARQUET, ".csv"))
    with writable(path), TemporaryFile(dir=path.parent):
        pass
    return path


out = click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    callback=_checked,
    help="Keep them in this .parquet or .csv file.",
)


@click.group(name="dataset", cls=options.Group)
def command() -> None:
    """Build or fetch reference runs."""


@command.command(name="list")
@options.as_json
def list_datasets(as_json: bool) -> None:
    """What there is, where it comes from and under which licence."""
    from capmodel.datasets.catalogue import dataset_table

    rows = dataset_table()
    if as_json:
        options.print_json(rows.to_dict("records"))
        return
    from rich.table import Table

    from capmodel.cli.terminal import terminal

    table = Table("name", "how", "licence", "about")
    for row in rows.itertuples(index=False):
        table.add_row(*map(str, row))
    terminal().print(table)


@command.command(name="build-silicon")
@out
@options.as_json
def build_silicon(out: Path | None, as_json: bool) -> None:
    """Compose decode steps from the kernel times of aiconfigurator-core ([silicon])."""
    from capmodel.cli.progress import progress_bar
    from capmodel.datasets.silicon_build import build_silicon_runs
    from capmodel.datasets.silicon_draw import content_hash
    from capmodel.ingest.writing import write_runs

    with progress_bar() as show:
        runs = build_silicon_runs(progress=lambda done, total: show("GPU and engine", done, total))
    if out is not None:
        write_runs(runs, out, compression="zstd")
    _say(len(runs), out, as_json, content_hash(runs))


@command.command(name="fetch")
@click.argument("name")
@options.as_json
def fetch(name: str, as_json: bool) -> None:
    """Download a published file (see `list`), check its sha256, print where it lies."""
    from capmodel.datasets import fetch_file

    path = fetch_file(name)
    if as_json:
        options.print_json({"name": name, "path": str(path)})
    else:
        click.echo(str(path))


@command.command(name="generate")
@click.option("--rows", type=click.IntRange(min=1), default=16_000, show_default=True)
@click.option("--noise", type=click.FloatRange(min=0), default=0.05, show_default=True)
@click.option("--truth", is_flag=True, help="Add the noise-free time as true_step_time_s.")
@options.seed
@out
@options.as_json
def generate(
    rows: int, noise: float, truth: bool, seed: int, out: Path | None, as_json: bool
) -> None:
    """Generate synthetic runs whose truth is known."""
    from capmodel.datasets import make_runs
    from capmodel.datasets.silicon_draw import content_hash
    from capmodel.ingest.writing import write_runs

    runs = make_runs(rows, seed, noise, truth)
    if out is not None:
        write_runs(runs, out)
    _say(len(runs), out, as_json, content_hash(runs))


def _say(rows: int, out: Path | None, as_json: bool, content: str) -> None:
    if as_json:
        options.print_json({"rows": rows, "path": out and str(out), "content_sha256": content})
        return
    click.echo(f"{rows:,} rows, content sha256 {content}")
    click.echo(f"written to {out}" if out else "not written; give --out FILE to keep them")
