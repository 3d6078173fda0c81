"""Bounds that cover: quantiles of what held-out rows missed by, as log factors.

A residual is log(measured / predicted) of a row the fit did not see. Bounds for new rows are
quantiles of such residuals (split conformal). Where the new rows are of a kind no row was seen of
(a model, a GPU), the exchangeable unit is that kind and not the row: each weighs alike however
many rows it has, and few of them ask for wider bounds.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.integer[Any]]

# Rows of one engine and GPU that make quantiles of their own.
ENOUGH = 40


def log_bounds(residual: Array, level: float, units: Labels | None = None) -> tuple[float, float]:
    """(low, high) log factors that cover `level` of new rows.

    residual: (n,). units: (n,) number of the model or GPU each row belongs to, where a new one is
    to be covered; None where new rows are of known kinds.
    Raises ValueError for no residuals or a level that is no share.
    """
    if not len(residual):
        raise ValueError("Got no held-out rows to take bounds from, but expected at least one")
    if not 0.0 < level < 1.0:
        raise ValueError(f"Got level={level!r}, but expected a share between 0 and 1")
    tail = (1.0 - level) / 2
    if units is None:
        n = len(residual)
        tail = 1.0 - min(1.0, (1.0 - tail) * (n + 1) / n)
        low, high = np.quantile(residual, [tail, 1.0 - tail])
        return float(low), float(high)
    _, place, counts = np.unique(units, return_inverse=True, return_counts=True)
    tail *= max(0.0, 1.0 - 3.0 / len(counts))
    weight = 1.0 / counts[place]
    order = np.argsort(residual)
    rising = np.cumsum(weight[order])
    share = (rising - 0.5 * weight[order]) / rising[-1]
    low, high = np.interp([tail, 1.0 - tail], share, residual[order])
    # The widest of a few units is not as wide as what more of them would show.
    middle, stretch = (low + high) / 2, 1.0 + 1.0 / len(counts)
    return float(middle + stretch * (low - middle)), float(middle + stretch * (high - middle))


def wider(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """The hull of two bounds."""
    return min(one[0], other[0]), max(one[1], other[1])


def grouped_bounds(
    residual: Array, groups: Labels, level: float, units: Labels | None = None
) -> tuple[tuple[float, float], dict[int, tuple[float, float]]]:
    """Bounds over all rows, and of each group with ENOUGH rows.

    groups: (n,) number of the engine and GPU of each row. With units, a group's bounds are never
    narrower than those over all rows: a new model may be unlike the few a group has had.
    """
    whole = log_bounds(residual, level, units)
    own: dict[int, tuple[float, float]] = {}
    for group in np.unique(groups):
        rows = groups == group
        if rows.sum() >= ENOUGH:
            found = log_bounds(residual[rows], level, None if units is None else units[rows])
            own[int(group)] = found if units is None else wider(found, whole)
    return whole, own


def cross_bounds(
    residual: Array, folds: Labels, groups: Labels, level: float, units: Labels | None = None
) -> tuple[Array, Array]:
    """(low, high) log factors of each held-out row from the rows of the other folds, each (n,).

    NaN for all where there is one fold only.
    """
    low, high = np.full(len(residual), np.nan), np.full(len(residual), np.nan)
    for fold in np.unique(folds):
        here, rest = folds == fold, folds != fold
        if not rest.any():
            continue
        whole, own = grouped_bounds(
            residual[rest], groups[rest], level, None if units is None else units[rest]
        )
        for group in np.unique(groups[here]):
            rows = here & (groups == group)
            low[rows], high[rows] = own.get(int(group), whole)
    return low, high
