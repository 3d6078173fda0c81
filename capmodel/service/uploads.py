"""Runs of a request: files or rows, read without a name of the client ever becoming a path.

The bytes lie in a folder of memory while they are read, and are gone with the answer.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from capmodel.ingest import FileReport, read_files
from capmodel.quality import screen_runs
from capmodel.quality.screening import Screened
from capmodel.runs import validate_runs
from capmodel.service.errors import Refused, problem, refused_by_package

SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".md", ".parquet", ".pq",
            ".yaml", ".yml")  # fmt: skip
_COUNTED = re.compile(r"^has \d+ problems?: (file: )?")  # the name stands before it anyway
_MEMORY = "/dev/shm"  # a folder that no disk keeps, where the system has one


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Runs as sent, and what reading them gave."""

    screened: Screened
    files: tuple[FileReport, ...]
    names: Mapping[str, str]
    rows: int


def read_uploaded(given: Any, most_rows: int, field: str = "runs") -> Uploaded:
    """Runs from `[(name, bytes), ...]` or from a list of rows, screened.

    Raises Refused for more than `most_rows` rows and for what cannot be read.
    """
    if given and isinstance(given[0], Mapping):
        return _from_rows(given, most_rows, field)
    return _from_files(given, most_rows, field)


def _from_rows(rows: Sequence[Mapping[str, Any]], most_rows: int, field: str) -> Uploaded:
    _check_rows(len(rows), most_rows, field)
    table = pd.DataFrame(list(rows))
    if "run_id" not in table:
        table.insert(0, "run_id", [f"row-{number}" for number in range(1, len(table) + 1)])
    if "source" not in table:
        table.insert(1, "source", "sent over HTTP")
    runs = validate_runs(table, field)
    return Uploaded(screen_runs(runs), (), {}, len(runs))


def _from_files(files: Sequence[tuple[str, bytes]], most_rows: int, field: str) -> Uploaded:
    with _laid_out(files) as names:
        for path in names:
            _check_parquet(Path(path), most_rows, names[path], field)
        found = read_files(list(names))
        if found.refused:
            raise Refused(422, [_file_problem(one, names, field) for one in found.refused])
        if not len(found.runs):
            reason = "; ".join(sorted(set(map(str, found.aside["rule"])))) or "it is empty"
            expected = "rows that hold a decode step"
            raise Refused(422, [problem(field, expected, f"no row can be used: {reason}")])
        _check_rows(len(found.runs), most_rows, field)
        runs = found.runs
        runs["source"] = [_without_paths(str(text), names) for text in runs["source"]]
        screened = screen_runs(runs, files=found.file_of_row)
        return Uploaded(screened, found.files, names, len(runs) + len(found.aside))


@contextmanager
def _laid_out(files: Sequence[tuple[str, bytes]]) -> Iterator[dict[str, str]]:
    """Paths of the files' bytes in a private folder -> the names they were sent under."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="capmodel-", dir=place) as folder:
        names: dict[str, str] = {}
        for number, (name, content) in enumerate(files, start=1):
            path = Path(folder) / f"upload-{number}{_suffix(name)}"
            path.write_bytes(content)
            names[str(path)] = PurePosixPath(name.replace("\\", "/")).name[:80] or "upload"
        yield names


def _suffix(name: str) -> str:
    """The ending of a name if it is a known one; never one that means compression."""
    suffix = PurePosixPath(name.lower()).suffix
    return suffix if suffix in SUFFIXES else ".txt"


def _check_parquet(path: Path, most_rows: int, name: str, field: str) -> None:
    """Refuse a Parquet file by its footer, before it is unpacked."""
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            return
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.ParquetFile(path).metadata
    except (pa.ArrowException, OSError, ValueError):
        return  # the reader says what is wrong with it
    _check_rows(footer.num_rows, most_rows, field)
    size = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
    if size > 512 << 20:
        expected = "at most 512 MiB when unpacked"
        raise Refused(413, [problem(field, expected, f"{name}: unpacks to {size:,} bytes")])


def _check_rows(rows: int, most_rows: int, field: str) -> None:
    if rows > most_rows:
        expected = f"at most {most_rows:,} rows in a request; use capmodel fit for more"
        raise Refused(413, [problem(field, expected, f"{rows:,} rows, but expected {expected}")])


def _file_problem(report: FileReport, names: Mapping[str, str], field: str) -> Any:
    name = names.get(report.path, "upload")
    reason = _COUNTED.sub("", _without_paths(report.reason, names).removeprefix(f"{name} "))
    told = refused_by_package(ValueError(reason), field).problems[0]
    told.message = f"{name}: {reason}"[:600]
    return told


def _without_paths(text: str, names: Mapping[str, str]) -> str:
    for path, name in names.items():
        text = text.replace(path, name).replace(Path(path).name, name)
    return text


def files_told(uploaded: Uploaded) -> list[dict[str, Any]]:
    """What became of each file, under the name it was sent with."""
    return [
        {
            "name": uploaded.names.get(one.path, "upload"),
            "status": one.status,
            "format": one.format,
            "rows": one.rows,
            "kept": one.kept,
            "reason": _without_paths(one.reason, uploaded.names),
        }
        for one in uploaded.files
    ]
