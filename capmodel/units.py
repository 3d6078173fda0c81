"""Formatting of bytes, time and money; the only place that says GB or GiB.

Inside the package everything is bytes, seconds, tokens, FLOP, bytes/s, FLOP/s and $/hour.
"""

GB = 10**9
GIB = 2**30

_DECIMAL = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_TIME = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (1e-6, "us", 1e6), (0.0, "ns", 1e9))


def format_bytes(n_bytes: float, digits: int = 3) -> str:
    """Decimal units: `format_bytes(40e9)` is `'40 GB'`."""
    for scale, unit in _DECIMAL:
        if abs(n_bytes) >= scale:
            return f"{_significant(n_bytes / scale, digits)} {unit}"
    return f"{n_bytes:.0f} B"


def format_gib(n_bytes: float) -> str:
    """Binary gibibytes, as drivers and engines mean them: `'79.18 GiB'`."""
    return f"{n_bytes / GIB:.2f} GiB"


def format_seconds(seconds: float, digits: int = 3) -> str:
    """The unit that reads best: `'12.3 ms'`, `'840 us'`, `'2.5 s'`."""
    for scale, unit, factor in _TIME:
        if abs(seconds) >= scale:
            return f"{_significant(seconds * factor, digits)} {unit}"
    return f"{seconds} s"


def format_dollars(amount: float) -> str:
    """`'$12.30'`; below a cent three significant digits: `'$0.00123'`."""
    if amount != 0 and (abs(amount) < 0.01 or abs(amount) >= 1e15):
        return f"${amount:.3g}"
    return f"${amount:,.2f}"


def format_count(value: float, digits: int = 3) -> str:
    """`'70.6 B'` parameters, `'128 k'` tokens."""
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{_significant(value / scale, digits)} {unit}"
    return _significant(value, digits)


def format_percent(fraction: float, digits: int = 1) -> str:
    """`format_percent(0.0312)` is `'3.1 %'`."""
    return f"{100 * fraction:.{digits}f} %"


def _significant(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    if abs(value) >= 1e15:
        return text
    return f"{float(text):,.0f}" if "e" in text else text
