"""How a table writes its numbers: 4,096.5 or 4.096,5 or 4 096,5.

`4.096` is four thousand in one country and four in another. What a column's other cells show
decides, then what the file's other columns show; a file of commas has points unless it shows
otherwise. A cell that stays open is a problem that names row, column, value and remedy: a time
may follow the file, but a count (tokens, sequences) is not read as a fraction on the word of
other columns.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from capmodel.runs import RUNS

_POINT, _COMMA, _MIXED, _NONE = "point", "comma", "mixed", ""
_COUNTED = ("tokens", "sequences", "requests", "prompts")
COUNTS = frozenset(c.name for c in RUNS if c.kind == "integer" or c.unit in _COUNTED)

_SPACES = " \u00a0\u202f\u2009\u2019'"  # a space, the hard, narrow and thin one, apostrophes
_EXPONENT = r"(?:[eE][+-]?\d+)?"
_OPEN_POINT = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
_OPEN_COMMA = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_SHOWS_COMMA = re.compile(
    rf"[+-]?(?:\d{{1,3}}(?:[.{_SPACES}]\d{{3}})+,\d+|[1-9]\d{{0,2}}(?:\.\d{{3}}){{2,}}"
    rf"|\d*,\d+{_EXPONENT})"
)
_SHOWS_POINT = re.compile(
    rf"[+-]?(?:\d{{1,3}}(?:[,{_SPACES}]\d{{3}})+\.\d+|[1-9]\d{{0,2}}(?:,\d{{3}}){{2,}}"
    rf"|\d*\.\d+{_EXPONENT}|\d+\.{_EXPONENT})"
)
_SPACED = re.compile(rf"[+-]?\d{{1,3}}(?:[{_SPACES}]\d{{3}})+")

Problems = list[tuple[int | None, str, object, str]]


@dataclass(frozen=True, slots=True)
class _Written:
    """A column's distinct cells by what they show. open_: those that could be either."""

    cells: dict[str, str]
    style: str
    open_: frozenset[str]


def in_points(
    columns: Mapping[str, pd.Series], counts: frozenset[str], delimiter: str
) -> tuple[dict[str, pd.Series], Problems]:
    """Number columns as text with decimal points and no thousands marks, and the open cells.

    columns: name -> cells, text where they are text. counts: names that hold counts. Cells that
    are no number in any notation stay as they are. Rows of problems count from 1.
    """
    written = {name: _written(cells) for name, cells in columns.items()}
    shown = {found.style for found in written.values()} - {_NONE}
    file = shown.pop() if len(shown) == 1 else (_MIXED if shown else _NONE)
    result: dict[str, pd.Series] = {}
    problems: Problems = []
    for name, cells in columns.items():
        table, why = _translated(written[name], file, name in counts, delimiter)
        if why:
            text = cells.map(_text)
            problems += [(int(row) + 1, name, value, why[bare]) for row, (value, bare)
                         in enumerate(zip(cells, text, strict=True)) if bare in why]  # fmt: skip
        plain = {cell: table.get(_text(cell), cell) for cell in cells.unique()} if table else {}
        result[name] = cells.map(plain) if table else cells
    return result, problems


def _text(cell: object) -> str:
    return cell.strip().strip("'\"").strip() if isinstance(cell, str) else ""


def _written(cells: pd.Series) -> _Written:
    found: dict[str, str] = {}
    for cell in cells.unique():
        text = _text(cell)
        if _OPEN_POINT.fullmatch(text) or _OPEN_COMMA.fullmatch(text):
            found[text] = _NONE
        elif _SHOWS_COMMA.fullmatch(text):
            found[text] = _COMMA
        elif _SHOWS_POINT.fullmatch(text):
            found[text] = _POINT
        elif _SPACED.fullmatch(text):
            found[text] = _MIXED
    styles = set(found.values()) & {_POINT, _COMMA}
    style = styles.pop() if len(styles) == 1 else (_MIXED if styles else _NONE)
    return _Written(found, style, frozenset(t for t, shows in found.items() if shows == _NONE))


def _translated(
    written: _Written, file: str, counts: bool, delimiter: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Cell -> its number with a point, and cell -> why it cannot be told."""
    if written.style == _MIXED:
        odd = {t: _MIXED_REASON for t, shows in written.cells.items() if shows == _COMMA}
        return {}, odd
    table: dict[str, str] = {}
    why: dict[str, str] = {}
    for text, shows in written.cells.items():
        style = shows
        if shows == _NONE:
            style = written.style or _by_file(text, file, counts, delimiter)
        if style == _NONE:
            why[text] = _open_reason(text)
        elif style == _COMMA:
            table[text] = re.sub(rf"[.{_SPACES}]", "", text).replace(",", ".")
        else:
            table[text] = re.sub(rf"[,{_SPACES}]", "", text)
    return table, why


def _by_file(text: str, file: str, counts: bool, delimiter: str) -> str:
    """The notation of a cell that its own column leaves open, or none."""
    point = "." in text
    if delimiter == "," and file in (_POINT, _NONE):
        return _POINT if point or counts or file == _POINT else _NONE
    if file in (_MIXED, _NONE):
        return _NONE
    thousands = (file == _COMMA) == point
    return file if thousands or not counts else _NONE


_MIXED_REASON = (
    "its column writes decimals with a comma here and with a point elsewhere; write all with points"
)


def _open_reason(text: str) -> str:
    bare = re.sub(r"[.,]", "", text)
    point = text.replace(",", ".")
    return (
        f"it could be {bare} or {point}0, and nothing in its column tells; "
        f"write {bare}, or {point}0 with a point"
    )
