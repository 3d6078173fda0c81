"""All matrices of a model, from its shape."""

from dataclasses import replace
from functools import lru_cache

from capmodel.shapes.model import LayerGroup, ModelShape
from capmodel.weights.attention import attention_matrices, cross_matrices
from capmodel.weights.matrix import Matrix
from capmodel.weights.mlps import mlp_matrices
from capmodel.weights.states import state_matrices


@lru_cache(maxsize=4096)
def matrices(shape: ModelShape) -> tuple[Matrix, ...]:
    """Every matrix of `shape`, layers first, then tables, MTP layers and encoders.

    Their `total`s sum to the published parameter count; see `Matrix` for how each field is read
    under tensor, layer, data and expert parallelism. Source: PHYSICS section 3.
    """
    hidden = shape.hidden_size
    found = [matrix for group in shape.groups for matrix in _layers(group, hidden)]
    found += _tables(shape)
    found += _mtp(shape)
    found += [
        Matrix("tower", tower.name, tower.parameters, 1, "tp", False) for tower in shape.towers
    ]
    if shape.stated_parameters is not None:
        found.append(_unlisted(shape, found))
    return tuple(found)


def _layers(group: LayerGroup, hidden: int) -> list[Matrix]:
    found: list[Matrix] = []
    if group.attention is not None:
        found += attention_matrices(group.attention, hidden, group.count)
    if group.state is not None:
        found += state_matrices(group.state, hidden, group.count)
    if group.cross is not None:
        found += cross_matrices(group.cross, hidden, group.count)
    if group.mlp is not None:
        found += mlp_matrices(group.mlp, hidden, group.count)
    norms = group.n_norms * hidden * (2 if group.norm_bias else 1) + group.other_parameters
    found.append(Matrix("norm", "norms", norms, group.count, "replicated", False))
    return [matrix for matrix in found if matrix.total]


def _tables(shape: ModelShape) -> list[Matrix]:
    table = shape.vocab_size * shape.hidden_size
    bias = any(group.norm_bias for group in shape.groups)
    layers, narrow = shape.n_layers, shape.per_layer_input
    found = [
        Matrix("norm", "norm", shape.hidden_size * (2 if bias else 1) + shape.other_parameters, 1,
               "replicated", False),
        Matrix("embedding", "embed_positions", shape.position_embeddings * shape.hidden_size, 1,
               "replicated", False),
        Matrix("embedding", "embed_tokens_per_layer", shape.per_layer_vocab * narrow * layers, 1,
               "vocab", False),
        Matrix("mlp", "per_layer_model_projection", narrow * layers * shape.hidden_size, 1,
               "replicated", False),
        Matrix("mlp", "per_layer_input", 2 * narrow * shape.hidden_size, layers,
               "replicated", True),
        Matrix("norm", "per_layer_norms", narrow + shape.hidden_size * layers if narrow else 0, 1,
               "replicated", False),
        Matrix("head", "lm_head", table, 1, "vocab", False),
        Matrix("head", "lm_head.bias", shape.head_bias * shape.vocab_size, 1, "vocab", False),
    ]  # fmt: skip
    if not shape.tied_embeddings:
        found.append(Matrix("embedding", "embed_tokens", table, 1, "vocab", False))
    return [matrix for matrix in found if matrix.total]


def _mtp(shape: ModelShape) -> list[Matrix]:
    modules = sum(group.count for group in shape.extra_groups)
    if not modules:
        return []
    hidden = shape.hidden_size
    found = [matrix for group in shape.extra_groups for matrix in _layers(group, hidden)]
    found.append(Matrix("mtp", "eh_proj", 2 * hidden * hidden, modules, "replicated", True))
    if shape.extra_embeddings:
        table = shape.vocab_size * hidden
        found.append(Matrix("mtp", "embeddings", table, shape.extra_embeddings, "vocab", False))
    return [replace(matrix, part="mtp") for matrix in found]


def _unlisted(shape: ModelShape, found: list[Matrix]) -> Matrix:
    """What a stated total has beyond the sum of the columns (below 0: what it lacks)."""
    stated = shape.stated_parameters or 0
    counted = sum(matrix.total for matrix in found)
    rest = stated - counted
    if not 0.5 < stated / counted < 2:
        raise ValueError(
            f"Got n_params={stated:,} for {shape.name}, but its shape columns hold "
            f"{counted:,} parameters; give the total (not the active) parameters, and the width "
            "of one expert as intermediate_size"
        )
    experts = max(found, key=lambda matrix: matrix.total if matrix.n_experts else 0)
    if experts.n_experts:
        return replace(experts, name="unlisted", elements=round(rest / experts.count))
    return Matrix("mlp", "unlisted", rest, 1, "tp", True)
