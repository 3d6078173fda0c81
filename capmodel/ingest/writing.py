"""Runs tables to disk, whole or not at all; large ones in parts, one a file read."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from capmodel.runs import RUNS

Packing = Literal["snappy", "gzip", "brotli", "lz4", "zstd"]
PARQUET = (".parquet", ".pq")
_ASIDE = ("run_id", "source", "engine", "model", "gpu", "batch_size", "context_len",
          "step_time_s", "rule", "reason")  # fmt: skip


def write_runs(runs: pd.DataFrame, path: str | Path, compression: Packing = "snappy") -> Path:
    """Write a runs table as Parquet or CSV, by the ending of `path`; replaced whole.

    compression: of Parquet.
    Raises ValueError for another ending or a folder that is not there, OSError where the system
    does not let it be written.
    """
    path = check_target(path, (*PARQUET, ".csv"))
    with writable(path):
        _write_whole(runs, path, compression)
    return path


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """What the system says against writing becomes an OSError that names the file."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(
            f"Got {path}, but it cannot be written: {why}; free space there or name another"
        ) from error


def _write_whole(runs: pd.DataFrame, path: Path, compression: Packing) -> None:
    name = _beside(path)
    try:
        if path.suffix.lower() in PARQUET:
            table = runs.assign(**_odd_as_text(runs))
            table.to_parquet(name, index=False, compression=compression)
        else:
            runs.to_csv(name, index=False)
        _put(name, path)
    finally:
        name.unlink(missing_ok=True)


def check_target(path: str | Path, endings: Sequence[str]) -> Path:
    """`path`, where it can be written. Raises ValueError for a wrong ending or no folder."""
    path = Path(path)
    if path.suffix.lower() not in endings:
        wanted = " or ".join(ending for ending in endings if ending != ".pq")
        raise ValueError(f"Got {path}, but expected a name that ends in {wanted}")
    if not path.parent.is_dir():
        raise ValueError(f"Got {path}, but the folder {path.parent} is not there; make it first")
    return path


def beside_of(out: Path) -> Path:
    """Where the rows set aside go: `<stem>_set_aside.csv` beside `out`."""
    return out.with_name(f"{out.stem}_set_aside.csv")


class Part:
    """Rows of one file on their way to `out`: used ones as Parquet, the others as CSV."""

    def __init__(self, out: Path) -> None:
        self.out = out
        with writable(out):
            self.used, self.aside = _beside(out), _beside(out)
        self.rows = 0
        self._writer: pq.ParquetWriter | None = None

    def write(self, used: pd.DataFrame, aside: pd.DataFrame) -> None:
        """Append a chunk; the columns of the first one, and those of RUNS, stay."""
        with writable(self.out):
            self._append(used, aside)

    def _append(self, used: pd.DataFrame, aside: pd.DataFrame) -> None:
        if len(used):
            if self._writer is None:
                names = list(dict.fromkeys([*used.columns, *(column.name for column in RUNS)]))
                words = [
                    name for name in names if not pd.api.types.is_numeric_dtype(used.get(name))
                ]
                self._writer = pq.ParquetWriter(self.used, _schema(names, words))
            schema = self._writer.schema
            frame = used.reindex(columns=schema.names)
            frame = frame.assign(**_as_words(frame, schema))
            self._writer.write_table(pa.Table.from_pandas(frame, schema, preserve_index=False))
            self.rows += len(used)
        header = self.aside.stat().st_size == 0
        aside.reindex(columns=list(_ASIDE)).to_csv(self.aside, mode="a", header=header, index=False)

    def close(self) -> None:
        """End the Parquet file; nothing more can be written."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def discard(self) -> None:
        """Remove what was written and not yet named."""
        self.close()
        self.used.unlink(missing_ok=True)
        self.aside.unlink(missing_ok=True)


def join_parts(parts: Sequence[Part], out: Path) -> list[str]:
    """Parts under one another as `out` and `<stem>_set_aside.csv`; the files written.

    Without a used row there is no `out`.
    """
    for part in parts:
        part.close()
    filled = [part for part in parts if part.rows]
    if not parts:
        return []
    with writable(out):
        return _under_one_name(parts, filled, out)


def _under_one_name(parts: Sequence[Part], filled: Sequence[Part], out: Path) -> list[str]:
    beside = beside_of(out)
    joined = _joined(filled, out) if len(filled) > 1 else (filled or parts)[0].used
    try:
        with parts[0].aside.open("ab") as target:
            for part in parts[1:]:
                with part.aside.open("rb") as source:
                    source.readline()  # its header
                    while block := source.read(1 << 20):
                        target.write(block)
        if filled:
            _put(joined, out)
        _put(parts[0].aside, beside)
    finally:
        joined.unlink(missing_ok=True)
    return [str(path) for path in ((out, beside) if filled else (beside,))]


def _joined(parts: Sequence[Part], out: Path) -> Path:
    schemas = [pq.read_schema(part.used) for part in parts]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    name = _beside(out)
    with pq.ParquetWriter(name, schema) as writer:
        for part in parts:
            for batch in pq.ParquetFile(part.used).iter_batches(batch_size=250_000):
                missing = [field for field in schema if field.name not in batch.schema.names]
                table = pa.Table.from_batches([batch])
                for field in missing:
                    table = table.append_column(field, pa.nulls(len(batch), field.type))
                writer.write_table(table.select(schema.names).cast(schema))
    return name


def _odd_as_text(runs: pd.DataFrame) -> dict[str, pd.Series]:
    """Columns that Arrow has no type for (words and numbers mixed, huge integers), as text."""
    odd = {}
    for name in [name for name in runs if runs[name].dtype.kind == "O"]:
        try:
            pa.array(runs[name], from_pandas=True)
        except (pa.ArrowException, OverflowError, ValueError):
            odd[str(name)] = runs[name].map(str, na_action="ignore")
    return odd


def _as_words(frame: pd.DataFrame, schema: pa.Schema) -> dict[str, pd.Series]:
    """Columns kept as words whose values are none, such as dates, written out."""
    names = [field.name for field in schema if pa.types.is_string(field.type)]
    plain = ("string", "empty", "categorical")
    return {
        name: frame[name].map(str, na_action="ignore").astype(object)
        for name in names
        if pd.api.types.infer_dtype(frame[name], skipna=True) not in plain
    }


def _schema(names: list[str], words: list[str]) -> pa.Schema:
    """Words as they are known to be, everything else a number that may be missing."""
    known = {column.name: column.kind for column in RUNS}
    text = {name for name in names if known.get(name) == "text" or name in words}
    text -= {name for name, kind in known.items() if kind != "text"}
    return pa.schema([(name, pa.string() if name in text else pa.float64()) for name in names])


def _beside(path: Path) -> Path:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    return Path(name)


def _put(name: Path, path: Path) -> None:
    name.chmod(0o644)
    os.replace(name, path)
