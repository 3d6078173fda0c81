"""Latent attention (MLA), its sparse indexer (DSA) and DeepSeek-V4's compressed attention."""

from capmodel.shapes.attention import CompressedAttention, LatentAttention, SparseIndexer
from capmodel.shapes.config.families import Family
from capmodel.shapes.config.fields import ConfigFields


def latent_attention(fields: ConfigFields, family: Family, layer: int) -> LatentAttention:
    """MLA of one layer; `head_dim` and `num_key_value_heads` mean nothing here and are not read.

    Raises ValueError for missing fields.
    """
    indexer = None
    shares = False
    if family.indexer:
        indexer = _indexer(fields)
        shares = _indexer_types(fields)[layer] == "shared"
    return LatentAttention(
        n_heads=fields.heads,
        q_lora_rank=fields.optional("q_lora_rank"),
        kv_lora_rank=fields.integer("kv_lora_rank"),
        qk_nope_head_dim=fields.integer("qk_nope_head_dim"),
        qk_rope_head_dim=fields.integer("qk_rope_head_dim"),
        v_head_dim=fields.integer("v_head_dim"),
        indexer=indexer,
        shares_indexer=shares,
        output_gate=family.output_gate,
    )


def compressed_attention(fields: ConfigFields, layer: int) -> CompressedAttention:
    """DeepSeek-V4's attention of one layer: ratio 0 (window only), 4 (indexed) or 128."""
    ratios = _ratios(fields)
    ratio = ratios[layer]
    width = fields.integer("head_dim")
    rope = fields.optional("qk_rope_head_dim")
    share = fields.number("partial_rotary_factor", default=64 / 512)
    return CompressedAttention(
        n_heads=fields.heads,
        head_dim=width,
        rope_dim=rope if rope is not None else int(width * share),
        ratio=ratio,
        window=fields.integer("sliding_window"),
        q_lora_rank=fields.integer("q_lora_rank"),
        o_lora_rank=fields.integer("o_lora_rank"),
        o_groups=fields.integer("o_groups"),
        indexer=_indexer(fields) if ratio == min((r for r in ratios if r), default=0) else None,
    )


def _indexer(fields: ConfigFields) -> SparseIndexer:
    return SparseIndexer(
        n_heads=fields.integer("index_n_heads"),
        head_dim=fields.integer("index_head_dim"),
        topk=fields.integer("index_topk"),
    )


def _indexer_types(fields: ConfigFields) -> list[str]:
    """ "full" or "shared" per layer; a shared layer reads another's choice (GLM-5.2)."""
    n_layers = fields.n_layers
    listed = fields.items("indexer_types", length=n_layers)
    if listed is not None:
        return [str(kind) for kind in listed]
    pattern = fields.table.get("index_topk_pattern")
    if pattern is not None:
        kinds = ["full" if str(mark).lower() in ("f", "full") else "shared" for mark in pattern]
        return (kinds * n_layers)[:n_layers]
    every = fields.integer("index_topk_freq", default=1)
    offset = fields.integer("index_skip_topk_offset", default=2, least=0)
    return ["shared" if max(i - offset + 1, 0) % every else "full" for i in range(n_layers)]


def _ratios(fields: ConfigFields) -> list[int]:
    """Tokens per compressed entry, layer by layer; a config may list its MTP layers as well."""
    n_layers = fields.n_layers
    rates = fields.table.get("compress_rates") or {}
    named = {
        "sliding_attention": 0,
        "compressed_sparse_attention": rates.get("compressed_sparse_attention", 4),
        "heavily_compressed_attention": rates.get("heavily_compressed_attention", 128),
    }
    ratios = fields.items("compress_ratios")
    if ratios is None:
        kinds = fields.items("layer_types", length=n_layers)
        if kinds is None:
            raise ValueError(
                f"Got a config of {fields.label} without `compress_ratios` or `layer_types`; "
                "add one of them"
            )
        unknown = [kind for kind in kinds if kind not in named]
        if unknown:
            raise ValueError(
                f"Got layer_types with {unknown[0]!r} in a config of {fields.label}, but expected "
                f"{', '.join(named)}"
            )
        ratios = [named[kind] for kind in kinds]
    if len(ratios) < n_layers or any(type(ratio) is not int or ratio < 0 for ratio in ratios):
        raise ValueError(
            f"Got compress_ratios of {len(ratios)} items in a config of {fields.label}, but "
            f"expected a whole number for each of {n_layers} layers"
        )
    return ratios
