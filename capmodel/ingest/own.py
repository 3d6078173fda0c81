"""Our own runs table, as CSV or Parquet: its columns already have the names of RUNS."""

import csv
from collections.abc import Mapping

import pandas as pd

from capmodel.ingest.documents import Document, read_parquet, refuse
from capmodel.ingest.documents import delimiter_of as _delimiter

VARIABLE_MAP: dict[str, str] = {}

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
    with path.open(encoding=document.encoding, newline="") as file:
        header = next((line for line in file if line.strip()), "")
    delimiter = _delimiter(header)
    comma = delimiter == ";" and _decimal_comma(document)
    try:
        table = pd.read_csv(
            path, sep=delimiter, encoding=document.encoding, skipinitialspace=True,
            decimal="," if comma else ".",
        )  # fmt: skip
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise refuse(path, "file", f"it is no CSV: {str(error).strip()[:200]}") from error
    except (UnicodeError, csv.Error, ValueError, OverflowError) as error:
        raise refuse(path, "file", f"it is no CSV: {str(error)[:200]}") from error
    table.columns = [str(name).strip().lstrip("\ufeff") for name in table.columns]
    return table


def _decimal_comma(document: Document) -> bool:
    """True where the first rows of a semicolon file write 1,5 and never 1.5."""
    with document.path.open(encoding=document.encoding, newline="") as file:
        rows = [row for _, row in zip(range(3), csv.reader(file, delimiter=";"), strict=False)]
    cells = [cell for row in rows[1:] for cell in row]
    return any(cell.replace(",", "", 1).isdigit() and "," in cell for cell in cells)
