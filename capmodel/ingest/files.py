"""From paths to runs: recognise, read, complete, check; bad files are listed, good ones kept."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from capmodel.ingest.batches import FILES, Picked, Table, is_small, pick, read_together
from capmodel.ingest.differencing import difference
from capmodel.ingest.documents import Document, no_runs, readable
from capmodel.ingest.given import Given, given_for
from capmodel.ingest.opening import open_document
from capmodel.ingest.paths import expand_paths
from capmodel.ingest.reading import iter_runs, no_aside
from capmodel.ingest.tools import NoBenchmark, Tool, check_format, identify
from capmodel.own_entries import OwnEntries
from capmodel.runs import GPU_COLUMNS, RUNS, SHAPE_COLUMNS, RunsError

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
    reading = _Reading(files, format, given or Given())
    for place, (path, _) in enumerate(files):
        reading.take(place)
        if progress:
            progress(path.stat().st_size if path.is_file() else 0)
    return reading.ended()


class _Reading:
    """Files on their way to one table; small ones wait for others of their tool."""

    def __init__(self, files: Sequence[tuple[Path, bool]], format: str, given: Given) -> None:
        self.files, self.format, self.given = files, format, given
        self.reports: dict[int, FileReport] = {}
        self.tables: list[Table] = []
        self._waiting: dict[str, list[list[Picked]]] = {}
        self._entries = OwnEntries()

    def take(self, place: int) -> None:
        """Read a file, or pick what is needed of it until there are enough of its kind."""
        path, _ = self.files[place]
        try:
            with readable(path):
                document = open_document(path)
                tool = identify(document, self.format)
                facts = given_for(path, self.given)
                picked = pick(place, document, tool, facts) if is_small(document, tool) else None
            if picked:
                self._wait(picked)
                return
            table = _one_table(place, document, tool, facts)
            self._entries.add(table.runs, SHAPE_COLUMNS, GPU_COLUMNS, str(path))
        except RunsError as error:
            self._refuse(place, error)
        else:
            self._keep(table)

    def ended(self) -> Ingested:
        """What all files hold, in their order."""
        for groups in self._waiting.values():
            for group in groups:
                self._read(group)
        self._waiting.clear()
        runs, used_up = _joined(self.tables, [str(path) for path, _ in self.files])
        aside = _in_order([(table.aside, table.aside_places) for table in self.tables])
        if len(used_up):
            aside = pd.concat([aside, used_up])
        origin = runs.pop("_file") if "_file" in runs else pd.Series(dtype=object)
        reports = tuple(self.reports[place] for place in sorted(self.reports))
        return Ingested(runs, aside.reset_index(drop=True), reports, origin)

    def _wait(self, picked: Picked) -> None:
        groups = self._waiting.setdefault(picked.tool.name, [])
        alike = next((group for group in groups if group[0].given == picked.given), None)
        if alike is None:
            groups.append(alike := [])
        alike.append(picked)
        if len(alike) >= FILES:
            groups.remove(alike)
            self._read(alike)

    def _read(self, group: list[Picked]) -> None:
        tables, refused = read_together(group)
        for table in tables:
            self._keep(table)
        for picked, error in refused:
            self._refuse(picked.place, error)

    def _keep(self, table: Table) -> None:
        self.tables.append(table)
        kept = np.bincount(table.places, minlength=len(self.files))
        aside = np.bincount(table.aside_places, minlength=len(self.files))
        for place in table.files:
            path, named = self.files[place]
            rows = int(kept[place] + aside[place])
            self.reports[place] = FileReport(
                str(path), READ, table.tool.name, rows, int(kept[place]), named=named
            )

    def _refuse(self, place: int, error: RunsError) -> None:
        path, named = self.files[place]
        status = NO_BENCHMARK if isinstance(error, NoBenchmark) else REFUSED
        self.reports[place] = FileReport(
            str(path), status, reason=str(error), named=named, problems=error.problems
        )


def _one_table(place: int, document: Document, tool: Tool, given: Given) -> Table:
    """A file that is read by itself. Raises RunsError."""
    parts = list(iter_runs(document, tool, given))
    runs = pd.concat([kept for kept, _ in parts], ignore_index=True) if parts else pd.DataFrame()
    aside = pd.concat([aside for _, aside in parts]) if parts else no_aside()
    if not len(runs) and not len(aside):
        raise no_runs(document.path)
    here, there = (np.full(len(table), place) for table in (runs, aside))
    aside = aside.assign(file=str(document.path))
    return Table(tool, (place,), runs, here, aside, there)


def _in_order(tables: Iterable[tuple[pd.DataFrame, np.ndarray]]) -> pd.DataFrame:
    """Tables under one another, by the numbers of their rows' files; no_aside() where none is."""
    kept = [(table, places) for table, places in tables if len(table)]
    if not kept:
        return no_aside()
    order = np.argsort(np.concatenate([places for _, places in kept]), kind="stable")
    joined = pd.concat([table for table, _ in kept], ignore_index=True)
    return joined.iloc[order].reset_index(drop=True)


def _joined(tables: Sequence[Table], names: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All runs under one another, names made unique, static batches differenced."""
    kept = [(t.runs.assign(_file=[names[n] for n in t.places]), t.places) for t in tables]
    if not any(len(table) for table, _ in kept):
        return pd.DataFrame(), no_aside()
    runs = _in_order(kept)
    runs = runs[[*_in_runs(runs), *(name for name in runs if name not in _PLACE)]]
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


_PLACE = {column.name: place for place, column in enumerate(RUNS)}


def _in_runs(runs: pd.DataFrame) -> list[str]:
    """Columns of RUNS that the table has, in the order of RUNS."""
    return sorted((str(name) for name in runs if name in _PLACE), key=_PLACE.__getitem__)
