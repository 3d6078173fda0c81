"""Shapes from the runs table's columns."""

import pytest

from capmodel.kvcache import cache_pieces
from capmodel.shapes import load_shape, shape_from_columns
from capmodel.weights import gemm_parameters_per_token, matrices, parameter_count

LLAMA_8B = (32, 4096, 32, 8, 128, 14336, 128256)


def test_the_columns_of_llama_are_llama() -> None:
    shape = shape_from_columns(*LLAMA_8B)
    assert parameter_count(shape) == parameter_count("llama-3.1-8b")
    assert cache_pieces(shape) == cache_pieces(load_shape("llama-3.1-8b"))


def test_stated_parameters_are_what_counts_give() -> None:
    """gemma-2-27b: 27.2e9, where its columns as an untied model give 28.4e9."""
    columns = (46, 4608, 32, 16, 128, 36864, 256000)
    assert parameter_count(shape_from_columns(*columns)) == pytest.approx(28.4e9, rel=2e-3)
    stated = shape_from_columns(*columns, n_params=27_227_128_320)
    assert parameter_count(stated) == 27_227_128_320


def test_a_stated_total_of_experts_follows_the_routing() -> None:
    """Half of the difference is active where half of the experts are."""
    columns = (10, 256, 8, 2, 32, 128, 1000)
    plain = shape_from_columns(*columns, n_experts=8, n_experts_per_token=4)
    total = parameter_count(plain)
    stated = shape_from_columns(*columns, round(total * 1.1), 8, 4)
    grown = parameter_count(stated) - total
    active = parameter_count(stated, active=True) - parameter_count(plain, active=True)
    assert grown == pytest.approx(total * 0.1, rel=1e-3)
    assert active == pytest.approx(grown / 2, rel=1e-3)
    assert gemm_parameters_per_token(stated) > gemm_parameters_per_token(plain)


@pytest.mark.parametrize("n_params", [7, 8e12, 1e8])
def test_a_total_far_off_is_refused(n_params: float) -> None:
    with pytest.raises(ValueError, match="n_params"):
        matrices(shape_from_columns(*LLAMA_8B, n_params=n_params))


@pytest.mark.parametrize(
    ("position", "value"), [(0, 0), (1, -4096), (3, 5), (4, float("nan")), (5, 0.5)]
)
def test_wrong_columns_are_named(position: int, value: float) -> None:
    columns = list(LLAMA_8B)
    columns[position] = value
    with pytest.raises(ValueError, match=r"Got n_layers|Got hidden|Got n_kv|Got head|Got inter"):
        shape_from_columns(*columns)


def test_one_expert_column_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="expected both"):
        shape_from_columns(*LLAMA_8B, n_experts=8)
