"""Which runs to make next: those that shrink the uncertainty of all others most.

The log of a step time is uncertain in its coefficients (which known pair the new one is like, and
how far it lies from that one) and in what the roofline misses near it (as the correction's kernel
sees it). Both together are taken for a Gaussian process over a grid of feasible steps; runs are
chosen one by one for the reduction of the grid's mean variance (the V-optimal design of Bayesian
experiments, see Chaloner and Verdinelli 1995). Measured times do not enter, so runs can be planned
before any is made.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.estimators import Roofline
from capmodel.features import add_features
from capmodel.gpus import Gpu, load_gpu
from capmodel.known_pairs import SMOOTH, candidates_of, shortest
from capmodel.kvcache import check_tp
from capmodel.matern import matern
from capmodel.regressor import coordinates
from capmodel.roofline import design
from capmodel.runs import GPU_COLUMNS
from capmodel.shapes import load_shape

Array = npt.NDArray[np.float64]

# What a run is taken to scatter by in log seconds: twice what runs do, for those that go wrong.
SCATTER = 0.06
# A candidate further off than this in log seconds is told from the others by any run, so it must
# not decide which: it counts as this far off.
FARTHEST = 0.5

DESCRIBED = ("engine", "gpu", "model", "tp", "weight_dtype", "kv_dtype", "batch_size",
             "context_len")  # fmt: skip
BATCHES = tuple(2**power for power in range(11))
CONTEXTS = tuple(2**power for power in range(8, 18))
# Share of the marketed memory that weights and cache may fill in a suggested run.
FILLED = 0.9
# Steps that a design weighs against each other: their covariance is a square of that side.
MOST_STEPS = 2500


def feasible_steps(
    models: Sequence[str], gpu: str | Gpu, engine: str, tps: Sequence[int], weight_dtype: str,
    kv_dtype: str,
) -> pd.DataFrame:  # fmt: skip
    """Decode steps that fit in memory, on a grid of batch and context, with their features.

    At most MOST_STEPS of them, evenly spread. Raises ValueError for unknown names, where no model
    divides by any tp, and where no step fits.
    """
    deployed = [(model, tp) for model in dict.fromkeys(models) for tp in tps if _splits(model, tp)]
    if not deployed:
        for model, tp in itertools.product(models, tps):
            check_tp(load_shape(model), tp)  # says which tp would do
        raise ValueError("Got no model or no tp, but expected one of each at least")
    grid = pd.DataFrame(
        ((*one, *step) for one in deployed for step in itertools.product(BATCHES, CONTEXTS)),
        columns=["model", "tp", "batch_size", "context_len"],
    ).assign(engine=engine, weight_dtype=weight_dtype, kv_dtype=kv_dtype)
    grid = grid.assign(**_columns(gpu, weight_dtype))
    longest = {model: load_shape(model).max_context or CONTEXTS[-1] for model in models}
    grid = grid[grid["context_len"] <= grid["model"].map(longest)]
    featured = add_features(grid.reset_index(drop=True))
    stored = featured["weight_stored_bytes"] + featured["kv_stored_bytes"]
    fits = stored <= FILLED * featured["gpu_memory_bytes"]
    if not fits.any():
        raise ValueError(
            f"Got {', '.join(models)} on {load_gpu(gpu).name} at tp {', '.join(map(str, tps))}: "
            "no step fits in its memory; name more GPUs (--tp) or a narrower weight dtype"
        )
    kept = featured[fits]
    some = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), MOST_STEPS)).astype(int))
    return kept.iloc[some].reset_index(drop=True)


def _columns(gpu: str | Gpu, weight_dtype: str) -> dict[str, Any]:
    """What a runs table says of a GPU: its name, and its figures where no catalogue has them."""
    card = load_gpu(gpu)
    try:
        if load_gpu(card.name) == card:
            return {"gpu": card.name}
    except ValueError:
        pass
    own = card.memory_bytes, card.bandwidth_bytes_per_s, card.matmul_flops_per_s(weight_dtype)
    return {"gpu": card.name, **dict(zip(GPU_COLUMNS, own, strict=True))}


def _splits(model: str, tp: int) -> bool:
    shape = load_shape(model)
    try:
        check_tp(shape, tp)
    except ValueError:
        return False
    return True


def suggest(
    physics: Roofline, steps: pd.DataFrame, n: int, measured: pd.DataFrame | None = None
) -> pd.DataFrame:
    """The `n` steps to measure next, best first, with the typical error left after each.

    steps: what can be run, rows of `add_features` of one engine and GPU. measured: rows of that
    pair there are already. Columns of the answer: those that describe a run, and
    `typical_error`, a share of the step time; `attrs["typical_error"]` is what it is before.
    """
    pair = str(steps["engine"].iloc[0]), str(steps["gpu"].iloc[0])
    known = steps.iloc[:0] if measured is None else measured
    both = pd.concat([steps, known], ignore_index=True)
    between = covariance(physics, both, pair)
    between = conditioned(between, np.arange(len(steps), len(both)))[: len(steps), : len(steps)]
    chosen, errors = most_telling(between, n)
    before = float(np.sqrt(np.diag(between).mean()))
    found = steps.loc[chosen, [*DESCRIBED]].assign(typical_error=errors)
    found.attrs["typical_error"] = before
    return found.reset_index(drop=True)


def covariance(physics: Roofline, steps: pd.DataFrame, pair: tuple[str, str]) -> Array:
    """Covariance of the log step times of an engine and GPU with no rows, (steps, steps).

    steps: rows of `add_features`.
    """
    candidates = candidates_of(physics.roofline, pair)
    terms, points = design(steps), coordinates(steps)
    seconds = candidates.seconds(terms, shortest(steps))
    middle = _middle(np.log(seconds), candidates.weights)
    ways = []  # in which log step times may be off together, (steps, ways)
    for place, likely in enumerate(candidates.weights):
        shares = terms * candidates.spreads[place] / seconds[place][:, None]
        off = (np.log(seconds[place]) - middle)[:, None]
        ways += [np.sqrt(likely) * _no_farther(off), np.sqrt(likely) * _no_farther(shares)]
    among = np.hstack(ways)
    missed = (SMOOTH * candidates.typical) ** 2 * matern(points, points)
    return np.asarray(among @ among.T + candidates.apart(seconds) ** 2 + missed)


def _middle(logs: Array, weights: Array) -> Array:
    """Weighted median over candidates, (steps,). logs: (candidates, steps)."""
    order = np.argsort(logs, axis=0)
    place = (np.cumsum(weights[order], axis=0) >= 0.5 * weights.sum()).argmax(axis=0)
    return np.take_along_axis(logs, np.take_along_axis(order, place[None], axis=0), axis=0)[0]


def _no_farther(off: Array) -> Array:
    """`off`, (steps, ways), drawn in to a root mean square of FARTHEST at most."""
    typical = float(np.sqrt((off**2).sum() / len(off)))
    return off * min(1.0, FARTHEST / max(typical, 1e-12))


def conditioned(between: Array, measured: npt.NDArray[np.intp]) -> Array:
    """`between` after the steps at positions `measured` are known up to SCATTER."""
    if not len(measured):
        return between
    known = between[np.ix_(measured, measured)] + SCATTER**2 * np.eye(len(measured))
    across = between[:, measured]
    return np.asarray(between - across @ np.linalg.solve(known, across.T))


def most_telling(
    between: Array, n: int, candidates: npt.NDArray[np.intp] | None = None
) -> tuple[npt.NDArray[np.intp], Array]:
    """Positions of `n` steps to measure, best first, and the typical error after each, (n,).

    between: covariance of the steps. candidates: positions that can be measured, all by default.
    The typical error is the root mean variance of all steps, as a share of the step time.
    """
    open_to = np.arange(len(between)) if candidates is None else np.asarray(candidates)
    left = between.copy()
    chosen: list[int] = []
    errors: list[float] = []
    for _ in range(min(n, len(open_to))):
        variance = np.diag(left)[open_to] + SCATTER**2
        gain = (left[:, open_to] ** 2).sum(axis=0) / variance
        gain[np.isin(open_to, chosen)] = -1.0
        best = int(open_to[gain.argmax()])
        chosen.append(best)
        left = left - np.outer(left[:, best], left[best]) / (left[best, best] + SCATTER**2)
        errors.append(float(np.sqrt(max(np.diag(left).mean(), 0.0))))
    return np.array(chosen, dtype=np.intp), np.array(errors)
