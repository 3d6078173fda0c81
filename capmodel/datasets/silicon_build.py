"""Build the bundled silicon runs from the measured kernel times of aiconfigurator-core."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from capmodel.datasets.kernel_tables import (
    BATCHES,
    CONTEXTS,
    ENGINES,
    SYSTEMS,
    KernelTables,
    checked_folder,
    data_folder,
    read_tables,
)
from capmodel.datasets.silicon import PART_COLUMNS
from capmodel.datasets.silicon_draw import (
    DTYPE_WEIGHT,
    FEWEST_STEPS,
    TP_WEIGHT,
    drawn_deployments,
    drawn_steps,
    six_digits,
)
from capmodel.datasets.silicon_shapes import shape_columns, silicon_shapes
from capmodel.datasets.silicon_steps import GEMM_DTYPES, step_parts
from capmodel.gpus import load_gpu
from capmodel.kvcache import kv_bytes
from capmodel.shapes import ModelShape
from capmodel.weights import weight_bytes

SOURCE = "composed from measured kernels (aiconfigurator-core 0.12.0)"
TENSOR_PARALLEL = (1, 2, 4, 8)
MEMORY_FRACTION = 0.92
# Share of a step that kernels measured faster than memory allows may hide: their operands lay
# in the L2 cache of the benchmark, where a real step would not find them.
CACHED_SHARE = 0.02

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on `tp` GPUs; its steps span BATCHES and CONTEXTS."""

    model: str
    shape: ModelShape
    weight_dtype: str
    kv_dtype: str
    tp: int

    @property
    def weight(self) -> float:
        """How much it is wanted beside others of the same model and GPU."""
        return DTYPE_WEIGHT[self.weight_dtype] * TP_WEIGHT[self.tp]


@dataclass(frozen=True, slots=True)
class Steps:
    """All usable steps of a deployment under one engine.

    seconds: (BATCHES, CONTEXTS), NaN where a step is unmeasured, does not fit, or was served
    from a cache. parts: the same shape, by PART_COLUMNS.
    """

    deployment: Deployment
    tables: KernelTables
    seconds: np.ndarray
    parts: dict[str, np.ndarray]

    @property
    def name(self) -> str:
        d = self.deployment
        own = (d.model, self.tables.gpu, self.tables.engine, d.weight_dtype, d.kv_dtype, d.tp)
        return "|".join(map(str, own))


def build_silicon_runs(
    folder: Path | None = None, progress: Progress | None = None
) -> pd.DataFrame:
    """The bundled table, built anew: drawn steps with the columns of the runs table.

    folder: tables of aiconfigurator-core, None = the installed package's.
    progress: called with (pairs of GPU and engine done, pairs in all).
    Raises ValueError, saying how to install it, when the package is not there, and for a folder
    that lacks the tables of a GPU.
    """
    folder = data_folder() if folder is None else checked_folder(folder)
    frames = [
        _rows(steps)
        for number, gpu in enumerate(SYSTEMS)
        for steps in _drawn(_composed(folder, gpu, number, progress))
    ]
    rows = pd.concat(frames, ignore_index=True).sort_values(list(frames[0].columns[:9]))
    for name in ("step_time_s", *PART_COLUMNS):
        rows[name] = six_digits(rows[name])
    rows = rows.merge(shape_columns().reset_index(), on="model", how="left")
    rows.insert(0, "run_id", [f"silicon-{number:05d}" for number in range(1, len(rows) + 1)])
    rows.insert(1, "source", SOURCE)
    return rows


def _composed(folder: Path, gpu: str, number: int, progress: Progress | None) -> Iterator[Steps]:
    for place, engine in enumerate(ENGINES, start=1):
        tables = read_tables(folder, gpu, engine)
        for deployment in _deployments(tables):
            steps = _steps(deployment, tables)
            if steps is not None:
                yield steps
        if progress is not None:
            progress(number * len(ENGINES) + place, len(SYSTEMS) * len(ENGINES))


def _drawn(candidates: Iterator[Steps]) -> Iterator[Steps]:
    by_model: dict[str, list[Steps]] = {}
    for steps in candidates:
        by_model.setdefault(steps.deployment.model, []).append(steps)
    for own in by_model.values():
        names, weights = [s.name for s in own], [s.deployment.weight for s in own]
        yield from (own[i] for i in drawn_deployments(names, weights))


def _deployments(tables: KernelTables) -> Iterator[Deployment]:
    kv_dtypes = sorted({"bf16" if key[0] == "bfloat16" else key[0] for key in tables.attention})
    for model, shape in silicon_shapes().items():
        in_mxfp4 = shape.quantization is not None and shape.quantization.dtype == "mxfp4"
        for weight_dtype, table in GEMM_DTYPES.items():
            if table in tables.gemm and (weight_dtype == "mxfp4") == in_mxfp4:
                for kv_dtype in kv_dtypes:
                    for tp in TENSOR_PARALLEL:
                        yield Deployment(model, shape, weight_dtype, kv_dtype, tp)


def _steps(deployment: Deployment, tables: KernelTables) -> Steps | None:
    """None where fewer than FEWEST_STEPS steps are measured and fit."""
    gpu = load_gpu(tables.gpu)
    room, stored = MEMORY_FRACTION * gpu.memory_bytes, _stored_bytes(deployment)
    if stored is None or (stored <= room).sum() < FEWEST_STEPS:
        return None
    d = deployment
    kernels = step_parts(d.shape, tables, d.weight_dtype, d.kv_dtype, d.tp)
    parts = {
        column: sum((k.seconds for k in kernels if f"{k.name}_s" == column), np.zeros(stored.shape))
        for column in PART_COLUMNS
    }
    seconds = np.sum(list(parts.values()), axis=0)
    bandwidth = float(gpu.bandwidth_bytes_per_s or np.nan)
    hidden = sum(
        (np.maximum(k.n_bytes / bandwidth - k.seconds, 0) for k in kernels), np.zeros(stored.shape)
    )
    usable = (stored <= room) & np.isfinite(seconds) & (hidden <= CACHED_SHARE * seconds)
    if usable.sum() < FEWEST_STEPS:
        return None
    return Steps(deployment, tables, np.where(usable, seconds, np.nan), parts)


def _rows(steps: Steps) -> pd.DataFrame:
    d, row_column = steps.deployment, np.argwhere(np.isfinite(steps.seconds))
    cells = [(int(BATCHES[i]), int(CONTEXTS[j])) for i, j in row_column]
    row, column = row_column[drawn_steps(steps.name, cells)].T
    return pd.DataFrame(
        {
            "model": d.model,
            "gpu": steps.tables.gpu,
            "engine": steps.tables.engine,
            "engine_version": steps.tables.engine_version,
            "tp": d.tp,
            "weight_dtype": d.weight_dtype,
            "kv_dtype": d.kv_dtype,
            "batch_size": BATCHES[row],
            "context_len": CONTEXTS[column],
            "step_time_s": steps.seconds[row, column],
            **{name: part[row, column] for name, part in steps.parts.items()},
        }
    )


@lru_cache(maxsize=8192)
def _stored_bytes(d: Deployment) -> np.ndarray | None:
    """Weights and caches on each GPU [byte], shape (BATCHES, CONTEXTS).

    Infinite past the model's context; None where tp does not split the model.
    """
    longest = d.shape.max_context or int(CONTEXTS[-1])
    known = CONTEXTS[: int(np.searchsorted(CONTEXTS, longest, side="right"))]
    stored = np.full((len(BATCHES), len(CONTEXTS)), np.inf)
    try:
        weights = weight_bytes(d.shape, d.weight_dtype, d.tp)
        cached = [kv_bytes(d.shape, float(tokens), 1, d.kv_dtype, d.tp) for tokens in known]
    except ValueError:
        return None
    stored[:, : len(known)] = weights + np.outer(BATCHES, cached)
    return stored
