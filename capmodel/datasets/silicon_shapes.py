"""The model shapes of the silicon runs: real catalogue models, and varied ones that only look real.

Varied shapes spread heads, widths and depths over the measured range; they are named `varied-...`
and no checkpoint has them. Two published models that the catalogue lacks are given by figures.
"""

from functools import lru_cache

import numpy as np
import pandas as pd

from capmodel.shapes import ModelShape, load_shape, shape_from_columns

# Catalogue names. Shapes that differ only in vocabulary rows or name are left out.
REAL = (
    "llama-2-7b", "llama-2-13b", "llama-2-70b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b",
    "llama-3.2-1b", "mistral-7b-v0.3", "mixtral-8x7b", "mixtral-8x22b", "qwen2-72b", "qwen2.5-3b",
    "qwen2.5-14b", "qwen2.5-32b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b",
    "qwen3-32b", "qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-67b", "decilm-7b", "gemma-7b",
    "tinyllama-1.1b", "minimax-m2.5", "gpt-oss-20b", "gpt-oss-120b", "deepseek-v3", "kimi-k2",
)  # fmt: skip

Row = tuple[int, int, int, int, int, int, int, int, int]

# Layers, hidden, heads, KV heads, head_dim, intermediate, vocabulary; experts and top k.
FIGURES = {
    "qwen3-coder-480b-a35b": (62, 6144, 96, 8, 128, 2560, 151_936, 160, 8),
    "mistral-large-123b": (88, 12_288, 96, 8, 128, 28_672, 32_768, 0, 0),
}
VARIED = (
    (24, 2048, 16, 1, 128, 8192, 64_000, 0, 0),
    (32, 4096, 32, 1, 128, 14_336, 65_024, 0, 0),
    (48, 8192, 64, 1, 128, 24_576, 65_024, 0, 0),
    (60, 12_288, 96, 1, 128, 28_672, 49_152, 0, 0),
    (26, 2048, 32, 1, 64, 5632, 49_152, 0, 0),
    (18, 2048, 8, 1, 256, 16_384, 256_000, 0, 0),
    (30, 4096, 32, 2, 128, 13_696, 65_024, 0, 0),
    (64, 8192, 64, 2, 128, 22_016, 100_352, 0, 0),
    (20, 1536, 16, 2, 128, 6144, 32_000, 0, 0),
    (36, 3072, 32, 4, 128, 9216, 128_256, 0, 0),
    (52, 6144, 64, 4, 128, 16_384, 100_352, 0, 0),
    (72, 8192, 64, 4, 128, 28_672, 152_064, 0, 0),
    (44, 10_240, 96, 4, 128, 25_600, 128_256, 0, 0),
    (16, 2048, 16, 4, 128, 5632, 32_000, 0, 0),
    (40, 5120, 32, 8, 128, 32_768, 131_072, 0, 0),
    (60, 7168, 64, 8, 128, 20_480, 64_000, 0, 0),
    (28, 3584, 32, 8, 128, 18_944, 152_064, 0, 0),
    (12, 1024, 12, 12, 128, 4096, 32_000, 0, 0),
    (24, 2048, 16, 16, 128, 6144, 50_304, 0, 0),
    (28, 3072, 24, 24, 128, 8192, 50_304, 0, 0),
    (36, 5120, 48, 48, 128, 14_336, 64_000, 0, 0),
    (64, 8192, 64, 64, 128, 22_016, 32_000, 0, 0),
    (24, 1024, 16, 16, 64, 4096, 50_304, 0, 0),
    (32, 2560, 32, 32, 64, 10_240, 51_200, 0, 0),
    (30, 3072, 48, 48, 64, 8192, 49_152, 0, 0),
    (24, 2048, 32, 8, 64, 8192, 128_256, 0, 0),
    (36, 4096, 64, 8, 64, 12_288, 201_088, 0, 0),
    (42, 3584, 16, 8, 256, 14_336, 256_000, 0, 0),
    (34, 2560, 8, 4, 256, 10_240, 262_144, 0, 0),
    (46, 4096, 16, 4, 256, 16_384, 256_000, 0, 0),
    (24, 2048, 16, 2, 128, 768, 151_936, 128, 8),
    (36, 4096, 32, 4, 128, 1536, 128_256, 128, 8),
    (30, 4096, 32, 8, 128, 14_336, 64_000, 8, 2),
    (40, 6144, 64, 8, 128, 2560, 151_936, 160, 8),
)
_COLUMNS = (
    "n_layers", "hidden_size", "n_heads", "n_kv_heads", "head_dim", "intermediate_size",
    "vocab_size", "n_experts", "n_experts_per_token",
)  # fmt: skip


@lru_cache(maxsize=1)
def silicon_shapes() -> dict[str, ModelShape]:
    """Shape by model name, real models first."""
    by_figures = {name: shape_from_columns(**_given(row)) for name, row in _by_figures().items()}
    return {name: load_shape(name) for name in REAL} | by_figures


def shape_columns() -> pd.DataFrame:
    """Shape columns of the runs table, indexed by `model`; empty for catalogue models."""
    table = pd.DataFrame.from_dict(_by_figures(), orient="index", columns=list(_COLUMNS))
    table = table.replace({"n_experts": {0: np.nan}, "n_experts_per_token": {0: np.nan}})
    return table.reindex([*REAL, *table.index]).rename_axis("model")


def _by_figures() -> dict[str, Row]:
    return FIGURES | {_name(row): row for row in VARIED}


def _given(row: Row) -> dict[str, int]:
    return {name: value for name, value in zip(_COLUMNS, row, strict=True) if value}


def _name(row: Row) -> str:
    """Such as `varied-32x4096-h32k8d128`: layers x hidden, heads, KV heads, head_dim."""
    layers, hidden, heads, kv_heads, head_dim, _, _, experts, top_k = row
    moe = f"-e{experts}t{top_k}" if experts else ""
    return f"varied-{layers}x{hidden}-h{heads}k{kv_heads}d{head_dim}{moe}"
