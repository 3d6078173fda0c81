"""All candidates against one demand: sized or set aside, each with its reason."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from capmodel.costs import gpu_price
from capmodel.planner.candidate import Candidate
from capmodel.planner.curve import stacked
from capmodel.planner.demand import Demand
from capmodel.planner.replica import DoesNotFit, Replica, Setting, replica_of
from capmodel.planner.sizing import Capacity, Case, Operation, Option, fleet_operations, size
from capmodel.shapes import ModelShape
from capmodel.units import format_seconds
from capmodel.workload import Slo

# Fleets beyond the smallest that are looked at for the trade of cost against latency.
_LARGER = (1.0, 1.25, 1.5, 2.0, 3.0)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate set aside. stage: "tp", "memory", "step time", "price", "slo" or "simulation".

    capacity: what it reaches under hardly any load, where the SLO is what stops it. lacking_bytes:
    of each GPU's memory, where that is known.
    """

    candidate: Candidate
    stage: str
    reason: str
    replica: Replica | None = None
    capacity: Capacity | None = None
    lacking_bytes: float | None = None


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
    disaggregate: bool = False,
) -> Search:
    """Size every candidate.

    prices_required: an unknown price is an error (the GPUs were named), not a reason to set the
    GPU aside. disaggregate: every candidate also with some replicas for prompts alone.
    """
    rejections: list[Rejection | None] = []
    cases: list[Case] = []
    places: list[int] = []
    for candidate in candidates:
        rejections.append(None)
        try:
            cost = gpu_price(candidate.gpu, price)
        except ValueError as error:
            if prices_required or price is not None:
                raise
            rejections[-1] = Rejection(candidate, "price", str(error))
            continue
        try:
            replica = replica_of(shape, candidate, setting)
        except DoesNotFit as error:
            lacking = error.lacking_bytes
            rejections[-1] = Rejection(candidate, error.stage, str(error), lacking_bytes=lacking)
            continue
        cases.append(Case(replica, cost, demand, shape))
        places.append(len(rejections) - 1)
    options: list[Option] = []
    for case, place, outcome in zip(cases, places, size(cases, slo), strict=True):
        if isinstance(outcome, Option):
            options.append(outcome)
        else:
            reason = slo_reason(outcome, slo)
            own = case.replica
            rejections[place] = Rejection(own.candidate, "slo", reason, own, outcome)
    if disaggregate:
        divided = size([replace(case, apart=True) for case in cases], slo)
        options += [one for one in divided if isinstance(one, Option)]
    options.sort(key=lambda option: (option.dollars_per_hour, option.estimate.e2e_mean_s))
    return Search(tuple(options), tuple(one for one in rejections if one is not None))


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
    fleets.sort(key=lambda fleet: fleet[:2])
    if not fleets:
        return ()
    places = {id(option): place for place, option in enumerate(options)}
    curves = stacked([option.curve for option in options])
    curves = curves.take([places[id(option)] for _, _, option in fleets])
    loads, counts = [demand] * len(fleets), [float(count) for _, count, _ in fleets]
    points = [
        FrontPoint(option, count, dollars, operation)
        for (dollars, count, option), operation in zip(
            fleets, fleet_operations(curves, loads, counts), strict=True
        )
        if operation is not None
    ]
    front: list[FrontPoint] = []
    best = float("inf")
    for _, same in itertools.groupby(points, key=lambda point: point.dollars_per_hour):
        fastest = min(same, key=lambda point: point.operation.e2e_mean_s)
        if fastest.operation.e2e_mean_s < best:
            best = fastest.operation.e2e_mean_s
            front.append(fastest)
    return tuple(front)
