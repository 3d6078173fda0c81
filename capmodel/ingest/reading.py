"""A document read by its tool: picked, completed, checked, chunk by chunk."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from capmodel.cells import text_cells
from capmodel.ingest import llama_bench, own
from capmodel.ingest.documents import Document, readable, refuse
from capmodel.ingest.given import ASKED, Given, complete
from capmodel.ingest.json_text import json_records
from capmodel.ingest.large import is_large, table_chunks
from capmodel.ingest.picking import pick_records, pick_table
from capmodel.ingest.tabular import csv_chunks, parquet_chunks, read_markdown
from capmodel.ingest.tools import Tool
from capmodel.runs import RUNS, RunsError, validate_runs

CHUNK = 150_000  # rows read, checked and written at a time


def iter_runs(
    document: Document, tool: Tool, given: Given, chunk: int | None = None
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Checked runs and rows set aside, chunk by chunk; records are numbered through the file."""
    path = document.path
    done = 0
    raws = _raw_chunks(document, tool, chunk or CHUNK)
    while True:
        try:
            with readable(path):
                raw = next(raws, None)
        except RunsError as error:  # a table of our own is numbered through already
            if tool.module is own:
                raise
            raise _renumbered(error, path, range(done + 1, sys.maxsize)) from error
        if raw is None:
            return
        raw.index = pd.RangeIndex(done + 1, done + 1 + len(raw))
        runs, aside = read_rows(raw, tool)
        if len(runs):
            runs = named_rows(runs, path, tool)
            runs = checked_rows(completed_rows(runs, tool, given, path), path)
        yield runs, aside
        done += len(raw)


def records_of(document: Document, tool: Tool) -> Iterator[Mapping[str, Any]]:
    """The runs that a JSON or YAML document holds, as the tool unfolds them."""
    expand = getattr(tool.module, "records", None)
    for record in json_records(document):
        if expand is None:
            yield record
            continue
        try:
            yield from expand(record)
        except ValueError as error:
            raise refuse(document.path, "file", str(error)) from error


def read_rows(raw: pd.DataFrame, tool: Tool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows with a decode step in columns of RUNS, and those without: row, rule, reason."""
    with np.errstate(all="ignore"):  # a zero or an overflow becomes a gap, which is told
        runs = tool.read(raw)
    if "aside" not in runs or tool.module is own:
        return runs, no_aside()
    marked = (runs["aside"] != "").to_numpy()
    aside = pd.DataFrame(
        {"row": runs.index, "rule": runs["aside"], "reason": runs["aside_reason"]}
    )[marked]
    runs = runs[~marked].drop(columns=["aside", "aside_reason"])
    return (runs if len(runs) else pd.DataFrame()), aside


def named_rows(runs: pd.DataFrame, path: Path, tool: Tool) -> pd.DataFrame:
    """`runs` with `run_id` and `source`, where the tool gives none."""
    if "run_id" not in runs:
        runs.insert(0, "run_id", [run_name(path, row) for row in runs.index])
    elif (nameless := runs["run_id"].isna() | (runs["run_id"] == "")).any():
        made = pd.Series([run_name(path, row) for row in runs.index], index=runs.index)
        runs["run_id"] = runs["run_id"].astype(object).where(~nameless, made)
    if "source" not in runs:
        runs.insert(1, "source", source_name(path, tool))
    return runs


def run_name(path: Path, row: int) -> str:
    """The name of a run that its tool gave none."""
    return f"{path.stem}-{row}"


def source_name(path: Path, tool: Tool) -> str:
    """Where the runs of a file come from, where it does not say."""
    return f"{tool.name}: {path.name}" if tool.module is not own else str(path)


def completed_rows(runs: pd.DataFrame, tool: Tool, given: Given, path: Path) -> pd.DataFrame:
    """`runs` with the facts that were given. Raises RunsError for those that lack."""
    runs = _with_text(runs, path) if tool.module is own else runs
    runs = complete(runs, given, path, _needs(tool))
    if tool.module is not own and "context_len" in runs:
        runs = _with_context(runs, path)
    finish = getattr(tool.module, "finish", None)
    with np.errstate(all="ignore"):
        return finish(runs) if finish else runs


def _with_context(runs: pd.DataFrame, path: Path) -> pd.DataFrame:
    """`runs` with the mean context of lengths that were given. Raises RunsError for none."""
    gaps = runs["context_len"].isna()
    if not gaps.any():
        return runs
    names = ["input_len", "output_len"]
    lengths = runs.reindex(columns=names)
    lacking = [name for name in names if lengths[name][gaps].isna().any()]
    if lacking:
        complete(runs, Given(), path, lacking)  # raises, asking for them by name
    mean = lengths["input_len"] + lengths["output_len"] / 2
    return runs.assign(context_len=runs["context_len"].fillna(mean))


def checked_rows(runs: pd.DataFrame, path: Path) -> pd.DataFrame:
    """A checked runs table. Raises RunsError, by the rows of the index of `runs`."""
    rows = runs.index
    try:
        return validate_runs(runs.reset_index(drop=True), str(path))
    except RunsError as error:  # numbered within the chunk
        raise _renumbered(error, path, rows) from error


def no_aside() -> pd.DataFrame:
    """An empty table of rows without a decode step."""
    return pd.DataFrame(columns=["file", "row", "rule", "reason"])


def _renumbered(error: RunsError, path: Path, rows: Sequence[int] | pd.Index) -> RunsError:
    """The error of a chunk, by the rows of the file; `rows` are those of the chunk."""
    problems = error.problems.copy()
    here = problems["row"].notna()
    problems.loc[here, "row"] = [rows[int(row) - 1] for row in problems.loc[here, "row"]]
    return RunsError(problems, str(path))


def _raw_chunks(document: Document, tool: Tool, chunk: int) -> Iterator[pd.DataFrame]:
    path = document.path
    if tool.module is own and is_large(path):
        yield from table_chunks(document, chunk)
    elif tool.module is own:
        yield own.read_document(document)
    elif document.kind in ("json", "jsonl", "yaml"):
        records = iter(records_of(document, tool))
        while len(raw := pick_records(islice(records, chunk), tool.module.VARIABLE_MAP, path)):
            yield raw
    else:
        for table in _tables(document, chunk):
            plain = table
            if tool.module is llama_bench and "t/s" in table:
                plain = llama_bench.from_markdown(table)
            yield pick_table(plain, tool.module.VARIABLE_MAP, path, document.delimiter)


def _tables(document: Document, chunk: int) -> Iterator[pd.DataFrame]:
    if document.kind == "markdown":
        yield read_markdown(document)
    elif document.kind == "parquet":
        yield from parquet_chunks(document, chunk)
    else:
        yield from csv_chunks(document, chunk)


def _with_text(runs: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Names as text, whatever the file keeps them in. Raises RunsError where they are none."""
    texts = {}
    for name in _NAMES:
        if name in runs and not isinstance(runs[name].dtype, pd.CategoricalDtype):
            texts[name], reasons = text_cells(runs[name])
            if reasons is not None:
                validate_runs(runs, str(path))  # raises with every problem, these among them
    return runs.assign(**texts)


_NAMES = tuple(column.name for column in RUNS if column.kind == "text")


def _needs(tool: Tool) -> tuple[str, ...]:
    """What must be asked for; a runs table of our own says itself which columns it lacks."""
    return () if tool.module is own else (*ASKED, *getattr(tool.module, "NEEDS", ()))
