"""Curves people ask for: cache against context, and context against concurrency."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capmodel.arguments import COUNT, number
from capmodel.gpus import GpuLike
from capmodel.kvcache import kv_bytes
from capmodel.memory.budget import MEMORY_FRACTION
from capmodel.memory.concurrency import max_concurrency
from capmodel.memory.variants import attention_variants
from capmodel.shapes import ModelLike, load_shape
from capmodel.words import shown

KV_DTYPES = ("bf16", "fp8", "int4")


@dataclass(frozen=True, slots=True)
class Curves:
    """Named series over one axis of context lengths [tokens].

    quantity: what the series hold, "kv_bytes" [byte] or "concurrency" [requests].
    """

    quantity: str
    context_len: NDArray[np.int64]
    series: dict[str, NDArray[np.float64]]


def context_axis(longest: int, shortest: int = 1024) -> NDArray[np.int64]:
    """Powers of two from `shortest` to `longest` tokens, both included."""
    longest = number("longest", longest, COUNT)
    shortest = number("shortest", shortest, COUNT)
    start = min(shortest, longest)
    powers = start * 2 ** np.arange(int(np.log2(longest / start)) + 1, dtype=np.int64)
    return powers if powers[-1] == longest else np.append(powers, longest)


def cache_curves(
    model: ModelLike, context_len: NDArray[np.int64], kv_dtype: str = "bf16", tp: int = 1
) -> Curves:
    """Cache of one request [byte] with each attention in `kv_dtype`, then in other dtypes.

    The model's own attention is marked with a star. MHA, GQA (8), MQA and MLA are what-ifs of
    the same layers and heads.
    """
    shape = load_shape(model)
    series: dict[str, NDArray[np.float64]] = {}
    for name, variant in attention_variants(shape).items():
        label = f"{name}*" if variant is shape else name
        series[label] = np.asarray(kv_bytes(variant, context_len, 1, kv_dtype, tp))
    own = next((label[:-1] for label in series if label.endswith("*")), "")
    if not own:
        series[f"{kv_dtype}*"] = np.asarray(kv_bytes(shape, context_len, 1, kv_dtype, tp))
    for dtype in KV_DTYPES:
        if dtype != kv_dtype:
            label = f"{own} {dtype}".strip()
            series[label] = np.asarray(kv_bytes(shape, context_len, 1, dtype, tp))
    return Curves("kv_bytes", context_len, series)


def concurrency_curves(
    model: ModelLike,
    gpu: GpuLike,
    context_len: NDArray[np.int64],
    *,
    weight_dtype: str | None = "bf16",
    tp: int = 1,
    memory_fraction: float = MEMORY_FRACTION,
    mode: str = "nameplate",
    reserve_bytes: float | None = None,
    max_num_batched_tokens: int | None = None,
    kv_dtypes: tuple[str, ...] = KV_DTYPES,
) -> Curves:
    """The frontier: requests of each length that fit at once, by KV dtype."""
    if not isinstance(kv_dtypes, tuple | list):
        raise ValueError(f"Got kv_dtypes={shown(kv_dtypes)}, but expected several dtypes")
    series = {
        dtype: np.asarray(
            max_concurrency(
                model,
                gpu,
                context_len,
                weight_dtype=weight_dtype,
                kv_dtype=dtype,
                tp=tp,
                memory_fraction=memory_fraction,
                mode=mode,
                reserve_bytes=reserve_bytes,
                max_num_batched_tokens=max_num_batched_tokens,
            ),
            dtype=float,
        )
        for dtype in kv_dtypes
    }
    return Curves("concurrency", context_len, series)
