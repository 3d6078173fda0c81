"""Estimators that can be graded: physics, physics with a learned correction, baselines.

Each has `name`, `fit(featured, step_time_s)` and `predict(featured) -> [s]`. A new estimator is
one class and one line in ESTIMATORS.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.baselines import Nearest, RawBoosting, RawLinear
from capmodel.regressor import ROOFLINE, TrafficRegressor
from capmodel.roofline import RooflineRegressor

Array = npt.NDArray[np.float64]


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
    """The roofline with the learned correction on top; without it where no rows are near."""

    name: str = "regressor"
    physics: Roofline = field(default_factory=Roofline)
    correction: TrafficRegressor = field(default_factory=TrafficRegressor)

    def fit(self, featured: pd.DataFrame, step_time_s: Array) -> "Corrected":
        self.physics.fit(featured, step_time_s)
        self.correction.fit(self._with_roofline(featured), step_time_s)
        return self

    def predict(self, featured: pd.DataFrame) -> Array:
        return self.correction.predict(self._with_roofline(featured))

    def similarity(self, featured: pd.DataFrame) -> Array:
        """How near each row stands to fitted ones, 1 to 0, (rows,)."""
        return self.correction.correct(self._with_roofline(featured))[1]

    def _with_roofline(self, featured: pd.DataFrame) -> pd.DataFrame:
        return featured.assign(**{ROOFLINE: self.physics.predict(featured)})


ESTIMATORS: dict[str, type[Estimator]] = {
    "raw_linear": RawLinear,
    "raw_boosting": RawBoosting,
    "nearest": Nearest,
    "roofline": Roofline,
    "regressor": Corrected,
}
