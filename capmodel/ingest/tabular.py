"""Tables of text and Parquet files, with every column named once."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from capmodel.ingest.documents import BLOCK, Document, refuse, whole_text
from capmodel.problems import RunsError, problem_table


def csv_document(path: Path, encoding: str) -> Document:
    """A text file as a table. Raises RunsError where its header cannot be one."""
    with path.open(encoding=encoding, errors="replace", newline="") as file:
        while (line := file.readline(BLOCK)) and not line.strip():
            pass
        if len(line) >= BLOCK:
            raise refuse(path, "line 1", "it is longer than 1 MiB; a table begins with its names")
    if re.match(r"\ufeff?\"?sep=", line):
        raise refuse(path, "line 1", "it only names the delimiter for a spreadsheet; delete it")
    delimiter = delimiter_of(line)
    rows = _first_rows(path, encoding, delimiter)
    if not rows:
        raise refuse(path, "file", "it is empty; expected a benchmark's output or a runs table")
    named = once(path, rows[0])
    names = [name or f"column {place}" for place, name in enumerate(named, start=1)]
    if len(rows) > 1 and len(rows[1]) > len(names):
        reason = f"it has {len(rows[1])} cells, but the header names {len(names)} columns"
        remedy = f"name every column, and quote cells that hold a {delimiter!r}"
        if len(names) == 1:
            remedy = "delete what stands above the names of the columns"
        raise refuse(path, "row 1", f"{reason}; {remedy}")
    return Document(path, "csv", encoding, dict.fromkeys(names), delimiter)


def delimiter_of(header: str) -> str:
    """The mark between the cells of a header line: a comma, semicolon, tab or bar."""
    counts = {mark: header.count(mark) for mark in ",;\t|"}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else ","


def once(path: Path, names: Sequence[object]) -> list[str]:
    """Column names without padding. Raises RunsError naming those that occur twice."""
    found = [str(name).strip().lstrip("\ufeff").strip() for name in names]
    again = [name for name, times in Counter(found).items() if name and times > 1]
    if again:
        reason = "the column occurs twice in the header; keep one, or rename the other"
        raise RunsError(problem_table([(None, name, None, reason) for name in again]), str(path))
    return found


def read_csv(document: Document, text: Sequence[str] | None = None) -> pd.DataFrame:
    """A CSV as text, padding stripped; numbers are read later.

    text: columns to keep as text where the others are to be read as pandas does; None for all.
    Raises RunsError where it is no table.
    """
    with _naming(document.path, document.delimiter):
        return _without_blank_end(pd.read_csv(document.path, **_options(document, text)))


def _without_blank_end(table: pd.DataFrame) -> pd.DataFrame:
    """Without the rows of empty cells that a spreadsheet writes below its last one."""
    end = len(table)
    while end and all(cell == "" or cell != cell for cell in table.iloc[end - 1]):
        end -= 1
    return table if end == len(table) else table.iloc[:end]


def csv_chunks(document: Document, rows: int) -> Iterator[pd.DataFrame]:
    """`read_csv` of at most `rows` rows at a time; a table without rows is one empty chunk."""
    with (
        _naming(document.path, document.delimiter),
        pd.read_csv(document.path, **_options(document, None), chunksize=rows) as chunks,
    ):
        yield from chunks


def _options(document: Document, text: Sequence[str] | None) -> dict[str, Any]:
    names = list(document.first)
    return {
        "sep": document.delimiter, "encoding": document.encoding, "skipinitialspace": True,
        "names": names, "header": 0, "index_col": False, "skip_blank_lines": True,
        "dtype": str if text is None else {name: str for name in text if name in names},
        "keep_default_na": text is not None, "compression": None,
    }  # fmt: skip


@contextmanager
def _naming(path: Path, delimiter: str) -> Iterator[None]:
    """What pandas raises becomes an error that names the file."""
    try:
        yield
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        why = str(error).strip()[:200]
        remedy = "; a quote is left open there" if "inside string" in why else ""
        if "Expected" in why:
            remedy = f"; quote cells that hold a {delimiter!r}, or drop those beyond the header"
        raise refuse(path, "file", f"it is no CSV: {why}{remedy}") from error
    except (UnicodeError, csv.Error, ValueError, OverflowError) as error:
        if isinstance(error, RunsError):
            raise
        raise refuse(path, "file", f"it is no CSV: {str(error)[:200]}") from error


def _first_rows(path: Path, encoding: str, delimiter: str) -> list[list[str]]:
    """The header and the first row below it."""
    try:
        with path.open(encoding=encoding, errors="replace", newline="") as file:
            text = file.read(2 * BLOCK)
        lines = io.StringIO(text, newline="")
        rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        filled = (row for row in rows if any(cell.strip() for cell in row))
        return [row for _, row in zip(range(2), filled, strict=False)]
    except csv.Error as error:
        raise refuse(path, "line 1", f"it is no CSV: {error}") from error


def is_markdown(start: str) -> bool:
    """True where one of the first lines stands between bars."""
    return any(re.match(r"\s*\|.*\|\s*$", line) for line in start.splitlines()[:200])


def markdown_document(path: Path, encoding: str, start: str) -> Document:
    """A Markdown file with a table."""
    line = next(line for line in start.splitlines() if line.lstrip().startswith("|"))
    names = once(path, line.strip().strip("|").split("|"))
    return Document(path, "markdown", encoding, dict.fromkeys(names))


def read_markdown(document: Document) -> pd.DataFrame:
    """Rows of the first table of a Markdown file, as text; text around it is passed over."""
    text = whole_text(document.path, document.encoding, errors="replace")
    lines = [line for line in text.splitlines() if re.match(r"\s*\|.*\|\s*$", line)]
    names = list(document.first)
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[1:]]
    rows = [row for row in cells if row != names and not all(set(c) <= set(":- ") for c in row)]
    bad = next((number for number, row in enumerate(rows, 1) if len(row) != len(names)), None)
    if bad is not None:
        reason = f"it has {len(rows[bad - 1])} cells, but the header has {len(names)}"
        raise refuse(document.path, f"table row {bad}", reason)
    return pd.DataFrame(rows, columns=names, dtype=str)


# What pyarrow and pandas raise for a damaged file or a type they do not read.
_PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, TypeError, NotImplementedError)


def _no_parquet(path: Path, error: Exception) -> RunsError:
    return refuse(path, "file", f"it is no readable Parquet file: {str(error)[:200]}")


def parquet_document(path: Path) -> Document:
    """A Parquet file by its schema. Raises RunsError where it cannot be read."""
    import pyarrow.parquet as pq

    try:
        names = [str(name) for name in pq.read_schema(path).names]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _no_parquet(path, error) from error
    return Document(path, "parquet", "", dict.fromkeys(once(path, names)))


def read_parquet(path: Path) -> pd.DataFrame:
    """A Parquet file as it stands. Raises RunsError where it cannot be read."""
    try:
        table = pd.read_parquet(path)
    except _PARQUET_ERRORS as error:
        raise _no_parquet(path, error) from error
    named = [name for name in table.index.names if name is not None]
    return table.reset_index(named) if named else table  # pandas keeps an index apart


def parquet_chunks(document: Document, rows: int) -> Iterator[pd.DataFrame]:
    """A Parquet file of a tool's columns, at most `rows` rows at a time. Raises RunsError."""
    import pyarrow.parquet as pq

    names = list(document.first)
    try:
        file = pq.ParquetFile(document.path)
        if not file.metadata.num_rows:
            yield pd.DataFrame(columns=names)
        for batch in file.iter_batches(batch_size=rows):
            yield batch.to_pandas().set_axis(names, axis="columns")
    except _PARQUET_ERRORS as error:
        if isinstance(error, RunsError):
            raise
        raise _no_parquet(document.path, error) from error
