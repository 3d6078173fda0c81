"""How many replicas of a candidate a demand needs, and what users then feel."""

import math
from dataclasses import dataclass, replace

import numpy as np

from capmodel.costs import Price
from capmodel.planner.curve import Array, LoadCurve, load_curve
from capmodel.planner.demand import Demand
from capmodel.planner.replica import Replica
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

    curve, estimate: at the estimate of the step time; low, high: at its ends."""

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

    @property
    def n_gpus(self) -> int:
        """GPUs of the fleet."""
        return self.replicas * self.replica.candidate.tp

    def share_of_capacity(self, demand: Demand) -> float:
        """Replicas that `demand` takes by the estimate, as a fraction."""
        return self.capacity.replicas_for(demand)

    @property
    def fastest_s(self) -> float:
        """Mean time of a request on a replica with hardly any load [s]."""
        lightest = self.capacity.lightest
        return 0.0 if lightest is None else lightest.e2e_mean_s

    @property
    def dollars_per_hour(self) -> float:
        """The fleet's cost [$/h]."""
        return self.n_gpus * self.price.estimate


def capacity_of(curve: LoadCurve, demand: Demand, slo: Slo) -> Capacity:
    """Where along `curve` a promise is passed first."""
    clients = curve.batch + curve.rate * curve.ttft_s
    ratios = _ratios(curve, slo)
    worst = np.max([*ratios.values(), np.zeros_like(curve.batch)], axis=0)
    first = max(ratios, key=lambda name: float(ratios[name][0]), default="")
    if worst[0] > 1:
        return Capacity(0.0, 0.0, 0.0, first, float(worst[0]), first)
    over = np.flatnonzero(worst > 1)
    if not len(over):
        return Capacity(
            rate=float(curve.rate[-1]),
            clients=float(clients[-1]),
            batch=float(curve.batch[-1]),
            limited_by=curve.top_by,
            excess=float(worst[0]),
            excess_by=first,
        )
    at = int(over[0])
    share = (1 - worst[at - 1]) / (worst[at] - worst[at - 1])
    limit = max(ratios, key=lambda name: float(ratios[name][at]))

    def between(values: Array) -> float:
        return float(values[at - 1] + share * (values[at] - values[at - 1]))

    return Capacity(
        rate=between(curve.rate),
        clients=between(clients),
        batch=between(curve.batch),
        limited_by=limit,
        excess=float(worst[0]),
        excess_by=first,
    )


def _ratios(curve: LoadCurve, slo: Slo) -> dict[str, Array]:
    ratios = {}
    if slo.ttft_s is not None:
        ratios["ttft"] = curve.ttft_p95_s / slo.ttft_s
    if slo.tpot_s is not None:
        ratios["tpot"] = curve.tpot_p95_s / slo.tpot_s
    if slo.e2e_s is not None:
        ratios["e2e"] = curve.e2e_p95_s / slo.e2e_s
    return ratios


def operation(curve: LoadCurve, demand: Demand, batch: float) -> Operation:
    """The operation of a replica that decodes `batch` sequences."""
    rate = curve.value("rate", batch)
    if batch < curve.batch[0]:
        rate *= batch / float(curve.batch[0])
    step, ttft = curve.value("step_s", batch), curve.value("ttft_s", batch)
    return Operation(
        batch=batch,
        rate=rate,
        step_s=step,
        ttft_mean_s=ttft,
        ttft_p95_s=curve.value("ttft_p95_s", batch),
        tpot_mean_s=step if demand.mix.steps.any() else 0.0,
        tpot_p95_s=curve.value("tpot_p95_s", batch),
        e2e_mean_s=ttft + demand.mix.steps_mean * step,
        e2e_p95_s=curve.value("e2e_p95_s", batch),
        utilisation=rate / float(curve.rate[-1]),
        prefill_share=curve.value("prefill_share", batch),
        cache_share=curve.value("cache_share", batch),
    )


def fleet_operation(curve: LoadCurve, demand: Demand, replicas: float) -> Operation | None:
    """What each of `replicas` does at the demand; None where it cannot keep up."""
    if demand.concurrency is not None:
        clients = curve.batch + curve.rate * curve.ttft_s
        share = demand.concurrency / replicas
        # More clients than the replica admits wait; the batch stays at its top.
        batch = float(np.interp(share, clients, curve.batch)) if share > clients[0] else float(
            curve.batch[0] * share / clients[0]
        )  # fmt: skip
        return operation(curve, demand, batch)
    batch = curve.at_rate((demand.rate or 0.0) / replicas)
    return None if math.isnan(batch) else operation(curve, demand, batch)


def size(replica: Replica, price: Price, demand: Demand, slo: Slo) -> Option | Capacity:
    """The fleet of this candidate; or, where no load is light enough, its capacity of zero."""
    scales = (replica.low_factor, 1.0, replica.high_factor)
    curve = load_curve(replica, demand.mix, demand.peakedness)
    curves = [curve.scaled(scale) for scale in scales]
    low, estimate, high = (capacity_of(curve, demand, slo) for curve in curves)
    lightest = operation(curve, demand, float(curve.batch[0]))
    estimate = replace(estimate, lightest=lightest)
    replicas = _replicas(estimate, demand)
    if replicas is None:
        return estimate
    operations = [fleet_operation(curve, demand, replicas) for curve in curves]
    now = operations[1]
    if now is None:
        raise RuntimeError(f"{replica.candidate.name}: sized below its own load")
    fewest, most = _replicas(low, demand), _replicas(high, demand)
    return Option(
        replica=replica,
        price=price,
        replicas=replicas,
        replicas_low=fewest or replicas,
        replicas_high=most or 0,
        capacity=estimate,
        curve=curves[1],
        estimate=now,
        low=operations[0] or now,
        high=operations[2] or _overloaded(curves[2], demand),
    )


def _replicas(capacity: Capacity, demand: Demand) -> int | None:
    """Whole replicas for the demand; None where one carries nothing."""
    share = capacity.replicas_for(demand)
    return max(1, math.ceil(share - 1e-9)) if math.isfinite(share) else None


def _overloaded(curve: LoadCurve, demand: Demand) -> Operation:
    """Past the curve's end: the queue grows, so waits have no bound."""
    end = operation(curve, demand, float(curve.batch[-1]))
    infinite = float("inf")
    return Operation(
        batch=end.batch,
        rate=end.rate,
        step_s=end.step_s,
        ttft_mean_s=infinite,
        ttft_p95_s=infinite,
        tpot_mean_s=end.tpot_mean_s,
        tpot_p95_s=end.tpot_p95_s,
        e2e_mean_s=infinite,
        e2e_p95_s=infinite,
        utilisation=1.0,
        prefill_share=end.prefill_share,
        cache_share=end.cache_share,
    )
