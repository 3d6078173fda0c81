"""The terminal every command prints to: nothing it prints is ever cut short.

Rich ends a cell that does not fit with an ellipsis; half a number is worse than a long line.
"""

import os
import sys
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

# What is read by a program or a pager has no width of its own.
PIPED = 160


def terminal(*, stderr: bool = False) -> Console:
    """A console whose tables keep every character; piped output is PIPED columns wide.

    stderr: write there instead, for progress and notes. COLUMNS in the environment is respected.
    """
    stream = sys.stderr if stderr else sys.stdout
    piped = not stream.isatty() and not os.environ.get("COLUMNS")
    return _Whole(stderr=stderr, highlight=False, width=PIPED if piped else None)


class _Whole(Console):
    """Widens itself for a table that needs more than the terminal has; the terminal wraps it."""

    def print(self, *objects: Any, **options: Any) -> None:
        tables = [found for found in objects if isinstance(found, Table)]
        for table in tables:
            for column in table.columns:
                cells = [_plain(cell) for cell in [column.header, *column.cells]]
                parts = (
                    cells if column.no_wrap else [word for cell in cells for word in cell.split()]
                )
                column.min_width = max(map(cell_len, parts), default=0)
        roomy = self.options.update(width=10_000)
        least = max((self.measure(found, options=roomy).minimum for found in tables), default=0)
        own = self.width
        self.width = max(own, least)
        try:
            super().print(*objects, **options)
        finally:
            self.width = own


def _plain(cell: Any) -> str:
    if isinstance(cell, Text):
        return cell.plain
    return Text.from_markup(cell).plain if isinstance(cell, str) else ""
