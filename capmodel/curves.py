"""Kernel curves of one engine and GPU, learned from whole steps.

A step's time is taken as the sum over its kernels of `textbook seconds x exp(curve)`, a curve for
each kind of kernel: a level plus a kernel ridge on the kind's own coordinates, which fades to the
level far from all rows. All curves of an
engine and GPU are fitted at once to the logarithms of its steps (Gauss-Newton), so a step need not
be measured kernel by kernel, and a model that was never run is predicted from kernels that were.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capmodel.matern import (
    Floats,
    Precision,
    blocks,
    by_weight,
    decayed,
    matern,
    spread_out,
    squares,
)
from capmodel.operators import KINDS
from capmodel.step_kernels import Kernels, Steps

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

# Points that carry a kind's curve, spread evenly, and how many are looked at to find them.
LANDMARKS = {"matmul": 220, "attention": 220, "latent": 60, "experts": 120, "reduce": 60,
             "step": 20}  # fmt: skip
MOST_LOOKED_AT = 1200
# Scatter of the rows against the size of the curves, and how much freer levels are.
RIDGE, LOOSE = 0.01, 10.0
# Rounds of the fit: how stiff the curves are, and one row in how many is looked at. It is done when
# a round with loose ones gains less than a share SETTLED.
ROUNDS = ((0.3, 4), (0.03, 2), *4 * ((0.0, 1),))
SETTLED = 0.3
LEAST = 0.003  # of the textbook, before the rows are looked at closely
JITTER = 1e-6
FARTHEST = 6.0  # of a curve, in the logarithm


@dataclass(frozen=True, slots=True)
class Curve:
    """Log factor on the textbook's seconds of one kind of kernel.

    landmarks: (m, d) scaled points, weights: (m,). level: what it is far from all of them.
    """

    landmarks: Array
    weights: Array
    level: float

    def __call__(
        self, points: Array, scale: Array, group: Places, judged: bool = True
    ) -> tuple[Array, Array]:
        """Log factor and similarity to the landmarks at points (n, d), each (n,).

        group: (n,) which points differ in their first coordinate alone, numbered in order. A
        squared distance is a sum over coordinates, so what they share is found once per group.
        judged: whether the similarity is asked for; it is 0 if not.
        """
        value, near = np.full(len(points), self.level), np.zeros(len(points))
        for some, kept in by_weight(self.weights, len(points)):
            weights = self.weights[some]
            parts = _Parts(points * scale, group, self.landmarks[some], kept)
            for rows in blocks(len(points), len(weights)):
                kernel = decayed(parts.squares(rows))
                value[rows] += kernel @ weights
                if judged:
                    near[rows] = np.maximum(near[rows], kernel.max(axis=1))
        return np.clip(value, -FARTHEST, FARTHEST), near


class _Parts:
    """Squared distances of points (n, d) to landmarks (m, d), with what groups share found once."""

    def __init__(self, points: Array, group: Places, landmarks: Array, kept: Precision) -> None:
        self.points, self.group, self.landmarks, self.kept = points, group, landmarks, kept
        self.shared: Floats
        self.own: Floats
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        self.alone = 2 * len(starts) > len(points)  # groups of one share nothing
        if not self.alone:
            first, self.along = np.unique(points[:, 0], return_inverse=True)
            self.shared = squares(points[starts, 1:], landmarks[:, 1:]).astype(kept)
            self.own = squares(first[:, None], landmarks[:, :1]).astype(kept)

    def squares(self, rows: slice) -> Floats:
        """5 times those of some rows, (rows, m), in the precision they are kept in."""
        if self.alone:
            return squares(self.points[rows], self.landmarks).astype(self.kept, copy=False)
        found = self.shared[self.group[rows]]
        found += self.own[self.along[rows]]
        return found


@dataclass(frozen=True, slots=True)
class KernelCurves:
    """Curves of one engine and GPU by kind of kernel.

    low, high: log of step time over roofline that its rows show; none is said to lie beyond.
    scale: factor on all seconds, what a few runs of another version say.
    """

    curves: dict[str, Curve]
    n_rows: int
    low: float
    high: float
    scale: float = 1.0

    def seconds(self, steps: Steps, n: int, judged: bool = True) -> tuple[Array, Array]:
        """Of n steps [s], and how near their kernels are to fitted ones (1 to 0), each (n,).

        judged: whether nearness is asked for; it is 0 if not.
        """
        total, near = np.zeros(n), np.zeros(n)
        for kind, own in steps.items():
            value, close = np.zeros(len(own.points)), np.zeros(len(own.points))
            if kind in self.curves:
                value, close = self.curves[kind](own.points, scale_of(kind), own.group, judged)
            spent = own.spent(value)
            total += np.bincount(own.step, spent, n)
            if judged:
                near += np.bincount(own.step, spent * close[own.point], n)
        return self.scale * total, near / np.maximum(total, 1e-300)

    def factor(self, seconds: Array, roofline_s: Array) -> Array:
        """What to multiply the roofline by, within what the rows showed."""
        return np.exp(np.clip(np.log(seconds / roofline_s), self.low, self.high))


def scale_of(kind: str) -> Array:
    """Coordinates of a kind times this are as far apart as their kernels are unlike, (d,)."""
    return np.array(list(KINDS[kind].coordinates.values()))


def fit_curves(
    steps: Steps, step_time_s: Array, roofline_s: Array, ridge: float = RIDGE
) -> KernelCurves:
    """Curves of one engine and GPU. steps: its kernels; step_time_s, roofline_s: (n,) [s]."""
    fit = _Fit(steps, np.log(step_time_s))
    now = fit.at(fit.begun(_levels(steps, step_time_s)))
    for stiff, every in ROUNDS:
        pulled = max(ridge, stiff)
        last, now = now, fit.moved(now, pulled, every)
        if pulled == ridge and now.loss(ridge) > (1 - SETTLED) * last.loss(ridge):
            break
    left = np.log(step_time_s / roofline_s)
    return KernelCurves(fit.curves(now), len(left), float(left.min()), float(left.max()))


def _levels(steps: Steps, step_time_s: Array) -> dict[str, float]:
    """Log of one factor per kind of kernel, with which the textbook fits the steps best."""
    from scipy.optimize import nnls

    n = len(step_time_s)
    flat = [(own.step, own.spent(np.zeros(len(own.points)))) for own in steps.values()]
    spent = [np.bincount(step, seconds, n) for step, seconds in flat]
    found, _ = nnls(np.column_stack(spent) / step_time_s[:, None], np.ones(n))
    return dict(zip(steps, np.log(np.maximum(found, LEAST)).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _State:
    """Where a fit stands. given: coefficients of all columns; parts: seconds of each kernel entry,
    by kind; total: (n,) of each step [s]; missed: (n,) logarithm of what it is off by.
    """

    given: Array
    parts: dict[str, Array]
    total: Array
    missed: Array

    def loss(self, ridge: float) -> float:
        return float(self.missed @ self.missed + ridge * self.given @ self.given)


class _Fit:
    """All curves of one engine and GPU as columns side by side."""

    def __init__(self, steps: Steps, wanted: Array) -> None:
        self.steps, self.wanted = steps, wanted
        self.bases = {kind: _Basis(kind, own) for kind, own in steps.items()}
        ends = np.cumsum([0, *(base.width for base in self.bases.values())])
        self.width = int(ends[-1])
        self.places = {kind: slice(ends[i], ends[i + 1]) for i, kind in enumerate(self.bases)}

    def begun(self, levels: dict[str, float]) -> Array:
        """Coefficients of curves that are flat, at a level [log] of each kind."""
        given = np.zeros(self.width)
        for kind, level in levels.items():
            given[self.places[kind]][self.bases[kind].level] = level / np.sqrt(LOOSE)
        return given

    def at(self, given: Array) -> _State:
        parts = {kind: base.spent(given[self.places[kind]]) for kind, base in self.bases.items()}
        total = np.zeros(len(self.wanted))
        for kind, spent in parts.items():
            total += np.bincount(self.steps[kind].step, spent, len(total))
        return _State(given, parts, total, self.wanted - np.log(total))

    def moved(self, now: _State, ridge: float, every: int) -> _State:
        """One step of Gauss-Newton on one row in `every`, halved until it gains on all."""
        from scipy.linalg import blas, cho_factor, cho_solve  # slow to import; only fits need it

        slope = self._slope(now, every)
        system = blas.dsyrk(every, slope, trans=1, lower=0)  # its upper half, all that is asked for
        system[np.diag_indices_from(system)] += ridge
        factor = cho_factor(system, overwrite_a=True, check_finite=False)
        pulled = every * (slope.T @ now.missed[::every]) - ridge * now.given
        step, share = cho_solve(factor, pulled), 1.0
        found = self.at(now.given + step)
        while share > 0.02 and found.loss(ridge) > now.loss(ridge):
            share /= 2
            found = self.at(now.given + share * step)
        return found

    def curves(self, now: _State) -> dict[str, Curve]:
        return {kind: base.curve(now.given[self.places[kind]]) for kind, base in self.bases.items()}

    def _slope(self, now: _State, every: int) -> Array:
        """Change of one step in `every`, its log time per unit of each column, (n, width)."""
        slope = np.empty((len(now.total[::every]), self.width), order="F")
        for kind, base in self.bases.items():
            slope[:, self.places[kind]] = base.pull(now.parts[kind], now.total, every)
        return slope


class _Basis:
    """Columns in which a kind's curve is linear, its kernel whitened so that one ridge fits all."""

    def __init__(self, kind: str, own: Kernels) -> None:
        self.own = own
        self.points, places = _distinct(own.points)
        self.back, self.places = places[own.point], places
        scaled = self.points * scale_of(kind)
        some = scaled[:: 1 + len(scaled) // MOST_LOOKED_AT]
        self.landmarks = some[spread_out(some, LANDMARKS[kind])].round(4)
        among = matern(self.landmarks, self.landmarks)
        among[np.diag_indices_from(among)] += JITTER
        sizes, vectors = np.linalg.eigh(among)
        self.whitened = vectors / np.sqrt(np.maximum(sizes, JITTER))
        kernel = matern(scaled, self.landmarks) @ self.whitened
        self.columns = np.hstack([kernel, np.full((len(scaled), 1), np.sqrt(LOOSE))])
        self.width = self.columns.shape[1]
        self.level = len(self.landmarks)  # the column of a factor on all

    def spent(self, given: Array) -> Array:
        """Seconds of each kernel entry, (k,)."""
        value = np.clip(self.columns @ given, -FARTHEST, FARTHEST)
        return self.own.spent(value[self.places])

    def pull(self, spent: Array, total: Array, every: int) -> Array:
        """Change of one step in `every`, its log time per unit of each column, (n, width)."""
        from scipy.sparse import csr_matrix

        share = spent / total[self.own.step]
        shape = (len(total), len(self.points))
        shares = csr_matrix((share, (self.own.step, self.back)), shape)
        return np.asarray(shares[::every] @ self.columns)

    def curve(self, given: Array) -> Curve:
        weights = self.whitened @ given[: self.level]
        return Curve(self.landmarks, weights, float(given[self.level] * np.sqrt(LOOSE)))


def _distinct(points: Array) -> tuple[Array, Places]:
    """The different points, and which of them each is."""
    packed = np.ascontiguousarray(points).view(np.dtype((np.void, points.shape[1] * 8))).ravel()
    _, first, back = np.unique(packed, return_index=True, return_inverse=True)
    return points[first], back.astype(np.intp)
