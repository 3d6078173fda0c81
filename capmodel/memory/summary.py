"""Everything `capmodel kv` says of a model's cache, in one record."""

from dataclasses import dataclass

from capmodel.dtypes import kv_dtype_name
from capmodel.kvcache import (
    PieceBytes,
    cache_breakdown,
    fixed_bytes,
    growth_bytes_per_token,
    kv_bytes,
    kv_bytes_per_token,
    tp_note,
)
from capmodel.shapes import ModelLike, load_shape


@dataclass(frozen=True, slots=True)
class CacheSummary:
    """A model's cache on each GPU [byte].

    kv_bytes_per_token: while no window is full. growth_bytes_per_token: once every window is.
    fixed_bytes: what a long request keeps whatever its length. note: what tp does not divide.
    """

    model: str
    kv_dtype: str
    tp: int
    context_len: int
    batch_size: int
    kv_bytes_per_token: float
    growth_bytes_per_token: float
    fixed_bytes: float
    request_bytes: float
    kv_bytes: float
    kv_bytes_all_gpus: float
    pieces: tuple[PieceBytes, ...]
    note: str | None


def summarise_cache(
    model: ModelLike, context_len: int, batch_size: int = 1, kv_dtype: str = "bf16", tp: int = 1
) -> CacheSummary:
    """The cache of `batch_size` requests of `context_len` tokens.

    Raises ValueError and warns as `kv_bytes` does.
    """
    shape = load_shape(model)
    total = kv_bytes(shape, context_len, batch_size, kv_dtype, tp)
    return CacheSummary(
        model=shape.name,
        kv_dtype=kv_dtype_name(kv_dtype),
        tp=tp,
        context_len=context_len,
        batch_size=batch_size,
        kv_bytes_per_token=kv_bytes_per_token(shape, kv_dtype, tp),
        growth_bytes_per_token=growth_bytes_per_token(shape, kv_dtype, tp),
        fixed_bytes=fixed_bytes(shape, kv_dtype, tp),
        request_bytes=total / batch_size,
        kv_bytes=total,
        kv_bytes_all_gpus=total * tp,
        pieces=cache_breakdown(shape, context_len, kv_dtype, tp),
        note=tp_note(shape, tp),
    )
