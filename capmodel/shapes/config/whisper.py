"""Whisper: a decoder that also attends to an encoder of fixed length."""

from capmodel.shapes.attention import CrossAttention, SoftmaxAttention
from capmodel.shapes.config.fields import ConfigFields
from capmodel.shapes.model import DenseMlp, LayerGroup, ModelShape, Tower


def whisper_shape(fields: ConfigFields, name: str, architecture: str) -> ModelShape:
    """The decoder's layers, and the encoder as a tower. Raises ValueError for missing fields."""
    width = fields.integer("d_model")
    heads = fields.integer("decoder_attention_heads")
    dim = width // heads
    source = fields.integer("max_source_positions", default=1500)
    layers = fields.integer("decoder_layers")
    wide = fields.integer("decoder_ffn_dim", default=4 * width)
    group = LayerGroup(
        layers,
        SoftmaxAttention(heads, heads, dim, dim, qkv_bias=True, out_bias=True),
        DenseMlp(wide, 2, bias=True),
        cross=CrossAttention(heads, heads, dim, source, bias=True),
        n_norms=3,
        norm_bias=True,
        other_parameters=-width,  # k_proj has no bias
    )
    context = fields.integer("max_target_positions", default=448)
    return ModelShape(
        name=name,
        hidden_size=width,
        vocab_size=fields.integer("vocab_size"),
        groups=(group,),
        tied_embeddings=fields.flag("tie_word_embeddings", default=True),
        max_context=context,
        architecture=architecture,
        position_embeddings=context,
        towers=(Tower("encoder", _encoder(fields, width, source)),),
    )


def _encoder(fields: ConfigFields, width: int, source: int) -> int:
    wide = fields.integer("encoder_ffn_dim", default=4 * width)
    layer = 4 * width**2 + 3 * width + 2 * width * wide + wide + width + 4 * width
    mel = fields.integer("num_mel_bins", default=80)
    convolutions = width * mel * 3 + width + width * width * 3 + width
    return fields.integer("encoder_layers") * layer + convolutions + source * width + 2 * width
