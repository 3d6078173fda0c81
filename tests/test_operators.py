"""Kernels of a step: what they read and compute together is what the traffic of a step says."""

import dataclasses

import numpy as np
import pytest

from capmodel.gpus import load_gpu
from capmodel.operators import KINDS, evaluate, operators
from capmodel.shapes import load_shape
from capmodel.traffic import step_traffic

GPU = load_gpu("h100")


def _columns(kind: str, found) -> np.ndarray:
    return np.array([(*own.traits, own.count) for own in found if own.kind == kind]).T


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3-70b", "qwen3-32b", "gemma-7b"])
@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_matrices_hold_the_dense_bytes_and_flop(model: str, tp: int, dtype: str) -> None:
    """All matrix products together, against `step_traffic`; norms and biases are no kernels."""
    shape = load_shape(model)
    n, k, element, *_, count = _columns("matmul", operators(shape, GPU, dtype, "bf16", tp))
    traffic = step_traffic(shape, dtype, "bf16", tp)
    assert (n * k * element * count).sum() == pytest.approx(traffic.dense_bytes, rel=2e-3)
    assert (2 * n * k * count).sum() == pytest.approx(traffic.flop_per_token, rel=2e-3)


def test_attention_reads_the_cache() -> None:
    """Llama-3-70B at tp 8: 40,960 bytes per token and GPU (PHYSICS section 1), still so at 16."""
    for tp in (8, 16):
        found = operators(load_shape("llama-3-70b"), GPU, "bf16", "bf16", tp)
        _, kv_heads, dim, _, element, _, _, count = _columns("attention", found)
        assert (2 * kv_heads * dim * element * count).sum() == 40_960


def test_experts_touched() -> None:
    """Of 8 experts, 2 each, 3 tokens touch 4.625 (PHYSICS section 5): read time per expert."""
    found = operators(load_shape("mixtral-8x7b"), GPU, "bf16", "bf16", 1)
    own = next(one for one in found if one.kind == "experts")
    traits = np.array([own.traits] * 2)
    one, three = evaluate("experts", traits, np.array([1.0, 3.0]), np.full(2, 100.0))[0] - 1e-5
    assert three / one == pytest.approx(4.625 / 2, rel=1e-3)


def test_all_reduces_only_between_gpus() -> None:
    shape = load_shape("llama-3-70b")
    alone, four = (operators(shape, GPU, "bf16", "bf16", tp) for tp in (1, 4))
    assert not [own for own in alone if own.kind == "reduce"]
    assert sum(own.count for own in four if own.kind == "reduce") == 2 * shape.n_layers


def test_every_kind_says_where_a_kernel_stands() -> None:
    """As many coordinates as are named, finite, and seconds that rise with the batch."""
    seen = set()
    for model, tp in (("llama-3-70b", 4), ("mixtral-8x7b", 1), ("deepseek-v3", 8)):
        for own in operators(load_shape(model), GPU, "fp8", "fp8", tp):
            traits = np.array([own.traits] * 3)
            seconds, points = evaluate(own.kind, traits, np.array([1.0, 16, 256]), np.full(3, 4e3))
            assert points.shape == (3, len(KINDS[own.kind].coordinates))
            assert np.isfinite(points.astype(float)).all()
            assert seconds[0] > 0
            assert (np.diff(seconds) >= 0).all()
            seen.add(own.kind)
    assert seen == set(KINDS)


@pytest.mark.parametrize("model", ["jamba-1.5-mini", "kimi-k3", "deepseek-v3.2"])
def test_layers_without_known_kernels_have_none(model: str) -> None:
    assert operators(load_shape(model), GPU, "bf16", "bf16", 1) == ()


def test_a_gpu_without_a_bandwidth_has_none() -> None:
    bare = dataclasses.replace(GPU, bandwidth_bytes_per_s=None)
    assert operators(load_shape("llama-3.1-8b"), bare, "bf16", "bf16", 1) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kernel_depends_on_is_declared(kind: str) -> None:
    """Kernels are told apart by operator, batch and, where the kind grows, context alone."""
    shapes = [load_shape(name) for name in ("llama-3.1-8b", "mixtral-8x7b", "deepseek-v3")]
    known = [
        one for shape in shapes for one in operators(shape, load_gpu("h100-sxm"), "fp8", "fp8", 2)
    ]
    traits = np.array([one.traits for one in known if one.kind == kind])
    n = len(traits)

    def at(batch: float, context_len: float) -> tuple[np.ndarray, np.ndarray]:
        return evaluate(kind, traits, np.full(n, batch), np.full(n, context_len))

    (seconds, points), (longer, farther), (_, fuller) = at(4, 512), at(4, 9000), at(64, 512)
    assert (points[:, 0] < fuller[:, 0]).all()
    assert (points[:, 1:] == fuller[:, 1:]).all()
    assert (points[:, 0] == farther[:, 0]).all()
    assert KINDS[kind].grows == bool((points != farther).any())
    assert KINDS[kind].grows == bool((seconds != longer).any())
