"""What-ifs and sensitivities: one thing changed, the rest as planned.

They are steady-state estimates. Where the plan was simulated they are held to what that found, so
that the plan's own row is the plan: see `HeldTo`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from capmodel.costs import Price
from capmodel.gpus import Gpu
from capmodel.kvcache import growth_bytes_per_token
from capmodel.memory import attention_variants
from capmodel.planner.candidate import Candidate
from capmodel.planner.curve import load_curve, pool_batch
from capmodel.planner.demand import Demand, changed
from capmodel.planner.held import HeldTo, held_to
from capmodel.planner.replica import DoesNotFit, Setting, replica_of
from capmodel.planner.sizing import Option, capacity_of, fleet_operation, size
from capmodel.planner.verify import Verified, run_apart
from capmodel.shapes import ModelShape
from capmodel.workload import Slo

# One way, between two servers: a 400 Gbit/s adapter.
NETWORK_BYTES_PER_S = 50e9
# Fleets larger than this are not simulated whole, and so not divided either.
_MOST_APART = 8


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One change. Figures are None where it cannot be; `note` says why, or what was assumed.

    fits: sequences the pool of a replica holds, median over lengths. Latencies [s].
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
class Planned:
    """What the variations vary."""

    shape: ModelShape
    option: Option
    demand: Demand
    slo: Slo
    setting: Setting
    held: HeldTo
    simulated: bool = False

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
                ttft_p95_s=self.held.ttft * reached.ttft_p95_s,
                tpot_p95_s=self.held.tpot * reached.tpot_p95_s,
            )
        count = self.held.whole(outcome.share_of_capacity(load))
        now = fleet_operation(outcome.curve, load, count)
        if now is None:  # below what the estimate can sustain
            count, now = outcome.replicas, outcome.estimate
        gpus = count * outcome.replica.candidate.tp
        return WhatIf(
            name,
            note,
            count,
            gpus,
            gpus * outcome.price.estimate,
            fits,
            self.held.ttft * now.ttft_p95_s,
            self.held.tpot * now.tpot_p95_s,
        )


def what_ifs(planned: Planned, other: Option | None, run: Verified | None = None) -> list[WhatIf]:
    """The table of what-ifs.

    other: the best option on another GPU, None where there is none; run: as it was simulated.
    """
    return list(_what_ifs(planned, other, run))


def _what_ifs(planned: Planned, other: Option | None, run: Verified | None) -> Iterator[WhatIf]:
    own, load = planned.option.replica.candidate, planned.demand
    yield planned.resized("as planned")
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
        own_run = planned if run is None else replace(planned, held=held_to(other, run, load))
        yield own_run.resized(
            f"another GPU: {other.replica.candidate.name}",
            candidate=other.replica.candidate,
            price=other.price,
        )
    if planned.simulated and 1 < planned.option.replicas <= _MOST_APART:
        yield _apart(planned)
    if load.mix.hit_share > 0:
        yield planned.resized("prefix cache off", demand=changed(load, prefix_cache=False))
    else:
        yield planned.resized(
            "prefix cache on",
            "half of every prompt found: an assumption, nothing is known of shared prefixes",
            demand=changed(load, hit_share=0.5),
        )


def _apart(planned: Planned) -> WhatIf:
    """The plan's replicas divided into some for prompts and some for decoding, simulated."""
    option, load = planned.option, planned.demand
    replica, own = option.replica, option.replica.candidate
    prompts = round(option.replicas * option.estimate.prefill_share)
    prompts = min(max(1, prompts), option.replicas - 1)
    sent = growth_bytes_per_token(planned.shape, own.kv_dtype, own.tp) * own.tp
    run = run_apart(option, load, planned.slo, prompts, sent / NETWORK_BYTES_PER_S)
    missed = " and ".join(name.upper() for name in run.missed)
    return WhatIf(
        f"prompts apart: {prompts} + {option.replicas - prompts} replicas",
        "simulated; prompts on replicas of their own, their cache sent over a link of "
        f"{NETWORK_BYTES_PER_S / 1e9:g} GB/s" + (f"; {missed} is missed" if missed else ""),
        option.replicas,
        option.n_gpus,
        option.dollars_per_hour,
        pool_batch(replica, load.mix, 0.0),
        run.summary.ttft_p95_s,
        run.summary.tpot_p95_s,
    )


def sensitivities(planned: Planned) -> list[Sensitivity]:
    """Cost against each input, the widest first."""
    rows = [row for row in _sensitivities(planned) if row is not None]
    return sorted(rows, key=lambda row: -abs(row.high - row.low))


def _sensitivities(planned: Planned) -> Iterator[Sensitivity | None]:
    load, replica, price = planned.demand, planned.option.replica, planned.option.price
    for name, key in (("load", "load"), ("prompt length", "prompt"), ("output length", "output")):
        low, high = (
            _share(planned, changed(load, **{key: factor}))  # type: ignore[arg-type]
            for factor in (0.75, 1.25)
        )
        yield _row(planned, name, ("- 25 %", "+ 25 %"), (low, high))
    factors = (replica.low_factor, replica.high_factor)
    low, high = (_share(planned, load, scale) for scale in factors)
    yield _row(planned, "step time", (f"x {factors[0]:.2f}", f"x {factors[1]:.2f}"), (low, high))
    own, dear = planned.option.share_of_capacity(load), price.estimate or 1.0
    ends = (f"${price.low:.2f}/GPU-hour", f"${price.high:.2f}/GPU-hour")
    yield _row(planned, "price", ends, (own, own), (price.low / dear, price.high / dear))


def _row(
    planned: Planned,
    name: str,
    inputs: tuple[str, str],
    shares: tuple[float | None, float | None],
    prices: tuple[float, float] = (1.0, 1.0),
) -> Sensitivity | None:
    """shares: replicas needed at the two ends, None where nothing suffices; prices: factors."""
    low, high = shares
    if low is None or high is None:
        return None
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


def _share(planned: Planned, demand: Demand, scale: float = 1.0) -> float | None:
    """Replicas for `demand`, as a fraction; None where the promises cannot be kept at all."""
    curve = load_curve(planned.option.replica, demand.mix, demand.peakedness, scale)
    capacity = capacity_of(curve, demand, planned.slo)
    return None if capacity.rate <= 0 else capacity.replicas_for(demand)


def best_elsewhere(options: tuple[Option, ...], gpu: Gpu) -> Option | None:
    """The cheapest option on another GPU."""
    return next((one for one in options if one.replica.candidate.gpu.name != gpu.name), None)
