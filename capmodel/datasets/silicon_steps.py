"""One decode step put together from measured kernel times.

Per layer: fused q, k, v; generation attention; output projection; gated MLP as two matrices, or
router and experts; an all-reduce after attention and after the MLP. Once per step: the LM head.
Everything without a measurement (norms, rotary embedding, sampling, the scheduler) is left out,
and so are its seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from capmodel.datasets.kernel_tables import BATCHES, CONTEXTS, KernelTables
from capmodel.dtypes import KV_ELEMENT_BYTES, STORED_WEIGHT_BYTES
from capmodel.kvcache import kv_heads_per_gpu
from capmodel.shapes import ModelShape
from capmodel.shapes.attention import LatentAttention, SoftmaxAttention
from capmodel.shapes.model import DenseMlp, LayerGroup, MoeMlp

GEMM_DTYPES = {
    "bf16": "bfloat16", "fp8": "fp8", "int8": "int8_wo", "int4": "int4_wo", "nvfp4": "nvfp4",
    "mxfp4": "bfloat16",  # gpt-oss keeps everything but its experts in 16 bits
}  # fmt: skip
_MOE_DTYPES = {**GEMM_DTYPES, "mxfp4": "w4a16_mxfp4"}
_KV_DTYPES = {"bf16": "bfloat16", "fp8": "fp8"}
_WIDEST_HEAD = 65_536  # largest measured n: wider LM heads are cut into equal column slices


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of kernel in a step. seconds, n_bytes: shape (BATCHES, CONTEXTS) or (BATCHES, 1).

    n_bytes is what the kernel must read; a time below n_bytes / bandwidth was measured with the
    operands in the GPU's L2 cache.
    """

    name: str
    seconds: np.ndarray
    n_bytes: np.ndarray


def step_parts(
    shape: ModelShape, tables: KernelTables, weight_dtype: str, kv_dtype: str, tp: int
) -> list[Part]:
    """The kernels of one decode step on one of `tp` GPUs, NaN where not measured.

    Raises ValueError for a layer kind without measured kernels.
    """
    step = _Step(shape, tables, weight_dtype, kv_dtype, tp)
    parts = [part for group in shape.groups for part in step.layer(group)]
    return [*parts, step.head()]


@dataclass(frozen=True, slots=True)
class _Step:
    shape: ModelShape
    tables: KernelTables
    weight_dtype: str
    kv_dtype: str
    tp: int

    def layer(self, group: LayerGroup) -> Iterator[Part]:
        """All parts of `group.count` layers, multiplied by that count."""
        match group.attention:
            case SoftmaxAttention():
                yield from self._softmax(group.attention, group.count)
            case LatentAttention():
                yield from self._latent(group.attention, group.count)
            case _:
                raise ValueError(f"{self.shape.name} has layers without measured kernels")
        yield self._all_reduce(group.count)
        match group.mlp:
            case DenseMlp():
                yield from self._mlp(group.mlp.intermediate, group.mlp.n_matrices, group.count)
            case MoeMlp():
                yield from self._experts(group.mlp, group.count)
        yield self._all_reduce(group.count)

    def head(self) -> Part:
        width = self.shape.vocab_size / self.tp
        slices = int(np.ceil(width / _WIDEST_HEAD))
        return self._gemm("head", width / slices, self.shape.hidden_size, slices, wide=True)

    def _softmax(self, attention: SoftmaxAttention, count: int) -> Iterator[Part]:
        heads = attention.n_heads / self.tp
        kv_heads = kv_heads_per_gpu(attention.n_kv_heads, self.tp)
        dim, hidden = attention.head_dim, self.shape.hidden_size
        yield self._gemm("gemm", (heads + 2 * kv_heads) * dim, hidden, count)
        key = (_KV_DTYPES[self.kv_dtype], dim, int(heads), kv_heads, attention.window or 0)
        seconds = self.tables.attention.get(key, _UNMEASURED)
        if heads != int(heads):
            seconds = _UNMEASURED
        seen = np.minimum(CONTEXTS, attention.window or CONTEXTS[-1])
        each = 2 * kv_heads * dim * KV_ELEMENT_BYTES[self.kv_dtype]
        yield Part("attention", count * seconds, count * each * np.outer(BATCHES, seen))
        yield self._gemm("gemm", hidden, heads * dim, count)

    def _latent(self, attention: LatentAttention, count: int) -> Iterator[Part]:
        """Absorbed latent attention; q_a and kv_a are one matrix and not split."""
        heads, hidden = attention.n_heads // self.tp, self.shape.hidden_size
        rank = attention.kv_lora_rank + attention.qk_rope_head_dim
        if attention.q_lora_rank is None:
            raise ValueError(f"{self.shape.name} projects queries in one matrix: not measured")
        query = heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)
        yield self._gemm("gemm", attention.q_lora_rank + rank, hidden, count)
        yield self._gemm("gemm", query, attention.q_lora_rank, count)
        bmm = self.tables.latent_bmm.get(heads, _UNMEASURED[:, 0])
        absorbed = (
            heads * attention.kv_lora_rank * (attention.qk_nope_head_dim + attention.v_head_dim)
        )
        yield Part("gemm", count * bmm[:, None], np.full((len(BATCHES), 1), 2 * count * absorbed))
        seconds = self.tables.latent.get((_KV_DTYPES[self.kv_dtype], heads), _UNMEASURED)
        each = count * rank * KV_ELEMENT_BYTES[self.kv_dtype]
        yield Part("attention", count * seconds, each * np.outer(BATCHES, CONTEXTS))
        yield self._gemm("gemm", hidden, heads * attention.v_head_dim, count)

    def _mlp(self, intermediate: float, n_matrices: int, count: int) -> Iterator[Part]:
        hidden, width = self.shape.hidden_size, intermediate / self.tp
        yield self._gemm("gemm", (n_matrices - 1) * width, hidden, count)
        yield self._gemm("gemm", hidden, width, count)

    def _experts(self, mlp: MoeMlp, count: int) -> Iterator[Part]:
        """Router in 16 bits (left out where narrower than measured), experts, shared experts."""
        hidden = self.shape.hidden_size
        if mlp.n_experts >= 32:
            yield self._gemm("gemm", mlp.n_experts, hidden, count, wide=True)
        dtypes = [_MOE_DTYPES[self.weight_dtype]]
        if self._in_blocks():
            dtypes = ["fp8_block"]
        key = (hidden, mlp.expert_intermediate, mlp.top_k, mlp.n_experts, self.tp)
        seconds = self.tables.moe.get((dtypes[0], *key), _UNMEASURED[:, 0])
        matrix = hidden * mlp.expert_intermediate * STORED_WEIGHT_BYTES[self.weight_dtype]
        least = mlp.top_k * mlp.n_matrices * matrix / self.tp
        yield Part("moe", count * seconds[:, None], np.full((len(BATCHES), 1), count * least))
        if mlp.shared_intermediate:
            yield from self._mlp(mlp.shared_intermediate, mlp.n_matrices, count)

    def _all_reduce(self, count: int) -> Part:
        seconds = self.tables.all_reduce_time(self.tp, BATCHES * float(self.shape.hidden_size))
        return Part("all_reduce", count * seconds[:, None], np.zeros((len(BATCHES), 1)))

    def _gemm(self, name: str, n: float, k: float, count: int, wide: bool = False) -> Part:
        """`count` matrices of n x k; `wide` ones stay in 16 bits whatever the weights are."""
        dtype = "bf16" if wide or self.weight_dtype == "mxfp4" else self.weight_dtype
        table = "fp8_block" if dtype == "fp8" and self._in_blocks() else GEMM_DTYPES[dtype]
        seconds = self.tables.gemm_time(table, n, k)[:, None]
        n_bytes = n * k * STORED_WEIGHT_BYTES[dtype]
        return Part(name, count * seconds, np.full((len(BATCHES), 1), count * n_bytes))

    def _in_blocks(self) -> bool:
        """Models with latent attention ship fp8 weights with scales per 128 x 128 block."""
        return self.weight_dtype == "fp8" and any(
            isinstance(kind, LatentAttention) for _, kind in self.shape.attention_layers()
        )


_UNMEASURED = np.full((len(BATCHES), len(CONTEXTS)), np.nan)
