"""`predict` and `predict_step_time`: one decode step, from the calibration that knows most.

Precedence: a given calibration; else a shipped one with the asked engine and GPU; else one with
the GPU; else one with the engine; else the pooled one. Prediction is silent, deterministic and
offline, and touches nothing that another thread could change.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from capmodel.calibration import Calibration, load_calibration
from capmodel.dtypes import kv_dtype_name, weight_dtype_name
from capmodel.gpus import Gpu, load_gpu
from capmodel.kvcache import check_tp
from capmodel.roofline import FAMILIES
from capmodel.shapes import ModelLike, ModelShape, load_shape
from capmodel.steptime import StepTime
from capmodel.traffic import step_traffic

Array = npt.NDArray[np.float64]
Numeric = float | Sequence[float] | Array

# Shipped calibrations, most trusted first: measured end to end before composed of kernels.
SHIPPED = ("argonne.json", "silicon.json")


@dataclass(frozen=True, slots=True)
class Prediction:
    """One decode step.

    step_time_s: estimate [s]; low_s, high_s: interval at `interval`, None where unknown.
    tokens_per_s: batch_size / step_time_s. terms: seconds per family, summing to step_time_s.
    binding: the largest term. mbu, mfu: achieved share of datasheet bandwidth and of peak.
    fits: weights and cache within the marketed memory. extrapolation: why to doubt it, empty
    where rows of this engine, GPU and model lie near. assumptions: how short names were read.
    """

    step_time_s: float | Array
    low_s: float | Array | None
    high_s: float | Array | None
    tokens_per_s: float | Array
    terms: dict[str, float | Array]
    binding: str | npt.NDArray[np.str_]
    mbu: float | Array
    mfu: float | Array
    fits: bool | npt.NDArray[np.bool_]
    extrapolation: tuple[str, ...]
    calibration_id: str
    basis: str
    interval: float | None
    model: str
    gpu: str
    assumptions: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, object]:
        """The fields by name, arrays as they are."""
        return {name: getattr(self, name) for name in self.__slots__}


def predict(
    model: ModelLike,
    gpu: "str | dict[str, object] | Path | Gpu",
    *,
    batch_size: Numeric,
    context_len: Numeric,
    tp: Numeric = 1,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    engine: str | None = None,
    method: str = "regressor",
    calibration: "Calibration | str | Path | None" = None,
    interval: float | None = 0.9,
) -> Prediction:
    """One decode step of `batch_size` sequences that hold `context_len` tokens each.

    model, gpu: as `load_shape` and `load_gpu` take them. batch_size, context_len and tp broadcast:
    scalars give floats, arrays give arrays. weight_dtype, kv_dtype: as stored. engine: None takes
    the one with most rows on that GPU. method: "regressor", or "roofline" without the learned
    correction. calibration: a Calibration or its file; None takes the shipped one that knows most.
    interval: coverage of (low_s, high_s), None for none.

    Raises ValueError for names, dtypes and numbers that cannot be.
    """
    batch, context, degrees = _checked(batch_size, context_len, tp)
    if interval is not None and not 0.0 < interval < 1.0:
        raise ValueError(f"Got interval={interval!r}, but expected a share between 0 and 1")
    if degrees.size == 0:
        raise ValueError("Got empty arrays, but expected at least one step to predict")
    card, shape = load_gpu(gpu), load_shape(model)
    found: dict[str, Array] = {}
    steps: list[StepTime] = []
    for degree in np.unique(degrees):
        here = degrees == degree
        step = _step_time(
            model, gpu, int(degree), weight_dtype, kv_dtype, engine, method, calibration
        )
        steps.append(step)
        part = _evaluate(step, card, shape, batch[here], context[here], int(degree),
                         weight_dtype_name(weight_dtype), kv_dtype_name(kv_dtype))  # fmt: skip
        for name, values in part.items():
            found.setdefault(name, np.empty(batch.shape))[here] = values
    return _prediction(found, steps, shape, card, gpu, batch, context, interval)  # fmt: skip


def predict_step_time(
    model: ModelLike,
    gpu: "str | dict[str, object] | Path | Gpu",
    *,
    batch_size: Numeric,
    context_len: Numeric,
    tp: Numeric = 1,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    engine: str | None = None,
    method: str = "regressor",
    calibration: "Calibration | str | Path | None" = None,
    interval: float | None = None,
) -> float | Array | tuple[float | Array, float | Array, float | Array]:
    """Seconds of one decode step; with `interval`, (low, estimate, high).

    Takes what `predict` takes. Scalars give a float, arrays broadcast to an ndarray. Raises
    ValueError as `predict` does, and where an interval is asked for that no held-out rows support.
    """
    if (
        interval is None
        and isinstance(batch_size, int | float)
        and isinstance(context_len, int | float)
        and isinstance(tp, int)
    ):
        step = _step_time(model, gpu, tp, weight_dtype, kv_dtype, engine, method, calibration)
        if not (batch_size > 0 and context_len > 0 and batch_size * context_len < 1e15):
            _checked(batch_size, context_len, tp)
        return step.seconds(batch_size, batch_size * context_len)
    found = predict(
        model, gpu, batch_size=batch_size, context_len=context_len, tp=tp,
        weight_dtype=weight_dtype, kv_dtype=kv_dtype, engine=engine, method=method,
        calibration=calibration, interval=interval,
    )  # fmt: skip
    if interval is None:
        return found.step_time_s
    if found.low_s is None or found.high_s is None:
        raise ValueError(
            f"calibration {found.calibration_id} has no interval for {found.model} on {found.gpu}: "
            "no held-out rows speak for it; leave interval out, or fit with a grade card"
        )
    return found.low_s, found.step_time_s, found.high_s


def step_time(
    model: ModelLike,
    gpu: "str | dict[str, object] | Path | Gpu",
    *,
    tp: int = 1,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    engine: str | None = None,
    method: str = "regressor",
    calibration: "Calibration | str | Path | None" = None,
) -> StepTime:
    """The `StepTime` behind `predict`, for callers that ask many times."""
    return _step_time(model, gpu, tp, weight_dtype, kv_dtype, engine, method, calibration)


@lru_cache(maxsize=1)
def shipped_calibrations() -> tuple[Calibration, ...]:
    """The calibrations inside the package, most trusted first."""
    folder = Path(str(files("capmodel") / "calibrations"))
    return tuple(load_calibration(folder / name) for name in SHIPPED if (folder / name).exists())


def choose_calibration(engine: str | None, gpu: str) -> Calibration:
    """The shipped calibration whose rows stand nearest to this engine and GPU."""
    wanted = engine.lower() if engine else None
    return max(shipped_calibrations(), key=lambda own: own.covers(wanted, gpu))


def _step_time(
    model: ModelLike,
    gpu: "str | dict[str, object] | Path | Gpu",
    tp: int,
    weight_dtype: str,
    kv_dtype: str,
    engine: str | None,
    method: str,
    calibration: "Calibration | str | Path | None",
) -> StepTime:
    if isinstance(model, str) and isinstance(gpu, str) and calibration is None:
        own = os.environ.get("CAPMODEL_CATALOG", "")
        return _named_step_time(model, gpu, tp, weight_dtype, kv_dtype, engine, method, own)
    card, shape = load_gpu(gpu), load_shape(model)
    check_tp(shape, tp)
    if calibration is None:
        chosen = choose_calibration(engine, card.name)
    elif isinstance(calibration, Calibration):
        chosen = calibration
    else:
        chosen = load_calibration(calibration)
    return chosen.step_time(
        shape, card, tp=tp, weight_dtype=weight_dtype, kv_dtype=kv_dtype,
        engine=engine, method=method,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _named_step_time(
    model: str, gpu: str, tp: int, weight_dtype: str, kv_dtype: str, engine: str | None,
    method: str, own_catalogue: str,
) -> StepTime:  # fmt: skip
    card, shape = load_gpu(gpu), load_shape(model)
    check_tp(shape, tp)
    return choose_calibration(engine, card.name).step_time(
        shape, card, tp=tp, weight_dtype=weight_dtype, kv_dtype=kv_dtype,
        engine=engine, method=method,
    )  # fmt: skip


def _checked(batch_size: Numeric, context_len: Numeric, tp: Numeric) -> tuple[Array, Array, Array]:
    values = []
    for name, value in (("batch_size", batch_size), ("context_len", context_len), ("tp", tp)):
        try:
            array = np.asarray(value, dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"Got {name}={value!r}, but expected a number or numbers") from error
        bad = ~np.isfinite(array) | (array <= 0) | (array > 1e12)
        if bad.any():
            raise ValueError(
                f"Got {name}={array[bad].flat[0]:g}, but expected a positive, finite number"
            )
        if name == "tp" and (array != np.floor(array)).any():
            raise ValueError(f"Got tp={value!r}, but expected a whole number of GPUs")
        values.append(array)
    try:
        batch, context, degrees = np.broadcast_arrays(*values)
    except ValueError as error:
        shapes = ", ".join(str(array.shape) for array in values)
        raise ValueError(
            f"Got batch_size, context_len and tp of shapes {shapes}, which do not broadcast"
        ) from error
    return batch, context, degrees


def _evaluate(
    step: StepTime, card: Gpu, shape: ModelShape, batch: Array, context: Array, tp: int,
    weight_dtype: str, kv_dtype: str,
) -> dict[str, Array]:  # fmt: skip
    """Columns of a prediction for steps of one tp degree, each (n,)."""
    traffic = step_traffic(shape, weight_dtype, kv_dtype, tp)
    seconds = np.asarray(step.seconds(batch, batch * context))
    terms = step.terms(batch, context)
    whole = sum(terms.values())
    bytes_read, flop, stored = traffic.of_batch(batch, context)
    peak = card.matmul_flops_per_s(weight_dtype)
    return {
        "seconds": seconds,
        **{name: np.asarray(value / whole * seconds) for name, value in terms.items()},
        "mbu": bytes_read / seconds / (card.bandwidth_bytes_per_s or np.nan),
        "mfu": flop / seconds / peak,
        "fits": (stored <= card.memory_bytes).astype(float),
        "similarity": step.correct(batch.ravel(), context.ravel(), np.zeros(batch.size))[1],
    }


def _prediction(
    found: dict[str, Array], steps: list[StepTime], shape: ModelShape, card: Gpu,
    asked_gpu: object, batch: Array, context: Array, interval: float | None,
) -> Prediction:  # fmt: skip
    step = steps[0]
    factors = step.interval_factors(interval) if interval is not None else None
    stacked = np.stack([found[name] for name in FAMILIES])
    seconds = found["seconds"]
    return Prediction(
        step_time_s=_plain(seconds),
        low_s=_plain(seconds * factors[0]) if factors else None,
        high_s=_plain(seconds * factors[1]) if factors else None,
        tokens_per_s=_plain(batch / seconds),
        terms={name: _plain(found[name]) for name in FAMILIES},
        binding=_plain(np.array(FAMILIES)[stacked.argmax(axis=0)]),
        mbu=_plain(found["mbu"]), mfu=_plain(found["mfu"]),
        fits=_plain(found["fits"] > 0),
        extrapolation=_doubts(step, shape, card, found, batch, context),
        calibration_id=step.calibration_id, basis=step.basis,
        interval=interval if factors else None, model=shape.name, gpu=card.name,
        assumptions=(card.assumption,)
        if card.assumption and str(asked_gpu).lower() != card.name else (),
    )  # fmt: skip


def _doubts(
    step: StepTime, shape: ModelShape, card: Gpu, found: dict[str, Array], batch: Array,
    context: Array,
) -> tuple[str, ...]:  # fmt: skip
    doubts = []
    if step.coverage is None:
        doubts.append(f"no rows of this engine on {card.name}: coefficients of {step.basis}")
    else:
        beyond = (*step.lacks, *step.coverage.beyond(batch, context))
        doubts += [f"{reason} ({step.basis})" for reason in beyond]
    if shape.max_context is not None and (context > shape.max_context).any():
        doubts.append(f"context above the model's maximum of {shape.max_context:,} tokens")
    if (found["fits"] == 0).any():
        doubts.append("weights and cache exceed the memory: the step could not run")
    return tuple(doubts)


def _plain(values: npt.NDArray[Any]) -> Any:
    return values.item() if np.ndim(values) == 0 else values
