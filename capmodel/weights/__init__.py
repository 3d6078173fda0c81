"""Parameters and bytes of a model's weights, matrix by matrix."""

from capmodel.weights.matrices import matrices
from capmodel.weights.matrix import PARTS, UNREAD_PARTS, Matrix
from capmodel.weights.parameters import (
    gemm_parameters_per_token,
    parameter_breakdown,
    parameter_count,
)
from capmodel.weights.stored import (
    StoredBytes,
    element_bytes,
    stored_bytes,
    stored_matrix_bytes,
    weight_bytes,
)

__all__ = [
    "PARTS",
    "UNREAD_PARTS",
    "Matrix",
    "StoredBytes",
    "element_bytes",
    "gemm_parameters_per_token",
    "matrices",
    "parameter_breakdown",
    "parameter_count",
    "stored_bytes",
    "stored_matrix_bytes",
    "weight_bytes",
]
