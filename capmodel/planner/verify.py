"""The best few by simulation: does the fleet keep its promises, and could it be smaller?"""

import math
from dataclasses import dataclass, replace

import numpy as np

from capmodel.planner.curve import load_curve
from capmodel.planner.demand import Demand, stretch_of
from capmodel.planner.sizing import Option, fleet_operation, resplit
from capmodel.simulation import PrefillPool, Server, Simulation, Summary, simulate, summarise
from capmodel.workload import Slo

# A large fleet is simulated as this many replicas with their share of the load, and as fewer where
# the requests would not fill them so many times over: a fleet that is still filling up is fast. A
# divided fleet is never cut below so many that its proportion is lost.
_MOST_REPLICAS = 8
_MOST_DIVIDED, _FEWEST_DIVIDED = 32, 8
_FILLS = 5.0
_MOST_TRIES = 6
# What is left out at the beginning: a share of the requests, and at least one filling.
_WARMUP, _MOST_WARMUP = 0.1, 0.5


@dataclass(frozen=True, slots=True)
class Verified:
    """A fleet as simulated.

    replicas_simulated: of the fleet, each with its share of the load. missed: promises not kept.
    ttft_s, tpot_s, e2e_s: at the promises' percentile [s]. tries: fleets simulated to find it.
    """

    option: Option
    summary: Summary
    replicas_simulated: int
    missed: tuple[str, ...]
    ttft_s: float
    tpot_s: float
    e2e_s: float
    tries: int

    @property
    def holds(self) -> bool:
        """Whether every promise is kept."""
        return not self.missed


def run_fleet(
    option: Option, demand: Demand, slo: Slo, step_scale: float = 1.0, server: Server | None = None
) -> Verified:
    """Simulate `option` once. server: its replica, where it has been made before."""
    split = option.split
    count = _simulated(option, demand)
    share = count / option.replicas
    server = server or server_of(option, demand)
    server = replace(server, step_scale=step_scale)
    requests, clients = demand.requests, None
    if demand.concurrency is not None:
        clients = max(1, round(demand.concurrency * share))
        requests = requests.head(stretch_of(clients))
    elif share < 1:
        requests = requests.at_rate(requests.rate * share)
    if split is None:
        result = simulate(requests, server, replicas=count, concurrency=clients)
    else:
        split = split if share == 1 else split.resized(count)
        prompts = PrefillPool(server, split.prompts, split.transfer_s_per_token)
        result = simulate(
            requests, server, replicas=split.decode, concurrency=clients, prefill=prompts
        )
    return _judged(option, result, count, slo, demand.concurrency is not None)


def _simulated(option: Option, demand: Demand) -> int:
    """Replicas to simulate for all of them."""
    most, fewest = _MOST_REPLICAS, 1
    if option.split is not None:
        most, fewest = _MOST_DIVIDED, _FEWEST_DIVIDED
    if demand.concurrency is None:  # a closed loop is full from its start
        filled = len(demand.requests) / (_FILLS * max(option.estimate.batch, 1.0))
        most = min(most, max(fewest, int(filled)))
    return min(option.replicas, most)


def server_of(option: Option, demand: Demand) -> Server:
    """The replica of `option` for the simulator, under `demand`."""
    return option.replica.server(demand.prefix_cache, demand.longest)


def _judged(option: Option, result: Simulation, count: int, slo: Slo, closed: bool) -> Verified:
    warmup = _WARMUP
    if not closed:
        filling = count * option.estimate.batch / len(result)
        warmup = min(max(_WARMUP, filling), _MOST_WARMUP)
    keep = slice(int(len(result) * warmup), None)
    ttft = float(np.percentile(result.ttft_s[keep], slo.percentile))
    tpots = result.tpot_s[keep]
    tpots = tpots[np.isfinite(tpots)]
    tpot = float(np.percentile(tpots, slo.percentile)) if len(tpots) else 0.0
    e2e = float(np.percentile(result.e2e_s[keep], slo.percentile))
    missed = slo.missed(ttft, tpot, e2e)
    return Verified(option, summarise(result, warmup), count, missed, ttft, tpot, e2e, 1)


def verify(option: Option, demand: Demand, slo: Slo, below: float = math.inf) -> Verified:
    """The smallest fleet of this candidate that keeps the promises in simulation.

    Starts at the estimate and steps up or down, never to a cost of `below` or more [$/h]; gives
    the last tried, promises kept or not.
    """
    if option.split is not None:
        return _verify_divided(option, demand, slo, below)
    server = server_of(option, demand)
    first = run_fleet(option, demand, slo, server=server)
    tries, best = 1, first
    step = max(1, round(option.replicas * 0.05))
    floor = _fewest_stable(option, demand)
    if first.holds:
        while tries < _MOST_TRIES and best.option.replicas - step >= floor:
            fewer = _with(option, demand, best.option.replicas - step)
            smaller = run_fleet(fewer, demand, slo, server=server)
            tries += 1
            if not smaller.holds:
                break
            best = smaller
    else:
        while tries < _MOST_TRIES and not best.holds:
            count = max(best.option.replicas + step, math.ceil(best.option.replicas * 1.1))
            if count * option.dollars_per_hour / option.replicas >= below:
                break
            best = run_fleet(_with(option, demand, count), demand, slo, server=server)
            tries += 1
    return replace(best, tries=tries)


def _verify_divided(option: Option, demand: Demand, slo: Slo, below: float) -> Verified:
    """As `verify`: the kind of replicas grows whose promise is missed, or each in turn shrinks."""
    server = server_of(option, demand)
    best = run_fleet(option, demand, slo, server=server)
    tries, step = 1, max(1, round(option.replicas * 0.05))
    shrinking = ["prompts", "decode"] if best.holds else []
    while tries < _MOST_TRIES and best.option.split is not None:
        split = best.option.split
        if shrinking:
            kind = shrinking[0]
            split = replace(split, **{kind: getattr(split, kind) - step})
        elif best.holds:
            break
        else:
            late = "ttft" in best.missed
            slow = "tpot" in best.missed or not late
            split = replace(
                split, prompts=split.prompts + step * late, decode=split.decode + step * slow
            )
        other = None
        if min(split.prompts, split.decode) >= 1:
            other = resplit(option, demand, slo, split)
        run = None
        if other is not None and other.dollars_per_hour < below:
            run = run_fleet(other, demand, slo, server=server)
            tries += 1
        if not shrinking and run is None:
            break
        if shrinking and (run is None or not run.holds):
            shrinking.pop(0)
        elif run is not None:
            best = run
    return replace(best, tries=tries)


def cover(
    option: Option, demand: Demand, slo: Slo, server: Server, slowest: Verified, tries: int = 3
) -> tuple[int, bool]:
    """Replicas that keep the promises at the slow end of the step time, and that they do.

    Where no try does: the most tried, and False. slowest: the option itself at that end.
    """
    count = option.replicas
    run = slowest
    for _ in range(tries):
        if run.holds:
            break
        count = max(count + 1, math.ceil(count * 1.1))
        more: Option | None
        if option.split is None:
            more = _with(option, demand, count)
        else:
            more = resplit(option, demand, slo, option.split.resized(count))
        if more is None:
            break
        run = run_fleet(more, demand, slo, option.replica.high_factor, server)
    return count, run.holds


def _fewest_stable(option: Option, demand: Demand) -> int:
    """Below this many replicas the queue grows without end."""
    if demand.rate is None:
        return 1
    curve = load_curve(option.replica, demand.mix, 0.0)
    return max(1, math.ceil(demand.rate / float(curve.rate[-1])))


def _with(option: Option, demand: Demand, replicas: int) -> Option:
    """The same candidate with another number of replicas."""
    scales = (option.replica.low_factor, 1.0, option.replica.high_factor)
    low, estimate, high = (
        fleet_operation(curve, demand, replicas)
        for curve in (option.curve.scaled(scale) for scale in scales)
    )
    return replace(
        option,
        replicas=replicas,
        low=low or option.low,
        estimate=estimate or option.estimate,
        high=high or option.high,
    )
