"""The axes and step times of a sweep."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capmodel.arguments import COUNT, Span, number
from capmodel.calibration import Calibration
from capmodel.engines import known_engine
from capmodel.gpus import Gpu
from capmodel.loading import load_calibration
from capmodel.planner.candidate import candidates
from capmodel.planner.replica import Setting
from capmodel.prediction import choose_calibration
from capmodel.shapes import ModelLike, ModelShape, load_shape
from capmodel.steptime import StepTime
from capmodel.words import shown

_WHOLE = Span("a whole number from 1 (to 1e7)", 1.0, 1e7, whole=True)


@dataclass(frozen=True, slots=True)
class RooflineOnly:
    """Step times without the learned correction. calibration: None takes the shipped ones."""

    calibration: Calibration | None = None

    def step_time(
        self, model: ModelShape, gpu: Gpu, *, engine: str | None = None, **deployment: Any
    ) -> StepTime:
        """As `Calibration.step_time`, by the method "roofline"."""
        chosen = self.calibration or choose_calibration(engine, gpu.name)
        return chosen.step_time(model, gpu, engine=engine, method="roofline", **deployment)


def roofline_setting(
    calibration: str | PathLike[str] | None = None, engine: str | None = None
) -> Setting:
    """The setting of a sweep; calibration: a file, None takes the shipped ones."""
    if calibration is None:
        return Setting(RooflineOnly(), known_engine(engine))
    if not isinstance(calibration, str | PathLike) or not str(calibration).strip():
        raise ValueError(
            f"Got calibration={shown(calibration)}, but expected the path of its file, or None"
        )
    return Setting(RooflineOnly(load_calibration(Path(calibration))), known_engine(engine))


def grid_axes(
    model: ModelLike, gpu: Any, max_batch: int, max_context: int, points: int, **chosen: Any
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Batches and contexts, evenly in the logarithm, so that all deployments make `points` rows.

    Fewer rows where the whole numbers up to the limits do not suffice. Raises ValueError.
    """
    max_batch = number("max_batch", max_batch, _WHOLE)
    max_context = number("max_context", max_context, _WHOLE)
    points = number("points", points, COUNT)
    deployments = sum(1 for _ in candidates(load_shape(model), gpu, **chosen))
    each = max(1.0, points / max(1, deployments))
    size = min(max_batch, max(1, round(np.sqrt(each * max_batch / max_context))))
    size = max(size, min(max_batch, 32))
    return _spread(max_batch, size), _spread(max_context, max(1, round(each / size)))


def _spread(most: int, count: int) -> NDArray[np.int64]:
    """About `count` different whole numbers from 1 to `most`, evenly in the logarithm."""
    if count >= most:
        return np.arange(1, most + 1)
    found = np.unique(np.geomspace(1, most, count).round().astype(np.int64))
    missing = count - len(found)
    if missing > 0:
        rest = np.setdiff1d(np.arange(1, most + 1), found)
        found = np.sort(np.concatenate([found, rest[:missing]]))
    return found
