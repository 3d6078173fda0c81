"""NumPy's one-dimensional tools, for many rows at once."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Item = TypeVar("Item")


def column(values: Iterable[float]) -> Array:
    """One value per row, shape (n, 1)."""
    return np.array([[float(value)] for value in values])


def alike(values: Sequence[Item]) -> list[tuple[list[int], Item]]:
    """Places of values that are the same object, and the object."""
    groups: dict[int, tuple[list[int], Item]] = {}
    for place, value in enumerate(values):
        groups.setdefault(id(value), ([], value))[0].append(place)
    return list(groups.values())


def interpolated(across: Array, at: Array, values: Sequence[Array]) -> list[Array]:
    """`np.interp` row by row: each of `values` where `across` is `at`.

    across, values: (n, points), `across` never falling along a row; at: (n,). Each (n,).
    """
    rows, last = np.arange(len(across)), across.shape[1] - 1
    left = (across <= at[:, None]).sum(axis=1) - 1
    inside = (left >= 0) & (left < last)
    left = np.maximum(left, 0)
    right = np.minimum(left + 1, last)
    width = np.where(inside, across[rows, right] - across[rows, left], 1.0)
    beyond = np.where(inside, at - across[rows, left], 0.0)
    found = []
    for value in values:
        slope = (value[rows, right] - value[rows, left]) / width
        found.append(slope * beyond + value[rows, left])
    return found


def gradient(values: Array, across: Array, counts: NDArray[np.intp]) -> Array:
    """`np.gradient` of the first `counts` points of each row, (n, points); 0 for one point."""
    gaps, rises = np.diff(across, axis=1), np.diff(values, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        steep = rises / gaps
        before, after = gaps[:, :-1], gaps[:, 1:]
        inner = (
            -after / (before * (before + after)) * values[:, :-2]
            + (after - before) / (before * after) * values[:, 1:-1]
            + before / (after * (before + after)) * values[:, 2:]
        )
    found = np.zeros_like(values)
    found[:, 1:-1] = inner
    several = counts > 1
    found[several, 0] = steep[several, 0]
    rows, ends = np.flatnonzero(several), counts[several] - 1
    found[rows, ends] = steep[rows, ends - 1]
    return np.where(np.arange(values.shape[1]) < counts[:, None], found, 0.0)
