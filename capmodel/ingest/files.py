"""From paths to runs: recognise, read, complete, check; bad files are listed, good ones kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from capmodel.cells import text_cells
from capmodel.ingest import llama_bench, own
from capmodel.ingest.differencing import difference
from capmodel.ingest.documents import Document, refuse
from capmodel.ingest.given import ASKED, Given, complete, given_for
from capmodel.ingest.json_text import json_records
from capmodel.ingest.large import is_large, table_chunks
from capmodel.ingest.opening import open_document
from capmodel.ingest.paths import expand_paths
from capmodel.ingest.picking import pick_records, pick_table
from capmodel.ingest.tabular import read_csv, read_markdown, read_parquet
from capmodel.ingest.tools import NoBenchmark, Tool, check_format, identify
from capmodel.own_entries import OwnEntries
from capmodel.runs import GPU_COLUMNS, RUNS, SHAPE_COLUMNS, RunsError, validate_runs

CHUNK = 150_000  # rows read, checked and written at a time


READ, NO_BENCHMARK, REFUSED = "read", "no benchmark", "refused"


@dataclass(frozen=True, slots=True)
class FileReport:
    """What became of one file. status: "read", "no benchmark" or "refused", with the reason.

    named: given by name, not found in a folder. rows: read; kept: with a decode step.
    """

    path: str
    status: str
    format: str = ""
    rows: int = 0
    kept: int = 0
    reason: str = ""
    named: bool = True
    problems: pd.DataFrame | None = None


@dataclass(frozen=True, slots=True)
class Ingested:
    """Checked runs, the rows without a decode step, and what became of each file.

    aside: columns file, row, rule, reason. file_of_row: the file each row of `runs` is from.
    """

    runs: pd.DataFrame
    aside: pd.DataFrame
    files: tuple[FileReport, ...]
    file_of_row: pd.Series

    @property
    def refused(self) -> tuple[FileReport, ...]:
        """Files that should have held runs but could not be read."""
        bad = (REFUSED, NO_BENCHMARK)
        return tuple(f for f in self.files if f.status in bad and (f.named or f.status == REFUSED))


def read_files(
    paths: Iterable[str | Path], format: str = "auto", given: Given | None = None
) -> Ingested:
    """Every run of the files, folders and globs; the bad files are listed, never raised.

    format: one of FORMATS. given: facts that the files lack. Raises ValueError for no paths.
    """
    return read_expanded(expand_paths(paths), format, given)


def read_expanded(
    files: Sequence[tuple[Path, bool]],
    format: str = "auto",
    given: Given | None = None,
    progress: Callable[[int], None] | None = None,
) -> Ingested:
    """`read_files` of what `expand_paths` found. progress: called with the bytes of each file."""
    check_format(format)
    if not files:
        raise ValueError("Got no file to read; name at least one that holds runs")
    tables: list[pd.DataFrame] = []
    asides: list[pd.DataFrame] = []
    reports: list[FileReport] = []
    entries = OwnEntries()
    for path, named in files:
        if progress:
            progress(path.stat().st_size if path.is_file() else 0)
        try:
            name, runs, aside = _read_one(path, format, given or Given())
            entries.add(runs, SHAPE_COLUMNS, GPU_COLUMNS, str(path))
        except RunsError as error:
            status = NO_BENCHMARK if isinstance(error, NoBenchmark) else REFUSED
            reports.append(
                FileReport(
                    str(path), status, reason=str(error), named=named, problems=error.problems
                )
            )
            continue
        rows = len(runs) + len(aside)
        reports.append(FileReport(str(path), READ, name, rows, len(runs), named=named))
        tables.append(runs)
        asides.append(aside.assign(file=str(path)))
    runs, used_up = _joined(tables, [r.path for r in reports if r.status == READ])
    aside = pd.concat([*asides, used_up]) if asides else _no_aside()
    origin = runs.pop("_file") if "_file" in runs else pd.Series(dtype=object)
    return Ingested(runs, aside.reset_index(drop=True), tuple(reports), origin)


def iter_runs(
    document: Document, tool: Tool, given: Given, chunk: int = CHUNK
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Checked runs and rows set aside, chunk by chunk; records are numbered through the file."""
    done = 0
    for raw in _raw_chunks(document, tool, chunk):
        with np.errstate(all="ignore"):  # a zero or an overflow becomes a gap, which is told
            runs = tool.read(raw)
        runs.index = pd.RangeIndex(done + 1, done + 1 + len(runs))
        yield _checked(runs, document, tool, given)
        done += len(runs)


def _read_one(path: Path, format: str, given: Given) -> tuple[str, pd.DataFrame, pd.DataFrame]:
    document = open_document(path)
    tool = identify(document, format)
    parts = list(iter_runs(document, tool, given_for(path, given)))
    runs = pd.concat([kept for kept, _ in parts], ignore_index=True) if parts else pd.DataFrame()
    aside = pd.concat([aside for _, aside in parts]) if parts else _no_aside()
    if not len(runs) and not len(aside):
        raise refuse(path, "file", "it holds no runs; the benchmark ended before it wrote any")
    return tool.name, runs, aside


def _raw_chunks(document: Document, tool: Tool, chunk: int) -> Iterator[pd.DataFrame]:
    path = document.path
    if tool.module is own and is_large(path):
        yield from table_chunks(document, chunk)
    elif tool.module is own:
        yield own.read_document(document)
    elif document.kind in ("json", "jsonl", "yaml"):
        records = iter(_records(document, tool))
        while len(raw := pick_records(islice(records, chunk), tool.module.VARIABLE_MAP, path)):
            yield raw
    else:
        if document.kind == "markdown":
            table = read_markdown(document)
        elif document.kind == "parquet":
            table = read_parquet(path)
        else:
            table = read_csv(document)
        if tool.module is llama_bench and "t/s" in table:
            table = llama_bench.from_markdown(table)
        yield pick_table(table, tool.module.VARIABLE_MAP, path, document.delimiter)


def _records(document: Document, tool: Tool) -> Iterator[Mapping[str, Any]]:
    expand = getattr(tool.module, "records", None)
    for record in json_records(document):
        if expand is None:
            yield record
            continue
        try:
            yield from expand(record)
        except ValueError as error:
            raise refuse(document.path, "file", str(error)) from error


def _checked(
    runs: pd.DataFrame, document: Document, tool: Tool, given: Given
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One chunk, completed and validated, and its rows without a decode step."""
    path = document.path
    aside = _no_aside()
    if "aside" in runs and tool.module is not own:
        marked = runs["aside"] != ""
        aside = pd.DataFrame(
            {"row": runs.index, "rule": runs["aside"], "reason": runs["aside_reason"]}
        )
        aside = aside[marked.to_numpy()]
        runs = runs[~marked].drop(columns=["aside", "aside_reason"])
    if runs.empty:
        return pd.DataFrame(), aside
    runs = _with_text(runs, path) if tool.module is own else runs
    runs = complete(runs, given, path, _needs(tool))
    finish = getattr(tool.module, "finish", None)
    with np.errstate(all="ignore"):
        runs = finish(runs) if finish else runs
    if "run_id" not in runs:
        runs.insert(0, "run_id", [f"{path.stem}-{row}" for row in runs.index])
    if "source" not in runs:
        runs.insert(1, "source", f"{tool.name}: {path.name}" if tool.name != "own" else str(path))
    rows = runs.index
    try:
        return validate_runs(runs.reset_index(drop=True), str(path)), aside
    except RunsError as error:  # numbered within the chunk; say the row of the file
        problems = error.problems.copy()
        here = problems["row"].notna()
        problems.loc[here, "row"] = [rows[int(row) - 1] for row in problems.loc[here, "row"]]
        raise RunsError(problems, str(path)) from error


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


def _joined(tables: list[pd.DataFrame], names: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All runs under one another, names made unique, static batches differenced."""
    kept = [(table, name) for table, name in zip(tables, names, strict=True) if len(table)]
    if not kept:
        return pd.DataFrame(), _no_aside()
    runs = pd.concat([table.assign(_file=name) for table, name in kept], ignore_index=True)
    runs["flags"] = runs["flags"].fillna("")
    if runs["run_id"].duplicated().any():
        runs["run_id"] = runs["_file"].map(lambda name: f"{Path(name).stem}:") + runs["run_id"]
    if runs["run_id"].duplicated().any():
        again = runs.groupby("run_id").cumcount().astype(str)
        runs["run_id"] = runs["run_id"].where(again == "0", runs["run_id"] + "#" + again)
    runs, consumed = difference(runs)
    reason = "differenced with a run of another output length into a clean decode step"
    aside = pd.DataFrame({"file": consumed["_file"], "row": consumed["run_id"],
                          "rule": "differenced", "reason": reason})  # fmt: skip
    return runs, aside


def _no_aside() -> pd.DataFrame:
    return pd.DataFrame(columns=["file", "row", "rule", "reason"])
