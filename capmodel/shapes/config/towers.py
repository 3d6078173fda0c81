"""Vision encoders beside the decoder: a plain ViT, with what each family changes."""

from capmodel.shapes.config.fields import ConfigFields
from capmodel.shapes.model import Tower


def vision_towers(outer: ConfigFields) -> tuple[Tower, ...]:
    """The vision encoder and its projection, where the config describes one in numbers.

    Exact for Qwen3-VL and Qwen3.5, Kimi-K2.5, Llama-4, Step-3.7, Gemma-3 and Gemma-4; others are
    counted as a plain ViT with a two-matrix projection. Audio encoders are not counted.
    """
    vision = outer.sub("vision_config")
    if vision is None:
        return ()
    layers = vision.optional("num_hidden_layers", "depth", "layers", "vt_num_hidden_layers")
    hidden = vision.optional("hidden_size", "width", "embed_dim", "vt_hidden_size")
    if layers is None or hidden is None:
        return ()
    text = outer.sub("text_config") or outer
    width = text.optional("hidden_size", "d_model") or hidden
    kind = vision.text("model_type") or outer.text("model_type")
    if kind.startswith("gemma4"):
        parameters = _gemma4(vision, layers, hidden, width)
    elif outer.text("model_type") == "gemma3":
        parameters = layers * _layer(vision, hidden) + _gemma3(vision, hidden, width)
    elif kind.startswith("llama4"):
        parameters = layers * _layer(vision, hidden) + _llama4(vision, hidden, width)
    elif kind.startswith("step3"):
        parameters = layers * (_layer(vision, hidden) + 2 * hidden) + _step(vision, hidden, width)
    else:
        parameters = layers * _layer(vision, hidden) + _patches(vision, hidden)
        parameters += _merger(vision, hidden, width)
    return (Tower("vision", parameters),)


def _layer(vision: ConfigFields, hidden: int) -> int:
    """Four projections, two MLP matrices, two norms, biases everywhere."""
    wide = vision.optional("intermediate_size", "vt_intermediate_size")
    if wide is None or vision.has("mlp_ratio"):
        wide = int(hidden * vision.number("mlp_ratio", default=4.0))
    plain = 4 * hidden**2 + 2 * hidden * wide + 4 * hidden + hidden + wide + 4 * hidden
    if vision.text("model_type").startswith("qwen2_5"):  # gated MLP, norms without biases
        return plain + hidden * wide + wide - 2 * hidden
    return plain


def _patches(vision: ConfigFields, hidden: int) -> int:
    patch = vision.integer("patch_size", default=16)
    channels = vision.integer("in_channels", "num_channels", "in_chans", default=3)
    time = vision.integer("temporal_patch_size", default=1)
    rows = vision.integer("num_position_embeddings", default=0, least=0)
    if vision.text("model_type").startswith(("siglip", "clip")):
        rows = (vision.integer("image_size", default=224) // patch) ** 2
    for start in ("", "init_"):
        if vision.has(f"{start}pos_emb_height"):
            height = vision.integer(f"{start}pos_emb_height")
            rows = height * vision.integer(f"{start}pos_emb_width")
    return hidden * channels * time * patch**2 + hidden + rows * hidden


def _merger(vision: ConfigFields, hidden: int, width: int) -> int:
    """Two matrices over merged patches with a norm; Qwen3-VL has one more per tapped layer."""
    side = vision.integer("spatial_merge_size", default=1)
    kernel = vision.items("merge_kernel_size")
    merged = hidden * (int(kernel[0]) * int(kernel[1]) if kernel else side**2)
    out = vision.integer("out_hidden_size", default=width)
    one = merged * merged + merged + merged * out + out
    taps = len(vision.items("deepstack_visual_indexes") or [])
    final = 2 * hidden if kernel else 0  # MoonViT ends in a norm of its own
    return one * (1 + taps) + 2 * hidden + taps * 2 * merged + final


def _gemma3(vision: ConfigFields, hidden: int, width: int) -> int:
    """Patches, positions, a norm, SigLIP's pooling head unless left out, and the projection."""
    head = _layer(vision, hidden) - hidden if vision.flag("vision_use_head", default=True) else 0
    patch = vision.integer("patch_size", default=16)
    rows = (vision.integer("image_size", default=224) // patch) ** 2
    patches = hidden * 3 * patch**2 + hidden
    return patches + rows * hidden + 2 * hidden + head + hidden * width + hidden


def _gemma4(vision: ConfigFields, layers: int, hidden: int, width: int) -> int:
    heads = vision.integer("num_attention_heads")
    dim = vision.integer("head_dim", default=hidden // heads)
    wide = vision.integer("intermediate_size")
    layer = 4 * hidden * heads * dim + 3 * hidden * wide + 4 * hidden + 2 * dim
    patches = hidden * 3 * vision.integer("patch_size", default=16) ** 2
    rows = 2 * vision.integer("position_embedding_size", default=10240)
    standardize = 2 * hidden if vision.flag("standardize") else 0
    return layers * layer + patches + rows * hidden + hidden * width + standardize


def _llama4(vision: ConfigFields, hidden: int, width: int) -> int:
    """Patches, positions, norms, the pixel-shuffle adapter and the projection."""
    patch = vision.integer("patch_size", default=14)
    rows = (vision.integer("image_size", default=336) // patch) ** 2 + 1
    into = vision.integer("projector_input_dim", default=4096)
    out = vision.integer("projector_output_dim", default=4096)
    adapter = vision.integer("intermediate_size") * into + into * out
    projection = vision.integer("vision_output_dim", default=out) * width
    return hidden * 3 * patch**2 + (rows + 1) * hidden + 4 * hidden + adapter + projection


def _step(vision: ConfigFields, hidden: int, width: int) -> int:
    """Patches, positions, a norm, two halving convolutions and the projection."""
    patch = vision.integer("patch_size", default=14)
    rows = (vision.integer("image_size", default=728) // patch) ** 2
    halving = 9 * hidden * 2 * hidden + 2 * hidden + 9 * 2 * hidden * 4 * hidden + 4 * hidden
    return hidden * 3 * patch**2 + rows * hidden + 2 * hidden + halving + 4 * hidden * width
