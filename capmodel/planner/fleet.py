"""The chosen fleet in money, energy and reserve."""

from dataclasses import dataclass, replace

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
    """Share of a GPU's memory that shared prefixes hold: those of the simulated requests, once."""
    requests = demand.requests
    if not demand.prefix_cache or not len(requests.prefix_ids) or not demand.cached_mean:
        return 0.0
    replica = option.replica
    distinct = len(set(requests.prefix_ids.tolist())) * requests.prefix_block
    held = float(replica.cost.slope_bytes) * distinct
    return min(held, replica.budget.cache_bytes) / replica.budget.capacity_bytes


def _spare(option: Option, demand: Demand, slo: Slo) -> Spare:
    per_replica = option.dollars_per_hour / option.replicas
    rest = None
    if option.replicas > 1:
        rest = fleet_operation(option.curve, demand, option.replicas - 1)
    keeps = rest is not None and not slo.missed(rest.ttft_p95_s, rest.tpot_p95_s)
    return Spare(option.replicas + 1, (option.replicas + 1) * per_replica, rest, keeps)
