"""A file as a document: its kind and encoding. No tool's format is known here.

Everything wrong with a file is a RunsError that names the file, the place and what to do.
"""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capmodel.problems import RunsError, problem_table

Record = dict[str, Any]

BLOCK = 1 << 20
# One JSON value must be in memory whole, at some six times its size.
WHOLE_BYTES = 256 * 2**20

# First bytes of files that hold no text, and what to do with them.
_MAGIC = (
    (b"\x1f\x8b", "it is compressed with gzip; unpack it first (gunzip)"),
    (b"PK\x03\x04", "it is a zip archive or a workbook; unpack it, or save the sheet as CSV"),
    (b"(\xb5/\xfd", "it is compressed with zstd; unpack it first (unzstd)"),
    (b"BZh", "it is compressed with bzip2; unpack it first (bunzip2)"),
    (b"\xfd7zXZ", "it is compressed with xz; unpack it first (unxz)"),
    (b"\x04\x22\x4d\x18", "it is compressed with lz4; unpack it first (unlz4)"),
    (b"\x1f\x9d", "it is compressed; unpack it first (uncompress)"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7-Zip archive; unpack it first"),
    (b"Rar!\x1a\x07", "it is a RAR archive; unpack it first"),
    (b"\xd0\xcf\x11\xe0", "it is a workbook or document of Office; save the sheet as CSV"),
    (b"\x93NUMPY", "it is a NumPy array; save the table as CSV or Parquet"),
    (b"\x89HDF", "it is HDF5; save the table as CSV or Parquet"),
    (b"ARROW1", "it is an Arrow or Feather file; save it as Parquet"),
    (b"\xff\xff\xff\xff", "it is an Arrow stream; save it as Parquet"),
    (b"ORC", "it is an ORC file; save it as Parquet"),
    (b"SQLite format 3", "it is an SQLite data base; save the table as CSV or Parquet"),
    (b"\x80\x04", "it is a Python pickle, which is not read; save it as CSV or Parquet"),
    (b"\x80\x05", "it is a Python pickle, which is not read; save it as CSV or Parquet"),
    (b"%PDF", "it is a PDF; give the figures it was made from"),
    (b"<!DOCTYPE", "it is a web page; fetch the raw file"),
    (b"<html", "it is a web page; fetch the raw file"),
    (
        b"version https://git-lfs",
        "it is a pointer of Git LFS; git lfs pull fetches the file",
    ),
)


@dataclass(frozen=True, slots=True)
class Document:
    """One file. kind: "parquet", "csv", "markdown", "jsonl", "json" or "yaml".

    first: the first record of a JSON file; for a table its column names, without values.
    delimiter: between the cells of a CSV.
    """

    path: Path
    kind: str
    encoding: str
    first: Record
    delimiter: str = ","


def refuse(path: Path | str, place: str, reason: str, value: object = None) -> RunsError:
    """The error for a file that cannot be read: `place` is a field, a line, or "file"."""
    return RunsError(problem_table([(None, place, value, reason)]), str(path))


def no_runs(path: Path) -> RunsError:
    """The error for a file of a benchmark tool that holds no run."""
    return refuse(path, "file", "it holds no runs; the benchmark ended before it wrote any")


def head_of(path: Path) -> bytes:
    """The first bytes of a file. Raises RunsError where it is none that can be read."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise refuse(path, "file", "it is a directory; name the files in it")
        if not stat.S_ISREG(mode):
            raise refuse(path, "file", "it is a pipe or a device; save its content as a file first")
        with path.open("rb") as file:
            head = file.read(BLOCK)
    except FileNotFoundError as error:
        raise refuse(path, "file", "it is not there; check the name") from error
    except (OSError, ValueError) as error:
        if isinstance(error, RunsError):
            raise
        why = getattr(error, "strerror", None) or str(error)
        raise refuse(path, "file", f"it cannot be read: {why}") from error
    if not head:
        raise refuse(path, "file", "it is empty; expected a benchmark's output or a runs table")
    for magic, what in _MAGIC:
        if head.startswith(magic):
            raise refuse(path, "file", what)
    if head[257:262] == b"ustar":
        raise refuse(path, "file", "it is a tar archive; unpack it first (tar -xf)")
    return head


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What the system says against reading becomes an error that names the file."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise refuse(path, "file", f"it cannot be read: {why}; give it again") from error


def whole_text(path: Path, encoding: str, limit: int = WHOLE_BYTES, errors: str = "strict") -> str:
    """All text of a file that must be in memory whole. Raises RunsError where it is too large."""
    size = path.stat().st_size
    if size > limit:
        reason = (
            f"it is one document of {size / 2**20:,.0f} MiB, and at most {limit / 2**20:,.0f} MiB "
            "are read at once; write one record a line (JSONL), or leave out the details of each "
            "request"
        )
        raise refuse(path, "file", reason)
    try:
        return path.read_text(encoding=encoding, errors=errors)
    except UnicodeError as error:
        raise refuse(path, "file", f"it is not {encoding}: {error}") from error


def text_encoding(path: Path, head: bytes) -> str:
    """Encoding of a text file by its first bytes. Raises RunsError for a binary file."""
    if head.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        return "utf-32"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\x00" in head:
        even, odd = (head[start:400:2] for start in (0, 1))  # UTF-16 without a mark
        if odd.count(0) > 0.9 * len(odd) and even.count(0) < 0.1 * len(even):
            return "utf-16-le"
        if even.count(0) > 0.9 * len(even) and odd.count(0) < 0.1 * len(odd):
            return "utf-16-be"
        raise refuse(path, "file", "it is binary; expected CSV, Parquet or a benchmark's JSON")
    try:
        head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return "latin-1"
    return "utf-8-sig"
