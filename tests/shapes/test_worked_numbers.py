"""PHYSICS section 1's cache bytes per token, for shapes of the catalogue."""

import pytest

from capmodel.kvcache import cache_pieces
from capmodel.shapes import load_shape


def growing(model: str, kv_dtype: str = "bf16", tp: int = 1) -> float:
    pieces = cache_pieces(load_shape(model), kv_dtype, tp)
    return sum(piece.count * piece.bytes_per_token for piece in pieces)


def fixed(model: str) -> float:
    return sum(piece.count * piece.fixed_bytes for piece in cache_pieces(load_shape(model)))


@pytest.mark.parametrize(
    ("model", "kv_dtype", "tp", "expected"),
    [
        ("llama-3-70b", "bf16", 1, 327_680),
        ("llama-3-70b", "bf16", 8, 40_960),
        ("llama-3-70b", "bf16", 16, 40_960),
        ("llama-2-7b", "bf16", 1, 524_288),
        ("llama-3.1-8b", "bf16", 1, 131_072),
        ("qwen3-32b", "bf16", 1, 262_144),
        ("starcoder2-3b", "bf16", 1, 30_720),
        ("deepseek-v3", "bf16", 1, 70_272),
        ("deepseek-v3", "bf16", 8, 70_272),
        ("deepseek-v3", "fp8", 1, 35_136),
        ("deepseek-v3.2", "bf16", 1, 78_324),
        ("deepseek-v3.2", "fp8", 1, 43_188),
        ("deepseek-v3.2", "fp8_ds_mla", 1, 48_068),
        ("glm-5.2", "fp8", 1, 47_700),
        ("glm-5", "fp8", 1, 78 * (576 + 132)),  # 55,224: every layer with an indexer
        ("deepseek-67b", "bf16", 1, 389_120),
        ("deepseek-v2", "bf16", 1, 60 * 576 * 2),
        ("gpt-oss-120b", "bf16", 1, 73_728),
        ("minimax-m3", "bf16", 1, 137_472),
        ("step-3.7-flash", "bf16", 1, 49_152 + 33 * 4096),
        ("kimi-k3", "bf16", 1, 27_648),
        ("nemotron-3-nano", "bf16", 1, 6_144),
        ("jamba-1.5-mini", "bf16", 1, 16_384),
        ("gemma-4-31b", "bf16", 1, 50 * 16_384 + 10 * 8_192),
        ("gemma-4-e4b", "bf16", 1, 20 * 2 * 2 * 256 * 2 + 4 * 2 * 2 * 512 * 2),
    ],
)
def test_bytes_per_token(model: str, kv_dtype: str, tp: int, expected: float) -> None:
    assert growing(model, kv_dtype, tp) == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [("kimi-k3", 449.4e6), ("nemotron-3-nano", 49.1e6), ("whisper-large-v3", 245.8e6)],
)
def test_fixed_bytes_per_request(model: str, expected: float) -> None:
    assert fixed(model) == pytest.approx(expected, rel=1e-3)


def test_llama_3_70b_with_all_heads() -> None:
    """2,621,440 bytes per token with 64 KV heads (PHYSICS section 1)."""
    pieces = cache_pieces(load_shape("llama-3-70b").with_attention("mha"))
    assert sum(p.count * p.bytes_per_token for p in pieces) == 2_621_440


def test_latent_against_full_heads() -> None:
    """DeepSeek-V3 stored as full heads (K 192 + V 128) would take 71 times as much."""
    full_heads = 61 * 128 * (192 + 128) * 2
    assert full_heads / growing("deepseek-v3") == pytest.approx(71, abs=0.2)


def test_the_published_claim_about_deepseek_v2() -> None:
    """93.3 % smaller than DeepSeek-67B at 6 bits per element, 82.2 % in bf16."""
    mla = growing("deepseek-v2")
    assert mla * 6 / 16 == 25_920
    assert 1 - mla * 6 / 16 / growing("deepseek-67b") == pytest.approx(0.933, abs=5e-4)
    assert 1 - mla / growing("deepseek-67b") == pytest.approx(0.822, abs=5e-4)


def test_heads_and_layers_agree_with_start_up_logs(shared_data) -> None:
    """Layers, KV heads and head_dim of the models whose logs the shared data names."""
    import csv

    from capmodel.shapes.catalogue import in_catalogue

    with (shared_data / "engine_kv_logs.csv").open(newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if row["attn_kind"] in ("gqa", "mha", "gqa-moe")
        ]
    checked = set()
    for row in rows:
        model = row["model"].split(" ")[0]
        if not in_catalogue(model) or "EAGLE" in row["model"]:
            continue
        shape = load_shape(model)
        (attention,) = {a for _, a in shape.attention_layers()}
        found = (shape.n_layers, attention.n_kv_heads, attention.head_dim)
        assert found == tuple(int(row[f"cfg_{key}"]) for key in ("layers", "kv_heads", "head_dim"))
        checked.add(shape.name)
    assert len(checked) >= 25
