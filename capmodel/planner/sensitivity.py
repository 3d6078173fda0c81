"""Sensitivities: what the fleet costs at the two ends of each input, the rest as planned.

Steady-state estimates, held to the simulation where there is one: see `HeldTo`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from capmodel.planner.apart import apart_curves
from capmodel.planner.curve import load_curves
from capmodel.planner.demand import Demand, changed
from capmodel.planner.search import slo_reason
from capmodel.planner.sizing import Capacity, capacities
from capmodel.planner.variations import Planned


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Cost of the fleet at the two ends of one input.

    low, high: the plan's cost `base` times the change in capacity needed, as if replicas came in
    fractions [$/h]. low_gpus, high_gpus: GPUs of whole replicas.
    """

    name: str
    low_input: str
    high_input: str
    low: float
    high: float
    base: float
    low_gpus: int
    high_gpus: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An input without a sensitivity, because no fleet keeps the promises at one of its ends."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Input:
    """Its two ends: in words, as demands, and as factors on the step time."""

    name: str
    said: tuple[str, str]
    demands: tuple[Demand, Demand]
    scales: tuple[float, float] = (1.0, 1.0)


def sensitivities(planned: Planned) -> tuple[list[Sensitivity], list[LeftOut]]:
    """Cost against each input, the widest first; and the inputs without, each with the reason."""
    load, price = planned.demand, planned.option.price
    inputs = list(_inputs(planned))
    reached = iter(_capacities(planned, inputs))
    rows, left_out = [], []
    for one in inputs:
        ends = next(reached), next(reached)
        blocked = next((place for place, end in enumerate(ends) if end.rate <= 0), None)
        if blocked is None:
            low, high = (
                end.replicas_for(demand) for end, demand in zip(ends, one.demands, strict=True)
            )
            rows.append(_row(planned, one.name, one.said, (low, high)))
        else:
            why = slo_reason(ends[blocked], planned.slo)
            left_out.append(LeftOut(one.name, f"no fleet at {one.said[blocked]}: {why}"))
    own, dear = planned.option.share_of_capacity(load), price.estimate or 1.0
    said = (f"${price.low:.2f}/GPU-hour", f"${price.high:.2f}/GPU-hour")
    rows.append(_row(planned, "price", said, (own, own), (price.low / dear, price.high / dear)))
    return sorted(rows, key=lambda row: -abs(row.high - row.low)), left_out


def _inputs(planned: Planned) -> Iterator[_Input]:
    load, replica = planned.demand, planned.option.replica
    said = ("- 25 %", "+ 25 %")
    yield _Input("load", said, (changed(load, load=0.75), changed(load, load=1.25)))
    yield _Input("prompt length", said, (changed(load, prompt=0.75), changed(load, prompt=1.25)))
    yield _Input("output length", said, (changed(load, output=0.75), changed(load, output=1.25)))
    low, high = replica.low_factor, replica.high_factor
    yield _Input("step time", (f"x {low:.3f}", f"x {high:.3f}"), (load, load), (low, high))


def _capacities(planned: Planned, inputs: Sequence[_Input]) -> list[Capacity]:
    """What a replica carries at the two ends of each input, one after the other."""
    demands = [demand for one in inputs for demand in one.demands]
    option, many = planned.option, len(demands)
    if option.split is None:
        curves = load_curves(
            [option.replica] * many,
            [one.mix for one in demands],
            [one.peakedness for one in demands],
        )
    else:  # divided in the same proportion
        curves = apart_curves([option.replica] * many, demands, [option.split] * many)
    scales = np.array([scale for one in inputs for scale in one.scales])
    return capacities(curves.scaled(scales), planned.slo)


def _row(
    planned: Planned,
    name: str,
    inputs: tuple[str, str],
    shares: tuple[float, float],
    prices: tuple[float, float] = (1.0, 1.0),
) -> Sensitivity:
    """shares: replicas needed at the two ends; prices: factors."""
    low, high = shares
    own = planned.option.share_of_capacity(planned.demand)
    base, tp = planned.option.dollars_per_hour, planned.option.replica.candidate.tp
    return Sensitivity(
        name,
        *inputs,
        low=base * low / own * prices[0],
        high=base * high / own * prices[1],
        base=base,
        low_gpus=tp * planned.held.whole(low),
        high_gpus=tp * planned.held.whole(high),
    )
