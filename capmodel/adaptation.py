"""A new GPU or engine from a few runs: coefficients and correction shrunk from all that is known.

A handful of runs cannot tell a dozen coefficients apart. Those of a new engine and GPU are taken
to lie where those of the pairs already fitted lie, as far apart as these are from each other
(the datasheet's figures are inside the terms), and the runs move them from there (ridge towards
the median, PHYSICS section 6). What is then left near the runs is a small correction.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.curves import KernelCurves
from capmodel.estimators import Corrected, Roofline
from capmodel.regressor import ROOFLINE, LocalCorrection, TrafficRegressor
from capmodel.roofline import (
    PRIOR,
    SPREAD,
    RooflineCoefficients,
    RooflineRegressor,
    design,
    fit_coefficients,
)

Array = npt.NDArray[np.float64]

# What a few runs scatter by around the best coefficients; their own scatter says nothing yet.
SCATTER = 0.06
# How far the runs of one engine and GPU were found from another version of the same.
SHIFT = 0.15
# The correction trusts a few runs less than a full table.
RIDGE = 0.1
FEWEST = 3
# However alike the pairs are, a new one may differ by this share of the textbook spread.
LOOSEST = 0.1


@dataclass(frozen=True, slots=True)
class Prior:
    """Where coefficients of a new engine and GPU are expected, and how far off, (terms,) each."""

    centre: Array
    spread: Array


def prior_of(roofline: RooflineRegressor, but: tuple[str, str] | None = None) -> Prior:
    """Median and scatter of the coefficients of fitted pairs, without the pair `but`.

    Of the pairs of its engine where there are three, else of all: an engine's habits go with it to
    a new GPU. With fewer than three in all the textbook prior of `roofline.TERMS` stands in.
    """
    pairs = {key: fit.values for key, fit in roofline.coefficients_.items() if len(key) == 2}
    others = [values for key, values in pairs.items() if key != but]
    own = [values for key, values in pairs.items() if but and key != but and key[0] == but[0]]
    fitted = own if len(own) >= FEWEST else others
    if len(fitted) < FEWEST:
        return Prior(PRIOR, SPREAD)
    values = np.array(fitted)
    centre = np.median(values, axis=0)
    scatter = 1.4826 * np.median(np.abs(values - centre), axis=0)
    return Prior(centre, np.maximum(scatter, LOOSEST * SPREAD))


def adapt_pair(
    estimator: Corrected, pair: tuple[str, str], rows: pd.DataFrame
) -> tuple[RooflineCoefficients, LocalCorrection, KernelCurves | None]:
    """Coefficients, correction and kernel curves of one engine and GPU after `rows` of it.

    rows: rows of `add_features` with `step_time_s`. A pair that is fitted already keeps its
    coefficients and curves up to one factor, and its correction gains the new rows.
    """
    roofline = estimator.physics.roofline
    target = rows["step_time_s"].to_numpy(float)
    known, curves = roofline.coefficients_.get(pair), estimator.curves.get(pair)
    if known is None:
        found = _shrunk(design(rows), target, prior_of(roofline, pair))
    else:
        missed = np.log(target / estimator.predict(rows))
        weight = len(rows) * SHIFT**2 / (len(rows) * SHIFT**2 + SCATTER**2)
        factor = float(np.exp(weight * np.median(missed)))
        found = _scaled(known, factor)
        curves = replace(curves, scale=curves.scale * factor) if curves is not None else None
    changed = RooflineRegressor(coefficients_={**roofline.coefficients_, pair: found})
    physics = Roofline(roofline=changed)
    before = estimator.correction if known is not None else TrafficRegressor()
    of_pair = {pair: curves} if curves is not None else {}
    base = Corrected(physics=physics, correction=before, curves=of_pair).predict(rows)
    local = TrafficRegressor(ridge=RIDGE, min_rows=1)
    local.fit(rows.assign(**{ROOFLINE: base}), target)
    return found, _joined(before.corrections_.get(pair), local.corrections_[pair]), curves


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


def _shrunk(terms: Array, target: Array, prior: Prior) -> RooflineCoefficients:
    return fit_coefficients(
        terms, target, prior=prior.centre, spread=prior.spread, prior_weight=1.0,
        robust=len(target) >= 8, scatter=SCATTER,
    )  # fmt: skip


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
    )
