"""MTP modules: layers outside the main stack that a checkpoint stores for speculation."""

from dataclasses import replace

from capmodel.shapes.config.families import Family
from capmodel.shapes.config.fields import ConfigFields
from capmodel.shapes.model import LayerGroup


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
    if name == "step3p5":  # its MTP modules are windowed and dense
        windowed = [layer for layer in attending if getattr(layer.attention, "window", None)]
        module = replace(windowed[-1] if windowed else module, mlp=layers[0].mlp)
    if name == "nemotron_h":  # one attention block and one expert block
        experts = [layer for layer in layers if layer.mlp is not None]
        module = replace(module, mlp=experts[-1].mlp if experts else None, n_norms=2)
    return (replace(module, count=count, n_norms=module.n_norms + family.mtp_norms),)
