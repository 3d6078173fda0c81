"""One way to run the model: GPU, tensor parallelism, dtypes; and all that are worth a look."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from capmodel.arguments import GPUS, number
from capmodel.dtypes import kv_dtype_name, weight_dtype_name
from capmodel.gpus import Gpu, gpu_names, load_gpu
from capmodel.shapes import ModelShape

DEGREES = (1, 2, 4, 8)
WEIGHT_DTYPES = ("bf16", "fp8", "int4")
KV_DTYPES = ("bf16", "fp8")

GpuLike = str | dict[str, object] | Gpu


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica of `tp` GPUs with weights and cache of these dtypes."""

    gpu: Gpu
    tp: int
    weight_dtype: str
    kv_dtype: str

    @property
    def name(self) -> str:
        """`'4 x h100-80gb, fp8 weights, bf16 cache'`."""
        return f"{self.tp} x {self.gpu.name}, {self.weight_dtype} weights, {self.kv_dtype} cache"


def candidates(
    shape: ModelShape,
    gpu: GpuLike | Sequence[GpuLike] | None,
    tp: int | Sequence[int] | None = None,
    weight_dtype: str | Sequence[str] | None = None,
    kv_dtype: str | Sequence[str] | None = None,
) -> Iterator[Candidate]:
    """Every combination of what is given, and of the usual choices for what is None.

    gpu None: the whole catalogue. tp None: 1, 2, 4, 8. weight_dtype None: the checkpoint's own
    where it is quantised, else bf16, fp8 and int4 (fp8 only where the GPU multiplies in it: the
    memory saved elsewhere is int4's as well). kv_dtype None: bf16 and fp8.
    Raises ValueError for unknown names and degrees below one.
    """
    asked = [load_gpu(one) for one in (gpu_names() if gpu is None else _several(gpu))]
    # Once each, also where a short name and the full one were given.
    gpus = {replace(one, assumption=""): one for one in asked}.values()
    degrees = DEGREES if tp is None else tuple(number("tp", one, GPUS) for one in _several(tp))
    weights = _weight_dtypes(shape, weight_dtype)
    caches = KV_DTYPES if kv_dtype is None else tuple(map(kv_dtype_name, _several(kv_dtype)))
    for one, degree, weight, cache in product(
        gpus, degrees, dict.fromkeys(weights), dict.fromkeys(caches)
    ):
        if weight_dtype is None and weight == "fp8" and one.fp8_flops_per_s is None:
            continue
        yield Candidate(one, degree, weight, cache)


def _weight_dtypes(shape: ModelShape, given: str | Sequence[str] | None) -> tuple[str, ...]:
    if given is not None:
        return tuple(weight_dtype_name(dtype) for dtype in _several(given))
    if shape.quantization is not None:
        return (weight_dtype_name(shape.quantization.dtype),)
    return WEIGHT_DTYPES


def _several(value: object) -> list[Any]:
    if isinstance(value, list | tuple):
        if not value:
            raise ValueError("Got an empty list, but expected at least one choice")
        return list(value)
    return [value]
