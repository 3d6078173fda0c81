"""How many replicas of a candidate a demand needs, and what users then feel."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from capmodel.costs import Price
from capmodel.planner.apart import (
    Split,
    apart_curves,
    decode_curves,
    split_for,
    split_of,
)
from capmodel.planner.curve import ARRAYS, Array, LoadCurve, LoadCurves, load_curves, stacked
from capmodel.planner.demand import Demand
from capmodel.planner.replica import Replica, at_work
from capmodel.planner.rows import interpolated
from capmodel.shapes import ModelShape
from capmodel.workload import Slo


@dataclass(frozen=True, slots=True)
class Operation:
    """A fleet at work: per replica `batch` sequences decode and `rate` requests/s arrive.

    ttft, tpot, e2e: mean and 95th percentile [s]. utilisation: rate over the highest
    the replica sustains. prefill_share, cache_share: of the step time. All estimated from the
    steady state, not simulated.
    """

    batch: float
    rate: float
    step_s: float
    ttft_mean_s: float
    ttft_p95_s: float
    tpot_mean_s: float
    tpot_p95_s: float
    e2e_mean_s: float
    e2e_p95_s: float
    utilisation: float
    prefill_share: float
    cache_share: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most a replica carries within the promises.

    rate: requests/s; clients: in a closed loop; batch: decoding sequences. limited_by: what
    stops more load: "ttft", "tpot", "e2e", "cache", "max_num_seqs", "max_num_batched_tokens" or
    "throughput". excess: the worst ratio of a value to its promise with hardly any load (above
    1: no load is light enough); excess_by: which promise; lightest: that operation, where asked.
    """

    rate: float
    clients: float
    batch: float
    limited_by: str
    excess: float
    excess_by: str
    lightest: Operation | None = None

    def replicas_for(self, demand: Demand) -> float:
        """Replicas that `demand` takes, as a fraction; infinite where one carries nothing."""
        if self.rate <= 0:
            return math.inf
        if demand.concurrency is not None:
            return demand.concurrency / self.clients
        return (demand.rate or 0.0) / self.rate


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate sized for the demand; replicas_low and _high at the ends of the step time.

    curve, estimate: at the estimate of the step time; low, high: at its ends. split: replicas for
    prompts alone and for decoding alone, None where all do both; the curve is then that of the
    average replica."""

    replica: Replica
    price: Price
    replicas: int
    replicas_low: int
    replicas_high: int
    capacity: Capacity
    curve: LoadCurve
    estimate: Operation
    low: Operation
    high: Operation
    split: Split | None = None

    @property
    def decoders(self) -> int:
        """Replicas that decode: all of them, unless some are for prompts alone."""
        return self.replicas if self.split is None else self.split.decode

    @property
    def divided(self) -> str:
        """`' (3 for prompts, 5 decode)'`; nothing where every replica does both."""
        split = self.split
        return "" if split is None else f" ({split.prompts} for prompts, {split.decode} decode)"

    @property
    def decode_batch(self) -> float:
        """Sequences that a decoding replica holds at the demand, by the estimate."""
        return self.estimate.batch * self.replicas / self.decoders

    @property
    def n_gpus(self) -> int:
        """GPUs of the fleet."""
        return self.replicas * self.replica.candidate.tp

    def share_of_capacity(self, demand: Demand) -> float:
        """Replicas that `demand` takes by the estimate, as a fraction."""
        return self.capacity.replicas_for(demand)

    @property
    def dollars_per_hour(self) -> float:
        """The fleet's cost [$/h]."""
        return self.n_gpus * self.price.estimate


def capacity_of(curve: LoadCurve, slo: Slo) -> Capacity:
    """Where along `curve` a promise is passed first."""
    return capacities(stacked([curve]), slo)[0]


def capacities(curves: LoadCurves, slo: Slo) -> list[Capacity]:
    """Where along each of the curves a promise is passed first."""
    clients = curves.batch + curves.rate * curves.ttft_s
    ratios = _ratios(curves, slo)
    if not ratios:
        ends = zip(
            curves.rate[:, -1].tolist(),
            clients[:, -1].tolist(),
            curves.batch[:, -1].tolist(),
            curves.top_by,
            strict=True,
        )
        return [Capacity(*end, excess=0.0, excess_by="") for end in ends]
    names, table = list(ratios), np.array(list(ratios.values()))
    worst = table.max(axis=0)
    over = worst > 1
    at = np.where(over.any(axis=1), np.argmax(over, axis=1), worst.shape[1] - 1)
    rows, before = np.arange(len(at)), np.maximum(at - 1, 0)
    cut = over[rows, at]
    rise = np.where(cut, worst[rows, at] - worst[rows, before], 1.0)
    share = np.where(cut, (1 - worst[rows, before]) / np.where(rise, rise, 1.0), 1.0)
    rate, most, batch = (
        values[rows, before] + share * (values[rows, at] - values[rows, before])
        for values in (curves.rate, clients, curves.batch)
    )
    first, limit = table[:, :, 0].argmax(axis=0), table[:, rows, at].argmax(axis=0)
    found = []
    for row in range(len(at)):
        excess, by = float(worst[row, 0]), names[first[row]]
        if excess > 1:
            found.append(Capacity(0.0, 0.0, 0.0, by, excess, by))
            continue
        stop = names[limit[row]] if cut[row] else curves.top_by[row]
        found.append(
            Capacity(float(rate[row]), float(most[row]), float(batch[row]), stop, excess, by)
        )
    return found


def _ratios(curves: LoadCurves, slo: Slo) -> dict[str, Array]:
    promised = {
        "ttft": (curves.ttft_p95_s, slo.ttft_s),
        "tpot": (curves.tpot_p95_s, slo.tpot_s),
        "e2e": (curves.e2e_p95_s, slo.e2e_s),
    }
    return {name: value / limit for name, (value, limit) in promised.items() if limit is not None}


def operations(curves: LoadCurves, demands: Sequence[Demand], batch: Array) -> list[Operation]:
    """The operation of a replica of each curve that decodes `batch` sequences, (n,)."""
    names = [name for name in ARRAYS if name not in ("batch", "front_s")]
    arrays = [getattr(curves, name) for name in names]
    found = dict(zip(names, interpolated(curves.batch, batch, arrays), strict=True))
    first = curves.batch[:, 0]
    rate = np.where(batch < first, found["rate"] * (batch / first), found["rate"])
    steps = np.array([one.mix.steps_mean for one in demands])
    further = np.array([bool(one.mix.steps.any()) for one in demands])
    step, ttft = found["step_s"], found["ttft_s"]
    columns = (
        batch,
        rate,
        step,
        ttft,
        found["ttft_p95_s"],
        np.where(further, step, 0.0),
        found["tpot_p95_s"],
        ttft + steps * step,
        found["e2e_p95_s"],
        rate / curves.rate[:, -1],
        found["prefill_share"],
        found["cache_share"],
    )
    return [Operation(*row) for row in zip(*(one.tolist() for one in columns), strict=True)]


def fleet_operation(curve: LoadCurve, demand: Demand, replicas: float) -> Operation | None:
    """What each of `replicas` does at the demand; None where it cannot keep up."""
    return fleet_operations(stacked([curve]), [demand], [replicas])[0]


def fleet_operations(
    curves: LoadCurves, demands: Sequence[Demand], replicas: Sequence[float]
) -> list[Operation | None]:
    """What each of `replicas` of each curve does at its demand; None where it cannot keep up."""
    counts = np.asarray(replicas, dtype=float)
    closed = np.array([one.concurrency is not None for one in demands])
    share = np.array([float(one.concurrency or one.rate or 0.0) for one in demands]) / counts
    clients = curves.batch + curves.rate * curves.ttft_s
    # More clients than the replica admits wait; the batch stays at its top.
    (held,) = interpolated(clients, share, [curves.batch])
    few = curves.batch[:, 0] * share / clients[:, 0]
    held = np.where(share > clients[:, 0], held, few)
    batch = np.where(closed, held, curves.at_rate(share))
    keeps_up = ~np.isnan(batch)
    found = operations(curves, demands, np.where(keeps_up, batch, curves.batch[:, -1]))
    return [one if able else None for one, able in zip(found, keeps_up, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A replica of `shape` at its price under a demand, to be sized.

    apart: some replicas for prompts alone; split: in which proportion, None takes the best.
    """

    replica: Replica
    price: Price
    demand: Demand
    shape: ModelShape
    apart: bool = False
    split: Split | None = None


def size(cases: Sequence[Case], slo: Slo) -> list[Option | Capacity]:
    """The fleet of each case; or, where no load is light enough, its capacity of zero."""
    outcomes: dict[int, Option | Capacity] = {}
    for apart in (False, True):
        rows = [row for row, case in enumerate(cases) if case.apart == apart]
        own = [cases[row] for row in rows]
        if own:
            found = _apart(own, slo) if apart else _sized(own, curves_of(own), slo)
            outcomes |= dict(zip(rows, found, strict=True))
    return [outcomes[row] for row in range(len(cases))]


def curves_of(cases: Sequence[Case]) -> LoadCurves:
    """The steady state of each case's replica that does both, prompts and decoding."""
    return load_curves(
        [case.replica for case in cases],
        [case.demand.mix for case in cases],
        [case.demand.peakedness for case in cases],
    )


def _apart(cases: Sequence[Case], slo: Slo) -> list[Option | Capacity]:
    """The divided fleet of each case; a capacity of zero where a promise stops any load."""
    curves = decode_curves([case.replica for case in cases], [case.demand for case in cases])
    alone = capacities(curves, replace(slo, ttft_s=None, e2e_s=None))
    outcomes: list[Option | Capacity] = list(alone)
    rows, splits = [], []
    for row, (case, capacity) in enumerate(zip(cases, alone, strict=True)):
        if capacity.rate <= 0:
            continue
        if case.split is not None:
            rows.append(row)
            splits.append(case.split)
            continue
        counts = split_for(case.replica, case.demand, slo, capacity.rate, capacity.batch)
        if counts is None:
            outcomes[row] = replace(capacity, rate=0.0, excess_by="ttft")
            continue
        rows.append(row)
        tokens = case.demand.mix.input_mean
        splits.append(split_of(case.shape, case.replica.candidate, tokens, *counts))
    if rows:
        own = [cases[row] for row in rows]
        curves = apart_curves([one.replica for one in own], [one.demand for one in own], splits)
        for row, outcome in zip(rows, _sized(own, curves, slo, splits), strict=True):
            outcomes[row] = outcome
    return outcomes


def _sized(
    cases: Sequence[Case], curves: LoadCurves, slo: Slo, splits: Sequence[Split] | None = None
) -> list[Option | Capacity]:
    replicas, demands = [case.replica for case in cases], [case.demand for case in cases]
    least = [1] * len(cases)
    if splits is not None:
        given = [case.split is not None for case in cases]
        least = [
            2 if own else one.prompts + one.decode for one, own in zip(splits, given, strict=True)
        ]
    estimate = capacities(curves, slo)
    lightest = operations(curves, demands, curves.batch[:, 0])
    estimate = [replace(one, lightest=least) for one, least in zip(estimate, lightest, strict=True)]
    counts = [
        _replicas(one, demand, few)
        for one, demand, few in zip(estimate, demands, least, strict=True)
    ]
    fleets = {row: count for row, count in enumerate(counts) if count is not None}
    outcomes: list[Option | Capacity] = list(estimate)
    if not fleets:
        return outcomes
    rows, sizes = list(fleets), list(fleets.values())
    loads, alone = [demands[row] for row in rows], curves.take(rows)
    now, working, divided = [], [], []
    for row, own in zip(rows, fleet_operations(alone, loads, sizes), strict=True):
        if own is None:
            raise RuntimeError(f"{replicas[row].candidate.name}: sized below its own load")
        split = None if splits is None else splits[row].resized(fleets[row])
        batch = own.batch * (1.0 if split is None else fleets[row] / split.decode)
        now.append(own)
        divided.append(split)
        working.append(at_work(replicas[row], batch, demands[row].mix.held_mean))
    ends = [
        alone.scaled(np.array([getattr(one, name) for one in working]))
        for name in ("low_factor", "high_factor")
    ]
    low, high = (capacities(one, slo) for one in ends)
    at_low, at_high = (fleet_operations(one, loads, sizes) for one in ends)
    at_end = operations(ends[1], loads, ends[1].batch[:, -1])
    for place, row in enumerate(rows):
        few = 1 if splits is None else 2
        fewest, most = (_replicas(end[place], loads[place], few) for end in (low, high))
        outcomes[row] = Option(
            replica=working[place],
            price=cases[row].price,
            replicas=sizes[place],
            replicas_low=fewest or sizes[place],
            replicas_high=most or 0,
            capacity=estimate[row],
            curve=curves.row(row),
            estimate=now[place],
            low=at_low[place] or now[place],
            high=at_high[place] or _overloaded(at_end[place]),
            split=divided[place],
        )
    return outcomes


def resplit(option: Option, demand: Demand, slo: Slo, split: Split) -> Option | None:
    """The divided fleet of `option` divided otherwise; None where it could not keep up."""
    curves = apart_curves([option.replica], [demand], [split])
    count = split.prompts + split.decode
    ends = [
        fleet_operations(curves.scaled(np.array([factor])), [demand], [count])[0]
        for factor in (option.replica.low_factor, 1.0, option.replica.high_factor)
    ]
    low, now, high = ends
    if now is None:
        return None
    (capacity,) = capacities(curves, slo)
    return replace(
        option,
        replicas=count,
        split=split,
        curve=curves.row(0),
        capacity=replace(capacity, lightest=option.capacity.lightest),
        low=low or now,
        estimate=now,
        high=high or option.high,
    )


def _replicas(capacity: Capacity, demand: Demand, least: int = 1) -> int | None:
    """Whole replicas for the demand, at least so many; None where one carries nothing."""
    share = capacity.replicas_for(demand)
    return max(least, math.ceil(share - 1e-9)) if math.isfinite(share) else None


def _overloaded(end: Operation) -> Operation:
    """Past the curve's `end`: the queue grows, so waits have no bound."""
    infinite = float("inf")
    return replace(
        end,
        ttft_mean_s=infinite,
        ttft_p95_s=infinite,
        e2e_mean_s=infinite,
        e2e_p95_s=infinite,
        utilisation=1.0,
    )
