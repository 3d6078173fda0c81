"""Files in, one screened runs table out: read, check, write, and account for every row.

Small inputs are checked as one table. Where a file is large, everything goes chunk by chunk into
Parquet, and rows are compared with those of their own chunk.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from capmodel.features import FEATURES
from capmodel.ingest.documents import open_document
from capmodel.ingest.files import (
    NO_BENCHMARK,
    READ,
    REFUSED,
    FileReport,
    NoBenchmark,
    expand_paths,
    identify,
    iter_runs,
    read_files,
)
from capmodel.ingest.given import Given, given_for
from capmodel.ingest.large import is_large
from capmodel.ingest.writing import PARQUET, write_runs
from capmodel.quality.screening import Screened, screen_runs
from capmodel.runs import RUNS, RunsError

Progress = Callable[[int], None]


@dataclass(slots=True)
class Intake:
    """What was read and what became of it.

    set_aside, flagged: rule -> rows. rows_made: decode steps made by differencing two runs.
    rows_read + rows_made = rows_used + all set aside. written: files written.
    """

    files: list[FileReport] = field(default_factory=list)
    rows_read: int = 0
    rows_made: int = 0
    rows_used: int = 0
    set_aside: Counter[str] = field(default_factory=Counter)
    flagged: Counter[str] = field(default_factory=Counter)
    written: list[str] = field(default_factory=list)

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
    names = list(paths)
    files = expand_paths(names)
    if any(is_large(path) for path, _ in files):
        return _take_in_chunks(files, out, format, given or Given(), progress)
    found = read_files(names, format, given)
    intake = Intake(files=list(found.files))
    intake.set_aside.update(found.aside["rule"].astype(str))
    screened = Screened(pd.DataFrame(), pd.DataFrame(columns=["rule"]))
    if len(found.runs):
        screened = screen_runs(found.runs, found.file_of_row)
        intake.add(screened)
    intake.rows_read = sum(report.rows for report in found.files)
    intake.rows_made = len(found.runs) + len(found.aside) - intake.rows_read
    if out is not None and len(found.runs):
        intake.written.append(str(write_runs(plain_columns(screened.used), out)))
        beside = Path(out).with_name(f"{Path(out).stem}_set_aside.csv")
        table = pd.concat([plain_columns(screened.aside), _unread(found.aside)])
        intake.written.append(str(write_runs(table, beside)))
    return intake


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
    intake, sink = Intake(), _Sink(Path(out)) if out is not None else None
    try:
        for path, named in files:
            try:
                kept, rows, name = _one_file(path, format, given, intake, sink, progress)
            except RunsError as error:
                status = NO_BENCHMARK if isinstance(error, NoBenchmark) else REFUSED
                report = FileReport(str(path), status, reason=str(error), named=named)
            else:
                report = FileReport(str(path), READ, name, rows, kept, named=named)
            intake.files.append(report)
    except BaseException:
        if sink:
            sink.discard()
        raise
    intake.written = sink.finish() if sink else []
    return intake


def _one_file(
    path: Path, format: str, given: Given, intake: Intake, sink: "_Sink | None",
    progress: Progress | None,
) -> tuple[int, int, str]:  # fmt: skip
    document = open_document(path)
    tool = identify(document, format)
    size, done, rows, kept = path.stat().st_size, 0, 0, 0
    for runs, unread in iter_runs(document, tool, given_for(path, given)):
        intake.set_aside.update(unread["rule"].astype(str))
        intake.rows_read += len(unread)
        rows += len(unread) + len(runs)
        kept += len(runs)
        if len(runs):
            files = pd.Series(str(path), index=runs.index)
            screened = screen_runs(runs, files)
            intake.add(screened)
            if sink:
                sink.write(screened, unread.assign(file=str(path)))
        if progress:  # bytes are not told by the readers; rows so far are a fair share
            step = min(size, max(done, int(size * (1 - 1 / (1 + rows / 1e6))))) - done
            done += step
            progress(step)
    if progress:
        progress(size - done)
    return kept, rows, tool.name


class _Sink:
    """Parquet for the used rows and CSV for the others, written under other names until the end."""

    def __init__(self, out: Path) -> None:
        if out.suffix.lower() not in PARQUET:
            raise ValueError(f"Got {out}, but files this large are written as .parquet")
        if not out.parent.is_dir():
            raise ValueError(f"Got {out}, but the folder {out.parent} is not there; make it first")
        self._out, self._aside = out, out.with_name(f"{out.stem}_set_aside.csv")
        handle, self._part = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
        os.close(handle)
        handle, self._aside_part = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
        os.close(handle)
        self._writer: pq.ParquetWriter | None = None
        self._columns: list[str] = []

    def write(self, screened: Screened, unread: pd.DataFrame) -> None:
        used = plain_columns(screened.used)
        if self._writer is None:
            self._columns = list(dict.fromkeys([*used.columns, *(c.name for c in RUNS)]))
        table = pa.Table.from_pandas(used.reindex(columns=self._columns), preserve_index=False)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._part, self._schema(table.schema))
        self._writer.write_table(table.cast(self._writer.schema, safe=False))
        aside = pd.concat([plain_columns(screened.aside), _unread(unread)])
        header = os.path.getsize(self._aside_part) == 0
        names = ["run_id", "source", "model", "gpu", "batch_size", "context_len", "step_time_s",
                 "rule", "reason"]  # fmt: skip
        aside.reindex(columns=names).to_csv(self._aside_part, mode="a", header=header, index=False)

    def _schema(self, first: pa.Schema) -> pa.Schema:
        """Columns that a later chunk may fill are nullable numbers or words from the start."""
        words = {column.name for column in RUNS if column.kind == "text"}
        fields = zip(first.names, first.types, strict=True)
        return pa.schema([
            (name, pa.string() if name in words or pa.types.is_string(kind) else pa.float64())
            for name, kind in fields
        ])  # fmt: skip

    def finish(self) -> list[str]:
        """Give both files their names; nothing is written where no row was used."""
        if self._writer is None:
            self.discard()
            return []
        self._writer.close()
        for part, name in ((self._part, self._out), (self._aside_part, self._aside)):
            Path(part).chmod(0o644)
            os.replace(part, name)
        return [str(self._out), str(self._aside)]

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
        for part in (self._part, self._aside_part):
            Path(part).unlink(missing_ok=True)
