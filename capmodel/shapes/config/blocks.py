"""Models whose every block is described on its own (NVIDIA's Nemotron NAS family)."""

from typing import Any

from capmodel.shapes.attention import SoftmaxAttention
from capmodel.shapes.config.attention import head_dim
from capmodel.shapes.config.fields import ConfigFields
from capmodel.shapes.model import DenseMlp, LayerGroup


def block_layers(fields: ConfigFields) -> list[LayerGroup]:
    """One group per block; no-op attention or MLPs are absent, linear ones one matrix.

    Raises ValueError for blocks that are not tables or lack their sizes.
    """
    blocks = fields.items("block_configs", length=fields.n_layers) or []
    return [_block(fields, _table(block, fields, "block")) for block in blocks]


def _block(fields: ConfigFields, block: ConfigFields) -> LayerGroup:
    attention = block.sub("attention") or ConfigFields({}, block.label)
    ffn = block.sub("ffn") or ConfigFields({}, block.label)
    other = 0
    for part in (attention, ffn):
        if part.flag("replace_with_linear"):
            other += fields.hidden**2
    mixer = None
    if not attention.flag("no_op") and not attention.flag("replace_with_linear"):
        width = head_dim(fields)
        group = attention.integer("n_heads_in_group")
        if fields.heads % group:
            raise ValueError(
                f"Got n_heads_in_group={group} in a config of {fields.label}, but expected a "
                f"divisor of its {fields.heads} heads"
            )
        mixer = SoftmaxAttention(
            fields.heads, fields.heads // group, width, width,
            window=attention.optional("window_length"),
        )  # fmt: skip
    mlp = None
    if not ffn.flag("no_op") and not ffn.flag("replace_with_linear"):
        mlp = DenseMlp(_width(fields, ffn))
    norms = (not attention.flag("no_op")) + (not ffn.flag("no_op"))
    return LayerGroup(1, mixer, mlp, n_norms=norms, other_parameters=other)


def _width(fields: ConfigFields, ffn: ConfigFields) -> int:
    """Two thirds of a multiple of the hidden size, rounded up to 256 (`ffn_mult`)."""
    given = ffn.optional("intermediate_size")
    if given is not None:
        return given
    multiple = ffn.number("ffn_mult", default=0.0)
    if multiple <= 0:
        raise ValueError(f"Got a config of {ffn.label} without `ffn_mult`; add it")
    width = int(2 * multiple * fields.hidden / 3)
    return 256 * -(-width // 256)


def _table(value: Any, fields: ConfigFields, name: str) -> ConfigFields:
    found = ConfigFields({name: value}, fields.label).sub(name)
    if found is None:
        raise ValueError(f"Got a null {name} in a config of {fields.label}; expected a table")
    return found
