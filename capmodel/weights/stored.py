"""Bytes of the weights on one GPU, as a checkpoint stores them or by the textbook rule."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capmodel.arguments import GPUS, one_or_many
from capmodel.dtypes import ELEMENT_BYTES, STORED_WEIGHT_BYTES, weight_dtype_name
from capmodel.shapes.load import ModelLike, load_shape
from capmodel.shapes.model import UNREADABLE, CheckpointQuantization, ModelShape
from capmodel.weights.kept import kept_share
from capmodel.weights.matrices import matrices
from capmodel.weights.matrix import Matrix
from capmodel.weights.parameters import parameter_count
from capmodel.words import shown

CHECKPOINT = "checkpoint"
MODES = ("engine", "nameplate")


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes of a whole model by how tp shares them. kv: (KV heads, bytes) pairs."""

    divided: float
    replicated: float
    kv: tuple[tuple[int, float], ...]

    def per_gpu(self, tp: int) -> float:
        """[byte] on each of `tp` GPUs."""
        kv = sum(max(1, -(-heads // tp)) / heads * size for heads, size in self.kv)
        return self.divided / tp + self.replicated + kv


def weight_bytes(
    model: ModelLike,
    weight_dtype: str | None = "bf16",
    tp: ArrayLike = 1,
    mode: str = "engine",
) -> float | NDArray[np.float64]:
    """Weights on each of `tp` GPUs [byte]; an array of `tp` gives an array.

    weight_dtype: dtype of the quantised matrices; None or "checkpoint" takes what the model's
        `quantization_config` says (16 bits without one), and so does the dtype it names.
    mode: "engine" counts matrix by matrix with scales, 16-bit tables, norms and routers, KV
        heads replicated past their number; "nameplate" is parameters x flat element bytes / tp
        (int4 = 0.5), the textbook rule. MTP layers are left out of both: see
        `stored_matrix_bytes`.

    Raises ValueError for an unknown dtype or mode and for tp below 1. Source: PHYSICS 3 and 4.
    """
    shape = load_shape(model)
    if not isinstance(mode, str) or mode not in MODES:
        raise ValueError(f"Got mode={shown(mode)}, but expected one of {', '.join(MODES)}")
    if weight_dtype is not None and not (isinstance(weight_dtype, str) and weight_dtype):
        weight_dtype_name(weight_dtype)  # raises
    degrees = one_or_many("tp", tp, GPUS)
    if isinstance(degrees, int):
        return _weight_bytes(shape, weight_dtype, degrees, mode)
    known, where = np.unique(degrees, return_inverse=True)
    sizes = [_weight_bytes(shape, weight_dtype, int(n), mode) for n in known.tolist()]
    return np.asarray(sizes, dtype=np.float64)[where].reshape(degrees.shape)


def stored_matrix_bytes(matrix: Matrix, shape: ModelShape, weight_dtype: str | None) -> float:
    """Bytes of all copies of one matrix of `shape`, scales included."""
    quantization = checkpoint_of(shape, weight_dtype)
    if quantization is not None:
        return _checkpoint_bytes(matrix, shape, quantization)
    dtype = weight_dtype_name(weight_dtype or "bf16")
    plain = 4.0 if dtype == "fp32" else 2.0
    return matrix.total * (STORED_WEIGHT_BYTES[dtype] if matrix.quantised else plain)


def checkpoint_of(shape: ModelShape, weight_dtype: str | None) -> CheckpointQuantization | None:
    """The checkpoint's own storage where `weight_dtype` asks for it, by name or by dtype."""
    if weight_dtype is None or weight_dtype == CHECKPOINT:
        return shape.quantization
    if shape.quantization is None:
        return None
    named = {shape.quantization.dtype, shape.quantization.expert_dtype}
    return shape.quantization if weight_dtype_name(weight_dtype) in named else None


def element_bytes(dtype: str, group_size: int | None, zero_points: bool = False) -> float:
    """Bytes per element of a quantised matrix with one scale per `group_size` elements.

    Scales are 2 bytes for int4 and int8, 4 for fp8, 1 for NVFP4 (16 elements) and MXFP4 (32);
    a zero point takes as much as an element (PHYSICS section 3).
    """
    flat = ELEMENT_BYTES[dtype]
    if dtype in ("nvfp4", "mxfp4"):
        return flat + 1 / (group_size or (16 if dtype == "nvfp4" else 32))
    if group_size is None or dtype not in ("int4", "int8", "fp8"):
        return flat
    scale = 4.0 if dtype == "fp8" else 2.0
    return flat + (scale + zero_points * flat) / group_size


@lru_cache(maxsize=16384)
def _weight_bytes(shape: ModelShape, weight_dtype: str | None, tp: int, mode: str) -> float:
    if mode == "nameplate":
        quantization = checkpoint_of(shape, weight_dtype)
        given = None if weight_dtype == CHECKPOINT else weight_dtype
        dtype = quantization.dtype if quantization and not given else given or "bf16"
        return parameter_count(shape) * ELEMENT_BYTES[weight_dtype_name(dtype)] / tp
    return stored_bytes(shape, weight_dtype).per_gpu(tp)


@lru_cache(maxsize=4096)
def stored_bytes(shape: ModelShape, weight_dtype: str | None, mtp: bool = False) -> StoredBytes:
    """Bytes of the whole model by how tp shares them; `mtp` counts its MTP layers too."""
    divided = replicated = 0.0
    kv: dict[int, float] = {}
    for matrix in matrices(shape):
        if matrix.part == "mtp" and not mtp:
            continue
        size = stored_matrix_bytes(matrix, shape, weight_dtype)
        if matrix.split == "replicated":
            replicated += size
        elif matrix.split == "kv":
            kv[matrix.kv_heads] = kv.get(matrix.kv_heads, 0.0) + size
        else:
            divided += size
    return StoredBytes(divided, replicated, tuple(kv.items()))


def _checkpoint_bytes(
    matrix: Matrix, shape: ModelShape, quantization: CheckpointQuantization
) -> float:
    if not matrix.quantised:
        return matrix.total * 2.0
    dtype = quantization.dtype
    group = quantization.group_size
    if dtype == UNREADABLE:
        raise ValueError(
            f"Got the checkpoint storage of {shape.name}, but its quant_method "
            f"{quantization.method!r} does not tell it; give weight_dtype"
        )
    if matrix.n_experts and quantization.expert_dtype is not None:
        dtype = quantization.expert_dtype
        group = None if dtype in ("nvfp4", "mxfp4") else group
    layers = _layers_with(shape, matrix.name)
    kept = kept_share(quantization, matrix, layers)
    each = element_bytes(dtype, group, quantization.zero_points)
    return matrix.total * (kept * 2.0 + (1 - kept) * each)


def _layers_with(shape: ModelShape, name: str) -> int:
    return sum(m.layers for m in matrices(shape) if m.name == name and m.part != "mtp")
