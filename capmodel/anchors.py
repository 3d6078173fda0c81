"""Factors on a step's seconds at anchors of batch and context, and between them."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Evenly spaced in the logarithm: sequences, and tokens of each.
_LOG_BATCHES = np.arange(13.0)
_LOG_CONTEXTS = np.arange(6.0, 18.0)


@dataclass(frozen=True, slots=True)
class Rising:
    """Factors at anchors of batch and context; see `monotone`, and `StepTime.kernels`."""

    factors: tuple[tuple[float, ...], ...]

    def __call__(self, batch: Array, context_len: Array) -> Array:
        """The factor at each step, interpolated between anchors, (n,)."""
        shape = np.shape(batch)
        found = lifted(np.array([self.factors]), batch.reshape(1, -1), context_len.reshape(1, -1))
        return found.reshape(shape)

    def of_one(self, batch: float, context_len: float) -> float:
        """The same for one step, in plain arithmetic."""
        row, along = _between_one(batch, float(_LOG_BATCHES[0]), len(_LOG_BATCHES))
        column, across = _between_one(context_len, float(_LOG_CONTEXTS[0]), len(_LOG_CONTEXTS))
        near, far = self.factors[row], self.factors[row + 1]
        low = near[column] * (1 - across) + near[column + 1] * across
        high = far[column] * (1 - across) + far[column + 1] * across
        return low * (1 - along) + high * along


def lifted(tables: Array, batch: Array, context_len: Array) -> Array:
    """Factors of several `Rising`, (rows, n); tables: (rows, batches, contexts)."""
    row, along = _between(np.log2(np.maximum(batch, 1.0)), _LOG_BATCHES)
    column, across = _between(np.log2(np.maximum(context_len, 1.0)), _LOG_CONTEXTS)
    own = np.arange(len(tables))[:, None]
    low = tables[own, row, column] * (1 - across) + tables[own, row, column + 1] * across
    row = row + 1
    high = tables[own, row, column] * (1 - across) + tables[own, row, column + 1] * across
    return np.asarray(low * (1 - along) + high * along)


def _between(logs: Array, anchors: Array) -> tuple[npt.NDArray[np.intp], Array]:
    place = np.clip(logs - anchors[0], 0.0, len(anchors) - 1.0)
    left = np.minimum(place.astype(np.intp), len(anchors) - 2)
    return left, place - left


def _between_one(value: float, first: float, anchors: int) -> tuple[int, float]:
    place = min(max(math.log2(max(value, 1.0)) - first, 0.0), anchors - 1.0)
    left = min(int(place), anchors - 2)
    return left, place - left


def anchors() -> tuple[Array, Array]:
    """Batch, (n, 1), and context, (1, m), of the anchors."""
    return 2.0 ** _LOG_BATCHES[:, None], 2.0 ** _LOG_CONTEXTS[None, :]


def rising_of(factors: Array) -> Rising:
    """`Rising` of a table of factors, (batches, contexts)."""
    return Rising(tuple(tuple(float(value) for value in row) for row in factors))
