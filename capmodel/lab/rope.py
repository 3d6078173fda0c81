"""Rotary position embedding: each pair of elements is turned by an angle that grows with position.

A score between a query at i and a key at j then depends on i - j alone (Su et al., 2021).
Pairs are (first half, second half), as Llama checkpoints store them.
"""

import numpy as np
from numpy.typing import DTypeLike

from capmodel.arguments import POSITIVE, number
from capmodel.lab.arithmetic import Array
from capmodel.lab.sizes import MOST_TOKENS, whole


def rope_angles(positions: Array, dim: int, base: float = 10_000.0) -> Array:
    """Angles [rad] of shape [*positions.shape, dim / 2]. ValueError: odd `dim`, base <= 0."""
    if whole("dim", dim, 2, MOST_TOKENS) % 2:
        raise ValueError(f"Got dim={dim}, but expected an even number of at least 2")
    frequencies = number("base", base, POSITIVE) ** (-np.arange(0, dim, 2) / dim)
    return np.asarray(np.asarray(positions)[..., None] * frequencies)


def rope_table(
    positions: Array, dim: int, base: float = 10_000.0, dtype: DTypeLike = "float64"
) -> tuple[Array, Array]:
    """Cosines and sines of the angles, each [*positions.shape, dim / 2], in `dtype`."""
    angles = rope_angles(positions, dim, base)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def rotate_by(x: Array, table: tuple[Array, Array]) -> Array:
    """x [..., tokens, dim] turned by a table of [tokens, dim / 2] (or what broadcasts to it)."""
    cos, sin = table
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rotate(x: Array, positions: Array, base: float = 10_000.0) -> Array:
    """x [..., tokens, dim] turned to `positions` [tokens] (or any shape that broadcasts)."""
    return rotate_by(x, rope_table(positions, x.shape[-1], base, x.dtype))
