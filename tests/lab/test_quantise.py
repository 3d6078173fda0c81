"""Number formats by their tables; quantised caches by bytes, bounds and feeding order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capmodel.lab.config import make_config
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.formats import FORMATS, format_named
from capmodel.lab.quantise import GRANULARITIES, Scheme, decode, encode, quantised_cache


@pytest.mark.parametrize(
    ("name", "count", "largest", "smallest"),
    # OCP OFP8 1.0, table 1: e4m3 448 and 2**-9, e5m2 57,344 and 2**-16.
    [("e4m3", 127, 448.0, 2.0**-9), ("e5m2", 124, 57344.0, 2.0**-16)],
)
def test_fp8_has_the_numbers_of_its_standard(
    name: str, count: int, largest: float, smallest: float
) -> None:
    form = FORMATS[name]
    values = form.value(np.arange(count, dtype=np.uint8))
    assert (np.diff(values) > 0).all()
    assert (values[0], values[1], values[-1]) == (0.0, smallest, largest)
    assert (form.value(form.code(values)) == values).all()
    assert (form.value(form.code(-values)) == -values).all()


@pytest.mark.parametrize(
    ("name", "x", "rounded"),
    [
        ("e4m3", 17.0, 16.0),  # halfway of 16 and 18: to the even code
        ("e4m3", 19.0, 20.0),
        ("e4m3", 19.1, 20.0),
        ("e4m3", 0.3, 0.3125),
        ("e4m3", 1e4, 448.0),
        ("e4m3", -500.0, -448.0),
        ("e5m2", 9.0, 8.0),
        ("e5m2", 11.0, 12.0),
        ("e5m2", 1e9, 57344.0),
        ("int8", 126.5, 126.0),
        ("int8", -127.4, -127.0),
    ],
)
def test_rounding_by_hand(name: str, x: float, rounded: float) -> None:
    form = FORMATS[name]
    assert form.value(form.code(np.array([x])))[0] == rounded


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(FORMATS)),
    st.sampled_from(GRANULARITIES),
    st.integers(0, 10_000),
    st.floats(1e-3, 1e3),
)
def test_an_error_stays_below_half_a_step_of_its_block(
    name: str, granularity: str, seed: int, scale: float
) -> None:
    form, axes = FORMATS[name], Scheme(name, granularity).axes
    x = (scale * np.random.default_rng(seed).normal(size=(2, 3, 5, 8))).astype(np.float32)
    back = decode(encode(x, form, axes), form, x.dtype)
    top = np.abs(x).max(axis=axes, keepdims=True)
    span = x.max(axis=axes, keepdims=True) - x.min(axis=axes, keepdims=True)
    bound = {
        # Half of the last mantissa bit, or half of the smallest number near zero.
        "e4m3": np.maximum(np.abs(x) * 2.0**-4, top / 448 * 2.0**-10),
        "e5m2": np.maximum(np.abs(x) * 2.0**-3, top / 57344 * 2.0**-17),
        "int8": np.broadcast_to(top / 127 / 2, x.shape),
        "int4": np.broadcast_to(span / 15 / 2, x.shape),
    }[name]
    # The scale itself is a float32, hence a little above one.
    assert (np.abs(back - x) <= bound * 1.0001 + 1e-6 * top).all()


def test_a_block_of_zeros_comes_back_as_zeros() -> None:
    x = np.zeros((1, 1, 2, 4), np.float32)
    for form in FORMATS.values():
        assert (decode(encode(x, form, (3,)), form, x.dtype) == 0).all()


def test_bytes_of_codes_and_scales_by_hand() -> None:
    # 2 layers, K and V, 2 heads of 8, 64 tokens: 4,096 elements a row.
    config = make_config("gqa")
    decoder = ToyDecoder.random(config, 0, "float32")

    def held(name: str, granularity: str) -> int:
        cache = quantised_cache(config, Scheme(name, granularity))
        for _ in range(2):
            decoder.forward(np.ones((1, 32), int), cache)
        return cache.nbytes

    # A scale of 4 bytes per head and token, as PHYSICS section 1: 2 * kv_heads * 4 a layer.
    assert held("int8", "head") == 4096 + 2 * 64 * (2 * 2 * 4)
    assert held("e4m3", "token") == 4096 + 2 * 64 * (2 * 4)
    assert held("int4", "head") == 2048 + 2 * 64 * (2 * 2 * 8)
    # Per channel: the first 32 tokens coded with one scale a channel, the last 32 in 16 bits.
    assert held("int8", "channel") == 2048 + 2 * 2 * 2 * 8 * 4 + 2 * 2048


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_how_tokens_are_fed_does_not_matter(granularity: str, before: bool) -> None:
    config = make_config("gqa")
    decoder = ToyDecoder.random(config, 1)
    scheme = Scheme("int4", granularity, before)
    tokens = np.random.default_rng(1).integers(0, 64, (2, 13))
    results = []
    for feed in (1, 4):
        cache = quantised_cache(config, scheme, group=4)
        parts = [decoder.forward(tokens[:, i : i + feed], cache) for i in range(0, 13, feed)]
        results.append(np.concatenate(parts, axis=1))
    np.testing.assert_allclose(results[0], results[1], rtol=0, atol=1e-6)
    assert np.abs(results[0] - decoder.forward(tokens)).max() > 1e-3


def test_fewer_bits_cost_more_on_either_side_of_rope() -> None:
    config = make_config("gqa")
    decoder = ToyDecoder.random(config, 2)
    tokens = np.random.default_rng(2).integers(0, 64, (2, 12))
    full = decoder.forward(tokens)
    errors = {}
    for before in (False, True):
        for name in ("int4", "int8"):
            cache = quantised_cache(config, Scheme(name, "head", before))
            errors[name, before] = np.abs(decoder.forward(tokens, cache) - full).mean()
        # 15 steps over the range against 254: about 17 times, less by int4's better-used range.
        assert 5 < errors["int4", before] / errors["int8", before] < 40
    assert errors["int8", False] != errors["int8", True]


def test_a_group_cannot_be_jumped() -> None:
    config = make_config("gqa")
    cache = quantised_cache(config, Scheme("int8", "channel"), group=4)
    with pytest.raises(ValueError, match="Got tokens 0 to 5 at once, but expected them inside one"):
        ToyDecoder.random(config).forward(np.ones((1, 6), int), cache)


def test_unknown_schemes_are_refused() -> None:
    with pytest.raises(ValueError, match="Got granularity 'row'"):
        Scheme("int8", "row")
    with pytest.raises(ValueError, match="expected one of e4m3, e5m2, int8, int4"):
        Scheme("fp8", "head")
    with pytest.raises(ValueError, match="Got cache format 'int3'"):
        format_named("int3")
    with pytest.raises(ValueError, match="Got a LatentAttention layer"):
        quantised_cache(make_config("mla"), Scheme("int8", "head"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.filterwarnings("error")
def test_what_no_scale_fits_is_refused(name: str, bad: float) -> None:
    x = np.array([[[[1.0, bad]]]])
    with pytest.raises(ValueError, match="Got NaN or infinity to quantise, but expected finite"):
        encode(x, FORMATS[name], (3,))
