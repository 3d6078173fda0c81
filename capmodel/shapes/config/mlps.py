"""The feed-forward of one layer: dense or experts, and how wide."""

from typing import Any

from capmodel.shapes.config.families import Family
from capmodel.shapes.config.fields import ConfigFields
from capmodel.shapes.model import DenseMlp, MlpKind, MoeMlp

_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts",
            "num_moe_experts")  # fmt: skip
_TOP_K = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts",
          "moe_top_k", "moe_topk", "moe_k", "num_selected_experts")  # fmt: skip
_EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size")
_DENSE_WIDTH = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size",
                "dense_intermediate_size", "decoder_ffn_dim", "intermediate_dim")  # fmt: skip


def mlps(fields: ConfigFields, name: str, family: Family) -> list[MlpKind | None]:
    """The feed-forward of each layer. Raises ValueError for missing or contradictory fields."""
    n_layers = fields.n_layers
    experts = fields.optional(*_EXPERTS, least=0) or 0
    if name == "gemma4_text" and not fields.flag("enable_moe_block"):
        experts = 0
    sparse = _sparse_layers(fields, n_layers, name) if experts > 1 else [False] * n_layers
    if not any(sparse):
        return [_dense(fields, name, family, layer, n_layers) for layer in range(n_layers)]
    moe = moe_mlp(fields, name, family)
    return [
        moe if sparse[layer] else _dense(fields, name, family, layer, n_layers)
        for layer in range(n_layers)
    ]


def moe_mlp(fields: ConfigFields, name: str, family: Family) -> MoeMlp:
    """Experts as the config's fields give them, under every spelling they have."""
    experts = fields.integer(*_EXPERTS)
    top_k = fields.integer(*_TOP_K)
    if top_k > experts:
        raise ValueError(
            f"Got {top_k} experts per token of {experts} in a config of {fields.label}; they "
            "contradict each other"
        )
    width = fields.optional(*_EXPERT_WIDTH) or fields.integer("intermediate_size")
    return MoeMlp(
        n_experts=experts,
        top_k=top_k,
        expert_intermediate=width,
        shared_intermediate=_shared_width(fields, name, width),
        n_matrices=family.n_matrices,
        latent_size=fields.optional("moe_latent_size", "routed_expert_hidden_size"),
        dense_intermediate=fields.integer("intermediate_size") if name == "gemma4_text" else 0,
        shared_gate=family.shared_gate,
        router_bias=family.router_bias,
        expert_bias=family.expert_bias,
    )


def dense_mlp(fields: ConfigFields, family: Family, intermediate: int) -> DenseMlp:
    """A dense feed-forward of a known width."""
    bias = fields.flag("mlp_bias", "use_bias") if family.mlp_bias is None else family.mlp_bias
    return DenseMlp(intermediate, family.n_matrices, bias)


def _dense(fields: ConfigFields, name: str, family: Family, layer: int, n_layers: int) -> DenseMlp:
    per_layer = fields.table.get("intermediate_size")
    if isinstance(per_layer, list):
        if len(per_layer) != n_layers:
            raise ValueError(
                f"Got intermediate_size with {len(per_layer)} items in a config of "
                f"{fields.label}, but num_hidden_layers={n_layers}"
            )
        width = ConfigFields({"intermediate_size": per_layer[layer]}, fields.label)
        return dense_mlp(fields, family, width.integer("intermediate_size"))
    return dense_mlp(fields, family, _dense_width(fields, name, layer, n_layers))


def _dense_width(fields: ConfigFields, name: str, layer: int, n_layers: int) -> int:
    match name:
        case "llama4_text":
            return fields.integer("intermediate_size_mlp", "intermediate_size")
        case "minimax_m3_vl_text":
            return fields.integer("dense_intermediate_size", "intermediate_size")
        case "gpt2" | "gptj" | "gpt_bigcode" | "bloom" | "falcon":
            return fields.integer("n_inner", "ffn_hidden_size", default=4 * fields.hidden)
        case "granitemoehybrid" if fields.has("shared_intermediate_size"):
            return fields.integer("shared_intermediate_size")
        case "lfm2":
            return _lfm2_width(fields)
    width = fields.integer(*_DENSE_WIDTH)
    shared = fields.integer("num_kv_shared_layers", default=0, least=0)
    doubled = fields.flag("use_double_wide_mlp") and layer >= n_layers - shared > 0
    return 2 * width if doubled else width


def _lfm2_width(fields: ConfigFields) -> int:
    """LFM2 takes two thirds of the written width, rounded up to a multiple."""
    width = fields.integer("block_ff_dim", "intermediate_size")
    if not fields.flag("block_auto_adjust_ff_dim", default=True):
        return width
    width = int(fields.number("block_ffn_dim_multiplier", default=1.0) * int(2 * width / 3))
    multiple = fields.integer("block_multiple_of", default=256)
    return multiple * -(-width // multiple)


def _shared_width(fields: ConfigFields, name: str, width: int) -> int:
    """Summed width of the shared experts."""
    if name == "llama4_text":
        return width
    total = fields.optional(
        "shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim",
        "share_expert_dims", least=0,
    )  # fmt: skip
    count = fields.optional(
        "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert",
        least=0,
    )  # fmt: skip
    each = fields.optional("moe_shared_expert_intermediate_size", least=0)
    if each is not None:
        return each * (1 if count is None else count)
    if total is not None:
        return total * (count if count is not None and count > 1 else 1)
    return width * (count or 0)


def _sparse_layers(fields: ConfigFields, n_layers: int, name: str) -> list[bool]:
    """Which layers hold experts rather than a dense MLP."""
    layers = range(n_layers)
    listed = fields.items("mlp_layer_types")
    if listed is not None:
        _enough(listed, n_layers, "mlp_layer_types", fields)
        return ["dense" not in str(kind) for kind in listed[:n_layers]]
    frequency = fields.table.get("moe_layer_freq")
    if isinstance(frequency, list):
        _enough(frequency, n_layers, "moe_layer_freq", fields)
        return [bool(mark) for mark in frequency[:n_layers]]
    chosen = _chosen(fields)
    if chosen is not None:
        return [layer in chosen for layer in layers]
    if fields.has("expert_layer_period"):
        period = fields.integer("expert_layer_period")
        offset = fields.integer("expert_layer_offset", default=0, least=0)
        return [layer % period == offset for layer in layers]
    if name == "llama4_text":
        step = fields.integer("interleave_moe_layer_step", default=1)
        return [(layer + 1) % step == 0 for layer in layers]
    if fields.has("moe_layer_interval"):  # ERNIE-4.5
        every = fields.integer("moe_layer_interval")
        first = fields.integer("moe_layer_start_index", default=0, least=0)
        last = fields.optional("moe_layer_end_index", least=-1)
        end = n_layers - 1 if last is None or last < 0 else last
        return [(layer + 1) % every == 0 and first <= layer <= end for layer in layers]
    first_dense = fields.integer("first_k_dense_replace", "num_dense_layers", default=0, least=0)
    every = fields.integer("moe_layer_freq", "decoder_sparse_step", default=1)
    dense_only = fields.items("mlp_only_layers") or []
    if fields.has("decoder_sparse_step"):
        return [layer not in dense_only and (layer + 1) % every == 0 for layer in layers]
    return [layer >= first_dense and layer % every == 0 for layer in layers]


def _enough(listed: list[Any], n_layers: int, name: str, fields: ConfigFields) -> None:
    """A list may go on with its MTP layers, but not stop before the last layer."""
    if len(listed) < n_layers:
        raise ValueError(
            f"Got {name} with {len(listed)} items in a config of {fields.label}, but "
            f"num_hidden_layers={n_layers}; they contradict each other"
        )


def _chosen(fields: ConfigFields) -> set[int] | None:
    """Layers with experts, where a config numbers them."""
    chosen = fields.table.get("moe_layers_enum") or fields.table.get("moe_layers")
    if isinstance(chosen, str):
        chosen = [part for part in chosen.split(",") if part.strip()]
    if not isinstance(chosen, list | tuple):
        return None
    try:
        return {int(part) for part in chosen}
    except (TypeError, ValueError):
        raise ValueError(
            f"Got moe_layers_enum={str(chosen)[:40]} in a config of {fields.label}, but expected "
            "layer numbers"
        ) from None
