"""Cached equals uncached, both equal a decoder written the long way, and the work is as counted."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_decoder import slow_logits

from capmodel.lab.arithmetic import SEQUENTIAL
from capmodel.lab.cache import WindowStore
from capmodel.lab.config import KINDS, ToyConfig, make_config
from capmodel.lab.counters import Counters
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.steps import lab_steps
from capmodel.shapes.attention import GatedDeltaNet, SoftmaxAttention

CONFIGS = st.builds(
    lambda kind, groups, n_kv_heads, head_dim, v_head_dim, window, rank, n_layers: make_config(
        kind,
        n_layers=n_layers,
        hidden_size=16,
        n_heads=groups * n_kv_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        window=window,
        kv_lora_rank=rank,
        intermediate=12,
        vocab_size=32,
    ),
    st.sampled_from(KINDS),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([2, 4, 6]),
    st.integers(1, 5),
    st.integers(1, 12),
    st.integers(1, 7),
    st.integers(1, 3),
)


@settings(max_examples=40, deadline=None)
@given(CONFIGS, st.integers(0, 10_000), st.data())
def test_any_split_into_cached_passes_equals_one_uncached_pass_bit_for_bit(
    config: ToyConfig, seed: int, data: st.DataObject
) -> None:
    length = data.draw(st.integers(1, 14))
    cuts = data.draw(st.sets(st.integers(1, max(length - 1, 1)), max_size=5))
    absorbed = data.draw(st.booleans())
    decoder = ToyDecoder.random(config, seed, "float64", SEQUENTIAL, absorbed)
    tokens = np.random.default_rng(seed).integers(0, config.vocab_size, (2, length))
    cache = decoder.new_cache()
    bounds = [0, *sorted(cut for cut in cuts if cut < length), length]
    parts = [decoder.forward(tokens[:, a:b], cache) for a, b in pairwise(bounds)]
    assert (np.concatenate(parts, axis=1) == decoder.forward(tokens)).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("absorbed", [False, True])
def test_equals_a_decoder_written_the_long_way(kind: str, absorbed: bool) -> None:
    config = make_config(kind, hidden_size=12, v_head_dim=6, window=3, intermediate=10)
    decoder = ToyDecoder.random(config, 3, absorbed=absorbed)
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, 9)
    np.testing.assert_allclose(
        decoder.forward(tokens)[0], slow_logits(decoder, tokens.tolist()), rtol=0, atol=1e-12
    )


def test_rows_of_a_batch_do_not_meet() -> None:
    decoder = ToyDecoder.random(make_config("gqa"), 1, arithmetic=SEQUENTIAL)
    tokens = np.random.default_rng(1).integers(0, 64, (3, 8))
    together = decoder.forward(tokens)
    assert (decoder.forward(tokens[1:2]) == together[1:2]).all()


def test_a_store_that_forgets_shows() -> None:
    config = make_config("mha", n_layers=1)
    decoder = ToyDecoder.random(config, 2)
    tokens = np.random.default_rng(2).integers(0, 64, (1, 8))
    cache = decoder.new_cache()
    cache.layers = (WindowStore(3),)
    last = [decoder.forward(tokens[:, i : i + 1], cache) for i in range(8)][-1]
    assert np.abs(last - decoder.forward(tokens, last_only=True)).max() > 1e-2


def test_generating_16_tokens_projects_16_keys_with_the_cache_and_136_without() -> None:
    # 1 + 2 + ... + 16 = 136; one prompt token, so that step t holds t tokens.
    decoder = ToyDecoder.random(make_config("gqa", n_layers=1), 0)
    cached, uncached = Counters(), Counters()
    with_cache = decoder.generate([[5]], 16, decoder.new_cache(), cached)
    without = decoder.generate([[5]], 16, None, uncached)
    assert (with_cache == without).all()
    assert (cached.key_projections, uncached.key_projections) == (16, 136)


def test_projection_work_is_two_flop_a_weight_and_reading_is_every_weight_once() -> None:
    # 2 layers of q 32x32, k and v 32x16, o 32x32, three of 32x48; output 32x64.
    decoder = ToyDecoder.random(make_config("gqa"), 0, "float32")
    matrices = 2 * (32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 48) + 32 * 64
    counters = Counters()
    decoder.forward([[1]], decoder.new_cache(), counters)
    assert counters.projection_flop == 2 * matrices
    assert counters.weight_bytes_read == 4 * matrices
    # One query, one key, 4 heads of 8 in each of 2 layers: scores and mixing.
    assert counters.attention_flop == 2 * 2 * 2 * 4 * 8
    assert counters.cache_bytes_read == 2 * 2 * 2 * 8 * 4


def test_steps_grow_only_without_the_cache_and_windows_stop_growing() -> None:
    steps = lab_steps(12)["kinds"]
    assert isinstance(steps, dict)
    assert set(steps) == set(KINDS)
    for kind, data in steps.items():
        cached, uncached = data["cached"], data["uncached"]
        assert [s["tokens_computed"] for s in cached] == [1] * 12
        assert [s["tokens_computed"] for s in uncached] == list(range(1, 13))
        assert cached[-1]["cumulative_flop"] == sum(s["flop"] for s in cached)
        assert all(s["cache_bytes"] == 0 == s["bytes_read"] for s in uncached)
        # A step reads what it leaves behind: every token held, of a window the window.
        assert [s["bytes_read"] for s in cached] == [s["cache_bytes"] for s in cached]
        growth = np.diff([s["cache_bytes"] for s in cached])
        halved = kind in ("sliding", "sinks")  # one of two layers is windowed
        assert growth[-1] == data["bytes_per_token"] / (2 if halved else 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_heads": 5}, "Got n_kv_heads=2, but expected a divisor of n_heads=5"),
        ({"head_dim": 7}, "Got head_dim=7, but expected an even number"),
        ({"hidden_size": 0}, "Got hidden_size=0, but expected a whole number of at least 1"),
        ({"n_layers": 0}, "Got n_layers=0, but expected a whole number from 1 to 1,000"),
        ({"intermediate": 1.5}, "Got intermediate=1.5, but expected a whole number"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config("gqa", **change)


def test_windows_of_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="Got window=0, but expected a whole number of at least 1"):
        make_config("sliding", window=0)
    with pytest.raises(ValueError, match="Got window=0"):
        WindowStore(0)


def test_kinds_the_lab_does_not_compute_are_refused() -> None:
    with pytest.raises(ValueError, match="expected one of mha, gqa, mqa, mla, sliding, sinks"):
        make_config("linear")
    with pytest.raises(ValueError, match="Got a GatedDeltaNet layer"):
        ToyConfig((GatedDeltaNet(2, 2, 4, 4, 4),), 8, 8, 8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Got qkv_bias on a layer"):
        ToyConfig((SoftmaxAttention(2, 2, 4, 4, qkv_bias=True),), 8, 8, 8)


@pytest.mark.parametrize("tokens", [[[64]], [[-1]], [[0.5]], [], np.zeros((1, 2, 3), int)])
def test_tokens_outside_the_vocabulary_or_of_another_shape_are_refused(tokens: object) -> None:
    decoder = ToyDecoder.random(make_config("gqa"))
    with pytest.raises(ValueError, match=r"Got token"):
        decoder.forward(tokens)  # type: ignore[arg-type]


def test_nothing_to_generate_is_refused() -> None:
    decoder = ToyDecoder.random(make_config("gqa"))
    with pytest.raises(ValueError, match="Got n_new=0, but expected a whole number from 1"):
        decoder.generate([[1]], 0)
    with pytest.raises(ValueError, match="Got dtype 'float16'"):
        ToyDecoder.random(make_config("gqa"), dtype="float16")


@pytest.mark.parametrize(("mine", "other"), [("gqa", "mla"), ("mla", "gqa"), ("mha", "sliding")])
def test_a_cache_of_another_decoder_is_refused_even_while_empty(mine: str, other: str) -> None:
    decoder = ToyDecoder.random(make_config(mine), 0)
    foreign = ToyDecoder.random(make_config(other), 0).new_cache()
    longer = ToyDecoder.random(make_config(mine, n_layers=3), 0).new_cache()
    for cache in (foreign, longer):
        with pytest.raises(ValueError, match=r"Got a cache of \d layers made for another decoder"):
            decoder.forward([1, 2, 3], cache)
