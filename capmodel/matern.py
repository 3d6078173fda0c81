"""The Matern kernel that learned corrections and curves are made of, and points to carry it.

Evaluated in blocks that fit a core's cache and, where there are many numbers with small weights, in
single precision.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Precision = type[np.float32] | type[np.float64]
Floats = npt.NDArray[np.floating[Any]]  # of single or double precision

# Of many numbers, those with the smaller weights are read in single precision, a third of the time,
# up to this norm of them: off by 3e-8 of it, 1e-7 at worst, so by less than a millionth of a step.
FEW, SINGLE = 100_000, 6.0


def by_weight(weights: Array, n: int) -> list[tuple[Places, Precision]]:
    """Which landmarks are read in which precision at n points; all in double at few."""
    order, small = np.argsort(np.abs(weights)), 0
    if len(weights) * n > FEW:
        small = int((np.cumsum(weights[order] ** 2) <= SINGLE**2).sum())
    single, double = np.sort(order[:small]), np.sort(order[small:])
    parts: list[tuple[Places, Precision]] = [(single, np.float32), (double, np.float64)]
    return [(some, kept) for some, kept in parts if len(some)]


def blocks(n: int, width: int) -> Iterator[slice]:
    """Slices of n rows of `width` numbers each, few enough for a core's own cache."""
    at_once = max(1, 40960 // max(width, 1))
    for start in range(0, n, at_once):
        yield slice(start, start + at_once)


def matern(left: Array, right: Array) -> Array:
    """Matern 5/2 kernel of unit length, (len(left), len(right))."""
    kernel = np.empty((len(left), len(right)))
    for rows in blocks(*kernel.shape):
        kernel[rows] = decayed(squares(left[rows], right))
    return kernel


def squares(left: Array, right: Array) -> Array:
    """5 times the squared distances, (len(left), len(right))."""
    found = left @ (-10.0 * right.T)
    found += 5.0 * np.einsum("ij,ij->i", right, right)
    found += 5.0 * np.einsum("ij,ij->i", left, left)[:, None]
    return np.maximum(found, 0.0, out=found)


def decayed(far: Floats) -> Floats:
    """Matern 5/2 kernel at 5 times squared distances, which it takes the place of."""
    distance = np.sqrt(far)
    far *= 1 / 3
    far += distance
    far += 1.0
    far *= np.exp(np.negative(distance, out=distance), out=distance)
    return far


def spread_out(points: Array, n: int) -> npt.NDArray[np.intp]:
    """Positions of at most `n` points that cover the rest: each the farthest from those before."""
    if len(points) <= n:
        return np.arange(len(points))
    chosen = np.empty(n, dtype=np.intp)
    chosen[0] = int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmin())
    nearest = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    for place in range(1, n):
        chosen[place] = int(nearest.argmax())
        nearest = np.minimum(nearest, ((points - points[chosen[place]]) ** 2).sum(axis=1))
    return np.sort(chosen)
