"""Small files of one tool read together, since a table costs the same for one row as for hundreds.

The result is that of reading them one by one: where a table of many files is refused, it is
halved until the bad files stand alone, and only they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from capmodel.ingest.documents import Document, no_runs
from capmodel.ingest.given import Given
from capmodel.ingest.picking import Row, rows_of, table_of
from capmodel.ingest.reading import (
    checked_rows,
    completed_rows,
    read_rows,
    records_of,
    run_name,
    source_name,
)
from capmodel.ingest.tools import Tool
from capmodel.runs import RunsError

SMALL_BYTES = 4 * 2**20  # up to this size a file is read together with others
FILES = 1_000  # of them at a time
_KINDS = ("json", "jsonl", "yaml")


@dataclass(frozen=True, slots=True)
class Picked:
    """What was picked of one file. place: its number among all files; rows: one a record."""

    place: int
    path: Path
    tool: Tool
    given: Given
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Table:
    """Runs of one or several files, with the number of each row's file.

    files: the numbers of all files read, those without a run too. aside: rows without a decode
    step, with their file.
    """

    tool: Tool
    files: tuple[int, ...]
    runs: pd.DataFrame
    places: np.ndarray
    aside: pd.DataFrame
    aside_places: np.ndarray


def is_small(document: Document, tool: Tool) -> bool:
    """True for a file of a tool's records that is read together with others."""
    small = document.kind in _KINDS and document.path.stat().st_size <= SMALL_BYTES
    return small and bool(tool.module.VARIABLE_MAP)  # a runs table of our own is no record


def pick(place: int, document: Document, tool: Tool, given: Given) -> Picked:
    """What the tool's map names of a small file. Raises RunsError where it cannot be read."""
    rows = list(rows_of(records_of(document, tool), tool.module.VARIABLE_MAP))
    if not rows:
        raise no_runs(document.path)
    return Picked(place, document.path, tool, given, rows)


def read_together(files: Sequence[Picked]) -> tuple[list[Table], list[tuple[Picked, RunsError]]]:
    """Tables of files of one tool and the same given facts, and the files that are refused."""
    try:
        return _tables(files), []
    except RunsError as error:
        if len(files) == 1:
            return [], [(files[0], error)]
    half = len(files) // 2
    first, second = read_together(files[:half]), read_together(files[half:])
    return first[0] + second[0], first[1] + second[1]


def _tables(files: Sequence[Picked]) -> list[Table]:
    """One table, or two where some files have no decode step at all. Raises RunsError."""
    tool, given, path = files[0].tool, files[0].given, files[0].path
    of_row = np.repeat(np.arange(len(files)), [len(file.rows) for file in files])
    number = np.concatenate([np.arange(1, len(file.rows) + 1) for file in files])
    picked = list(chain.from_iterable(file.rows for file in files))
    raw = table_of(picked, tool.module.VARIABLE_MAP, path)
    raw.index = pd.RangeIndex(1, len(raw) + 1)
    runs, aside = read_rows(raw, tool)
    at, aside_at = (of_row[table.index.to_numpy(int) - 1] for table in (runs, aside))
    used = np.bincount(at, minlength=len(files)) > 0
    if used.any() and not used.all():  # their columns are not those of the others
        pairs = list(zip(files, used, strict=True))
        some, none = ([file for file, has in pairs if has == kind] for kind in (True, False))
        return _tables(some) + _tables(none)
    aside = aside.assign(
        row=number[aside.index.to_numpy(int) - 1], file=[str(files[n].path) for n in aside_at]
    )
    if len(runs):
        rows = number[runs.index.to_numpy(int) - 1]
        paths = [files[n].path for n in at]
        names = [run_name(path, row) for path, row in zip(paths, rows, strict=True)]
        sources = [source_name(path, tool) for path in paths]
        # Two folders may hold files of one name; what names their rows apart comes later.
        runs = runs.assign(run_id=runs.index.astype(str), source=sources)
        runs = checked_rows(completed_rows(runs, tool, given, path), path)
        runs["run_id"] = pd.Series(names, index=runs.index).str.strip()
    places = np.array([file.place for file in files])
    return [Table(tool, tuple(places.tolist()), runs, places[at], aside, places[aside_at])]
