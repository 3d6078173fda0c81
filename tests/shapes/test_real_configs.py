"""The 28 real `config.json` files of ../shared/data/configs: parameters and cache bytes."""

from pathlib import Path

import pytest

from capmodel.kvcache import cache_pieces
from capmodel.shapes import ModelShape, load_shape
from capmodel.weights import parameter_count

# Published parameters: model cards, papers, or the safetensors totals the hub shows; "mtp" counts
# the MTP layers too, as those totals do.
PUBLISHED = {
    "MiniMaxAI--MiniMax-M2.5": 228.7e9,
    "Qwen--Qwen3-0.6B": 0.596e9,  # "0.6B", non-embedding 0.44B, tied
    "Qwen--Qwen3-30B-A3B": 30.5e9,
    "Qwen--Qwen3-32B": 32.8e9,
    "Qwen--Qwen3-32B-FP8": 32.8e9,
    "Qwen--Qwen3-8B": 8.2e9,
    "Qwen--Qwen3-VL-8B-Instruct": 8.77e9,
    "Qwen--Qwen3.5-27B": 27.8e9,  # with its MTP layer
    "Qwen--Qwen3.5-397B-A17B": 403e9,  # with its MTP layer
    "XiaomiMiMo--MiMo-7B-Base": 7.83e9,  # with its MTP layer
    "XiaomiMiMo--MiMo-V2-Flash": 309e9,
    "ai21labs--AI21-Jamba-1.5-Mini": 51.6e9,
    "deepseek-ai--DeepSeek-V3": 685e9,  # 671e9 and 14e9 of MTP
    "deepseek-ai--DeepSeek-V3.2": 685e9,
    "deepseek-ai--DeepSeek-V4-Flash": 284e9,
    "google--gemma-2-27b": 27.2e9,
    "google--gemma-4-26B-A4B": 25.8e9,  # 25.2e9 of text, 0.55e9 of vision
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": 108.6e9,
    "meta-llama--Meta-Llama-3.1-70B": 70.6e9,
    "meta-llama--Meta-Llama-3.1-8B": 8.03e9,
    "mistralai--Mixtral-8x7B-v0.1": 46.7e9,
    "moonshotai--Kimi-K2-Instruct": 1026e9,
    "nvidia--Llama-3.1-70B-Instruct-FP8": 70.6e9,
    "nvidia--Llama-3_3-Nemotron-Super-49B-v1": 49.9e9,
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31.6e9,
    "nvidia--Qwen3-235B-A22B-NVFP4": 235e9,
    "openai--gpt-oss-120b": 116.8e9,
    "zai-org--GLM-5": 754e9,  # 744e9 and its MTP layer
}
WITH_MTP = ("Qwen--Qwen3.5", "XiaomiMiMo--MiMo-7B", "deepseek-ai--DeepSeek-V3", "zai-org--GLM-5")

# PHYSICS section 1: bytes per token while no window is full, and fixed bytes per request, bf16.
CACHE = {
    "Qwen--Qwen3-32B": (262_144, 0),
    "meta-llama--Meta-Llama-3.1-8B": (131_072, 0),
    "meta-llama--Meta-Llama-3.1-70B": (327_680, 0),
    "deepseek-ai--DeepSeek-V3": (70_272, 0),
    "deepseek-ai--DeepSeek-V3.2": (78_324, 0),
    "moonshotai--Kimi-K2-Instruct": (70_272, 0),
    "openai--gpt-oss-120b": (73_728, 0),
    "XiaomiMiMo--MiMo-V2-Flash": (23_040 + 39 * 8 * (192 + 128) * 2, 0),
    "ai21labs--AI21-Jamba-1.5-Mini": (16_384, 28 * (8192 * 16 * 4 + 8192 * 3 * 2)),
    "nvidia--Llama-3_3-Nemotron-Super-49B-v1": (200_704, 0),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (6_144, 49_082_368),
    "Qwen--Qwen3.5-27B": (65_536, 48 * 3_207_168),
    "google--gemma-2-27b": (46 * 2 * 16 * 128 * 2, 0),
    "google--gemma-4-26B-A4B": (5 * 4096 + 25 * 8192, 0),
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (48 * 2 * 8 * 128 * 2, 0),
}


def read(shared_data: Path, name: str) -> ModelShape:
    return load_shape(shared_data / "configs" / f"{name}.json")


def test_each_file_is_listed(shared_data: Path) -> None:
    assert {file.stem for file in (shared_data / "configs").glob("*.json")} == set(PUBLISHED)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_parameters_are_the_published_ones_within_a_percent(shared_data: Path, name: str) -> None:
    found = parameter_count(read(shared_data, name), mtp=name.startswith(WITH_MTP))
    assert found == pytest.approx(PUBLISHED[name], rel=0.01)


@pytest.mark.parametrize("name", sorted(CACHE))
def test_cache_bytes_are_the_worked_ones(shared_data: Path, name: str) -> None:
    pieces = cache_pieces(read(shared_data, name))
    growing = sum(piece.count * piece.bytes_per_token for piece in pieces)
    fixed = sum(piece.count * piece.fixed_bytes for piece in pieces)
    assert (growing, fixed) == CACHE[name]


def test_deepseek_v4_flash(shared_data: Path) -> None:
    """PHYSICS section 1: 3,850 bytes per token and 3.21 MB of 128-token windows."""
    pieces = cache_pieces(read(shared_data, "deepseek-ai--DeepSeek-V4-Flash"))
    growing = sum(p.count * p.bytes_per_token for p in pieces if p.window is None)
    windows = sum(p.count * p.bytes_per_token * p.window for p in pieces if p.window)
    assert growing == pytest.approx(3850, abs=1)
    assert windows == pytest.approx(3.21e6, rel=0.002)


def test_mimo_windows(shared_data: Path) -> None:
    """25.6 MB per request once the 39 windowed layers hold their 128 tokens (PHYSICS section 1).

    Its `attention_chunk_size` does not make them chunked-local.
    """
    pieces = cache_pieces(read(shared_data, "XiaomiMiMo--MiMo-V2-Flash"))
    windowed = [p for p in pieces if p.window == 128]
    assert sum(p.count for p in windowed) == 39
    held = sum(p.count * p.bytes_per_token * 128 for p in windowed)
    assert held == pytest.approx(25.6e6, rel=2e-3)


def test_windows_of_real_models(shared_data: Path) -> None:
    """gemma-2 alternates, Llama-4 is global every fourth layer, gemma-4 every sixth."""
    gemma2 = read(shared_data, "google--gemma-2-27b")
    assert sorted((a.window or 0, n) for n, a in gemma2.attention_layers()) == [(0, 23), (4096, 23)]
    scout = read(shared_data, "meta-llama--Llama-4-Scout-17B-16E-Instruct")
    assert sorted((a.chunk or 0, n) for n, a in scout.attention_layers()) == [(0, 12), (8192, 36)]
    gemma4 = read(shared_data, "google--gemma-4-26B-A4B")
    full = [a for _, a in gemma4.attention_layers() if a.window is None]
    assert [(a.n_kv_heads, a.head_dim, a.k_eq_v) for a in full] == [(2, 512, True)]


def test_the_catalogue_agrees_with_the_real_configs(shared_data: Path) -> None:
    """Entries written for a model equal what its own config says, all but names and sources."""
    from dataclasses import replace

    for file in (shared_data / "configs").glob("*.json"):
        ident = file.stem.replace("--", "/")
        read_shape, kept = load_shape(file), load_shape(ident)
        if ident.startswith("nvidia/") and ("FP8" in ident or "NVFP4" in ident):
            continue  # their storage stands in hf_quant_config.json, which the folder lacks
        like = {"name": "", "source": "", "architecture": ""}
        assert replace(read_shape, **like) == replace(kept, **like), ident
