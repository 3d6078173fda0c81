"""Parameter counts, whole, active per token and by part."""

from functools import lru_cache
from typing import TYPE_CHECKING

from capmodel.shapes.load import ModelLike, load_shape
from capmodel.shapes.model import ModelShape
from capmodel.weights.matrices import matrices
from capmodel.weights.matrix import PARTS

if TYPE_CHECKING:
    import pandas as pd


def parameter_count(model: ModelLike, active: bool = False, mtp: bool = False) -> int:
    """Parameters of the model, encoders included.

    active: only those one token passes through (`top_k` experts, no encoder).
    mtp: count the MTP layers a checkpoint also stores, and their copies of the tables.
    """
    return _count(load_shape(model), active, mtp)


def gemm_parameters_per_token(model: ModelLike) -> int:
    """Active parameters without the embedding table: half the FLOP of one token's matmuls.

    Llama-3.1-8B: 7.505e9. A tied table counts, as the LM head.
    """
    return _gemm(load_shape(model))


def parameter_breakdown(model: ModelLike) -> "pd.DataFrame":
    """One row per part (attention, mlp, experts, embedding, head, ...), largest first.

    Columns: `part`, `parameters`, `active` (per token), `share` of all parameters.
    """
    import pandas as pd

    found = matrices(load_shape(model))
    rows = [
        {
            "part": part,
            "parameters": sum(m.total for m in found if m.part == part),
            "active": sum(m.active for m in found if m.part == part),
        }
        for part in PARTS
    ]
    table = pd.DataFrame(rows)
    table["share"] = table["parameters"] / table["parameters"].sum()
    table = table[table["parameters"] > 0]
    return table.sort_values("parameters", ascending=False, ignore_index=True)


@lru_cache(maxsize=4096)
def _count(shape: ModelShape, active: bool, mtp: bool) -> int:
    return sum(
        matrix.active if active else matrix.total
        for matrix in matrices(shape)
        if mtp or matrix.part != "mtp"
    )


@lru_cache(maxsize=4096)
def _gemm(shape: ModelShape) -> int:
    return sum(matrix.active for matrix in matrices(shape) if matrix.is_read)
