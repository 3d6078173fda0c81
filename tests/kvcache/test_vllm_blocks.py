"""vLLM's blocks: the golden cases of PHYSICS section 2, and what each version changed."""

import numpy as np
import pytest
from hand_shapes import GEMMA_4_31B, QWEN_3_5_9B, QWEN_3_6_35B, WHISPER, latent, model, softmax
from hypothesis import given
from hypothesis import strategies as st

from capmodel.kvcache import EngineSettings, kv_bytes, replay, request_blocks, request_cost
from capmodel.kvcache.vllm_versions import vllm_rules
from capmodel.shapes import LayerGroup, load_shape
from capmodel.units import GIB


def cost(shape, **settings):
    return request_cost(shape, "vllm", EngineSettings(**settings))


def blocks_in(shape, blocks, max_model_len, **settings):
    """Replay with memory for exactly so many blocks."""
    settings = EngineSettings(**settings)
    room = blocks * request_cost(shape, "vllm", settings).block_bytes
    return replay(shape, room, max_model_len, "vllm", settings)


def test_rtx_3090_holds_one_and_a_half_requests():
    # PHYSICS section 2, vLLM 0.6.4: 1,952 blocks = 31,232 tokens = 1.56 requests of 20,000.
    printed = blocks_in("llama-3.1-8b", 1952, 20_000, version="0.6.4")
    assert (printed.pool.blocks, printed.tokens) == (1952, 31_232)
    assert round(printed.concurrency, 2) == 1.56
    refused = blocks_in("llama-3.1-8b", 1478, 29_000, version="0.6.4")
    assert refused.tokens == 23_648
    assert refused.concurrency == pytest.approx(0.82, abs=5e-3)


@pytest.mark.parametrize(("gib", "least", "most"), [(3.81, 1948, 1953), (2.89, 1477, 1482)])
def test_rounded_gibibytes_leave_a_range_of_blocks(gib, least, most):
    # PHYSICS section 2: "the printed GiB, 3.81 and 2.89, are rounded".
    printed = replay(
        "llama-3.1-8b",
        gib * GIB,
        20_000,
        settings=EngineSettings(version="0.6.4"),
        rounding_bytes=0.005 * GIB,
    )
    assert printed.tokens_low == least * 16
    # The upper end is open: 3.815 GiB would be 1,953.28 blocks.
    assert most * 16 == printed.tokens_high


def test_gemma_4_31b_in_groups_of_ten():
    # PHYSICS section 2: 8,192 + 5 * 577 = 11,077 blocks; 26,492 blocks print 626,949 tokens.
    printed = blocks_in(GEMMA_4_31B, 26_492, 262_144, version="0.21")
    assert printed.pool.cost.blocks(262_144) == 8192 + 5 * 577
    assert printed.tokens == 626_949
    tables = {table.name: table for table in printed.pool.cost.tables}
    assert (tables["window"].count, tables["window"].block_size) == (5, 16)
    assert (tables["full"].count, tables["full"].block_size) == (1, 32)


def test_starcoder2_has_windows_in_every_layer():
    # PHYSICS section 2 and vLLM #19029: 769 blocks per request, 178.68 requests, 2,198,512 tokens.
    printed = blocks_in("starcoder2-3b", 137_407, 16_384, version="0.9.1")
    assert printed.pool.cost.blocks(16_384) == 769
    assert (printed.tokens, round(printed.concurrency, 2)) == (2_198_512, 178.68)
    # Before #19029 (0.9.0) the windows were not counted: 134.19x on the same memory.
    before = blocks_in("starcoder2-3b", 137_407, 16_384, version="0.9.0")
    assert (before.tokens, round(before.concurrency, 2)) == (2_198_512, 134.19)


@pytest.mark.parametrize(
    ("shape", "kv_dtype", "tp", "tokens"),
    [
        (QWEN_3_5_9B, "bf16", 1, 528),  # L138 and vLLM issue 40696
        (QWEN_3_6_35B, "fp8", 1, 2096),  # L142 to L149
        ("qwen3.5-27b", "fp8", 1, 1568),  # L140 and L150: Qwen3.6-27B has the same layers
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_attention_blocks_grow_until_their_page_holds_a_state(shape, kv_dtype, tp, tokens):
    tables = cost(shape, kv_dtype=kv_dtype, tp=tp).tables
    assert {t.block_size for t in tables} == {tokens}


def test_mamba_block_size_under_tensor_parallelism(shared_data):
    # L043 prints 4,176 = 16 * ceil(1,067,008 / (16 * 256)) tokens a block.
    path = shared_data / "configs" / "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.json"
    assert cost(path, kv_dtype="fp8", tp=2).tables[0].block_size == 4176


def test_draft_tokens_enlarge_the_convolution_state():
    plain = cost(QWEN_3_6_35B, kv_dtype="fp8").tables[0].block_size
    drafted = cost(QWEN_3_6_35B, kv_dtype="fp8", draft_tokens=3).tables[0].block_size
    # 2,146,304 + 3 tokens * 8,192 channels * 2 bytes, over 1,024 bytes a token, in steps of 16.
    assert (plain, drafted) == (2096, 2144)


@pytest.mark.parametrize(
    ("settings", "held"),
    [
        ({"state_mode": "none"}, 1),
        ({"state_mode": "none", "draft_tokens": 2}, 3),
        ({"state_mode": "align"}, 2),
        ({"state_mode": "align", "draft_tokens": 2}, 4),
        ({"prefix_caching": True}, 2),
        ({"version": "0.27.1"}, 1),  # prefix caching of hybrid models is opt-in until 0.28
        ({"version": "0.28.0"}, 2),
    ],
)
def test_states_a_request_holds(settings, held):
    # PHYSICS section 2: 1 + spec, 2 + spec by cache mode.
    state = next(t for t in cost(QWEN_3_6_35B, kv_dtype="fp8", **settings).tables if t.fixed)
    assert (state.count, state.fixed) == (3, held)


def test_state_mode_all_keeps_one_per_block():
    paid = cost(QWEN_3_6_35B, kv_dtype="fp8", state_mode="all")
    assert paid.blocks(2096 * 10) == 4 * 10


@pytest.mark.parametrize(
    ("version", "layers", "groups"),
    [("0.11.0", 12, (2, 1)), ("0.12.0", 13, (1, 1)), ("0.18.0", 13, (1, 1))],
)
def test_gpt_oss_with_an_eagle_layer_is_padded_from_0_12_on(version, layers, groups):
    # vLLM #29303: 13 full and 12 windowed layers; before it, two groups of 12 for the full ones.
    shape = load_shape("gpt-oss-20b")
    paid = cost(shape, version=version, draft_layers=1)
    page = 16 * 2048
    assert paid.block_bytes == layers * page
    assert {t.name: t.count for t in paid.tables} == dict(
        zip(("full", "window"), groups, strict=True)
    )


def test_four_draft_layers_need_the_threshold_of_0_18():
    # vLLM #36684: 17 full and 12 windowed layers, ratio 1.42.
    shape = model(
        "gpt-oss-20b + P-EAGLE",
        LayerGroup(17, softmax(8, 64, 64), None),
        LayerGroup(12, softmax(8, 64, 64, window=128), None),
    )
    assert cost(shape, version="0.17.1").block_bytes == 12 * 16 * 2048
    assert cost(shape, version="0.18.0").block_bytes == 17 * 16 * 2048


def test_window_in_flight():
    window = cost("starcoder2-3b", version="0.25", max_num_batched_tokens=2048)
    doubled = cost("starcoder2-3b", version="0.26", max_num_batched_tokens=2048)
    assert window.blocks(16_384) == -(-(4095 + 2048) // 16) + 1
    assert doubled.blocks(16_384) == -(-(4095 + 2 * 2048) // 16) + 1  # vLLM #47728
    # Never more than the request itself, but one for where the window starts.
    assert window.blocks(1000) == 63 + 1


def test_chunked_local_layers():
    # PHYSICS section 2: ceil(min(chunk + M, len) / bs), no block on top.
    shape = model(
        "llama-4",
        LayerGroup(12, softmax(8, 128, 40), None),
        LayerGroup(36, softmax(8, 128, 40, chunk=8192), None),
    )
    chunk = next(
        t for t in cost(shape, max_num_batched_tokens=2048, version="0.25").tables if t.limit
    )
    assert chunk.count == 3
    assert chunk.blocks(100_000) == 3 * -(-(8192 + 2048) // 16)


def test_without_the_hybrid_manager_windows_grow():
    paid = cost(GEMMA_4_31B, hybrid_manager=False)
    assert paid.blocks(262_144) == 262_144 // 16
    assert paid.bytes(1600) == kv_bytes(
        model(
            "all full",
            LayerGroup(50, softmax(16, 256), None),
            LayerGroup(10, softmax(4, 512), None),
        ),
        1600,
    )


def test_mla_was_padded_for_a_while():
    # vLLM #12676 and #14842: 1,152 bytes to 1,280; the log of L130 shows 1.85x and 2.06x.
    one = model("mla", LayerGroup(61, latent(), None))
    padded = cost(one, version="0.7.3").block_bytes
    after = cost(one, version="0.8.0", block_size=16).block_bytes
    assert padded / after == 640 / 576
    assert padded / after == pytest.approx(2.06 / 1.85, rel=5e-3)
    assert cost(one, version="0.7.0").block_bytes == after


def test_encoder_tokens_are_reserved_by_the_batch_budget():
    # L155, Whisper large-v3: 28 + 128 blocks for 448 tokens, not 28 + 94 for 1,500 frames.
    paid = cost(WHISPER, version="0.14", max_num_batched_tokens=2048)
    assert paid.blocks(448) == 28 + 128


def test_sparse_attention_shares_one_table():
    # L120, GLM-5: latent and indexer caches share block tables; 78 * (1,152 + 132) bytes a token.
    paid = cost("glm-5", block_size=64)
    assert paid.block_bytes == 64 * 78 * (1152 + 132)
    assert len(paid.tables) == 1


def test_pipeline_and_context_parallelism():
    whole = cost("llama-3.1-70b")
    assert cost("llama-3.1-70b", pp=2).block_bytes == whole.block_bytes / 2
    shared = cost("deepseek-v3", context_parallel=8, block_size=64)
    assert shared.blocks(8 * 64 * 10 + 1) == 11
    printed = blocks_in(
        "deepseek-v3", 100, 51_200, context_parallel=8, block_size=64, version="0.12"
    )
    assert printed.tokens == 100 * 64 * 8


def test_deepseek_v4_grows_by_its_ratios(shared_data):
    paid = cost(shared_data / "configs" / "deepseek-ai--DeepSeek-V4-Flash.json")
    assert paid.slope_bytes == pytest.approx(3850.25)
    assert paid.fixed_bytes >= 3.214e6


@pytest.mark.parametrize(
    ("text", "number", "prints", "grouped"),
    [
        ("0.6.3", (0, 6, 3), "blocks", False),
        ("0.8.5 V0", (0, 8, 5), "blocks", False),
        ("0.9.x V0", (0, 9, 0), "blocks", False),
        ("0.9.0", (0, 9, 0), "blocks", False),
        ("v0.9.1", (0, 9, 1), "groups", True),
        ("0.1x", (0, 10, 0), "groups", True),
        ("0.11.0rc0", (0, 11, 0), "groups", True),
        ("0.20/0.21", (0, 20, 0), "groups", True),
        ("0.20+ fork", (0, 21, 0), "concurrency", True),
        ("0.24.0", (0, 24, 0), "concurrency", True),
    ],
)
def test_versions_as_logs_and_people_write_them(text, number, prints, grouped):
    rules = vllm_rules(text)
    assert (rules.version, rules.prints, rules.grouped) == (number, prints, grouped)


def test_a_version_without_a_number_is_refused():
    with pytest.raises(ValueError, match="nightly"):
        vllm_rules("nightly")


lengths = st.integers(1, 300_000)


@given(lengths, lengths)
def test_blocks_never_fall_with_length_and_arrays_agree(first, second):
    low, high = sorted((first, second))
    paid = cost(GEMMA_4_31B)
    assert paid.blocks(low) <= paid.blocks(high)
    assert paid.blocks(np.array([low, high])).tolist() == [paid.blocks(low), paid.blocks(high)]


@given(lengths)
def test_whole_blocks_are_at_least_the_bytes(tokens):
    for shape in (GEMMA_4_31B, QWEN_3_6_35B, load_shape("deepseek-v3.2")):
        assert cost(shape).bytes(tokens) >= kv_bytes(model("same", *shape.groups), tokens)


@given(st.integers(60_000, 250_000))
def test_long_requests_are_fixed_plus_slope(tokens):
    paid = cost(GEMMA_4_31B, version="0.21")
    assert paid.fixed == 5 * 577
    assert paid.blocks(tokens) == paid.fixed + -(-tokens // 32)
    assert paid.slope == 1 / 32


def test_request_blocks_takes_names_and_arrays():
    assert request_blocks("llama-3.1-8b", 20_000) == 1250
    assert request_blocks("llama-3.1-8b", np.array([1, 17, 20_000])).tolist() == [1, 2, 1250]
    with pytest.raises(ValueError, match="did you mean vllm"):
        request_blocks("llama-3.1-8b", 100, engine="vlm")
    with pytest.raises(ValueError, match="block_size=0"):
        EngineSettings(block_size=0)
    with pytest.raises(ValueError, match="available_bytes=None"):
        replay("llama-3.1-8b", None, 100)
