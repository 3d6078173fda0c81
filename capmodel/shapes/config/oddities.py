"""Small parameters only one family has, so that counts come out to the last one."""

from dataclasses import replace

from capmodel.shapes.attention import Mamba2
from capmodel.shapes.config.fields import ConfigFields
from capmodel.shapes.model import LayerGroup, ModelShape, MoeMlp


def layer_extras(fields: ConfigFields, key: str, group: LayerGroup) -> LayerGroup:
    """The layer with what its family adds beyond mixer, MLP and plain norms."""
    hidden = fields.hidden
    match key:
        case "gemma4_text":
            other = 0
            norms = group.n_norms
            if isinstance(group.mlp, MoeMlp):  # norms around the experts, scales in the router
                norms += 3
                other += hidden + group.mlp.n_experts
            return replace(group, n_norms=norms, other_parameters=other)
        case "gemma3n_text":
            return replace(group, other_parameters=_gemma3n(fields))
        case "deepseek_v4":
            streams = fields.integer("hc_mult", default=4)
            weights = (2 + streams) * streams
            return replace(group, other_parameters=2 * (weights * (streams * hidden + 1) + 3))
        case "falcon_h1" if not fields.flag("mamba_rms_norm"):
            state = group.state
            inner = state.n_heads * state.head_dim if isinstance(state, Mamba2) else 0
            return replace(group, other_parameters=-inner)  # no gated norm
    return group


def model_extras(fields: ConfigFields, key: str, shape: ModelShape) -> ModelShape:
    """The model with what its family adds outside the layers."""
    hidden = shape.hidden_size
    match key:
        case "bloom":
            return replace(shape, other_parameters=2 * hidden)  # a norm after the embeddings
        case "olmo":
            return replace(shape, other_parameters=-hidden)  # norms without weights
        case "deepseek_v4":
            streams = fields.integer("hc_mult", default=4)
            return replace(shape, other_parameters=streams * (streams * hidden + 1) + 1)
        case "gemma3n_text" | "gemma4_text":
            narrow = fields.integer("hidden_size_per_layer_input", default=0, least=0)
            rows = fields.integer("vocab_size_per_layer_input", default=shape.vocab_size)
            other = 0
            if key == "gemma3n_text":
                inputs = fields.integer("altup_num_inputs", default=4)
                other = 2 * (inputs - 1) * hidden**2
            return replace(
                shape, per_layer_input=narrow, per_layer_vocab=rows if narrow else 0,
                other_parameters=other,
            )  # fmt: skip
    return shape


def _gemma3n(fields: ConfigFields) -> int:
    """AltUp's mixers and LAuReL's low-rank path."""
    hidden = fields.hidden
    inputs = fields.integer("altup_num_inputs", default=4)
    rank = fields.integer("laurel_rank", default=64)
    altup = inputs * inputs + inputs**3 + hidden * inputs + 2 * hidden
    return altup + 2 * hidden * rank
