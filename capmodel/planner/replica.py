"""A candidate as a replica: what fits, how many blocks, how long a step takes."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from capmodel.gpus import Gpu
from capmodel.kvcache import EngineSettings, RequestCost, request_cost
from capmodel.kvcache.replay import ENGINES
from capmodel.kvcache.splits import check_tp
from capmodel.memory import (
    MEMORY_FRACTION,
    MemoryBudget,
    StepLimits,
    default_limits,
    memory_budget,
)
from capmodel.planner.candidate import Candidate
from capmodel.planner.prompts import Prompts, attention_tokens, with_prompts
from capmodel.shapes import ModelShape
from capmodel.simulation import (
    FrontEnd,
    Server,
    StepTimeLike,
    front_end_of,
    mixed,
    on_demand,
    prefill_first,
    whole_request,
)
from capmodel.simulation.policies import Batching
from capmodel.simulation.table import tabulated
from capmodel.steptime import StepTime

# Coverage of the step time's interval.
INTERVAL = 0.9


@dataclass(frozen=True, slots=True)
class Scheduler:
    """How an engine lays its cache out and schedules, by default.

    reserves_whole: blocks for prompt and output are set aside at admission.
    """

    layout: str
    batching: Batching = mixed
    reserves_whole: bool = False


# SGLang runs prompts in steps of their own; TensorRT-LLM's default capacity policy is
# GUARANTEED_NO_EVICT. Others are taken to schedule like vLLM.
SCHEDULERS = {
    "vllm": Scheduler("vllm"),
    "sglang": Scheduler("sglang", prefill_first),
    "tensorrt-llm": Scheduler("tensorrt-llm", reserves_whole=True),
}


def scheduler_of(engine: str | None) -> Scheduler:
    """The scheduler of `engine`, known by any of its names; vLLM's for None and for others."""
    name = ENGINES.get((engine or "vllm").strip().lower(), "vllm")
    return SCHEDULERS.get(name, SCHEDULERS["vllm"])


class CalibrationLike(Protocol):
    """Where step times come from; `capmodel.Calibration` is one."""

    def step_time(
        self,
        model: ModelShape,
        gpu: Gpu,
        *,
        tp: int = 1,
        weight_dtype: str = "bf16",
        kv_dtype: str = "bf16",
        engine: str | None = None,
    ) -> StepTimeLike: ...


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a candidate.

    pool_blocks: cache blocks; cost: those a request takes. low_factor, high_factor: ends of the
    step time's interval. prompts: what they take. front_end: before the scheduler; scheduler: the
    engine's.
    """

    candidate: Candidate
    budget: MemoryBudget
    cost: RequestCost
    pool_blocks: int
    limits: StepLimits
    step_time: StepTimeLike
    low_factor: float
    high_factor: float
    calibration_id: str
    prompts: Prompts
    front_end: FrontEnd
    scheduler: Scheduler

    def server(self, prefix_cache: bool, longest: int, step_scale: float = 1.0) -> Server:
        """The replica for the simulator. longest: of the requests [tokens]."""
        sequences = min(self.limits.max_num_seqs, self.limits.max_num_batched_tokens)
        return Server(
            tabulated(self.step_time, sequences, longest, self.limits.max_num_batched_tokens),
            self.pool_blocks,
            self.cost,
            max_num_seqs=sequences,
            max_batched_tokens=self.limits.max_num_batched_tokens,
            prefix_cache=prefix_cache,
            attention_tokens=self.prompts.attention_tokens,
            step_scale=step_scale,
            front_end=self.front_end,
            batching=self.scheduler.batching,
            reservation=whole_request if self.scheduler.reserves_whole else on_demand,
        )


class DoesNotFit(ValueError):
    """Why a candidate is set aside before any load: not an error of the user's.

    stage: what it fails at, "tp", "memory" or "step time". lacking_bytes: of a GPU's memory, where
    that is known.
    """

    def __init__(
        self, message: str, stage: str = "memory", lacking_bytes: float | None = None
    ) -> None:
        super().__init__(message)
        self.stage = stage
        self.lacking_bytes = lacking_bytes


@dataclass(frozen=True, slots=True)
class Setting:
    """What all candidates of a search share."""

    calibration: CalibrationLike
    engine: str | None = None
    memory_fraction: float = MEMORY_FRACTION
    longest_request: int = 1


def replica_of(shape: ModelShape, candidate: Candidate, setting: Setting) -> Replica:
    """The replica of `candidate`. Raises DoesNotFit, with the reason, where there is none."""
    try:
        check_tp(shape, candidate.tp)
    except ValueError as error:
        raise DoesNotFit(str(error), "tp") from error
    budget = _budget(shape, candidate, setting.memory_fraction)
    if budget.shortfall_bytes > 0:
        raise DoesNotFit(
            f"weights: {budget.weights_bytes / 1e9:.1f} GB per GPU and "
            f"{budget.reserve_bytes / 1e9:.1f} GB reserve, "
            f"{budget.shortfall_bytes / 1e9:.1f} GB too much",
            lacking_bytes=budget.shortfall_bytes,
        )
    limits = default_limits(candidate.gpu)
    cost = _cost(shape, candidate, setting.engine, limits.max_num_batched_tokens)
    blocks = int(budget.cache_bytes // cost.block_bytes)
    longest = int(cost.blocks(setting.longest_request))
    if longest > blocks:
        raise DoesNotFit(
            f"cache: the longest request ({setting.longest_request:,} tokens) needs "
            f"{longest * cost.block_bytes / 1e9:.1f} GB per GPU, "
            f"{budget.cache_bytes / 1e9:.1f} GB are left",
            lacking_bytes=longest * cost.block_bytes - budget.cache_bytes,
        )
    step_time = step_time_of(shape, candidate, setting)
    if isinstance(step_time, StepTime):
        step_time, prompts = with_prompts(step_time, shape, candidate, setting.engine)
    else:
        prompts = Prompts(attention_tokens(shape, candidate.weight_dtype, candidate.kv_dtype))
    low, high = interval_of(step_time)
    return Replica(
        candidate=candidate,
        budget=budget,
        cost=cost,
        pool_blocks=blocks,
        limits=limits,
        step_time=step_time,
        low_factor=low,
        high_factor=high,
        calibration_id=str(getattr(step_time, "calibration_id", "")),
        prompts=prompts,
        front_end=front_end_of(setting.engine),
        scheduler=scheduler_of(setting.engine),
    )


def _budget(shape: ModelShape, candidate: Candidate, fraction: float) -> MemoryBudget:
    """Engine mode; nameplate where no source gives the memory a driver reports."""
    mode = "engine" if candidate.gpu.memory_reported_bytes is not None else "nameplate"
    return _cached_budget(
        shape, candidate.gpu, candidate.weight_dtype, candidate.tp, fraction, mode
    )


@lru_cache(maxsize=4096)
def _cached_budget(
    shape: ModelShape, gpu: Gpu, weight_dtype: str, tp: int, fraction: float, mode: str
) -> MemoryBudget:
    try:
        return memory_budget(
            shape, gpu, weight_dtype=weight_dtype, tp=tp, memory_fraction=fraction, mode=mode
        )
    except ValueError as error:
        raise DoesNotFit(str(error)) from error


@lru_cache(maxsize=4096)
def _cached_cost(
    shape: ModelShape, engine: str, kv_dtype: str, tp: int, batched_tokens: int
) -> RequestCost:
    settings = EngineSettings(kv_dtype=kv_dtype, tp=tp, max_num_batched_tokens=batched_tokens)
    try:
        return request_cost(shape, engine, settings)
    except ValueError as error:
        raise DoesNotFit(str(error)) from error


def _cost(
    shape: ModelShape, candidate: Candidate, engine: str | None, batched_tokens: int
) -> RequestCost:
    layout = scheduler_of(engine).layout
    return _cached_cost(shape, layout, candidate.kv_dtype, candidate.tp, batched_tokens)


def step_time_of(shape: ModelShape, candidate: Candidate, setting: Setting) -> StepTimeLike:
    """The calibration's step time of `candidate`. Raises DoesNotFit where it has none."""
    try:
        found = setting.calibration.step_time(
            shape,
            candidate.gpu,
            tp=candidate.tp,
            weight_dtype=candidate.weight_dtype,
            kv_dtype=candidate.kv_dtype,
            engine=setting.engine,
        )
    except ValueError as error:
        raise DoesNotFit(f"step time: {error}", "step time") from error
    return found


def at_work(replica: Replica, batch: float, held: float) -> Replica:
    """The replica with the interval of steps of `batch` sequences that hold `held` tokens each."""
    if not isinstance(replica.step_time, StepTime):
        return replica
    found = replica.step_time.intervals(INTERVAL, np.array([batch]), np.array([held]))
    if found is None:
        return replica
    low, high = (float(end[0]) for end in found)
    return replace(replica, low_factor=low, high_factor=high)


def interval_of(step_time: StepTimeLike) -> tuple[float, float]:
    """Factors on the step time at INTERVAL; 1 and 1 where no held-out rows speak for it."""
    if isinstance(step_time, StepTime):
        return step_time.interval_factors(INTERVAL) or (1.0, 1.0)
    ends = (getattr(step_time, name, None) for name in ("low_factor", "high_factor"))
    low, high = (1.0 if end is None else float(end) for end in ends)
    return low, high
