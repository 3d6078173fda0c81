"""What-ifs and sensitivities: one thing changed, the rest as planned."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from capmodel.costs import Price
from capmodel.gpus import Gpu
from capmodel.memory import attention_variants
from capmodel.planner.candidate import Candidate
from capmodel.planner.curve import load_curve, pool_batch
from capmodel.planner.demand import Demand, changed
from capmodel.planner.replica import DoesNotFit, Setting, replica_of
from capmodel.planner.sizing import Option, capacity_of, size
from capmodel.shapes import ModelShape
from capmodel.workload import Slo


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One change. Figures are None where it cannot be; `note` says why, or what was assumed.

    fits: sequences the pool of a replica holds, median over lengths. Latencies are estimates of
    the steady state [s].
    """

    name: str
    note: str
    replicas: int | None = None
    n_gpus: int | None = None
    dollars_per_hour: float | None = None
    fits: float | None = None
    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Cost of the fleet [$/h] at the two ends of one input; replicas are taken as fractions."""

    name: str
    low_input: str
    high_input: str
    low: float
    high: float
    base: float


@dataclass(frozen=True, slots=True)
class Planned:
    """What the variations vary."""

    shape: ModelShape
    option: Option
    demand: Demand
    slo: Slo
    setting: Setting

    def resized(
        self,
        name: str,
        note: str = "",
        *,
        shape: ModelShape | None = None,
        candidate: Candidate | None = None,
        demand: Demand | None = None,
        price: Price | None = None,
    ) -> WhatIf:
        """The option sized again with one thing changed."""
        own = self.option.replica.candidate
        load = demand or self.demand
        limit = (shape or self.shape).max_context
        if limit is not None and load.longest > limit:
            return WhatIf(name, f"requests of {load.longest:,} tokens pass the limit of {limit:,}")
        setting = replace(self.setting, longest_request=load.longest)
        try:
            replica = replica_of(shape or self.shape, candidate or own, setting)
        except DoesNotFit as error:
            return WhatIf(name, str(error))
        fits = pool_batch(replica, load.mix, 0.0)
        outcome = size(replica, price or self.option.price, load, self.slo)
        if not isinstance(outcome, Option):
            reached = outcome.lightest
            if reached is None:
                return WhatIf(name, "no load is light enough", fits=fits)
            return WhatIf(
                name,
                f"{outcome.excess_by.upper()} is missed with hardly any load",
                fits=fits,
                ttft_p95_s=reached.ttft_p95_s,
                tpot_p95_s=reached.tpot_p95_s,
            )
        return WhatIf(
            name,
            note,
            outcome.replicas,
            outcome.n_gpus,
            outcome.dollars_per_hour,
            fits,
            outcome.estimate.ttft_p95_s,
            outcome.estimate.tpot_p95_s,
        )


def what_ifs(planned: Planned, other: Option | None) -> list[WhatIf]:
    """The table of what-ifs. other: the best option on another GPU, None where there is none."""
    return list(_what_ifs(planned, other))


def _what_ifs(planned: Planned, other: Option | None) -> Iterator[WhatIf]:
    own, load = planned.option.replica.candidate, planned.demand
    yield planned.resized("as planned, by estimate")
    cache = "bf16" if own.kv_dtype.startswith("fp8") else "fp8"
    yield planned.resized(f"{cache} cache", candidate=replace(own, kv_dtype=cache))
    for name, variant in attention_variants(planned.shape).items():
        if variant is not planned.shape:
            yield planned.resized(
                f"{name} attention", "the same model with another cache", shape=variant
            )
    limit = planned.shape.max_context
    cut = f", cut at the model's limit of {limit:,}" if limit else ""
    longer = changed(load, prompt=2, max_context=limit)
    yield planned.resized("prompts doubled", f"prompts twice as long{cut}", demand=longer)
    yield planned.resized("half the load", demand=changed(load, load=0.5))
    if other is not None:
        yield planned.resized(
            f"another GPU: {other.replica.candidate.name}",
            candidate=other.replica.candidate,
            price=other.price,
        )
    if load.mix.hit_share > 0:
        yield planned.resized("prefix cache off", demand=changed(load, prefix_cache=False))
    else:
        yield planned.resized(
            "prefix cache on",
            "half of every prompt found: an assumption, nothing is known of shared prefixes",
            demand=changed(load, hit_share=0.5),
        )


def sensitivities(planned: Planned) -> list[Sensitivity]:
    """Cost against each input, the widest first."""
    option, load = planned.option, planned.demand
    base = _cost(planned, load)
    if base is None:
        return []
    found = []
    replica, price = option.replica, option.price
    share = price.estimate or 1.0
    ends = {
        "step time": (
            f"x {replica.low_factor:.2f}",
            f"x {replica.high_factor:.2f}",
            _cost(planned, load, scale=replica.low_factor),
            _cost(planned, load, scale=replica.high_factor),
        ),
        "price": (
            f"${price.low:.2f}/GPU-hour",
            f"${price.high:.2f}/GPU-hour",
            base * price.low / share,
            base * price.high / share,
        ),
    }
    for name, key in (("load", "load"), ("prompt length", "prompt"), ("output length", "output")):
        low, high = (changed(load, **{key: factor}) for factor in (0.75, 1.25))  # type: ignore[arg-type]
        ends[name] = ("- 25 %", "+ 25 %", _cost(planned, low), _cost(planned, high))
    for name, (low_input, high_input, low_cost, high_cost) in ends.items():
        if low_cost is not None and high_cost is not None:
            found.append(Sensitivity(name, low_input, high_input, low_cost, high_cost, base))
    found.sort(key=lambda row: -abs(row.high - row.low))
    return found


def _cost(planned: Planned, demand: Demand, scale: float = 1.0) -> float | None:
    """$/h of the fractional fleet; None where the promises cannot be kept at all."""
    option = planned.option
    curve = load_curve(option.replica, demand.mix, demand.peakedness, scale)
    capacity = capacity_of(curve, demand, planned.slo)
    if capacity.rate <= 0:
        return None
    clients = demand.concurrency
    replicas = clients / capacity.clients if clients else (demand.rate or 0.0) / capacity.rate
    return replicas * option.replica.candidate.tp * option.price.estimate


def best_elsewhere(options: tuple[Option, ...], gpu: Gpu) -> Option | None:
    """The cheapest option on another GPU."""
    return next((one for one in options if one.replica.candidate.gpu.name != gpu.name), None)
