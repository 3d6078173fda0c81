"""What the rows of one engine and GPU cover, and what a prediction asks beyond it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.shapes import load_shape
from capmodel.shapes.catalogue import in_catalogue

Array = npt.NDArray[np.float64]

_WIDE = {"bf16": "16-bit", "fp16": "16-bit"}


@dataclass(frozen=True, slots=True)
class Coverage:
    """Models, dtypes, parallelism and ranges among the rows of one (engine, GPU)."""

    models: tuple[str, ...]
    weight_dtypes: tuple[str, ...]
    kv_dtypes: tuple[str, ...]
    tps: tuple[int, ...]
    batch_range: tuple[float, float]
    context_range: tuple[float, float]

    def lacks(self, model: str, weight_dtype: str, kv_dtype: str, tp: int) -> tuple[str, ...]:
        """What of a deployment no row has, in words."""
        missing = []
        if model not in self.models:
            missing.append(f"no rows of {model}")
        for what, dtype, known in (
            ("weights", weight_dtype, self.weight_dtypes), ("cache", kv_dtype, self.kv_dtypes),
        ):  # fmt: skip
            if _WIDE.get(dtype, dtype) not in known:
                missing.append(f"no rows with {dtype} {what}")
        if tp not in self.tps:
            missing.append(f"no rows at tp {tp}")
        return tuple(missing)

    def beyond(self, batch: Array, context_len: Array) -> tuple[str, ...]:
        """Ranges that steps leave, in words."""
        found = []
        for what, values, (low, high) in (
            ("batch", batch, self.batch_range), ("context", context_len, self.context_range),
        ):  # fmt: skip
            if (values < low / 1.01).any() or (values > high * 1.01).any():
                found.append(f"{what} outside the {low:,.0f} to {high:,.0f} of the rows")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        return {name: list(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Coverage":
        low_batch, high_batch = map(float, content["batch_range"])
        low_context, high_context = map(float, content["context_range"])
        return cls(
            models=tuple(map(str, content["models"])),
            weight_dtypes=tuple(map(str, content["weight_dtypes"])),
            kv_dtypes=tuple(map(str, content["kv_dtypes"])),
            tps=tuple(map(int, content["tps"])),
            batch_range=(low_batch, high_batch), context_range=(low_context, high_context),
        )  # fmt: skip


def coverage_of(rows: pd.DataFrame) -> Coverage:
    """Coverage of runs-table rows of one engine and GPU."""
    tps = rows["tp"] if "tp" in rows else pd.Series([1])
    return Coverage(
        models=tuple(sorted({catalogue_name(name) for name in rows["model"].unique()})),
        weight_dtypes=tuple(sorted({_WIDE.get(d, d) for d in rows["weight_dtype"].unique()})),
        kv_dtypes=tuple(sorted({_WIDE.get(d, d) for d in rows["kv_dtype"].unique()})),
        tps=tuple(sorted({int(tp) for tp in tps.unique()})),
        batch_range=(float(rows["batch_size"].min()), float(rows["batch_size"].max())),
        context_range=(float(rows["context_len"].min()), float(rows["context_len"].max())),
    )


def joined(one: Coverage | None, other: Coverage) -> Coverage:
    """Coverage of the rows of both."""
    if one is None:
        return other
    return Coverage(
        models=tuple(sorted({*one.models, *other.models})),
        weight_dtypes=tuple(sorted({*one.weight_dtypes, *other.weight_dtypes})),
        kv_dtypes=tuple(sorted({*one.kv_dtypes, *other.kv_dtypes})),
        tps=tuple(sorted({*one.tps, *other.tps})),
        batch_range=_hull(one.batch_range, other.batch_range),
        context_range=_hull(one.context_range, other.context_range),
    )


def _hull(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return min(one[0], other[0]), max(one[1], other[1])


def catalogue_name(model: object) -> str:
    """The catalogue's name of a model, its own where the catalogue has none."""
    name = str(model)
    try:
        known = in_catalogue(name) or Path(name).exists()
        return load_shape(name).name if known else name
    except (ValueError, OSError):
        return name
