"""Cache bytes per token and per request, layout of no engine in particular.

Windows, states and replication are counted; blocks are not (see `request_cost`).
"""

import math
import warnings
from functools import lru_cache
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capmodel.kvcache.layers import cache_pieces
from capmodel.kvcache.splits import check_tp
from capmodel.shapes import ModelLike, ModelShape, load_shape

FloatArray = NDArray[np.float64]


class ContextWarning(UserWarning):
    """A context is longer than the model was made for; the arithmetic goes on."""


@overload
def kv_bytes_per_token(model: ModelLike, kv_dtype: str = ..., tp: int = ...) -> float: ...
@overload
def kv_bytes_per_token(model: ModelLike, kv_dtype: str, tp: NDArray[Any]) -> FloatArray: ...


def kv_bytes_per_token(
    model: ModelLike, kv_dtype: str = "bf16", tp: ArrayLike = 1
) -> float | FloatArray:
    """Bytes one more token takes on each GPU while no window is full [byte].

    model: anything `load_shape` takes. kv_dtype: one dtype, or "k,v" for K and V apart.
    tp: tensor-parallel GPUs; an array gives an array.

    Raises ValueError for an unknown model or dtype and for a tp that does not divide the heads.
    Past its window a layer stops growing: `kv_bytes` counts that. PHYSICS section 1:
    gpt-oss-120b 73,728; Llama-3-70B 327,680.
    """
    shape = load_shape(model)
    if isinstance(tp, int):
        return sum(rate for rate, _ in _terms(shape, kv_dtype, tp)[1])
    degrees, index, form = _degrees(tp)
    values = [sum(rate for rate, _ in _terms(shape, kv_dtype, degree)[1]) for degree in degrees]
    return _shaped(np.asarray(values)[index], form)


@overload
def kv_bytes(
    model: ModelLike,
    context_len: float,
    batch_size: float = ...,
    kv_dtype: str = ...,
    tp: int = ...,
) -> float: ...
@overload
def kv_bytes(
    model: ModelLike,
    context_len: ArrayLike,
    batch_size: ArrayLike = ...,
    kv_dtype: str = ...,
    tp: ArrayLike = ...,
) -> float | FloatArray: ...


def kv_bytes(
    model: ModelLike,
    context_len: ArrayLike,
    batch_size: ArrayLike = 1,
    kv_dtype: str = "bf16",
    tp: ArrayLike = 1,
) -> float | FloatArray:
    """Cache of `batch_size` sequences of `context_len` tokens on each GPU [byte].

    Windowed layers stop at their window; state layers and cross attention count once per
    sequence. context_len, batch_size and tp broadcast: scalars give a float, arrays an ndarray
    of their common shape. kv_dtype: of the cache, whatever the weights are.

    Raises ValueError for lengths, batches or tp below one and tp that does not divide the heads.
    Warns (`ContextWarning`) above the model's maximum, and computes.
    """
    shape = load_shape(model)
    if (
        isinstance(context_len, int | float)
        and isinstance(batch_size, int | float)
        and isinstance(tp, int)
    ):
        check_lengths(shape, context_len, batch_size)
        fixed, grows = _terms(shape, kv_dtype, tp)
        return batch_size * (fixed + sum(rate * min(context_len, limit) for rate, limit in grows))
    context, batch = np.asarray(context_len, float), np.asarray(batch_size, float)
    check_lengths(shape, context, batch)
    degrees, index, form = _degrees(tp)
    if len(degrees) == 1:
        return _shaped(batch * _request_bytes(shape, kv_dtype, degrees[0], context), ())
    context, batch, index = np.broadcast_arrays(context, batch, index.reshape(form))
    total = np.empty(context.shape)
    for at, degree in enumerate(degrees):
        chosen = index == at
        total[chosen] = batch[chosen] * _request_bytes(shape, kv_dtype, degree, context[chosen])
    return _shaped(total, ())


def growth_bytes_per_token(model: ModelLike, kv_dtype: str = "bf16", tp: int = 1) -> float:
    """Bytes one more token takes once every window is full [byte]: gpt-oss-120b 36,864."""
    grows = _terms(load_shape(model), kv_dtype, tp)[1]
    return sum(rate for rate, limit in grows if limit == math.inf)


def fixed_bytes(model: ModelLike, kv_dtype: str = "bf16", tp: int = 1) -> float:
    """Bytes a long request keeps whatever its length: states, cross attention, full windows."""
    fixed, grows = _terms(load_shape(model), kv_dtype, tp)
    return fixed + sum(rate * limit for rate, limit in grows if limit != math.inf)


def check_lengths(shape: ModelShape, context_len: Any, batch_size: Any = 1) -> None:
    """Raise ValueError for tokens or sequences below one; warn above the model's maximum."""
    for name, value in (("context_len", context_len), ("batch_size", batch_size)):
        low = value if isinstance(value, int | float) else float(np.min(value, initial=1e18))
        if not 1 <= low < math.inf:
            raise ValueError(f"Got {name}={low:g}, but expected a number from 1 up")
    limit = shape.max_context
    if limit is None:
        return
    high = context_len if isinstance(context_len, int | float) else np.max(context_len, initial=0.0)
    if high > limit:
        warnings.warn(
            f"context_len={float(high):,.0f} is above the {limit:,} tokens {shape.name} was made "
            "for; computed as if it could",
            ContextWarning,
            stacklevel=3,
        )


@lru_cache(maxsize=4096)
def _terms(
    shape: ModelShape, kv_dtype: str, tp: int
) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Bytes kept whatever the length, and (bytes per token, tokens until full) of what grows."""
    check_tp(shape, tp)
    fixed = 0.0
    rates: dict[float, float] = {}
    for piece in cache_pieces(shape, kv_dtype, tp):
        fixed += piece.count * piece.fixed_bytes
        if piece.bytes_per_token:
            limit = math.inf if piece.window is None else float(piece.window)
            rates[limit] = rates.get(limit, 0.0) + piece.count * piece.bytes_per_token
    return fixed, tuple((rate, limit) for limit, rate in rates.items())


def _request_bytes(shape: ModelShape, kv_dtype: str, tp: int, context: FloatArray) -> FloatArray:
    fixed, grows = _terms(shape, kv_dtype, tp)
    total = np.full(context.shape, fixed)
    for rate, limit in grows:
        total += rate * (context if limit == math.inf else np.minimum(context, limit))
    return total


def _degrees(tp: ArrayLike) -> tuple[list[int], NDArray[np.intp], tuple[int, ...]]:
    """The distinct degrees in `tp`, where each element is among them, and its shape."""
    given = np.asarray(tp)
    if np.any(given != np.floor(given)):
        raise ValueError(f"Got tp={tp!r}, but expected whole numbers of GPUs")
    distinct, index = np.unique(given, return_inverse=True)
    return [int(degree) for degree in distinct], index.reshape(-1), given.shape


def _shaped(values: NDArray[Any], form: tuple[int, ...]) -> float | FloatArray:
    values = values.reshape(form) if form else values
    return float(values.reshape(())) if values.size == 1 and values.ndim == 0 else values
