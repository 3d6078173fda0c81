"""Step times of the shipped calibrations: the one that knows most of each engine and GPU."""

from functools import lru_cache

from capmodel.calibration import Calibration
from capmodel.gpus import Gpu
from capmodel.planner.replica import Setting
from capmodel.prediction import choose_calibration
from capmodel.shapes import ModelShape
from capmodel.simulation import StepTimeLike


@lru_cache(maxsize=256)
def _nearest(engine: str | None, gpu: str) -> Calibration:
    return choose_calibration(engine, gpu)


class Shipped:
    """The shipped calibration that knows most of each engine and GPU."""

    def step_time(
        self,
        model: ModelShape,
        gpu: Gpu,
        *,
        tp: int = 1,
        weight_dtype: str = "bf16",
        kv_dtype: str = "bf16",
        engine: str | None = None,
    ) -> StepTimeLike:
        """As `Calibration.step_time`."""
        return _step_time(model, gpu, tp, weight_dtype, kv_dtype, engine)


@lru_cache(maxsize=2048)
def _step_time(
    model: ModelShape, gpu: Gpu, tp: int, weight_dtype: str, kv_dtype: str, engine: str | None
) -> StepTimeLike:
    """A third of a plan's time, and the same for every load."""
    return _nearest(engine, gpu.name).step_time(
        model, gpu, tp=tp, weight_dtype=weight_dtype, kv_dtype=kv_dtype, engine=engine
    )


def calibration_for(setting: Setting, gpu: str) -> Calibration | None:
    """The calibration that a plan takes for `gpu`; None where step times come from elsewhere."""
    own = setting.calibration
    if isinstance(own, Shipped):
        return _nearest(setting.engine, gpu)
    return own if isinstance(own, Calibration) else None
