"""Parameter counts: published totals, active parameters, parts."""

import pytest

from capmodel.shapes import load_shape, shape_names
from capmodel.weights import (
    PARTS,
    gemm_parameters_per_token,
    matrices,
    parameter_breakdown,
    parameter_count,
)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # PHYSICS section 3
        ("llama-3.1-8b", 8.03e9), ("llama-3-70b", 70.55e9), ("llama-2-7b", 6.74e9),
        ("mixtral-8x7b", 46.7e9), ("deepseek-v3", 671e9), ("gemma-2-27b", 27.2e9),
        ("nemotron-3-super", 120.7e9),
        # model cards and papers
        ("llama-3.1-405b", 405.9e9), ("llama-2-70b", 69e9), ("llama-65b", 65.3e9),
        ("mistral-7b", 7.24e9), ("mixtral-8x22b", 140.6e9), ("qwen2-72b", 72.7e9),
        ("qwen2.5-32b", 32.8e9), ("qwen3-235b-a22b", 235e9), ("deepseek-v2", 236e9),
        ("deepseek-v2-lite", 15.7e9), ("deepseek-67b", 67.4e9), ("kimi-k2", 1.026e12),
        ("glm-5", 744e9), ("gpt-oss-120b", 116.83e9), ("gpt-oss-20b", 20.91e9),
        ("bloom-7b1", 7.07e9), ("gpt-j-6b", 6.05e9), ("opt-6.7b", 6.66e9), ("decilm-7b", 7.04e9),
        ("aquila-7b", 7.3e9), ("tinyllama-1.1b", 1.1e9), ("starcoder2-3b", 3.03e9),
        ("whisper-large-v3", 1.54e9), ("lfm2-700m", 742e6), ("granite-4.0-h-micro", 3.19e9),
        ("exaone-4.0-32b", 32.0e9), ("phi-3-mini-4k", 3.82e9), ("phi-4-mini", 3.84e9),
        ("phi-1.5", 1.42e9), ("gpt2", 124.4e6), ("gpt2-medium", 354.8e6), ("opt-125m", 125.2e6),
        ("qwen3-next-80b-a3b", 79.7e9), ("kimi-k3", 2.78e12), ("minimax-m3", 427e9),
        ("gemma-2-9b", 9.24e9), ("llama-3.2-1b", 1.24e9), ("laguna-xs.2", 33.4e9),
    ],
)  # fmt: skip
def test_published_totals(model: str, expected: float) -> None:
    assert parameter_count(model) == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("mixtral-8x7b", 12.9e9),  # Mistral: "uses 12.9B parameters per token"
        ("deepseek-v3", 37.55e9),  # 36.6e9 and the second of two 0.93e9 tables (its README_WEIGHTS)
        ("deepseek-v2", 21.4e9),  # "236B total, 21B activated"
        ("kimi-k2", 32.9e9),  # "32B activated"
        ("gpt-oss-120b", 5.71e9),  # 5.13e9 without the embedding table, as its card counts
        ("gpt-oss-20b", 4.19e9),  # 3.61e9 without it
        ("qwen3-30b-a3b", 3.35e9),
        ("qwen3-235b-a22b", 22.2e9),
        ("nemotron-3-super", 12.77e9),  # "120B-A12B"
        ("kimi-k3", 105.4e9),  # "104B active"; 0.73e9 of them the first layer's dense MLP
        ("llama-3-70b", 70.55e9),
    ],
)
def test_active_parameters(model: str, expected: float) -> None:
    assert parameter_count(model, active=True) == pytest.approx(expected, rel=0.005)


def test_mtp_layers_are_counted_when_asked() -> None:
    """DeepSeek-V3: 685e9 on the hub, 11.5e9 of them the MTP module's own (README_WEIGHTS)."""
    assert parameter_count("deepseek-v3", mtp=True) == pytest.approx(684.5e9, rel=1e-4)
    own = parameter_count("deepseek-v3", mtp=True) - parameter_count("deepseek-v3")
    assert own - 2 * 129280 * 7168 == pytest.approx(11.5e9, rel=0.01)
    assert parameter_count("deepseek-v3", active=True, mtp=True) == parameter_count(
        "deepseek-v3", active=True
    )


def test_gemm_parameters_leave_the_embedding_table_out() -> None:
    """PHYSICS section 5: Llama-3.1-8B 7.505e9. gpt-oss's cards: 5.13e9 and 3.61e9."""
    assert gemm_parameters_per_token("llama-3.1-8b") == 8_030_261_248 - 128_256 * 4096
    assert gemm_parameters_per_token("gpt-oss-120b") == pytest.approx(5.13e9, rel=2e-3)
    assert gemm_parameters_per_token("gpt-oss-20b") == pytest.approx(3.61e9, rel=2e-3)
    # a tied table is the LM head, so it counts
    assert gemm_parameters_per_token("gemma-2-27b") == parameter_count("gemma-2-27b")
    # encoders and per-layer tables are not multiplied while decoding
    assert gemm_parameters_per_token("qwen3-vl-8b") < parameter_count("qwen3-vl-8b") - 0.5e9
    assert gemm_parameters_per_token("gemma-4-e4b") < 4.8e9  # "effective 4B"


def test_the_latent_moe_is_not_read_naively() -> None:
    """Nemotron-3 Super's experts work in a space of 1,024: 1,495e9 would be the naive count."""
    from dataclasses import replace

    shape = load_shape("nemotron-3-super")
    naive = replace(shape, groups=tuple(
        replace(g, mlp=replace(g.mlp, latent_size=None)) if g.mlp else g for g in shape.groups
    ))  # fmt: skip
    assert parameter_count(naive) / parameter_count(shape) > 3.7


def test_breakdown() -> None:
    table = parameter_breakdown("deepseek-v3").set_index("part")
    assert table["parameters"].sum() == parameter_count("deepseek-v3", mtp=True)
    assert table["share"].sum() == pytest.approx(1)
    # 58 layers x 256 experts x 3 x 7168 x 2048
    assert table.loc["experts", "parameters"] == 58 * 256 * 3 * 7168 * 2048
    assert table.loc["experts", "active"] == 58 * 8 * 3 * 7168 * 2048
    assert table.loc["mlp", "parameters"] == 3 * 3 * 7168 * 18432
    assert table.loc["head", "parameters"] == table.loc["embedding", "parameters"] == 129280 * 7168
    assert table["parameters"].is_monotonic_decreasing


@pytest.mark.parametrize("model", shape_names())
def test_every_matrix_is_well_formed(model: str) -> None:
    for matrix in matrices(load_shape(model)):
        assert matrix.part in PARTS
        assert matrix.split in ("tp", "kv", "replicated", "expert", "vocab")
        assert (matrix.split == "kv") == (matrix.kv_heads > 0)
        assert (matrix.split == "expert") == (matrix.n_experts > 0)
        assert matrix.count % max(1, matrix.n_experts) == 0
        assert 0 <= matrix.active <= matrix.total or matrix.total < 0
        assert not (matrix.quantised and matrix.part in ("norm", "embedding", "head", "router"))
