"""A new GPU or engine from a few runs: coefficients and correction shrunk from all that is known.

A handful of runs cannot tell a dozen coefficients apart. Those of a new engine and GPU are taken
to lie near those of one of the pairs already fitted (`capmodel.known_pairs`; the datasheet's
figures are inside the terms); the runs say near which, and move them from there (PHYSICS
section 6). What is then left near the runs is a small correction.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.curves import KernelCurves
from capmodel.estimators import Corrected, Roofline
from capmodel.known_pairs import (
    SINGLE,
    SMOOTH,
    Candidates,
    Learned,
    candidates_of,
    learned,
    shortest,
)
from capmodel.matern import matern, spread_out
from capmodel.regressor import ROOFLINE, LocalCorrection, TrafficRegressor, coordinates
from capmodel.roofline import (
    RooflineCoefficients,
    RooflineRegressor,
    design,
    fit_coefficients,
)

Array = npt.NDArray[np.float64]

# What runs of a pair that is fitted already scatter by; how far they were found from another
# version of the same.
SCATTER, SHIFT = 0.06, 0.15
# The correction trusts a few runs of a fitted pair less than a full table, and none of them further
# than this many times what they typically miss by: one that went wrong does not carry its like.
RIDGE, FARTHEST = 0.1, 2.0
# A run is odd that is off by this factor and by this many times what runs typically are.
ODD, ODD_TIMES = 1.5, 4.0
# Fewer rows of a pair than this are no fit of it.
FEWEST = RooflineRegressor.min_rows
# With more rows than this a new pair is fitted as any other, near the candidates they point to.
FEW = 40


def adapt_pair(
    estimator: Corrected, pair: tuple[str, str], rows: pd.DataFrame
) -> tuple[RooflineCoefficients, LocalCorrection, KernelCurves | None]:
    """Coefficients, correction and kernel curves of one engine and GPU after `rows` of it.

    rows: rows of `add_features` with `step_time_s`. A pair that is fitted already keeps its
    coefficients and curves up to one factor, and its correction gains the new rows. Raises
    ValueError for one that was adapted to fewer than FEWEST rows, which are no longer there.
    """
    known = estimator.physics.roofline.coefficients_.get(pair)
    fitted = estimator.shared is not None and pair not in estimator.apart
    if known is not None and known.n_rows < FEWEST and not fitted:
        raise ValueError(
            f"Got runs of {' on '.join(pair)}, which was adapted to {known.n_rows} before, but "
            "expected all of them at once: adapt the calibration from before to the old and new "
            "ones together, since one by one they say less"
        )
    if known is None:
        return *_new_pair(candidates_of(estimator.physics.roofline, pair), rows), None
    target, curves = rows["step_time_s"].to_numpy(float), estimator.curves.get(pair)
    missed = np.log(target / estimator.predict(rows))
    weight = len(rows) * SHIFT**2 / (len(rows) * SHIFT**2 + SCATTER**2)
    factor = float(np.exp(weight * np.median(missed)))
    found = _scaled(known, factor)
    curves = replace(curves, scale=curves.scale * factor) if curves is not None else None
    coefficients = {**estimator.physics.roofline.coefficients_, pair: found}
    base = Corrected(
        physics=Roofline(roofline=RooflineRegressor(coefficients_=coefficients)),
        correction=estimator.correction,
        curves={pair: curves} if curves is not None else {},
    ).predict(rows)
    left = np.log(target / base)
    typical = max(SCATTER, 1.4826 * float(np.median(np.abs(left))))
    heard = base * np.exp(np.clip(left, -FARTHEST * typical, FARTHEST * typical))
    local = _near(rows.assign(step_time_s=heard), base, RIDGE)
    return found, _joined(estimator.correction.corrections_.get(pair), local), curves


def _new_pair(
    candidates: Candidates, rows: pd.DataFrame
) -> tuple[RooflineCoefficients, LocalCorrection]:
    """Coefficients and correction of an engine and GPU from its rows and what others are like."""
    terms, target, points = design(rows), rows["step_time_s"].to_numpy(float), coordinates(rows)
    least = shortest(rows)
    some = spread_out(points, FEW)
    said = learned(candidates, terms[some], target[some], least[some], points[some])
    if len(some) == len(rows):
        found = _described(said, terms, target)
        base = _by(found, rows)
        return found, _kriged(said, points, np.log(target / base))
    centre = said.likely @ candidates.centres
    spread = np.sqrt(said.likely @ (candidates.spreads**2 + (candidates.centres - centre) ** 2))
    found = fit_coefficients(
        terms, target, prior=centre, spread=spread, prior_weight=1.0, scatter=said.single
    )
    return found, _near(rows, _by(found, rows), (SINGLE / SMOOTH) ** 2)


def _by(coefficients: RooflineCoefficients, rows: pd.DataFrame) -> Array:
    """Step times of one set of coefficients, never below what bandwidth and peak allow [s]."""
    roofline = RooflineRegressor(coefficients_={(): coefficients})
    return Roofline(roofline=roofline).predict(rows)


def _described(said: Learned, terms: Array, target: Array) -> RooflineCoefficients:
    """The coefficients that a few runs say, as a fit describes its own."""
    seen = terms.any(axis=0)
    scaled = terms / target[:, None]
    unit = scaled[:, seen] / np.sqrt((scaled[:, seen] ** 2).mean(axis=0))
    memory = terms[:, 1:3] @ said.values[1:3] >= terms[:, 3] * said.values[3]
    return RooflineCoefficients(
        values=tuple(map(float, said.values)), standard_errors=tuple(map(float, said.errors)),
        identified=tuple(bool(own) for own in np.atleast_1d(seen)), n_rows=len(target),
        mape=float(np.abs(scaled @ said.values - 1.0).mean()),
        condition_number=float(np.linalg.cond(unit)),
        memory_bound_rows=int(memory.sum()), compute_bound_rows=int((~memory).sum()),
    )  # fmt: skip


def _kriged(said: Learned, points: Array, missed: Array) -> LocalCorrection:
    """What is left near each run, as far as it is smooth and the run is trusted.

    A few runs speak for all models alike: they are too few to tell one model from another.
    """
    near = said.smooth**2 * matern(points, points)
    near[np.diag_indices_from(near)] += said.single**2 / said.trusted
    weights = np.asarray(said.smooth**2 * np.linalg.solve(near, missed))
    low, high = min(float(missed.min()), 0.0), max(float(missed.max()), 0.0)
    alike = np.full(len(points), "")
    return LocalCorrection(points, weights, len(points), low, high, alike)


def _near(rows: pd.DataFrame, base: Array, ridge: float) -> LocalCorrection:
    """The correction of one engine and GPU over step times `base` of its rows [s]."""
    local = TrafficRegressor(ridge=ridge, min_rows=1)
    local.fit(rows.assign(**{ROOFLINE: base}), rows["step_time_s"])
    (found,) = local.corrections_.values()
    return found


def adapted(estimator: Corrected, rows: pd.DataFrame) -> Corrected:
    """A new estimator with every engine and GPU of `rows` adapted to them."""
    coefficients = dict(estimator.physics.roofline.coefficients_)
    corrections, curves = dict(estimator.correction.corrections_), dict(estimator.curves)
    apart = set(estimator.apart)
    for key, own in rows.groupby(["engine", "gpu"], sort=True, observed=True):
        pair = (str(key[0]), str(key[1]))
        coefficients[pair], corrections[pair], changed = adapt_pair(estimator, pair, own)
        apart.add(pair)
        if changed is not None:
            curves[pair] = changed
    roofline = RooflineRegressor(
        min_rows=estimator.physics.roofline.min_rows, coefficients_=coefficients
    )
    return Corrected(
        physics=Roofline(roofline=roofline),
        correction=TrafficRegressor(corrections_=corrections),
        shared=estimator.shared,
        curves=curves,
        apart=frozenset(apart) if estimator.shared is not None else frozenset(),
    )


def odd_runs(estimator: Corrected, rows: pd.DataFrame) -> pd.Series:
    """Measured over adapted time of the runs that the others do not bear out, by row, worst first.

    estimator: adapted to `rows`, of which it follows none that stands alone.
    """
    missed = np.log(rows["step_time_s"].to_numpy(float) / estimator.predict(rows))
    typical = float(np.median(np.abs(missed)))
    odd = np.abs(missed) > max(np.log(ODD), ODD_TIMES * typical)
    found = pd.Series(np.exp(missed), index=rows.index)[odd]
    return found.iloc[np.argsort(-np.abs(missed[odd]))]


def left_out_residuals(
    estimator: Corrected, rows: pd.DataFrame, most: int = 40
) -> dict[str, Array]:
    """log(measured / predicted) of each row, adapted to the other rows of its pair; by method.

    At most `most` rows are left out in turn, evenly spread; none where there is one only.
    """
    found: dict[str, list[float]] = {"roofline": [], "regressor": []}
    places = np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))
    for place in places if len(rows) > 1 else ():
        rest, one = rows.drop(rows.index[place]), rows.iloc[[place]]
        fitted = adapted(estimator, rest)
        measured = float(one["step_time_s"].iloc[0])
        found["roofline"].append(float(np.log(measured / fitted.physics.predict(one)[0])))
        found["regressor"].append(float(np.log(measured / fitted.predict(one)[0])))
    return {method: np.array(values) for method, values in found.items()}


def _scaled(known: RooflineCoefficients, factor: float) -> RooflineCoefficients:
    return RooflineCoefficients(
        values=tuple(factor * value for value in known.values),
        standard_errors=tuple(factor * error for error in known.standard_errors),
        identified=known.identified, n_rows=known.n_rows, mape=known.mape,
        condition_number=known.condition_number, memory_bound_rows=known.memory_bound_rows,
        compute_bound_rows=known.compute_bound_rows,
    )  # fmt: skip


def _joined(before: LocalCorrection | None, new: LocalCorrection) -> LocalCorrection:
    """The sum of two corrections."""
    if before is None:
        return new
    return LocalCorrection(
        np.vstack([before.landmarks, new.landmarks]),
        np.concatenate([before.weights, new.weights]),
        before.n_rows + new.n_rows,
        before.low + min(new.low, 0.0),
        before.high + max(new.high, 0.0),
        np.concatenate([before.models, new.models]),
    )
