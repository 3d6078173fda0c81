"""What the rows of one engine and GPU cover, and what a prediction asks beyond it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.arguments import GPUS, POSITIVE, number
from capmodel.bands import Reach
from capmodel.engines import known_engine
from capmodel.filed import listed, span_of, text, texts, unique
from capmodel.gpus import load_gpu
from capmodel.shapes import catalogue_name
from capmodel.shapes.catalogue import in_catalogue
from capmodel.words import shown

Array = npt.NDArray[np.float64]

_WIDE = {"bf16": "16-bit", "fp16": "16-bit"}
# Model, dtypes of weights and cache, tp.
Deployed = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Models, dtypes, parallelism and ranges among the rows of one (engine, GPU).

    deployments: what is measured of each; empty in older files, where each part is looked for
    alone.
    """

    models: tuple[str, ...]
    weight_dtypes: tuple[str, ...]
    kv_dtypes: tuple[str, ...]
    tps: tuple[int, ...]
    batch_range: tuple[float, float]
    context_range: tuple[float, float]
    deployments: dict[Deployed, Reach] = field(default_factory=dict, repr=False)

    @property
    def reach(self) -> Reach:
        """Of all rows."""
        return Reach(self.batch_range, self.context_range)

    def own(self, model: str, weight_dtype: str, kv_dtype: str, tp: int) -> Reach | None:
        """What is measured of a deployment; None: nothing."""
        if self.deployments:
            return self.deployments.get((model, _wide(weight_dtype), _wide(kv_dtype), tp))
        return None if self.lacks(model, weight_dtype, kv_dtype, tp) else self.reach

    def lacks(self, model: str, weight_dtype: str, kv_dtype: str, tp: int) -> tuple[str, ...]:
        """What of a deployment no row has, in words."""
        missing = []
        if model not in self.models:
            missing.append(f"no rows of {model}")
        for what, dtype, known in (
            ("weights", weight_dtype, self.weight_dtypes), ("cache", kv_dtype, self.kv_dtypes),
        ):  # fmt: skip
            if _wide(dtype) not in known:
                missing.append(f"no rows with {dtype} {what}")
        if tp not in self.tps:
            missing.append(f"no rows at tp {tp}")
        own = model, _wide(weight_dtype), _wide(kv_dtype), tp
        if not missing and self.deployments and own not in self.deployments:
            missing.append(
                f"no rows of {model} with {weight_dtype} weights and {kv_dtype} cache at tp {tp} "
                "at once"
            )
        return tuple(missing)

    def beyond(self, batch: Array, context_len: Array) -> tuple[str, ...]:
        """Ranges that steps leave, in words."""
        return tuple(f"{left} of the rows" for left in self.reach.left(batch, context_len))

    def to_dict(self) -> dict[str, Any]:
        lists = {name: list(getattr(self, name)) for name in self.__slots__[:-1]}
        deployments = [
            [*key, *own.batch_range, *own.context_range]
            for key, own in sorted(self.deployments.items())
        ]
        return {**lists, "deployments": deployments}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Coverage":
        """The coverage of `to_dict`. Raises KeyError, TypeError or ValueError."""
        whole = Reach(
            span_of("batch_range", content["batch_range"], POSITIVE),
            span_of("context_range", content["context_range"], POSITIVE),
        )
        deployments = unique(
            "deployment", map(_deployment, listed("deployments", content.get("deployments", [])))
        )
        for key, own in deployments.items():
            if own.joined(whole) != whole:
                raise ValueError(
                    f"Got rows of {shown(key)} beyond the ranges of all rows; fit it again"
                )
        return cls(
            models=texts("models", content["models"]),
            weight_dtypes=texts("weight_dtypes", content["weight_dtypes"]),
            kv_dtypes=texts("kv_dtypes", content["kv_dtypes"]),
            tps=tuple(number("tps", tp, GPUS) for tp in listed("tps", content["tps"])),
            batch_range=whole.batch_range, context_range=whole.context_range,
            deployments=deployments,
        )  # fmt: skip


def _deployment(entry: Any) -> tuple[Deployed, Reach]:
    model, weight, cache, tp, *ranges = listed("deployments", entry, 8)
    names = text("model", model), text("weight_dtype", weight), text("kv_dtype", cache)
    return (*names, number("tp", tp, GPUS)), Reach(
        span_of("batches", ranges[:2], POSITIVE), span_of("contexts", ranges[2:], POSITIVE)
    )


def coverage_of(rows: pd.DataFrame) -> Coverage:
    """Coverage of runs-table rows of one engine and GPU."""
    tps = rows["tp"] if "tp" in rows else pd.Series([1])
    return Coverage(
        models=tuple(sorted({catalogue_name(name) for name in rows["model"].unique()})),
        weight_dtypes=tuple(sorted({_wide(d) for d in rows["weight_dtype"].unique()})),
        kv_dtypes=tuple(sorted({_wide(d) for d in rows["kv_dtype"].unique()})),
        tps=tuple(sorted({int(tp) for tp in tps.unique()})),
        batch_range=(float(rows["batch_size"].min()), float(rows["batch_size"].max())),
        context_range=(float(rows["context_len"].min()), float(rows["context_len"].max())),
        deployments=_deployments(rows),
    )


def joined(one: Coverage | None, other: Coverage) -> Coverage:
    """Coverage of the rows of both."""
    if one is None:
        return other
    reach = one.reach.joined(other.reach)
    deployments = dict(one.deployments)
    for key, own in other.deployments.items():
        deployments[key] = own.joined(deployments.get(key, own))
    return Coverage(
        models=tuple(sorted({*one.models, *other.models})),
        weight_dtypes=tuple(sorted({*one.weight_dtypes, *other.weight_dtypes})),
        kv_dtypes=tuple(sorted({*one.kv_dtypes, *other.kv_dtypes})),
        tps=tuple(sorted({*one.tps, *other.tps})),
        batch_range=reach.batch_range, context_range=reach.context_range,
        deployments=deployments if one.deployments else {},
    )  # fmt: skip


def _deployments(rows: pd.DataFrame) -> dict[Deployed, Reach]:
    keys = ["model", "weight_dtype", "kv_dtype", "tp"]
    found: dict[Deployed, Reach] = {}
    table = rows.assign(tp=rows.get("tp", 1))
    ranges = table.groupby(keys, sort=True)[["batch_size", "context_len"]].agg(["min", "max"])
    for (model, weight, cache, tp), *values in ranges.itertuples():
        low, high, short, long = map(float, values)
        key = catalogue_name(model), _wide(weight), _wide(cache), int(tp)
        own = Reach((low, high), (short, long))
        found[key] = own.joined(found.get(key, own))
    return found


def _wide(dtype: str) -> str:
    return _WIDE.get(dtype, dtype)


def with_known_names(rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` with engines, models and GPUs under the names they have here, as files are read.

    A model with shape columns of its own, a GPU with its figures and unknown names stay.
    """
    changed: dict[str, pd.Series] = {}
    for column, own, named in (
        ("engine", None, _engine), ("model", "n_layers", _entry), ("gpu", "memory_bytes", _gpu),
    ):  # fmt: skip
        if column not in rows:
            continue
        names = {name: named(name) for name in rows[column].unique()}
        if all(name == known for name, known in names.items()):
            continue
        bare = rows[own].isna() if own in rows else pd.Series(True, index=rows.index)
        given = rows[column].astype(object)
        changed[column] = given.where(~bare, given.map(names))
    return rows.assign(**changed) if changed else rows


def _engine(name: object) -> object:
    return known_engine(name) if isinstance(name, str) else name


def _entry(name: object) -> object:
    known = isinstance(name, str) and in_catalogue(name)
    return catalogue_name(name) if known else name


def _gpu(name: object) -> object:
    try:
        return load_gpu(str(name)).name
    except (ValueError, OSError):
        return name
