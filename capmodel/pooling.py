"""Tables whose rows mix engine versions: coefficients and corrections that lean on each other.

Such rows say less of an (engine, GPU) than their number promises. Coefficients of a pair are then
held near those of its engine, and these near everybody's (ridge towards the wider level, PHYSICS
section 6). The correction is one kernel ridge over all pairs, in which a row speaks for its own
engine most and for its own version twice as loud as for another. `Corrected` decides on its rows
whether that is worth it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.matern import matern, spread_out
from capmodel.regressor import ROOFLINE, LocalCorrection, Texts, coordinates
from capmodel.roofline import SPREAD, RooflineCoefficients, design, fit_coefficients

Array = npt.NDArray[np.float64]
Names = tuple[Texts, Texts, Texts]  # engine, GPU and version of each row

# How near a level's coefficients are held to the wider one's: their spread as a share of the
# textbook's, the prior's weight in rows, the relative scatter those rows are given.
NEAR, WEIGHT, SCATTER = 0.3, 15.0, 0.1
# What a row says of another, by what the two share; the shares sum to 1.
ANY, ENGINE, GPU, PAIR = 0.2, 0.5, 0.1, 0.2
# A row of another version, or of one not told, speaks by this share.
OTHER_VERSION = 0.5
RIDGE = 0.02
LANDMARKS = 1600
FEWEST = 3


def pooled_coefficients(
    features: pd.DataFrame, step_time_s: Array
) -> dict[tuple[str, ...], RooflineCoefficients]:
    """Coefficients of all rows, of each engine and of each (engine, GPU), by level.

    features: rows of `add_features`; step_time_s: (rows,) [s]. Raises FitError as
    `fit_coefficients` does.
    """
    terms = design(features)

    def held(rows: npt.NDArray[np.intp], to: RooflineCoefficients) -> RooflineCoefficients:
        return fit_coefficients(
            terms[rows], step_time_s[rows], prior=np.array(to.values), spread=NEAR * SPREAD,
            prior_weight=WEIGHT, scatter=SCATTER,
        )  # fmt: skip

    found: dict[tuple[str, ...], RooflineCoefficients] = {(): fit_coefficients(terms, step_time_s)}
    for keys in (["engine"], ["engine", "gpu"]):
        for key, rows in features.groupby(keys, sort=True).indices.items():
            level = tuple(map(str, key if isinstance(key, tuple) else (key,)))
            if len(rows) >= FEWEST:
                found[level] = held(np.asarray(rows), found.get(level[:-1], found[()]))
    return found


@dataclass(frozen=True, slots=True)
class SharedCorrection:
    """One kernel ridge of log(step time / roofline) over all engines and GPUs.

    landmarks: (m, d) points; weights: (m,); engines, gpus, versions: (m,) texts of each landmark,
    an empty version where none is told. low, high: log corrections that the rows ask for at most.
    """

    landmarks: Array
    weights: Array
    engines: Texts
    gpus: Texts
    versions: Texts
    low: float
    high: float

    def __call__(self, features: pd.DataFrame) -> tuple[Array, Array]:
        """Log correction of rows of `add_features`, and similarity to fitted ones, (rows,) each."""
        points, names = coordinates(features), _names(features)
        value, near = np.empty(len(points)), np.empty(len(points))
        for start in range(0, len(points), 1024):
            rows = slice(start, start + 1024)
            kernel = matern(points[rows], self.landmarks)
            speaks = self._speaks(names[0][rows], names[1][rows], names[2][rows])
            value[rows] = (kernel * speaks) @ self.weights
            near[rows] = (kernel * (speaks >= (1 - GPU) * OTHER_VERSION)).max(axis=1)
        return np.clip(value, self.low, self.high), near

    def local(self, engine: str, gpu: str) -> LocalCorrection:
        """What it says of one engine and GPU of a version not told."""
        speaks = self._speaks(np.array([engine]), np.array([gpu]), np.array([""]))[0]
        own = int(((self.engines == engine) & (self.gpus == gpu)).sum())
        weights, any_model = self.weights * speaks, np.full(len(self.weights), "")
        return LocalCorrection(self.landmarks, weights, own, self.low, self.high, any_model)

    def _speaks(self, engine: Texts, gpu: Texts, version: Texts) -> Array:
        return _speaks((engine, gpu, version), (self.engines, self.gpus, self.versions))


def shared_correction(features: pd.DataFrame, step_time_s: Array) -> SharedCorrection:
    """Fit one. features: rows of `add_features` with the column ROOFLINE [s]; step_time_s: [s]."""
    from scipy.linalg import cho_factor, cho_solve  # slow to import, and only fits need it

    target = np.log(step_time_s / features[ROOFLINE].to_numpy(float))
    points, names = coordinates(features), _names(features)
    chosen = spread_out(points, LANDMARKS)
    landmarks = points[chosen]
    of = names[0][chosen], names[1][chosen], names[2][chosen]
    system = matern(landmarks, landmarks) * _speaks(of, of)
    if len(chosen) == len(points):
        system[np.diag_indices_from(system)] += RIDGE
        weights = cho_solve(cho_factor(system), target[chosen])
    else:
        across = matern(points, landmarks) * _speaks(names, of)
        system = across.T @ across + RIDGE * system
        system[np.diag_indices_from(system)] += 1e-8 * len(points)
        weights = cho_solve(cho_factor(system), across.T @ target)
    low, high = float(target.min()), float(target.max())
    return SharedCorrection(landmarks, np.asarray(weights), *of, low, high)


def versions_mixed(features: pd.DataFrame) -> bool:
    """Whether an engine and GPU has rows of more than one engine version."""
    if "engine_version" not in features:
        return False
    versions = features.groupby(["engine", "gpu"])["engine_version"].nunique()
    return bool((versions > 1).any())


def _speaks(left: Names, right: Names) -> Array:
    """How loud each row of `right` speaks for each of `left`, by engine, GPU and version."""
    engine, gpu, version = (_same(a, b) for a, b in zip(left, right, strict=True))
    told = engine & version & (left[2] != "")[:, None]
    share = ANY + ENGINE * engine + GPU * gpu + PAIR * (engine & gpu)
    return np.asarray(share * np.where(told, 1.0, OTHER_VERSION))


def _same(left: Texts, right: Texts) -> npt.NDArray[np.bool_]:
    """Which texts are alike, (len(left), len(right)); compared as numbers, which is faster."""
    numbers = np.unique(np.concatenate([left, right]), return_inverse=True)[1]
    return np.asarray(numbers[: len(left), None] == numbers[len(left) :])


def _names(features: pd.DataFrame) -> Names:
    """Engine, GPU and engine version of each row; an empty text where none is told."""
    none = pd.Series("", index=features.index)
    columns = features["engine"], features["gpu"], features.get("engine_version", none).fillna("")
    engine, gpu, version = (np.array(own.astype(str).tolist()) for own in columns)
    return engine, gpu, version
