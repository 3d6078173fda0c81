"""Distributions of prompt and output lengths, in whole tokens of at least one."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

_QUANTILE_POINTS = 4096


class Lengths(Protocol):
    """Anything that draws lengths. `draw(n, rng)` gives `n` whole tokens, each at least one."""

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every request has `tokens` tokens. Raises ValueError below one."""

    tokens: int

    def __post_init__(self) -> None:
        _at_least_one(self.tokens, "length")

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`n` times the same length [tokens]."""
        return np.full(n, self.tokens, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Whole tokens from `low` to `high`, both included.

    Serving benchmarks with "fixed" lengths draw 80 to 100 % of the nominal one:
    `Uniform.around(1024, 0.8)`.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        _at_least_one(self.low, "low")
        if self.high < self.low:
            raise ValueError(f"Got high={self.high}, but expected at least low={self.low}")

    @classmethod
    def around(cls, tokens: int, low_fraction: float) -> "Uniform":
        """From `low_fraction` of `tokens` up to `tokens`. Raises ValueError outside (0, 1]."""
        if not 0 < low_fraction <= 1:
            raise ValueError(f"Got low_fraction={low_fraction}, but expected above 0, at most 1")
        return cls(max(1, round(tokens * low_fraction)), int(tokens))

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`n` lengths [tokens]."""
        return rng.integers(self.low, self.high, size=n, endpoint=True)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Log-normal lengths with the given mean [tokens] and coefficient of variation.

    longest: lengths are cut to it (a context limit), None = no cut.
    """

    mean: float
    cv: float
    longest: int | None = None

    def __post_init__(self) -> None:
        _at_least_one(self.mean, "mean")
        if not 0 <= self.cv < np.inf:
            raise ValueError(f"Got cv={self.cv}, but expected zero or a positive number")
        if self.longest is not None:
            _at_least_one(self.longest, "longest")

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`n` lengths [tokens], rounded, at least one."""
        variance = np.log1p(self.cv**2)
        values = np.exp(np.log(self.mean) - variance / 2 + np.sqrt(variance) * rng.normal(size=n))
        top = np.inf if self.longest is None else self.longest
        return np.clip(np.rint(values), 1, top).astype(np.int64)

    def quantile(self, q: float) -> float:
        """Length [tokens] that a share `q` of requests does not exceed."""
        variance = np.log1p(self.cv**2)
        value = np.exp(np.log(self.mean) - variance / 2 + np.sqrt(variance) * ndtri(q))
        return float(value if self.longest is None else min(value, self.longest))


@dataclass(frozen=True, slots=True)
class Empirical:
    """Lengths seen in `values` [tokens], drawn with replacement.

    Raises ValueError for no values, values below one, or NaN.
    """

    values: tuple[int, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("Got no lengths, but expected at least one to draw from")
        lengths_array(self.values, "lengths")

    @classmethod
    def of(cls, values: ArrayLike) -> "Empirical":
        """From any sequence of lengths [tokens]; long ones are kept as 4,096 quantiles."""
        lengths = lengths_array(values, "lengths")
        if len(lengths) > _QUANTILE_POINTS:
            levels = (np.arange(_QUANTILE_POINTS) + 0.5) / _QUANTILE_POINTS
            lengths = np.rint(np.quantile(lengths, levels)).astype(np.int64)
        return cls(tuple(int(value) for value in lengths))

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`n` lengths [tokens]."""
        return rng.choice(np.asarray(self.values, dtype=np.int64), size=n)


def lengths_array(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """Lengths as whole numbers, one dimension. Raises ValueError naming the first bad one."""
    array = np.atleast_1d(np.asarray(values, dtype=float))
    bad = ~np.isfinite(array) | (array < 1) | (array != np.floor(array))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"Got {name}[{row}]={array[row]:g}, but expected whole tokens, at least 1")
    return array.astype(np.int64)


def _at_least_one(value: float, name: str) -> None:
    if not 1 <= value < np.inf:
        raise ValueError(f"Got {name}={value}, but expected at least 1 token")
