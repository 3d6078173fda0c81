"""Number formats a cache can be stored in: fp8 in both kinds, and whole numbers with a scale."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from capmodel.lab.arithmetic import Array
from capmodel.lab.sizes import named

SCALE_BYTES = 4  # one float32 per scale or zero point


@dataclass(frozen=True, slots=True)
class Format:
    """How a block of numbers that share a scale is stored.

    bits: per number. largest: what the block's largest magnitude is scaled to.
    asymmetric: a zero point beside the scale, so that the block's own range is used.
    code: x / scale -> codes (uint8). value: codes -> numbers.
    """

    name: str
    bits: int
    largest: float
    asymmetric: bool
    code: Callable[[Array], Array]
    value: Callable[[Array], Array]

    @property
    def bytes_per_block(self) -> int:
        """[byte] of the scale, and of the zero point if there is one."""
        return SCALE_BYTES * (2 if self.asymmetric else 1)


def _fp8_values(exponent_bits: int, mantissa_bits: int, top_code: int) -> Array:
    """The non-negative numbers of an fp8 format in code order, up to its largest finite one."""
    codes = np.arange(top_code + 1)
    exponent, mantissa = codes >> mantissa_bits, codes & (2**mantissa_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    fraction = mantissa / 2**mantissa_bits
    normal = np.ldexp(1 + fraction, exponent - bias)
    return np.where(exponent == 0, np.ldexp(fraction, 1 - bias), normal)


def _fp8(name: str, values: Array) -> Format:
    """Round to the nearest number, ties to the even code; too large becomes the largest."""
    middles = (values[1:] + values[:-1]) / 2
    signed = np.concatenate([values, np.zeros(128 - len(values)), -values])

    def code(x: Array) -> Array:
        magnitude = np.abs(x)
        low = np.searchsorted(middles, magnitude, side="left")
        tie = (low < len(middles)) & (magnitude == middles[np.minimum(low, len(middles) - 1)])
        low = low + (tie & (low % 2 == 1))
        return np.asarray(low + 128 * np.signbit(x), dtype=np.uint8)

    def value(codes: Array) -> Array:
        return np.asarray(signed[codes])

    return Format(name, 8, float(values[-1]), False, code, value)


def _whole(name: str, bits: int, asymmetric: bool) -> Format:
    top = 2**bits - 1 if asymmetric else 2 ** (bits - 1) - 1
    offset = 0 if asymmetric else 2 ** (bits - 1)

    def code(x: Array) -> Array:
        return np.asarray(np.clip(np.rint(x), -offset, top) + offset, dtype=np.uint8)

    def value(codes: Array) -> Array:
        return np.asarray(codes.astype(np.float32) - offset)

    return Format(name, bits, float(top), asymmetric, code, value)


# e4m3 ends at code 126 (448; 127 is NaN), e5m2 at 123 (57,344; 124 is infinity): OCP OFP8 1.0.
FORMATS = {
    "e4m3": _fp8("e4m3", _fp8_values(4, 3, 126)),
    "e5m2": _fp8("e5m2", _fp8_values(5, 2, 123)),
    "int8": _whole("int8", 8, False),
    "int4": _whole("int4", 4, True),
}


def format_named(name: str) -> Format:
    """One of `FORMATS`. Raises ValueError for another name."""
    return FORMATS[named("cache format", name, FORMATS)]
