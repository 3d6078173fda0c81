"""Readers of request traces: Azure 2023, Mooncake, and a plain CSV of our own.

Recognised by content, not by file name. Readers only map columns.
"""

import csv
import io
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from capmodel.words import one_line, shown
from capmodel.workload.limits import TOKENS, whole_array
from capmodel.workload.requests import Requests

AZURE_VARIABLE_MAP = {
    "TIMESTAMP": "arrival_s",
    "ContextTokens": "prompt_tokens",
    "GeneratedTokens": "output_tokens",
}
MOONCAKE_VARIABLE_MAP = {
    "timestamp": "arrival_s",
    "input_length": "prompt_tokens",
    "output_length": "output_tokens",
    "hash_ids": "prefix_ids",
}
PLAIN_VARIABLE_MAP = {name: name for name in ("arrival_s", "prompt_tokens", "output_tokens")}
MOONCAKE_BLOCK = 512  # tokens per hash id, as the trace's authors state


def read_trace(path: str | PathLike[str]) -> Requests:
    """Requests of the trace at `path`; arrivals count from the first one [s].

    Formats: Azure's LLM inference trace CSV (`TIMESTAMP, ContextTokens, GeneratedTokens`),
    Mooncake's JSON lines (with prefix ids), or CSV with `arrival_s, prompt_tokens,
    output_tokens`; headings in any case. Raises ValueError for anything else, naming the file and
    the row.
    """
    if not isinstance(path, str | PathLike) or not str(path).strip():
        raise ValueError(f"Got path={shown(path)}, but expected that of a trace of requests")
    file, where = Path(path), one_line(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"Trace {where} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"Trace {where} is not UTF-8 text: {error}; save it as UTF-8") from error
    except ValueError as error:  # no path has a NUL
        raise ValueError(f"Trace {where} cannot be read: {one_line(error)}") from error
    head = text.lstrip()
    if not head:
        raise ValueError(f"Trace {where} is empty, but expected a header and one request per row")
    if head.startswith("{"):
        return read_mooncake(text, file.name)
    if head.startswith("["):
        raise ValueError(
            f"Trace {where} is one JSON array, but expected an object a line; `jq -c '.[]'` "
            "writes it so"
        )
    header = _headings(head)
    if _has(header, AZURE_VARIABLE_MAP):
        return read_azure(text, file.name)
    if _has(header, PLAIN_VARIABLE_MAP):
        return read_plain(text, file.name)
    split = next((mark for mark in ";\t|" if _has(_headings(head, mark), PLAIN_VARIABLE_MAP)), None)
    remedy = f"; it has {split!r} between them: write commas" if split else ""
    raise ValueError(
        f"Trace {where} has the columns {shown(', '.join(header))}, but expected "
        f"{', '.join(PLAIN_VARIABLE_MAP)}, or {', '.join(AZURE_VARIABLE_MAP)} (Azure), or "
        f"Mooncake's JSON lines{remedy}"
    )


def read_azure(text: str, name: str = "trace") -> Requests:
    """Azure 2023 (and 2024) inference traces from their CSV text. Raises ValueError."""
    table = _csv(text, name, AZURE_VARIABLE_MAP)
    given = table["TIMESTAMP"]
    stamps = pd.to_datetime(given.astype(str), errors="coerce", format="ISO8601", utc=True)
    if stamps.isna().any():
        row = int(np.argmax(stamps.isna().to_numpy()))
        raise _wrong(name, table, row, "TIMESTAMP", "a time such as 2023-11-16 18:15:46.68")
    seconds = (stamps - stamps.iloc[0]).dt.total_seconds().to_numpy(dtype=float)
    return _requests(seconds, table, name, AZURE_VARIABLE_MAP)


def read_plain(text: str, name: str = "trace") -> Requests:
    """Our own CSV: `arrival_s` [s], `prompt_tokens`, `output_tokens`. Raises ValueError."""
    table = _csv(text, name, PLAIN_VARIABLE_MAP)
    seconds = _times(table, name, "arrival_s", "seconds")
    return _requests(seconds, table, name, PLAIN_VARIABLE_MAP)


def read_mooncake(text: str, name: str = "trace") -> Requests:
    """Mooncake's JSON lines: timestamps [ms], lengths, ids of 512-token prefix blocks.

    Raises ValueError naming the line.
    """
    name = _named(text, name)
    rows, ids, lines = [], [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(
                f"{name}, line {number}: not JSON ({one_line(getattr(error, 'msg', error))}), but "
                "expected one object a line"
            ) from error
        if not isinstance(row, dict):
            raise ValueError(f"{name}, line {number}: {shown(row)}, but expected a JSON object")
        missing = [key for key in MOONCAKE_VARIABLE_MAP if key not in row and key != "hash_ids"]
        if missing:
            raise ValueError(f"{name}, line {number}: {', '.join(missing)} missing")
        rows.append(row)
        lines.append(number)
        if "hash_ids" in row or "hash_ids" in rows[0]:
            ids.append(_ids(row.get("hash_ids"), f"{name}, line {number}"))
    if not rows:
        raise ValueError(f"{name} is empty, but expected one request per line")
    columns = [key for key in MOONCAKE_VARIABLE_MAP if key != "hash_ids"]
    table = pd.DataFrame({key: [row[key] for row in rows] for key in columns}, index=lines)
    seconds = _times(table, name, "timestamp", "milliseconds") / 1e3
    if not ids:
        return _requests(seconds, table, name, MOONCAKE_VARIABLE_MAP)
    if len(ids) < len(rows):
        raise ValueError(f"{name}, line {lines[0]}: hash_ids missing, but expected in every line")
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in ids])]).astype(np.int64)
    found = _requests(seconds, table, name, MOONCAKE_VARIABLE_MAP)
    return replace(
        found, prefix_ids=np.concatenate(ids), prefix_offsets=offsets, prefix_block=MOONCAKE_BLOCK
    )


def _ids(value: object, where: str) -> np.ndarray:
    try:
        return whole_array("hash_ids", value, "whole numbers from 0", 0, float(2**62))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _named(text: object, name: object) -> str:
    for said, value in (("text", text), ("name", name)):
        if not isinstance(value, str):
            raise ValueError(f"Got {said}={shown(value)}, but expected text")
    return one_line(name)


def _headings(head: str, delimiter: str = ",") -> list[str]:
    first = next(csv.reader(head.splitlines()[:1], delimiter=delimiter, skipinitialspace=True))
    return [heading.strip() for heading in first]


def _has(header: Sequence[str], columns: Mapping[str, str]) -> bool:
    return {name.lower() for name in columns} <= {heading.lower() for heading in header}


def _csv(text: str, name: str, columns: Mapping[str, str]) -> pd.DataFrame:
    """The columns as they were written; the index is each row's line, the header's being 1."""
    name = _named(text, name)
    head = text.lstrip()
    header = _headings(head) if head else []
    own = {heading.lower(): heading for heading in header}
    missing = [column for column in columns if column.lower() not in own]
    if missing:
        raise ValueError(
            f"{name} has the columns {shown(', '.join(header))}, but expected also "
            f"{', '.join(missing)}"
        )
    twice = [c for c in columns if sum(c.lower() == other.lower() for other in header) > 1]
    if twice:
        raise ValueError(f"{name} has the column {twice[0]} more than once; leave one of them")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                io.StringIO(head), skipinitialspace=True, index_col=False, skip_blank_lines=False
            )
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"{name} is not a CSV table: {one_line(error)}") from error
    except pd.errors.ParserWarning as error:
        raise ValueError(
            f"{name} has rows of more fields than its {len(header)} headings; take them out"
        ) from error
    table.index = table.index + 2 + text[: len(text) - len(head)].count("\n")
    table = table.rename(columns=lambda heading: str(heading).strip().lower())
    table = table[[column.lower() for column in columns]].dropna(how="all")
    if table.empty:
        raise ValueError(f"{name} has a header but no rows, but expected one request per row")
    table.columns = pd.Index(columns)
    return table


def _times(table: pd.DataFrame, name: str, column: str, unit: str) -> np.ndarray:
    """A column of times, from the first [its unit]."""
    values = _floats(table[column])
    bad = ~np.isfinite(values)
    if bad.any():
        raise _wrong(name, table, int(np.argmax(bad)), column, f"a number of {unit}")
    return np.asarray(values - values[0])


def _requests(
    seconds: np.ndarray, table: pd.DataFrame, name: str, columns: Mapping[str, str]
) -> Requests:
    heading = {ours: theirs for theirs, ours in columns.items()}
    back = np.diff(seconds) < 0
    if back.any():
        row, column = int(np.argmax(back)) + 1, heading["arrival_s"]
        before = shown(table[column].iloc[row - 1])
        raise _wrong(
            name, table, row, column, f"nothing before the {before} above it",
            "sort the rows by arrival",
        )  # fmt: skip
    lengths = []
    for column in (heading["prompt_tokens"], heading["output_tokens"]):
        values = _floats(table[column])
        bad = ~((values >= TOKENS.low) & (values <= TOKENS.high) & (values == np.floor(values)))
        if bad.any():
            raise _wrong(name, table, int(np.argmax(bad)), column, TOKENS.said)
        lengths.append(values)
    return Requests(np.asarray(seconds, dtype=float), lengths[0], lengths[1], name=name)


def _floats(given: pd.Series) -> np.ndarray:
    """Numbers as they stand; NaN for text that is none, true, false and lists."""
    if given.dtype.kind in "iuf":
        return given.to_numpy(dtype=float)
    plain = [value if isinstance(value, str | int | float) else None for value in given]
    plain = [None if isinstance(value, bool) else value for value in plain]
    return pd.to_numeric(pd.Series(plain, dtype=object), errors="coerce").to_numpy(dtype=float)


def _wrong(
    name: str, table: pd.DataFrame, row: int, column: str, expected: str,
    remedy: str = "correct the row or leave it out",
) -> ValueError:  # fmt: skip
    value = table[column].iloc[row]
    empty = value is None or (isinstance(value, float) and np.isnan(value))
    said = "empty" if empty else shown(value)
    line = table.index[row]
    return ValueError(f"{name}, line {line}: {column} is {said}, but expected {expected}; {remedy}")
