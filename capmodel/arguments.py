"""Arguments of public functions: numbers in a span, texts and flags, or one line that says why not.

An argument is what its name says or a ValueError: a text that looks like a number, a flag where a
number is meant and an infinite figure are mistakes of the caller, and none of them is guessed at.
NumPy's scalars are numbers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from capmodel.words import shown

Array = npt.NDArray[Any]

MOST = 1e12  # more tokens, sequences or GPUs than anybody has


@dataclass(frozen=True, slots=True)
class Span:
    """What a number may be. said: in words, as it stands behind "expected"."""

    said: str
    low: float
    high: float
    whole: bool = False
    open_low: bool = False
    open_high: bool = False

    def holds(self, value: Any) -> Any:
        """Whether a number, or each of an array of them, lies in the span; NaN does not."""
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above & below


POSITIVE = Span("a positive, finite number (up to 1e12)", 0.0, MOST, open_low=True)
LENGTH = Span("a number from 1 up (to 1e12)", 1.0, MOST)
COUNT = Span("a whole number of at least 1 (up to 1e12)", 1.0, MOST, whole=True)
COUNT_OR_NONE = Span("0 or a positive whole number (up to 1e12)", 0.0, MOST, whole=True)
GPUS = Span("a whole number of GPUs, at least 1 GPU", 1.0, 1e18, whole=True)
SHARE = Span("a share between 0 and 1", 0.0, 1.0, open_low=True, open_high=True)
PART = Span("a fraction between 0 and 1", 0.0, 1.0)
FRACTION = Span("one in (0, 1]", 0.0, 1.0, open_low=True)
BYTES = Span("0 or more bytes (up to 1e18)", 0.0, 1e18)


def number(name: str, value: Any, span: Span) -> Any:
    """`value` as a Python number, an int where the span is of whole ones.

    Raises ValueError naming the argument, its value and what was expected.
    """
    kind = type(value)
    if kind is int or (kind is float and not span.whole):
        if span.low < value < span.high:  # nearly every call ends here
            return value
    elif kind is not float:
        plain = isinstance(value, np.generic | np.ndarray) and not np.ndim(value)
        if not plain or value.dtype.kind not in "iuf":
            raise _refused(name, value, span)
        value = value.item()
    if not span.holds(value):
        raise _refused(name, value, span)
    if not span.whole:
        return value
    if value != int(value):
        raise _refused(name, value, span)
    return int(value)


def optional(name: str, value: Any, span: Span) -> Any:
    """`number`, but None is None."""
    return None if value is None else number(name, value, span)


def numbers(name: str, value: Any, span: Span) -> Array:
    """`value`, a number or nested lists of them, as an array of floats of its shape.

    Raises ValueError naming the argument, the first number that is wrong and what was expected.
    """
    try:
        given = np.asarray(value)
    except (TypeError, ValueError, OverflowError):  # lists of unequal lengths
        raise _refused(name, value, span) from None
    if given.dtype.kind not in "iuf":
        raise _refused(name, value, span)
    found = given.astype(float)
    bad = ~span.holds(found)
    if span.whole:
        bad |= found != np.floor(found)
    if bad.any():
        raise _refused(name, found[bad].flat[0] if found.ndim else value, span)
    return found


def one_or_many(name: str, value: Any, span: Span) -> Any:
    """`number` of one, `numbers` of a list or an array. Raises ValueError as they do."""
    if isinstance(value, list | tuple) or np.ndim(value) > 0:
        return numbers(name, value, span)
    return number(name, value, span)


def seeded(seed: object) -> int:
    """`seed` as an int of 0 or more, of any length. Raises ValueError for anything else."""
    if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0:
        return seed
    return int(number("seed", seed, Span("a whole number of at least 0", 0, 2**63, whole=True)))


def text(name: str, value: Any, said: str) -> str:
    """`value`, a text that is not blank. said: what was expected else. Raises ValueError."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"Got {name}={shown(value)}, but expected {said}")
    return value


def flag(name: str, value: Any) -> bool:
    """`value`, True or False (NumPy's too). Raises ValueError."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"Got {name}={shown(value)}, but expected True or False")
    return bool(value)


def _refused(name: str, value: Any, span: Span) -> ValueError:
    return ValueError(f"Got {name}={shown(value)}, but expected {span.said}")


def instance(name: str, value: Any, kind: type, said: str | None = None) -> Any:
    """`value`, which must be a `kind`. said: what was expected, in words. Raises ValueError."""
    if not isinstance(value, kind):
        said = said or f"{kind.__name__} of capmodel"
        raise ValueError(f"Got {name}={shown(value)}, but expected {said}")
    return value


def with_method(name: str, value: Any, method: str, said: str) -> Any:
    """`value`, an object (no class) that has `method`. Raises ValueError."""
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        raise ValueError(f"Got {name}={shown(value)}, but expected {said}")
    return value


def function(name: str, value: Any) -> Any:
    """`value`, which can be called. Raises ValueError."""
    if not callable(value):
        raise ValueError(f"Got {name}={shown(value)}, but expected a function")
    return value


def put(owner: object, **values: Any) -> None:
    """Set fields of a frozen dataclass from its own `__post_init__`: numbers as Python has them."""
    for name, value in values.items():
        object.__setattr__(owner, name, value)
