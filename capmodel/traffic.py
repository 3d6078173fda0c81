"""What one decode step must move and compute on each GPU, as constants of a deployment.

`step_traffic` turns a shape, its dtypes and its parallelism into a `StepTraffic`: numbers from
which the bytes and FLOP of any batch and context follow by a few multiplications. `features`
evaluates them over rows, `steptime` for one step. PHYSICS section 5 is the source.

Parallelism: tp splits matrices, KV heads and latent-free caches; dp splits the sequences of
attention; experts are spread over all tp x dp GPUs, whole (ep) or in slices. Layer split (pp)
does not appear: one token passes all stages in turn, so the stages' bytes add up.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from capmodel.kvcache import cache_pieces
from capmodel.shapes import ModelShape
from capmodel.shapes.attention import (
    AttentionKind,
    CompressedAttention,
    LatentAttention,
    SoftmaxAttention,
)
from capmodel.weights import Matrix, matrices, stored_bytes, stored_matrix_bytes

Array = npt.NDArray[np.float64]

UNBOUNDED = float("inf")


@dataclass(frozen=True, slots=True)
class Growth:
    """`slope * min(tokens, limit)`: something that grows with the cached tokens of a sequence."""

    slope: float
    limit: float = UNBOUNDED


@dataclass(frozen=True, slots=True)
class ExpertTraffic:
    """Experts of alike layers: `n_experts * bytes_each` is all of them on one GPU [byte]."""

    n_experts: int
    top_k: int
    bytes_each: float


@dataclass(frozen=True, slots=True)
class StepTraffic:
    """Constants of one deployment, per GPU. Sequences are those of one attention rank.

    dense_bytes: weights read once per step whatever the batch [byte].
    kv_read: cache read per sequence [byte], each piece with the tokens it stops growing at;
    kv_fixed_read: state read and written per sequence [byte].
    kv_stored, kv_fixed_stored: the same as resident memory [byte].
    flop_per_token: matmuls of one decoded token [FLOP]; attention_flop: its attention per
    cached token [FLOP].
    prefill_flop_per_token [FLOP]; prefill_attention_flop: per prompt token and token of prompt.
    all_reduces: per step; all_reduce_bytes: per token and step, both ways round the ring [byte].
    """

    layers: int
    dense_bytes: float
    experts: tuple[ExpertTraffic, ...]
    kv_read: tuple[Growth, ...]
    kv_fixed_read: float
    kv_stored: tuple[Growth, ...]
    kv_fixed_stored: float
    kv_bytes_per_token: float
    flop_per_token: float
    attention_flop: tuple[Growth, ...]
    prefill_flop_per_token: float
    prefill_attention_flop: float
    all_reduces: int
    all_reduce_bytes: float
    weight_stored_bytes: float
    quantised_layers: int

    def of_batch(self, batch: Array, context_len: Array) -> tuple[Array, Array, Array]:
        """Bytes read, FLOP and bytes resident of decode steps, each (n,); one attention rank."""
        read = self.dense_bytes + batch * (self.kv_fixed_read + grown(self.kv_read, context_len))
        for own in self.experts:
            untouched = np.expm1(batch * np.log1p(-min(own.top_k / own.n_experts, 1 - 1e-15)))
            read = read - own.n_experts * own.bytes_each * untouched
        flop = batch * (self.flop_per_token + grown(self.attention_flop, context_len))
        cache = self.kv_fixed_stored + grown(self.kv_stored, context_len)
        return read, flop, self.weight_stored_bytes + batch * cache


def grown(pieces: tuple[Growth, ...], tokens: Array) -> Array:
    """Sum of slope * min(tokens, limit), (n,)."""
    return sum((p.slope * np.minimum(tokens, p.limit) for p in pieces), np.zeros(np.shape(tokens)))


@lru_cache(maxsize=4096)
def step_traffic(
    shape: ModelShape, weight_dtype: str, kv_dtype: str, tp: int = 1, dp: int = 1
) -> StepTraffic:
    """Constants of `shape` on `tp * dp` GPUs. Raises ValueError for an unknown dtype."""
    pieces = cache_pieces(shape, kv_dtype, tp)
    read = [matrix for matrix in matrices(shape) if matrix.is_read]
    dense = [matrix for matrix in read if not matrix.n_experts]
    experts = [matrix for matrix in read if matrix.n_experts]
    head_flop = sum(2.0 * m.total * m.gpu_share(tp) for m in dense if m.part == "head")
    flop = sum(2.0 * m.total * m.gpu_share(tp) for m in dense)
    flop += sum(2.0 * m.active for m in experts) / (tp * dp)
    attention = list(shape.attention_layers())
    sublayers = sum(
        group.count * ((group.attention or group.state) is not None)
        + group.count * (group.mlp is not None)
        for group in shape.groups
    )
    return StepTraffic(
        layers=shape.n_layers,
        dense_bytes=sum(
            stored_matrix_bytes(m, shape, weight_dtype) * m.gpu_share(tp) for m in dense
        ),
        experts=_experts(experts, shape, weight_dtype, tp * dp),
        kv_read=_merge([
            Growth(piece.count * piece.bytes_per_token, _least(piece.window, piece.read_limit))
            for piece in pieces
        ]),
        kv_fixed_read=sum(
            piece.count * piece.fixed_bytes * (2 if piece.name == "state" else 1)
            for piece in pieces
        ),
        kv_stored=_merge([
            Growth(piece.count * piece.bytes_per_token, _least(piece.window)) for piece in pieces
        ]),
        kv_fixed_stored=sum(piece.count * piece.fixed_bytes for piece in pieces),
        kv_bytes_per_token=sum(piece.count * piece.bytes_per_token for piece in pieces),
        flop_per_token=flop,
        attention_flop=_merge([
            growth for count, kind in attention for growth in _decode_attention(kind, count, tp)
        ]),
        prefill_flop_per_token=flop - head_flop,
        prefill_attention_flop=sum(_prefill_attention(kind, n, tp) for n, kind in attention),
        all_reduces=sublayers if tp > 1 else 0,
        all_reduce_bytes=sublayers * shape.hidden_size * 2.0 * 2.0 * (tp - 1) / tp,
        weight_stored_bytes=_resident(shape, weight_dtype, tp, dp),
        quantised_layers=0 if weight_dtype in ("bf16", "fp16", "fp32") else shape.n_layers,
    )  # fmt: skip


def _experts(
    experts: list[Matrix], shape: ModelShape, weight_dtype: str, n_gpus: int
) -> tuple[ExpertTraffic, ...]:
    found: dict[tuple[int, int], float] = {}
    for matrix in experts:
        key = (matrix.n_experts, matrix.top_k)
        each = stored_matrix_bytes(matrix, shape, weight_dtype) / matrix.n_experts / n_gpus
        found[key] = found.get(key, 0.0) + each
    return tuple(ExpertTraffic(n, k, each) for (n, k), each in found.items())


def _resident(shape: ModelShape, weight_dtype: str, tp: int, dp: int) -> float:
    """Weights on one GPU; attention ranks hold the dense part whole and share the experts."""
    whole = stored_bytes(shape, weight_dtype).per_gpu(tp)
    experts = sum(
        stored_matrix_bytes(m, shape, weight_dtype) for m in matrices(shape) if m.n_experts
    )
    return whole - experts / tp + experts / (tp * dp)


def _decode_attention(kind: AttentionKind, count: int, tp: int) -> list[Growth]:
    heads = max(1.0, kind.n_heads / tp) * count
    match kind:
        case SoftmaxAttention():
            flop = 2.0 * heads * (kind.head_dim + kind.v_head_dim)
            return [Growth(flop, _least(kind.window, kind.chunk, kind.index_topk))]
        case LatentAttention():
            flop = 2.0 * heads * (2 * kind.kv_lora_rank + kind.qk_rope_head_dim)
            if kind.indexer is None:
                return [Growth(flop)]
            index = 2.0 * kind.indexer.n_heads * kind.indexer.head_dim * count
            index = 0.0 if kind.shares_indexer else index
            return [Growth(flop, kind.indexer.topk), Growth(index)]
        case CompressedAttention():
            flop = 4.0 * heads * kind.head_dim
            found = [Growth(flop, kind.window)]
            if kind.ratio:
                limit = kind.indexer.topk * kind.ratio if kind.indexer else UNBOUNDED
                found.append(Growth(flop / kind.ratio, limit))
            if kind.indexer is not None:
                index = 2.0 * kind.indexer.n_heads * kind.indexer.head_dim * count
                found.append(Growth(index / kind.ratio))
            return found


def _prefill_attention(kind: AttentionKind, count: int, tp: int) -> float:
    """FLOP per prompt token and token of prompt: half the square, since attention is causal."""
    heads = max(1.0, kind.n_heads / tp) * count
    match kind:
        case SoftmaxAttention():
            # A windowed layer's cost stops growing; its share of a long prompt is left out.
            return 0.0 if kind.window or kind.chunk else heads * (kind.head_dim + kind.v_head_dim)
        case LatentAttention():
            width = kind.qk_nope_head_dim + kind.qk_rope_head_dim + kind.v_head_dim
            return heads * width
        case CompressedAttention():
            return 2.0 * heads * kind.head_dim / kind.ratio if kind.ratio else 0.0


def _merge(pieces: list[Growth]) -> tuple[Growth, ...]:
    """One Growth per limit, the unbounded one first."""
    by_limit: dict[float, float] = {}
    for piece in pieces:
        if piece.slope:
            by_limit[piece.limit] = by_limit.get(piece.limit, 0.0) + piece.slope
    return tuple(Growth(by_limit[limit], limit) for limit in sorted(by_limit, reverse=True))


def _least(*limits: int | None) -> float:
    given = [float(limit) for limit in limits if limit is not None]
    return min(given) if given else UNBOUNDED
