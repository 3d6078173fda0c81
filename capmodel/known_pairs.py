"""Where the coefficients of a new engine and GPU may lie: near those of a pair that is fitted.

Engines and GPUs come in kinds, so one bell curve around all of them is wide where nothing lies and
thin where much does. Each fitted pair is a candidate instead, with a bell curve of its own, besides
a wide one around the middle of all and the textbook's; a few runs say which of them the new pair is
like (a mixture prior, Bishop 2006, section 9.3). How far off a candidate may be, by what a roofline
misses, and how that differs from pair to pair are taken from the pairs that are fitted (empirical
Bayes, Efron 2010). What the roofline misses is a Gaussian process near each run; what runs scatter
by has heavy tails (Student's t), so that a run gone wrong does not carry the others.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.estimators import Roofline
from capmodel.matern import matern
from capmodel.roofline import PRIOR, SPREAD, RooflineRegressor, coefficients_from

Array = npt.NDArray[np.float64]

# A candidate's own bell curve, as a share of how far pairs lie apart.
WIDTH = 0.3
# However alike the pairs are, a new one may differ by this share of the textbook spread, and in
# speed as a whole by this share of it. Further apart than the last they need not be thought.
LOOSEST, LEAST_APART, MOST_APART = 0.1, 0.05, 1.0
# How much likelier a candidate of its own engine is than another, before any run; what is left
# for the middle of all, and for a pair unlike any, of which only the textbook speaks.
OWN_ENGINE, MIDDLE, UNLIKE = 5.0, 0.3, 0.05
FEWEST = 3
# Of the typical error of known pairs: what a roofline misses smoothly, what single runs scatter by.
SMOOTH, SINGLE = 2.0, 0.5
# That error where too few pairs are known to take it from; by how much pairs differ in its log.
TYPICAL, DIFFER = 0.06, 0.5
# How many times the typical error a new pair may have; degrees of freedom of the scatter.
TIMES: Array = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
TAILS = 2.0
ROUNDS = 4
# Candidates less likely than this are left out.
UNLIKELY = 1e-3


@dataclass(frozen=True, slots=True)
class Candidates:
    """Coefficients a new engine and GPU may have.

    centres, spreads: (k, terms). weights: (k,), how likely before any run; they sum to 1.
    typical: mean relative error of the roofline on a known pair; differ: by how much that differs
    between pairs, as a standard deviation of its log.
    """

    centres: Array
    spreads: Array
    weights: Array
    typical: float = TYPICAL
    differ: float = DIFFER

    def seconds(self, terms: Array, least: Array) -> Array:
        """Step times by each candidate [s], (k, rows). terms: (rows, terms); least: (rows,) [s]."""
        return np.maximum(np.fmax(self.centres @ terms.T, least), 1e-12)

    def apart(self, seconds: Array) -> float:
        """How far a candidate may be off in all steps at once, in log seconds: (k, rows) [s]."""
        logs = np.log(seconds)
        off = np.abs((logs - np.median(logs, axis=0)).mean(axis=1))
        return float(np.clip(WIDTH * 1.4826 * _middle(off, self.weights), LEAST_APART, MOST_APART))


@dataclass(frozen=True, slots=True)
class Learned:
    """What runs say of the candidates.

    values, errors: (terms,) coefficients and their standard errors, NaN where the runs have none
    of a term. likely: (k,). smooth, single: what the roofline misses near runs and what single
    runs scatter by, log seconds. trusted: (rows,) near 1, and near 0 for a run gone wrong.
    """

    values: Array
    errors: Array
    likely: Array
    smooth: float
    single: float
    trusted: Array


def candidates_of(roofline: RooflineRegressor, but: tuple[str, str] | None = None) -> Candidates:
    """Candidates from the fitted pairs, without the pair `but`; its engine's come first.

    A coefficient that the rows of a pair do not tell is taken from the others, with all their
    scatter. With fewer than three pairs the textbook prior of `roofline.TERMS` is the middle.
    """
    pairs = {key: fit for key, fit in roofline.coefficients_.items() if len(key) == 2}
    fits = [fit for key, fit in pairs.items() if key != but]
    if not fits:
        return Candidates(PRIOR[None], SPREAD[None], np.ones(1))
    own = np.array([but is not None and key[0] == but[0] for key in pairs if key != but])
    values = np.array([fit.values for fit in fits])
    told = np.array([fit.identified for fit in fits])
    everybody = _middle_of(values, told, PRIOR, SPREAD)
    engine = _middle_of(values[own], told[own], *everybody) if own.sum() >= FEWEST else everybody
    centre = np.where(own[:, None], engine[0], everybody[0])
    spread = np.where(own[:, None], engine[1], everybody[1])
    likely = np.where(own, OWN_ENGINE, 1.0)
    typical, differ = TYPICAL, DIFFER
    missed = [fit.mape for fit in fits if np.isfinite(fit.mape)]
    if len(missed) >= FEWEST:
        logs = np.log(np.clip(missed, 1e-3, 1.0))
        typical = float(np.exp(np.median(logs)))
        differ = max(differ, 1.4826 * float(np.median(np.abs(logs - np.log(typical)))))
    return Candidates(
        np.vstack([np.where(told, values, centre), engine[0], PRIOR]),
        np.vstack([np.where(told, WIDTH * spread, spread), engine[1], SPREAD]),
        np.append((1.0 - MIDDLE - UNLIKE) * likely / likely.sum(), [MIDDLE, UNLIKE]),
        typical,
        differ,
    )


def shortest(rows: pd.DataFrame) -> Array:
    """What bandwidth and peak allow at best [s], (rows,). rows: of `add_features`."""
    nothing = RooflineRegressor(coefficients_={(): coefficients_from({})})
    return Roofline(roofline=nothing).predict(rows)


def learned(
    candidates: Candidates, terms: Array, step_time_s: Array, least: Array, points: Array
) -> Learned:
    """What a few runs say of the candidates.

    terms: (rows, terms). step_time_s, least: (rows,) [s], measured, and the shortest that
    bandwidth and peak allow. points: (rows, d) `regressor.coordinates`.
    """
    seconds = candidates.seconds(terms, least)
    apart = candidates.apart(seconds)
    near = matern(points, points)
    shares = terms * candidates.spreads[:, None] / seconds[:, :, None]
    broad = shares @ shares.transpose(0, 2, 1) + apart**2
    scales = candidates.typical * TIMES
    smooth, single = SMOOTH * scales, np.asarray(SINGLE * scales)
    known = broad + smooth[:, None, None, None] ** 2 * near  # (scales, k, rows, rows)
    missed = np.log(step_time_s / seconds)
    evidence, trusted = _evidence(known, missed, single[:, None, None])
    evidence += np.log(candidates.weights)
    evidence -= 0.5 * (np.log(TIMES)[:, None] / candidates.differ) ** 2
    likely = np.exp(evidence - evidence.max())
    likely *= likely.sum(axis=0) > UNLIKELY * likely.sum()
    likely /= likely.sum()
    of_each = np.maximum(likely.sum(axis=0), 1e-300)
    times = np.exp(np.log(TIMES) @ likely / of_each)
    weights = np.einsum("sk,skn->kn", likely, trusted) / of_each[:, None]
    found = np.zeros((2, *candidates.centres.shape))
    for one in np.flatnonzero(likely.sum(axis=0)):
        scale = candidates.typical * times[one]
        scatter = (SMOOTH * scale) ** 2 * near + np.diag((SINGLE * scale) ** 2 / weights[one])
        found[:, one] = _shrunk(
            terms / step_time_s[:, None], scatter, candidates.centres[one],
            candidates.spreads[one], apart,
        )  # fmt: skip
    likely_each = likely.sum(axis=0)
    values = likely_each @ found[0]
    errors = np.sqrt(likely_each @ (found[1] + (found[0] - values) ** 2))
    scale = candidates.typical * float(np.exp(np.log(TIMES) @ likely.sum(axis=1)))
    return Learned(
        values, np.where(terms.any(axis=0), errors, np.nan), likely_each, SMOOTH * scale,
        SINGLE * scale, likely_each @ weights,
    )  # fmt: skip


def _evidence(known: Array, missed: Array, single: Array) -> tuple[Array, Array]:
    """Log evidence, (scales, k), and how far each run is trusted, (scales, k, rows).

    known: covariance but for the runs' own scatter, (scales, k, rows, rows); missed: (k, rows);
    single: (scales, 1, 1). The scatter is a normal one over a Gamma weight, which makes Student's
    t; weights are found by expectation and maximisation.
    """
    diagonal = np.arange(missed.shape[1])
    trusted = np.ones(known.shape[:3])
    for _ in range(ROUNDS):
        scatter = single**2 / trusted
        whole = known.copy()
        whole[..., diagonal, diagonal] += scatter
        inverse = np.linalg.inv(whole)
        pulls = np.einsum("skij,kj->ski", inverse, missed)
        squared = (scatter * pulls) ** 2 + scatter - scatter**2 * inverse[..., diagonal, diagonal]
        trusted = (TAILS + 1.0) / (TAILS + squared / single**2)
    whole = known.copy()
    whole[..., diagonal, diagonal] += single**2 / trusted
    lower = np.linalg.cholesky(whole)
    white = np.linalg.solve(lower, np.broadcast_to(missed, trusted.shape)[..., None])[..., 0]
    fits = -0.5 * (white**2).sum(axis=2) - np.log(lower[..., diagonal, diagonal]).sum(axis=2)
    return fits + 0.5 * TAILS * (np.log(trusted) - trusted).sum(axis=2), trusted


def _shrunk(
    scaled: Array, scatter: Array, centre: Array, spread: Array, apart: float
) -> tuple[Array, Array]:
    """Non-negative coefficients near `centre` and their variances, (terms,) each.

    scaled: terms over measured seconds; scatter: covariance of the relative errors.
    """
    from scipy.optimize import nnls  # slow to import, and only fits need it

    free = scaled.any(axis=0)
    middle = centre[free]
    prior = np.diag(spread[free] ** 2) + apart**2 * np.outer(middle, middle)
    both = np.column_stack([scaled[:, free], np.ones(len(scaled))])
    white = np.linalg.solve(np.linalg.cholesky(scatter), both)
    unit = spread[free]
    lower = np.linalg.inv(np.linalg.cholesky(prior / np.outer(unit, unit)))  # in units of spread
    rows = np.vstack([white[:, :-1] * unit, lower])
    found, _ = nnls(rows, np.concatenate([white[:, -1], lower @ (middle / unit)]))
    values, variances = centre.copy(), spread**2
    values[free] = unit * found
    variances[free] = unit**2 * np.diag(np.linalg.inv(rows.T @ rows))
    return values, variances


def _middle_of(values: Array, told: npt.NDArray[np.bool_], centre: Array, spread: Array) -> tuple[
    Array, Array
]:  # fmt: skip
    """Median and robust scatter of each coefficient over the pairs that tell it, (terms,) each.

    `centre` and `spread` stand in where fewer than three do.
    """
    centre, spread = centre.copy(), spread.copy()
    for place in np.flatnonzero(told.sum(axis=0) >= FEWEST):
        own = values[told[:, place], place]
        centre[place] = np.median(own)
        scatter = 1.4826 * float(np.median(np.abs(own - centre[place])))
        spread[place] = max(scatter, LOOSEST * SPREAD[place])
    return centre, spread


def _middle(values: Array, weights: Array) -> float:
    """Weighted median."""
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), 0.5 * weights.sum())])
