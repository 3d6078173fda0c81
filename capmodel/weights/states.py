"""Matrices of the layers that keep a state instead of a cache, per layer."""

from dataclasses import replace

from capmodel.shapes.attention import (
    GatedDeltaNet,
    KimiDelta,
    Mamba1,
    Mamba2,
    ShortConv,
    StateKind,
)
from capmodel.weights.matrix import Matrix


def state_matrices(state: StateKind, hidden: int, count: int) -> list[Matrix]:
    """The projections of `count` layers; convolutions, decays and norms stay in 16 bits."""
    match state:
        case Mamba2():
            found = _mamba2(state, hidden)
        case Mamba1():
            found = _mamba1(state, hidden)
        case GatedDeltaNet():
            found = _gated_delta_net(state, hidden)
        case KimiDelta():
            found = _kimi_delta(state, hidden)
        case ShortConv():
            found = [
                _matrix("conv.in_proj", hidden * 3 * state.width),
                _matrix("conv.out_proj", state.width * hidden),
                _vectors("conv.conv", state.width * state.kernel),
            ]
    return [replace(matrix, count=count) for matrix in found]


def _mamba2(state: Mamba2, hidden: int) -> list[Matrix]:
    inner = state.n_heads * state.head_dim
    conv = inner + 2 * state.n_groups * state.d_state
    return [
        _matrix("mamba.in_proj", hidden * (inner + conv + state.n_heads)),
        _matrix("mamba.out_proj", inner * hidden),
        # kernel and bias of the convolution; A, D and dt_bias per head; the gated norm
        _vectors("mamba.vectors", conv * (state.conv_kernel + 1) + 3 * state.n_heads + inner),
    ]


def _mamba1(state: Mamba1, hidden: int) -> list[Matrix]:
    inner, rank, size = state.d_inner, state.dt_rank, state.d_state
    return [
        _matrix("mamba.in_proj", hidden * 2 * inner),
        _matrix("mamba.x_proj", inner * (rank + 2 * size)),
        _matrix("mamba.dt_proj", rank * inner),
        _matrix("mamba.out_proj", inner * hidden),
        # convolution with bias, dt bias, A per channel and state, D, norms of dt, B and C (Jamba)
        _vectors("mamba.vectors",
                 inner * (state.conv_kernel + 1) + inner + inner * size + inner + rank + 2 * size),
    ]  # fmt: skip


def _gated_delta_net(state: GatedDeltaNet, hidden: int) -> list[Matrix]:
    keys, values = state.k_heads * state.d_k, state.v_heads * state.d_v
    return [
        _matrix("linear_attn.in_proj_qkvz", hidden * (2 * keys + 2 * values)),
        _matrix("linear_attn.in_proj_ba", hidden * 2 * state.v_heads),
        _matrix("linear_attn.out_proj", values * hidden),
        # convolution without bias, A and dt_bias per head, the gated norm per head_dim
        _vectors("linear_attn.vectors",
                 (2 * keys + values) * state.conv_kernel + 2 * state.v_heads + state.d_v),
    ]  # fmt: skip


def _kimi_delta(state: KimiDelta, hidden: int) -> list[Matrix]:
    width = state.n_heads * state.head_dim
    return [
        _matrix("self_attn.qkv_proj", hidden * 3 * width),
        _matrix("self_attn.o_proj", width * hidden),
        _matrix("self_attn.f_proj", (hidden + width) * state.head_dim),
        _matrix("self_attn.g_proj",
                hidden * width if state.full_rank_gate else (hidden + width) * state.head_dim),
        _matrix("self_attn.b_proj", hidden * state.n_heads),
        # three convolutions, A per head, dt_bias per channel, the gated norm per head_dim
        _vectors("self_attn.vectors",
                 3 * width * state.conv_kernel + state.n_heads + width + state.head_dim),
    ]  # fmt: skip


def _matrix(name: str, elements: int) -> Matrix:
    return Matrix("state", name, elements, 1, "tp", quantised=True)


def _vectors(name: str, elements: int) -> Matrix:
    return Matrix("state", name, elements, 1, "tp", quantised=False)
