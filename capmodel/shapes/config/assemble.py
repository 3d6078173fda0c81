"""From a Hugging Face config to a ModelShape."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from capmodel.shapes.attention import AttentionKind
from capmodel.shapes.config.attention import softmax_attention
from capmodel.shapes.config.blocks import block_layers
from capmodel.shapes.config.families import Family, family_of
from capmodel.shapes.config.fields import ConfigFields
from capmodel.shapes.config.latent import compressed_attention, latent_attention
from capmodel.shapes.config.layers import block_pattern, mixer_kinds
from capmodel.shapes.config.mlps import dense_mlp, mlps, moe_mlp
from capmodel.shapes.config.mtp import mtp_groups
from capmodel.shapes.config.oddities import layer_extras, model_extras
from capmodel.shapes.config.quantization import read_quantization
from capmodel.shapes.config.states import state_layer
from capmodel.shapes.config.towers import vision_towers
from capmodel.shapes.config.whisper import whisper_shape
from capmodel.shapes.model import LayerGroup, ModelShape
from capmodel.words import one_line

_NESTED = ("text_config", "language_config", "llm_config", "language_model_config")


def is_config(table: Mapping[str, Any]) -> bool:
    """Whether `table` is a Hugging Face config rather than an entry of our own."""
    return "groups" not in table and ("model_type" in table or "architectures" in table)


def config_name(table: Mapping[str, Any]) -> str:
    """The name a config gives itself, or an empty text."""
    name = table.get("_name_or_path")
    return one_line(name.rstrip("/")) if isinstance(name, str) else ""


def shape_from_config(config: Mapping[str, Any], name: str | None = None) -> ModelShape:
    """The shape a Hugging Face config describes; multimodal wrappers are looked into.

    name: what to call it, else the config's own name, else its architecture.

    Raises ValueError that names the field for missing, malformed or contradictory ones, and the
    architecture where it is not known.
    """
    outer = _outer(config)
    text = _text(outer)
    key, family = family_of(text, outer)
    label = _architecture(outer, text, key)
    fields = ConfigFields(text, label)
    called = name or config_name(config) or label
    if key == "whisper":
        return whisper_shape(fields, called, label)
    layers = _layers(fields, key, family)
    shape = ModelShape(
        name=called,
        hidden_size=fields.hidden,
        vocab_size=fields.integer("vocab_size"),
        groups=merged(layers),
        tied_embeddings=_tied(outer, text, family),
        max_context=fields.max_context,
        architecture=label,
        source="config.json",
        quantization=read_quantization(outer, text, fields.n_layers),
        extra_groups=mtp_groups(fields, key, family, layers),
        head_bias=family.head_bias or fields.flag("lm_head_bias"),
        position_embeddings=_positions(fields, family),
        towers=vision_towers(ConfigFields(outer, label)),
    )
    if shape.extra_groups:
        shape = replace(shape, extra_embeddings=family.mtp_tables)
    return model_extras(fields, key, shape)


def merged(layers: list[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Equal layers counted together, in the order they first appear."""
    counts: dict[LayerGroup, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    return tuple(replace(layer, count=count) for layer, count in counts.items())


def _layers(fields: ConfigFields, key: str, family: Family) -> list[LayerGroup]:
    if key == "nemotron_nas":
        return block_layers(fields)
    if key == "nemotron_h":
        return _single_blocks(fields, key, family)
    kinds = (
        ["full"] * fields.n_layers if family.mixer == "compressed" else mixer_kinds(fields, family)
    )
    state = state_layer(fields, family) if {"state", "both"} & set(kinds) else None
    found = []
    for layer, (kind, mlp) in enumerate(zip(kinds, mlps(fields, key, family), strict=True)):
        group = LayerGroup(
            1,
            _attention(fields, key, family, kind, layer),
            mlp,
            state=state if kind in ("state", "both") else None,
            n_norms=family.n_norms,
            norm_bias=family.norm_bias,
        )
        found.append(layer_extras(fields, key, group))
    return found


def _attention(
    fields: ConfigFields, key: str, family: Family, kind: str, layer: int
) -> AttentionKind | None:
    if kind in ("state", "none"):
        return None
    match family.mixer:
        case "latent":
            return latent_attention(fields, family, layer)
        case "compressed":
            return compressed_attention(fields, layer)
    return softmax_attention(fields, key, family, kind, layer, fields.n_layers)


def _single_blocks(fields: ConfigFields, key: str, family: Family) -> list[LayerGroup]:
    """Nemotron-H: each layer is one mixer, one MLP or one set of experts, with one norm."""
    blocks = block_pattern(fields)
    if blocks is None:
        raise ValueError(
            f"Got a config of {fields.label} without `hybrid_override_pattern`; add it"
        )
    kinds = mixer_kinds(fields, family)
    found = []
    for block, kind in zip(blocks, kinds, strict=True):
        group = LayerGroup(1, None, None, n_norms=family.n_norms, norm_bias=family.norm_bias)
        if kind == "state":
            group = replace(group, state=state_layer(fields, family))
        elif kind == "full":
            attention = softmax_attention(fields, key, family, kind, 0, 0)
            group = replace(group, attention=attention)
        elif block.lower() in ("e", "moe"):
            group = replace(group, mlp=moe_mlp(fields, key, family))
        else:
            width = fields.integer("intermediate_size")
            group = replace(group, mlp=dense_mlp(fields, family, width))
        found.append(group)
    return found


def _outer(config: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(config, Mapping):
        raise ValueError(
            f"Got a config of type {type(config).__name__}, but expected a table of fields"
        )
    if not is_config(config):
        raise ValueError(
            "Got JSON without `model_type` and `architectures`, so it is not a model's config; "
            "give the config.json of a checkpoint"
        )
    thinker = config.get("thinker_config")  # Qwen omni models
    return thinker if isinstance(thinker, Mapping) else config


def _text(outer: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in _NESTED:
        nested = outer.get(key)
        if isinstance(nested, Mapping):
            return nested
    return outer


def _architecture(outer: Mapping[str, Any], text: Mapping[str, Any], key: str) -> str:
    for table in (outer, text):
        listed = table.get("architectures")
        if isinstance(listed, list) and listed and isinstance(listed[0], str):
            return listed[0]
    return key


def _tied(outer: Mapping[str, Any], text: Mapping[str, Any], family: Family) -> bool:
    """Written at the top (which governs) or in the text part; else as the architecture has it."""
    for table in (outer, text):
        value = table.get("tie_word_embeddings", table.get("tie_embedding"))
        if isinstance(value, bool):
            return value
    return family.tied


def _positions(fields: ConfigFields, family: Family) -> int:
    if family.position_offset is None:
        return 0
    return fields.integer("max_position_embeddings", "n_positions") + family.position_offset
