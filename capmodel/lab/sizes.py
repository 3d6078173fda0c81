"""Sizes and names the lab is given: what they say, or one line that says why not.

The lab is small on purpose. What would fill a machine's memory is refused before it is allocated.
"""

from collections.abc import Iterable

from capmodel.arguments import Span, number
from capmodel.words import shown

MOST_LAYERS = 1_000
MOST_WEIGHTS = 50_000_000  # 400 MB in float64
MOST_TOKENS = 2**20  # of a window, a budget, a group or a pool
MOST_NEW = 100_000  # tokens generated in one go
MOST_ROWS = 4_096  # sequences made at once


def whole(name: str, value: object, least: int, most: int) -> int:
    """`value` as an int from `least` to `most`. Raises ValueError for anything else."""
    said = f"a whole number from {least:,} to {most:,}"
    return int(number(name, value, Span(said, least, most, whole=True)))


def named(what: str, value: object, known: Iterable[str]) -> str:
    """`value`, which is one of `known`. Raises ValueError that lists them."""
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"Got {what} {shown(value)}, but expected one of {', '.join(names)}")
    return value
