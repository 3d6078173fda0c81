"""The state layers of hybrid models."""

from dataclasses import replace

from capmodel.shapes.attention import (
    GatedDeltaNet,
    KimiDelta,
    Mamba1,
    Mamba2,
    ShortConv,
    StateKind,
)
from capmodel.shapes.config.families import Family
from capmodel.shapes.config.fields import ConfigFields

_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def state_layer(fields: ConfigFields, family: Family) -> StateKind:
    """The state mixer of a hybrid's layers. Raises ValueError for missing fields."""
    match family.state:
        case "gated_delta_net":
            return GatedDeltaNet(
                k_heads=fields.integer("linear_num_key_heads"),
                v_heads=fields.integer("linear_num_value_heads"),
                d_k=fields.integer("linear_key_head_dim"),
                d_v=fields.integer("linear_value_head_dim"),
                conv_kernel=fields.integer("linear_conv_kernel_dim", default=4),
                state_bytes=_state_bytes(fields),
            )
        case "mamba1":
            return Mamba1(
                d_inner=fields.integer("mamba_expand", default=2) * fields.hidden,
                d_state=fields.integer("mamba_d_state"),
                dt_rank=_dt_rank(fields),
                conv_kernel=fields.integer("mamba_d_conv", default=4),
                state_bytes=_state_bytes(fields),
            )
        case "kimi_delta":
            return replace(_kimi_delta(fields), full_rank_gate=family.output_gate)
        case "short_conv":
            return ShortConv(fields.hidden, fields.integer("conv_L_cache", default=3))
    return _mamba2(fields)


def _kimi_delta(fields: ConfigFields) -> KimiDelta:
    linear = fields.sub("linear_attn_config")
    if linear is None:
        return KimiDelta(
            n_heads=fields.integer("linear_num_heads"),
            head_dim=fields.integer("linear_head_dim"),
            conv_kernel=fields.integer("linear_conv_kernel_dim", default=4),
        )
    return KimiDelta(
        n_heads=linear.integer("num_heads"),
        head_dim=linear.integer("head_dim"),
        conv_kernel=linear.integer("short_conv_kernel_size", default=4),
    )


def _mamba2(fields: ConfigFields) -> Mamba2:
    heads = fields.integer("mamba_num_heads", "mamba_n_heads")
    given = fields.table.get("mamba_head_dim", fields.table.get("mamba_d_head"))
    inner = fields.optional("mamba_d_ssm") or fields.hidden * fields.integer(
        "mamba_expand", "expand", default=2
    )
    width = inner // heads if given in (None, "auto") else fields.integer(
        "mamba_head_dim", "mamba_d_head"
    )  # fmt: skip
    return Mamba2(
        n_heads=heads,
        head_dim=width,
        d_state=fields.integer("ssm_state_size", "mamba_d_state", "d_state"),
        n_groups=fields.integer("mamba_n_groups", "n_groups", default=1),
        conv_kernel=fields.integer("mamba_d_conv", "conv_kernel", default=4),
        state_bytes=_state_bytes(fields),
    )


def _dt_rank(fields: ConfigFields) -> int:
    if fields.table.get("mamba_dt_rank", "auto") == "auto":
        return -(-fields.hidden // 16)
    return fields.integer("mamba_dt_rank")


def _state_bytes(fields: ConfigFields) -> int:
    dtype = fields.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype", default="float32")
    return _STATE_BYTES.get(dtype.removeprefix("torch."), 4)
