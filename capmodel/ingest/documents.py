"""A file as a document: its kind, its encoding, its records. No tool's format is known here.

Everything wrong with a file is a RunsError that names the file, the place and what to do.
"""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from capmodel.runs import RunsError, problem_table

Record = dict[str, Any]

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Document:
    """One file. kind: "parquet", "csv", "markdown", "jsonl", "json" or "yaml".

    first: the first record of a JSON file; for a table its column names, without values.
    """

    path: Path
    kind: str
    encoding: str
    first: Record


def refuse(path: Path | str, place: str, reason: str, value: object = None) -> RunsError:
    """The error for a file that cannot be read: `place` is a field, a line, or "file"."""
    return RunsError(problem_table([(None, place, value, reason)]), str(path))


def open_document(path: Path) -> Document:
    """What kind of file `path` is, by its content. Raises RunsError where it is none we read."""
    head = _head(path)
    if head[:4] == b"PAR1":
        return Document(path, "parquet", "", dict.fromkeys(_parquet_columns(path)))
    encoding = text_encoding(path, head)
    start = _decoded(head, encoding).lstrip("\ufeff \t\r\n")
    if not start:
        raise refuse(path, "file", "it is empty; expected a benchmark's output or a runs table")
    if start[0] in "{[":
        return _json_document(path, encoding)
    if _is_markdown(start):
        return Document(path, "markdown", encoding, dict.fromkeys(_markdown_header(start)))
    if re.match(r"(---\s*\n)?\s*[A-Za-z_]\w*:(\s|$)", start) and path.suffix.lower() in _YAML:
        records = _yaml_records(path, encoding)
        return Document(path, "yaml", encoding, records[0])
    columns = read_csv(path, encoding, rows=0).columns
    return Document(path, "csv", encoding, dict.fromkeys(str(name) for name in columns))


_YAML = (".yaml", ".yml")


def _head(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise refuse(path, "file", "it is a directory; name the files in it")
        with path.open("rb") as file:
            head = file.read(_BLOCK)
    except FileNotFoundError as error:
        raise refuse(path, "file", "it is not there; check the name") from error
    except OSError as error:
        raise refuse(path, "file", f"it cannot be read: {error.strerror}") from error
    if not head:
        raise refuse(path, "file", "it is empty; expected a benchmark's output or a runs table")
    return head


def text_encoding(path: Path, head: bytes) -> str:
    """Encoding of a text file by its first bytes. Raises RunsError for a binary file."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\x00" in head:
        even, odd = (head[start:400:2] for start in (0, 1))  # UTF-16 without a mark
        if odd.count(0) > 0.9 * len(odd) and even.count(0) < 0.1 * len(even):
            return "utf-16-le"
        if even.count(0) > 0.9 * len(even) and odd.count(0) < 0.1 * len(odd):
            return "utf-16-be"
        raise refuse(path, "file", "it is binary; expected CSV, Parquet or a benchmark's JSON")
    try:
        head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return "latin-1"
    return "utf-8-sig"


def _decoded(data: bytes, encoding: str) -> str:
    return data.decode(encoding, errors="replace")


# JSON


def _json_document(path: Path, encoding: str) -> Document:
    with path.open(encoding=encoding, errors="replace") as file:
        line = next((text for text in file if text.strip()), "")
        more = any(text.strip() for text in file)
    first = _one_value(line)
    if isinstance(first, dict) and more and not line.lstrip().startswith("["):
        return Document(path, "jsonl", encoding, first)
    return Document(path, "json", encoding, next(iter(_whole_json(path, encoding)), {}))


def _one_value(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def json_records(document: Document) -> Iterator[Record]:
    """Records of a JSON file: lines of JSONL, members of a list, values one after another."""
    if document.kind == "yaml":
        yield from _yaml_records(document.path, document.encoding)
    elif document.kind == "json":
        yield from _whole_json(document.path, document.encoding)
    else:
        yield from _json_lines(document.path, document.encoding)


def _json_lines(path: Path, encoding: str) -> Iterator[Record]:
    number = 0
    try:
        with path.open(encoding=encoding) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield from _dicts(path, _decode_all(path, line, number))
    except UnicodeError as error:
        raise refuse(path, f"line {number + 1}", f"it is not {encoding}: {error}") from error


def _whole_json(path: Path, encoding: str) -> list[Record]:
    try:
        text = path.read_text(encoding=encoding)
    except UnicodeError as error:
        raise refuse(path, "file", f"it is not {encoding}: {error}") from error
    found = list(chain.from_iterable(_dicts(path, [value]) for value in _decode_all(path, text, 1)))
    if not found:
        raise refuse(path, "file", "its JSON holds no records; expected at least one run")
    return found


def _decode_all(path: Path, text: str, line: int) -> list[object]:
    """Values standing one after another in `text`; bare NaN and Infinity are read as they mean."""
    decoder = json.JSONDecoder()
    values: list[object] = []
    place = 0
    text = text.strip().lstrip("\ufeff")
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            where = f"line {line + error.lineno - 1}, column {error.colno}"
            ends = error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg
            why = "the JSON ends early; the file was cut off" if ends else f"no JSON: {error.msg}"
            raise refuse(path, where, f"{why}; fetch it again or mend that place") from error
        except (ValueError, RecursionError) as error:
            raise refuse(path, f"line {line}", f"no JSON that can be read: {error}") from error
        values.append(value)
        while place < len(text) and text[place] in ", \t\r\n":
            place += 1
    return values


def _dicts(path: Path, values: list[object]) -> Iterator[Record]:
    for value in values:
        members = value if isinstance(value, list) else [value]
        for member in members:
            if not isinstance(member, dict):
                kind = type(member).__name__
                raise refuse(path, "file", f"its JSON holds a {kind}, but expected objects")
            yield member


def _yaml_records(path: Path, encoding: str) -> list[Record]:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        reason = "it is YAML, which needs PyYAML; pip install pyyaml, or save it as JSON"
        raise refuse(path, "file", reason) from error
    try:
        values = list(yaml.safe_load_all(path.read_text(encoding=encoding)))
    except (yaml.YAMLError, UnicodeError, RecursionError, ValueError) as error:
        raise refuse(path, "file", f"its YAML cannot be read: {str(error)[:200]}") from error
    return list(_dicts(path, [value for value in values if value is not None]))


# Tables


def read_csv(path: Path, encoding: str, rows: int | None = None) -> pd.DataFrame:
    """A CSV of any common delimiter as text, padding stripped; numbers are read later.

    rows: how many to read, all by default. Raises RunsError where it is no table.
    """
    try:
        with path.open(encoding=encoding, newline="") as file:
            header = next((line for line in file if line.strip()), "")
        delimiter = delimiter_of(header)
        table = pd.read_csv(
            path, sep=delimiter, encoding=encoding, skipinitialspace=True, dtype=str,
            keep_default_na=False, nrows=rows, skip_blank_lines=True,
        )  # fmt: skip
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise refuse(path, "file", f"it is no CSV: {str(error).strip()[:200]}") from error
    except (UnicodeError, csv.Error, ValueError, OverflowError) as error:
        raise refuse(path, "file", f"it is no CSV: {str(error)[:200]}") from error
    table.columns = [str(name).strip().lstrip("\ufeff") for name in table.columns]
    return table


def delimiter_of(header: str) -> str:
    counts = {mark: header.count(mark) for mark in ",;\t|"}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else ","


def _is_markdown(start: str) -> bool:
    return any(re.match(r"\s*\|.*\|\s*$", line) for line in start.splitlines()[:200])


def _markdown_header(start: str) -> list[str]:
    line = next(line for line in start.splitlines() if line.lstrip().startswith("|"))
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read_markdown(document: Document) -> pd.DataFrame:
    """Rows of the first table of a Markdown file, as text; text around it is passed over."""
    text = document.path.read_text(encoding=document.encoding, errors="replace")
    lines = [line for line in text.splitlines() if re.match(r"\s*\|.*\|\s*$", line)]
    names = list(document.first)
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[1:]]
    rows = [row for row in cells if row != names and not all(set(c) <= set(":- ") for c in row)]
    bad = next((number for number, row in enumerate(rows, 1) if len(row) != len(names)), None)
    if bad is not None:
        reason = f"it has {len(rows[bad - 1])} cells, but the header has {len(names)}"
        raise refuse(document.path, f"table row {bad}", reason)
    return pd.DataFrame(rows, columns=names, dtype=str)


def _parquet_columns(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    try:
        return [str(name) for name in pq.read_schema(path).names]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise refuse(path, "file", f"it is no readable Parquet file: {str(error)[:200]}") from error


def read_parquet(path: Path) -> pd.DataFrame:
    """A Parquet file as it stands. Raises RunsError where it cannot be read."""
    try:
        return pd.read_parquet(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise refuse(path, "file", f"it is no readable Parquet file: {str(error)[:200]}") from error
