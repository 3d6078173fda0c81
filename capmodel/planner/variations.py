"""What-ifs: one thing changed, the rest as planned.

They are steady-state estimates. Where the plan was simulated they are held to what that found, so
that the plan's own row is the plan: see `HeldTo`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from capmodel.costs import Price
from capmodel.gpus import Gpu
from capmodel.memory import attention_variants
from capmodel.planner.apart import Split, split_of
from capmodel.planner.candidate import Candidate
from capmodel.planner.demand import Demand, changed
from capmodel.planner.held import HeldTo, held_to
from capmodel.planner.pool import pool_batch
from capmodel.planner.replica import DoesNotFit, Setting, replica_of
from capmodel.planner.sizing import Capacity, Case, Operation, Option, fleet_operation, size
from capmodel.planner.verify import Verified, run_fleet
from capmodel.shapes import ModelShape
from capmodel.workload import Slo

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
class Planned:
    """What the variations vary."""

    shape: ModelShape
    option: Option
    demand: Demand
    slo: Slo
    setting: Setting
    held: HeldTo
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that changes, None as planned.

    held: what its own simulation found, if any. together: no replicas for
    prompts alone; split: as another option has them.
    """

    name: str
    note: str = ""
    shape: ModelShape | None = None
    candidate: Candidate | None = None
    demand: Demand | None = None
    price: Price | None = None
    held: HeldTo | None = None
    together: bool = False
    split: Split | None = None


def what_ifs(planned: Planned, other: Option | None, run: Verified | None = None) -> list[WhatIf]:
    """The table of what-ifs.

    other: the best option on another GPU, None where there is none; run: as it was simulated.
    """
    rows = list(_changes(planned, other, run))
    changes = [row for row in rows if isinstance(row, Change)]
    sized = dict(zip(map(id, changes), resized(planned, changes), strict=True))
    return [row if isinstance(row, WhatIf) else sized[id(row)] for row in rows]


def resized(planned: Planned, changes: Sequence[Change]) -> list[WhatIf]:
    """The option sized again with each of the changes."""
    cases: list[Case | WhatIf] = [_case(planned, change) for change in changes]
    outcomes = iter(size([case for case in cases if isinstance(case, Case)], planned.slo))
    found = []
    for change, case in zip(changes, cases, strict=True):
        if isinstance(case, WhatIf):
            found.append(case)
            continue
        outcome, held = next(outcomes), change.held or planned.held
        fits = pool_batch(case.replica, case.demand.mix, 0.0)
        if isinstance(outcome, Option):
            found.append(_sized(change, outcome, case.demand, held, fits, planned.slo))
        else:
            found.append(_unsized(change, outcome, held, fits))
    return found


def _case(planned: Planned, change: Change) -> Case | WhatIf:
    """What is to be sized; or, where it cannot be, why."""
    load, shape = change.demand or planned.demand, change.shape or planned.shape
    limit = shape.max_context
    if limit is not None and load.longest > limit:
        note = f"requests of {load.longest:,} tokens pass the limit of {limit:,}"
        return WhatIf(change.name, note)
    setting = replace(planned.setting, longest_request=load.longest)
    candidate = change.candidate or planned.option.replica.candidate
    try:
        replica = replica_of(shape, candidate, setting)
    except DoesNotFit as error:
        return WhatIf(change.name, str(error))
    split = None if change.together else change.split or planned.option.split
    price = change.price or planned.option.price
    return Case(replica, price, load, shape, split is not None, split)


def _sized(
    change: Change, option: Option, load: Demand, held: HeldTo, fits: float, slo: Slo
) -> WhatIf:
    count, now = _fleet(option, load, held, slo)
    gpus = count * option.replica.candidate.tp
    ttft, tpot = held.ttft * now.ttft_p95_s, held.tpot * now.tpot_p95_s
    missed = " and ".join(name.upper() for name in slo.missed(ttft, tpot))
    notes = (change.note, f"{missed} is missed however many" if missed else "")
    return WhatIf(
        change.name,
        "; ".join(note for note in notes if note),
        count,
        gpus,
        gpus * option.price.estimate,
        fits,
        ttft,
        tpot,
    )


def _fleet(option: Option, load: Demand, held: HeldTo, slo: Slo) -> tuple[int, Operation]:
    """The smallest that keeps the promises by what the simulation found, from the estimate up.

    The first where none does: a promise that hardly any load misses.
    """
    first = held.whole(option.share_of_capacity(load))
    found, count = None, first
    while count <= 2 * first + 2:
        now = fleet_operation(option.curve, load, count)
        if now is not None:  # else below what the estimate can sustain
            found = found or (count, now)
            if not slo.missed(held.ttft * now.ttft_p95_s, held.tpot * now.tpot_p95_s):
                return count, now
        count = max(count + 1, math.ceil(1.05 * count))
    return found or (option.replicas, option.estimate)


def _unsized(change: Change, capacity: Capacity, held: HeldTo, fits: float) -> WhatIf:
    reached = capacity.lightest
    if reached is None:
        return WhatIf(change.name, "no load is light enough", fits=fits)
    return WhatIf(
        change.name,
        f"{capacity.excess_by.upper()} is missed with hardly any load",
        fits=fits,
        ttft_p95_s=held.ttft * reached.ttft_p95_s,
        tpot_p95_s=held.tpot * reached.tpot_p95_s,
    )


def _changes(
    planned: Planned, other: Option | None, run: Verified | None
) -> Iterator[Change | WhatIf]:
    own, load = planned.option.replica.candidate, planned.demand
    yield Change("as planned")
    cache = "bf16" if own.kv_dtype.startswith("fp8") else "fp8"
    yield Change(f"{cache} cache", candidate=replace(own, kv_dtype=cache))
    for name, variant in attention_variants(planned.shape).items():
        if variant is not planned.shape:
            yield Change(f"{name} attention", "the same model with another cache", shape=variant)
    limit = planned.shape.max_context
    cut = f", cut at the model's limit of {limit:,}" if limit else ""
    longer = changed(load, prompt=2, max_context=limit)
    yield Change("prompts doubled", f"prompts twice as long{cut}", demand=longer)
    yield Change("half the load", demand=changed(load, load=0.5))
    if other is not None:
        yield Change(
            f"another GPU: {other.replica.candidate.name}",
            candidate=other.replica.candidate,
            price=other.price,
            held=None if run is None else held_to(other, run, load),
            together=other.split is None,
            split=other.split,
        )
    if planned.option.split is not None:
        yield Change(
            "prompts and decoding together", "every replica does both", held=HeldTo(), together=True
        )
    elif planned.simulated and 1 < planned.option.replicas <= _MOST_APART:
        yield _apart(planned)
    if load.mix.hit_share > 0:
        yield Change("prefix cache off", demand=changed(load, prefix_cache=False))
    else:
        yield Change(
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
    split = split_of(planned.shape, own, load.mix.input_mean, prompts, option.replicas - prompts)
    run = run_fleet(replace(option, split=split), load, planned.slo)
    missed = " and ".join(name.upper() for name in run.missed)
    return WhatIf(
        f"prompts apart: {prompts} + {option.replicas - prompts} replicas",
        "simulated; prompts on replicas of their own, their cache sent over "
        f"{split.over}" + (f"; {missed} is missed" if missed else ""),
        option.replicas,
        option.n_gpus,
        option.dollars_per_hour,
        pool_batch(replica, load.mix, 0.0),
        run.summary.ttft_p95_s,
        run.summary.tpot_p95_s,
    )


def best_elsewhere(options: tuple[Option, ...], gpu: Gpu) -> Option | None:
    """The cheapest option on another GPU."""
    return next((one for one in options if one.replica.candidate.gpu.name != gpu.name), None)
