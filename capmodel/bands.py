"""How wide the interval of a step is, by how far from measured rows it stands.

Within the batches and contexts measured of its own deployment a step takes the bounds of rows
held out at random. Beyond them, on an engine and GPU with rows there, it takes those of models
never seen. Beyond all rows of its engine and GPU these stretch with every doubling:
`benchmarks/reach.py` prints what covers.

Bounds are kept up to 95 %. Those that shall cover more lie farther out as if misses beyond a bound
fell with its square: of Argonne's rows held out, 99 % bounds so made hold 99.1 to 99.6 %.
Below 50 % the bounds of 50 % stand.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
# (coverage, low, high) by rising coverage; low, high: log of measured over predicted.
Bounds = tuple[tuple[float, float, float], ...]

# How much bounds stretch with each doubling beyond all rows, of batch and of context.
PER_BATCH, PER_CONTEXT = 1.0, 0.5
# Bounds of new models where no held-out rows tell them, as a multiple of those of known ones.
UNTOLD = 2.5
TOLERANCE = 1.01
FARTHEST = 100.0  # no bound is a larger log factor: nobody knows more, and seconds stay finite


@dataclass(frozen=True, slots=True)
class Reach:
    """Smallest and largest batch size and context length [tokens] of some rows."""

    batch_range: tuple[float, float]
    context_range: tuple[float, float]

    def doublings(self, batch: Array, context_len: Array) -> tuple[Array, Array]:
        """How often batch and context must double, or halve, to come within, (n,) each."""
        return _beyond(batch, *self.batch_range), _beyond(context_len, *self.context_range)

    def left(self, batch: Array, context_len: Array) -> tuple[str, ...]:
        """Which ranges steps leave, in words."""
        named = ("batch", batch, self.batch_range), ("context", context_len, self.context_range)
        return tuple(
            f"{what} outside the {low:,.0f} to {high:,.0f}"
            for what, values, (low, high) in named
            if _beyond(values, low, high).any()
        )

    def joined(self, other: "Reach") -> "Reach":
        """Of the rows of both."""
        return Reach(
            _hull(self.batch_range, other.batch_range),
            _hull(self.context_range, other.context_range),
        )


@dataclass(frozen=True, slots=True)
class Bands:
    """Bounds of one deployment's steps.

    known, new_model, new_gpu: of rows held out at random, by model, by GPU; empty where none were.
    own, all_rows: what is measured of the deployment, and of its engine and GPU; None: nothing.
    """

    known: Bounds
    new_model: Bounds
    new_gpu: Bounds
    own: Reach | None
    all_rows: Reach | None

    def nominal(self, coverage: float) -> tuple[float, float] | None:
        """(low, high) factors of a step among the rows; None where no held-out rows tell."""
        bounds = self._within()
        if not bounds:
            return None
        low, high = _at(bounds, coverage)
        return math.exp(low), math.exp(high)

    def factors(
        self, coverage: float, batch: Array, context_len: Array
    ) -> tuple[Array, Array] | None:
        """(low, high) factors on steps, each (n,); None where no held-out rows tell."""
        within = self._within()
        if not within:
            return None
        near, stretch = np.array(_at(within, coverage)), np.ones(np.shape(batch))
        if self.all_rows is None:
            return _stretched(near, stretch)
        beyond = np.array(_at(self.new_model, coverage)) if self.new_model else UNTOLD * near
        more, longer = self.all_rows.doublings(batch, context_len)
        low, high = _stretched(
            _wider(near, beyond), stretch + PER_BATCH * more + PER_CONTEXT * longer
        )
        if self.own is None:
            return low, high
        more, longer = self.own.doublings(batch, context_len)
        inside = more + longer == 0
        return np.where(inside, np.exp(near[0]), low), np.where(inside, np.exp(near[1]), high)

    def _within(self) -> Bounds:
        """What holds among the rows: of a known deployment, a new model or a new GPU."""
        if self.all_rows is None:
            return self.new_gpu
        return self.known if self.own is not None else self.new_model


def _at(bounds: Bounds, coverage: float) -> tuple[float, float]:
    levels, *ends = zip(*bounds, strict=True)
    stretch = np.sqrt(max(1.0, (1.0 - levels[-1]) / (1.0 - coverage)))
    low, high = (float(np.interp(coverage, levels, end)) for end in ends)
    return float(_farther(low, stretch, -1.0)), float(_farther(high, stretch, 1.0))


def _wider(one: Array, other: Array) -> Array:
    return np.array([min(one[0], other[0]), max(one[1], other[1])])


def _stretched(bounds: Array, stretch: Array) -> tuple[Array, Array]:
    low, high = _farther(bounds[0], stretch, -1.0), _farther(bounds[1], stretch, 1.0)
    return np.exp(low), np.exp(high)


def _farther(bound: float, stretch: Array, side: float) -> Array:
    """A log factor stretched away from its interval, never into it; side: -1 low, 1 high."""
    return side * np.minimum(np.maximum(side * bound * stretch, side * bound), FARTHEST)


def _beyond(values: Array, low: float, high: float) -> Array:
    over, under = np.maximum(values / high, 1.0), np.maximum(low / values, 1.0)
    return np.where(over > TOLERANCE, np.log2(over), 0.0) + np.where(
        under > TOLERANCE, np.log2(under), 0.0
    )


def _hull(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return min(one[0], other[0]), max(one[1], other[1])
