"""Values of a file of this package, each what it should be, or a ValueError that says which is not.

A file can be cut, edited or foreign. A text that looks like a number, a flag where a count is
meant, a NaN and a name that stands twice are mistakes, and none of them is read as something else.
"""

from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import numpy as np

from capmodel.arguments import COUNT_OR_NONE, Array, Span, instance, number, numbers
from capmodel.words import shown

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

FIGURE = Span("a finite number (up to 1e30)", -1e30, 1e30)
NONNEGATIVE = Span("a finite number of 0 or more (up to 1e30)", 0.0, 1e30)
LOG_FACTOR = Span("the log of a factor (-100 to 100)", -100.0, 100.0)


def text(name: str, value: Any) -> str:
    """`value`, a text, maybe empty. Raises ValueError."""
    return str(instance(name, value, str, "a text"))


def texts(name: str, value: Any) -> tuple[str, ...]:
    """`value`, a list of texts. Raises ValueError."""
    return tuple(text(name, one) for one in listed(name, value))


def listed(name: str, value: Any, n: int | None = None) -> list[Any]:
    """`value`, a list, of `n` where that is given. Raises ValueError."""
    found: list[Any] = instance(name, value, list, "a list")
    if n is not None and len(found) != n:
        raise ValueError(f"Got {len(found)} values of {name}, but expected {n}")
    return found


def mapped(name: str, value: Any) -> dict[str, Any]:
    """`value`, names with values. Raises ValueError."""
    return dict(instance(name, value, dict, "names with values"))


def count(name: str, value: Any) -> int:
    """`value`, 0 or a whole number above. Raises ValueError."""
    return int(number(name, value, COUNT_OR_NONE))


def figure(name: str, value: Any) -> float:
    """`value`, a number of 0 or more; NaN and infinity are kept. Raises ValueError."""
    if isinstance(value, float) and not value < 0:
        return value
    return float(number(name, value, NONNEGATIVE))


def figures(name: str, value: Any, n: int, span: Span = FIGURE) -> tuple[float, ...]:
    """`value`, a list of `n` numbers in `span`. Raises ValueError."""
    return tuple(numbers(name, listed(name, value, n), span).tolist()) if n else ()


def span_of(name: str, value: Any, span: Span) -> tuple[float, float]:
    """`value`, the least and the most of something, both in `span`. Raises ValueError."""
    low, high = figures(name, value, 2, span)
    if low > high:
        raise ValueError(f"Got {name} from {low:g} to {high:g}, but expected the least first")
    return low, high


def table(name: str, value: Any, width: int) -> Array:
    """`value`, rows of `width` finite numbers, (rows, width). Raises ValueError."""
    found = numbers(name, listed(name, value), FIGURE)
    if found.ndim != 2 or found.shape[1] != width:
        raise ValueError(f"Got {name} of shape {found.shape}, but expected rows of {width}")
    return np.asarray(found)


def unique(name: str, pairs: Iterable[tuple[Key, Value]]) -> dict[Key, Value]:
    """Values by key. Raises ValueError for a key that stands twice."""
    found: dict[Key, Value] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"Got {name} {shown(key)} twice, but expected it once")
        found[key] = value
    return found
