"""Estimators that can be graded: physics, physics with a learned correction, baselines.

Each has `name`, `fit(featured, step_time_s)` and `predict(featured) -> [s]`. A new estimator is
one class and one line in ESTIMATORS.
"""

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.baselines import Nearest, RawBoosting, RawLinear
from capmodel.pooling import (
    SharedCorrection,
    pooled_coefficients,
    shared_correction,
    versions_mixed,
)
from capmodel.regressor import ROOFLINE, LocalCorrection, TrafficRegressor
from capmodel.roofline import RooflineRegressor
from capmodel.splits import split_named, split_runs, why_absent

Array = npt.NDArray[np.float64]

# Folds of deployments that decide between pooled and separate pairs.
INNER_FOLDS = 3


class Estimator(Protocol):
    """What the grade card needs."""

    name: str

    def fit(self, featured: pd.DataFrame, step_time_s: Array) -> object: ...

    def predict(self, featured: pd.DataFrame) -> Array: ...


@dataclass
class Roofline:
    """The roofline, never below what bandwidth or peak FLOP/s allow."""

    name: str = "roofline"
    roofline: RooflineRegressor = field(default_factory=RooflineRegressor)

    def fit(self, featured: pd.DataFrame, step_time_s: Array) -> "Roofline":
        self.roofline.fit(featured, step_time_s)
        return self

    def predict(self, featured: pd.DataFrame) -> Array:
        least = self.roofline.predict(featured)
        least = np.fmax(least, featured["floor_s"].to_numpy(float))
        computed = featured["flop_s"].to_numpy(float)
        if "prefill_s" in featured:
            computed = computed + featured["prefill_s"].to_numpy(float)
        return np.fmax(least, computed)


@dataclass
class Corrected:
    """The roofline with the learned correction on top; without it where no rows are near.

    Where rows of an engine and GPU mix engine versions, coefficients and correction pooled over
    all pairs (`capmodel.pooling`) are tried beside those of each pair, on deployments held out of
    the rows it is given, and the better of the two is kept. Then `shared` is set, and
    `correction` holds what it says of each pair where the version is not told.
    """

    name: str = "regressor"
    physics: Roofline = field(default_factory=Roofline)
    correction: TrafficRegressor = field(default_factory=TrafficRegressor)
    shared: SharedCorrection | None = None

    def fit(self, featured: pd.DataFrame, step_time_s: Array) -> "Corrected":
        if versions_mixed(featured) and self._pooling_wins(featured, step_time_s):
            return self._fit_pooled(featured, step_time_s)
        return self._fit_apart(featured, step_time_s)

    def predict(self, featured: pd.DataFrame) -> Array:
        rows = self._with_roofline(featured)
        if self.shared is None:
            return self.correction.predict(rows)
        return np.asarray(rows[ROOFLINE].to_numpy(float) * np.exp(self.shared(rows)[0]))

    def similarity(self, featured: pd.DataFrame) -> Array:
        """How near each row stands to fitted ones, 1 to 0, (rows,)."""
        rows = self._with_roofline(featured)
        return (self.shared(rows) if self.shared is not None else self.correction.correct(rows))[1]

    def local(self, level: tuple[str, ...], gpu: str) -> LocalCorrection | None:
        """The correction at a roofline level for a GPU, engine version not told; None: none."""
        if len(level) == 2:
            return self.correction.corrections_.get((level[0], level[1]))
        engine = level[0] if level else ""
        return self.shared.local(engine, gpu) if self.shared is not None else None

    def _fit_apart(self, featured: pd.DataFrame, step_time_s: Array) -> "Corrected":
        self.physics.fit(featured, step_time_s)
        self.correction.fit(self._with_roofline(featured), step_time_s)
        self.shared = None
        return self

    def _fit_pooled(self, featured: pd.DataFrame, step_time_s: Array) -> "Corrected":
        roofline = self.physics.roofline
        roofline.coefficients_ = pooled_coefficients(featured, step_time_s)
        self.shared = shared_correction(self._with_roofline(featured), step_time_s)
        self.correction.corrections_ = {
            (key[0], key[1]): self.shared.local(key[0], key[1])
            for key in roofline.coefficients_ if len(key) == 2
        }  # fmt: skip
        return self

    def _pooling_wins(self, featured: pd.DataFrame, step_time_s: Array) -> bool:
        """Whether pooling has the smaller mean relative error on deployments held out."""
        if why_absent(featured, split_named("deployment"), INNER_FOLDS):
            return False
        apart, pooled = 0.0, 0.0
        for train, test in split_runs(featured, "deployment", INNER_FOLDS):
            rows, held, seconds = featured.iloc[train], featured.iloc[test], step_time_s[train]
            one, other = self._unfitted(), self._unfitted()
            one._fit_apart(rows, seconds)
            other._fit_pooled(rows, seconds)
            apart += float(np.abs(one.predict(held) / step_time_s[test] - 1).sum())
            pooled += float(np.abs(other.predict(held) / step_time_s[test] - 1).sum())
        return pooled < apart

    def _unfitted(self) -> "Corrected":
        return Corrected(
            physics=Roofline(roofline=replace(self.physics.roofline, coefficients_={})),
            correction=replace(self.correction, corrections_={}),
        )

    def _with_roofline(self, featured: pd.DataFrame) -> pd.DataFrame:
        return featured.assign(**{ROOFLINE: self.physics.predict(featured)})


ESTIMATORS: dict[str, type[Estimator]] = {
    "raw_linear": RawLinear,
    "raw_boosting": RawBoosting,
    "nearest": Nearest,
    "roofline": Roofline,
    "regressor": Corrected,
}
