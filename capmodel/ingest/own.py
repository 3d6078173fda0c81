"""Our own runs table, as CSV or Parquet: its columns already have the names of RUNS."""

import dataclasses
import re
from collections.abc import Mapping

import pandas as pd

from capmodel.ingest.documents import Document, refuse
from capmodel.ingest.notation import COUNTS, in_points
from capmodel.ingest.tabular import read_csv, read_parquet
from capmodel.problems import RunsError, problem_table
from capmodel.runs import RUNS

VARIABLE_MAP: dict[str, str] = {}
NUMBERS = tuple(column.name for column in RUNS if column.kind != "text")

_TELLING = {"engine", "model", "gpu", "weight_dtype", "kv_dtype", "batch_size", "context_len",
            "step_time_s", "throughput_tok_s"}  # fmt: skip


_TIMES = {"step_time_s", "throughput_tok_s"}


def recognises(first: Mapping[str, object]) -> bool:
    """True for a table with at least three of the columns of RUNS, in any case with a time."""
    if len(_TELLING & first.keys()) >= 3:
        return True
    plain = {_plain(name) for name in first}
    return len(_TELLING & plain) >= 3 and bool(_TIMES & plain)


def lists_set_aside(first: Mapping[str, object]) -> bool:
    """True for the list of rows that `capmodel ingest` or `run` set aside, with their reasons."""
    return {"run_id", "source", "rule", "reason"} <= first.keys()


def columns_of(document: Document) -> dict[str, str]:
    """Heading -> column of RUNS, where it is written otherwise: Batch Size for batch_size.

    Raises RunsError where two headings mean one column.
    """
    known = {column.name for column in RUNS}
    found: dict[str, str] = {}
    problems: list[tuple[int | None, str, object, str]] = []
    taken = {name: name for name in document.first if name in known}
    for name in document.first:
        column = _plain(name)
        if name in known or column not in known:
            continue
        if column in taken:
            reason = f"it means the same column as {taken[column]!r}; keep one, or rename the other"
            problems.append((None, name, None, reason))
        taken[column] = name
        found[name] = column
    if problems:
        raise RunsError(problem_table(problems), str(document.path))
    return found


def _plain(name: object) -> str:
    return re.sub(r"[\s_-]+", "_", str(name).strip().lower())


def named_as_ours(document: Document) -> Document:
    """A CSV under the names of RUNS; a Parquet file keeps its own until it is read."""
    found = columns_of(document)
    if document.kind != "csv" or not found:
        return document
    names = [found.get(name, name) for name in document.first]
    return dataclasses.replace(document, first=dict.fromkeys(names))


def read_own(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of a runs table, unchecked, as they stand."""
    return raw


def read_document(document: Document) -> pd.DataFrame:
    """A table with its numbers as pandas reads them. Raises RunsError where it is none."""
    path = document.path
    if document.kind == "parquet":
        return read_parquet(path).rename(columns=columns_of(document))
    if document.kind != "csv":
        raise refuse(path, "file", f"it is {document.kind}; a runs table is CSV or Parquet")
    document = named_as_ours(document)
    if document.delimiter == ",":
        table = read_csv(document, text=())
        if not any(pd.api.types.is_string_dtype(table[name]) for name in NUMBERS if name in table):
            return table
    return with_points(read_csv(document, text=NUMBERS), document)


def with_points(table: pd.DataFrame, document: Document, first_row: int = 1) -> pd.DataFrame:
    """A table whose numbers are text, in one notation. Raises RunsError for numbers it leaves open.

    first_row: number of the table's first row in the file.
    """
    numbers = {name: table[name].reset_index(drop=True) for name in NUMBERS if name in table}
    numbers = {name: cells for name, cells in numbers.items() if cells.notna().any()}
    plain, problems = in_points(numbers, COUNTS, document.delimiter)
    if problems:
        placed = [((row or 1) + first_row - 1, *rest) for row, *rest in problems]
        raise RunsError(problem_table(placed), str(document.path))  # type: ignore[arg-type]
    return table.assign(**{name: cells.to_numpy() for name, cells in plain.items()})
