"""Ways to hold rows out, from flattering to honest. A new split is one entry in SPLITS."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

Rows = npt.NDArray[np.intp]

_PARALLEL = ("tp", "pp", "dp", "ep", "n_gpus")
_DTYPES = ("weight_dtype", "kv_dtype")
_LENGTHS = ("context_len", "input_len", "output_len")
# Columns that make two rows the same configuration, so that one measures the other's noise.
CONFIGURATION = ("engine", "engine_version", "model", "gpu", *_DTYPES, *_PARALLEL,
                 "batch_size", "concurrency", "prefill_chunk", *_LENGTHS,
                 "step_time_definition")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Split:
    """What stays together on one side.

    leave_one_out: each value of `columns` is a fold; from `MANY_GROUPS` values on they are dealt
    into ten folds of whole values, which holds out more at a time and so flatters less.
    """

    name: str
    columns: tuple[str, ...]
    leave_one_out: bool
    meaning: str


MANY_GROUPS = 20

SPLITS: tuple[Split, ...] = (
    Split("random", CONFIGURATION, False, "rows at random, repeats on one side"),
    Split(
        "config",
        ("model", "gpu", "engine", "tp", "pp", *_DTYPES, *_LENGTHS),
        False,
        "model, GPU, engine, parallelism, dtypes and context together, batch free",
    ),
    Split(
        "deployment",
        ("engine", "model", "gpu", *_DTYPES, *_PARALLEL),
        False,
        "engine, model, GPU, dtypes and parallelism together",
    ),
    Split("model", ("model",), True, "leave one model out"),
    Split("gpu", ("gpu",), True, "leave one GPU out"),
)


def split_named(name: str) -> Split:
    """The split of that name. Raises ValueError listing the known ones."""
    for split in SPLITS:
        if split.name == name:
            return split
    raise ValueError(f"Got split {name!r}, but expected {', '.join(s.name for s in SPLITS)}")


def groups_of(runs: pd.DataFrame, split: Split) -> Rows:
    """Number of each row's group under `split`, (rows,)."""
    columns = [name for name in split.columns if name in runs]
    frame = runs[columns].copy()
    for name in frame:
        if frame[name].dtype.kind in "fiu":
            frame[name] = frame[name].astype(float).fillna(-1.0)
        else:
            frame[name] = frame[name].astype(str)
    return np.asarray(frame.groupby(columns, sort=True).ngroup(), dtype=np.intp)


def why_absent(runs: pd.DataFrame, split: Split, folds: int = 5) -> str | None:
    """Why `runs` cannot be split so, or None where they can."""
    n_groups = len(np.unique(groups_of(runs, split)))
    if split.leave_one_out:
        if n_groups < 2:
            return (
                f"needs at least 2 different values of {split.columns[0]}, the runs have {n_groups}"
            )
        return None
    if n_groups < folds:
        return f"needs at least {folds} different groups, the runs have {n_groups}"
    return None


def split_runs(
    runs: pd.DataFrame, split: Split | str, folds: int = 5, seed: int = 0
) -> Iterator[tuple[Rows, Rows]]:
    """Yield (training rows, held-out rows) as positions.

    Groups are dealt out at random in near-equal numbers of rows; leave-one-out yields one fold
    per group. Raises ValueError where the data cannot make the split.
    """
    split = split_named(split) if isinstance(split, str) else split
    reason = why_absent(runs, split, folds)
    if reason:
        raise ValueError(f"split {split.name!r} cannot be made: {reason}")
    groups = groups_of(runs, split)
    n_groups = int(groups.max()) + 1
    if split.leave_one_out and n_groups < MANY_GROUPS:
        fold_of_group = np.arange(n_groups)
    elif split.leave_one_out:
        fold_of_group = _deal(np.bincount(groups), 10, seed)
    else:
        fold_of_group = _deal(np.bincount(groups), folds, seed)
    fold = fold_of_group[groups]
    for number in range(int(fold_of_group.max()) + 1):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def _deal(sizes: Rows, folds: int, seed: int) -> Rows:
    """Fold of each group: shuffled, then each dealt to the fold with the fewest rows."""
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")] if sizes.max() > 1 else order
    fold = np.empty(len(sizes), dtype=np.intp)
    filled = np.zeros(folds)
    for group in order:
        fold[group] = int(filled.argmin())
        filled[fold[group]] += sizes[group]
    return fold
