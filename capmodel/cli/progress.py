"""Progress on standard error, for anything slower than two seconds."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capmodel.mainjob import Progress


@contextmanager
def progress_bar(quiet: bool = False) -> "Iterator[Progress]":
    """Yield a callback (label, done, total) that draws one bar; plain lines where no terminal."""
    if quiet:
        yield lambda label, done, total: None
        return
    from capmodel.cli.terminal import is_terminal

    if not is_terminal(sys.stderr):
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description:<28}"), BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task("grading", total=None)

        def show(label: str, done: int, total: int) -> None:
            bar.update(task, description=label, completed=done, total=total)

        yield show


def _lines() -> "Progress":
    """One line at the start and every ten seconds."""
    last = [time.monotonic() - 100.0]

    def show(label: str, done: int, total: int) -> None:
        if time.monotonic() - last[0] > 10.0 or done == total:
            last[0] = time.monotonic()
            print(f"  {done}/{total} {label}", file=sys.stderr, flush=True)

    return show
