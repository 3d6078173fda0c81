"""Readers of request traces: Azure 2023, Mooncake, and a plain CSV of our own.

Recognised by content, not by file name. Readers only map columns.
"""

import io
import json
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from capmodel.words import one_line, shown
from capmodel.workload.limits import whole_array
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
PLAIN_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
MOONCAKE_BLOCK = 512  # tokens per hash id, as the trace's authors state


def read_trace(path: str | PathLike[str]) -> Requests:
    """Requests of the trace at `path`; arrivals count from the first one [s].

    Formats: Azure's LLM inference trace CSV (`TIMESTAMP, ContextTokens, GeneratedTokens`),
    Mooncake's JSON lines (with prefix ids), or CSV with `arrival_s, prompt_tokens,
    output_tokens`. Raises ValueError for anything else, naming the file and the row.
    """
    if not isinstance(path, str | PathLike) or not str(path).strip():
        raise ValueError(f"Got path={shown(path)}, but expected that of a trace of requests")
    file, where = Path(path), one_line(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"Trace {where} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"Trace {where} is not UTF-8 text: {error}") from error
    except ValueError as error:  # no path has a NUL
        raise ValueError(f"Trace {where} cannot be read: {one_line(error)}") from error
    head = text.lstrip()
    if not head:
        raise ValueError(f"Trace {where} is empty, but expected a header and one request per row")
    if head.startswith("{"):
        return read_mooncake(text, file.name)
    header = {name.strip() for name in head.splitlines()[0].split(",")}
    if set(AZURE_VARIABLE_MAP) <= header:
        return read_azure(text, file.name)
    if set(PLAIN_COLUMNS) <= header:
        return read_plain(text, file.name)
    raise ValueError(
        f"Trace {where} has the columns {', '.join(sorted(header))}, but expected "
        f"{', '.join(PLAIN_COLUMNS)}, or {', '.join(AZURE_VARIABLE_MAP)} (Azure), or Mooncake's "
        "JSON lines"
    )


def read_azure(text: str, name: str = "trace") -> Requests:
    """Azure 2023 (and 2024) inference traces from their CSV text. Raises ValueError."""
    table = _csv(text, name, tuple(AZURE_VARIABLE_MAP)).rename(columns=AZURE_VARIABLE_MAP)
    stamps = pd.to_datetime(table["arrival_s"], errors="coerce", format="ISO8601", utc=True)
    if stamps.isna().any():
        row = int(np.argmax(stamps.isna().to_numpy()))
        raise ValueError(
            f"{name}, row {row + 2}: TIMESTAMP {table['arrival_s'].iloc[row]!r} is no time"
        )
    seconds = (stamps - stamps.iloc[0]).dt.total_seconds().to_numpy(dtype=float)
    return _requests(seconds, table, name)


def read_plain(text: str, name: str = "trace") -> Requests:
    """Our own CSV: `arrival_s` [s], `prompt_tokens`, `output_tokens`. Raises ValueError."""
    table = _csv(text, name, PLAIN_COLUMNS)
    seconds = pd.to_numeric(table["arrival_s"], errors="coerce").to_numpy(dtype=float)
    return _requests(seconds - seconds[0], table, name)


def read_mooncake(text: str, name: str = "trace") -> Requests:
    """Mooncake's JSON lines: timestamps [ms], lengths, ids of 512-token prefix blocks.

    Raises ValueError naming the line.
    """
    name = _named(text, name)
    rows, ids = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{name}, line {number}: not JSON ({error.msg}), but expected one object a line"
            ) from error
        if not isinstance(row, dict):
            raise ValueError(f"{name}, line {number}: {shown(row)}, but expected a JSON object")
        missing = [key for key in MOONCAKE_VARIABLE_MAP if key not in row and key != "hash_ids"]
        if missing:
            raise ValueError(f"{name}, line {number}: {', '.join(missing)} missing")
        rows.append(row)
        if "hash_ids" in row or "hash_ids" in rows[0]:
            ids.append(_ids(row.get("hash_ids"), f"{name}, line {number}"))
    if not rows:
        raise ValueError(f"{name} is empty, but expected one request per line")
    table = pd.DataFrame(rows).rename(columns=MOONCAKE_VARIABLE_MAP)
    milliseconds = pd.to_numeric(table["arrival_s"], errors="coerce").to_numpy(dtype=float)
    seconds = (milliseconds - milliseconds[0]) / 1e3
    if not ids:
        return _requests(seconds, table, name)
    if len(ids) < len(rows):
        raise ValueError(f"{name}, line 1: hash_ids missing, but expected them in every line")
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in ids])]).astype(np.int64)
    return _requests(seconds, table, name, np.concatenate(ids), offsets, MOONCAKE_BLOCK)


def _ids(value: object, where: str) -> np.ndarray:
    try:
        return whole_array("hash_ids", value, "whole numbers from 0", 0, float(2**62))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _named(text: object, name: object) -> str:
    for said, value in (("text", text), ("name", name)):
        if not isinstance(value, str):
            raise ValueError(f"Got {said}={shown(value)}, but expected text")
    return str(name)


def _csv(text: str, name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    name = _named(text, name)
    try:
        table = pd.read_csv(io.StringIO(text), skipinitialspace=True)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"{name} is not a CSV table: {error}") from error
    if table.empty:
        raise ValueError(f"{name} has a header but no rows, but expected one request per row")
    table = table.rename(columns=lambda heading: str(heading).strip())
    missing = [column for column in columns if column not in table]
    if missing:
        raise ValueError(
            f"{name} has no column {', '.join(missing)}; it has {', '.join(map(str, table))}"
        )
    return table


def _requests(
    seconds: np.ndarray,
    table: pd.DataFrame,
    name: str,
    prefix_ids: np.ndarray | None = None,
    prefix_offsets: np.ndarray | None = None,
    prefix_block: int = 0,
) -> Requests:
    columns = [
        pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=float)
        for column in ("prompt_tokens", "output_tokens")
    ]
    empty = np.zeros(0, dtype=np.int64)
    return Requests(
        np.asarray(seconds, dtype=float),
        columns[0],
        columns[1],
        empty if prefix_ids is None else prefix_ids,
        empty if prefix_offsets is None else prefix_offsets,
        prefix_block,
        name,
    )
