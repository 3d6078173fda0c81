"""Cache bytes per token and per request, layout of no engine in particular.

Windows, states and replication are counted; blocks are not (see `request_cost`).
"""

import math
import warnings
from functools import lru_cache
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capmodel.arguments import GPUS, LENGTH, number, one_or_many
from capmodel.dtypes import kv_dtype_name
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
    shape, kv_dtype = load_shape(model), _spelled(kv_dtype)
    degrees, index, form = _degrees(tp)
    if not form:
        return sum(rate for rate, _ in _terms(shape, kv_dtype, degrees[0])[1])
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
    shape, kv_dtype = load_shape(model), _spelled(kv_dtype)
    context, batch = check_lengths(shape, context_len, batch_size)
    if type(tp) is int and not isinstance(context, np.ndarray) and type(batch) in (int, float):
        fixed, grows = _terms(shape, kv_dtype, tp)
        return batch * (fixed + sum(rate * min(context, limit) for rate, limit in grows))
    context, batch = np.asarray(context, float), np.asarray(batch, float)
    degrees, index, form = _degrees(tp)
    if len(degrees) == 1:
        return _shaped(batch * _request_bytes(shape, kv_dtype, degrees[0], context), ())
    try:
        context, batch, index = np.broadcast_arrays(context, batch, index.reshape(form))
    except ValueError:
        raise ValueError(
            f"Got context_len, batch_size and tp of shapes {context.shape}, {batch.shape} and "
            f"{form}, which do not broadcast"
        ) from None
    total = np.empty(context.shape)
    for at, degree in enumerate(degrees):
        chosen = index == at
        total[chosen] = batch[chosen] * _request_bytes(shape, kv_dtype, degree, context[chosen])
    return _shaped(total, ())


def growth_bytes_per_token(model: ModelLike, kv_dtype: str = "bf16", tp: int = 1) -> float:
    """Bytes one more token takes once every window is full [byte]: gpt-oss-120b 36,864."""
    grows = _terms(load_shape(model), _spelled(kv_dtype), number("tp", tp, GPUS))[1]
    return sum(rate for rate, limit in grows if limit == math.inf)


def fixed_bytes(model: ModelLike, kv_dtype: str = "bf16", tp: int = 1) -> float:
    """Bytes a long request keeps whatever its length: states, cross attention, full windows."""
    fixed, grows = _terms(load_shape(model), _spelled(kv_dtype), number("tp", tp, GPUS))
    return fixed + sum(rate * limit for rate, limit in grows if limit != math.inf)


def check_lengths(shape: ModelShape, context_len: Any, batch_size: Any = 1) -> tuple[Any, Any]:
    """Tokens and sequences, each a number or an array of floats; warns above the model's maximum.

    Raises ValueError for what is no number, and for numbers below one.
    """
    context = one_or_many("context_len", context_len, LENGTH)
    batch = one_or_many("batch_size", batch_size, LENGTH)
    limit = shape.max_context
    if limit is None:
        return context, batch
    high = np.max(context, initial=0.0) if isinstance(context, np.ndarray) else context
    if high > limit:
        warnings.warn(
            f"context_len={float(high):,.0f} is above the {limit:,} tokens {shape.name} was made "
            "for; computed as if it could",
            ContextWarning,
            stacklevel=3,
        )
    return context, batch


def _spelled(kv_dtype: Any) -> str:
    """A KV dtype that can be a key; what is no text is refused where dtypes are told apart."""
    return kv_dtype if isinstance(kv_dtype, str) else kv_dtype_name(kv_dtype)


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
    given = one_or_many("tp", tp, GPUS)
    if isinstance(given, int):
        return [given], np.zeros(1, dtype=np.intp), ()
    distinct, index = np.unique(given, return_inverse=True)
    return [int(degree) for degree in distinct], index.reshape(-1), given.shape


def _shaped(values: NDArray[Any], form: tuple[int, ...]) -> float | FloatArray:
    values = values.reshape(form) if form else values
    return float(values.reshape(())) if values.size == 1 and values.ndim == 0 else values
