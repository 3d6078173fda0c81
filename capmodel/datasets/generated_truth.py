"""The true cost of a generated decode step, operator by operator. FROZEN.

This is not the formula that capmodel fits: bandwidth saturates with tensor size, tiles and
waves are whole, dequantisation costs time, few sequences leave an attention kernel's
processors idle, and sampling and bookkeeping grow with the batch. The constants are invented,
of the order of what the GPUs do; they were written down before any estimator was fitted to
the runs, and `tests/datasets/test_generated.py` holds their content hash. Changing one is a
change of the data: say so under "Numbers that change".
"""

from dataclasses import dataclass

import numpy as np

FloatArray = np.ndarray

# Per GPU, in the order of `generated_grid.GPUS`: A100, H100, H200, B200, L40S.
BANDWIDTH = np.array([2.039e12, 3.35e12, 4.8e12, 7.7e12, 0.864e12])  # [byte/s], datasheet
PEAK_16BIT = np.array([312e12, 989e12, 989e12, 2250e12, 362.05e12])  # [FLOP/s], dense
PEAK_FP8 = np.array([312e12, 1978e12, 1978e12, 4500e12, 733e12])  # A100 multiplies in 16 bits
PROCESSORS = np.array([108, 132, 132, 148, 142])  # streaming multiprocessors
GEMM_BANDWIDTH_SHARE = np.array([0.90, 0.91, 0.88, 0.86, 0.92])  # of the datasheet, large tensors
ATTENTION_BANDWIDTH_SHARE = np.array([0.86, 0.88, 0.84, 0.82, 0.88])
HALF_BYTES = np.array([1.5e6, 2.0e6, 2.6e6, 4.0e6, 0.8e6])  # tensor at half the bandwidth [byte]
LAUNCH = np.array([1.1e-6, 0.9e-6, 0.9e-6, 0.8e-6, 1.0e-6])  # per kernel in a graph [s]
STEP_OVERHEAD = np.array([1.6e-4, 1.3e-4, 1.3e-4, 1.2e-4, 1.5e-4])  # scheduler, per step [s]
DEQUANT_RATE = np.array([52e12, 90e12, 100e12, 150e12, 32e12])  # [element/s]

SATURATION = 0.8  # exponent of the bandwidth curve
COMPUTE_CAP = np.array([0.85, 0.80, 0.78])  # share of peak reached: bf16, fp8, int4 weights
DEQUANT_WEIGHT = np.array([0.0, 0.0, 1.0])  # relative cost per element; fp8 is native ...
DEQUANT_WEIGHT_A100 = np.array([0.0, 0.3, 1.0])  # ... except on A100
ATTENTION_COMPUTE_CAP = 0.55  # share of 16-bit peak
TILE_M, TILE_N = 32, 128  # rows and columns of one GEMM tile
SMOOTH = 3.0  # p-norm joining memory and compute time
SPLIT_TOKENS = 512  # cached tokens per unit of split attention work
FP8_KV_SHARE = 0.94  # attention bandwidth left when the cache is converted while it is read
KERNELS_PER_LAYER = 9
SEQUENCE_LAYER = 1.2e-8  # per sequence and layer: rope, cache write, block table [s]
SEQUENCE_STEP = 6e-7  # per sequence and step: detokenise, bookkeeping [s]
SAMPLING_PASSES = 3  # fp32 passes over the logits


@dataclass(frozen=True, slots=True)
class Steps:
    """Decode steps as columns of shape (n,). `gpu`, `weight`, `kv` index the tables above."""

    gpu: np.ndarray
    weight: np.ndarray
    kv: np.ndarray
    weight_bytes: FloatArray
    kv_bytes: FloatArray
    batch: FloatArray
    context: FloatArray
    layers: FloatArray
    hidden: FloatArray
    heads: FloatArray
    kv_heads: FloatArray
    head_dim: FloatArray
    intermediate: FloatArray
    vocab: FloatArray


def true_step_time(steps: Steps) -> FloatArray:
    """Noise-free time of each decode step [s], shape (n,)."""
    s = steps
    query = s.heads * s.head_dim
    layer = (
        _gemm(s, query + 2 * s.kv_heads * s.head_dim, s.hidden)
        + _gemm(s, s.hidden, query)
        + _gemm(s, 2 * s.intermediate, s.hidden)
        + _gemm(s, s.hidden, s.intermediate)
        + _attention(s)
        + KERNELS_PER_LAYER * LAUNCH[s.gpu]
        + SEQUENCE_LAYER * s.batch
    )
    return s.layers * layer + _gemm(s, s.vocab, s.hidden, head=True) + _step(s)


def _gemm(s: Steps, n: FloatArray, k: FloatArray, head: bool = False) -> FloatArray:
    """One matrix of n x k times `batch` columns. The LM head stays in 16 bits."""
    element = np.full_like(n, 2.0, dtype=float) if head else s.weight_bytes
    n_bytes = n * k * element + 2 * s.batch * (n + k)
    read = n_bytes / (BANDWIDTH[s.gpu] * GEMM_BANDWIDTH_SHARE[s.gpu] * _saturation(s, n_bytes))
    native_fp8 = (s.weight == 1) & ~np.array(head)
    peak = np.where(native_fp8, PEAK_FP8[s.gpu], PEAK_16BIT[s.gpu])
    cap = COMPUTE_CAP[0] if head else COMPUTE_CAP[s.weight]
    rows = np.ceil(s.batch / TILE_M)
    tiles = rows * np.ceil(n / TILE_N)
    waves = np.maximum(np.ceil(tiles / PROCESSORS[s.gpu]), 1)
    used = tiles / (waves * PROCESSORS[s.gpu])
    fill = np.maximum(used, 0.7)  # split-K fills half-empty waves
    multiply = 2 * rows * TILE_M * n * k / (peak * cap * fill)
    joined = (read**SMOOTH + multiply**SMOOTH) ** (1 / SMOOTH)
    return joined if head else joined + _dequantise(s, n * k, rows)


def _dequantise(s: Steps, elements: FloatArray, rows: FloatArray) -> FloatArray:
    """The part of converting weights that the reads do not hide, once per tile row."""
    cost = np.where(s.gpu == 0, DEQUANT_WEIGHT_A100[s.weight], DEQUANT_WEIGHT[s.weight])
    return cost * elements * np.sqrt(rows) / DEQUANT_RATE[s.gpu]


def _attention(s: Steps) -> FloatArray:
    """Split-KV decode attention: reads of the cache by as many processors as there is work for."""
    n_bytes = s.batch * s.context * 2 * s.kv_heads * s.head_dim * s.kv_bytes
    units = s.batch * s.kv_heads * np.ceil(s.context / SPLIT_TOKENS)
    waves = np.ceil(units / (2 * PROCESSORS[s.gpu]))
    busy = np.sqrt(units / (waves * 2 * PROCESSORS[s.gpu]))
    share = ATTENTION_BANDWIDTH_SHARE[s.gpu] * np.where(s.kv == 1, FP8_KV_SHARE, 1.0)
    read = n_bytes / (BANDWIDTH[s.gpu] * share * busy * _saturation(s, n_bytes))
    flop = (
        4
        * s.batch
        * s.context
        * s.head_dim
        * s.kv_heads
        * np.maximum(16 * np.ceil(s.heads / s.kv_heads / 16), 1)
    )
    multiply = flop / (PEAK_16BIT[s.gpu] * ATTENTION_COMPUTE_CAP * busy)
    combine = LAUNCH[s.gpu] * (s.context > SPLIT_TOKENS)
    return (read**SMOOTH + multiply**SMOOTH) ** (1 / SMOOTH) + combine


def _step(s: Steps) -> FloatArray:
    """Once per step: scheduling, sampling over the vocabulary, bookkeeping per sequence."""
    sampling = SAMPLING_PASSES * 4 * s.batch * s.vocab / (0.6 * BANDWIDTH[s.gpu])
    return STEP_OVERHEAD[s.gpu] + sampling + SEQUENCE_STEP * s.batch


def _saturation(s: Steps, n_bytes: FloatArray) -> FloatArray:
    """Share of the large-tensor bandwidth that a tensor of `n_bytes` reaches, 0 to 1."""
    return 1 / (1 + (HALF_BYTES[s.gpu] / n_bytes) ** SATURATION)
