"""Distributions of prompt and output lengths, in whole tokens of at least one."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from capmodel.arguments import Span, number, optional, put
from capmodel.workload.limits import (
    COUNT,
    MEAN_TOKENS,
    SPREAD,
    TOKENS,
    generator,
    whole_array,
)

_QUANTILE_POINTS = 4096
_PART = Span("above 0, at most 1", 0.0, 1.0, open_low=True)
_RANK = Span("a share between 0 and 1", 0.0, 1.0)


class Lengths(Protocol):
    """Anything that draws lengths. `draw(n, rng)` gives `n` whole tokens, each at least one."""

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every request has `tokens` tokens. Raises ValueError below one."""

    tokens: int

    def __post_init__(self) -> None:
        put(self, tokens=number("tokens", self.tokens, TOKENS))

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`n` times the same length [tokens]. Raises ValueError."""
        n, _ = _drawn(n, rng)
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
        put(self, low=number("low", self.low, TOKENS), high=number("high", self.high, TOKENS))
        if self.high < self.low:
            raise ValueError(f"Got high={self.high}, but expected at least low={self.low}")

    @classmethod
    def around(cls, tokens: int, low_fraction: float) -> "Uniform":
        """From `low_fraction` of `tokens` up to `tokens`. Raises ValueError outside (0, 1]."""
        tokens = number("tokens", tokens, TOKENS)
        low_fraction = number("low_fraction", low_fraction, _PART)
        return cls(max(1, round(tokens * low_fraction)), tokens)

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`n` lengths [tokens]. Raises ValueError."""
        n, rng = _drawn(n, rng)
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
        put(
            self,
            mean=number("mean", self.mean, MEAN_TOKENS),
            cv=number("cv", self.cv, SPREAD),
            longest=optional("longest", self.longest, TOKENS),
        )

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`n` lengths [tokens], rounded, at least one. Raises ValueError."""
        n, rng = _drawn(n, rng)
        variance = np.log1p(self.cv**2)
        values = np.exp(np.log(self.mean) - variance / 2 + np.sqrt(variance) * rng.normal(size=n))
        # A tail beyond what any request has would pass every limit downstream.
        top = TOKENS.high if self.longest is None else self.longest
        return np.clip(np.rint(values), 1, top).astype(np.int64)

    def quantile(self, q: float) -> float:
        """Length [tokens] that a share `q` of requests does not exceed. Raises ValueError."""
        q = number("q", q, _RANK)
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
        put(self, values=tuple(lengths_array(self.values, "lengths").tolist()))
        if not self.values:
            raise ValueError("Got no lengths, but expected at least one to draw from")

    @classmethod
    def of(cls, values: ArrayLike) -> "Empirical":
        """From any sequence of lengths [tokens]; long ones are kept as 4,096 quantiles."""
        lengths = lengths_array(values, "lengths")
        if len(lengths) > _QUANTILE_POINTS:
            levels = (np.arange(_QUANTILE_POINTS) + 0.5) / _QUANTILE_POINTS
            lengths = np.rint(np.quantile(lengths, levels)).astype(np.int64)
        return cls(tuple(int(value) for value in lengths))

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`n` lengths [tokens]. Raises ValueError."""
        n, rng = _drawn(n, rng)
        return rng.choice(np.asarray(self.values, dtype=np.int64), size=n)


def _drawn(n: int, rng: np.random.Generator) -> tuple[int, np.random.Generator]:
    return number("n", n, COUNT), generator(rng, "rng")


def lengths_array(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """Lengths as whole numbers, one dimension. Raises ValueError naming the first bad one."""
    found: NDArray[np.int64] = whole_array(
        name, values, "whole tokens, at least 1", TOKENS.low, TOKENS.high
    )
    return found
