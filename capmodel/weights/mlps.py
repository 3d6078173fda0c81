"""Matrices of dense and mixture-of-experts feed-forward layers, per layer."""

from dataclasses import replace

from capmodel.shapes.model import DenseMlp, MlpKind, MoeMlp
from capmodel.weights.matrix import Matrix


def mlp_matrices(mlp: MlpKind, hidden: int, count: int) -> list[Matrix]:
    """The matrices of `count` layers; an expert's two or three matrices are one entry."""
    match mlp:
        case DenseMlp():
            found = _dense(mlp, hidden)
        case MoeMlp():
            found = _moe(mlp, hidden)
    return [
        replace(matrix, count=count * max(1, matrix.n_experts))
        for matrix in found
        if matrix.elements
    ]


def _dense(mlp: DenseMlp, hidden: int) -> list[Matrix]:
    wide = mlp.n_matrices - 1  # matrices that end in the wide dimension: up, and gate
    return [
        Matrix("mlp", "mlp.gate_up_proj", wide * hidden * mlp.intermediate, 1, "tp", True),
        Matrix("mlp", "mlp.down_proj", mlp.intermediate * hidden, 1, "tp", True),
        Matrix("mlp", "mlp.vectors", mlp.bias * (wide * mlp.intermediate + hidden), 1,
               "replicated", False),
    ]  # fmt: skip


def _moe(mlp: MoeMlp, hidden: int) -> list[Matrix]:
    width = mlp.latent_size or hidden
    experts = {"n_experts": mlp.n_experts, "top_k": mlp.top_k}
    bias = mlp.expert_bias * ((mlp.n_matrices - 1) * mlp.expert_intermediate + width)
    router = mlp.n_experts * (hidden + mlp.router_bias)
    return [
        Matrix("experts", "mlp.experts", mlp.n_matrices * width * mlp.expert_intermediate, 1,
               "expert", True, **experts),
        Matrix("experts", "mlp.experts.vectors", bias, 1, "expert", False, **experts),
        Matrix("router", "mlp.gate", router, 1, "replicated", False),
        Matrix("shared", "mlp.shared_experts",
               mlp.n_matrices * hidden * mlp.shared_intermediate, 1, "tp", True),
        Matrix("shared", "mlp.shared_expert_gate", mlp.shared_gate * hidden, 1,
               "replicated", False),
        Matrix("shared", "mlp.latent_proj", 2 * hidden * (mlp.latent_size or 0), 1,
               "replicated", True),
        Matrix("mlp", "mlp.dense", 3 * hidden * mlp.dense_intermediate, 1, "tp", True),
    ]  # fmt: skip
