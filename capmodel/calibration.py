"""A fitted model with its provenance: fit, save, load, predict, hand out a `StepTime`.

A calibration is a JSON file: readable, versioned, no code in it. Loading checks every part and
refuses a truncated, foreign or newer file by name.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.adaptation import adapted, left_out_residuals
from capmodel.arguments import COUNT, GPUS, SHARE, Span, instance, number, numbers, text
from capmodel.bands import Bands
from capmodel.coverage import Coverage, coverage_of, joined, with_known_names
from capmodel.dtypes import kv_dtype_name, weight_dtype_name
from capmodel.engines import known_engine
from capmodel.estimator_values import (
    estimator_to_dict,
    rounded,
)
from capmodel.estimators import Corrected, Roofline
from capmodel.evaluation import GradeCard, used_rows
from capmodel.gpus import Gpu, load_gpu
from capmodel.identifiability import unsure_of
from capmodel.intervals import Intervals, intervals_from, with_few_rows
from capmodel.roofline import RooflineRegressor
from capmodel.runs import runs_table
from capmodel.shapes import ModelLike, catalogue_name, load_shape
from capmodel.steptime import StepTime, build_step_time
from capmodel.suggestion import feasible_steps, suggest
from capmodel.traffic import step_traffic
from capmodel.words import one_line, shown

Array = npt.NDArray[np.float64]

FORMAT = "capmodel-calibration"
VERSION = 2
# Held-out rows that a calibration keeps for figures.
SHOWN_ROWS = 300
METHODS = ("regressor", "roofline")


class CalibrationError(ValueError):
    """A calibration file that cannot be used; the message names the file and what is wrong."""


@dataclass(frozen=True)
class Calibration:
    """Coefficients and corrections per engine and GPU, and what they were fitted on.

    name: what the fit is called. sources: `source` texts of its rows. command: how to fit it
    again. coverage: what the rows of each (engine, GPU) hold. scores: held-out errors,
    `splits` of metrics.json. evidence: what a reader may ask for besides, each where known:
    set_aside (rows by rule), noise_floor_mape, absent_splits, residuals (of some rows held out at
    random: measured_s, predicted_s, group).
    """

    name: str
    estimator: Corrected = field(repr=False)
    n_rows: int
    sources: tuple[str, ...]
    command: str
    coverage: dict[tuple[str, str], Coverage] = field(repr=False)
    intervals: Intervals | None = field(default=None, repr=False)
    scores: dict[str, Any] = field(default_factory=dict, repr=False)
    date: str = ""
    evidence: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def calibration_id(self) -> str:
        """Name and a digest of all that decides a prediction; taken once, it costs milliseconds."""
        text = json.dumps(self._fitted(), sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    @property
    def summary(self) -> pd.DataFrame:
        """Coefficients by engine and GPU, with errors, bounds and identifiability."""
        return self.estimator.physics.roofline.summary

    @property
    def unsure(self) -> dict[str, tuple[str, ...]]:
        """What the rows of each engine and GPU left open, in sentences; only where something is."""
        fitted = self.estimator.physics.roofline.coefficients_
        told = {" on ".join(key): unsure_of(own) for key, own in fitted.items() if len(key) == 2}
        return {name: sentences for name, sentences in told.items() if sentences}

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """(engine, GPU) pairs with coefficients of their own."""
        fitted = self.estimator.physics.roofline.coefficients_
        return tuple(sorted((key[0], key[1]) for key in fitted if len(key) == 2))

    def predict(self, runs: pd.DataFrame, method: str = "regressor") -> Array:
        """Step time of each row of a runs table [s], (rows,)."""
        from capmodel.features import FEATURES, add_features

        estimator, runs = self._by_method(method), with_known_names(runs_table(runs))
        if not len(runs):
            return np.empty(0)
        return estimator.predict(runs if set(FEATURES) <= set(runs.columns) else add_features(runs))

    def interval_factors(
        self, runs: pd.DataFrame, method: str = "regressor", coverage: float = 0.9
    ) -> tuple[Array, Array]:
        """(low, high) factors on `predict` at that coverage, each (rows,); NaN where unknown.

        Raises ValueError for an unknown method or a coverage that is no share.
        """
        self._by_method(method)
        coverage = number("coverage", coverage, SHARE)
        runs = with_known_names(runs_table(runs))
        low, high = np.full(len(runs), np.nan), np.full(len(runs), np.nan)
        names = ["engine", "gpu", "model", "weight_dtype", "kv_dtype", "tp"]
        labels = runs.assign(tp=runs.get("tp", 1))[names].astype(str)
        batch, context = (runs[name].to_numpy(float) for name in ("batch_size", "context_len"))
        codes = labels.groupby(names, sort=False).ngroup().to_numpy()
        for code, first in zip(*np.unique(codes, return_index=True), strict=True):
            engine, gpu, model, weight, cache, tp = labels.iloc[first].tolist()
            rows = codes == code
            bands = self._bands(
                self.estimator.physics.roofline.level(engine, gpu), method, catalogue_name(model),
                weight, cache, int(float(tp)),
            )  # fmt: skip
            found = bands and bands.factors(coverage, batch[rows], context[rows])
            if found:
                low[rows], high[rows] = found
        return low, high

    def _bands(
        self, level: tuple[str, ...], method: str, model: str, weight: str, cache: str, tp: int
    ) -> Bands | None:
        """How wide intervals of a deployment are that this roofline level answers for."""
        if self.intervals is None:
            return None
        rows = self.coverage.get((level[0], level[1])) if len(level) == 2 else None
        if rows is None:
            return self.intervals.bands(level, method, None, None)
        own = rows.own(model, weight, cache, tp)
        return self.intervals.bands(level, method, own, rows.reach)

    def step_time(
        self,
        model: ModelLike,
        gpu: "str | Gpu",
        *,
        tp: int = 1,
        pp: int = 1,
        dp: int = 1,
        weight_dtype: str = "bf16",
        kv_dtype: str = "bf16",
        engine: str | None = None,
        method: str = "regressor",
    ) -> StepTime:
        """A frozen `StepTime` of one deployment, for a simulator, planner or autoscaler.

        Raises ValueError for unknown names and for a GPU without a bandwidth figure.
        """
        self._by_method(method)
        shape, card = load_shape(model), load_gpu(gpu)
        weight, cache = weight_dtype_name(weight_dtype), kv_dtype_name(kv_dtype)
        chosen = self._engine_for(engine, card.name)
        roofline = self.estimator.physics.roofline
        level = roofline.level(chosen, card.name)
        correction = kernels = None
        if method == "regressor":
            correction = self.estimator.local(level, shape.name, card.name)
        if method == "regressor" and pp == dp == 1:
            kernels = self.estimator.kernels(level, shape, card, weight, cache, tp)
        own = self.coverage.get((level[0], level[1])) if len(level) == 2 else None
        lacks = own.lacks(shape.name, weight, cache, tp) if own is not None else ()
        bands = self._bands(level, method, shape.name, weight, cache, tp)
        return build_step_time(
            step_traffic(shape, weight, cache, tp, dp), card, roofline.coefficients_[level].values,
            peak_flops_per_s=card.matmul_flops_per_s(weight), tp=tp, pp=pp, dp=dp,
            kv_dtype=cache, correction=correction, calibration_id=self.calibration_id,
            basis=" on ".join(level) or "all engines and GPUs pooled", bands=bands,
            coverage=own, lacks=lacks, kernels=kernels,
        )  # fmt: skip

    def adapt(
        self, runs: pd.DataFrame, *, name: str | None = None, command: str = "", date: str = ""
    ) -> "Calibration":
        """A new calibration that knows the engines and GPUs of `runs`, from as few as 3 each.

        runs: a checked runs table, or rows with their features. The coefficients of a new engine
        and GPU are shrunk from those of all pairs of this one (`capmodel.adaptation`); a pair
        that is fitted already is corrected by the new rows. name: of the new calibration.
        Raises ValueError when no row is left after the checks, and for a pair that this one was
        adapted to with a few rows: all of a pair's few rows are given at once.
        """
        rows = used_rows(runs)
        intervals, coverage = self.intervals, dict(self.coverage)
        for pair, place in _positions(rows).items():
            own = rows.iloc[place]
            coverage[pair] = joined(coverage.get(pair), coverage_of(own))
            if intervals is not None:
                missed = left_out_residuals(self.estimator, own)
                intervals = with_few_rows(intervals, pair, missed)
        return replace(
            self, name=_named(name or f"{self.name}-adapted"),
            estimator=adapted(self.estimator, rows), n_rows=self.n_rows + len(rows),
            command=command, date=date, coverage=coverage,
            sources=tuple(sorted({*self.sources, *_sources(rows)})),
            intervals=intervals,
        )  # fmt: skip

    def suggest(
        self,
        model: str | Sequence[str],
        gpu: str,
        *,
        engine: str = "vllm",
        n: int = 5,
        tp: int | Sequence[int] = 1,
        weight_dtype: str = "bf16",
        kv_dtype: str = "bf16",
        runs: pd.DataFrame | None = None,
    ) -> pd.DataFrame:
        """The `n` runs of an engine and GPU that would shrink its uncertainty most, best first.

        model, tp: one or several to choose from. runs: a runs table of what is measured already.
        Columns: what describes a run, and `typical_error`, the root mean variance of all feasible
        steps once it is made, as a share of the step time; `attrs["typical_error"]` is the one
        before. Raises ValueError for unknown names and where nothing fits in memory.
        """
        n = number("n", n, Span("1 to 100 runs", 1, 100, whole=True))
        models = [text("model", one, "a name") for one in _several(model)]
        card, known_as = load_gpu(gpu), known_engine(text("engine", engine, "an engine's name"))
        degrees = np.unique(numbers("tp", tp, GPUS)).astype(int).tolist()
        steps = feasible_steps(
            models, card, str(known_as), degrees, weight_dtype_name(weight_dtype),
            kv_dtype_name(kv_dtype),
        )  # fmt: skip
        known = None
        if runs is not None:
            used = used_rows(runs)
            known = used[(used["engine"] == known_as) & (used["gpu"] == card.name)]
        return suggest(self.estimator.physics, steps, n, known)

    def covers(self, engine: str | None, gpu: str) -> int:
        """How closely rows back this engine and GPU: 3 the pair, 2 the GPU, 1 the engine, 0."""
        pairs = self.pairs
        if engine is not None:
            if (engine, gpu) in pairs:
                return 3
            return 1 if (engine,) in self.estimator.physics.roofline.coefficients_ else 0
        return 2 if any(card == gpu for _, card in pairs) else 0

    def save(self, path: str | Path) -> None:
        """Write the calibration as JSON, whole or not at all. Raises CalibrationError."""
        target = file_path(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            partial.write_text(json.dumps(self.to_dict(), indent=1), encoding="utf-8")
            partial.replace(target)
        except OSError as error:
            partial.unlink(missing_ok=True)
            why = one_line(error.strerror or error)
            raise CalibrationError(
                f"calibration {one_line(path)} cannot be written: {why}; name a file in a folder "
                "that is there"
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """The file's content."""
        return {
            "format": FORMAT, "version": VERSION, "calibration_id": self.calibration_id,
            "name": self.name, "date": self.date, "rows": self.n_rows,
            "sources": list(self.sources), "command": self.command,
            "scores": self.scores, "evidence": self.evidence, **self._fitted(),
        }  # fmt: skip

    def _fitted(self) -> dict[str, Any]:
        return {
            **estimator_to_dict(self.estimator),
            "coverage": [
                {"engine": pair[0], "gpu": pair[1], **own.to_dict()}
                for pair, own in sorted(self.coverage.items())
            ],
            "intervals": self.intervals.to_dict() if self.intervals else None,
        }

    def _by_method(self, method: str) -> "Corrected | Roofline":
        if method not in METHODS:
            raise ValueError(f"Got method {method!r}, but expected {' or '.join(METHODS)}")
        return self.estimator if method == "regressor" else self.estimator.physics

    def _engine_for(self, engine: str | None, gpu: str) -> str | None:
        """The engine asked for, by its rows' name, or the one with most rows on that GPU."""
        fitted = self.estimator.physics.roofline.coefficients_
        if engine is not None:
            known = known_engine(engine)
            asked = engine.strip().lower()
            return asked if any(level[:1] == (asked,) for level in fitted) else known
        rows = {pair: fitted[pair].n_rows for pair in self.pairs if pair[1] == gpu}
        return max(rows, key=lambda pair: rows[pair])[0] if rows else None

    def __repr__(self) -> str:
        return f"Calibration({self.name!r}, {self.n_rows} rows, {len(self.pairs)} engine-GPU pairs)"


def fit(
    runs: pd.DataFrame,
    *,
    name: str = "calibration",
    command: str = "",
    grade_card: GradeCard | None = None,
    date: str = "",
    min_rows: int = 12,
    set_aside: Mapping[str, int] | None = None,
) -> Calibration:
    """Fit a calibration on the rows of `runs` that no check sets aside.

    runs: a checked runs table, or rows that already have their features. grade_card: held-out
    predictions of the same rows; intervals are taken from them. name, command, date: recorded as
    provenance. min_rows: an engine and GPU with fewer rows takes coefficients of a wider level.
    set_aside: rows by rule that the checks took out before, for the record.
    Raises ValueError when no row is left, FitError when the rows cannot identify anything.
    """
    min_rows, name = number("min_rows", min_rows, COUNT), _named(name)
    if grade_card is not None:
        instance("grade_card", grade_card, GradeCard)
    rows = used_rows(runs)
    estimator = Corrected(physics=Roofline(roofline=RooflineRegressor(min_rows=min_rows)))
    estimator.fit(rows, rows["step_time_s"].to_numpy(float))
    coverage = {pair: coverage_of(rows.iloc[where]) for pair, where in _positions(rows).items()}
    return Calibration(
        name=name, estimator=estimator, n_rows=len(rows), sources=_sources(rows), command=command,
        coverage=coverage, date=date,
        intervals=intervals_from(grade_card) if grade_card is not None else None,
        scores=grade_card.to_dict() if grade_card is not None else {},
        evidence=_evidence(grade_card, set_aside),
    )  # fmt: skip


def _named(name: object) -> str:
    """A calibration's name on one line, as its file will hold it. Raises ValueError."""
    return one_line(text("name", name, "a text"))


def _several(model: str | Sequence[str]) -> Sequence[str]:
    return model if isinstance(model, list | tuple) else (model,)


def _sources(rows: pd.DataFrame) -> tuple[str, ...]:
    return tuple(sorted(set(rows["source"].astype(str)))) if "source" in rows else ()


def _evidence(card: GradeCard | None, set_aside: Mapping[str, int] | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if set_aside is None else {"set_aside": dict(set_aside)}
    if card is None:
        return found
    found |= {"noise_floor_mape": card.noise_floor_mape, "absent_splits": card.absent}
    cell = card.cell("random", "regressor")
    if len(cell):
        some = cell.iloc[np.unique(np.linspace(0, len(cell) - 1, SHOWN_ROWS).astype(int))]
        found["residuals"] = {
            "measured_s": [rounded(value) for value in some["step_time_s"]],
            "predicted_s": [rounded(value) for value in some["predicted_s"]],
            "group": [f"{e} on {g}" for e, g in zip(some["engine"], some["gpu"], strict=True)],
        }
    return found


def file_path(path: object) -> Path:
    """`path` of a file. Raises CalibrationError."""
    if not isinstance(path, str | Path) or not Path(path).name or "\0" in str(path):
        raise CalibrationError(f"Got path={shown(path)}, but expected the name of a file")
    return Path(path)


def _positions(rows: pd.DataFrame) -> dict[tuple[str, str], npt.NDArray[np.intp]]:
    names = rows["engine"].astype(str) + "\0" + rows["gpu"].astype(str)
    found = names.groupby(names.to_numpy()).indices
    return {
        (str(name).partition("\0")[0], str(name).partition("\0")[2]): np.asarray(where)
        for name, where in found.items()
    }
