"""An estimate and a start-up log side by side, one step at a time, so that a gap has a place."""

from dataclasses import dataclass, replace

from capmodel.gpus import GpuLike, load_gpu
from capmodel.kvcache import EngineSettings, Replay, kv_bytes, kv_bytes_per_token, replay
from capmodel.memory.budget import MemoryBudget, memory_budget
from capmodel.memory.reserve import (
    GRAPHS_BYTES,
    NON_TORCH_BYTES,
    StepLimits,
    activation_bytes,
    default_limits,
)
from capmodel.memory.start_log import StartLog
from capmodel.shapes import ModelLike, ModelShape, load_shape
from capmodel.shapes.catalogue import in_catalogue
from capmodel.units import format_bytes, format_gib
from capmodel.weights import weight_bytes
from capmodel.words import shown


@dataclass(frozen=True, slots=True)
class MemoryStep:
    """A part of the memory [byte]: estimated, and as the log says it (None where it does not)."""

    name: str
    estimate_bytes: float | None
    logged_bytes: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class CacheStep:
    """The cache after one more thing is counted: tokens, and requests of the longest length."""

    name: str
    tokens: float
    concurrency: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class LogComparison:
    """Estimate against log: the memory part by part, then the cache step by step.

    budget: the estimate of the memory, None where neither log nor caller named the GPU.
    replayed: the engine's figures from the memory the log says was available.
    """

    log: StartLog
    max_model_len: int
    memory: tuple[MemoryStep, ...]
    cache: tuple[CacheStep, ...]
    budget: MemoryBudget | None
    replayed: Replay

    @property
    def tokens_error(self) -> float | None:
        """Replayed over logged tokens, less 1; None where the log prints none."""
        return self.replayed.tokens / self.log.tokens - 1 if self.log.tokens else None

    @property
    def concurrency_error(self) -> float | None:
        """Replayed over logged concurrency, both as printed, less 1; None where it has none."""
        logged = self.log.concurrency
        return round(self.replayed.concurrency, 2) / logged - 1 if logged else None

    @property
    def bytes_error(self) -> float | None:
        """Allocated bytes over logged ones, less 1 (llama.cpp); None where the log has none."""
        logged = self.log.cache_bytes
        return self.replayed.cache_bytes / logged - 1 if logged else None


def compare_log(
    log: StartLog,
    model: ModelLike | None = None,
    gpu: GpuLike | None = None,
    *,
    weight_dtype: str | None = None,
    settings: EngineSettings | None = None,
    max_model_len: int | None = None,
    available_bytes: float | None = None,
) -> LogComparison:
    """Lay the estimate for a start-up beside what its log says.

    model: None takes the log's. gpu: for the memory's estimate; None leaves it to the log's total.
    weight_dtype: None takes the checkpoint's. settings: None takes the log's (`log_settings`).

    Raises ValueError where log and arguments together name no model or no length, and as
    `replay` does.
    """
    if model is None and log.model is None:
        raise ValueError("The log does not name its model; give it (--model)")
    shape = load_shape(model) if model is not None else _logged_shape(str(log.model))
    settings = settings or log_settings(log, gpu)
    length = max_model_len or log.max_model_len or shape.max_context
    if length is None:
        raise ValueError(
            f"Neither the log nor {shape.name} gives the longest request; give it (--context)"
        )
    available = available_bytes if available_bytes is not None else log.available_bytes
    budget = _budget(shape, log, gpu, weight_dtype, settings)
    if available is None and log.engine != "llama.cpp":
        if budget is None:
            raise ValueError(
                "The log does not say how much memory the cache got; give --available-gib, or "
                "--gpu for an estimate"
            )
        available = budget.cache_bytes
    if available is not None and available_bytes is None:
        available = max(0.0, available)  # a log says it is below zero where nothing is left
    replayed = replay(shape, available, length, log.engine, settings, log.rounding_bytes)
    return LogComparison(
        log=log,
        max_model_len=length,
        memory=_memory_steps(shape, log, budget, gpu, weight_dtype, settings),
        cache=_cache_steps(shape, log, replayed, settings),
        budget=budget,
        replayed=replayed,
    )


def _logged_shape(name: str) -> ModelShape:
    """The model a log names: as it stands, or by the last part of the path it was served from."""
    try:
        return load_shape(name)
    except ValueError:
        tail = name.rstrip("/").rpartition("/")[2]
        if in_catalogue(tail):
            return load_shape(tail)
        raise ValueError(
            f"The log's model {shown(name)} is not known here; give it (--model), by a name of "
            "`capmodel catalog models` or the path of its config.json"
        ) from None


def log_settings(log: StartLog, gpu: GpuLike | None = None) -> EngineSettings:
    """The settings a log shows; for the rest the engine's defaults, on `gpu` where it is given."""
    defaults = EngineSettings()
    if gpu is not None:
        tokens = default_limits(load_gpu(gpu)).max_num_batched_tokens
        defaults = replace(defaults, max_num_batched_tokens=tokens)
    return EngineSettings(
        version=log.version,
        kv_dtype=log.kv_dtype or defaults.kv_dtype,
        tp=log.tp,
        pp=log.pp,
        context_parallel=log.context_parallel,
        block_size=log.block_size,
        max_num_batched_tokens=log.max_num_batched_tokens or defaults.max_num_batched_tokens,
        prefix_caching=log.prefix_caching,
        state_mode=log.state_mode,
        draft_tokens=log.draft_tokens,
        slots=log.slots,
        unified=log.unified,
        micro_batch=log.micro_batch,
    )


def _budget(
    shape: ModelShape,
    log: StartLog,
    gpu: GpuLike | None,
    weight_dtype: str | None,
    settings: EngineSettings,
) -> MemoryBudget | None:
    """The memory as estimated: from the GPU, or from the total the log prints."""
    fraction = log.fraction or 0.9
    if gpu is not None:
        limits = _limits(log, gpu, settings)
        return memory_budget(
            shape,
            load_gpu(gpu),
            weight_dtype=weight_dtype,
            tp=settings.tp,
            memory_fraction=fraction,
            mode="engine",
            limits=limits,
        )
    if log.total_bytes is None:
        return None
    return MemoryBudget(
        "engine",
        log.total_bytes,
        fraction,
        float(weight_bytes(shape, weight_dtype, settings.tp)) / settings.pp,
        activation_bytes(shape, _limits(log, gpu, settings), settings.tp),
        GRAPHS_BYTES,
        NON_TORCH_BYTES,
    )


def _limits(log: StartLog, gpu: GpuLike | None, settings: EngineSettings) -> StepLimits:
    usual = default_limits(load_gpu(gpu)).max_num_seqs if gpu is not None else 256
    return StepLimits(log.max_num_seqs or usual, settings.max_num_batched_tokens)


def _memory_steps(
    shape: ModelShape,
    log: StartLog,
    budget: MemoryBudget | None,
    gpu: GpuLike | None,
    weight_dtype: str | None,
    settings: EngineSettings,
) -> tuple[MemoryStep, ...]:
    weights = float(weight_bytes(shape, weight_dtype, settings.tp)) / settings.pp
    limits = _limits(log, gpu, settings)
    fraction = log.fraction or (budget.fraction if budget else None)
    usable = log.total_bytes * fraction if log.total_bytes and fraction else None
    known = [log.weights_bytes, log.activation_bytes, log.non_torch_bytes]
    rest = None
    if usable is not None and None not in known:
        rest = usable - sum(size for size in known if size is not None)
    unit = ""
    if gpu is not None:
        marketed = load_gpu(gpu).memory_bytes
        unit = f"the datasheet's {format_bytes(marketed)} would be {format_gib(marketed)}"
    return (
        MemoryStep("total", budget.capacity_bytes if budget else None, log.total_bytes, unit),
        MemoryStep("usable", budget.usable_bytes if budget else None, usable),
        MemoryStep("weights", weights, log.weights_bytes, "counted as stored; the log measured it"),
        MemoryStep(
            "activation peak",
            activation_bytes(shape, limits, settings.tp),
            log.activation_bytes,
            f"{limits.max_num_seqs} sequences, {limits.max_num_batched_tokens:,} tokens a step",
        ),
        MemoryStep("CUDA graphs", GRAPHS_BYTES, log.graphs_bytes, "median of logs"),
        MemoryStep("non-torch", NON_TORCH_BYTES, log.non_torch_bytes, "median of logs"),
        MemoryStep(
            "cache",
            budget.cache_bytes if budget else None,
            log.available_bytes,
            f"the log's own parts leave {format_gib(rest)}" if rest is not None else "",
        ),
    )


def _cache_steps(
    shape: ModelShape, log: StartLog, replayed: Replay, settings: EngineSettings
) -> tuple[CacheStep, ...]:
    """From the naive quotient to the printed figure; for engines with one pool two steps."""
    length, available = replayed.max_model_len, replayed.pool.available_bytes
    unit = kv_bytes_per_token(shape, settings.kv_dtype, settings.tp) / settings.pp
    steps = []
    if unit:
        tokens = available / unit * settings.context_parallel
        note = f"{unit:,.0f} bytes per token"
        steps.append(CacheStep("unit", tokens, tokens / length, note))
    if log.engine == "vllm":
        whole = kv_bytes(shape, length, 1, settings.kv_dtype, settings.tp) / settings.pp
        held = available / whole * settings.context_parallel
        steps.append(CacheStep("windows and states", held * length, held, "of a long request"))
        settled = replace(settings, max_num_batched_tokens=1, batches_in_flight=1)
        paged = replay(shape, available, length, "vllm", settled).pool
        held = paged.concurrency(length)
        note = "; ".join(paged.layout)
        steps.append(CacheStep("page unification", held * length, held, note))
        held = replayed.pool.concurrency(length)
        batches = f"{settings.max_num_batched_tokens:,} tokens a step"
        steps.append(CacheStep("window in flight", held * length, held, batches))
    version = f"version {log.version}" if log.version else "newest version"
    steps.append(CacheStep("as printed", replayed.tokens, replayed.concurrency, version))
    return tuple(steps)
