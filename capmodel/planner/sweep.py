"""Step times over a grid of deployments, batches and contexts, block by block into Parquet."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from capmodel.arguments import COUNT, Span, function, instance, number, numbers, text
from capmodel.distributed import in_order
from capmodel.planner.candidate import Candidate, GpuLike, candidates
from capmodel.planner.replica import DoesNotFit, Replica, Setting, replica_of
from capmodel.shapes import ModelLike, load_shape
from capmodel.steptime import StepTime
from capmodel.words import shown

Progress = Callable[[int, int], None]

_BLOCK_ROWS = 1_000_000
_AXIS = Span("whole numbers from 1 (to 2**31 - 1)", 1.0, 2.0**31 - 1, whole=True)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One deployment's share of the grid: all of `context` for some of `batch`."""

    deployment: int
    step_time: StepTime
    batch: NDArray[np.int32]
    context: NDArray[np.int32]
    blocks_per_request: NDArray[np.int64]
    pool_blocks: int


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep wrote. deployments: in the order of the column `deployment`."""

    path: Path
    rows: int
    deployments: tuple[Candidate, ...]
    left_out: tuple[tuple[Candidate, str], ...]


def sweep(
    model: ModelLike,
    gpu: GpuLike | Sequence[GpuLike] | None,
    out: str | os.PathLike[str],
    *,
    batch: ArrayLike,
    context: ArrayLike,
    setting: Setting,
    tp: int | Sequence[int] | None = None,
    weight_dtype: str | Sequence[str] | None = None,
    kv_dtype: str | Sequence[str] | None = None,
    progress: Progress | None = None,
    dask: str | None = None,
    block_rows: int = _BLOCK_ROWS,
) -> SweepResult:
    """Write the step time of every deployment at every batch and context to `out` (Parquet).

    batch, context: whole numbers from 1, shape (b,) and (c,). Columns: deployment, batch,
    context, step_time_s [s], tokens_per_s, fits (that many requests of that length are held).
    progress: called with rows done and rows in all. dask: a scheduler's address; the rows are
    the same as without. Memory is bounded by `block_rows`.

    Raises ValueError for an empty or impossible grid, and where no deployment fits.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    shape = load_shape(model)
    instance("setting", setting, Setting)
    block_rows = number("block_rows", block_rows, COUNT)
    if not isinstance(out, str | os.PathLike) or not str(out).strip():
        raise ValueError(f"Got out={shown(out)}, but expected the path of a Parquet file")
    if dask is not None:
        text("dask", dask, "the address of a Dask scheduler, or None")
    if progress is not None:
        function("progress", progress)
    sizes, contexts = _axis(batch, "batch"), _axis(context, "context")
    replicas: list[Replica] = []
    left_out: list[tuple[Candidate, str]] = []
    for candidate in candidates(shape, gpu, tp, weight_dtype, kv_dtype):
        try:
            replicas.append(replica_of(shape, candidate, setting))
        except DoesNotFit as error:
            left_out.append((candidate, str(error)))
    if not replicas:
        first = f"; {left_out[0][0].name}: {left_out[0][1]}" if left_out else ""
        raise ValueError(f"No deployment of {shape.name} can be swept{first}")
    total = len(replicas) * len(sizes) * len(contexts)
    target = Path(out)
    partial = target.with_name(f".{target.name}.part")
    done = 0
    try:
        with pq.ParquetWriter(partial, pa.schema(_SCHEMA)) as writer:
            for table in in_order(step_block, _blocks(replicas, sizes, contexts, block_rows), dask):
                writer.write_table(pa.Table.from_pandas(table, pa.schema(_SCHEMA), False))
                done += len(table)
                if progress is not None:
                    progress(done, total)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    deployments = tuple(replica.candidate for replica in replicas)
    return SweepResult(target, done, deployments, tuple(left_out))


def step_block(block: Block) -> pd.DataFrame:
    """The rows of one block, contexts running fastest."""
    rows = len(block.batch) * len(block.context)
    batch = np.repeat(block.batch, len(block.context)).astype(float)
    context = np.tile(block.context, len(block.batch))
    seconds = np.asarray(block.step_time.seconds(batch, batch * context), dtype=float)
    held = batch * np.tile(block.blocks_per_request, len(block.batch))
    columns = {
        "deployment": np.full(rows, block.deployment, dtype=np.int32),
        "batch": batch.astype(np.int32),
        "context": context,
        "step_time_s": seconds,
        "tokens_per_s": batch / seconds,
        "fits": held <= block.pool_blocks,
    }
    return pd.DataFrame(columns)


def _blocks(
    replicas: Sequence[Replica],
    sizes: NDArray[np.int32],
    contexts: NDArray[np.int32],
    block_rows: int,
) -> Iterator[Block]:
    each = max(1, block_rows // len(contexts))
    for place, replica in enumerate(replicas):
        step_time = replica.step_time
        if not isinstance(step_time, StepTime):
            raise ValueError("A sweep needs step times of capmodel.steptime.StepTime")
        per_request = np.asarray(replica.cost.blocks(contexts.astype(float)), dtype=np.int64)
        for start in range(0, len(sizes), each):
            part = sizes[start : start + each]
            yield Block(place, step_time, part, contexts, per_request, replica.pool_blocks)


def _axis(values: ArrayLike, name: str) -> NDArray[np.int32]:
    array = np.atleast_1d(numbers(name, values, _AXIS))
    if array.ndim != 1 or not len(array):
        raise ValueError(
            f"Got {name}={shown(values)}, but expected one or several of them in a row"
        )
    return array.astype(np.int32)


_SCHEMA = [
    ("deployment", "int32"), ("batch", "int32"), ("context", "int32"),
    ("step_time_s", "float64"), ("tokens_per_s", "float64"), ("fits", "bool"),
]  # fmt: skip
