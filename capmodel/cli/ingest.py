"""capmodel ingest: benchmark files into one runs table."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE

from capmodel.cli import options
from capmodel.cli.stopping import stopped_tidily
from capmodel.cli.terminal import terminal

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

    Exit code 1 where a file was refused, or where no row can be used; the good files are read all
    the same, and every row is used, flagged or set aside by a named rule.
    """
    from capmodel.ingest import Given
    from capmodel.quality import take_in

    given = Given({name: value for name, value in facts.items() if value is not None})  # type: ignore[misc]
    with stopped_tidily(), _progress(paths) as progress:
        intake = take_in(paths, out, format_, given, progress)
    if as_json:
        options.print_json(_as_dict(intake))
    else:
        _print(intake)
    if not intake.rows_used:
        click.echo(f"capmodel: {_nothing(intake)}", err=True)
    return 1 if intake.refused or intake.set_aside["wrong_unit"] or not intake.rows_used else 0


@contextmanager
def _progress(paths: tuple[str, ...]) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr where there is enough to wait for."""
    from capmodel.ingest.paths import expand_paths

    files = [path for path, _ in expand_paths(paths) if path.is_file()]
    total = sum(path.stat().st_size for path in files)
    if total < _WORTH_A_BAR and len(files) < _MANY:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeElapsedColumn

    with Progress("ingest", BarColumn(), DownloadColumn(), TimeElapsedColumn(),
                  console=terminal(stderr=True), transient=True) as bar:  # fmt: skip
        task = bar.add_task("ingest", total=total)
        yield lambda size: bar.advance(task, size)


_WORTH_A_BAR, _MANY = 16 * 2**20, 200  # bytes, files
_LISTED = 40  # files in the table; of more, those without runs are counted


def _nothing(intake: "Intake") -> str:
    """Why no row is there to use."""
    if not intake.rows_read:
        return f"no row can be used: none of {len(intake.files)} files was read"
    rules = ", ".join(f"{count:,} {name}" for name, count in intake.set_aside.most_common())
    return f"no row can be used: {intake.rows_read:,} were read, and set aside {rules}"


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
        "rules": intake.rules,
        "doubts": dict(intake.doubts.most_common()),
        "written": intake.written,
    }  # fmt: skip


def _print(intake: "Intake") -> None:
    from rich.table import Table
    from rich.text import Text

    from capmodel.quality import gloss
    from capmodel.words import one_line

    console = terminal()
    files = Table("read as", title="Files", box=SIMPLE, pad_edge=False)
    for name in ("rows", "with a decode step"):
        files.add_column(name, justify="right")
    files.add_column("file", overflow="fold")
    shown = intake.files
    if len(shown) > _LISTED:
        shown = [report for report in shown if report.rows or report.named][:_LISTED]
    for report in shown:
        read_as = report.format if report.format else report.status
        files.add_row(read_as, f"{report.rows:,}", f"{report.kept:,}", Text(one_line(report.path)))
    console.print(files)
    if len(shown) < len(intake.files):
        states = Counter(report.status for report in intake.files)
        told = ", ".join(f"{count:,} {status}" for status, count in states.most_common())
        console.print(f"{len(intake.files):,} files: {told} (each of them with --json).")
    rows = Table("rows", title="Rows", box=SIMPLE, pad_edge=False)
    rows.add_column("", justify="right", no_wrap=True)
    rows.add_column("what that is")
    rows.add_row("read", f"{intake.rows_read:,}")
    if intake.rows_made:
        rows.add_row("made by differencing two runs", f"{intake.rows_made:,}")
    rows.add_row("used", f"{intake.rows_used:,}")
    for name, count in intake.flagged.most_common():
        rows.add_row(Text(f"  flagged {one_line(name)}"), f"{count:,}", gloss(name))
    rows.add_row("set aside", f"{sum(intake.set_aside.values()):,}")
    for name, count in intake.set_aside.most_common():
        rows.add_row(f"  {name}", f"{count:,}", gloss(name))
    console.print(rows)
    for doubt, count in intake.doubts.most_common(_LISTED):
        click.echo(f"doubt: {doubt} ({count:,} row{'s' if count > 1 else ''})")
    for report in intake.refused:
        click.echo(f"{report.status}: {report.reason}", err=True)
    for path in intake.written:
        click.echo(f"wrote {path}")
