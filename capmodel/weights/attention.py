"""Matrices of the attention kinds, per layer. `hidden` is the model's width."""

from dataclasses import replace

from capmodel.shapes.attention import (
    AttentionKind,
    CompressedAttention,
    CrossAttention,
    LatentAttention,
    SoftmaxAttention,
    SparseIndexer,
)
from capmodel.weights.matrix import Matrix


def attention_matrices(attention: AttentionKind, hidden: int, count: int) -> list[Matrix]:
    """The projections of `count` layers, their norms and biases gathered as vectors."""
    match attention:
        case SoftmaxAttention():
            found = _softmax(attention, hidden)
        case LatentAttention():
            found = _latent(attention, hidden)
        case CompressedAttention():
            found = _compressed(attention, hidden)
    return [replace(matrix, count=count) for matrix in found if matrix.elements]


def cross_matrices(cross: CrossAttention, hidden: int, count: int) -> list[Matrix]:
    """Attention to an encoder; K and V are made once per request, so only q and o are read."""
    width = cross.n_heads * cross.head_dim
    kv_width = cross.n_kv_heads * cross.head_dim
    vectors = width + kv_width + hidden if cross.bias else 0  # Whisper's k_proj has no bias
    found = [
        _matrix("encoder_attn.q_proj", hidden * width),
        _kv("encoder_attn.k_proj", hidden * kv_width, cross.n_kv_heads, part="tower"),
        _kv("encoder_attn.v_proj", hidden * kv_width, cross.n_kv_heads, part="tower"),
        _matrix("encoder_attn.out_proj", width * hidden),
        _vectors("encoder_attn.bias", vectors),
    ]
    return [replace(matrix, count=count) for matrix in found if matrix.elements]


def _softmax(attention: SoftmaxAttention, hidden: int) -> list[Matrix]:
    heads, kv_heads = attention.n_heads, attention.n_kv_heads
    key, value = attention.head_dim, attention.v_head_dim
    own_kv = attention.owns_cache
    q_width = heads * key * (2 if attention.output_gate else 1)
    vectors = 0
    if attention.qkv_bias:
        vectors += q_width + kv_heads * (key + value)
    if attention.out_bias:
        vectors += hidden
    if attention.qk_norm_full:
        vectors += (heads + kv_heads) * key
    elif attention.qk_norm:
        vectors += key + key * own_kv
    if attention.sinks:
        vectors += heads
    return [
        _matrix("self_attn.q_proj", hidden * q_width),
        _kv("self_attn.k_proj", own_kv * hidden * kv_heads * key, kv_heads),
        _kv("self_attn.v_proj", own_kv * (not attention.k_eq_v) * hidden * kv_heads * value,
            kv_heads),
        _matrix("self_attn.o_proj", heads * value * hidden),
        _matrix("self_attn.g_proj", attention.head_gate * hidden * heads),
        _matrix("self_attn.index_proj", _index_elements(attention, hidden), part="indexer",
                split="replicated"),
        _vectors("self_attn.vectors", vectors),
    ]  # fmt: skip


def _index_elements(attention: SoftmaxAttention, hidden: int) -> int:
    """Queries and the one key of MiniMax-M3's index, a head per KV head."""
    if not attention.index_key_dim:
        return 0
    return hidden * attention.index_key_dim * (attention.n_kv_heads + 1)


def _latent(attention: LatentAttention, hidden: int) -> list[Matrix]:
    heads, rank, rope = attention.n_heads, attention.kv_lora_rank, attention.qk_rope_head_dim
    query = heads * (attention.qk_nope_head_dim + rope)
    found = [
        _matrix("self_attn.kv_a_proj_with_mqa", hidden * (rank + rope), split="replicated"),
        _matrix("self_attn.kv_b_proj",
                rank * heads * (attention.qk_nope_head_dim + attention.v_head_dim)),
        _matrix("self_attn.o_proj", heads * attention.v_head_dim * hidden),
        _vectors("self_attn.vectors", rank + (attention.q_lora_rank or 0)),
    ]  # fmt: skip
    if attention.output_gate:
        found.append(_matrix("self_attn.g_proj", hidden * heads * attention.v_head_dim))
    if attention.q_lora_rank is None:
        found.append(_matrix("self_attn.q_proj", hidden * query))
    else:
        found += [
            _matrix("self_attn.q_a_proj", hidden * attention.q_lora_rank, split="replicated"),
            _matrix("self_attn.q_b_proj", attention.q_lora_rank * query),
        ]
    if attention.indexer is not None and not attention.shares_indexer:
        width = attention.q_lora_rank or hidden
        found += _indexer(attention.indexer, hidden, width)
    return found


def _indexer(indexer: SparseIndexer, hidden: int, query_width: int) -> list[Matrix]:
    return [
        _matrix("self_attn.indexer.wq_b", query_width * indexer.n_heads * indexer.head_dim,
                part="indexer", split="replicated"),
        _matrix("self_attn.indexer.wk", hidden * indexer.head_dim,
                part="indexer", split="replicated"),
        _vectors("self_attn.indexer.weights_proj", hidden * indexer.n_heads, part="indexer"),
        _vectors("self_attn.indexer.k_norm", 2 * indexer.head_dim, part="indexer"),
    ]  # fmt: skip


def _compressed(attention: CompressedAttention, hidden: int) -> list[Matrix]:
    """DeepSeek-V4: low-rank queries, one shared key-value head, grouped low-rank output."""
    heads, width = attention.n_heads, attention.head_dim
    found = [
        _matrix("self_attn.wq_a", hidden * attention.q_lora_rank, split="replicated"),
        _matrix("self_attn.wq_b", attention.q_lora_rank * heads * width),
        _matrix("self_attn.wkv", hidden * width, split="replicated"),
        _matrix("self_attn.wo_a", heads * width * attention.o_lora_rank),
        _matrix("self_attn.wo_b", attention.o_groups * attention.o_lora_rank * hidden),
        _vectors("self_attn.vectors", attention.q_lora_rank + width + heads),
    ]
    if attention.ratio:
        found += _compressor("self_attn.compressor", hidden, width, attention.ratio, "attention")
    if attention.indexer is not None:
        indexer = attention.indexer
        found += [
            _matrix("self_attn.indexer.wq_b",
                    attention.q_lora_rank * indexer.n_heads * indexer.head_dim,
                    part="indexer", split="replicated"),
            _vectors("self_attn.indexer.weights_proj", hidden * indexer.n_heads, part="indexer"),
            *_compressor("self_attn.indexer.compressor", hidden, indexer.head_dim,
                         attention.ratio, "indexer"),
        ]  # fmt: skip
    return found


def _compressor(name: str, hidden: int, width: int, ratio: int, part: str) -> list[Matrix]:
    """Two projections and a table of positions; ratio 4 overlaps its windows, so twice as wide."""
    wide = width * (2 if ratio == 4 else 1)
    return [
        _vectors(f"{name}.wkv_gate", 2 * hidden * wide, part=part),
        _vectors(f"{name}.vectors", ratio * wide + width, part=part),
    ]


def _matrix(name: str, elements: int, part: str = "attention", split: str = "tp") -> Matrix:
    return Matrix(part, name, elements, 1, split, quantised=True)


def _kv(name: str, elements: int, kv_heads: int, part: str = "attention") -> Matrix:
    return Matrix(part, name, elements, 1, "kv", quantised=True, kv_heads=kv_heads)


def _vectors(name: str, elements: int, part: str = "attention") -> Matrix:
    return Matrix(part, name, elements, 1, "replicated", quantised=False)
