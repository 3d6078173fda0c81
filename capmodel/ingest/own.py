"""Our own runs table, as CSV or Parquet: its columns already have the names of RUNS."""

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


def recognises(first: Mapping[str, object]) -> bool:
    """True for a table with at least three of the columns of RUNS."""
    return len(_TELLING & first.keys()) >= 3


def read_own(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of a runs table, unchecked, as they stand."""
    return raw


def read_document(document: Document) -> pd.DataFrame:
    """A table with its numbers as pandas reads them. Raises RunsError where it is none."""
    path = document.path
    if document.kind == "parquet":
        return read_parquet(path)
    if document.kind != "csv":
        raise refuse(path, "file", f"it is {document.kind}; a runs table is CSV or Parquet")
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
