"""`capmodel notebooks`: list, copy and run the bundled notebooks."""

import ast
from dataclasses import asdict
from glob import glob
from pathlib import Path
from typing import Any

import click

from capmodel.cli import options


@click.group(name="notebooks", cls=options.Group)
def command() -> None:
    """The bundled notebooks, on your runs."""


@command.command(name="list")
@options.as_json
def list_notebooks(as_json: bool) -> None:
    """What there is, and which parameters each takes."""
    from capmodel.notebooks import find_notebooks, notebook_parameters, notebook_title

    rows = [
        {"name": path.stem, "title": notebook_title(path), "parameters": notebook_parameters(path)}
        for path in find_notebooks()
    ]
    if as_json:
        options.print_json(rows)
        return
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from capmodel.cli.terminal import terminal

    table = Table("Name", "Title", "Parameters", box=SIMPLE_HEAD)
    for row in rows:
        cells = (str(row["name"]), str(row["title"]), ", ".join(row["parameters"]))
        table.add_row(*map(escape, cells))
    terminal().print(table)


@command.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--ipynb", is_flag=True, help="As .ipynb files (needs capmodel[notebooks]).")
@click.option("--force", is_flag=True, help="Overwrite notebooks that are there already.")
def copy(folder: Path, ipynb: bool, force: bool) -> None:
    """Copy the notebooks into DIR, to be edited; `run --folder DIR` runs the copies."""
    from capmodel.notebooks import copy_notebooks

    try:
        written = copy_notebooks(folder, as_ipynb=ipynb, overwrite=force)
    except ValueError as error:
        raise ValueError(f"{error} (--force)" if "overwrite" in str(error) else error) from None
    for path in written:
        click.echo(str(path))


@command.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--runs", metavar="FILE", help="Your runs: a file, folder or glob that `ingest` reads."
)
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Where edited copies lie; else the bundled."
)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter; may be repeated."
)
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), default=Path("reports/notebooks"),
    show_default=True, help="Folder for the HTML.",
)  # fmt: skip
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Notebooks at once; by default as many as there are processor cores.",
)
@options.as_json
def run(
    names: tuple[str, ...],
    runs: str | None,
    folder: Path | None,
    settings: tuple[str, ...],
    out: Path,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Run notebooks (all, or those NAMEd, such as 01) and write them as HTML.

    \b
    capmodel notebooks run --runs my_runs.csv
    capmodel notebooks run 05 --set rate=20 --set 'gpus=["h100", "b200"]'

    Exit code 1 where a notebook stopped with an error; its HTML shows where.
    """
    from capmodel.cli.progress import progress_bar
    from capmodel.cli.stopping import stopped_tidily
    from capmodel.notebooks import find_notebooks, run_notebooks
    from capmodel.units import format_seconds

    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder")
    parameters = dict(map(_setting, settings))
    if runs is not None:
        if not glob(str(Path(runs).expanduser())):
            raise ValueError(f"Got --runs {runs}, but no such file, folder or glob exists")
        parameters["runs_file"] = str(Path(runs).expanduser().absolute())
    with stopped_tidily(), progress_bar(quiet=as_json) as progress:
        done = run_notebooks(find_notebooks(folder, names), out, parameters, progress, jobs)
    if as_json:
        options.print_json([{**asdict(one), "html": str(one.html)} for one in done])
    else:
        for one in done:
            click.echo(f"{one.html}  {format_seconds(one.seconds)}")
            if one.error:
                click.echo(f"  stopped: {one.error}")
    return 1 if any(one.error for one in done) else 0


def _setting(text: str) -> tuple[str, Any]:
    """`rate=20` as ("rate", 20); what is no literal is taken as text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise click.UsageError(f"Got --set {text!r}, but expected NAME=VALUE, such as rate=20")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
