"""Worked numbers of PHYSICS section 1, and the laws a cache obeys."""

import warnings

import numpy as np
import pytest
from hand_shapes import (
    GLM_5_2,
    KIMI_K3,
    MINIMAX_M3,
    STEP_3_7_FLASH,
    WHISPER,
    latent,
    model,
    softmax,
)
from hypothesis import given
from hypothesis import strategies as st

from capmodel.kvcache import (
    ContextWarning,
    cache_breakdown,
    fixed_bytes,
    growth_bytes_per_token,
    kv_bytes,
    kv_bytes_per_token,
    state_bytes,
    tp_note,
)
from capmodel.shapes import LayerGroup, load_shape

# Origin of each figure: PHYSICS section 1 ("worked number, bytes per token").
BYTES_PER_TOKEN = [
    ("llama-3-70b", "bf16", 1, 327_680),
    ("llama-3-70b", "bf16", 8, 40_960),
    ("llama-3-70b", "bf16", 16, 40_960),  # 8 KV heads on 16 GPUs are kept twice
    ("llama-2-7b", "bf16", 1, 524_288),
    ("llama-3.1-8b", "bf16", 1, 131_072),
    ("qwen3-32b", "bf16", 1, 262_144),
    ("starcoder2-3b", "bf16", 1, 30_720),
    ("deepseek-v3", "bf16", 1, 70_272),
    ("deepseek-v3", "fp8", 1, 35_136),
    ("deepseek-v3.2", "bf16", 1, 78_324),
    ("deepseek-v3.2", "fp8", 1, 43_188),
    ("deepseek-v3.2", "fp8_ds_mla", 1, 48_068),
    ("deepseek-67b", "bf16", 1, 389_120),
    ("gpt-oss-120b", "bf16", 1, 73_728),
]


@pytest.mark.parametrize(("name", "kv_dtype", "tp", "expected"), BYTES_PER_TOKEN)
def test_bytes_per_token_of_known_models(name, kv_dtype, tp, expected):
    assert kv_bytes_per_token(name, kv_dtype, tp) == expected


def test_full_multi_head_attention_costs_eight_times_as_much():
    # PHYSICS: with 64 KV heads 2,621,440 bytes; 343.6 GB at 131,072 tokens.
    mha = load_shape("llama-3.1-70b").with_attention("mha")
    assert kv_bytes_per_token(mha) == 2_621_440
    assert kv_bytes(mha, 131_072) == pytest.approx(343.6e9, rel=1e-3)


def test_deepseek_v3_as_full_heads_would_cost_71_times_as_much():
    # K of 192 and V of 128 for each of 128 heads in 61 layers (PHYSICS section 1).
    full = model("v3 as mha", LayerGroup(61, softmax(128, 192, v_head_dim=128), None))
    ratio = kv_bytes_per_token(full) / kv_bytes_per_token("deepseek-v3")
    assert round(ratio) == 71


def test_deepseek_v2_saves_what_its_paper_says_only_at_six_bits():
    six_bits = kv_bytes_per_token("deepseek-v2", "fp8") * 6 / 8
    whole = kv_bytes_per_token("deepseek-67b")
    assert six_bits == 25_920
    assert 1 - six_bits / whole == pytest.approx(0.933, abs=5e-4)
    assert 1 - kv_bytes_per_token("deepseek-v2") / whole == pytest.approx(0.822, abs=5e-4)


def test_indexer_on_some_layers_only():
    # GLM-5.2 fp8: 78 latents of 576 and 21 indexers of 132 bytes; 55,224 with all 78.
    assert kv_bytes_per_token(GLM_5_2, "fp8") == 47_700
    every = model("glm-5", LayerGroup(78, latent(indexer=True), None))
    assert kv_bytes_per_token(every, "fp8") == 55_224


@pytest.mark.parametrize(
    ("shape", "growth", "fixed"),
    [
        ("gpt-oss-120b", 36_864, 18 * 2048 * 128),
        ("mimo-v2-flash", 23_040, 25.6e6),
        (STEP_3_7_FLASH, 49_152, 33 * 4096 * 512),
        (KIMI_K3, 27_648, 449.4e6),
        (MINIMAX_M3, 137_472, 0),
        (WHISPER, 32 * 5120, 245.8e6),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_long_requests_grow_by_a_slope_and_keep_a_fixed_part(shape, growth, fixed):
    # PHYSICS section 1, rows of the same names; fixed parts are given there to 3 or 4 digits.
    assert growth_bytes_per_token(shape) == growth
    assert fixed_bytes(shape) == pytest.approx(fixed, rel=2e-3)


@pytest.mark.parametrize(
    ("config", "growth", "fixed"),
    [
        ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 6_144, 49.1e6),
        ("deepseek-ai--DeepSeek-V4-Flash", 3_850, 3.21e6),
        ("nvidia--Llama-3_3-Nemotron-Super-49B-v1", 200_704, 0),
    ],
)
def test_real_configs_with_unlike_layers(shared_data, config, growth, fixed):
    # PHYSICS section 1. Nemotron-49B: 49 of 80 layers attend; V4: 3,850.25 bytes by its ratios.
    path = shared_data / "configs" / f"{config}.json"
    assert growth_bytes_per_token(path) == pytest.approx(growth, rel=1e-4)
    assert fixed_bytes(path) == pytest.approx(fixed, rel=2e-3)


def test_jamba_grows_in_four_layers_only(shared_data):
    path = shared_data / "configs" / "ai21labs--AI21-Jamba-1.5-Mini.json"
    assert growth_bytes_per_token(path) == 16_384  # PHYSICS: from 4 layers


def test_gated_delta_net_state_of_a_layer():
    # PHYSICS: Qwen3.6-27B 3,207,168 bytes per layer and request; Qwen3.5-27B has the same layers.
    states = {g.state for g in load_shape("qwen3.5-27b").groups if g.state is not None}
    assert [state_bytes(state) for state in states] == [3_207_168]


def test_mamba_state_under_tensor_parallelism(shared_data):
    # Nemotron-3-Nano, tp 2: page of 1,067,008 bytes in the log of L043 (engine_kv_logs.csv).
    path = shared_data / "configs" / "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.json"
    state = next(g.state for g in load_shape(path).groups if g.state is not None)
    assert state_bytes(state, tp=2) == 1_067_008


@pytest.mark.parametrize(("tokens", "gigabytes"), [(4096, 1.34), (32768, 10.74), (131072, 42.95)])
def test_request_totals(tokens, gigabytes):
    # PHYSICS section 1, "Request totals, Llama-3-70B".
    assert kv_bytes("llama-3.1-70b", tokens) == pytest.approx(gigabytes * 1e9, abs=5e6)


def test_shared_layers_own_no_cache_and_tied_values_still_do():
    own, shared = softmax(2, 256, 8), softmax(2, 256, 8, owns_cache=False)
    tied = softmax(2, 256, 8, k_eq_v=True)
    assert kv_bytes_per_token(
        model("e4b", LayerGroup(24, own, None), LayerGroup(18, shared, None))
    ) == kv_bytes_per_token(model("24 layers", LayerGroup(24, tied, None)))


@pytest.mark.parametrize(
    ("kv_dtype", "bytes_per_head"),
    [
        ("fp16", 2 * 256), ("int8", 256), ("int4", 128),
        ("q8_0", 256 * 34 / 32), ("q4_0", 256 * 18 / 32),
        ("q8_0,f16", 128 * 34 / 32 + 256),
        ("nvfp4", 2 * (128 / 2 + 128 / 16)),
        ("fp8_per_token_head", 256 + 2 * 4),
    ],
)  # fmt: skip
def test_dtypes_with_their_scales(kv_dtype, bytes_per_head):
    # PHYSICS section 1, "Element bytes"; one layer of one head of 128.
    one = model("one", LayerGroup(1, softmax(1, 128), None))
    assert kv_bytes_per_token(one, kv_dtype) == bytes_per_head


kv_heads = st.sampled_from([1, 2, 4, 8, 16, 32])
degrees = st.sampled_from([1, 2, 4, 8, 16, 32])


@given(kv_heads, degrees, degrees)
def test_more_gpus_than_kv_heads_never_lower_the_cache(heads, first, second):
    shape = model("m", LayerGroup(3, softmax(heads, 64, 32), None))
    low, high = sorted((first, second))
    assert kv_bytes_per_token(shape, tp=high) <= kv_bytes_per_token(shape, tp=low)
    if low >= heads:
        assert kv_bytes_per_token(shape, tp=high) == kv_bytes_per_token(shape, tp=low)
    if high <= heads:  # up to the KV heads, tp conserves bytes
        total = high * kv_bytes_per_token(shape, tp=high)
        assert total == kv_bytes_per_token(shape)


@given(degrees, st.integers(1, 200_000))
def test_mla_per_gpu_does_not_depend_on_tp(tp, tokens):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContextWarning)
        assert kv_bytes("deepseek-v3", tokens, tp=tp) == kv_bytes("deepseek-v3", tokens)


@given(st.integers(1, 60_000), st.integers(0, 60_000), st.sampled_from(["gpt-oss-120b", "kimi-k2"]))
def test_cache_never_falls_with_length(tokens, more, name):
    assert kv_bytes(name, tokens + more) >= kv_bytes(name, tokens)


@given(st.integers(1, 50_000), st.integers(1, 5000))
def test_windowed_layers_are_flat_past_their_window(tokens, window):
    shape = model("windowed", LayerGroup(2, softmax(1, 64, window=window), None))
    assert kv_bytes(shape, window + tokens) == kv_bytes(shape, window)
    assert kv_bytes(shape, window) == window * kv_bytes_per_token(shape)


@given(st.integers(1, 60_000), st.integers(1, 512))
def test_full_attention_doubles_with_context_and_with_batch(tokens, batch):
    once = kv_bytes("llama-3.1-8b", tokens, batch)
    assert kv_bytes("llama-3.1-8b", 2 * tokens, batch) == 2 * once
    assert kv_bytes("llama-3.1-8b", tokens, 2 * batch) == 2 * once


def test_arrays_broadcast_and_scalars_are_floats():
    contexts, batches = np.array([[1000], [2000]]), np.array([1, 2, 3])
    table = kv_bytes("mimo-v2-flash", contexts, batches)
    assert table.shape == (2, 3)
    assert table[1, 2] == kv_bytes("mimo-v2-flash", 2000, 3)
    assert type(kv_bytes("mimo-v2-flash", 2000, 3)) is float
    assert type(kv_bytes("mimo-v2-flash", np.float64(2000), np.int64(3))) is float
    by_tp = kv_bytes("mimo-v2-flash", 5000, tp=np.array([1, 2, 8]))
    assert by_tp.tolist() == [kv_bytes("mimo-v2-flash", 5000, tp=tp) for tp in (1, 2, 8)]
    assert kv_bytes_per_token("llama-3-70b", tp=np.array([[1, 8]])).tolist() == [[327680, 40960]]


def test_breakdown_sums_to_the_total():
    for name in ("mimo-v2-flash", "deepseek-v3.2", "qwen3.5-27b"):
        pieces = cache_breakdown(name, 30_000, tp=2)
        assert sum(p.request_bytes for p in pieces) == kv_bytes(name, 30_000, tp=2)


def test_what_tp_does_not_divide_is_said():
    assert "2 times" in tp_note("llama-3-70b", 16)
    assert "each of the 8 GPUs" in tp_note("deepseek-v3", 8)
    assert tp_note("llama-3-70b", 8) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context_len": 0}, "context_len=0"),
        ({"context_len": -5}, "context_len=-5"),
        ({"context_len": float("nan")}, "context_len=nan"),
        ({"context_len": float("inf")}, "context_len=inf"),
        ({"context_len": np.array([4096, 0])}, "context_len=0"),
        ({"context_len": 1, "batch_size": 0}, "batch_size=0"),
        ({"context_len": 1, "tp": 3}, "divisor of the 64 attention heads.*use 1, 2, 4"),
        ({"context_len": 1, "tp": 0}, "tp=0"),
        ({"context_len": 1, "tp": np.array([1.5, 2])}, "a whole number of GPUs"),
        ({"context_len": 1, "kv_dtype": "fp9"}, "did you mean 'fp8'"),
        ({"context_len": 1, "kv_dtype": "q8_0,f16,f16"}, "a pair .K, V."),
        ({"context_len": 1, "kv_dtype": "fp8_ds_mla"}, "latent attention"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected(arguments, message):
    with pytest.raises(ValueError, match=message):
        kv_bytes("llama-3-70b", **arguments)


def test_kv_heads_that_tp_neither_divides_nor_multiplies():
    odd = model("odd", LayerGroup(1, softmax(6, 64, 48), None))
    with pytest.raises(ValueError, match="divisor or a multiple of the 6 KV heads"):
        kv_bytes(odd, 100, tp=4)


def test_context_above_the_maximum_warns_and_computes():
    with pytest.warns(ContextWarning, match="8,192 tokens llama-3-70b"):
        assert kv_bytes("llama-3-70b", 16_384) == 16_384 * 327_680
