"""A shape from the optional shape columns of the runs table."""

from functools import lru_cache

from capmodel.shapes.attention import SoftmaxAttention
from capmodel.shapes.model import DenseMlp, LayerGroup, ModelShape, MoeMlp


@lru_cache(maxsize=4096)
def shape_from_columns(
    n_layers: int,
    hidden_size: int,
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    intermediate_size: int,
    vocab_size: int,
    n_params: int | None = None,
    n_experts: int | None = None,
    n_experts_per_token: int | None = None,
    name: str = "from columns",
) -> ModelShape:
    """A decoder of identical softmax-attention layers with gated MLPs and an untied head.

    intermediate_size: width of the MLP, of one expert where `n_experts` is given.
    n_params: published parameters. They become `stated_parameters`, and every count and byte
    figure follows them; what the columns do not tell (plain MLPs, a tied head, shared experts)
    is thereby put right as a whole, on the MLPs or experts.

    Raises ValueError for numbers below 1, for KV heads that do not divide the heads, and for
    only one of the two expert columns.
    """
    names = ("n_layers", "hidden_size", "n_heads", "n_kv_heads", "head_dim",
             "intermediate_size", "vocab_size")  # fmt: skip
    values = (n_layers, hidden_size, n_heads, n_kv_heads, head_dim, intermediate_size, vocab_size)
    for key, value in zip(names, values, strict=True):
        if value != value or int(value) != value or value < 1:
            raise ValueError(f"Got {key}={value}, but expected a whole number of at least 1")
    if n_heads % n_kv_heads:
        raise ValueError(
            f"Got n_kv_heads={n_kv_heads}, but expected a divisor of n_heads={n_heads}"
        )
    attention = SoftmaxAttention(int(n_heads), int(n_kv_heads), int(head_dim), int(head_dim))
    mlp = _mlp(int(intermediate_size), n_experts, n_experts_per_token)
    if n_params is not None and n_params < 1:
        raise ValueError(f"Got n_params={n_params}, but expected the number of parameters")
    return ModelShape(
        name=name,
        hidden_size=int(hidden_size),
        vocab_size=int(vocab_size),
        groups=(LayerGroup(int(n_layers), attention, mlp),),
        stated_parameters=None if n_params is None else int(n_params),
        source="shape columns of a runs table",
    )


def _mlp(
    intermediate: int, n_experts: int | None, n_experts_per_token: int | None
) -> DenseMlp | MoeMlp:
    if not n_experts and not n_experts_per_token:
        return DenseMlp(intermediate)
    if not n_experts or not n_experts_per_token or n_experts_per_token > n_experts:
        raise ValueError(
            f"Got n_experts={n_experts} and n_experts_per_token={n_experts_per_token}, but "
            "expected both, the second no larger than the first"
        )
    return MoeMlp(int(n_experts), int(n_experts_per_token), intermediate)
