"""Two ways to multiply and sum: BLAS, and one fixed order that no shape can change.

BLAS picks the order of its additions by matrix size, so a product over one row and the same
row inside a larger product differ in the last bits. `SEQUENTIAL` adds strictly left to right;
with it cached and uncached decoding agree bit for bit, and a difference means a real error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """matmul: [..., m, k] by [..., k, n]; total: sum over the last axis, kept as length 1."""

    name: str
    matmul: Callable[[Array, Array], Array]
    total: Callable[[Array], Array]


def _blas_matmul(a: Array, b: Array) -> Array:
    """One large product where NumPy would make a small one per row of the batch."""
    if b.ndim > 2 or a.ndim < 3:
        return np.asarray(np.matmul(a, b))
    return np.asarray((a.reshape(-1, a.shape[-1]) @ b).reshape(*a.shape[:-1], b.shape[-1]))


def _blas_total(x: Array) -> Array:
    return np.asarray(x.sum(-1, keepdims=True))


def _sequential_total(x: Array) -> Array:
    return np.add.accumulate(x, axis=-1)[..., -1:]


def _sequential_matmul(a: Array, b: Array) -> Array:
    products = a[..., :, None, :] * b.swapaxes(-1, -2)[..., None, :, :]
    return _sequential_total(products)[..., 0]


BLAS = Arithmetic("blas", _blas_matmul, _blas_total)
SEQUENTIAL = Arithmetic("sequential", _sequential_matmul, _sequential_total)


def softmax(
    scores: Array, visible: Array | None, sink_logits: Array | None, arithmetic: Arithmetic
) -> Array:
    """Softmax over the last axis of `scores`; hidden entries weigh exactly zero.

    visible: broadcasts to `scores`, None = everything. sink_logits: broadcasts to
    `scores[..., :1]`; a logit with no value behind it, which takes part of the mass (gpt-oss).
    """
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    if sink_logits is not None:
        top = np.maximum(top, sink_logits)
    weights = np.exp(scores - top)
    mass = arithmetic.total(weights)
    if sink_logits is not None:
        mass = mass + np.exp(sink_logits - top)
    return np.asarray(weights / mass)


def rms_norm(x: Array, weight: Array, eps: float, arithmetic: Arithmetic) -> Array:
    """x [..., width] over its root mean square, times `weight` [width]."""
    mean = arithmetic.total(x * x) / x.shape[-1]
    return np.asarray(x / np.sqrt(mean + eps) * weight)


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return np.asarray(x / (1 + np.exp(-x)))
