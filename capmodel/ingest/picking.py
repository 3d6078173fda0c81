"""From a tool's fields to columns: `VARIABLE_MAP`, units, numbers written as text.

A map is `{"field": "column [unit]"}`; fields of nested objects are joined by dots, times become
seconds, and `[text]` keeps a word. Where several fields lead to one column, the first present
counts. `[unit]` takes the unit from the field `unit` or `units` beside the value.
"""

import decimal
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.cells import kind_of
from capmodel.ingest.notation import COUNTS, in_points
from capmodel.runs import RUNS, RunsError, problem_table

# Factors to seconds, by every spelling that tools use.
SECONDS = {
    "s": 1.0, "sec": 1.0, "seconds": 1.0, "s/token": 1.0,
    "ms": 1e-3, "milliseconds": 1e-3, "ms/token": 1e-3,
    "us": 1e-6, "µs": 1e-6, "microseconds": 1e-6,
    "ns": 1e-9, "nanoseconds": 1e-9,
}  # fmt: skip

_REAL = int | float | np.integer | np.floating | decimal.Decimal
Array = npt.NDArray[np.float64]

_TEXT = {column.name for column in RUNS if column.kind == "text"}
_KNOWN = {column.name for column in RUNS}
_SPEC = re.compile(r"^(\w+)(?: \[([^\]]+)\])?$")
_NUMBER = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([a-zA-Zµ]+(?:/token)?)?$")
_GROUPED = re.compile(r"^[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?$")
_TIMES = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period")
_NOTHING = ("", "none", "null", "n/a", "na", "nan", "-")


Row = tuple[list[object], list[str | None]]  # values and their units, a column each


def pick_records(
    records: Iterable[Mapping[str, Any]], variable_map: Mapping[str, str], path: Path
) -> pd.DataFrame:
    """One row per record with the columns of `variable_map`; times in seconds.

    Columns of words are always there, empty where the tool wrote none; others only where it did.

    Raises RunsError for values that are no number, by row, field and value.
    """
    return table_of(list(rows_of(records, variable_map)), variable_map, path)


def rows_of(records: Iterable[Mapping[str, Any]], variable_map: Mapping[str, str]) -> Iterator[Row]:
    """What `variable_map` names of each record, as it is written; the rest is let go."""
    wanted = [
        [(field, field.split("."), unit) for field, unit in fields]
        for fields in _fields_of(variable_map).values()
    ]
    for record in records:
        values: list[object] = []
        units: list[str | None] = []
        for fields in wanted:
            value: object = None
            unit: str | None = None
            for field, parts, unit in fields:
                value, parent = _find(record, field, parts)
                if value is not None:
                    if unit == "unit":
                        beside = parent.get("unit", parent.get("units"))
                        unit = beside if isinstance(beside, str) else ""
                    break
            values.append(value)
            units.append(unit)
        yield values, units


def table_of(rows: Sequence[Row], variable_map: Mapping[str, str], path: Path) -> pd.DataFrame:
    """The rows of one file, or of several of one tool, as numbers and words. Raises RunsError."""
    fields = _fields_of(variable_map)
    values = {
        column: pd.Series([row[0][place] for row in rows], dtype=object)
        for place, column in enumerate(fields)
    }
    units = {
        column: [row[1][place] for row in rows]
        if any(unit == "unit" for _, unit in named)
        else [named[0][1]]
        for place, (column, named) in enumerate(fields.items())
    }
    first = {column: named[0][0] for column, named in fields.items()}
    words = {column for column, named in fields.items() if _is_text(column, named)}
    return _converted(values, units, first, words, len(rows), path)


def _fields_of(variable_map: Mapping[str, str]) -> dict[str, list[tuple[str, str | None]]]:
    """Column -> the fields that lead to it, with their units."""
    found: dict[str, list[tuple[str, str | None]]] = {}
    for field, spec in variable_map.items():
        column, unit = _spec(spec)
        found.setdefault(column, []).append((field, unit))
    return found


def _is_text(column: str, fields: Sequence[tuple[str, str | None]]) -> bool:
    return column in _TEXT or any(unit == "text" for _, unit in fields)


def pick_table(
    table: pd.DataFrame, variable_map: Mapping[str, str], path: Path, delimiter: str = ","
) -> pd.DataFrame:
    """`pick_records` for a table whose columns are the fields.

    delimiter: between its cells, where it is a CSV.
    """
    table = _with_points(table, variable_map, path, delimiter)
    values: dict[str, pd.Series] = {}
    units: dict[str, list[str | None]] = {}
    names: dict[str, str] = {}
    fields = _fields_of(variable_map)
    words = {column for column, named in fields.items() if _is_text(column, named)}
    for column, named in fields.items():
        here = [(field, unit) for field, unit in named if field in table]
        if not here:
            if column in words:
                values[column] = pd.Series("", index=range(len(table)), dtype=object)
                units[column], names[column] = [None], named[0][0]
            continue
        names[column], unit = here[0]
        units[column] = [unit]
        values[column] = table[names[column]].astype(object).reset_index(drop=True)
        for field, _ in here[1:]:
            other = table[field].astype(object).reset_index(drop=True)
            values[column] = values[column].where(~_absent_mask(values[column]), other)
    return _converted(values, units, names, words, len(table), path)


def _with_points(
    table: pd.DataFrame, variable_map: Mapping[str, str], path: Path, delimiter: str
) -> pd.DataFrame:
    """Columns of numbers in one notation, where they are text."""
    specs = {field: _spec(spec) for field, spec in variable_map.items() if field in table}
    numbers = {
        field: table[field]
        for field, (column, unit) in specs.items()
        if unit != "text" and column not in _TEXT and pd.api.types.is_string_dtype(table[field])
    }
    if delimiter == "," and not any(cells.str.contains(",").any() for cells in numbers.values()):
        return table
    counts = {
        field
        for field, (column, _) in specs.items()
        if column in COUNTS or (column not in _KNOWN and not column.endswith("_s"))
    }
    plain, problems = in_points(numbers, frozenset(counts), delimiter)
    if problems:
        raise RunsError(problem_table(problems), str(path))
    return table.assign(**plain)


def _spec(spec: str) -> tuple[str, str | None]:
    match = _SPEC.match(spec)
    if not match:
        raise ValueError(f"Got map entry {spec!r}, but expected 'column' or 'column [unit]'")
    return match.group(1), match.group(2)


def _find(record: Mapping[str, Any], field: str, parts: list[str]) -> tuple[Any, Mapping[str, Any]]:
    if field in record:
        return record[field], record
    value: Any = record
    parent: Mapping[str, Any] = record
    for part in parts:
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, Mapping) and part in value:
            parent, value = value, value[part]
        else:
            return None, {}
    return value, parent


def _absent(value: object) -> bool:
    if value is None or (isinstance(value, float) and value != value):
        return True
    return isinstance(value, str) and value.strip().lower() in _NOTHING


def _absent_mask(found: pd.Series) -> pd.Series:
    mask = np.fromiter((_absent(value) for value in found), dtype=bool, count=len(found))
    return pd.Series(mask, index=found.index)


def _converted(
    values: Mapping[str, pd.Series],
    units: Mapping[str, list[str | None]],
    fields: Mapping[str, str],
    words: set[str],
    count: int,
    path: Path,
) -> pd.DataFrame:
    columns: dict[str, object] = {}
    problems: list[tuple[int | None, str, object, str]] = []
    for column, found in values.items():
        absent = _absent_mask(found)
        if column in words:
            columns[column] = found.where(~absent, "").map(_word).astype(object)
            continue
        if absent.all():
            continue
        numbers, bad = _numbers(found, absent)
        if column.endswith("_s"):
            scale, odd = _scales(numbers, units[column])
            numbers, bad = numbers * scale, bad + odd
        columns[column] = numbers
        problems += [(row + 1, fields[column], found[row], why) for row, why in bad]
    if problems:
        problems.sort(key=lambda problem: problem[0] or 0)
        raise RunsError(problem_table(problems), str(path))
    return pd.DataFrame(columns, index=pd.RangeIndex(count))


def _word(value: object) -> str:
    if isinstance(value, list):
        return _word(value[0]) if value else ""
    return "" if value is None or isinstance(value, Mapping) else str(value).strip()


def _numbers(found: pd.Series, absent: pd.Series) -> tuple[Array, list[tuple[int, str]]]:
    """Values as floats, and the rows that are none, with the reason. Times keep their unit."""
    present = found.where(~absent)
    try:
        if pd.api.types.infer_dtype(present, skipna=True) in _TIMES:
            raise TypeError
        numbers: Array = pd.to_numeric(present, errors="coerce").to_numpy(float).copy()
    except (OverflowError, TypeError):  # a number beyond any float, or an object among them
        numbers = np.array([_plain(value) for value in present])
    odd = np.isnan(numbers) & ~absent.to_numpy()
    odd |= found.map(type).isin([bool]).to_numpy()
    bad: list[tuple[int, str]] = []
    for row in np.flatnonzero(odd):  # the few that are not plain numbers
        numbers[row], why = _number_of(found[row])
        if why:
            bad.append((int(row), why))
    return numbers, bad


def _plain(value: object) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, _REAL):
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.nan


def _number_of(value: object) -> tuple[float, str]:
    """The number that a text means, or the reason why it is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, str | _REAL):
        return np.nan, f"expected a number, but it is a {kind_of(value)}"
    if not isinstance(value, str):
        number = _plain(value)
        return number, "" if number == number else "the number is too large"
    text = value.strip().strip("'\"").strip()
    match = _NUMBER.match(text.replace(",", "") if _GROUPED.match(text) else text)
    if not match:
        return np.nan, _why(text)
    if match.group(2):
        return np.nan, f"no plain number: {match.group(2)!r} is glued to it; strip the unit"
    return float(match.group(1)), ""


def _scales(numbers: Array, units: list[str | None]) -> tuple[Array, list[tuple[int, str]]]:
    """Factor to seconds of each value, and the rows whose unit is unknown."""
    names = pd.Series(units if len(units) == len(numbers) else units * len(numbers), dtype=object)
    lowered = names.where(names.notna(), "s").astype(str).str.strip().str.lower()
    scale = lowered.map(SECONDS).to_numpy(float)
    odd = np.flatnonzero(np.isnan(scale) & ~np.isnan(numbers))
    factors: Array = np.asarray(scale, dtype=np.float64)
    return factors, [(int(row), _no_unit(str(names[row]))) for row in odd]


def _no_unit(name: str) -> str:
    known = ", ".join(SECONDS)
    if not name.strip():
        return f"no unit stands beside it; write one of {known}"
    return f"its unit {name!r} is none of {known}"


def _why(text: str) -> str:
    if text.count(".") > 1:
        return "no number: two numbers run together; mend the file at that place"
    if "," in text:
        return "no number; write it without thousands separators and with a decimal point"
    return "no number"
