"""Softmax attention of one layer: heads, widths, windows, biases."""

from dataclasses import replace

from capmodel.shapes.attention import SoftmaxAttention
from capmodel.shapes.config.families import Family
from capmodel.shapes.config.fields import ConfigFields

_BIAS = ("attention_bias", "qkv_bias", "use_qkv_bias", "use_bias", "bias")


def softmax_attention(
    fields: ConfigFields, name: str, family: Family, kind: str, layer: int, n_layers: int
) -> SoftmaxAttention:
    """The attention of layer `layer` of `kind` (full, sliding, chunked, indexed or both).

    Raises ValueError for missing or contradictory fields.
    """
    heads, kv_heads = _heads(fields, layer)
    width = head_dim(fields)
    attention = SoftmaxAttention(
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=width,
        v_head_dim=fields.integer("v_head_dim", default=width),
        qkv_bias=_bias(fields, family.qkv_bias),
        out_bias=_bias(fields, family.out_bias),
        qk_norm=_qk_norm(fields, family),
        qk_norm_full=family.qk_norm == "full",
        output_gate=family.output_gate and fields.flag("attn_output_gate", default=True),
        head_gate=family.head_gate,
        sinks=family.sinks,
    )
    if kind == "sliding":
        window = fields.integer("sliding_window", "sliding_window_size")
        attention = replace(attention, window=window)
    elif kind == "chunked":
        attention = replace(attention, chunk=fields.integer("attention_chunk_size"))
    elif kind == "indexed":
        attention = _indexed(fields, attention)
    attention = _of_family(fields, name, kind, layer, attention)
    shared = fields.integer("num_kv_shared_layers", default=0, least=0)
    if layer >= n_layers - shared > 0:
        attention = replace(attention, owns_cache=False)
    return _checked(attention, fields)


def head_dim(fields: ConfigFields) -> int:
    """Written out, or hidden size over heads, which must then divide."""
    given = fields.optional("head_dim", "attention_head_dim", "kv_channels")
    if given is not None:
        return given
    if fields.hidden % fields.heads:
        raise ValueError(
            f"Got hidden_size={fields.hidden} and {fields.heads} heads in a config of "
            f"{fields.label} without `head_dim`, but they do not divide; add `head_dim`"
        )
    return fields.hidden // fields.heads


def _heads(fields: ConfigFields, layer: int) -> tuple[int, int]:
    heads = fields.heads
    per_layer = fields.items("num_attention_heads_per_layer")
    if per_layer is not None and layer < len(per_layer):
        heads = ConfigFields({"heads": per_layer[layer]}, fields.label).integer("heads")
    kv_per_layer = fields.items("num_key_value_heads_per_layer")  # DeciLM
    if kv_per_layer is not None and layer < len(kv_per_layer):
        return heads, ConfigFields({"kv": kv_per_layer[layer]}, fields.label).integer("kv")
    if fields.has("multi_query") and fields.flag("multi_query"):
        return heads, 1
    return heads, fields.integer(
        "num_key_value_heads", "num_kv_heads", "n_kv_heads", "num_attention_groups",
        default=heads,
    )  # fmt: skip


def _bias(fields: ConfigFields, fixed: bool | None) -> bool:
    return fields.flag(*_BIAS) if fixed is None else fixed


def _qk_norm(fields: ConfigFields, family: Family) -> bool:
    if family.qk_norm == "flag":
        return fields.flag("use_qk_norm", "qk_layernorm")
    return bool(family.qk_norm)


def _indexed(fields: ConfigFields, attention: SoftmaxAttention) -> SoftmaxAttention:
    """MiniMax-M3: blocks of the cache are chosen by one index key per token."""
    sparse = fields.sub("sparse_attention_config") or fields
    block = sparse.integer("sparse_block_size", "index_block_size", default=128)
    blocks = sparse.integer("sparse_topk_blocks", "index_topk_blocks", default=16)
    local = sparse.integer("sparse_local_block", "index_local_blocks", default=1, least=0)
    return replace(
        attention,
        index_key_dim=sparse.integer("sparse_index_dim", "index_head_dim", default=128),
        index_topk=block * (blocks + local),
    )


def _of_family(
    fields: ConfigFields, name: str, kind: str, layer: int, attention: SoftmaxAttention
) -> SoftmaxAttention:
    """Layers of one family that differ from each other in more than their window."""
    match name:
        case "gemma4_text" if kind == "full":
            width = fields.integer("global_head_dim", default=512)
            same = fields.flag("attention_k_eq_v")
            kv_heads = fields.optional("num_global_key_value_heads") if same else None
            return replace(
                attention,
                head_dim=width,
                v_head_dim=width,
                n_kv_heads=kv_heads or attention.n_kv_heads,
                k_eq_v=same,
            )
        case "mimo_v2_flash" if kind == "sliding":
            width = fields.integer("swa_head_dim", default=attention.head_dim)
            return replace(
                attention,
                n_heads=fields.integer("swa_num_attention_heads", default=attention.n_heads),
                n_kv_heads=fields.integer("swa_num_key_value_heads", default=8),
                head_dim=width,
                v_head_dim=fields.integer("swa_v_head_dim", default=attention.v_head_dim),
                sinks=fields.flag("add_swa_attention_sink_bias", default=True),
            )
        case "mimo_v2_flash":
            return replace(attention, sinks=fields.flag("add_full_attention_sink_bias"))
        case "step3p5" if kind == "sliding":
            other = fields.sub("attention_other_setting") or fields
            return replace(
                attention,
                n_heads=other.integer("num_sliding_attention_heads", "num_attention_heads"),
                n_kv_heads=other.integer("num_attention_groups", "num_key_value_heads",
                                         default=attention.n_kv_heads),
            )  # fmt: skip
        case "laguna":
            per_head = fields.table.get("gating", True) in (True, "per-head")
            return replace(attention, head_gate=per_head, output_gate=not per_head)
    return attention


def _checked(attention: SoftmaxAttention, fields: ConfigFields) -> SoftmaxAttention:
    if attention.n_heads % attention.n_kv_heads:
        raise ValueError(
            f"Got num_attention_heads={attention.n_heads} and num_key_value_heads="
            f"{attention.n_kv_heads} in a config of {fields.label}; the second must divide the "
            "first"
        )
    return attention
