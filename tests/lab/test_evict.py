"""Eviction: equal to windows where it should be, protective where it promises, and bounded."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capmodel.lab.config import ToyConfig, make_config
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.evict import (
    POLICIES,
    EvictingStore,
    evicting_cache,
    heavy_hitters,
    policy_named,
    random_old,
    sinks_and_window,
    sliding_window,
)
from capmodel.shapes.attention import SoftmaxAttention


def decode(decoder: ToyDecoder, tokens: np.ndarray, policy: str, budget: int):
    cache = evicting_cache(decoder.config, POLICIES[policy], budget)
    steps = [decoder.forward(tokens[:, i : i + 1], cache) for i in range(tokens.shape[1])]
    return np.concatenate(steps, axis=1), cache


def windowed(window: int, sink_tokens: int) -> ToyDecoder:
    """The decoder of `make_config("gqa")` with every layer windowed."""
    config = make_config("gqa")
    layers = tuple(SoftmaxAttention(4, 2, 8, 8, window=window) for _ in config.layers)
    narrow = ToyConfig(layers, 32, 64, 48, sink_tokens=sink_tokens)
    return ToyDecoder(narrow, ToyDecoder.random(config, 3).parameters)


@settings(max_examples=15, deadline=None)
@given(st.integers(6, 12), st.integers(1, 24), st.integers(0, 1000))
def test_evicting_the_oldest_is_sliding_window_attention(
    budget: int, length: int, seed: int
) -> None:
    decoder = ToyDecoder.random(make_config("gqa"), 3)
    tokens = np.random.default_rng(seed).integers(0, 64, (2, length))
    found, _ = decode(decoder, tokens, "sliding window", budget)
    np.testing.assert_allclose(found, windowed(budget, 0).forward(tokens), atol=1e-12)
    found, _ = decode(decoder, tokens, "sinks + window", budget)
    np.testing.assert_allclose(found, windowed(budget - 4, 4).forward(tokens), atol=1e-12)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_budget_that_holds_everything_changes_nothing(policy: str) -> None:
    decoder = ToyDecoder.random(make_config("gqa"), 3)
    tokens = np.random.default_rng(0).integers(0, 64, (2, 10))
    found, cache = decode(decoder, tokens, policy, 10)
    np.testing.assert_allclose(found, decoder.forward(tokens), atol=1e-12)
    whole = decoder.new_cache()
    decoder.forward(tokens, whole)
    assert cache.nbytes == whole.nbytes


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(POLICIES)), st.integers(6, 11), st.integers(0, 1000))
def test_no_more_than_the_budget_is_held_and_promises_are_kept(
    policy: str, budget: int, seed: int
) -> None:
    decoder = ToyDecoder.random(make_config("gqa"), seed)
    tokens = np.random.default_rng(seed).integers(0, 64, (2, 30))
    _, cache = decode(decoder, tokens, policy, budget)
    assert cache.nbytes == 2 * 2 * 2 * 2 * 8 * 8 * budget  # rows, layers, K and V, heads, dim, f64
    for store in cache.layers:
        assert isinstance(store, EvictingStore)
        held = np.sort(store.positions, axis=-1)
        assert (np.diff(held) > 0).all()
        assert (held[..., -1] == 29).all()
        if policy == "sinks + window":
            assert (held[..., :4] == [0, 1, 2, 3]).all()
        if policy in ("heavy hitters", "random"):
            assert (held[..., -(budget // 2) :] == np.arange(30 - budget // 2, 30)).all()


def test_policies_by_hand() -> None:
    rng = np.random.default_rng(0)
    positions = np.array([[[0.0, 9.0, 5.0, 7.0, 8.0, 2.0]]])
    mass = np.array([[[0.9, 0.0, 0.2, 0.0, 0.1, 0.5]]])
    assert sliding_window(positions, mass, rng) == 0
    assert sinks_and_window(positions, mass, rng) == 2  # 0 and 2 are among the first four
    assert heavy_hitters(positions, mass, rng) == 2  # 7, 8 and 9 are the newer half
    drawn = {int(random_old(positions, mass, rng)[0, 0]) for _ in range(100)}
    assert drawn == {0, 2, 5}


def test_heavy_hitters_keep_what_was_attended_to() -> None:
    store = EvictingStore(heavy_hitters, 6)
    entry = np.zeros((1, 1, 1, 4))
    for i in range(12):
        held = store.append(np.array([i]), (entry, entry))
        weights = np.full((1, 1, 1, held.arrays[0].shape[-2]), 0.01)
        weights[store.positions[:, :, None] == 1] = 1.0
        store.observe(weights)
    assert 1.0 in store.positions
    # Token 0 gathered a little longer than 2 to 8 did; 9 to 11 are the newer half.
    assert sorted(store.positions[0, 0][store.positions[0, 0] < 9]) == [0, 1, 8]


def test_a_token_inherits_nothing_from_the_one_it_overwrites() -> None:
    seen = []

    def loudest(positions: np.ndarray, mass: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        seen.append(mass[0, 0].tolist())
        return mass.argmax(-1)

    store, entry = EvictingStore(loudest, 6), np.zeros((1, 1, 1, 4))
    for i in range(8):
        held = store.append(np.array([i]), (entry, entry))
        weights = np.zeros((1, 1, 2, held.arrays[0].shape[-2]))
        weights[..., i % 6] = 0.5  # by both queries that share the head: 1 for the newest
        store.observe(weights)
    # Token 6 took the place of token 0, the first of the loudest, and starts from its own 1.
    assert seen == [[1.0] * 6, [1.0] * 6]


def test_bad_budgets_policies_and_feeds_are_refused() -> None:
    with pytest.raises(ValueError, match="Got budget=5, but expected a whole number from 6"):
        EvictingStore(sliding_window, 5)
    with pytest.raises(ValueError, match="Got eviction policy 'lru', but expected one of sliding"):
        policy_named("lru")
    config = make_config("gqa")
    with pytest.raises(ValueError, match="Got 2 tokens at once, but expected 1"):
        ToyDecoder.random(config).forward([[1, 2]], evicting_cache(config, sliding_window, 8))
    with pytest.raises(ValueError, match="with window 4, but expected full"):
        evicting_cache(make_config("sliding"), sliding_window, 8)
