"""Cells of a table as text or as numbers, whatever a file or a frame keeps in them.

Parquet and pandas hold lists, bytes, dates and decimals as well. What is no text or number gets a
reason; nothing is guessed: a date is no count of nanoseconds, a bool is no 1.
"""

import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd

_PLAIN_TEXT = ("string", "empty")
_PLAIN_NUMBERS = ("integer", "floating", "mixed-integer-float", "empty", "string")
_TIMES = {"s": 1.0}  # units of columns that may hold a timedelta -> its seconds in that unit


def text_cells(series: pd.Series) -> tuple[pd.Series, pd.Series | None]:
    """(text, reasons): text stripped, "" where absent; reasons None where every cell is text.

    Numbers and dates are written out, bytes decoded as UTF-8; lists and the like are no text.
    """
    series = _unpacked(series)
    if isinstance(series.dtype, pd.CategoricalDtype):
        words, reasons = text_cells(series.cat.categories.to_series(index=None))
        return _spread(series, words, ""), _spread_reasons(series, reasons)
    if _kind(series) in _PLAIN_TEXT or series.dtype.kind in "iuf":
        text = series.astype(str).str.strip()
        absent = series.isna()
        return (text.mask(absent, "") if absent.any() else text), None
    pairs = [_text_of(value) for value in series]
    found = pd.Series([text for text, _ in pairs], index=series.index, dtype=object)
    return found, _reasons([why for _, why in pairs], series)


def number_cells(
    series: pd.Series, unit: str = ""
) -> tuple[pd.Series, pd.Series, pd.Series | None]:
    """(numbers, absent, reasons): floats, NaN where absent or no number, and why it is none.

    reasons: "" where a cell is a number or absent, None where every cell is.

    unit: of the column; a timedelta is read where it is `s`.
    """
    series = _unpacked(series)
    if isinstance(series.dtype, pd.CategoricalDtype):
        numbers, absent, why = number_cells(series.cat.categories.to_series(index=None), unit)
        return (
            _spread(series, numbers, np.nan).astype(float),
            _spread(series, absent, True).astype(bool),
            _spread_reasons(series, why),
        )
    absent = series.isna()
    kind = _kind(series)
    if series.dtype.kind in "iuf" and kind in _PLAIN_NUMBERS:
        numbers = pd.Series(series.to_numpy(float, na_value=np.nan), index=series.index)
        return numbers, absent, None
    if kind == "string":
        absent |= series.astype(str).str.strip() == ""
    if kind in _PLAIN_NUMBERS:
        try:
            numbers = pd.to_numeric(series.mask(absent), errors="coerce").astype(float)
        except (OverflowError, TypeError):
            pass
        else:
            bad = (numbers.isna() & ~absent).to_numpy()
            why = pd.Series(np.where(bad, "not a number", ""), index=series.index)
            return numbers, absent, why if bad.any() else None
    found = [_number_of(value, unit) for value in series]
    numbers = pd.Series([number for number, _ in found], index=series.index, dtype=float)
    blank = np.array([not why for _, why in found], dtype=bool)
    return numbers, numbers.isna() & blank, _reasons([why for _, why in found], series)


def hashable_cells(series: pd.Series) -> pd.Series:
    """A column outside the schema, with lists and the like written out as text."""
    series = _unpacked(series)
    if series.dtype != object or _kind(series) != "mixed":
        return series
    return series.map(lambda value: value if _is_single(value) else str(value))


def kind_of(value: object) -> str:
    """What a value is, in the words of a message: "list", "date", "text"."""
    if isinstance(value, bool | np.bool_):
        return "bool"
    if isinstance(value, np.ndarray | tuple):
        return "list"
    if isinstance(value, dict):
        return "record"
    if isinstance(value, datetime.timedelta | np.timedelta64):
        return "span of time"
    if isinstance(value, datetime.date | datetime.time | np.datetime64 | pd.Period):
        return "date"
    return {"str": "text"}.get(type(value).__name__, type(value).__name__)


def _unpacked(series: pd.Series) -> pd.Series:
    """Without dtypes that only hold values of others: Arrow's, sparse ones, categories of them."""
    if isinstance(series.dtype, pd.ArrowDtype | pd.SparseDtype):
        return pd.Series(list(series), index=series.index, dtype=object)
    return series


def _kind(series: pd.Series) -> str:
    return pd.api.types.infer_dtype(series, skipna=True)


def _spread(series: pd.Series, values: pd.Series, blank: Any) -> pd.Series:
    """Values of the categories over the rows."""
    table = np.array([*values.to_list(), blank], dtype=object)
    return pd.Series(table[series.cat.codes.to_numpy()], index=series.index, dtype=object)


def _spread_reasons(series: pd.Series, reasons: pd.Series | None) -> pd.Series | None:
    return None if reasons is None else _spread(series, reasons, "")


def _reasons(words: list[str], series: pd.Series) -> pd.Series | None:
    return pd.Series(words, index=series.index, dtype=object) if any(words) else None


def _is_single(value: object) -> bool:
    return bool(pd.api.types.is_scalar(value))


def _text_of(value: Any) -> tuple[str, str]:
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode("utf-8").strip(), ""
        except UnicodeDecodeError:
            return "", "expected a text, but its bytes are no UTF-8"
    if not _is_single(value) and not hasattr(value, "__fspath__"):
        return "", f"expected a text, but it is a {kind_of(value)}"
    if isinstance(value, int) and abs(value) >= 10**300:
        return "", "expected a text, but it is a number of hundreds of digits"
    return ("", "") if pd.isna(value) else (str(value).strip(), "")


def _number_of(value: Any, unit: str) -> tuple[float, str]:
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8", errors="replace")
    if not _is_single(value):
        return np.nan, f"expected a number, but it is a {kind_of(value)}"
    if pd.isna(value) or (isinstance(value, str) and not value.strip()):
        return np.nan, ""
    if isinstance(value, datetime.timedelta | np.timedelta64) and unit in _TIMES:
        return pd.Timedelta(value).total_seconds() * _TIMES[unit], ""
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, str | int | float | np.integer | np.floating | decimal.Decimal
    ):
        return np.nan, f"expected a number, but it is a {kind_of(value)}"
    try:
        number = np.nan if isinstance(value, str) and "_" in value else float(value)
    except OverflowError:
        return np.nan, "the number is too large"
    except ValueError:
        return np.nan, "not a number"
    if number != number:
        return np.nan, "not a number"
    return number, ""
