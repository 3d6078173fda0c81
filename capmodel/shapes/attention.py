"""Kinds of token mixers a decoder layer can hold, as plain facts.

A new attention kind is one dataclass here, one reading rule in `shapes.config`,
and one branch each in `kvcache.layers` (what it stores), `weights` (its
matrices) and `features` (what a decode step reads of it). `tests/test_kinds.py`
fails while one of the four is missing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SoftmaxAttention:
    """MHA, GQA or MQA: `n_kv_heads` keys of `head_dim` and values of `v_head_dim` per token.

    window: a token sees only the last `window` tokens (sliding window), None = all of them.
    chunk: a token sees only its own chunk of that many tokens (Llama-4), None = no chunks.
    k_eq_v: V is taken from K's projection; saves `v_proj` weights, not cache (Gemma-4).
    owns_cache: False when the layer reads another layer's cache (cross-layer sharing).
    qk_norm: queries and keys are normalised per head; qk_norm_full: over their whole width.
    output_gate: the query projection is doubled by a gate as wide as the queries (Qwen3.5).
    head_gate: one gate per head from a `hidden x n_heads` matrix (Step-3.5).
    sinks: one learned logit per head takes part in the softmax (gpt-oss).
    index_key_dim: width of an extra index key kept per token (MiniMax-M3), 0 = none.
    index_topk: cached tokens read per step when an index selects them, None = all.
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None
    chunk: int | None = None
    k_eq_v: bool = False
    owns_cache: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    qk_norm_full: bool = False
    output_gate: bool = False
    head_gate: bool = False
    sinks: bool = False
    index_key_dim: int = 0
    index_topk: int | None = None


@dataclass(frozen=True, slots=True)
class SparseIndexer:
    """Lightning indexer of DeepSeek sparse attention: its own keys, one per token and layer."""

    n_heads: int
    head_dim: int
    topk: int


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """MLA: one latent of `kv_lora_rank + qk_rope_head_dim` elements per token for all heads.

    q_lora_rank: None when queries are projected in one matrix.
    indexer: set on layers with DeepSeek sparse attention (DSA).
    shares_indexer: the layer reads another layer's selection and keeps no index keys.
    output_gate: the output is gated by a `hidden x n_heads * v_head_dim` matrix (Kimi-K3).
    """

    n_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    indexer: SparseIndexer | None = None
    shares_indexer: bool = False
    output_gate: bool = False


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """DeepSeek-V4: one 584-byte entry per `ratio` tokens plus a `window`-token raw window.

    ratio 0 keeps only the window. `indexer` is set on layers that select entries (ratio 4).
    """

    n_heads: int
    head_dim: int
    rope_dim: int
    ratio: int
    window: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    indexer: SparseIndexer | None = None


@dataclass(frozen=True, slots=True)
class CrossAttention:
    """Encoder-decoder attention over `source_len` encoder tokens, fixed per request."""

    n_heads: int
    n_kv_heads: int
    head_dim: int
    source_len: int
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Mamba-2 state-space layer: `n_heads x head_dim x d_state` state, fixed per request."""

    n_heads: int
    head_dim: int
    d_state: int
    n_groups: int
    conv_kernel: int
    state_bytes: int = 4


@dataclass(frozen=True, slots=True)
class Mamba1:
    """Mamba-1 selective state space (Jamba): `d_inner x d_state` state, fixed per request."""

    d_inner: int
    d_state: int
    dt_rank: int
    conv_kernel: int
    state_bytes: int = 4


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """Gated delta net (Qwen3-Next, Qwen3.5): `v_heads x d_k x d_v` state, fixed per request."""

    k_heads: int
    v_heads: int
    d_k: int
    d_v: int
    conv_kernel: int
    state_bytes: int = 4


@dataclass(frozen=True, slots=True)
class KimiDelta:
    """Kimi delta attention: `n_heads x head_dim x head_dim` state and three short convolutions.

    full_rank_gate: the output gate is one `hidden x width` matrix (Kimi-K3), else low-rank.
    """

    n_heads: int
    head_dim: int
    conv_kernel: int
    state_bytes: int = 4
    full_rank_gate: bool = False


@dataclass(frozen=True, slots=True)
class ShortConv:
    """Gated short convolution (LFM2): the last `kernel - 1` inputs of `width` channels."""

    width: int
    kernel: int


AttentionKind = SoftmaxAttention | LatentAttention | CompressedAttention
StateKind = Mamba2 | Mamba1 | GatedDeltaNet | KimiDelta | ShortConv
