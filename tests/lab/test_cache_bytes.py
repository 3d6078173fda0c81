"""The bytes of the arrays are the bytes of the formula, for every kind, length and batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capmodel.kvcache import cache_pieces, kv_bytes
from capmodel.lab.cache import FullStore, KVCache
from capmodel.lab.config import KINDS, ToyConfig, make_config
from capmodel.lab.decoder import ToyDecoder


def held_bytes(config: ToyConfig, length: int, batch: int, dtype: str, prompt: int) -> int:
    decoder = ToyDecoder.random(config, 0, dtype)
    cache = decoder.new_cache()
    decoder.forward(np.ones((batch, min(prompt, length)), int), cache)
    for _ in range(min(prompt, length), length):
        decoder.forward(np.ones((batch, 1), int), cache)
    return cache.nbytes


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(1, 14),
    st.integers(1, 3),
    st.integers(1, 20),
)
def test_nbytes_equals_kv_bytes(
    kind: str,
    groups: int,
    n_kv_heads: int,
    v_head_dim: int,
    window: int,
    length: int,
    batch: int,
    prompt: int,
) -> None:
    config = make_config(
        kind,
        n_layers=3,
        hidden_size=8,
        n_heads=groups * n_kv_heads,
        n_kv_heads=n_kv_heads,
        head_dim=4,
        v_head_dim=v_head_dim,
        window=window,
        intermediate=6,
    )
    found = held_bytes(config, length, batch, "float32", prompt)
    assert found == kv_bytes(config.shape, length, batch, kv_dtype="fp32")
    pieces = cache_pieces(config.shape, "fp32")
    assert found == batch * sum(
        p.count * p.bytes_per_token * min(length, p.window or length) for p in pieces
    )


@pytest.mark.parametrize("kind", KINDS)
def test_float64_arrays_take_twice_the_bytes(kind: str) -> None:
    config = make_config(kind)
    # The package knows no 8-byte caches; an element of float64 is two of fp32.
    assert held_bytes(config, 9, 2, "float64", 4) == 2 * kv_bytes(
        config.shape, 9, 2, kv_dtype="fp32"
    )


def test_float16_stores_hold_what_kv_bytes_says_of_fp16() -> None:
    config = make_config("gqa")
    decoder = ToyDecoder.random(config, 0, "float32")
    cache = KVCache([FullStore("float16") for _ in config.layers])
    rounded = decoder.forward(np.arange(10)[None], cache)
    assert cache.nbytes == kv_bytes(config.shape, 10, kv_dtype="fp16")
    assert 0 < np.abs(rounded - decoder.forward(np.arange(10)[None])).max() < 0.05


def test_worked_bytes_by_hand() -> None:
    # gqa: 2 layers x 2 heads x (8 + 8) x 4 bytes x 5 tokens; mla: 2 x (12 + 4) x 4 x 5.
    assert held_bytes(make_config("gqa"), 5, 1, "float32", 5) == 1280
    assert held_bytes(make_config("mla"), 5, 1, "float32", 5) == 640
    # sliding at window 4: one layer keeps 4 of 5 tokens: 128 x (4 + 5).
    assert held_bytes(make_config("sliding"), 5, 1, "float32", 5) == 1152


def test_buffers_are_larger_than_what_they_hold() -> None:
    store = FullStore()
    for i in range(5):
        store.append(np.array([i]), (np.full((1, 2, 1, 4), i, np.float32),))
    assert store.nbytes == 5 * 2 * 4 * 4
    assert store.nbytes < store.allocated_nbytes <= 2 * store.nbytes
    assert store.arrays[0][0, 1, :, 0].tolist() == [0, 1, 2, 3, 4]
