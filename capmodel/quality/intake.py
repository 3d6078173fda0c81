"""Files in, one screened runs table out: read, check, write, and account for every row.

Small inputs are checked as one table. Where a file is large, everything goes chunk by chunk into
Parquet, and rows are compared with those of their own chunk.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from capmodel.engines import engine_doubt
from capmodel.features import FEATURES
from capmodel.ingest.documents import readable
from capmodel.ingest.files import (
    NO_BENCHMARK,
    READ,
    REFUSED,
    FileReport,
    read_expanded,
)
from capmodel.ingest.given import Given, given_for
from capmodel.ingest.large import expected_rows, is_large
from capmodel.ingest.opening import open_document
from capmodel.ingest.paths import expand_paths
from capmodel.ingest.reading import iter_runs
from capmodel.ingest.run_names import RunNames
from capmodel.ingest.tools import NoBenchmark, check_format, identify
from capmodel.ingest.writing import PARQUET, Part, beside_of, check_target, join_parts, write_runs
from capmodel.own_entries import OwnEntries
from capmodel.quality.glosses import gloss
from capmodel.quality.screening import Screened, screen_runs
from capmodel.runs import GPU_COLUMNS, SHAPE_COLUMNS, RunsError

Progress = Callable[[int], None]


_NAMED_BY = {"unknown_model": "--model", "unknown_gpu": "--gpu"}


@dataclass(slots=True)
class Intake:
    """What was read and what became of it.

    set_aside, flagged: rule -> rows. rows_made: decode steps made by differencing two runs.
    rows_read + rows_made = rows_used + all set aside. rows_unread: without a decode step, of
    those set aside. doubts: what to doubt about a name -> rows; those of an unknown engine are
    used all the same, those of an unknown model or GPU set aside. written: files written.
    """

    files: list[FileReport] = field(default_factory=list)
    rows_read: int = 0
    rows_made: int = 0
    rows_unread: int = 0
    rows_used: int = 0
    set_aside: Counter[str] = field(default_factory=Counter)
    flagged: Counter[str] = field(default_factory=Counter)
    doubts: Counter[str] = field(default_factory=Counter)
    written: list[str] = field(default_factory=list)

    @property
    def rules(self) -> dict[str, str]:
        """Every rule that hit a row, with its meaning in a line."""
        return {name: gloss(name) for name in [*self.set_aside, *self.flagged] if gloss(name)}

    @property
    def refused(self) -> list[FileReport]:
        """Files that should have held runs but could not be read."""
        bad = [f for f in self.files if f.status == REFUSED]
        return bad + [f for f in self.files if f.status == NO_BENCHMARK and f.named]

    def add(self, screened: Screened) -> None:
        """Count the rows of one screened table."""
        self.rows_read += len(screened.used) + len(screened.aside)
        self.rows_used += len(screened.used)
        self.set_aside.update(screened.counts)
        self.flagged.update(screened.flagged)
        if len(screened.used):
            for name, rows in screened.used["engine"].value_counts().items():
                doubt = engine_doubt(str(name))
                if doubt and rows:
                    self.doubts[doubt] += int(rows)
        for rule, flag in _NAMED_BY.items():
            unknown = screened.aside[screened.aside["rule"] == rule]
            for reason, rows in unknown["reason"].astype(str).value_counts().items():
                what = str(reason).split(". ")[0].rstrip(".")
                remedy = f"give {flag}, or translate the name in capmodel.toml"
                self.doubts[f"{what}; {remedy}"] += int(rows)

    def merge(self, other: "Intake") -> None:
        """Add the counts of another intake."""
        self.rows_read += other.rows_read
        self.rows_used += other.rows_used
        self.rows_unread += other.rows_unread
        self.set_aside.update(other.set_aside)
        self.flagged.update(other.flagged)
        self.doubts.update(other.doubts)


def take_in(
    paths: Iterable[str | Path],
    out: str | Path | None = None,
    format: str = "auto",
    given: Given | None = None,
    progress: Progress | None = None,
) -> Intake:
    """Read files, folders and globs, screen their rows, write the used ones to `out`.

    out: .parquet or .csv for the used rows; the others go to `<stem>_set_aside.csv` beside it.
    progress: called with the bytes of each file that is done. Raises ValueError for a format or
    an `out` that cannot be.
    """
    files = expand_paths(paths)
    if out is not None:
        files = _without(files, check_target(out, (*PARQUET, ".csv")))
    if any(is_large(path) for path, _ in files):
        return _take_in_chunks(files, out, format, given or Given(), progress)
    found = read_expanded(files, format, given, progress)
    intake = Intake(files=list(found.files))
    intake.set_aside.update(found.aside["rule"].astype(str))
    screened = Screened(pd.DataFrame(), pd.DataFrame(columns=["rule"]))
    if len(found.runs):
        screened = screen_runs(found.runs, found.file_of_row)
        intake.add(screened)
    intake.rows_read = sum(report.rows for report in found.files)
    intake.rows_unread = len(found.aside)
    intake.rows_made = len(found.runs) + len(found.aside) - intake.rows_read
    if out is not None:
        target = Path(out)
        if len(screened.used):
            intake.written.append(str(write_runs(plain_columns(screened.used), target)))
        table = pd.concat([plain_columns(screened.aside), _unread(found.aside)])
        if len(table) or len(screened.used):
            intake.written.append(str(write_runs(table, beside_of(target))))
    return intake


def _without(files: list[tuple[Path, bool]], out: Path) -> list[tuple[Path, bool]]:
    """`files` without what an earlier call wrote there. Raises ValueError where it was named."""
    written = {out.resolve(), beside_of(out).resolve()}
    again = [path for path, named in files if named and path.resolve() in written]
    if again:
        raise ValueError(
            f"Got -o {out}, which would replace {again[0]}, a file to read; name another"
        )
    return [(path, named) for path, named in files if path.resolve() not in written]


def plain_columns(featured: pd.DataFrame) -> pd.DataFrame:
    """A table without the columns that `add_features` adds."""
    return featured.drop(columns=[name for name in FEATURES if name in featured])


def _unread(aside: pd.DataFrame) -> pd.DataFrame:
    names = aside["file"].map(lambda name: Path(str(name)).stem) + "-" + aside["row"].astype(str)
    return pd.DataFrame({"run_id": names, "source": aside["file"], "rule": aside["rule"],
                         "reason": aside["reason"]})  # fmt: skip


def _take_in_chunks(
    files: list[tuple[Path, bool]],
    out: str | Path | None,
    format: str,
    given: Given,
    progress: Progress | None,
) -> Intake:
    check_format(format)
    if out is not None:
        check_target(out, PARQUET)
    intake, parts, known = Intake(), list[Part](), _Known()
    try:
        for path, named in files:
            part = Part(Path(out)) if out is not None else None
            parts += [part] if part else []
            mine = Intake()
            try:
                name = _one_file(path, format, given, mine, part, known, progress)
            except RunsError as error:  # what was read of a bad file does not count
                status = NO_BENCHMARK if isinstance(error, NoBenchmark) else REFUSED
                report = FileReport(str(path), status, reason=str(error), named=named)
                if part:
                    parts.remove(part)
                    part.discard()
            else:
                kept = sum(mine.set_aside.values()) - mine.rows_unread + mine.rows_used
                report = FileReport(str(path), READ, name, mine.rows_read, kept, named=named)
                intake.merge(mine)
            known.names.next_file(keep=report.status == READ)
            intake.files.append(report)
        intake.written = join_parts(parts, Path(out)) if out is not None else []
    finally:
        for part in parts:
            part.discard()
    return intake


@dataclass(frozen=True, slots=True)
class _Known:
    """What the files so far have said and taken."""

    entries: OwnEntries = field(default_factory=OwnEntries)
    names: RunNames = field(default_factory=RunNames)


def _one_file(
    path: Path, format: str, given: Given, intake: Intake, part: Part | None,
    known: _Known, progress: Progress | None,
) -> str:  # fmt: skip
    """Screen one file chunk by chunk into `part`; the name of its format."""
    with readable(path):
        document = open_document(path)
        tool = identify(document, format)
        given = given_for(path, given)
        size, done, rows = path.stat().st_size, 0, expected_rows(document)
    for runs, unread in iter_runs(document, tool, given):
        intake.set_aside.update(unread["rule"].astype(str))
        intake.rows_read += len(unread)
        intake.rows_unread += len(unread)
        screened = Screened(pd.DataFrame(), pd.DataFrame())
        if len(runs):
            known.entries.add(runs, SHAPE_COLUMNS, GPU_COLUMNS, str(path))
            runs = known.names.unique(runs, path)
            screened = screen_runs(runs, pd.Series(str(path), index=runs.index))
            intake.add(screened)
        if part:
            aside = [plain_columns(screened.aside), _unread(unread.assign(file=str(path)))]
            part.write(plain_columns(screened.used), pd.concat(aside))
        if progress:  # the readers tell rows, not bytes
            here = int(size * min(intake.rows_read / max(rows, 1.0), 1.0))
            progress(here - done)
            done = here
    if progress:
        progress(size - done)
    return tool.name
