"""Figures as a reader wants them: digits that mean something, thousands apart, no exponents."""

import math

from capmodel.units import format_bytes

NONE = "–"
# Beyond these, digits would fill the line.
_HUGE, _TINY = 1e15, 1e-9


def number(value: float | None, digits: int = 3) -> str:
    """`digits` significant digits, integers kept whole: `'0.0312'`, `'12.3'`, `'70,272'`.

    None, NaN and infinity are a dash; from 10^15 on, and below 10^-9, the exponent stays.
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NONE
    if abs(value) >= _HUGE or 0 < abs(value) < _TINY:
        return f"{value:.{digits}g}"
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    return (
        f"{rounded:,.{max(0, places)}f}" if abs(rounded) < 10 ** (digits - 1) else f"{value:,.0f}"
    )


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds without the unit: `milliseconds(0.01234)` is `'12.3'`."""
    return number(None if seconds is None else 1e3 * seconds)


def percent(fraction: float | None) -> str:
    """`percent(0.0312)` is `'3.1 %'`; a dash for None."""
    if fraction is None or not math.isfinite(fraction):
        return NONE
    return f"{100 * fraction:,.1f} %" if abs(fraction) < _HUGE else f"{100 * fraction:.3g} %"


def score(value: float | None) -> str:
    """A share of variance explained (R²), to three places: `score(0.00587)` is `'0.006'`."""
    if value is None or not math.isfinite(value) or abs(value) >= 10:
        return number(value)
    return f"{value:.3f}"


def whole(value: float | None) -> str:
    """`whole(1234.0)` is `'1,234'`; a dash for None."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:,.0f}" if abs(value) < _HUGE else f"{value:.3g}"


def bytes_text(n_bytes: float | None) -> str:
    """Decimal bytes with their unit: `bytes_text(73.6e9)` is `'73.6 GB'`; a dash for None."""
    return NONE if n_bytes is None else format_bytes(n_bytes)
