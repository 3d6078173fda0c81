"""Estimators that can be graded: physics, physics with a learned correction, baselines.

Each has `name`, `fit(featured, step_time_s)` and `predict(featured) -> [s]`. A new estimator is
one class and one line in ESTIMATORS.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.baselines import Nearest, RawBoosting, RawLinear
from capmodel.curves import KernelCurves
from capmodel.gpus import Gpu
from capmodel.kernel_rows import contested, corrected_by, curves_of, steady
from capmodel.operators import operators
from capmodel.pooling import (
    SharedCorrection,
    pooled_coefficients,
    shared_correction,
    versions_mixed,
)
from capmodel.regressor import ROOFLINE, LocalCorrection, TrafficRegressor, pairs_of
from capmodel.roofline import RooflineRegressor
from capmodel.shapes import ModelShape
from capmodel.splits import split_named, split_runs, why_absent
from capmodel.step_kernels import kernels_of

Array = npt.NDArray[np.float64]

# Folds of deployments that decide between pooled and separate pairs.
INNER_FOLDS = 3
# Held-out rows after which it is decided whether curves win, folds left or not.
ENOUGH_HELD_OUT = 400


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


Fit = Callable[["Corrected", pd.DataFrame, Array], "Corrected"]


@dataclass
class Corrected:
    """The roofline with the learned correction on top; without it where no rows are near.

    Steps without prompts inside are a sum of kernels. There curves of each kind of kernel
    (`capmodel.curves`) are tried in place of the correction, on deployments held out of the rows
    it is given, and kept where they win. Where rows of an engine and GPU mix engine versions,
    coefficients and correction pooled over all pairs (`capmodel.pooling`) are tried beside those
    of each pair in the same way, and the better of the two is kept. Then `shared` is set, and
    `correction` holds what it says of each pair where the version is not told.
    """

    name: str = "regressor"
    physics: Roofline = field(default_factory=Roofline)
    correction: TrafficRegressor = field(default_factory=TrafficRegressor)
    shared: SharedCorrection | None = None
    curves: dict[tuple[str, str], KernelCurves] = field(default_factory=dict, repr=False)
    apart: frozenset[tuple[str, str]] = frozenset()

    def fit(self, featured: pd.DataFrame, step_time_s: Array) -> "Corrected":
        fit, self.apart = Corrected._fit_apart, frozenset()
        if versions_mixed(featured) and self._wins(Corrected._fit_pooled, featured, step_time_s):
            fit = Corrected._fit_pooled
        elif steady(featured).all():
            some = contested(featured)
            own, seconds = featured.iloc[some], step_time_s[some]
            if self._wins(Corrected._fit_curves, own, seconds, ENOUGH_HELD_OUT):
                fit = Corrected._fit_curves
        return fit(self, featured, step_time_s)

    def predict(self, featured: pd.DataFrame) -> Array:
        rows = self._with_roofline(featured)
        if self.shared is None:
            return self.correction.predict(
                rows.assign(**{ROOFLINE: self._with_curves(rows, judged=False)[0]})
            )
        return np.asarray(rows[ROOFLINE].to_numpy(float) * np.exp(self._by_shared(rows)[0]))

    def similarity(self, featured: pd.DataFrame) -> Array:
        """How near each row stands to fitted ones, 1 to 0, (rows,)."""
        rows = self._with_roofline(featured)
        if self.shared is not None:
            return self._by_shared(rows)[1]
        return np.maximum(self.correction.correct(rows)[1], self._with_curves(rows)[1])

    def kernels(
        self, level: tuple[str, ...], shape: ModelShape, gpu: Gpu, weight_dtype: str,
        kv_dtype: str, tp: int,
    ) -> Callable[[Array, Array, Array], Array] | None:  # fmt: skip
        """The factor that kernel curves put on steps of (n,) sequences, tokens of each, and
        roofline seconds; None where the level or the shape has no curves.
        """
        own = self.curves.get((level[0], level[1])) if len(level) == 2 else None
        known = operators(shape, gpu, weight_dtype, kv_dtype, tp) if own is not None else ()
        if own is None or not known:
            return None

        def factor(batch: Array, context_len: Array, roofline_s: Array) -> Array:
            steps = kernels_of([known], np.zeros(len(batch), dtype=np.intp), batch, context_len)
            return own.factor(own.seconds(steps, len(batch))[0], roofline_s)

        return factor

    def local(self, level: tuple[str, ...], model: str, gpu: str) -> LocalCorrection | None:
        """The correction at a roofline level for a model on a GPU, engine version not told."""
        if len(level) == 2:
            own = self.correction.corrections_.get((level[0], level[1]))
            return own.of(model) if own is not None else None
        engine = level[0] if level else ""
        return self.shared.local(engine, gpu) if self.shared is not None else None

    def _fit_apart(self, featured: pd.DataFrame, step_time_s: Array) -> "Corrected":
        self.physics.fit(featured, step_time_s)
        self.correction.fit(self._with_roofline(featured), step_time_s)
        self.shared, self.curves = None, {}
        return self

    def _fit_curves(self, featured: pd.DataFrame, step_time_s: Array) -> "Corrected":
        """Curves of kernels where an engine and GPU has rows enough, else what `apart` does."""
        self.physics.fit(featured, step_time_s)
        rows = self._with_roofline(featured)
        self.curves, others = curves_of(rows, step_time_s)
        self.correction.fit(rows.iloc[others], step_time_s[others])
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

    def _wins(
        self, fit: Fit, featured: pd.DataFrame, step_time_s: Array, enough: float = np.inf
    ) -> bool:
        """Whether `fit` has a smaller mean relative error on deployments held out than `apart`.

        enough: held-out rows after which no further fold is looked at.
        """
        if why_absent(featured, split_named("deployment"), INNER_FOLDS):
            return False
        apart, rival, seen = 0.0, 0.0, 0
        for train, test in split_runs(featured, "deployment", INNER_FOLDS):
            rows, held, seconds = featured.iloc[train], featured.iloc[test], step_time_s[train]
            one, other = self._unfitted(), self._unfitted()
            one._fit_apart(rows, seconds)
            fit(other, rows, seconds)
            apart += float(np.abs(one.predict(held) / step_time_s[test] - 1).sum())
            rival += float(np.abs(other.predict(held) / step_time_s[test] - 1).sum())
            seen += len(test)
            if seen >= enough:
                break
        return rival < apart

    def _unfitted(self) -> "Corrected":
        return Corrected(
            physics=Roofline(roofline=replace(self.physics.roofline, coefficients_={})),
            correction=replace(self.correction, corrections_={}),
        )

    def _by_shared(self, rows: pd.DataFrame) -> tuple[Array, Array]:
        """Log correction and similarity where pairs share one, (rows,) each."""
        assert self.shared is not None  # noqa: S101
        value, near = self.shared(rows)
        for pair, own in pairs_of(rows) if self.apart else ():
            if pair in self.apart:
                value[own], near[own] = self.correction.correct(rows.iloc[own])
        return value, near

    def _with_curves(self, rows: pd.DataFrame, judged: bool = True) -> tuple[Array, Array]:
        """The roofline times what curves say [s], and how near fitted kernels are, (rows,)."""
        return corrected_by(self.curves, rows, judged)

    def _with_roofline(self, featured: pd.DataFrame) -> pd.DataFrame:
        return featured.assign(**{ROOFLINE: self.physics.predict(featured)})


ESTIMATORS: dict[str, type[Estimator]] = {
    "raw_linear": RawLinear,
    "raw_boosting": RawBoosting,
    "nearest": Nearest,
    "roofline": Roofline,
    "regressor": Corrected,
}
