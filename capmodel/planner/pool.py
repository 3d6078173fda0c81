"""The cache pool of a replica under a mix of lengths: what it holds, and when it overflows."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from capmodel.kvcache import RequestCost
from capmodel.planner.mix import LengthMix
from capmodel.planner.replica import Replica

Z99 = 2.3263479


def pool_batch(replica: Replica, mix: LengthMix, z: float = Z99) -> float:
    """Decoding sequences that overflow the pool with a chance of no more than `z` says.

    Blocks of `n` sequences are about normal: `n * mean + z * sqrt(n) * sd = pool`.
    """
    mean, spread = _moments(replica.cost, mix, replica.scheduler.reserves_whole)
    return settle(replica.pool_blocks / mean, z * (spread / mean))


def overflow_risk(replica: Replica, mix: LengthMix, sequences: float) -> float:
    """Chance that `sequences` decoding ones need more blocks than there are."""
    mean, spread = _moments(replica.cost, mix, replica.scheduler.reserves_whole)
    spread *= math.sqrt(sequences)
    gap = replica.pool_blocks - sequences * mean
    if spread == 0:
        return 0.0 if gap >= 0 else 1.0
    return float(ndtr(-gap / spread))


def most_sequences(replica: Replica, mix: LengthMix, work_per_step: float) -> tuple[float, str]:
    """Decoding sequences a replica ever holds, and what stops more.

    work_per_step: prompt tokens each of them brings to a step. A step's token budget holds
    the decoding ones and their prompts.
    """
    limits = {
        "cache": pool_batch(replica, mix),
        "max_num_seqs": float(replica.limits.max_num_seqs),
        "max_num_batched_tokens": replica.limits.max_num_batched_tokens / (1 + work_per_step),
    }
    name = min(limits, key=lambda key: limits[key])
    return limits[name], name


def settle(most: float, reach: float) -> float:
    """The mean `n` for which `n + reach * sqrt(n) = most`."""
    root = (-reach + math.sqrt(reach**2 + 4 * most)) / 2
    return root**2


@lru_cache(maxsize=1024)
def _moments(cost: RequestCost, mix: LengthMix, whole: bool) -> tuple[float, float]:
    """Mean and deviation of the blocks of a decoding sequence at a random moment.

    whole: the scheduler sets prompt and output aside at admission.
    """
    tokens: NDArray[np.float64] = mix.final if whole else mix.held
    blocks = np.asarray(cost.blocks(tokens), dtype=float)
    return float(blocks.mean()), float(blocks.std())
