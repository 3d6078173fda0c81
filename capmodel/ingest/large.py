"""Files larger than memory, chunk by chunk: PyArrow's streaming CSV reader, Parquet by row group.

JSON Lines are read line by line wherever they are read, so they need nothing here.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from capmodel.ingest import own
from capmodel.ingest.documents import Document, head_of, refuse
from capmodel.runs import RUNS

LARGE_BYTES = 64 * 2**20  # from this size on a file is read in chunks
_BLOCK_BYTES = 16 * 2**20
_NULLS = ["", "NA", "N/A", "nan", "NaN", "null", "None"]
# A word that repeats is kept once; names of rows do not repeat.
_WORD = pa.dictionary(pa.int32(), pa.string())
_UNIQUE = ("run_id",)


def is_large(path: str | Path) -> bool:
    """True for a file that is read in chunks."""
    path = Path(path)
    return path.is_file() and path.stat().st_size >= LARGE_BYTES


def expected_rows(document: Document) -> float:
    """How many rows a file holds: told by Parquet, else by the lines of its first megabyte."""
    if document.kind == "parquet":
        return float(pq.read_metadata(document.path).num_rows)
    head = head_of(document.path)
    return document.path.stat().st_size / len(head) * max(head.count(b"\n"), 1)


def table_chunks(document: Document, rows: int) -> Iterator[pd.DataFrame]:
    """A runs table of our own in frames of at least `rows` rows, the last one fewer.

    Raises RunsError where a value does not fit its column, with PyArrow's line and column.
    """
    document = own.named_as_ours(document)
    renamed = own.columns_of(document)  # of a Parquet file
    done = 0
    for found in _frames(document, rows):
        frame = found.rename(columns=renamed) if renamed else found
        yield own.with_points(frame, document, done + 1) if _as_written(document) else frame
        done += len(frame)


def _frames(document: Document, rows: int) -> Iterator[pd.DataFrame]:
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in _batches(document, rows):
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(waiting).to_pandas()
            waiting, count = [], 0
    if count:
        yield pa.Table.from_batches(waiting).to_pandas()


def _as_written(document: Document) -> bool:
    """True where numbers stay text until their notation is known."""
    return document.kind == "csv" and document.delimiter != ","


def _batches(document: Document, rows: int) -> Iterator[pa.RecordBatch]:
    path = document.path
    try:
        if document.kind == "parquet":
            yield from pq.ParquetFile(path).iter_batches(batch_size=rows)
        else:
            yield from _csv_reader(document)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = f"its rows cannot be read: {str(error)[:300]}"
        raise refuse(path, "file", reason) from error


def _csv_reader(document: Document) -> pa_csv.CSVStreamingReader:
    number = pa.string() if _as_written(document) else pa.float64()
    types = {
        column.name: number
        if column.kind != "text"
        else pa.string()
        if column.name in _UNIQUE
        else _WORD
        for column in RUNS
    }
    encoding = "utf8" if document.encoding == "utf-8-sig" else document.encoding
    return pa_csv.open_csv(
        pa.OSFile(str(document.path)),  # a name that ends in .gz says nothing of the content
        read_options=pa_csv.ReadOptions(
            block_size=_BLOCK_BYTES, encoding=encoding, column_names=list(document.first),
            skip_rows_after_names=1,
        ),
        parse_options=pa_csv.ParseOptions(delimiter=document.delimiter),
        convert_options=pa_csv.ConvertOptions(
            column_types=types, null_values=_NULLS, strings_can_be_null=True
        ),
    )  # fmt: skip
