"""The terminal every command prints to: nothing it prints is ever cut short.

Rich ends a cell that does not fit with an ellipsis; half a number is worse than a long line.
"""

import os
import sys
from typing import Any, TextIO

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
    piped = not is_terminal(stream) and not os.environ.get("COLUMNS")
    return _Whole(stderr=stderr, highlight=False, width=PIPED if piped else None)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody looks at `stream`; nobody does at a closed one, which is None."""
    return stream is not None and stream.isatty()


class _Whole(Console):
    """Widens itself for a table that needs more than the terminal has; the terminal wraps it."""

    def print(self, *objects: Any, **options: Any) -> None:
        own = self.width
        for table in (found for found in objects if isinstance(found, Table)):
            self.width = max(self.width, self._fitted(table, own))
        try:
            super().print(*objects, **options)
        finally:
            self.width = own

    def _fitted(self, table: Table, room: int) -> int:
        """Set the columns' widths, none below its longest word; return the width of the table."""
        least, widths = [], []
        for column in table.columns:
            if not all(isinstance(cell, str | Text) for cell in column.cells):
                return room  # something that is no text fits itself
            cells = [_plain(cell) for cell in [column.header, *column.cells]]
            lines = [line for cell in cells for line in cell.splitlines()]
            words = lines if column.no_wrap else [word for line in lines for word in line.split()]
            least.append(max(map(cell_len, words), default=0))
            widths.append(max(map(cell_len, lines), default=0))
            column.min_width = least[-1]
        # Rich's own fitting takes from columns that have nothing to give, then cuts the last.
        roomy = self.options.update(width=10_000)
        frame = self.measure(table, options=roomy).minimum - sum(least)
        while frame + sum(widths) > room and widths != least:
            spare = [width if width > low else 0 for width, low in zip(widths, least, strict=True)]
            widths[spare.index(max(spare))] -= 1
        for column, width in zip(table.columns, widths, strict=True):
            column.width = width
        return frame + sum(widths)


def _plain(cell: Any) -> str:
    if isinstance(cell, Text):
        return cell.plain
    return Text.from_markup(cell).plain if isinstance(cell, str) else ""
