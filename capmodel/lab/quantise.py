"""A cache in fewer bits: numbers that share a scale are a token, a head of a token, or a channel.

per token: one scale for all heads of a token. per head: one for each head of a token.
per channel: one for each channel over a group of tokens (as KIVI does for
keys, Liu et al. 2024; here for keys and values alike); a group is
quantised once it is full, so the newest tokens stay in 16 bits until then.
"""

from dataclasses import dataclass

import numpy as np

from capmodel.arguments import flag
from capmodel.lab.arithmetic import Array
from capmodel.lab.cache import Held, KVCache
from capmodel.lab.config import ToyConfig
from capmodel.lab.formats import Format, format_named
from capmodel.lab.sizes import MOST_TOKENS, named, whole
from capmodel.shapes.attention import SoftmaxAttention

GRANULARITIES = ("token", "head", "channel")
GROUP = 32
FLOAT32_MOST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Scheme:
    """How keys and values are stored. keys_before_rope: stored unturned, turned when read.

    Raises ValueError for an unknown format or granularity.
    """

    format: str
    granularity: str
    keys_before_rope: bool = False

    def __post_init__(self) -> None:
        format_named(self.format)
        named("granularity", self.granularity, GRANULARITIES)
        flag("keys_before_rope", self.keys_before_rope)

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of [batch, heads, tokens, width] that share a scale."""
        return {"token": (1, 3), "head": (3,), "channel": (2,)}[self.granularity]


@dataclass(frozen=True, slots=True)
class Coded:
    """codes [batch, heads, tokens, width] (uint8); scale and zero have shared axes of length 1."""

    codes: Array
    scale: Array
    zero: Array | None

    def nbytes(self, bits: int) -> int:
        """[byte] with codes packed to `bits` each, scales and zero points included."""
        extra = self.scale.nbytes + (self.zero.nbytes if self.zero is not None else 0)
        return -(-self.codes.size * bits // 8) + extra


def encode(x: Array, form: Format, axes: tuple[int, ...]) -> Coded:
    """Scale so that each block's range fills the format, then round; zeros stay zero.

    Raises ValueError for NaN and infinite numbers, which no scale fits.
    """
    if form.asymmetric:
        with np.errstate(invalid="ignore", over="ignore"):
            zero = x.min(axis=axes, keepdims=True).astype(np.float32)
            span = x.max(axis=axes, keepdims=True) - zero
        scale = _positive(span / form.largest)
        return Coded(form.code((x - zero) / scale), scale, zero)
    scale = _positive(np.abs(x).max(axis=axes, keepdims=True) / form.largest)
    return Coded(form.code(x / scale), scale, None)


def decode(coded: Coded, form: Format, dtype: np.dtype) -> Array:
    """The numbers the codes stand for, in `dtype`."""
    x = form.value(coded.codes) * coded.scale
    return np.asarray(x if coded.zero is None else x + coded.zero, dtype=dtype)


class QuantisedStore:
    """Keys and values of one softmax layer as codes; what attention reads is decoded from them."""

    def __init__(self, scheme: Scheme, group: int = GROUP) -> None:
        self.scheme, self.group = scheme, whole("group", group, 1, MOST_TOKENS)
        self.before_rope = scheme.keys_before_rope
        self._form = format_named(scheme.format)
        self._coded: list[list[Coded]] = []
        self._decoded: tuple[Array, ...] = ()
        self._open: tuple[Array, ...] = ()

    @property
    def nbytes(self) -> int:
        """[byte] of packed codes, scales, and the tokens of an open group in 16 bits."""
        codes = sum(c.nbytes(self._form.bits) for array in self._coded for c in array)
        return codes + sum(array.nbytes for array in self._open)

    def append(self, positions: Array, arrays: tuple[Array, ...]) -> Held:
        """Encode the new tokens; return everything decoded.

        Per channel, groups that were full before this call are encoded first, and the new tokens
        must not reach over a group's end: feed at most up to it.
        """
        start, new = int(positions[0]), len(positions)
        if self.scheme.granularity != "channel":
            self._encode(arrays)
        else:
            if start // self.group != (start + new - 1) // self.group:
                raise ValueError(
                    f"Got tokens {start} to {start + new - 1} at once, but expected them inside "
                    f"one group of {self.group}; per-channel scales are made group by group"
                )
            if self._open and self._open[0].shape[-2] == self.group:
                self._encode(tuple(a.astype(arrays[0].dtype) for a in self._open))
                self._open = ()
            self._open = _joined(self._open, tuple(a.astype(np.float16) for a in arrays))
        widened = tuple(a.astype(arrays[0].dtype) for a in self._open)
        held = _joined(self._decoded, widened) if widened else self._decoded
        return Held(held, np.arange(start + new))

    def observe(self, weights: Array) -> None:
        """Nothing to learn from: everything stays."""

    def _encode(self, arrays: tuple[Array, ...]) -> None:
        coded = [encode(array, self._form, self.scheme.axes) for array in arrays]
        fresh = tuple(
            decode(c, self._form, array.dtype) for c, array in zip(coded, arrays, strict=True)
        )
        self._coded.append(coded)
        self._decoded = _joined(self._decoded, fresh)


def quantised_cache(config: ToyConfig, scheme: Scheme, group: int = GROUP) -> KVCache:
    """A cache of quantised stores. Raises ValueError for layers that are not full attention."""
    for layer in config.layers:
        if not isinstance(layer, SoftmaxAttention) or layer.window is not None:
            raise ValueError(
                f"Got a {type(layer).__name__} layer with window "
                f"{getattr(layer, 'window', None)}, but expected full softmax attention"
            )
    return KVCache([QuantisedStore(scheme, group) for _ in config.layers], config)


def _positive(scale: Array) -> Array:
    if not (scale <= FLOAT32_MOST).all():  # NaN is not
        raise ValueError("Got NaN or infinity to quantise, but expected finite float32 numbers")
    return np.asarray(np.where(scale > 0, scale, 1), dtype=np.float32)


def _joined(old: tuple[Array, ...], new: tuple[Array, ...]) -> tuple[Array, ...]:
    if not old:
        return new
    return tuple(np.concatenate(pair, axis=-2) for pair in zip(old, new, strict=True))
