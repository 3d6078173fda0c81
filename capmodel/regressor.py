"""What the roofline leaves, learned on memory-traffic coordinates.

The model is a kernel ridge regression of log(step time / roofline), one per engine and GPU, on
logarithmic coordinates of what a step reads and computes. Far from its rows the correction fades
to nothing, so an unseen model or GPU falls back on physics. `similarity` says how near the rows a
prediction stands, from 1 (on them) to 0.

Rows of one model share what no coordinate tells (the version it ran on, a kernel made for it), so
a row speaks a little louder for its own model than for another that stands as near: what several
models disagree about is then averaged for an unseen one, and kept for each of them.

The roofline reaches this module as a column, `ROOFLINE`; it knows no roofline of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.matern import FEW, blocks, by_weight, decayed, matern, spread_out, squares
from capmodel.shapes import catalogue_name

Array = npt.NDArray[np.float64]
Texts = npt.NDArray[np.str_]

ROOFLINE = "roofline_s"


# What a row says of a step of another model, of what it says of its own.
OTHER_MODEL = 0.95

# Coordinate: how far apart two steps are in each direction. A distance of 1 is about as far as
# one measured step says something of another.
COORDINATES = {
    "sequences": "log2 sequences, a quarter per doubling",
    "single": "half for one sequence, none from two on: kernels for one row differ",
    "context": "log2 cached tokens per sequence, a quarter per doubling",
    "prefill": "log2 prompt tokens per sequence and step, a quarter per doubling",
    "chunk": "log2 prompt tokens per prefill pass, a quarter per doubling",
    "tp": "log2 tensor-parallel degree, half per doubling",
    "pp": "log2 pipeline stages, half per doubling",
    "weights": "log2 weight bytes of the whole model, a third per doubling",
    "layers": "layers, 1/64 each",
    "cache": "log2 cache bytes per token of the whole model, a quarter per doubling",
    "intensity": "log2 matmul FLOP per weight byte and sequence, a quarter per doubling",
    "ridge": "log2 peak over bandwidth, half per doubling: tells matmul dtypes apart",
    "cache_dtype": "1 where the cache is stored in fewer than 16 bits",
    "routed": "4 where experts are routed",
}


def coordinates(
    features: Mapping[str, Array] | pd.DataFrame, kv_dtype: npt.NDArray[np.object_] | None = None
) -> Array:
    """Where each step stands, (rows, len(COORDINATES)).

    features: rows of `add_features`, or a mapping of its columns as arrays (rows,).
    kv_dtype: (rows,) names; by default the column of that name.
    """
    rows = len(features["sequences"])

    def column(name: str, absent: float) -> Array:
        if name not in features:
            return np.full(rows, absent)
        values = np.asarray(features[name], dtype=float)
        return np.where(np.isnan(values), absent, values)

    sequences = column("sequences", 1.0)
    batch = np.maximum(column("batch_size", 1.0), 1e-9)
    tp, pp = column("tp", 1.0), 1.0 + column("hops", 0.0)
    stored = column("weight_stored_bytes", 1.0) * pp
    matmul = (column("flop", 1.0) - column("attention_flop", 0.0)) / np.maximum(sequences, 1e-9)
    if kv_dtype is None and "kv_dtype" in features:
        kv_dtype = np.asarray(features["kv_dtype"])
    wide = np.isin(kv_dtype, ("bf16", "fp16")) if kv_dtype is not None else np.full(rows, True)
    return np.column_stack([
        np.log2(np.maximum(sequences, 0.25)) / 4,
        0.5 * np.clip(2.0 - sequences, 0.0, 1.0),
        np.log2(np.maximum(column("context_len", 1.0), 1.0)) / 4,
        np.log2(1.0 + column("prefill_tokens", 0.0) / batch) / 4,
        np.log2(np.maximum(column("prefill_chunk", 1.0), 1.0)) / 4,
        np.log2(tp) / 2,
        np.log2(pp) / 2,
        np.log2(stored * tp) / 3,
        column("layers", 1.0) / (1.0 + column("prefill_passes", 0.0)) / 64,
        np.log2(np.maximum(column("kv_bytes_per_token", 1.0) * tp, 1.0)) / 4,
        np.log2(matmul / stored) / 4,
        np.log2(column("gpu_peak_flops", 1.0) / column("gpu_bandwidth", 1.0)) / 2,
        np.where(wide, 0.0, 1.0),
        4.0 * column("routed", 0.0),
    ])  # fmt: skip


@dataclass(frozen=True, slots=True)
class LocalCorrection:
    """The correction of one (engine, GPU): landmarks (m, d) and their weights (m,).

    low, high: the log corrections its rows ask for; none is larger, so nothing runs away.
    models: (m,) the model of each landmark; an empty text speaks for all alike.
    Called, it answers for any model as if each row were its own; `of` says for which.
    """

    landmarks: Array
    weights: Array
    n_rows: int
    low: float
    high: float
    models: Texts

    def of(self, model: str) -> "LocalCorrection":
        """What it says of one model."""
        other = (self.models != model) & (self.models != "")
        return replace(self, weights=np.where(other, OTHER_MODEL, 1.0) * self.weights)

    def __call__(self, points: Array, models: Texts | None = None) -> tuple[Array, Array]:
        """Log correction and similarity at points (rows, d), each (rows,).

        models: (rows,) what each row is of; by default each row speaks as its own, see `of`.
        """
        if models is None and len(points) * len(self.weights) <= FEW:
            kernel = decayed(squares(points, self.landmarks))
            return np.clip(kernel @ self.weights, self.low, self.high), kernel.max(axis=1)
        value, near = np.zeros(len(points)), np.zeros(len(points))
        told, column = np.zeros(len(points), dtype=np.intp), self.weights[:, None]
        if models is not None and len(points):  # a column of weights for each model
            names, told = np.unique(models, return_inverse=True)
            column = np.array([self.of(str(name)).weights for name in names]).T
        parts = [
            (self.landmarks[some], column[some], kept)
            for some, kept in by_weight(self.weights, len(points))
        ]
        for rows in blocks(len(points), len(self.weights)):
            each = np.arange(len(value[rows]))
            for landmarks, weights, kept in parts:
                kernel = decayed(squares(points[rows], landmarks).astype(kept, copy=False))
                value[rows] += (kernel @ weights)[each, told[rows]]
                np.maximum(near[rows], kernel.max(axis=1), out=near[rows])
        return np.clip(value, self.low, self.high), near


@dataclass
class TrafficRegressor:
    """Step time = roofline x exp(correction); see the module's text.

    ridge: how much scatter a row is allowed, relative to the size of the correction.
    max_landmarks: rows that carry the correction of one (engine, GPU); spread evenly.
    min_rows: pairs with fewer rows get no correction.

    Fitted state: `corrections_`, from (engine, GPU) to LocalCorrection.
    """

    ridge: float = 0.005
    max_landmarks: int = 256
    min_rows: int = 8
    corrections_: dict[tuple[str, str], LocalCorrection] = field(default_factory=dict, repr=False)

    def fit(self, features: pd.DataFrame, step_time_s: Array | pd.Series) -> "TrafficRegressor":
        """features: rows of `add_features` with the column ROOFLINE [s]; step_time_s: [s]."""
        target = np.log(np.asarray(step_time_s, float) / features[ROOFLINE].to_numpy(float))
        points, models = coordinates(features), _models(features)
        self.corrections_ = {
            pair: self._fit_one(points[rows], models[rows], target[rows])
            for pair, rows in pairs_of(features)
            if len(rows) >= self.min_rows
        }
        return self

    def predict(self, features: pd.DataFrame) -> Array:
        """Step time of each row [s], (rows,)."""
        value, _ = self.correct(features)
        return features[ROOFLINE].to_numpy(float) * np.exp(value)

    def correct(self, features: pd.DataFrame) -> tuple[Array, Array]:
        """Log correction and similarity of each row; both 0 for an unknown engine or GPU."""
        value, near = np.zeros(len(features)), np.zeros(len(features))
        known = [(self.corrections_[pair], rows) for pair, rows in pairs_of(features)
                 if pair in self.corrections_]  # fmt: skip
        if not known:
            return value, near
        points, models = coordinates(features), _models(features)
        for local, rows in known:
            value[rows], near[rows] = local(points[rows], models[rows])
        return value, near

    def _fit_one(self, points: Array, models: Texts, target: Array) -> LocalCorrection:
        from scipy.linalg import cho_factor, cho_solve  # slow to import, and only fits need it

        chosen = spread_out(points, self.max_landmarks)
        landmarks, of = points[chosen], models[chosen]
        among = matern(landmarks, landmarks) * _speaks(of, of)
        if len(chosen) == len(points):
            among[np.diag_indices_from(among)] += self.ridge
            weights = cho_solve(cho_factor(among), target[chosen])
        else:
            across = matern(points, landmarks) * _speaks(models, of)
            system = across.T @ across + self.ridge * among
            system[np.diag_indices_from(system)] += 1e-8 * len(points)
            weights = cho_solve(cho_factor(system), across.T @ target)
        low, high = float(target.min()), float(target.max())
        return LocalCorrection(landmarks, np.asarray(weights), len(points), low, high, of)


def _speaks(left: Texts, right: Texts) -> Array:
    """How loud rows of the models `right` speak for each of `left`, (len(left), len(right))."""
    return np.where(left[:, None] == right, 1.0, OTHER_MODEL)


def _models(features: pd.DataFrame) -> Texts:
    """Model of each row by the catalogue's name; an empty text where none is told."""
    if "model" not in features:
        return np.full(len(features), "")
    given = features["model"].astype(object)
    codes, names = pd.factorize(given.where(given.notna(), ""))
    return np.array([catalogue_name(name) for name in names], dtype=str)[codes]


def pairs_of(features: pd.DataFrame) -> Iterator[tuple[tuple[str, str], npt.NDArray[np.intp]]]:
    """Each (engine, GPU) of the rows, with the rows' positions."""
    (engine_of, engines), (gpu_of, gpus) = (
        pd.factorize(features[name].astype(str), sort=True) for name in ("engine", "gpu")
    )
    pair_of = np.where((engine_of < 0) | (gpu_of < 0), -1, engine_of * len(gpus) + gpu_of)
    order = np.argsort(pair_of, kind="stable")
    numbers, starts = np.unique(pair_of[order], return_index=True)
    for number, start, end in zip(numbers, starts, [*starts[1:], len(order)], strict=False):
        if number >= 0:
            engine, gpu = divmod(int(number), len(gpus))
            yield (str(engines[engine]), str(gpus[gpu])), order[start:end]
