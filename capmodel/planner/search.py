"""All candidates against one demand: sized or set aside, each with its reason."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from capmodel.costs import Price, gpu_price
from capmodel.planner.candidate import Candidate
from capmodel.planner.demand import Demand
from capmodel.planner.replica import DoesNotFit, Replica, Setting, replica_of
from capmodel.planner.sizing import Capacity, Operation, Option, fleet_operation, size
from capmodel.shapes import ModelShape
from capmodel.units import format_seconds
from capmodel.workload import Slo

# Fleets beyond the smallest that are looked at for the trade of cost against latency.
_LARGER = (1.0, 1.25, 1.5, 2.0, 3.0)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate set aside. stage: "memory", "step time", "price" or "slo".

    capacity: what it reaches under hardly any load, where the SLO is what stops it.
    """

    candidate: Candidate
    stage: str
    reason: str
    replica: Replica | None = None
    capacity: Capacity | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """Options by cost, the cheapest first, and everything set aside."""

    options: tuple[Option, ...]
    rejections: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A fleet that none is both cheaper and faster than."""

    option: Option
    replicas: int
    dollars_per_hour: float
    operation: Operation


def search(
    shape: ModelShape,
    candidates: Iterable[Candidate],
    demand: Demand,
    slo: Slo,
    setting: Setting,
    price: float | Mapping[str, float] | None = None,
    prices_required: bool = False,
) -> Search:
    """Size every candidate.

    prices_required: an unknown price is an error (the GPUs were named), not a reason to set the
    GPU aside.
    """
    options: list[Option] = []
    rejections: list[Rejection] = []
    for candidate in candidates:
        try:
            cost = gpu_price(candidate.gpu, price)
        except ValueError as error:
            if prices_required or price is not None:
                raise
            rejections.append(Rejection(candidate, "price", str(error)))
            continue
        outcome = _one(shape, candidate, demand, slo, setting, cost)
        if isinstance(outcome, Option):
            options.append(outcome)
        else:
            rejections.append(outcome)
    options.sort(key=lambda option: (option.dollars_per_hour, option.estimate.e2e_mean_s))
    return Search(tuple(options), tuple(rejections))


def _one(
    shape: ModelShape,
    candidate: Candidate,
    demand: Demand,
    slo: Slo,
    setting: Setting,
    price: Price,
) -> Option | Rejection:
    try:
        replica = replica_of(shape, candidate, setting)
    except DoesNotFit as error:
        stage = "step time" if str(error).startswith("step time") else "memory"
        return Rejection(candidate, stage, str(error))
    outcome = size(replica, price, demand, slo)
    if isinstance(outcome, Option):
        return outcome
    reason = slo_reason(outcome, slo)
    return Rejection(candidate, "slo", reason, replica, outcome)


def slo_reason(capacity: Capacity, slo: Slo) -> str:
    """`'TPOT p95 61 ms with hardly any load, promised 50 ms'`."""
    name = capacity.excess_by
    limit = getattr(slo, f"{name}_s") or 0.0
    return (
        f"{name.upper()} p{slo.percentile:g} {format_seconds(limit * capacity.excess)} with hardly "
        f"any load, promised {format_seconds(limit)}"
    )


def pareto(options: Sequence[Option], demand: Demand) -> tuple[FrontPoint, ...]:
    """Fleets that none beats on both cost [$/h] and mean time per request [s], by cost."""
    fleets = [
        (count * option.dollars_per_hour / option.replicas, count, option)
        for option in options
        for count in sorted({round(option.replicas * factor) for factor in _LARGER})
    ]
    front: list[FrontPoint] = []
    best = float("inf")
    fleets.sort(key=lambda fleet: fleet[:2])
    for dollars, same in itertools.groupby(fleets, key=lambda fleet: fleet[0]):
        points = [
            FrontPoint(option, count, dollars, operation)
            for _, count, option in same
            # A lightly loaded replica is no faster than with one sequence.
            if option.fastest_s < best
            and (operation := fleet_operation(option.curve, demand, count)) is not None
        ]
        fastest = min(points, key=lambda point: point.operation.e2e_mean_s, default=None)
        if fastest is not None and fastest.operation.e2e_mean_s < best:
            best = fastest.operation.e2e_mean_s
            front.append(fastest)
    return tuple(front)
