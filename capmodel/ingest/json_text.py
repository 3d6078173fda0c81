"""Records of JSON, JSON Lines and YAML files."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

from capmodel.ingest.documents import WHOLE_BYTES, Document, Record, refuse, whole_text

_YAML_BYTES = 16 * 2**20  # PyYAML reads about a megabyte a second


class _Doubled(ValueError):
    """A name that stands twice in one JSON object."""


def json_document(path: Path, encoding: str) -> Document:
    """A file whose text begins as JSON. Raises RunsError where it is none."""
    with path.open(encoding=encoding, errors="replace") as file:
        line = next((text for text in _lines(path, file) if text.strip()), "")
        more = any(text.strip() for text in _lines(path, file))
    first = _one_value(line)
    if isinstance(first, dict) and more and not line.lstrip().startswith("["):
        return Document(path, "jsonl", encoding, first)
    return Document(path, "json", encoding, next(iter(_whole_json(path, encoding)), {}))


def yaml_document(path: Path, encoding: str) -> Document:
    """A file whose text begins as YAML. Raises RunsError where it is none."""
    return Document(path, "yaml", encoding, next(iter(_yaml_records(path, encoding)), {}))


def json_records(document: Document) -> Iterator[Record]:
    """Records of a JSON file: lines of JSONL, members of a list, values one after another."""
    if document.kind == "yaml":
        yield from _yaml_records(document.path, document.encoding)
    elif document.kind == "json":
        yield from _whole_json(document.path, document.encoding)
    else:
        yield from _json_lines(document.path, document.encoding)


def _lines(path: Path, file: IO[str]) -> Iterator[str]:
    """Lines, none of them longer than fits in memory."""
    while line := file.readline(WHOLE_BYTES):
        if len(line) >= WHOLE_BYTES and not line.endswith("\n"):
            reason = f"a line is longer than {WHOLE_BYTES / 2**20:,.0f} MiB; leave out the details"
            raise refuse(path, "file", reason)
        yield line


def _one_value(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _json_lines(path: Path, encoding: str) -> Iterator[Record]:
    number = 0
    try:
        with path.open(encoding=encoding) as file:
            for number, line in enumerate(_lines(path, file), start=1):
                if line.strip():
                    yield from _dicts(path, _decode_all(path, line, number), f"line {number}")
    except UnicodeError as error:
        raise refuse(path, f"line {number + 1}", f"it is not {encoding}: {error}") from error


def _whole_json(path: Path, encoding: str) -> list[Record]:
    text = whole_text(path, encoding)
    found = list(chain.from_iterable(_dicts(path, [value]) for value in _decode_all(path, text, 1)))
    if not found:
        raise refuse(path, "file", "its JSON holds no records; expected at least one run")
    return found


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = Counter(name for name, _ in pairs)
        again = [name for name, times in names.items() if times > 1]
        raise _Doubled(f"{', '.join(map(repr, again))} stands twice in one object; keep one")
    return found


def _decode_all(path: Path, text: str, line: int) -> list[object]:
    """Values standing one after another in `text`; bare NaN and Infinity are read as they mean."""
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    values: list[object] = []
    place = 0
    text = text.strip().lstrip("\ufeff")
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            where = f"line {line + error.lineno - 1}, column {error.colno}"
            last = error.pos >= len(text) - 1 and text[error.pos :] not in ("]", "}")
            ends = last or "Unterminated" in error.msg
            why = "the JSON ends early; the file was cut off" if ends else f"no JSON: {error.msg}"
            raise refuse(path, where, f"{why}; fetch it again or mend that place") from error
        except _Doubled as error:
            raise refuse(path, f"line {line}", str(error)) from error
        except (ValueError, RecursionError) as error:
            raise refuse(
                path, f"line {line}", f"no JSON that can be read: {_why(error)}"
            ) from error
        values.append(value)
        while place < len(text) and text[place] in ", \t\r\n":
            place += 1
    return values


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "its brackets are nested too deep; leave out what is so deep"
    if "integer string conversion" in str(error):
        return "it holds a number of more than 4,300 digits; mend that place"
    return str(error)[:200]


def _dicts(path: Path, values: list[object], place: str = "file") -> Iterator[Record]:
    for value in values:
        members = value if isinstance(value, list) else [value]
        for member in members:
            if not isinstance(member, dict):
                kind = type(member).__name__
                raise refuse(path, place, f"its JSON holds a {kind}, but expected objects")
            yield member


def _yaml_records(path: Path, encoding: str) -> list[Record]:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        reason = "it is YAML, which needs PyYAML; pip install pyyaml, or save it as JSON"
        raise refuse(path, "file", reason) from error
    text = whole_text(path, encoding, _YAML_BYTES)
    try:
        values = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise refuse(path, "file", f"its YAML cannot be read: {_why(error)}") from error
    return list(_dicts(path, [value for value in values if value is not None]))
