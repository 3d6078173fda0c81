"""Steady-state estimates held to what the simulation of the plan found."""

import math
from dataclasses import dataclass

from capmodel.planner.demand import Demand
from capmodel.planner.sizing import Option
from capmodel.planner.verify import Verified


@dataclass(frozen=True, slots=True)
class HeldTo:
    """What the simulation of the plan found over its own estimate: factors, 1 without one.

    replicas: on the capacity needed; ttft, tpot: on the latencies.
    """

    replicas: float = 1.0
    ttft: float = 1.0
    tpot: float = 1.0

    def whole(self, share: float) -> int:
        """Replicas for `share` of one by the estimate."""
        return max(1, math.ceil(share * self.replicas - 1e-9))


def held_to(chosen: Option, run: Verified | None, demand: Demand) -> HeldTo:
    """The factors that make the estimate of the plan what its simulation found.

    More replicas than estimated: the last one that missed and the first that held leave the need
    between them, taken in the middle. Fewer: the need is at most what held.
    """
    share = chosen.share_of_capacity(demand)
    estimated = max(1, math.ceil(share - 1e-9))
    replicas = 1.0
    if chosen.replicas > estimated:
        replicas = (chosen.replicas - 0.5) / share
    elif chosen.replicas < estimated:
        replicas = chosen.replicas / share
    if run is None:
        return HeldTo(replicas)
    now = chosen.estimate
    return HeldTo(
        replicas,
        _over(run.summary.ttft_p95_s, now.ttft_p95_s),
        _over(run.summary.tpot_p95_s, now.tpot_p95_s),
    )


def _over(found: float, estimate: float) -> float:
    """The ratio; 1 where it is none (no second token, nothing to wait for)."""
    ratio = found / estimate if estimate > 0 else 1.0
    return ratio if 0 < ratio < float("inf") else 1.0
