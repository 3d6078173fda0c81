"""How far a cache shrinks without loss: zstd, and the entropy no order-0 coder can beat.

A 16-bit number is two byte planes: sign, exponent and top of the mantissa in one, noise in the
other. Splitting the planes and putting a channel's tokens side by side helps (CacheGen, Liu et al.
2024; ZipNN, Hershcovitch et al. 2024), but for the first layer's values: those depend on the token
alone, so a repeated word repeats its bytes, which only the layout as they lie keeps together.
"""

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from capmodel.lab.arithmetic import Array
from capmodel.lab.cache import FullStore, KVCache
from capmodel.lab.formats import FORMATS
from capmodel.lab.language_model import LanguageModel
from capmodel.lab.quantise import encode
from capmodel.lab.sizes import named
from capmodel.lab.threads import one_thread
from capmodel.words import shown

DTYPES = ("fp32", "bf16", "fp16", "e4m3", "e5m2", "int8", "int4")
ZSTD_LEVEL = 3
# The largest number each rounds to itself or below; above them rounding makes an infinity.
LARGEST = {
    "fp32": float(np.finfo(np.float32).max),
    "bf16": float(np.array(0x7F7F0000, "<u4").view("<f4")),
    "fp16": 65504.0,
}


@dataclass(frozen=True, slots=True)
class Coding:
    """One dtype of one cache. Ratios are stored bytes over coded bytes, scales included in both.

    zstd: of the bytes as they lie. zstd_planes: byte planes apart, channel by channel.
    bound: order-0 entropy of each byte plane. bound_channel: the same given the channel.
    plane_bits: entropy [bit] of each byte plane, lowest byte first.
    """

    dtype: str
    nbytes: int
    zstd: float
    zstd_planes: float
    bound: float
    bound_channel: float
    plane_bits: tuple[float, ...]


def entropy_bits(symbols: Array) -> float:
    """Order-0 entropy [bit/symbol] of `symbols` (uint8, any shape); ValueError for others, none."""
    if not isinstance(symbols, np.ndarray) or symbols.dtype != np.uint8:
        raise ValueError(f"Got symbols {shown(symbols)}, but expected an array of uint8")
    if not symbols.size:
        raise ValueError("Got no symbols, but expected at least one byte to measure")
    counts = np.bincount(symbols.ravel(), minlength=256)
    share = counts[counts > 0] / symbols.size
    return float(-(share * np.log2(share)).sum())


def code_cache(x: Array, dtype: str) -> Coding:
    """Code `x` [batch, heads, tokens, width] (float) stored as one of `DTYPES`, per-head scales.

    Raises ValueError for another dtype, other axes, and numbers that are not finite or not of it.
    """
    named("dtype", dtype, DTYPES)
    x = np.asarray(x)
    if x.ndim != 4 or not x.size or x.dtype.kind != "f":
        raise ValueError(
            f"Got {x.dtype} numbers of shape {x.shape}, but expected floating ones of "
            "[batch, heads, tokens, width], none of them 0"
        )
    most = LARGEST.get(dtype, LARGEST["fp32"])
    if not (np.abs(x) <= most).all():
        raise ValueError(
            f"Got {np.abs(x).max():.7g} to store in {dtype}, but expected at most {most:.7g}: "
            "finite numbers it can hold"
        )
    planes, extra = _byte_planes(x, dtype)
    whole = np.stack(planes, axis=-1)
    by_channel = [np.moveaxis(plane, 2, -1) for plane in planes]
    bits = tuple(entropy_bits(plane) for plane in planes)
    given = [_entropy_given_channel(plane) for plane in planes]
    total = whole.nbytes + extra

    def ratio(coded: float) -> float:
        return total / (coded + extra) if coded + extra else math.inf

    n = planes[0].size
    return Coding(
        dtype,
        total,
        ratio(_zstd(whole)),
        ratio(sum(_zstd(plane) for plane in by_channel)),
        ratio(n * sum(bits) / 8),
        ratio(n * sum(given) / 8),
        bits,
    )


def _byte_planes(x: Array, dtype: str) -> tuple[list[Array], int]:
    """Byte planes of `x`, lowest first, each [batch, heads, tokens, width]; [byte] of scales."""
    if dtype == "fp32":
        words = x.astype("<f4").view("<u4")
        return [((words >> shift) & 255).astype(np.uint8) for shift in (0, 8, 16, 24)], 0
    if dtype in ("bf16", "fp16"):
        words = as_bf16_words(x) if dtype == "bf16" else x.astype("<f2").view("<u2")
        return [(words & 255).astype(np.uint8), (words >> 8).astype(np.uint8)], 0
    form = FORMATS[dtype]
    coded = encode(x, form, (3,))
    extra = coded.nbytes(form.bits) - -(-coded.codes.size * form.bits // 8)
    if (
        form.bits == 4
    ):  # two neighbouring tokens of a channel share a byte, an odd last one has its own
        even = np.pad(coded.codes, ((0, 0), (0, 0), (0, x.shape[2] % 2), (0, 0)))
        return [even[:, :, ::2] | (even[:, :, 1::2] << 4)], extra
    return [coded.codes], extra


def as_bf16_words(x: Array) -> Array:
    """The 16 bits of each number rounded to bfloat16, ties to even. Finite numbers only."""
    words = x.astype("<f4").view("<u4")
    return np.asarray((words + 0x7FFF + ((words >> 16) & 1)) >> 16, dtype=np.uint16)


def _entropy_given_channel(plane: Array) -> float:
    """Mean entropy [bit] of one channel's bytes; channels are (head, width)."""
    channels = np.moveaxis(plane, (1, 3), (0, 1)).reshape(plane.shape[1] * plane.shape[3], -1)
    return float(np.mean([entropy_bits(channel) for channel in channels]))


def _zstd(plane: Array) -> int:
    data = np.ascontiguousarray(plane).tobytes()
    return len(pa.Codec("zstd", compression_level=ZSTD_LEVEL).compress(data))


def held_entries(model: LanguageModel, rows: int = 24) -> Array:
    """What `model` holds after `rows` windows of held-out text, all layers' keys and values.

    [rows, layers * 2 * kv_heads, context, head_dim]
    """
    stores = [FullStore() for _ in model.decoder.config.layers]
    with one_thread():
        model.decoder.forward(model.windows(rows)[:, :-1], KVCache(stores), last_only=True)
    return np.concatenate([array for store in stores for array in store.arrays], axis=1)
