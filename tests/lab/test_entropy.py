"""Entropy by hand, 16-bit words by known constants, coders against what they cannot beat."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capmodel.lab.entropy import DTYPES, as_bf16_words, code_cache, entropy_bits, held_entries
from capmodel.lab.language_model import load_language_model


def test_entropy_of_known_sources() -> None:
    assert entropy_bits(np.arange(256, dtype=np.uint8)) == 8.0
    assert entropy_bits(np.zeros(9, np.uint8)) == 0.0
    assert entropy_bits(np.array([0, 1] * 8, np.uint8)) == 1.0
    # Three quarters and one quarter: 2 - 0.75 log2(3).
    assert entropy_bits(np.array([5, 5, 5, 9], np.uint8)) == pytest.approx(2 - 0.75 * np.log2(3))
    with pytest.raises(ValueError, match="Got no symbols"):
        entropy_bits(np.array([], np.uint8))


def test_bfloat16_words() -> None:
    # 1.0 is 0x3F80, -2.0 0xC000, pi 0x40490FDB rounds down to 0x4049, 1 + 2**-8 ties to even.
    x = np.array([1.0, -2.0, np.pi, 1 + 2**-8, 1 + 3 * 2**-8], np.float32)
    assert [hex(w) for w in as_bf16_words(x)] == ["0x3f80", "0xc000", "0x4049", "0x3f80", "0x3f82"]


@pytest.mark.parametrize(
    ("dtype", "nbytes"),
    # 2 x 3 x 8 x 4 = 192 elements; codes carry 48 scales of 4 bytes, int4 a zero point too.
    [("fp32", 768), ("bf16", 384), ("fp16", 384), ("e4m3", 384), ("int8", 384), ("int4", 480)],
)
def test_stored_bytes_by_hand(dtype: str, nbytes: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 8, 4)).astype(np.float32)
    assert code_cache(x, dtype).nbytes == nbytes


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_noise_does_not_shrink_and_knowing_the_channel_never_hurts(seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(4, 2, 64, 8)).astype(np.float32)
    for dtype in DTYPES:
        coding = code_cache(x, dtype)
        assert coding.bound_channel >= coding.bound * 0.9999
        # Gaussian mantissas are noise: the low bytes of a float keep 8 bits less sampling error.
        if dtype in ("fp32", "bf16"):
            assert coding.plane_bits[0] > 7.9
            assert coding.plane_bits[-1] < 4
        assert coding.zstd < coding.bound_channel * 1.05


def test_scales_are_no_part_that_coding_shrinks() -> None:
    # Rows of +1 and -1, as many of each: int8 codes of 1 bit, 96 of them and 24 scales of 4 bytes.
    x = np.tile(np.float32([1, -1, -1, 1]), (2, 3, 4, 1))
    coding = code_cache(x, "int8")
    assert coding.plane_bits == (1.0,)
    assert coding.bound == pytest.approx((96 + 96) / (96 / 8 + 96))
    assert coding.bound_channel == pytest.approx((96 + 96) / 96)
    assert max(coding.zstd, coding.zstd_planes) < 192 / 96


def test_repetition_shrinks() -> None:
    x = np.tile(np.float32([1.0, 2.0, 3.0, 4.0]), (2, 2, 200, 1))
    coding = code_cache(x, "bf16")
    assert coding.zstd > 20
    assert coding.zstd_planes > 20
    assert coding.bound_channel == np.inf  # given its channel nothing is left to say


def test_unknown_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match="Got dtype 'int2', but expected one of fp32, bf16"):
        code_cache(np.zeros((1, 1, 2, 2)), "int2")


def test_a_repeated_word_repeats_its_values_in_the_first_layer_only() -> None:
    # Layer 0 of 3: heads 0 and 1 hold keys, 2 and 3 values, which no other token touches.
    entries = held_entries(load_language_model(), 6)
    first, later = (code_cache(entries[:, heads], "bf16") for heads in ([2, 3], [6, 7]))
    assert first.zstd > 2 * first.zstd_planes
    assert later.zstd < later.zstd_planes


@pytest.mark.parametrize("tokens", [1, 3, 7])
def test_an_odd_token_is_stored_too(tokens: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, tokens, 4)).astype(np.float32)
    # Two tokens of a channel share a byte, the last one has its byte alone; 8 bytes a head, token.
    assert code_cache(x, "int4").nbytes == 2 * 3 * (4 * -(-tokens // 2) + 8 * tokens)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "x",
    [
        np.ones((2, 2)),
        np.ones((0, 1, 2, 2)),
        np.ones((1, 1, 2, 0)),
        np.full((1, 1, 2, 2), np.nan),
        np.full((1, 1, 2, 2), 1e39),
        np.ones((1, 1, 2, 2), int),
    ],
    ids=["2 axes", "no rows", "no width", "nan", "too large", "whole"],
)
def test_what_is_no_cache_is_refused(x: np.ndarray, dtype: str) -> None:
    with pytest.raises(ValueError, match=r"^Got .* but expected "):
        code_cache(x, dtype)


def test_numbers_beyond_fp16_are_refused_in_fp16_alone() -> None:
    x = np.full((1, 1, 2, 2), 1e5, np.float32)
    assert code_cache(x, "bf16").nbytes == 8
    with pytest.raises(
        ValueError, match=r"Got 100000 to store in fp16, but expected at most 65504"
    ):
        code_cache(x, "fp16")
