"""Tokens per second against batch for one replica, and where the cache becomes the ceiling."""

from dataclasses import dataclass

import numpy as np

from capmodel.planner.curve import step_parts
from capmodel.planner.demand import Demand
from capmodel.planner.pool import pool_batch
from capmodel.planner.replica import Replica

_POINTS = 24


@dataclass(frozen=True, slots=True)
class StepRow:
    """One batch in the steady state: prompts of the load inside the step.

    step_s, tokens_per_s (output): low, estimate, high. fits: within the pool, 99 % of the time.
    Shares of the step: cache, prefill; the rest is weights and fixed work.
    """

    batch: int
    step_s: tuple[float, float, float]
    tokens_per_s: tuple[float, float, float]
    fits: bool
    cache_share: float
    prefill_share: float


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where more sequences stop helping, per replica.

    pool_full: batch at which the pool is full (median over lengths). cache_longest_from: batch
    from which reading the cache takes longer than all else a decode step does, None within the
    range. half_gain: batch from which doubling it gives less than a quarter more tokens/s.
    ceiling: in words.
    """

    pool_full: float
    cache_longest_from: float | None
    half_gain: float | None
    ceiling: str


def step_rows(replica: Replica, demand: Demand, apart: bool = False) -> list[StepRow]:
    """Rows from one sequence to a half more than the pool holds, at most `max_num_seqs`.

    apart: prompts are on replicas of their own.
    """
    mix = demand.mix
    safe = pool_batch(replica, mix)
    most = max(2.0, min(1.5 * pool_batch(replica, mix, 0.0), float(replica.limits.max_num_seqs)))
    batch = np.unique(np.geomspace(1, most, _POINTS).round())
    step, decode, bare = _of_one(replica, demand, batch, apart)
    factors = (replica.low_factor, 1.0, replica.high_factor)
    rows = []
    for index, size in enumerate(batch):
        seconds = tuple(float(step[index] * factor) for factor in factors)
        low, estimate, high = (float(size / value) for value in seconds)
        rows.append(
            StepRow(
                batch=int(size),
                step_s=(seconds[0], seconds[1], seconds[2]),
                tokens_per_s=(high, estimate, low),
                fits=bool(size <= safe),
                cache_share=float((decode[index] - bare[index]) / step[index]),
                prefill_share=float((step[index] - decode[index]) / step[index]),
            )
        )
    return rows


def crossover(replica: Replica, demand: Demand, apart: bool = False) -> Crossover:
    """Where the pool is full, where the cache rules the step, where batching stops paying."""
    full = pool_batch(replica, demand.mix, 0.0)
    top = max(2.0, 4 * max(full, float(replica.limits.max_num_seqs)))
    batch = np.geomspace(1, top, 96)
    step, decode, bare = _of_one(replica, demand, batch, apart)
    longest = _first(batch, decode - bare > bare)
    double = np.interp(2 * batch, batch, step)
    inside = 2 * batch <= top
    half = _first(batch, inside & (2 * step / double < 1.25))
    limit = float(replica.limits.max_num_seqs)
    if longest is not None and longest <= min(full, limit):
        ceiling = f"reading the cache, from batch {longest:.0f} on"
    elif full <= limit:
        ceiling = f"room in the cache, at batch {full:.0f}"
    else:
        ceiling = f"max_num_seqs, at batch {limit:.0f}"
    if half is not None and half < min(full, limit, longest or np.inf):
        ceiling = f"prompts and compute, from batch {half:.0f} on; then {ceiling}"
    return Crossover(full, longest, half, ceiling)


def _of_one(
    replica: Replica, demand: Demand, batch: np.ndarray, apart: bool
) -> tuple[np.ndarray, ...]:
    step, decode, bare = (part[0] for part in step_parts([replica], [demand.mix], batch[None]))
    return (decode if apart else step), decode, bare


def _first(batch: np.ndarray, true: np.ndarray) -> float | None:
    return float(batch[np.argmax(true)]) if true.any() else None
