"""Weights of a toy decoder, as arrays [in, out] by name."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from capmodel.arguments import seeded
from capmodel.lab.arithmetic import Array
from capmodel.lab.config import ToyConfig
from capmodel.lab.sizes import MOST_WEIGHTS
from capmodel.shapes.attention import LatentAttention, SoftmaxAttention


@dataclass(frozen=True, slots=True)
class SoftmaxWeights:
    """q [hidden, heads*head_dim], k and v [hidden, kv_heads*dim], o [heads*v_dim, hidden].

    sink_logits [heads] where the layer has them.
    """

    q: Array
    k: Array
    v: Array
    o: Array
    sink_logits: Array | None = None


@dataclass(frozen=True, slots=True)
class LatentWeights:
    """q [hidden, heads*(nope+rope)], down [hidden, rank], rope_key [hidden, rope], norm [rank],
    up_key [heads, rank, nope], up_value [heads, rank, v_dim], o [heads*v_dim, hidden].
    """

    q: Array
    down: Array
    rope_key: Array
    norm: Array
    up_key: Array
    up_value: Array
    o: Array


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer: two norms [hidden], attention, and gate, up [hidden, mlp], down [mlp, hidden]."""

    attention_norm: Array
    attention: SoftmaxWeights | LatentWeights
    mlp_norm: Array
    gate: Array
    up: Array
    down: Array


@dataclass(frozen=True, slots=True)
class Parameters:
    """embedding [vocab, hidden], final_norm [hidden], head [hidden, vocab] or None = embedding."""

    embedding: Array
    layers: tuple[LayerWeights, ...]
    final_norm: Array
    head: Array | None = None

    def count(self) -> int:
        """Numbers in all arrays."""
        return _count(self)

    @property
    def output(self) -> Array:
        """The matrix [hidden, vocab] that makes logits."""
        return self.embedding.T if self.head is None else self.head

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type everything is computed in."""
        return self.embedding.dtype


def make_parameters(config: ToyConfig, seed: int = 0, dtype: str = "float64") -> Parameters:
    """Random weights of variance 1 / inputs. `dtype` is `"float64"` or `"float32"`.

    Raises ValueError for another dtype and for more than MOST_WEIGHTS weights.
    """
    if dtype not in ("float64", "float32"):
        raise ValueError(f"Got dtype {dtype!r}, but expected 'float64' or 'float32'")
    weights = _weights_of(config)
    if weights > MOST_WEIGHTS:
        raise ValueError(
            f"Got a decoder of {weights:.3g} weights, but expected at most {MOST_WEIGHTS:,}: "
            "the lab's decoders are small; make it narrower or give it fewer layers"
        )
    rng = np.random.default_rng(seeded(seed))
    hidden, mlp = config.hidden_size, config.intermediate

    def draw(*shape: int) -> Array:
        return np.asarray(rng.normal(size=shape) / np.sqrt(shape[-2]), dtype=dtype)

    def near_one(size: int) -> Array:
        return np.asarray(1 + 0.1 * rng.normal(size=size), dtype=dtype)

    layers = []
    for attention in config.layers:
        made: SoftmaxWeights | LatentWeights
        if isinstance(attention, LatentAttention):
            made = _latent(attention, hidden, draw, near_one)
        else:
            made = _softmax(attention, hidden, draw, rng, dtype)
        layers.append(
            LayerWeights(
                near_one(hidden),
                made,
                near_one(hidden),
                draw(hidden, mlp),
                draw(hidden, mlp),
                draw(mlp, hidden),
            )
        )
    embedding = np.asarray(rng.normal(size=(config.vocab_size, hidden)), dtype=dtype)
    final_norm = near_one(hidden)
    head = None if config.tied_embeddings else draw(hidden, config.vocab_size)
    return Parameters(embedding, tuple(layers), final_norm, head)


def _weights_of(config: ToyConfig) -> int:
    """Numbers in the matrices and vectors of `config`, nothing allocated."""
    hidden = int(config.hidden_size)
    total = hidden * int(config.vocab_size) * (1 if config.tied_embeddings else 2)
    for a in config.layers:
        if isinstance(a, LatentAttention):
            width = a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim
            per_hidden = int(a.n_heads) * width + a.kv_lora_rank + a.qk_rope_head_dim
            inner = int(a.n_heads) * a.kv_lora_rank * (a.qk_nope_head_dim + a.v_head_dim)
        else:
            width = a.head_dim + a.v_head_dim
            per_hidden, inner = (int(a.n_heads) + int(a.n_kv_heads)) * width, 0
        total += hidden * (per_hidden + 3 * int(config.intermediate)) + inner
    return total


def _softmax(
    a: SoftmaxAttention,
    hidden: int,
    draw: Callable[..., Array],
    rng: np.random.Generator,
    dtype: str,
) -> SoftmaxWeights:
    return SoftmaxWeights(
        draw(hidden, a.n_heads * a.head_dim),
        draw(hidden, a.n_kv_heads * a.head_dim),
        draw(hidden, a.n_kv_heads * a.v_head_dim),
        draw(a.n_heads * a.v_head_dim, hidden),
        np.asarray(rng.normal(size=a.n_heads), dtype=dtype) if a.sinks else None,
    )


def _latent(
    a: LatentAttention,
    hidden: int,
    draw: Callable[..., Array],
    near_one: Callable[[int], Array],
) -> LatentWeights:
    return LatentWeights(
        draw(hidden, a.n_heads * (a.qk_nope_head_dim + a.qk_rope_head_dim)),
        draw(hidden, a.kv_lora_rank),
        draw(hidden, a.qk_rope_head_dim),
        near_one(a.kv_lora_rank),
        draw(a.n_heads, a.kv_lora_rank, a.qk_nope_head_dim),
        draw(a.n_heads, a.kv_lora_rank, a.v_head_dim),
        draw(a.n_heads * a.v_head_dim, hidden),
    )


def _count(part: object) -> int:
    """Elements of the arrays in a tree of dataclasses and tuples."""
    if isinstance(part, np.ndarray):
        return part.size
    if isinstance(part, tuple):
        return sum(map(_count, part))
    if is_dataclass(part):
        return sum(_count(getattr(part, f.name)) for f in fields(part))
    return 0
