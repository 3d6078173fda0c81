"""Which kind of mixer each layer has."""

from typing import Any

from capmodel.shapes.config.families import Family
from capmodel.shapes.config.fields import ConfigFields

# What configs call the kinds: full, sliding, chunked, state, both (attention beside a state),
# none (no mixer) and the sparse kinds, which their readers tell apart.
_KINDS = {
    "full_attention": "full", "attention": "full", "full": "full", "*": "full",
    "indexed_attention": "full", "global": "full", "g": "full",
    "sliding_attention": "sliding", "swa": "sliding", "local": "sliding", "l": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "state", "mamba": "state", "mamba2": "state", "conv": "state",
    "m": "state", "kda": "state", "gated_deltanet": "state", "hybrid": "both",
    "minimax_m3_sparse": "indexed",
    "mlp": "none", "moe": "none", "-": "none", "e": "none",
}  # fmt: skip


def mixer_kinds(fields: ConfigFields, family: Family) -> list[str]:
    """One of full, sliding, chunked, indexed, state, both or none for each layer.

    Raises ValueError for a kind that is not known and a list of the wrong length.
    """
    listed = _listed_kinds(fields)
    if listed is not None:
        return listed
    n_layers = fields.n_layers
    if family.state:
        return _hybrid_kinds(fields, family, n_layers)
    return _windowed_kinds(fields, family, n_layers)


def block_pattern(fields: ConfigFields) -> list[str] | None:
    """Nemotron-H's blocks, one mixer, MLP or MoE each, in their own spelling."""
    pattern = fields.text("hybrid_override_pattern")
    if pattern:
        blocks = [letter for letter in pattern if letter != "|"]
    else:
        listed = fields.items("layers_block_type")
        if listed is None:
            return None
        blocks = [str(block) for block in listed]
    n_layers = fields.optional("num_hidden_layers")
    if n_layers is not None and n_layers != len(blocks):
        raise ValueError(
            f"Got num_hidden_layers={n_layers} and a pattern of {len(blocks)} blocks in a config "
            f"of {fields.label}; they contradict each other"
        )
    return blocks


def _listed_kinds(fields: ConfigFields) -> list[str] | None:
    """Kinds the config writes out, under any of their names."""
    blocks = block_pattern(fields)
    if blocks is not None:
        return [_kind(block, fields) for block in blocks]
    n_layers = fields.n_layers
    pattern = fields.items("hybrid_layer_pattern")  # MiMo-V2: 1 = windowed
    if pattern is not None:
        _of_length(pattern, n_layers, "hybrid_layer_pattern", fields)
        return ["sliding" if windowed else "full" for windowed in pattern]
    listed = fields.items("layer_types")
    if listed is not None:
        mtp = fields.integer("num_nextn_predict_layers", default=0, least=0)
        if len(listed) != n_layers + mtp:  # Step-3.5 lists its MTP layers too
            _of_length(listed, n_layers, "layer_types", fields)
        kinds = [_kind(kind, fields) for kind in listed[:n_layers]]
        if fields.table.get("use_sliding_window") is False:
            kinds = ["full" if kind == "sliding" else kind for kind in kinds]
        return kinds
    return None


def _hybrid_kinds(fields: ConfigFields, family: Family, n_layers: int) -> list[str]:
    linear = fields.sub("linear_attn_config")  # Kimi Linear counts its layers from 1
    if linear is not None and linear.has("full_attn_layers"):
        full = set(linear.items("full_attn_layers") or [])
        return ["full" if i + 1 in full else "state" for i in range(n_layers)]
    indices = fields.items("full_attn_idxs", "attn_layer_indices")
    if indices is not None:
        return ["full" if i in indices else "state" for i in range(n_layers)]
    if fields.has("attn_layer_period"):
        period = fields.integer("attn_layer_period")
        offset = fields.integer("attn_layer_offset", default=0, least=0)
        return ["full" if i % period == offset else "state" for i in range(n_layers)]
    if family.state == "gated_delta_net":
        interval = fields.integer("full_attention_interval", default=4)
        return ["state" if (i + 1) % interval else "full" for i in range(n_layers)]
    if fields.has("mamba_d_ssm"):  # Falcon-H1: both, side by side, in every layer
        return ["both"] * n_layers
    raise ValueError(
        f"Got a config of {fields.label} that does not say which layers attend and which keep a "
        "state; add `layer_types`"
    )


def _windowed_kinds(fields: ConfigFields, family: Family, n_layers: int) -> list[str]:
    freq = fields.sub("sparse_attention_config")
    if freq is not None and freq.has("sparse_attention_freq"):
        marks = freq.items("sparse_attention_freq", length=n_layers) or []
        return ["indexed" if mark else "full" for mark in marks]
    window = fields.optional("sliding_window", "sliding_window_size", least=0)
    if family.windows == "chunk":
        chunked = fields.items("no_rope_layers")  # 1 = rotary, and so chunked
        every = fields.integer("no_rope_layer_interval", default=family.global_every)
        marks = chunked if chunked else [(i + 1) % every for i in range(n_layers)]
        return ["chunked" if mark else "full" for mark in marks]
    if not window or fields.table.get("use_sliding_window") is False:
        return ["full"] * n_layers
    match family.windows:
        case "all":
            return ["sliding"] * n_layers
        case "qwen":
            if not fields.flag("use_sliding_window"):
                return ["full"] * n_layers
            first = fields.integer("max_window_layers", default=n_layers, least=0)
            return ["sliding" if i >= first else "full" for i in range(n_layers)]
        case "alternate":
            return ["full" if i % 2 else "sliding" for i in range(n_layers)]
        case "every":
            return _every(fields, family, n_layers)
    return ["full"] * n_layers


def _every(fields: ConfigFields, family: Family, n_layers: int) -> list[str]:
    pattern = fields.table.get("sliding_window_pattern")
    if isinstance(pattern, str):  # EXAONE-4: "LLLG"
        kinds = [_kind(letter, fields) for letter in pattern]
        return [kinds[i % len(kinds)] for i in range(n_layers)]
    every = fields.integer("sliding_window_pattern", "global_attn_every_n_layers",
                           default=family.global_every)  # fmt: skip
    kinds = ["sliding" if (i + 1) % every else "full" for i in range(n_layers)]
    return kinds


def _kind(name: Any, fields: ConfigFields) -> str:
    kind = _KINDS.get(str(name).lower())
    if kind is None:
        raise ValueError(
            f"Got a layer of kind {str(name)[:40]!r} in a config of {fields.label}, but expected "
            f"one of {', '.join(_KINDS)}"
        )
    return kind


def _of_length(listed: list[Any], n_layers: int, name: str, fields: ConfigFields) -> None:
    if len(listed) != n_layers:
        raise ValueError(
            f"Got {name} with {len(listed)} items in a config of {fields.label}, but "
            f"num_hidden_layers={n_layers}; they contradict each other"
        )
