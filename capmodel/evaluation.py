"""Splits x estimators: held-out errors, every split side by side, beside the noise floor."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from capmodel.conformal import cross_bounds
from capmodel.coverage import with_known_names
from capmodel.estimators import ESTIMATORS
from capmodel.features import FEATURES
from capmodel.quality import noise_floor_mape, screen_runs, split_aside
from capmodel.runs import runs_table
from capmodel.splits import SPLITS, Rows, split_named, split_runs, why_absent

Array = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]

# What a split's held-out rows are new in: the unit its intervals have to cover.
UNIT_OF_SPLIT = {"deployment": "model", "model": "model", "gpu": "gpu"}
_LABELS = ("engine", "gpu", "model")

METRICS = ("mape", "median_ape", "p90_ape", "bias", "r2", "r2_log", "coverage_90", "n")


@dataclass(frozen=True, slots=True)
class GradeCard:
    """Held-out errors.

    table: one row per split and estimator, columns `split`, `estimator` and METRICS.
    absent: splits the rows cannot make, with the reason. held_out: predictions of every held-out
    row, columns `split`, `estimator`, `row` (position), `fold`, `engine`, `gpu`, `model`,
    `step_time_s`, `predicted_s`, and the 90 % interval `low_s`, `high_s` that the rows of the
    other folds support. `coverage_90` is the share of rows inside it.
    """

    table: pd.DataFrame
    absent: dict[str, str]
    noise_floor_mape: float | None
    n_rows: int
    seed: int
    held_out: pd.DataFrame = field(repr=False)

    def to_dict(self) -> dict[str, object]:
        """`splits` of metrics.json: split -> estimator -> metric."""
        found: dict[str, dict[str, dict[str, float | None]]] = {}
        for row in self.table.to_dict("records"):
            scores = {name: _plain(row[name]) for name in METRICS}
            found.setdefault(str(row["split"]), {})[str(row["estimator"])] = scores
        return dict(found)

    def cell(self, split: str, estimator: str) -> pd.DataFrame:
        """Held-out predictions of one estimator on one split."""
        held = self.held_out
        return held[(held["split"] == split) & (held["estimator"] == estimator)]

    def by(
        self, split: str, estimator: str, columns: list[str], runs: pd.DataFrame
    ) -> pd.DataFrame:
        """Errors of one cell of the card, by `columns` of the graded rows `runs`."""
        cell = self.cell(split, estimator)
        rows = runs.iloc[cell["row"].to_numpy()][columns].reset_index(drop=True)
        error = np.abs(cell["predicted_s"] / cell["step_time_s"] - 1).to_numpy()
        inside = _inside(cell).to_numpy()
        grouped = rows.assign(ape=error, inside=inside).groupby(columns, observed=True)
        return grouped.agg(
            mape=("ape", "mean"), median_ape=("ape", "median"),
            coverage_90=("inside", "mean"), n=("ape", "size"),
        ).reset_index()  # fmt: skip


def score(step_time_s: Array, predicted_s: Array) -> dict[str, float]:
    """METRICS of predictions, fractions; `r2` on seconds, `r2_log` on log seconds.

    Raises ValueError when the arrays differ in length or are empty.
    """
    actual, predicted = np.asarray(step_time_s, float), np.asarray(predicted_s, float)
    if actual.shape != predicted.shape or not len(actual):
        raise ValueError(
            f"Got {len(actual)} measured and {len(predicted)} predicted times, but expected as "
            "many of each and at least one"
        )
    error = predicted / actual - 1.0
    log_actual, log_predicted = np.log(actual), np.log(np.maximum(predicted, 1e-12))
    return {
        "mape": float(np.abs(error).mean()),
        "median_ape": float(np.median(np.abs(error))),
        "p90_ape": float(np.quantile(np.abs(error), 0.9)),
        "bias": float(error.mean()),
        "r2": _r2(actual, predicted),
        "r2_log": _r2(log_actual, log_predicted),
        "coverage_90": float("nan"),
        "n": float(len(actual)),
    }


def cross_validate(
    featured: pd.DataFrame,
    *,
    splits: Iterable[str] | None = None,
    estimators: Iterable[str] | None = None,
    folds: int = 5,
    seed: int = 0,
    progress: Progress | None = None,
    threads: int = 2,
) -> GradeCard:
    """Grade estimators on every split the rows can make.

    featured: used rows, with the columns of FEATURES and `step_time_s`. progress is called with
    a label, the folds done and all folds. Every estimator is fitted on the training side of a
    fold alone, its tuning included.
    """
    rows = featured.reset_index(drop=True)
    target = rows["step_time_s"].to_numpy(float)
    names = list(estimators or ESTIMATORS)
    absent: dict[str, str] = {}
    jobs: list[tuple[str, str, int, Rows, Rows]] = []
    for name in splits or [split.name for split in SPLITS]:
        reason = why_absent(rows, split_named(name), folds)
        if reason:
            absent[name] = reason
            continue
        for fold, (train, test) in enumerate(split_runs(rows, name, folds, seed)):
            jobs += [(name, estimator, fold, train, test) for estimator in names]

    def run(job: tuple[str, str, int, Rows, Rows]) -> pd.DataFrame:
        split, estimator, fold, train, test = job
        fitted = ESTIMATORS[estimator]()
        fitted.fit(rows.iloc[train], target[train])
        held = rows.iloc[test]
        return _predictions(split, estimator, held, fitted.predict(held), test, fold)

    # Two threads that import scikit-learn at the same moment meet it half loaded.
    import_module("sklearn.linear_model")
    parts: list[pd.DataFrame] = []
    # The folds are what runs side by side: matrix products with threads of their own, many and
    # small here, only get in their way.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(max_workers=threads) as pool:
        for done, part in enumerate(pool.map(run, jobs), start=1):
            parts.append(part)
            if progress is not None:
                progress(f"{jobs[done - 1][0]} split, {jobs[done - 1][1]}", done, len(jobs))
    held_out = _with_intervals(parts) if parts else _no_predictions()
    return GradeCard(
        table=_card(held_out, names), absent=absent, n_rows=len(rows), seed=seed,
        noise_floor_mape=noise_floor_mape(featured), held_out=held_out,
    )  # fmt: skip


def grade_test(
    featured: pd.DataFrame, test: pd.DataFrame, *, estimators: Iterable[str] | None = None
) -> GradeCard:
    """Fit on all of `featured`, grade on `test`; the split is called "test"."""
    target = featured["step_time_s"].to_numpy(float)
    parts = []
    names = list(estimators or ESTIMATORS)
    for name in names:
        fitted = ESTIMATORS[name]()
        fitted.fit(featured, target)
        parts.append(_predictions("test", name, test, fitted.predict(test)))
    held_out = pd.concat(parts, ignore_index=True)
    return GradeCard(_card(held_out, names), {}, noise_floor_mape(test), len(test), 0, held_out)


def grade_predictions(
    test: pd.DataFrame,
    predicted: dict[str, Array],
    bounds: dict[str, tuple[Array, Array]] | None = None,
) -> GradeCard:
    """Grade ready predictions, by estimator name, without fitting; the split is called "test".

    bounds: (low, high) of the 90 % interval by estimator name, as factors, each (rows,).
    """
    parts = [_predictions("test", name, test, values) for name, values in predicted.items()]
    for part, (name, values) in zip(parts, predicted.items(), strict=True):
        if bounds and name in bounds:
            part["low_s"], part["high_s"] = (values * factor for factor in bounds[name])
    held_out = pd.concat(parts, ignore_index=True)
    card = _card(held_out, list(predicted))
    return GradeCard(card, {}, noise_floor_mape(test), len(test), 0, held_out)


class Predictor(Protocol):
    """What `grade` needs of a calibration."""

    def predict(self, runs: pd.DataFrame, method: str = "regressor") -> Array: ...

    def interval_factors(
        self, runs: pd.DataFrame, method: str = "regressor", coverage: float = 0.9
    ) -> tuple[Array, Array]: ...


def grade(
    runs: pd.DataFrame,
    test: pd.DataFrame | None = None,
    calibration: Predictor | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """The grade card as a table: one row per split and estimator, columns METRICS.

    runs: a checked runs table. Without test and calibration it is cross-validated on every split
    it can make; with test it is fitted and `test` graded; with calibration it is graded without
    any fit. seed: of the splits. progress: called with a label, the folds done and all folds.
    Rows that a check sets aside are in neither. Raises ValueError for both at once.
    """
    if test is not None and calibration is not None:
        raise ValueError("Got both test and calibration, but expected one of them at most")
    if calibration is not None:
        return grade_calibration(used_rows(runs), calibration).table
    if test is not None:
        return grade_test(used_rows(runs), used_rows(test)).table
    return cross_validate(used_rows(runs), seed=seed, progress=progress).table


def grade_calibration(rows: pd.DataFrame, calibration: Predictor) -> GradeCard:
    """Grade a calibration's predictions and intervals on rows with their features."""
    names = ("roofline", "regressor")
    return grade_predictions(
        rows,
        {name: calibration.predict(rows, name) for name in names},
        {name: calibration.interval_factors(rows, name) for name in names},
    )


def used_rows(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of a checked runs table that no check sets aside, with their features."""
    if set(FEATURES) <= set(runs_table(runs).columns):
        used, aside = split_aside(runs)
    else:
        screened = screen_runs(runs)
        used, aside = screened.used, screened.aside
    if not len(runs):
        raise ValueError("Got a runs table without rows, but expected at least one")
    if not len(used):
        raise ValueError(
            f"none of the {len(runs)} rows can be used; the first was set aside by "
            f"{aside['rule'].iloc[0]}: {aside['reason'].iloc[0]}"
        )
    return with_known_names(used.reset_index(drop=True))


def _predictions(
    split: str, name: str, held: pd.DataFrame, predicted: Array, row: Rows | None = None,
    fold: int = 0,
) -> pd.DataFrame:  # fmt: skip
    labels = {
        label: held[label].astype(str).to_numpy() if label in held else "" for label in _LABELS
    }
    return pd.DataFrame({
        "split": split, "estimator": name, "row": np.arange(len(held)) if row is None else row,
        "fold": fold, **labels, "step_time_s": held["step_time_s"].to_numpy(float),
        "predicted_s": predicted, "low_s": np.nan, "high_s": np.nan,
    })  # fmt: skip


def _with_intervals(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """All held-out rows, each with the interval that the rows of the other folds support."""
    held = pd.concat(parts, ignore_index=True)
    for (split, _), cell in held.groupby(["split", "estimator"], sort=False):
        residual = np.log(cell["step_time_s"] / np.maximum(cell["predicted_s"], 1e-12))
        unit = UNIT_OF_SPLIT.get(str(split))
        low, high = cross_bounds(
            residual.to_numpy(float), cell["fold"].to_numpy(),
            cell.groupby(["engine", "gpu"]).ngroup().to_numpy(), 0.9,
            cell.groupby(unit).ngroup().to_numpy() if unit else None,
        )  # fmt: skip
        held.loc[cell.index, "low_s"] = cell["predicted_s"] * np.exp(low)
        held.loc[cell.index, "high_s"] = cell["predicted_s"] * np.exp(high)
    return held


def _inside(cell: pd.DataFrame) -> pd.Series:
    """Whether each row lies in its interval, (rows,); NaN where it has none."""
    inside = (cell["step_time_s"] >= cell["low_s"]) & (cell["step_time_s"] <= cell["high_s"])
    return inside.astype(float).where(cell["low_s"].notna())


def _no_predictions() -> pd.DataFrame:
    return pd.DataFrame(columns=["split", "estimator", "row", "fold", *_LABELS, "step_time_s",
                                 "predicted_s", "low_s", "high_s"])  # fmt: skip


def _card(held_out: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    order = {split.name: place for place, split in enumerate(SPLITS)}
    rows = []
    for (split, estimator), cell in held_out.groupby(["split", "estimator"]):
        scores = score(cell["step_time_s"].to_numpy(float), cell["predicted_s"].to_numpy(float))
        scores["coverage_90"] = float(_inside(cell).mean())
        rows.append({"split": split, "estimator": estimator, **scores})
    table = pd.DataFrame(rows, columns=["split", "estimator", *METRICS])
    table["n"] = table["n"].astype(int)
    place = table["split"].map(lambda name: order.get(str(name), 99))
    rank = table["estimator"].map({name: place for place, name in enumerate(names)})
    order_of = pd.DataFrame({"place": place, "rank": rank}).sort_values(["place", "rank"]).index
    return table.loc[order_of].reset_index(drop=True)


def _r2(actual: Array, predicted: Array) -> float:
    spread = float(((actual - actual.mean()) ** 2).sum())
    return 1.0 - float(((actual - predicted) ** 2).sum()) / spread if spread else float("nan")


def _plain(value: object) -> float | None:
    if isinstance(value, int):
        return value
    number = float(value)  # type: ignore[arg-type]
    return None if number != number else number
