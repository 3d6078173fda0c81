"""The chosen fleet in money, energy and reserve."""

from dataclasses import dataclass, replace

import numpy as np

from capmodel.costs import (
    API_PRICES,
    BreakEven,
    Energy,
    TokenCosts,
    TokenRates,
    break_even,
    energy,
    token_costs,
)
from capmodel.planner.demand import Demand
from capmodel.planner.sizing import Operation, Option, fleet_operation
from capmodel.workload import Slo


@dataclass(frozen=True, slots=True)
class Spare:
    """One replica more than needed, and what happens when one of the needed ones fails.

    one_fails: each of the rest at the busiest load, None where they cannot keep up.
    """

    replicas: int
    dollars_per_hour: float
    one_fails: Operation | None
    keeps_promises: bool


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the fleet costs at its mean load.

    dollars_per_hour: low, estimate, high, from the price range and the step time's interval.
    mean: operation of each replica at the mean load; rates: tokens of the fleet.
    capacity_per_s: requests/s within the promises.
    """

    dollars_per_hour: tuple[float, float, float]
    mean: Operation
    rates: TokenRates
    tokens: TokenCosts
    energy: Energy | None
    capacity_per_s: float
    break_evens: tuple[BreakEven, ...]
    spare: Spare


def fleet_of(option: Option, demand: Demand, slo: Slo) -> Fleet:
    """Costs, energy, break-even and reserve of `option`."""
    mean_demand = demand if demand.rate is None else replace(demand, rate=demand.mean_rate)
    mean = fleet_operation(option.curve, mean_demand, option.replicas) or option.estimate
    rate = demand.mean_rate if demand.mean_rate is not None else mean.rate * option.replicas
    rates = TokenRates(
        input_tok_s=rate * (demand.input_mean - demand.cached_mean),
        cached_tok_s=rate * demand.cached_mean,
        output_tok_s=rate * demand.output_mean,
    )
    tp, price = option.replica.candidate.tp, option.price
    capacity = option.capacity.rate * option.replicas
    cost = option.dollars_per_hour
    per_request = demand.input_mean + demand.output_mean
    return Fleet(
        dollars_per_hour=(
            min(option.replicas_low, option.replicas) * tp * price.low,
            cost,
            max(option.replicas_high, option.replicas) * tp * price.high,
        ),
        mean=mean,
        rates=rates,
        tokens=token_costs(cost, rates, mean.prefill_share, _prefix_share(option, demand)),
        energy=energy(option.replica.candidate.gpu, option.n_gpus, rates.output_tok_s),
        capacity_per_s=capacity,
        break_evens=tuple(
            break_even(cost, per_request, capacity, api_price) for api_price in API_PRICES
        )
        if cost > 0
        else (),
        spare=_spare(option, demand, slo),
    )


def _prefix_share(option: Option, demand: Demand) -> float:
    """Share of the pool that reused prefixes keep from others.

    Nothing where the pool has room: a block that nobody else wants costs nothing. Else the
    blocks that the simulated requests use more than once, each counted once.
    """
    requests = demand.requests
    if option.capacity.limited_by != "cache" or not demand.cached_mean:
        return 0.0
    _, uses = np.unique(requests.prefix_ids, return_counts=True)
    reused = int((uses > 1).sum()) * requests.prefix_block
    replica = option.replica
    return min(1.0, float(replica.cost.slope) * reused / replica.pool_blocks)


def _spare(option: Option, demand: Demand, slo: Slo) -> Spare:
    per_replica = option.dollars_per_hour / option.replicas
    rest = None
    # Of a divided fleet the last of a kind takes all with it.
    alone = option.split is not None and min(option.split.prompts, option.split.decode) == 1
    if option.replicas > 1 and not alone:
        rest = fleet_operation(option.curve, demand, option.replicas - 1)
    keeps = rest is not None and not slo.missed(rest.ttft_p95_s, rest.tpot_p95_s, rest.e2e_p95_s)
    return Spare(option.replicas + 1, (option.replicas + 1) * per_replica, rest, keeps)
