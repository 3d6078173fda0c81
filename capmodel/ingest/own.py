"""Our own runs table, as CSV or Parquet."""

import csv
from pathlib import Path

import pandas as pd
import pyarrow as pa

VARIABLE_MAP: dict[str, str] = {}  # the columns already have the names of RUNS


def read_own(path: str | Path) -> pd.DataFrame:
    """Rows of a runs table, unchecked. Raises ValueError where the file is neither format."""
    path = Path(path)
    if path.suffix.lower() in (".parquet", ".pq") or path.read_bytes()[:4] == b"PAR1":
        try:
            return pd.read_parquet(path)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} is not a readable Parquet file: {error}") from error
    return read_csv_text(path)


def read_csv_text(path: Path) -> pd.DataFrame:
    """A CSV of any common delimiter and encoding as it stands, numbers as pandas reads them."""
    encoding = text_encoding(path)
    with path.open(encoding=encoding, newline="") as file:
        header = file.readline()
    if not header.strip():
        raise ValueError(f"{path} is empty; expected a header line and at least one run")
    delimiter = _delimiter(header)
    try:
        return pd.read_csv(
            path, sep=delimiter, encoding=encoding, skipinitialspace=True,
            decimal="," if delimiter == ";" and _decimal_comma(path, encoding) else ".",
        )  # fmt: skip
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a readable CSV: {str(error).strip()}") from error


def text_encoding(path: Path) -> str:
    """Encoding of a text file by its first bytes. Raises ValueError for a binary file."""
    head = path.read_bytes()[:4096]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\x00" in head:
        raise ValueError(f"{path} is a binary file; expected CSV, Parquet or a benchmark's JSON")
    try:
        head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return "latin-1"
    return "utf-8-sig"


def _delimiter(header: str) -> str:
    counts = {mark: header.count(mark) for mark in ",;\t|"}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else ","


def _decimal_comma(path: Path, encoding: str) -> bool:
    """True where the second line of a semicolon file writes 1,5 and never 1.5."""
    with path.open(encoding=encoding, newline="") as file:
        rows = [row for _, row in zip(range(3), csv.reader(file, delimiter=";"), strict=False)]
    cells = [cell for row in rows[1:] for cell in row]
    return any(cell.replace(",", "", 1).isdigit() and "," in cell for cell in cells)
