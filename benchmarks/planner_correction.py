"""A learned correction pooled over engines, versions and GPUs, for the accuracy benchmark.

The product's correction is one per engine and GPU. Here a deployment also learns from the same
model on another GPU, and engine versions stand apart, which the measured serving runs mix.
"""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from capmodel.regressor import coordinates, matern

# How far apart two runs stand that differ in nothing else; 1 is about as far as one measured
# run says something of another. `coordinates` and `lengths` multiply the distances between steps
# and, in doublings, between prompts and numbers of clients.
TPOT = {"engine": 0.5, "gpu": 0.3, "version": 0.2, "model": 0.4, "coordinates": 1.0, "lengths": 0.0}
TTFT = {
    "engine": 1.0,
    "gpu": 0.7,
    "version": 0.5,
    "model": 0.5,
    "coordinates": 0.5,
    "lengths": 0.25,
}


@dataclass
class Correction:
    """Kernel ridge of log(measured / base) on the coordinates of a step and who ran it."""

    apart: dict[str, float]
    ridge: float = 0.1
    limit: float = 2.0
    points_: np.ndarray = field(init=False, repr=False)
    weights_: np.ndarray = field(init=False, repr=False)
    names_: dict[str, dict[str, int]] = field(init=False, repr=False)

    def fit(
        self, features: pd.DataFrame, base_s: np.ndarray, measured_s: np.ndarray
    ) -> "Correction":
        """features: rows of `add_features` with engine, gpu, model, engine_version; (rows,) [s]."""
        who = _who(features)
        self.names_ = {
            kind: {name: place for place, name in enumerate(sorted(set(values)))}
            for kind, values in who.items()
        }
        self.points_ = self._place(features)
        target = np.clip(np.log(measured_s / base_s), -self.limit, self.limit)
        kernel = matern(self.points_, self.points_)
        kernel[np.diag_indices_from(kernel)] += self.ridge
        self.weights_ = np.linalg.solve(kernel, target)
        return self

    def factor(self, features: pd.DataFrame) -> np.ndarray:
        """What to multiply the base of each row by, (rows,)."""
        value = matern(self._place(features), self.points_) @ self.weights_
        return np.asarray(np.exp(np.clip(value, -self.limit, self.limit)))

    def _place(self, features: pd.DataFrame) -> np.ndarray:
        lengths = np.log2(features[["input_len", "concurrency"]].to_numpy(float))
        columns = [
            coordinates(features) * self.apart["coordinates"],
            lengths * self.apart["lengths"],
        ]
        for kind, values in _who(features).items():
            known = self.names_[kind]
            block = np.zeros((len(features), len(known)))
            for row, name in enumerate(values):
                if name in known:
                    block[row, known[name]] = self.apart[kind]
            columns.append(block)
        return np.hstack(columns)


def _who(features: pd.DataFrame) -> dict[str, list[str]]:
    version = features["engine_version"].astype(str).str.extract(r"^(\d+\.\d+)")[0]
    engine = features["engine"].astype(str)
    return {
        "engine": engine.tolist(),
        "gpu": features["gpu"].astype(str).tolist(),
        "version": (engine + " " + version.fillna("unknown")).tolist(),
        "model": features["model"].astype(str).tolist(),
    }
