"""Every kind of layer has its branch in the cache, the weights, the traffic and our written form.

A new kind fails here until it has an example below and each of the four knows it.
"""

from typing import Any, get_args

import pytest

from capmodel.kvcache import cache_pieces
from capmodel.shapes import (
    AttentionKind,
    CompressedAttention,
    CrossAttention,
    DenseMlp,
    GatedDeltaNet,
    KimiDelta,
    LatentAttention,
    LayerGroup,
    Mamba1,
    Mamba2,
    MlpKind,
    ModelShape,
    MoeMlp,
    ShortConv,
    SoftmaxAttention,
    SparseIndexer,
    StateKind,
    entry_from_shape,
    shape_from_entry,
)
from capmodel.traffic import step_traffic
from capmodel.weights import matrices, parameter_count

INDEXER = SparseIndexer(n_heads=4, head_dim=128, topk=64)
EXAMPLES: dict[type, Any] = {
    SoftmaxAttention: SoftmaxAttention(8, 2, 16, 16),
    LatentAttention: LatentAttention(8, 32, 64, 16, 8, 16, indexer=INDEXER),
    CompressedAttention: CompressedAttention(8, 64, 8, 4, 128, 32, 32, 2, indexer=INDEXER),
    Mamba2: Mamba2(8, 16, 32, 2, 4),
    Mamba1: Mamba1(128, 16, 8, 4),
    GatedDeltaNet: GatedDeltaNet(4, 8, 16, 16, 4),
    KimiDelta: KimiDelta(8, 16, 4),
    ShortConv: ShortConv(64, 3),
    DenseMlp: DenseMlp(128),
    MoeMlp: MoeMlp(8, 2, 32, shared_intermediate=32),
}


def with_layer(**parts: Any) -> ModelShape:
    group = LayerGroup(2, parts.pop("attention", None), parts.pop("mlp", None), **parts)
    return ModelShape("example", 64, 100, (group,))


def test_every_kind_has_an_example() -> None:
    kinds = {*get_args(AttentionKind), *get_args(StateKind), *get_args(MlpKind)}
    assert kinds == set(EXAMPLES)


@pytest.mark.parametrize("kind", get_args(AttentionKind), ids=lambda k: k.__name__)
def test_attention_kinds(kind: type) -> None:
    shape = with_layer(attention=EXAMPLES[kind])
    assert sum(p.count * p.bytes_per_token for p in cache_pieces(shape)) > 0
    assert {m.part for m in matrices(shape)} >= {"attention", "norm", "head"}
    traffic = step_traffic(shape, "bf16", "bf16")
    assert traffic.attention_flop
    assert traffic.kv_read
    assert shape_from_entry(entry_from_shape(shape)) == shape


@pytest.mark.parametrize("kind", get_args(StateKind), ids=lambda k: k.__name__)
def test_state_kinds(kind: type) -> None:
    shape = with_layer(state=EXAMPLES[kind])
    assert sum(p.count * p.fixed_bytes for p in cache_pieces(shape)) > 0
    assert {m.part for m in matrices(shape)} >= {"state", "norm", "head"}
    assert step_traffic(shape, "bf16", "bf16").kv_fixed_read > 0
    assert shape_from_entry(entry_from_shape(shape)) == shape


@pytest.mark.parametrize("kind", get_args(MlpKind), ids=lambda k: k.__name__)
def test_mlp_kinds(kind: type) -> None:
    shape = with_layer(mlp=EXAMPLES[kind])
    assert {m.part for m in matrices(shape)} & {"mlp", "experts"}
    assert step_traffic(shape, "bf16", "bf16").flop_per_token >= 2 * 64 * 100
    assert shape_from_entry(entry_from_shape(shape)) == shape


def test_cross_attention() -> None:
    own = SoftmaxAttention(8, 8, 8, 8)
    shape = with_layer(attention=own, cross=CrossAttention(8, 8, 8, source_len=10))
    assert sum(p.count * p.fixed_bytes for p in cache_pieces(shape)) == 2 * 2 * 8 * 8 * 10 * 2
    alone = with_layer(attention=own)
    assert parameter_count(shape) - parameter_count(alone) == 2 * 4 * 64 * 64
    assert shape_from_entry(entry_from_shape(shape)) == shape
