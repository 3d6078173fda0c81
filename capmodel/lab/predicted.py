"""Lossless coding against a prediction: a cheaper twin of the model guesses the cache.

Byte-wise coders see noise in a float's low bits. A twin with rounded weights, run on the same
tokens, guesses each number closely, and only the difference has to be coded; both sides can run
the twin. This is how lossless ratios of about 4 have been reported (speculative KV coding, 2026).
"""

from dataclasses import dataclass, replace

import numpy as np

from capmodel.lab.arithmetic import Array
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.entropy import as_bf16_words, held_entries
from capmodel.lab.formats import Format, format_named
from capmodel.lab.language_model import LanguageModel
from capmodel.lab.parameters import SoftmaxWeights
from capmodel.lab.quantise import decode, encode
from capmodel.lab.sizes import MOST_ROWS, whole

TWINS = ("e4m3", "int8", "int4")  # formats of the twin's weights that are tried
ESCAPE = 1e-3  # share of probability spread evenly over all 16-bit words


@dataclass(frozen=True, slots=True)
class PredictedCoding:
    """Ideal code length of a bf16 cache given a twin's guess.

    twin: format of the twin's weights. bits: [bit] a number. ratio: 16 over that.
    """

    twin: str
    bits: float
    ratio: float


def code_given_twin(model: LanguageModel, twin: str, rows: int = 24) -> PredictedCoding:
    """Bits of half of `rows` windows' caches, spreads fitted on the other half.

    twin: one of `formats.FORMATS`. Raises ValueError for another format and for rows below 2.
    """
    rows = whole("rows", rows, 2, MOST_ROWS)  # half of them fit the spreads
    form = format_named(twin)
    guesser = replace(model, decoder=_rounded(model.decoder, form))
    guess, true = (as_bf16(held_entries(m, rows)) for m in (guesser, model))
    half = rows // 2
    # A logistic of scale s has mean absolute deviation s log 4.
    spread = np.abs(true - guess)[:half].mean(axis=(0, 2), keepdims=True) / np.log(4)
    bits = float(code_bits(true[half:], guess[half:], np.maximum(spread, 1e-12)).mean())
    return PredictedCoding(twin, bits, 16 / bits)


def as_bf16(x: Array) -> Array:
    """Each number rounded to bfloat16, as float32."""
    words = as_bf16_words(x).astype(np.uint32) << 16
    return np.asarray(words.astype("<u4").view("<f4"))


def code_bits(true: Array, guess: Array, spread: Array) -> Array:
    """-log2 probability [bit] of bf16 numbers under a logistic of scale `spread` around `guess`.

    The probability of a number is that of the interval that rounds to it.
    """
    words = true.astype("<f4").view("<u4").astype(np.int64) >> 16
    size, sign = words & 0x7FFF, np.where(words >> 15, -1.0, 1.0)
    inner, own, outer = (
        (np.maximum(size + step, 0) << 16).astype("<u4").view("<f4").astype(float)
        for step in (-1, 0, 1)
    )
    edges = np.sort(np.stack([sign * (own + inner) / 2, sign * (own + outer) / 2]), axis=0)
    low, high = (edges - guess) / spread
    # sigmoid(high) - sigmoid(low), written so that it cancels in neither tail.
    width = high - low
    near = np.clip(np.where(high > 0, -low, high), -700, 700)
    mass = -np.expm1(-width) / ((1 + np.exp(-near)) * (1 + np.exp(near - width)))
    return np.asarray(-np.log2((1 - ESCAPE) * mass + ESCAPE * 2.0**-16))


def _rounded(decoder: ToyDecoder, form: Format) -> ToyDecoder:
    """The decoder with every layer's matrices rounded to `form`, one scale an output channel."""

    def coarse(weight: Array) -> Array:
        return decode(encode(weight, form, (0,)), form, weight.dtype)

    layers = []
    for layer in decoder.parameters.layers:
        a = layer.attention
        if not isinstance(a, SoftmaxWeights):
            raise ValueError(
                f"Got {type(a).__name__}, but expected the weights of softmax attention"
            )
        layers.append(
            replace(
                layer,
                attention=replace(a, q=coarse(a.q), k=coarse(a.k), v=coarse(a.v), o=coarse(a.o)),
                gate=coarse(layer.gate),
                up=coarse(layer.up),
                down=coarse(layer.down),
            )
        )
    return replace(decoder, parameters=replace(decoder.parameters, layers=tuple(layers)))
