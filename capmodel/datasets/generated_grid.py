"""The grid of generated runs: 48 invented dense shapes, 5 GPU classes, and what fits where.

Nothing here is measured. The shapes are sixteen sizes, each with MHA, GQA and MQA heads.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

# Base sizes: name, layers, hidden, query heads, head_dim, GQA KV heads, intermediate, vocabulary.
_BASES = (
    ("0.5b", 24, 1024, 16, 64, 4, 2816, 32_000),
    ("1b", 16, 2048, 32, 64, 8, 8192, 128_256),
    ("1.5b", 28, 1536, 12, 128, 2, 8960, 151_936),
    ("2b", 18, 2048, 8, 256, 2, 16_384, 64_000),
    ("3b", 28, 3072, 24, 128, 8, 8192, 128_256),
    ("4b", 36, 2560, 32, 80, 8, 9728, 100_352),
    ("7b", 32, 4096, 32, 128, 8, 11_008, 32_000),
    ("8b", 32, 4096, 32, 128, 8, 14_336, 128_256),
    ("9b", 40, 4096, 32, 128, 4, 13_696, 151_552),
    ("13b", 40, 5120, 40, 128, 8, 13_824, 32_000),
    ("14b", 40, 5120, 40, 128, 10, 17_920, 100_352),
    ("24b", 40, 5120, 32, 128, 8, 32_768, 131_072),
    ("32b", 64, 5120, 64, 128, 8, 25_600, 151_936),
    ("34b", 48, 8192, 64, 128, 8, 22_016, 32_000),
    ("70b", 80, 8192, 64, 128, 8, 28_672, 128_256),
    ("104b", 64, 12_288, 96, 128, 8, 33_792, 100_352),
)
KINDS = ("mha", "gqa", "mqa")
GPUS = ("a100-80gb-sxm", "h100-sxm", "h200-sxm", "b200-sxm", "l40s")
GPU_MEMORY_BYTES = (80e9, 80e9, 141e9, 180e9, 48e9)  # as marketed
WEIGHT_DTYPES = ("bf16", "fp8", "int4")
STORED_BYTES = (2.0, 1.0, 0.5 + 2 / 128)  # int4 with one 16-bit scale per 128 elements
KV_DTYPES = ("bf16", "fp8")
KV_BYTES = (2.0, 1.0)
BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
CONTEXTS = (
    128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 32_768, 65_536, 131_072,
)  # fmt: skip
MEMORY_FRACTION = 0.92


def shapes() -> pd.DataFrame:
    """The 48 shapes, one row each: `model`, `kind` and the shape columns of the runs table.

    `n_params` [parameters] counts a gated MLP, untied embeddings and norms, matrix by matrix.
    """
    columns = [
        "base", "n_layers", "hidden_size", "n_heads", "head_dim", "gqa", "intermediate_size",
        "vocab_size",
    ]  # fmt: skip
    base = pd.DataFrame(_BASES, columns=columns)
    table = pd.concat(
        [
            base.assign(kind="mha", n_kv_heads=base["n_heads"]),
            base.assign(kind="gqa", n_kv_heads=base["gqa"]),
            base.assign(kind="mqa", n_kv_heads=1),
        ],
        ignore_index=True,
    ).drop(columns="gqa")
    table["model"] = "made-" + table["base"] + "-" + table["kind"]
    table["matrix_params"] = matrix_params(table)
    table["n_params"] = (
        table["matrix_params"]
        + 2 * table["vocab_size"] * table["hidden_size"]
        + (2 * table["n_layers"] + 1) * table["hidden_size"]
    )
    return table.drop(columns="base")


def matrix_params(table: pd.DataFrame) -> pd.Series:
    """Parameters in the matrices of all layers (the part that is quantised)."""
    heads, kv_heads = table["n_heads"], table["n_kv_heads"]
    attention = table["hidden_size"] * table["head_dim"] * (2 * heads + 2 * kv_heads)
    mlp = 3 * table["hidden_size"] * table["intermediate_size"]
    return table["n_layers"] * (attention + mlp)


@dataclass(frozen=True, slots=True)
class Grid:
    """Feasible configurations as index columns, each of shape (n_configurations,).

    shape, gpu, weight, kv index `shapes()`, GPUS, WEIGHT_DTYPES and KV_DTYPES;
    batch [sequences] and context [tokens] are values.
    """

    shape: np.ndarray
    gpu: np.ndarray
    weight: np.ndarray
    kv: np.ndarray
    batch: np.ndarray
    context: np.ndarray

    def take(self, rows: np.ndarray) -> "Grid":
        """The configurations at `rows`, in that order."""
        columns = (self.shape, self.gpu, self.weight, self.kv, self.batch, self.context)
        return Grid(*(column[rows] for column in columns))


def feasible_grid(table: pd.DataFrame) -> Grid:
    """All configurations that fit in 0.92 of the GPU's memory, in grid order."""
    memory = MEMORY_FRACTION * np.array(GPU_MEMORY_BYTES)
    stored = np.array(STORED_BYTES)
    matrices = table["matrix_params"].to_numpy(float)
    rest = (table["n_params"] - table["matrix_params"]).to_numpy(float)
    weights = matrices[:, None] * stored + 2 * rest[:, None]
    per_token = (
        (2 * table["n_layers"] * table["n_kv_heads"] * table["head_dim"]).to_numpy(float)[:, None]
    ) * np.array(KV_BYTES)
    tokens = np.multiply.outer(np.array(BATCHES, float), np.array(CONTEXTS, float))
    # axes: shape, gpu, weight dtype, KV dtype, batch, context
    cache = per_token[:, None, None, :, None, None] * tokens
    fits = weights[:, None, :, None, None, None] + cache <= memory[:, None, None, None, None]
    shape, gpu, weight, kv, batch, context = np.nonzero(fits)
    return Grid(shape, gpu, weight, kv, np.array(BATCHES)[batch], np.array(CONTEXTS)[context])
