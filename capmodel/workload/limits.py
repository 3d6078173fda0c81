"""What the numbers of a workload may be, in one place: the planner asks for the same."""

from typing import Any

import numpy as np

from capmodel.arguments import Span, number
from capmodel.words import shown

TOKENS = Span("whole tokens, at least 1 token (up to 1e9)", 1.0, 1e9, whole=True)
MEAN_TOKENS = Span("a mean of at least 1 token (up to 1e9)", 1.0, 1e9)
COUNT = Span("a whole number of requests, at least 1 request (up to 1e8)", 1.0, 1e8, whole=True)
# More than any service has; beyond, fleets and draws grow past what can be reckoned with.
RATE = Span("requests/s, at least 1e-9 and at most 1,000,000,000", 1e-9, 1e9)
CLIENTS = Span("a whole number of clients, at least 1 client, at most 1,000,000", 1.0, 1e6,
               whole=True)  # fmt: skip
# Gaps of a higher cv are nearly all zero, with one or two that last for years.
GAPS = Span("the cv of the gaps between arrivals, 0 to 100", 0.0, 100.0)
SPREAD = Span("a coefficient of variation, 0 to 100", 0.0, 100.0)
PROMISE = Span("a positive number of seconds (1e-9 to 1e12), or None", 1e-9, 1e12)
# As many bits as NumPy's generators take up.
SEED = Span("a whole number from 0 up (to 2**128)", 0.0, 2.0**128, whole=True)


def generator(seed: Any, name: str = "seed") -> np.random.Generator:
    """The generator of `seed`, or `seed` itself; name: of the argument. Raises ValueError."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(number(name, seed, SEED))


def whole_array(name: str, values: Any, expected: str, least: float, most: float) -> Any:
    """`values` as one dimension of int64. Raises ValueError naming the first that is not whole
    or lies outside `least` to `most`."""
    array = _plain(name, values, expected)
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array)
        with np.errstate(invalid="ignore"):
            bad |= (array < least) | (array > most) | (array != np.floor(array))
    else:
        bad = (array < least) | (array > most)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"Got {name}[{row}]={array[row]:g}, but expected {expected}")
    return array.astype(np.int64)


def seconds_array(name: str, values: Any, expected: str) -> Any:
    """`values` as one dimension of float64, of any size. Raises ValueError."""
    return _plain(name, values, expected).astype(np.float64)


def _plain(name: str, values: Any, expected: str) -> Any:
    try:
        array = np.atleast_1d(np.asarray(values))
    except (TypeError, ValueError, OverflowError):  # lists of unequal lengths
        array = np.array(["?"])
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise ValueError(f"Got {name}={shown(values)}, but expected a list: {expected}")
    return array
