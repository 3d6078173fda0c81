"""What the physics has to beat: estimators on the columns of the runs table as they are.

All three read only what an analyst's table holds before any feature is built.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.runs import RUNS

Array = npt.NDArray[np.float64]

_NEVER = {"run_id", "source", "step_time_s", "throughput_tok_s", "ttft_s", "tpot_s", "e2e_s",
          "flags", "step_time_definition", "engine_version"}  # fmt: skip
RAW_TEXT = tuple(c.name for c in RUNS if c.kind == "text" and c.name not in _NEVER)
RAW_NUMBERS = tuple(c.name for c in RUNS if c.kind != "text" and c.name not in _NEVER)


def raw_columns(runs: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Text and number columns of `runs` that vary and were known before the measurement."""
    text = [name for name in RAW_TEXT if name in runs and len(runs[name].unique()) > 1]
    numbers = [name for name in RAW_NUMBERS if name in runs and len(runs[name].unique()) > 1]
    return text, numbers


@dataclass
class RawLinear:
    """Ordinary least squares on the raw columns, text one-hot, in seconds."""

    name: str = "raw_linear"
    model_: Any = field(default=None, repr=False)

    def fit(self, runs: pd.DataFrame, step_time_s: Array) -> "RawLinear":
        from sklearn.linear_model import LinearRegression

        self.text_, self.numbers_ = raw_columns(runs)
        self.levels_ = {name: sorted(runs[name].astype(str).unique()) for name in self.text_}
        self.centre_ = runs[self.numbers_].astype(float).mean()
        self.model_ = LinearRegression().fit(self._matrix(runs), step_time_s)
        return self

    def predict(self, runs: pd.DataFrame) -> Array:
        return np.asarray(self.model_.predict(self._matrix(runs)), float)

    def _matrix(self, runs: pd.DataFrame) -> Array:
        parts = [runs[self.numbers_].astype(float).fillna(self.centre_).to_numpy()]
        for name in self.text_:
            values = runs[name].astype(str).to_numpy()[:, None]
            parts.append((values == np.array(self.levels_[name])).astype(float))
        return np.hstack(parts)


@dataclass
class Nearest:
    """The measured time of the most similar training row: same texts first, then log distance."""

    name: str = "nearest"

    def fit(self, runs: pd.DataFrame, step_time_s: Array) -> "Nearest":
        from sklearn.neighbors import NearestNeighbors

        self.text_, self.numbers_ = raw_columns(runs)
        self.levels_ = {name: sorted(runs[name].astype(str).unique()) for name in self.text_}
        self.centre_ = runs[self.numbers_].astype(float).median()
        self.index_ = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(self._points(runs))
        self.times_ = np.asarray(step_time_s, float)
        return self

    def predict(self, runs: pd.DataFrame) -> Array:
        found = self.index_.kneighbors(self._points(runs), return_distance=False)
        return np.asarray(self.times_[found[:, 0]])

    def _points(self, runs: pd.DataFrame) -> Array:
        numbers = np.log2(runs[self.numbers_].astype(float).fillna(self.centre_).to_numpy() + 1)
        parts = [numbers]
        for name in self.text_:
            same = runs[name].astype(str).to_numpy()[:, None] == np.array(self.levels_[name])
            parts.append(4.0 * same)  # another engine or GPU is as far as a factor of 50 in batch
        return np.hstack(parts)


@dataclass
class RawBoosting:
    """LightGBM on the raw columns and log seconds, tuned with `trials` draws on the training side.

    Draws are scored on a held-out fifth of at most `tuning_rows` training rows: all after
    `short` trees, the best `finalists` again after up to `long`. The winner is fitted on all rows.
    """

    name: str = "raw_boosting"
    trials: int = 50
    finalists: int = 4
    short: int = 25
    long: int = 320
    seed: int = 0
    tuning_rows: int = 2000
    booster_: Any = field(default=None, repr=False)

    def fit(self, runs: pd.DataFrame, step_time_s: Array) -> "RawBoosting":
        import lightgbm as lgb

        self.text_, self.numbers_ = raw_columns(runs)
        self.levels_ = {name: sorted(runs[name].astype(str).unique()) for name in self.text_}
        matrix, target = self._matrix(runs), np.log(np.asarray(step_time_s, float))
        settings, rounds = self._tune(matrix, target)
        whole = self._dataset(matrix, target)
        self.booster_ = lgb.train(settings, whole, num_boost_round=rounds)
        return self

    def predict(self, runs: pd.DataFrame) -> Array:
        return np.exp(np.asarray(self.booster_.predict(self._matrix(runs), num_threads=1)))

    def _tune(self, matrix: Array, target: Array) -> tuple[dict[str, Any], int]:
        import lightgbm as lgb

        rng = np.random.default_rng(self.seed)
        rows = rng.permutation(len(target))[: self.tuning_rows]
        cut = max(1, len(rows) // 5)
        held, kept = rows[:cut], rows[cut:]
        train = self._dataset(matrix[kept], target[kept]).construct()

        def errors(settings: dict[str, Any], rounds: tuple[int, ...]) -> list[float]:
            booster = lgb.train(settings, train, num_boost_round=rounds[-1])
            found = []
            for used in rounds:
                predicted = booster.predict(matrix[held], num_iteration=used, num_threads=1)
                error = np.expm1(np.asarray(predicted, float) - target[held])
                found.append(float(np.abs(error).mean()))
            return found

        draws = [self._draw(rng) for _ in range(self.trials)]
        first = [errors(draw, (self.short,))[0] for draw in draws]
        lengths = tuple(np.linspace(self.short, self.long, 5).astype(int).tolist())
        best: tuple[float, dict[str, Any], int] = (np.inf, draws[0], self.short)
        for place in np.argsort(first)[: self.finalists]:
            for error, used in zip(errors(draws[place], lengths), lengths, strict=True):
                if error < best[0]:
                    best = (error, draws[place], used)
        return best[1], best[2]

    def _draw(self, rng: np.random.Generator) -> dict[str, Any]:
        return {
            "objective": rng.choice(["l2", "l1"]),
            "num_leaves": int(rng.choice([7, 15, 31])),
            "learning_rate": float(np.exp(rng.uniform(np.log(0.05), np.log(0.3)))),
            "lambda_l2": float(rng.choice([0.0, 0.1, 1.0, 10.0])),
            "feature_fraction": float(rng.uniform(0.6, 1.0)),
            "bagging_fraction": float(rng.uniform(0.6, 1.0)),
            "bagging_freq": 1,
            "min_data_in_leaf": 5,
            "seed": self.seed,
            "num_threads": 1,
            "deterministic": True,
            "force_col_wise": True,
            "verbose": -1,
        }

    def _dataset(self, matrix: Array, target: Array) -> Any:
        import lightgbm as lgb

        categories = list(range(len(self.text_)))
        return lgb.Dataset(
            matrix, target, categorical_feature=categories, free_raw_data=False,
            params={"min_data_in_bin": 1, "verbose": -1, "min_data_in_leaf": 5},
        )  # fmt: skip

    def _matrix(self, runs: pd.DataFrame) -> Array:
        parts = []
        for name in self.text_:
            codes = {level: float(place) for place, level in enumerate(self.levels_[name])}
            parts.append(runs[name].astype(str).map(codes).to_numpy(float)[:, None])
        return np.hstack([*parts, runs[self.numbers_].astype(float).to_numpy()])
