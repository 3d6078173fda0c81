"""How many clients to let in, and what happens above."""

import math
from dataclasses import dataclass

import numpy as np

from capmodel.planner.demand import Demand
from capmodel.planner.mix import LengthMix
from capmodel.planner.pool import overflow_risk, pool_batch
from capmodel.planner.replica import Replica
from capmodel.planner.sizing import Option

_STEPS = (0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
_Z = {"p5": 1.6448536, "p50": 0.0, "p95": -1.6448536}


@dataclass(frozen=True, slots=True)
class Risk:
    """Chance that `sequences` decoding ones per replica overflow the pool, and preempt."""

    sequences: int
    overflow: float


@dataclass(frozen=True, slots=True)
class ClientCap:
    """Limits to set.

    max_num_seqs: sequences a replica should admit: as many as the promises allow, and overflow
    the pool with a chance of at most 1 %. clients: requests in flight to let into the fleet.
    fits: sequences a replica's pool holds over the mix of lengths: 5th, 50th, 95th percentile.
    limited_by: what sets the cap. risks: above and below it. prompts_max_num_seqs: for replicas
    that only read prompts, as many as one step's tokens and the pool hold; None without them.
    """

    max_num_seqs: int
    clients: int
    fits: dict[str, float]
    limited_by: str
    risks: tuple[Risk, ...]
    prompts_max_num_seqs: int | None = None


def client_cap(option: Option, demand: Demand) -> ClientCap:
    """The cap for `option`: the last batch within the promises and within the pool."""
    replica, mix = option.replica, demand.mix
    fits = {name: pool_batch(replica, mix, z) for name, z in _Z.items()}
    safe = pool_batch(replica, mix)
    by_promise = option.capacity.batch * option.replicas / option.decoders
    # The promises bound the average batch; the cap bounds its peaks.
    by_promise += 1.6448536 * float(np.sqrt(demand.peakedness * by_promise))
    limits = {
        "cache": safe,
        "max_num_seqs": float(replica.limits.max_num_seqs),
        option.capacity.limited_by: min(by_promise, safe, float(replica.limits.max_num_seqs)),
    }
    name = min(limits, key=lambda key: limits[key])
    cap = max(1, int(limits[name]))
    waiting = max(1.0, option.capacity.clients / max(option.capacity.batch, 1e-9))
    counts = sorted({max(1, round(cap * step)) for step in _STEPS} | {max(1, round(fits["p50"]))})
    return ClientCap(
        max_num_seqs=cap,
        clients=max(1, int(cap * waiting)) * option.decoders,
        fits=fits,
        limited_by=name,
        risks=tuple(Risk(n, overflow_risk(replica, mix, n)) for n in counts),
        prompts_max_num_seqs=None if option.split is None else _prompts(replica, mix),
    )


def _prompts(replica: Replica, mix: LengthMix) -> int:
    """Prompts, short ones, that fill a step, and one that begins in it; no more than fit."""
    short = max(1.0, float(np.percentile(mix.prompt - mix.hits, 5)))
    step = math.ceil(replica.limits.max_num_batched_tokens / short) + 1
    blocks = float(np.asarray(replica.cost.blocks(mix.prompt), dtype=float).mean())
    held = int(replica.pool_blocks / max(blocks, 1.0))
    return max(1, min(step, held, replica.limits.max_num_seqs))
