"""How many requests of a length fit, by the textbook's rule or by the engine's blocks."""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capmodel.arguments import BYTES, COUNT, FRACTION, GPUS, LENGTH, number, one_or_many, optional
from capmodel.dtypes import kv_dtype_name, weight_dtype_name
from capmodel.gpus import Gpu, GpuLike, load_gpu
from capmodel.kvcache import EngineSettings, kv_bytes, request_cost
from capmodel.kvcache.totals import check_lengths
from capmodel.memory.budget import MEMORY_FRACTION, MODES, MemoryBudget, memory_budget
from capmodel.memory.reserve import StepLimits, default_limits
from capmodel.shapes import ModelLike, ModelShape, load_shape
from capmodel.words import shown


def max_concurrency(
    model: ModelLike,
    gpu: GpuLike,
    context_len: ArrayLike,
    *,
    weight_dtype: str | None = "bf16",
    kv_dtype: str = "bf16",
    tp: ArrayLike = 1,
    memory_fraction: float = MEMORY_FRACTION,
    mode: str = "nameplate",
    reserve_bytes: float | None = None,
    max_num_batched_tokens: int | None = None,
    block_size: int = 16,
) -> int | NDArray[np.int64]:
    """Requests of `context_len` tokens that `tp` GPUs hold at once.

    mode "nameplate": floor of (fraction of the datasheet's GB - parameters x flat bytes) over the
    bytes of a request. mode "engine": whole blocks of vLLM's newest layout in the memory the
    driver reports, less weights as stored and `reserve_bytes` (None: estimated), in
    blocks of block_size tokens at max_num_batched_tokens a step (None: the engine's default).
    gpu: as `load_gpu` takes it. weight_dtype, kv_dtype: as stored; weights of None as in the
    checkpoint. memory_fraction: of the memory, what the engine may use. context_len and tp
    broadcast: scalars give an int, arrays an ndarray of int64. 0 means not one fits;
    `explain_fit` says by how much, and what would help.

    Raises ValueError as `memory_budget` and `kv_bytes` do. Warns above the model's maximum.
    Source: PHYSICS section 4.
    """
    shape, device = load_shape(model), load_gpu(gpu)
    context, degree = one_or_many("context_len", context_len, LENGTH), one_or_many("tp", tp, GPUS)
    _check_keys(weight_dtype, kv_dtype, mode)
    memory_fraction = number("memory_fraction", memory_fraction, FRACTION)
    reserve_bytes = optional("reserve_bytes", reserve_bytes, BYTES)
    max_num_batched_tokens = optional("max_num_batched_tokens", max_num_batched_tokens, COUNT)
    block_size = number("block_size", block_size, COUNT)

    def of_degree(degree: int, lengths: Any) -> Any:
        budget, settings = _plan(
            shape,
            device,
            weight_dtype,
            kv_dtype,
            degree,
            memory_fraction,
            mode,
            reserve_bytes,
            max_num_batched_tokens,
            block_size,
        )
        return held(shape, budget, lengths, settings)

    if not isinstance(context, np.ndarray) and isinstance(degree, int):
        return int(of_degree(degree, context))
    try:
        degrees, lengths = np.broadcast_arrays(np.asarray(degree), np.asarray(context))
    except ValueError:
        raise ValueError(
            f"Got context_len and tp of shapes {np.shape(context)} and {np.shape(degree)}, which "
            "do not broadcast"
        ) from None
    counts = np.zeros(lengths.shape, dtype=np.int64)
    for each in np.unique(degrees):
        chosen = degrees == each
        counts[chosen] = of_degree(int(each), lengths[chosen])
    return counts


def _check_keys(weight_dtype: Any, kv_dtype: Any, mode: Any) -> None:
    """Raise ValueError for what is no text: the plans are kept by these."""
    if weight_dtype is not None and not isinstance(weight_dtype, str):
        weight_dtype_name(weight_dtype)
    if not isinstance(kv_dtype, str):
        kv_dtype_name(kv_dtype)
    if not isinstance(mode, str):
        raise ValueError(f"Got mode={shown(mode)}, but expected one of {', '.join(MODES)}")


@lru_cache(maxsize=4096)
def _plan(
    shape: ModelShape,
    device: Gpu,
    weight_dtype: str | None,
    kv_dtype: str,
    tp: int,
    memory_fraction: float,
    mode: str,
    reserve_bytes: float | None,
    max_num_batched_tokens: int | None,
    block_size: int,
) -> tuple[MemoryBudget, EngineSettings]:
    limits = step_limits(device, max_num_batched_tokens)
    budget = memory_budget(
        shape,
        device,
        weight_dtype=weight_dtype,
        tp=tp,
        memory_fraction=memory_fraction,
        mode=mode,
        reserve_bytes=reserve_bytes,
        limits=limits,
    )
    settings = EngineSettings(
        kv_dtype=kv_dtype,
        tp=tp,
        block_size=block_size,
        max_num_batched_tokens=limits.max_num_batched_tokens,
    )
    return budget, settings


def held(
    shape: ModelShape, budget: MemoryBudget, context_len: Any, settings: EngineSettings
) -> Any:
    """Requests of `context_len` tokens in the cache of `budget`, by the rule of its mode."""
    if budget.mode == "nameplate":
        per_request = kv_bytes(shape, context_len, 1, settings.kv_dtype, settings.tp)
        return _whole(budget.cache_bytes, per_request, shape)
    check_lengths(shape, context_len)
    cost = request_cost(shape, "vllm", settings)
    if not cost.block_bytes:
        raise _keeps_nothing(shape)
    return math.floor(budget.cache_bytes / cost.block_bytes) // cost.blocks(context_len)


def step_limits(gpu: Gpu, max_num_batched_tokens: int | None) -> StepLimits:
    """The GPU's default limits, with the tokens of a step as given."""
    limits = default_limits(gpu)
    if max_num_batched_tokens is None:
        return limits
    return StepLimits(limits.max_num_seqs, max_num_batched_tokens)


def _whole(available: float, per_request: Any, shape: ModelShape) -> Any:
    one = isinstance(per_request, float | int)
    if not (per_request if one else np.all(per_request)):
        raise _keeps_nothing(shape)
    if one:
        return math.floor(available / per_request)
    return np.floor(available / per_request).astype(np.int64)


def _keeps_nothing(shape: ModelShape) -> ValueError:
    return ValueError(
        f"Got model {shape.name}, whose layers keep no cache and no state, so memory sets no limit "
        "to its requests; expected a model with attention or state layers"
    )
