"""What each kind of layer keeps per request, as pieces that grow, stop growing or stay fixed.

Source of every figure: PHYSICS section 1 of the project's notes, checked in
`tests/kvcache/test_kv_totals.py` against worked numbers. [byte] are per GPU.
"""

from dataclasses import dataclass
from functools import lru_cache

from capmodel.dtypes import KV_ELEMENT_BYTES, PER_TOKEN_HEAD_DTYPES, kv_dtype_names
from capmodel.shapes.attention import (
    CompressedAttention,
    CrossAttention,
    GatedDeltaNet,
    KimiDelta,
    LatentAttention,
    Mamba1,
    Mamba2,
    ShortConv,
    SoftmaxAttention,
    SparseIndexer,
    StateKind,
)
from capmodel.shapes.model import LayerGroup, ModelShape


@dataclass(frozen=True, slots=True)
class CachePiece:
    """One kind of storage in `count` layers, per request and GPU.

    bytes_per_token: [byte] per cached token and layer while the piece grows.
    window: tokens after which it stops growing, None = never.
    chunked: the window is a chunk that starts anew (Llama-4), it does not slide.
    fixed_bytes: [byte] per request and layer, whatever its length.
    read_limit: tokens read per decode step when attention selects them, None = all kept.
    """

    name: str
    count: int
    bytes_per_token: float = 0.0
    window: int | None = None
    fixed_bytes: float = 0.0
    read_limit: int | None = None
    chunked: bool = False


def kv_heads_per_gpu(n_kv_heads: int, tp: int) -> int:
    """KV heads each GPU holds: split by tp, replicated, never below one."""
    return max(1, -(-n_kv_heads // tp))


@lru_cache(maxsize=4096)
def cache_pieces(shape: ModelShape, kv_dtype: str = "bf16", tp: int = 1) -> tuple[CachePiece, ...]:
    """All cache pieces of `shape` on one of `tp` GPUs.

    Raises ValueError for an unknown dtype, or one that the model's layers cannot be kept in.
    """
    if tp < 1:
        raise ValueError(f"Got tp={tp}, but expected at least 1 GPU")
    return tuple(piece for group in shape.groups for piece in _group_pieces(group, kv_dtype, tp))


def _group_pieces(group: LayerGroup, kv_dtype: str, tp: int) -> list[CachePiece]:
    pieces: list[CachePiece] = []
    match group.attention:
        case SoftmaxAttention():
            pieces += _softmax_pieces(group.attention, group.count, kv_dtype, tp)
        case LatentAttention():
            pieces += _latent_pieces(group.attention, group.count, kv_dtype)
        case CompressedAttention():
            pieces += _compressed_pieces(group.attention, group.count)
    if group.state is not None:
        pieces.append(CachePiece("state", group.count, fixed_bytes=state_bytes(group.state, tp)))
    if group.cross is not None:
        pieces.append(_cross_piece(group.cross, group.count, kv_dtype, tp))
    return pieces


def _softmax_pieces(
    attention: SoftmaxAttention, count: int, kv_dtype: str, tp: int
) -> list[CachePiece]:
    if not attention.owns_cache:
        return []
    key, value = kv_dtype_names(kv_dtype)
    heads = kv_heads_per_gpu(attention.n_kv_heads, tp)
    per_token = heads * (
        _head_bytes(attention.head_dim, key) + _head_bytes(attention.v_head_dim, value)
    )
    limits = [limit for limit in (attention.window, attention.chunk) if limit is not None]
    pieces = [
        CachePiece(
            "windowed" if limits else "full",
            count,
            per_token,
            window=min(limits) if limits else None,
            read_limit=attention.index_topk,
            chunked=attention.chunk is not None and attention.chunk == min(limits),
        )
    ]
    if attention.index_key_dim:
        pieces.append(CachePiece("index", count, attention.index_key_dim * KV_ELEMENT_BYTES[key]))
    return pieces


def _head_bytes(head_dim: int, dtype: str) -> float:
    """Bytes one head keeps of one token's key or value, its scale included."""
    if dtype == "fp8_ds_mla":
        raise ValueError(
            "Got KV dtype 'fp8_ds_mla', which is a layout of latent attention (MLA), but this "
            "model has key and value heads; use fp8"
        )
    scale = 4.0 if dtype in PER_TOKEN_HEAD_DTYPES else 0.0
    return head_dim * KV_ELEMENT_BYTES[dtype] + scale


def _latent_pieces(attention: LatentAttention, count: int, kv_dtype: str) -> list[CachePiece]:
    """The latent is one for all heads, so tp does not divide it."""
    dtype = kv_dtype_names(kv_dtype)[0]
    rank, rope = attention.kv_lora_rank, attention.qk_rope_head_dim
    if dtype == "fp8_ds_mla":
        # fp8 latent, one fp32 scale per 128 of it, rope key in 16 bits: 512 + 16 + 128 = 656.
        per_token = rank + 4 * rank / 128 + 2 * rope
    else:
        per_token = (rank + rope) * KV_ELEMENT_BYTES[dtype]
    indexer = attention.indexer
    limit = indexer.topk if indexer else None
    pieces = [CachePiece("latent", count, per_token, read_limit=limit)]
    if indexer is not None and not attention.shares_indexer:
        pieces.append(CachePiece("index", count, _index_bytes(indexer)))
    return pieces


def _index_bytes(indexer: SparseIndexer) -> float:
    """One fp8 key per token with one fp32 scale per 128 elements: 132 bytes at 128."""
    return indexer.head_dim + 4 * indexer.head_dim / 128


def _compressed_pieces(attention: CompressedAttention, count: int) -> list[CachePiece]:
    entry = 584.0  # 448 fp8 + 64 rope in 16 bits + scales, as DeepSeek-V4's engines store it
    pieces = [CachePiece("windowed", count, entry, window=attention.window)]
    if attention.ratio:
        limit = attention.indexer.topk * attention.ratio if attention.indexer else None
        pieces.append(CachePiece("compressed", count, entry / attention.ratio, read_limit=limit))
        if attention.indexer is not None:
            per_token = _index_bytes(attention.indexer) / attention.ratio
            pieces.append(CachePiece("index", count, per_token))
    return pieces


def _cross_piece(cross: CrossAttention, count: int, kv_dtype: str, tp: int) -> CachePiece:
    key, value = kv_dtype_names(kv_dtype)
    heads = kv_heads_per_gpu(cross.n_kv_heads, tp)
    per_token = heads * (_head_bytes(cross.head_dim, key) + _head_bytes(cross.head_dim, value))
    return CachePiece("cross", count, fixed_bytes=per_token * cross.source_len)


def state_bytes(state: StateKind, tp: int = 1, draft_tokens: int = 0) -> float:
    """Bytes one state layer keeps per request and GPU; conv inputs are 16-bit."""
    return sum(state_parts(state, tp, draft_tokens))


def state_parts(state: StateKind, tp: int = 1, draft_tokens: int = 0) -> tuple[float, float]:
    """Bytes of the recurrent state and of the 16-bit convolution inputs, per request and GPU.

    draft_tokens: speculative tokens a step verifies; each lengthens the convolution's window.
    """
    match state:
        case Mamba2():
            d_inner = state.n_heads * state.head_dim
            ssm = d_inner * state.d_state * state.state_bytes
            # Groups are split by tp; where they do not divide, each GPU holds a copy of one.
            groups = state.n_groups if state.n_groups % tp == 0 else tp
            width, kernel = d_inner + 2 * groups * state.d_state, state.conv_kernel
        case Mamba1():
            ssm = state.d_inner * state.d_state * state.state_bytes
            width, kernel = state.d_inner, state.conv_kernel
        case GatedDeltaNet():
            ssm = state.v_heads * state.d_k * state.d_v * state.state_bytes
            width = 2 * state.k_heads * state.d_k + state.v_heads * state.d_v
            kernel = state.conv_kernel
        case KimiDelta():
            ssm = state.n_heads * state.head_dim**2 * state.state_bytes
            width, kernel = 3 * state.n_heads * state.head_dim, state.conv_kernel
        case ShortConv():
            ssm = 0
            width, kernel = state.width, state.kernel
    return ssm / tp, width * (kernel - 1 + draft_tokens) * 2 / tp
