"""SGLang, TensorRT-LLM and llama.cpp: figures their logs print."""

import pytest
from hand_shapes import GEMMA_4_12B, QWEN_3_5_9B, latent, model, softmax

from capmodel.kvcache import EngineSettings, replay, request_cost
from capmodel.kvcache.llama_cpp import llama_cpp_cache
from capmodel.kvcache.sglang import sglang_state_pool_bytes
from capmodel.shapes import LayerGroup, load_shape
from capmodel.units import GIB

MIB = 2**20


def test_sglang_cell_with_sliding_layers():
    # L198, gemma-4-26B-A4B: the log prints cell_size_bytes=184320 (5 full, 25 sliding, ratio 0.8).
    shape = model(
        "gemma-4-26b",
        LayerGroup(5, softmax(2, 512, 16), None),
        LayerGroup(25, softmax(8, 256, 16, window=1024), None),
    )
    assert request_cost(shape, "sglang").block_bytes == 184_320


def test_sglang_state_slots_are_a_pool_of_their_own():
    # L197, Qwen3.6-27B: 154 slots print ssm 21.80 and conv 0.43 "GB" (GiB), one slot more.
    pool = sglang_state_pool_bytes(load_shape("qwen3.5-27b"), 154) / GIB
    assert pool == pytest.approx(21.80 + 0.43, abs=0.01)
    # Attention alone decides the tokens: 24.66 GiB at 16 * 4,096 bytes print 403,904.
    printed = replay("qwen3.5-27b", 24.66 * GIB, 4096, "sglang", rounding_bytes=0.005 * GIB)
    assert printed.tokens == pytest.approx(403_904, rel=1e-3)


def test_sglang_draft_layer_and_pages():
    paid = request_cost("llama-3.1-8b", "sglang", EngineSettings(draft_layers=1, block_size=64))
    assert paid.block_bytes == 64 * 33 * 4096
    assert paid.blocks(65) == 2


def test_tensorrt_llm_rounds_its_blocks_up():
    # L168: 20.21484375 GiB are exactly 220,800 tokens of 98,304 bytes (gpt2-medium).
    shape = model("gpt2-medium", LayerGroup(24, softmax(16, 64), None))
    settings = EngineSettings(block_size=64)
    exact = replay(shape, 20.21484375 * GIB, 1024, "tensorrt-llm", settings)
    assert exact.tokens == 220_800
    # kvCacheManager.cpp: ceilDiv(maxTokens, tokensPerBlock), so a token more is a block more.
    more = replay(shape, 20.21484375 * GIB + 98_304, 1024, "tensorrt-llm", settings)
    assert more.tokens == 220_864


@pytest.mark.parametrize(
    ("window", "n_ctx", "settings", "cells"),
    [
        (128, 131_072, {}, 768),  # L072, gpt-oss-20b: 128 + 512 = 640, padded
        (1024, 131_072, {"slots": 4}, 6144),  # L095: 4 slots x (1,024 + 512)
        (1024, 131_072, {"slots": 4, "unified": True}, 4608),
        (512, 131_072, {"micro_batch": 1024}, 1536),  # L100
        (512, 1000, {}, 1024),  # the context first, then the padding
    ],
)
def test_llama_cpp_window_cells(window, n_ctx, settings, cells):
    shape = model("w", LayerGroup(1, softmax(8, 64, window=window), None))
    cache = llama_cpp_cache(shape, n_ctx, EngineSettings(kv_dtype="f16", **settings))
    assert cache.windowed_cells == cells
    assert cache.windowed_bytes == cells * 2048


def test_llama_cpp_gemma_4_12b():
    # L095 and L096: 1,920 MiB of windows for 4 slots; 512 MiB of global layers at 32,768 cells.
    four = llama_cpp_cache(GEMMA_4_12B, 131_072, EngineSettings(slots=4))
    assert four.windowed_bytes / MIB == 1920
    one = llama_cpp_cache(GEMMA_4_12B, 32_768, EngineSettings(full_windows=True))
    assert one.windowed_bytes == 0
    assert one.full_bytes / MIB == 512 + 40 * 8 * 512 * 2 * 32_768 / MIB


def test_llama_cpp_states_are_fp32():
    # L187, Qwen3.5-9B: 4 sequences print S 192 and R 9 MiB beside 4,224 MiB of cache.
    cache = llama_cpp_cache(QWEN_3_5_9B, 135_168, EngineSettings(slots=4, unified=True))
    assert cache.full_bytes / MIB == 4224
    assert cache.state_bytes / MIB == 192 + 9


@pytest.mark.parametrize(("form", "mebibytes"), [("heads", 13_800), ("latent", None)])
def test_llama_cpp_mla_was_stored_as_whole_heads(form, mebibytes):
    # L182, DeepSeek-V2.5: K q8_0 6,120 and V f16 7,680 MiB at 4,096 cells, 60 layers, 128 heads.
    shape = model("v2.5", LayerGroup(60, latent(), None))
    settings = EngineSettings(kv_dtype="q8_0,f16", latent=form)
    size = llama_cpp_cache(shape, 4096, settings).total_bytes / MIB
    assert size == (mebibytes or 60 * 576 * 4096 * 34 / 32 / MIB)


def test_llama_cpp_mla_with_its_values_again():
    # L079: 510 MiB for 15 of DeepSeek-R1's 61 layers at 16,384 cells: K 576 and V 512.
    shape = model("r1", LayerGroup(15, latent(), None))
    printed = replay(shape, None, 16_384, "llama.cpp", EngineSettings(latent="latent+v"))
    assert printed.cache_bytes / MIB == 510
