"""capmodel ingest: benchmark files into one runs table."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capmodel.cli import options

if TYPE_CHECKING:
    from capmodel.quality import Intake

_FACTS = (
    ("--model", str, "model"), ("--gpu", str, "gpu"), ("--engine", str, "engine"),
    ("--weight-dtype", str, "weight_dtype"), ("--kv-dtype", str, "kv_dtype"),
    ("--tp", click.IntRange(min=1), "tp"), ("--batch", click.IntRange(min=1), "batch_size"),
    ("--input-len", click.IntRange(min=1), "input_len"),
    ("--output-len", click.IntRange(min=1), "output_len"),
)  # fmt: skip


def _facts(command: Any) -> Any:
    """One flag for each fact that a file may lack; none has a default."""
    for flag, kind, name in reversed(_FACTS):
        text = f"{name.replace('_', ' ')}, where a file does not say it."
        command = click.option(flag, name, type=kind, default=None, help=text)(command)
    return command


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, required=True)
@click.option("--format", "format_", default="auto", show_default=True, metavar="NAME",
              help="The tool that wrote the files; auto recognises each by content.")  # fmt: skip
@_facts
@options.out
@options.as_json
def command(
    paths: tuple[str, ...], format_: str, out: Path | None, as_json: bool, **facts: object
) -> int:
    """Read benchmark files, folders and globs into one runs table.

    Each file is recognised by its content: our CSV or Parquet, vllm bench, SGLang, trtllm-bench,
    llama-bench, guidellm, aiperf, genai-perf, inference-perf, optimum-benchmark, InferenceX,
    llm-d reports, Argonne's and AIConfigurator's tables. What a file lacks is given by the flags,
    or by FILE.toml or capmodel.toml beside it.

    Exit code 1 where a file was refused, and the good ones are read all the same.
    """
    from capmodel.ingest import Given
    from capmodel.quality import take_in

    given = Given({name: value for name, value in facts.items() if value is not None})  # type: ignore[misc]
    with _progress(paths) as progress:
        intake = take_in(paths, out, format_, given, progress)
    if as_json:
        options.print_json(_as_dict(intake))
    else:
        _print(intake)
    return 1 if intake.refused or intake.set_aside["wrong_unit"] else 0


@contextmanager
def _progress(paths: tuple[str, ...]) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr where a file is large enough to wait for."""
    from capmodel.ingest.large import is_large
    from capmodel.ingest.paths import expand_paths

    files = [path for path, _ in expand_paths(paths) if path.is_file()]
    if not any(map(is_large, files)):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeElapsedColumn

    with Progress("ingest", BarColumn(), DownloadColumn(), TimeElapsedColumn(),
                  console=Console(stderr=True), transient=True) as bar:  # fmt: skip
        task = bar.add_task("ingest", total=sum(path.stat().st_size for path in files))
        yield lambda size: bar.advance(task, size)


def _as_dict(intake: "Intake") -> dict[str, Any]:
    return {
        "files": [
            {"path": f.path, "status": f.status, "format": f.format, "rows": f.rows,
             "kept": f.kept, "reason": f.reason}
            for f in intake.files
        ],
        "rows": {
            "read": intake.rows_read,
            "made": intake.rows_made,
            "used": intake.rows_used,
            "flagged": dict(intake.flagged.most_common()),
            "set_aside": dict(intake.set_aside.most_common()),
        },
        "written": intake.written,
    }  # fmt: skip


def _print(intake: "Intake") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    files = Table(title="Files")
    files.add_column("file", overflow="fold")
    for name in ("read as", "rows", "with a decode step"):
        files.add_column(name, justify="left" if name == "read as" else "right")
    for report in intake.files:
        shown = report.format if report.format else report.status
        files.add_row(report.path, shown, f"{report.rows:,}", f"{report.kept:,}")
    console.print(files)
    rows = Table(title="Rows")
    rows.add_column("rows")
    rows.add_column("", justify="right")
    rows.add_row("read", f"{intake.rows_read:,}")
    if intake.rows_made:
        rows.add_row("made by differencing two runs", f"{intake.rows_made:,}")
    rows.add_row("used", f"{intake.rows_used:,}")
    for name, count in intake.flagged.most_common():
        rows.add_row(f"  of them flagged {name}", f"{count:,}")
    rows.add_row("set aside", f"{sum(intake.set_aside.values()):,}")
    for name, count in intake.set_aside.most_common():
        rows.add_row(f"  {name}", f"{count:,}")
    console.print(rows)
    for report in intake.refused:
        click.echo(f"{report.status}: {report.reason}", err=True)
    for path in intake.written:
        click.echo(f"wrote {path}")
