"""What stands beside the decoder's layers: MTP modules and encoders."""

from dataclasses import replace

from capmodel.shapes.config.families import Family
from capmodel.shapes.config.fields import ConfigFields
from capmodel.shapes.model import LayerGroup, Tower


def mtp_groups(
    fields: ConfigFields, name: str, family: Family, layers: list[LayerGroup]
) -> tuple[LayerGroup, ...]:
    """MTP modules a checkpoint stores, each a copy of the stack's last attending layer.

    MiniMax-M2's config counts modules that its checkpoint does not hold; they are left out.
    """
    if name == "minimax_m2":
        return ()
    count = fields.integer(
        "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", default=0, least=0
    )
    if not count:
        return ()
    attending = [layer for layer in layers if layer.attention is not None]
    if not attending:
        return ()
    module = attending[-1]
    if name == "nemotron_h":  # one attention block and one expert block
        experts = [layer for layer in layers if layer.mlp is not None]
        module = replace(module, mlp=experts[-1].mlp if experts else None, n_norms=2)
    return (replace(module, count=count, n_norms=module.n_norms + family.mtp_norms),)


def towers(outer: ConfigFields) -> tuple[Tower, ...]:
    """Vision encoders, where the config describes them. Audio encoders are not counted."""
    vision = outer.sub("vision_config")
    if vision is None:
        return ()
    layers = vision.optional("num_hidden_layers", "depth", "layers", "vt_num_hidden_layers")
    hidden = vision.optional("hidden_size", "width", "embed_dim", "vt_hidden_size")
    if layers is None or hidden is None:
        return ()
    text = outer.sub("text_config") or outer
    width = text.optional("hidden_size", "d_model") or hidden
    parameters = layers * _vision_layer(vision, hidden) + _patches(vision, hidden)
    return (Tower("vision", parameters + _merger(vision, hidden, width)),)


def _vision_layer(vision: ConfigFields, hidden: int) -> int:
    """A ViT layer: four projections, two MLP matrices (three in gemma-4), biases and norms."""
    wide = vision.optional("intermediate_size", "vt_intermediate_size")
    if wide is None:
        wide = int(hidden * vision.number("mlp_ratio", default=4.0))
    model_type = vision.text("model_type")
    if model_type.startswith("gemma4"):
        heads = vision.integer("num_attention_heads")
        dim = vision.integer("head_dim", default=hidden // heads)
        return 4 * hidden * heads * dim + 3 * hidden * wide + 4 * hidden + 2 * dim
    return 4 * hidden**2 + 2 * hidden * wide + 4 * hidden + hidden + wide + 4 * hidden


def _patches(vision: ConfigFields, hidden: int) -> int:
    patch = vision.integer("patch_size", default=16)
    channels = vision.integer("in_channels", "num_channels", "in_chans", default=3)
    time = vision.integer("temporal_patch_size", default=1)
    rows = vision.integer("num_position_embeddings", default=0, least=0)
    table = 2 * vision.integer("position_embedding_size", default=0, least=0)
    return hidden * channels * time * patch**2 + hidden + (rows + table) * hidden


def _merger(vision: ConfigFields, hidden: int, width: int) -> int:
    """The projection into the decoder: two matrices over merged patches, or one."""
    if vision.text("model_type").startswith("gemma4"):
        return hidden * width
    merged = hidden * vision.integer("spatial_merge_size", default=1) ** 2
    out = vision.integer("out_hidden_size", default=width)
    one = merged * merged + merged + merged * out + out
    deep = vision.items("deepstack_visual_indexes") or []
    return one * (1 + len(deep)) + 2 * hidden + len(deep) * 2 * merged
