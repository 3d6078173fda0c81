"""Benchmark files into one runs table. One file per tool; readers only map columns.

A tool's file holds a `VARIABLE_MAP`, a `recognises` and a `read_<tool>`, and is one line in
`capmodel.ingest.tools.TOOLS`.
"""

import hashlib
import warnings
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from capmodel.ingest.files import FileReport, Ingested, read_files
from capmodel.ingest.given import Given
from capmodel.ingest.tools import FORMATS
from capmodel.runs import RunsError, problem_table

__all__ = [
    "FORMATS",
    "FileReport",
    "Given",
    "Ingested",
    "RowsLeftOut",
    "file_sha256",
    "read_files",
    "read_runs",
]


def read_runs(
    paths: str | Path | Iterable[str | Path], format: str = "auto", given: Given | None = None
) -> pd.DataFrame:
    """The runs of files, folders and globs, checked, in the columns of RUNS.

    paths: one or several. format: one of FORMATS; "auto" recognises a file by its content.
    given: facts the files lack. Rows that hold no decode step (a prompt-processing test) are left
    out, and a RowsLeftOut warning says so; `read_files` lists them.

    Raises RunsError where a file cannot be read, with every problem of all files.
    """
    names = [paths] if isinstance(paths, str | Path) else list(paths)
    found = read_files(names, format, given)
    if found.refused:
        tables = [report.problems for report in found.refused if report.problems is not None]
        raise RunsError(pd.concat(tables), ", ".join(report.path for report in found.refused))
    if not len(found.runs):
        rules = ", ".join(sorted(set(found.aside["rule"])))
        reason = f"no row holds a decode step ({rules})"
        raise RunsError(problem_table([(None, "file", None, reason)]), ", ".join(map(str, names)))
    unread = found.aside[found.aside["rule"] != "differenced"]
    if len(unread):
        counts = ", ".join(
            f"{rows:,} {rule}" for rule, rows in unread["rule"].value_counts().items()
        )
        what = f"{len(unread):,} of {len(unread) + len(found.runs):,} rows hold no decode step"
        warnings.warn(f"{what} and are left out: {counts}", RowsLeftOut, stacklevel=2)
    return found.runs


class RowsLeftOut(UserWarning):
    """Rows of a file that hold no decode step, so that a runs table has no place for them."""


def file_sha256(path: str | Path) -> str:
    """sha256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
