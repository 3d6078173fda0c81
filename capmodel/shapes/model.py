"""What a model is made of: groups of identical layers plus embeddings.

Everything downstream (cache, weights, traffic) sums over `ModelShape.groups`;
nothing downstream reads a config file or knows an architecture by name.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from capmodel.shapes.attention import (
    AttentionKind,
    CrossAttention,
    SoftmaxAttention,
    StateKind,
)


@dataclass(frozen=True, slots=True)
class DenseMlp:
    """Feed-forward of `n_matrices` matrices (3 gated, 2 plain) of `hidden x intermediate`."""

    intermediate: int
    n_matrices: int = 3
    bias: bool = False


@dataclass(frozen=True, slots=True)
class MoeMlp:
    """Mixture of experts: `top_k` of `n_experts` per token, plus shared experts for every token.

    latent_size: experts work in a narrower space reached by two projections (Nemotron-3 Super).
    shared_intermediate: summed width of the shared experts, 0 = none.
    dense_intermediate: width of a dense MLP that runs beside the experts (Gemma-4), 0 = none.
    """

    n_experts: int
    top_k: int
    expert_intermediate: int
    shared_intermediate: int = 0
    n_matrices: int = 3
    latent_size: int | None = None
    dense_intermediate: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False


MlpKind = DenseMlp | MoeMlp


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """`count` identical layers. A part that is None does not exist in them (no-op blocks).

    n_norms: norms of `hidden_size` per layer, with a bias each if `norm_bias`.
    other_parameters: per layer, outside the parts above (hyper-connections, layer scalars).
    """

    count: int
    attention: AttentionKind | None
    mlp: MlpKind | None
    state: StateKind | None = None
    cross: CrossAttention | None = None
    n_norms: int = 2
    norm_bias: bool = False
    other_parameters: int = 0


UNREADABLE = ""  # dtype of a checkpoint whose storage its config does not tell


@dataclass(frozen=True, slots=True)
class CheckpointQuantization:
    """How a checkpoint stores its weights, from `quantization_config`.

    dtype: dtype of the quantised matrices. kept: glob patterns of modules left in 16 bits.
    group_size: elements per scale, None = per tensor or per channel.
    zero_points: one more number per group (asymmetric int4).
    expert_dtype: set where experts are stored in another dtype than the rest.
    kept_in_layers: (pattern, layers) where only so many layers keep a module in 16 bits.
    """

    method: str
    dtype: str
    group_size: int | None = None
    zero_points: bool = False
    kept: tuple[str, ...] = ()
    expert_dtype: str | None = None
    kept_in_layers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Tower:
    """An encoder beside the decoder (vision, audio, Whisper's): stored, not read while decoding."""

    name: str
    parameters: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder as the sum of its layer groups.

    Groups are unordered: identical layers are counted together wherever they stand.
    `extra_groups` are layers outside the main stack (MTP or draft heads): their weights
    are stored, their cache exists only where an engine runs them. Each has a projection of
    `2 * hidden x hidden` that joins its two inputs; `extra_embeddings` counts the tables of
    `vocab x hidden` a checkpoint stores again for them (DeepSeek-V3: 2).
    position_embeddings: rows of a learned position table, 0 = none.
    per_layer_input, per_layer_vocab: width and rows of gemma's per-layer embeddings, 0 = none.
    other_parameters: outside every part above; below 0 where a part is over-counted.
    stated_parameters: a published total that overrides the sum of the matrices (the difference
    goes to the MLPs or experts); set by `shape_from_columns` only.
    """

    name: str
    hidden_size: int
    vocab_size: int
    groups: tuple[LayerGroup, ...]
    tied_embeddings: bool = False
    max_context: int | None = None
    architecture: str = ""
    source: str = ""
    quantization: CheckpointQuantization | None = None
    extra_groups: tuple[LayerGroup, ...] = ()
    extra_embeddings: int = 0
    position_embeddings: int = 0
    head_bias: bool = False
    per_layer_input: int = 0
    per_layer_vocab: int = 0
    towers: tuple[Tower, ...] = ()
    other_parameters: int = 0
    stated_parameters: int | None = None
    aliases: tuple[str, ...] = field(default=(), compare=False)
    notes: str = field(default="", compare=False)

    def __hash__(self) -> int:
        """Cheap, so that a shape can key a cache; equality still compares every field."""
        return hash((self.name, self.hidden_size, self.vocab_size))

    def alike(self, other: "ModelShape") -> bool:
        """Whether both have the same layers, whatever they are called and where they come from."""
        mine = self.hidden_size, self.vocab_size, self.groups
        return mine == (other.hidden_size, other.vocab_size, other.groups)

    @property
    def n_layers(self) -> int:
        """Layers of the main stack."""
        return sum(group.count for group in self.groups)

    def attention_layers(self) -> Iterator[tuple[int, AttentionKind]]:
        """Yield (count, attention) of each group that attends to its past."""
        for group in self.groups:
            if group.attention is not None:
                yield group.count, group.attention

    def with_attention(self, kind: str, n_kv_heads: int | None = None) -> "ModelShape":
        """The same model with other KV heads: `"mha"`, `"mqa"` or `"gqa"` (with `n_kv_heads`).

        Raises ValueError for another kind, for heads that do not divide, and for layers
        that are not softmax attention.
        """
        groups = tuple(
            replace(group, attention=_with_kv_heads(group.attention, kind, n_kv_heads, self.name))
            if group.attention is not None
            else group
            for group in self.groups
        )
        return replace(self, groups=groups, name=f"{self.name} as {kind}")


def _with_kv_heads(
    attention: AttentionKind, kind: str, n_kv_heads: int | None, name: str
) -> SoftmaxAttention:
    if not isinstance(attention, SoftmaxAttention):
        raise ValueError(
            f"{name} has {type(attention).__name__} layers; with_attention changes the KV heads "
            "of softmax attention only"
        )
    if kind == "mha":
        heads = attention.n_heads
    elif kind == "mqa":
        heads = 1
    elif kind == "gqa" and n_kv_heads is not None:
        heads = n_kv_heads
    else:
        raise ValueError(
            f"Got attention kind {kind!r}, but expected 'mha', 'mqa' or 'gqa' with n_kv_heads"
        )
    if heads < 1 or attention.n_heads % heads:
        raise ValueError(
            f"Got n_kv_heads={heads}, but expected a divisor of the {attention.n_heads} heads "
            f"of {name}"
        )
    return replace(attention, n_kv_heads=heads)
