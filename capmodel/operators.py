"""The kernels of one decode step, each with what its time depends on.

A step of steady decoding is a sum over kernels: matrix products, attention, experts, all-reduces.
Each depends on a few numbers of its own, so what is measured of one model says something of every
other that runs a kernel like it. `operators` lists them for a deployment; `evaluate` gives the
textbook's seconds of a kernel and where it stands among its kind (PHYSICS section 5).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from capmodel.dtypes import KV_ELEMENT_BYTES, STORED_WEIGHT_BYTES
from capmodel.gpus import Gpu
from capmodel.kvcache import kv_heads_per_gpu
from capmodel.shapes import ModelShape
from capmodel.shapes.attention import LatentAttention, SoftmaxAttention
from capmodel.shapes.model import DenseMlp, LayerGroup, MoeMlp

Array = npt.NDArray[np.float64]

# What memory and multipliers reach of the datasheet in a good kernel, and what starting one
# costs [s]: only where a curve starts from, the rows decide.
_REACHED = {"matmul": (0.85, 0.75), "attention": (0.8, 0.3), "latent": (0.7, 0.4),
            "experts": (0.7, 0.4)}  # fmt: skip
_LAUNCH_S = {"matmul": 2e-6, "attention": 4e-6, "latent": 8e-6, "experts": 1e-5, "reduce": 8e-6}
_SLOW_LINK = 3e10  # where the catalogue knows none [byte/s]
_DTYPES = ("bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4")


@dataclass(frozen=True, slots=True)
class Operator:
    """`count` equal kernels of a step. traits: what their time depends on but batch and context."""

    kind: str
    count: float
    traits: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of kernel. coordinates: name to how far apart two kernels are per unit of it.

    Only the first of them depends on the batch. grows: whether any depends on the context.
    """

    evaluate: Callable[[Array, Array, Array], tuple[Array, Array]]
    coordinates: dict[str, float]
    grows: bool = False


@lru_cache(maxsize=4096)
def operators(
    shape: ModelShape, gpu: Gpu, weight_dtype: str, kv_dtype: str, tp: int = 1
) -> tuple[Operator, ...]:
    """All kernels of a step on one of `tp` GPUs; none where a layer's kernels are not known."""
    step = _Step(shape, gpu, weight_dtype, kv_dtype, tp)
    if gpu.bandwidth_bytes_per_s is None or kv_dtype not in KV_ELEMENT_BYTES:
        return ()
    found: list[Operator] = []
    for group in shape.groups:
        own = step.layers(group)
        if own is None:
            return ()
        found += own
    return (*found, step.matmul(shape.vocab_size / tp, shape.hidden_size, 1, head=True),
            Operator("step", 1.0, (float(shape.n_layers), float(shape.vocab_size))))  # fmt: skip


def evaluate(kind: str, traits: Array, batch: Array, context_len: Array) -> tuple[Array, Array]:
    """Seconds of one kernel each by the textbook, (n,), and coordinates, (n, d).

    traits: (n, traits of the kind); batch, context_len: (n,).
    """
    return KINDS[kind].evaluate(traits, batch, context_len)


@dataclass(frozen=True, slots=True)
class _Step:
    shape: ModelShape
    gpu: Gpu
    weight_dtype: str
    kv_dtype: str
    tp: int

    def layers(self, group: LayerGroup) -> list[Operator] | None:
        """Kernels of `group.count` layers; None for kinds of layers without."""
        if group.state is not None or group.cross is not None:
            return None
        found: list[Operator] = []
        match group.attention:
            case SoftmaxAttention():
                found += self._softmax(group.attention, group.count)
            case LatentAttention() if group.attention.q_lora_rank and not group.attention.indexer:
                found += self._latent(group.attention, group.attention.q_lora_rank, group.count)
            case None:
                pass
            case _:
                return None
        match group.mlp:
            case DenseMlp():
                found += self._mlp(group.mlp.intermediate, group.mlp.n_matrices, group.count)
            case MoeMlp():
                found += self._experts(group.mlp, group.count)
        if self.tp > 1:
            summed = (group.attention is not None) + (group.mlp is not None)
            link = self.gpu.link_bytes_per_s or _SLOW_LINK
            sizes = float(self.shape.hidden_size), float(self.tp), link
            found.append(Operator("reduce", summed * group.count, sizes))
        return found

    def _softmax(self, attention: SoftmaxAttention, count: int) -> list[Operator]:
        heads, width = max(1.0, attention.n_heads / self.tp), attention.head_dim
        kv_heads = kv_heads_per_gpu(attention.n_kv_heads, self.tp)
        hidden = self.shape.hidden_size
        traits = (
            heads, float(kv_heads), float(width), float(attention.window or 0),
            KV_ELEMENT_BYTES[self.kv_dtype], *self._rates("bf16"),
        )  # fmt: skip
        return [
            self.matmul((heads + 2 * kv_heads) * width, hidden, count),
            Operator("attention", count, traits),
            self.matmul(hidden, heads * width, count),
        ]

    def _latent(self, attention: LatentAttention, q_rank: int, count: int) -> list[Operator]:
        heads, hidden = max(1.0, attention.n_heads / self.tp), self.shape.hidden_size
        rank = attention.kv_lora_rank + attention.qk_rope_head_dim
        nope, value = attention.qk_nope_head_dim, attention.v_head_dim
        absorbed = heads * attention.kv_lora_rank * (nope + value)
        traits = (heads, float(rank), absorbed, KV_ELEMENT_BYTES[self.kv_dtype])
        return [
            self.matmul(q_rank + rank, hidden, count),
            self.matmul(heads * (nope + attention.qk_rope_head_dim), q_rank, count),
            Operator("latent", count, (*traits, *self._rates("bf16"))),
            self.matmul(hidden, heads * value, count),
        ]

    def _mlp(self, intermediate: float, n_matrices: int, count: int) -> list[Operator]:
        hidden, width = self.shape.hidden_size, intermediate / self.tp
        return [
            self.matmul((n_matrices - 1) * width, hidden, count),
            self.matmul(hidden, width, count),
        ]

    def _experts(self, mlp: MoeMlp, count: int) -> list[Operator]:
        width = mlp.latent_size or self.shape.hidden_size
        traits = (
            float(width), mlp.expert_intermediate / self.tp, float(mlp.n_experts),
            float(mlp.top_k), float(mlp.n_matrices), STORED_WEIGHT_BYTES[self.weight_dtype],
            *self._rates(self.weight_dtype), *self._told(self.weight_dtype),
        )  # fmt: skip
        found = [
            self.matmul(mlp.n_experts, self.shape.hidden_size, count, wide=True),
            Operator("experts", count, traits),
        ]
        for dense in (mlp.shared_intermediate, mlp.dense_intermediate):
            found += self._mlp(dense, mlp.n_matrices, count) if dense else []
        return found

    def matmul(
        self, n: float, k: float, count: int, *, wide: bool = False, head: bool = False
    ) -> Operator:
        """`count` matrices of n x k; `wide` ones and the head stay in 16 bits."""
        narrow = not (wide or head or self.weight_dtype == "mxfp4")
        dtype = self.weight_dtype if narrow else "bf16"
        traits = (n, k, STORED_WEIGHT_BYTES[dtype], float(head))
        return Operator("matmul", count, (*traits, *self._rates(dtype), *self._told(dtype)))

    def _rates(self, dtype: str) -> tuple[float, float]:
        return float(self.gpu.bandwidth_bytes_per_s or 1.0), self.gpu.matmul_flops_per_s(dtype)

    def _told(self, dtype: str) -> tuple[float, ...]:
        """Which dtype, as numbers; models with latent attention scale fp8 weights by blocks."""
        latent = any(isinstance(k, LatentAttention) for _, k in self.shape.attention_layers())
        known = dtype if dtype in _DTYPES else "bf16"
        return (*(float(known == name) for name in _DTYPES), float(latent and dtype == "fp8"))


def _matmul(traits: Array, batch: Array, context_len: Array) -> tuple[Array, Array]:
    n, k, element, head, width, peak, *told = traits.T
    n_bytes = n * k * element + 2 * batch * (n + k)
    seconds = _joined("matmul", n_bytes / width, 2 * batch * n * k / peak)
    return seconds, np.column_stack([np.log2(batch), np.log2(n), np.log2(k), head, *told])


def _attention(traits: Array, batch: Array, context_len: Array) -> tuple[Array, Array]:
    heads, kv_heads, dim, window, element, width, peak = traits.T
    seen = np.where(window > 0, np.minimum(context_len, window), context_len)
    n_bytes = batch * seen * 2 * kv_heads * dim * element
    seconds = _joined("attention", n_bytes / width, 4 * batch * seen * heads * dim / peak)
    return seconds, np.column_stack([
        np.log2(batch), np.log2(seen), np.log2(heads), np.log2(kv_heads), np.log2(dim),
        element < 2, window > 0,
    ])  # fmt: skip


def _latent(traits: Array, batch: Array, context_len: Array) -> tuple[Array, Array]:
    heads, rank, absorbed, element, width, peak = traits.T
    n_bytes = batch * context_len * rank * element + 2 * absorbed
    seconds = _joined("latent", n_bytes / width, 4 * batch * context_len * heads * rank / peak)
    return seconds, np.column_stack([
        np.log2(batch), np.log2(context_len), np.log2(heads), element < 2
    ])  # fmt: skip


def _experts(traits: Array, batch: Array, context_len: Array) -> tuple[Array, Array]:
    hidden, inner, n, top, matrices, element, width, peak, *told = traits.T
    touched = -n * np.expm1(batch * np.log1p(-np.minimum(top / n, 1 - 1e-15)))
    each = matrices * hidden * inner
    seconds = _joined("experts", touched * each * element / width, 2 * batch * top * each / peak)
    return seconds, np.column_stack([
        np.log2(batch), np.log2(hidden), np.log2(inner), np.log2(n), np.log2(top), *told
    ])  # fmt: skip


def _reduce(traits: Array, batch: Array, context_len: Array) -> tuple[Array, Array]:
    hidden, tp, link = traits.T
    n_bytes = 2 * batch * hidden
    seconds = _LAUNCH_S["reduce"] + 2 * n_bytes * (tp - 1) / tp / link
    return seconds, np.column_stack([np.log2(n_bytes), np.log2(tp)])


def _whole_step(traits: Array, batch: Array, context_len: Array) -> tuple[Array, Array]:
    """What is no kernel: launches, scheduling, sampling, bookkeeping per sequence."""
    layers, vocabulary = traits.T
    seconds = 5e-5 + 2e-6 * layers + batch * (1e-7 * layers + 1e-6)
    return seconds, np.column_stack([np.log2(batch), layers, np.log2(vocabulary)])


def _joined(kind: str, read_s: Array, multiply_s: Array) -> Array:
    read, multiply = read_s / _REACHED[kind][0], multiply_s / _REACHED[kind][1]
    cubes = read * read * read + multiply * multiply * multiply  # a power takes ten times as long
    return np.asarray(_LAUNCH_S[kind] + cubes ** (1 / 3))


_TOLD = {**dict.fromkeys(_DTYPES, 1.0), "blocks": 1.0}
KINDS = {
    "matmul": Kind(_matmul, {"batch": 0.4, "n": 0.35, "k": 0.35, "head": 0.5, **_TOLD}),
    "attention": Kind(_attention, {
        "batch": 0.3, "context": 0.3, "heads": 0.4, "kv_heads": 0.4, "head_dim": 0.7,
        "narrow cache": 1.0, "window": 1.0,
    }, grows=True),
    "latent": Kind(
        _latent, {"batch": 0.3, "context": 0.3, "heads": 0.4, "narrow cache": 1.0}, grows=True
    ),
    "experts": Kind(_experts, {
        "batch": 0.35, "hidden": 0.35, "width": 0.35, "experts": 0.35, "top_k": 0.35, **_TOLD
    }),
    "reduce": Kind(_reduce, {"bytes": 0.3, "tp": 0.6}),
    "step": Kind(_whole_step, {"batch": 0.2, "layers": 0.015, "vocabulary": 0.3}),
}  # fmt: skip
