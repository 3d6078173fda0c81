"""`predict` and `predict_step_time`: one decode step, from the calibration that knows most.

Precedence: a given calibration; else a shipped one with the asked engine and GPU; else one with
the GPU; else one with the engine; else the pooled one. Prediction is silent, deterministic and
offline, and touches nothing that another thread could change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from capmodel.arguments import GPUS, POSITIVE, SHARE, number, numbers, one_or_many, optional
from capmodel.calibration import METHODS, Calibration
from capmodel.ceiling import ceiling
from capmodel.dtypes import kv_dtype_name, weight_dtype_name
from capmodel.engines import engine_doubt, known_engine
from capmodel.gpus import Gpu, GpuLike, load_gpu
from capmodel.kvcache import check_tp
from capmodel.loading import load_calibration
from capmodel.own_folder import State, own_folder
from capmodel.roofline import FAMILIES
from capmodel.shapes import ModelLike, ModelShape, load_shape
from capmodel.shapes.catalogue import in_catalogue
from capmodel.steptime import StepTime
from capmodel.traffic import StepTraffic, step_traffic
from capmodel.words import one_line, shown

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
    ceiling: what binds at each batch that fits, and whether memory or compute ends the growth, in
    words; None for steps of several contexts or tp. fits: weights and cache within the marketed
    memory. extrapolation: why to doubt it, empty where rows of this engine, GPU and model lie
    near. assumptions: how short names were read.
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
    ceiling: str | None = None

    def to_dict(self) -> dict[str, object]:
        """The fields by name, arrays as they are."""
        return {name: getattr(self, name) for name in self.__slots__}


def predict(
    model: ModelLike,
    gpu: GpuLike,
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
    return _predict(
        model, gpu, batch_size, context_len, tp, weight_dtype, kv_dtype, engine, method,
        calibration, interval, with_ceiling=True,
    )  # fmt: skip


def predict_step_time(
    model: ModelLike,
    gpu: GpuLike,
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
    if interval is None:
        batch = one_or_many("batch_size", batch_size, POSITIVE)
        context = one_or_many("context_len", context_len, POSITIVE)
        degree = one_or_many("tp", tp, GPUS)
        if not any(isinstance(value, np.ndarray) for value in (batch, context, degree)):
            step = _step_time(
                model, gpu, degree, weight_dtype, kv_dtype, engine, method, calibration
            )
            return step.seconds(batch, batch * context)
    found = _predict(
        model, gpu, batch_size, context_len, tp, weight_dtype, kv_dtype, engine, method,
        calibration, interval, with_ceiling=False,
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
    gpu: GpuLike,
    *,
    tp: int = 1,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    engine: str | None = None,
    method: str = "regressor",
    calibration: "Calibration | str | Path | None" = None,
) -> StepTime:
    """The `StepTime` behind `predict`, for callers that ask many times.

    Arguments and errors are those of `predict`; tp is one number.
    """
    degree = number("tp", tp, GPUS)
    return _step_time(model, gpu, degree, weight_dtype, kv_dtype, engine, method, calibration)


@lru_cache(maxsize=1)
def shipped_calibrations() -> tuple[Calibration, ...]:
    """The calibrations inside the package, most trusted first."""
    folder = Path(str(files("capmodel") / "calibrations"))
    return tuple(load_calibration(folder / name) for name in SHIPPED if (folder / name).exists())


def choose_calibration(engine: str | None, gpu: str) -> Calibration:
    """The shipped calibration whose rows stand nearest to this engine and GPU."""
    wanted = known_engine(engine)
    return max(shipped_calibrations(), key=lambda own: own.covers(wanted, gpu))


def _predict(
    model: ModelLike, gpu: GpuLike, batch_size: Numeric, context_len: Numeric, tp: Numeric,
    weight_dtype: str, kv_dtype: str, engine: str | None, method: str,
    calibration: "Calibration | str | Path | None", interval: float | None, *, with_ceiling: bool,
) -> Prediction:  # fmt: skip
    batch, context, degrees = _checked(batch_size, context_len, tp)
    interval = optional("interval", interval, SHARE)
    if degrees.size == 0:
        raise ValueError("Got empty arrays, but expected at least one step to predict")
    if isinstance(calibration, str | Path):
        calibration = load_calibration(calibration)
    card, shape = load_gpu(gpu), load_shape(model)
    found: dict[str, Array] = {}
    steps: list[StepTime] = []
    doubts: dict[str, None] = {}
    for degree in sorted(set(degrees.ravel().tolist())):
        here = degrees == degree
        step = _step_time(
            model, gpu, int(degree), weight_dtype, kv_dtype, engine, method, calibration
        )
        steps.append(step)
        weight = weight_dtype_name(weight_dtype)
        traffic = step_traffic(shape, weight, kv_dtype_name(kv_dtype), int(degree))
        peak = card.matmul_flops_per_s(weight)
        part = _evaluate(step, traffic, card, peak, batch[here], context[here])
        factors = interval and step.intervals(interval, batch[here], context[here])
        low, high = factors or (np.nan, np.nan)
        least = np.maximum(part["seconds"] * low, step.floor(batch[here], context[here]))
        part |= {"low": least, "high": part["seconds"] * high}
        for name, values in part.items():
            found.setdefault(name, np.empty(batch.shape))[here] = values
        doubts |= dict.fromkeys(
            _doubts(step, shape, card, engine, part["fits"], batch[here], context[here])
        )
    sentence = None
    if with_ceiling and len(steps) == 1 and (context == context.flat[0]).all():
        sentence = ceiling(step, traffic, float(context.flat[0]), card.memory_bytes, peak)
    return _prediction(found, steps[0], shape, card, gpu, engine, batch, interval, tuple(doubts),
                       sentence)  # fmt: skip


def _step_time(
    model: ModelLike, gpu: GpuLike, tp: int, weight_dtype: str, kv_dtype: str,
    engine: str | None, method: str, calibration: "Calibration | str | Path | None",
) -> StepTime:  # fmt: skip
    _check_words(weight_dtype, kv_dtype, engine, method)
    if calibration is None:
        if isinstance(model, str) and isinstance(gpu, str):
            own = own_folder()
            if _named(model, gpu, own):
                return _named_step_time(model, gpu, tp, weight_dtype, kv_dtype, engine, method, own)
        return _built(load_shape(model), load_gpu(gpu), tp, weight_dtype, kv_dtype, engine, method)
    if isinstance(calibration, str | Path):
        calibration = load_calibration(calibration)
    if not isinstance(calibration, Calibration):
        raise ValueError(
            f"Got calibration={shown(calibration)}, but expected a Calibration, the path of its "
            "file, or None"
        )
    card, shape = load_gpu(gpu), load_shape(model)
    check_tp(shape, tp)
    return calibration.step_time(
        shape, card, tp=tp, weight_dtype=weight_dtype, kv_dtype=kv_dtype,
        engine=engine, method=method,
    )  # fmt: skip


def _check_words(weight_dtype: Any, kv_dtype: Any, engine: Any, method: Any) -> None:
    """Raise ValueError for what is no text: steps are kept by these."""
    if not isinstance(weight_dtype, str):
        weight_dtype_name(weight_dtype)
    if not isinstance(kv_dtype, str):
        kv_dtype_name(kv_dtype)
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"Got method={shown(method)}, but expected {' or '.join(METHODS)}")
    if engine is not None:
        known_engine(engine)


@lru_cache(maxsize=4096)
def _named(model: str, gpu: str, own: State) -> bool:
    """Whether both are names of the catalogue as it is now, not paths of files."""
    return in_catalogue(model) and not gpu.strip().lower().endswith(".toml")


@lru_cache(maxsize=4096)
def _named_step_time(
    model: str, gpu: str, tp: int, weight_dtype: str, kv_dtype: str, engine: str | None,
    method: str, own: State,
) -> StepTime:  # fmt: skip
    return _built(load_shape(model), load_gpu(gpu), tp, weight_dtype, kv_dtype, engine, method)


@lru_cache(maxsize=4096)
def _built(
    shape: ModelShape, card: Gpu, tp: int, weight_dtype: str, kv_dtype: str, engine: str | None,
    method: str,
) -> StepTime:  # fmt: skip
    check_tp(shape, tp)
    return choose_calibration(engine, card.name).step_time(
        shape, card, tp=tp, weight_dtype=weight_dtype, kv_dtype=kv_dtype,
        engine=engine, method=method,
    )  # fmt: skip


def _checked(batch_size: Numeric, context_len: Numeric, tp: Numeric) -> tuple[Array, Array, Array]:
    values = [
        numbers("batch_size", batch_size, POSITIVE), numbers("context_len", context_len, POSITIVE),
        numbers("tp", tp, GPUS),
    ]  # fmt: skip
    try:
        batch, context, degrees = np.broadcast_arrays(*values)
    except ValueError as error:
        shapes = ", ".join(str(array.shape) for array in values)
        raise ValueError(
            f"Got batch_size, context_len and tp of shapes {shapes}, which do not broadcast"
        ) from error
    return batch, context, degrees


def _evaluate(
    step: StepTime, traffic: StepTraffic, card: Gpu, peak: float, batch: Array, context: Array,
) -> dict[str, Array]:  # fmt: skip
    """Columns of a prediction for steps of one tp degree, each (n,). peak: [FLOP/s]."""
    if batch.size == 1:  # in plain arithmetic, a fifth of the time
        one = step.seconds(batch.item(), batch.item() * context.item())
        seconds = np.full(batch.shape, one)
    else:
        seconds = np.asarray(step.seconds(batch, batch * context))
    terms = step.terms(batch, context)
    whole = sum(terms.values())
    bytes_read, flop, stored = traffic.of_batch(batch, context)
    return {
        "seconds": seconds,
        **{name: np.asarray(value / whole * seconds) for name, value in terms.items()},
        "mbu": bytes_read / seconds / (card.bandwidth_bytes_per_s or np.nan),
        "mfu": flop / seconds / peak,
        "fits": (stored <= card.memory_bytes).astype(float),
    }


def _prediction(
    found: dict[str, Array], step: StepTime, shape: ModelShape, card: Gpu, asked_gpu: object,
    engine: str | None, batch: Array, interval: float | None, doubts: tuple[str, ...],
    sentence: str | None,
) -> Prediction:  # fmt: skip
    stacked = np.stack([found[name] for name in FAMILIES])
    seconds = found["seconds"]
    known = bool(np.isfinite(found["low"]).all())
    read_as = []
    if card.assumption and str(asked_gpu).lower() != card.name:
        read_as.append(card.assumption)
    if engine is not None and engine.strip().lower() != known_engine(engine):
        read_as.append(f"engine {one_line(engine)} is read as {known_engine(engine)}")
    return Prediction(
        step_time_s=_plain(seconds),
        low_s=_plain(found["low"]) if known else None,
        high_s=_plain(found["high"]) if known else None,
        tokens_per_s=_plain(batch / seconds),
        terms={name: _plain(found[name]) for name in FAMILIES},
        binding=_plain(np.array(FAMILIES)[stacked.argmax(axis=0)]),
        mbu=_plain(found["mbu"]), mfu=_plain(found["mfu"]),
        fits=_plain(found["fits"] > 0),
        extrapolation=doubts,
        calibration_id=step.calibration_id, basis=step.basis,
        interval=interval if known else None, model=shape.name, gpu=card.name,
        assumptions=tuple(read_as), ceiling=sentence,
    )  # fmt: skip


def _doubts(
    step: StepTime, shape: ModelShape, card: Gpu, engine: str | None, fits: Array, batch: Array,
    context: Array,
) -> tuple[str, ...]:  # fmt: skip
    doubts = []
    known = known_engine(engine)
    unknown = engine_doubt(known)
    if unknown and step.basis.partition(" on ")[0] != known:
        doubts.append(unknown)
    if step.coverage is None:
        doubts.append(f"no rows of this engine on {card.name}: coefficients of {step.basis}")
    doubts += step.beyond(batch, context)
    if shape.max_context is not None and (context > shape.max_context).any():
        doubts.append(f"context above the model's maximum of {shape.max_context:,} tokens")
    if (fits == 0).any():
        doubts.append("weights and cache exceed the memory: the step could not run")
    return tuple(doubts)


def _plain(values: npt.NDArray[Any]) -> Any:
    return values.item() if np.ndim(values) == 0 else values
