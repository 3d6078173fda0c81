"""Benchmark files into one runs table. One file per tool; readers only map columns.

A new format is one file here with a `VARIABLE_MAP`, a `recognises` and a `read_<tool>`, and one
line in `_read_file`.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from capmodel.ingest.argonne import read_argonne
from capmodel.ingest.argonne import recognises as is_argonne
from capmodel.ingest.own import read_csv_text, read_own
from capmodel.runs import validate_runs

__all__ = ["FORMATS", "file_sha256", "read_runs"]

FORMATS = ("auto", "own", "argonne")


def read_runs(paths: str | Path | Iterable[str | Path], format: str = "auto") -> pd.DataFrame:
    """The runs of one or several files, checked, in the columns of RUNS.

    format: one of FORMATS; "auto" recognises a file by its content. Raises RunsError for rows
    that cannot be read, ValueError for files that are no runs table.
    """
    if format not in FORMATS:
        raise ValueError(f"Got format {format!r}, but expected one of {', '.join(FORMATS)}")
    files = [paths] if isinstance(paths, str | Path) else list(paths)
    if not files:
        raise ValueError("Got no file to read; name at least one")
    tables = [validate_runs(_read_file(Path(path), format), str(path)) for path in files]
    if len(tables) == 1:
        return tables[0]
    runs = pd.concat(tables, ignore_index=True)
    doubled = runs["run_id"].duplicated(keep=False)
    if doubled.any():
        stems = [
            f"{Path(path).stem}:"
            for path, table in zip(files, tables, strict=True)
            for _ in range(len(table))
        ]
        runs["run_id"] = pd.Series(stems) + runs["run_id"]
    return runs


def file_sha256(path: str | Path) -> str:
    """sha256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _read_file(path: Path, format: str) -> pd.DataFrame:
    if path.is_dir():
        raise ValueError(f"{path} is a directory; name the files in it")
    try:
        if not path.stat().st_size:
            raise ValueError(f"{path} is empty; expected a header line and at least one run")
        if format == "own":
            return read_own(path)
        if format == "argonne":
            return read_argonne(path)
        if path.read_bytes()[:4] == b"PAR1" or path.suffix.lower() in (".parquet", ".pq"):
            return read_own(path)
        table = read_csv_text(path)
    except FileNotFoundError as error:
        raise ValueError(f"{path} is not there; check the name") from error
    except PermissionError as error:
        raise ValueError(f"{path} may not be read; check its permissions") from error
    return read_argonne(path) if is_argonne(list(table.columns)) else table
