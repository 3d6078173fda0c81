"""No fleet does it: which comes closest, and what blocks it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from capmodel.planner.candidate import Candidate
from capmodel.planner.errors import InfeasiblePlan
from capmodel.planner.result import Plan
from capmodel.planner.search import Rejection, Search
from capmodel.planner.verify import Verified
from capmodel.units import format_dollars, format_seconds
from capmodel.workload import Slo


def infeasible(asked: Plan, found: Search) -> InfeasiblePlan:
    """Nothing fits, or no load is light enough for the promises.

    Raises ValueError where there was no candidate at all.
    """
    by_slo = [one for one in found.rejections if one.capacity is not None]
    if by_slo:
        closest = min(by_slo, key=lambda one: one.capacity.excess if one.capacity else 0.0)
        message = f"no candidate keeps the promises; the closest, {closest.candidate.name}: "
    elif found.rejections:
        closest = min(found.rejections, key=_missing)
        cannot = {"tp": "divide", "memory": "hold"}.get(closest.stage, "serve")
        message = (
            f"no candidate can {cannot} {asked.shape.name}; the closest, {closest.candidate.name}: "
        )
    else:
        raise ValueError("Got no candidate, but expected at least one GPU, tp and dtype")
    message += closest.reason
    failed = replace(asked, message=message, rejections=found.rejections, closest=closest)
    return InfeasiblePlan(message, failed)


def infeasible_by_simulation(
    asked: Plan, found: Search, tried: Sequence[Verified]
) -> InfeasiblePlan:
    """The estimates said yes, the simulation no."""
    nearest = min(tried, key=lambda run: _excess(run, asked.slo))
    closest = _rejection(nearest)
    message = f"no candidate keeps the promises; the closest, {closest.candidate.name}, "
    message += closest.reason
    failed = replace(
        asked,
        message=message,
        tried=tuple(tried),
        options=found.options,
        rejections=found.rejections,
        closest=closest,
    )
    return InfeasiblePlan(message, failed)


def missed_by_simulation(tried: Iterable[Verified]) -> list[Rejection]:
    """Candidates that were to do by estimate, and did not in the simulation."""
    return [_rejection(run) for run in tried if not run.holds]


def _rejection(run: Verified) -> Rejection:
    many = "s" if run.option.replicas > 1 else ""
    missing = " and ".join(name.upper() for name in run.missed)
    reason = (
        f"simulated with {run.option.replicas} replica{many} at "
        f"{format_dollars(run.option.dollars_per_hour)}/h: TTFT p95 {format_seconds(run.ttft_s)}, "
        f"TPOT p95 {format_seconds(run.tpot_s)}, E2E p95 {format_seconds(run.e2e_s)}, "
        f"missing {missing}"
    )
    return Rejection(run.option.replica.candidate, "simulation", reason, run.option.replica)


def _excess(run: Verified, slo: Slo) -> float:
    """The worst ratio of a figure to its promise."""
    promised = ((run.ttft_s, slo.ttft_s), (run.tpot_s, slo.tpot_s), (run.e2e_s, slo.e2e_s))
    return max((value / limit for value, limit in promised if limit is not None), default=0.0)


def _missing(rejection: Rejection) -> tuple[bool, float, float]:
    """Nearest to fitting first: the least missing, then the largest memory of all its GPUs."""
    lacking = math.inf if rejection.lacking_bytes is None else rejection.lacking_bytes
    candidate: Candidate = rejection.candidate
    return (rejection.stage != "memory", lacking, -candidate.gpu.memory_bytes * candidate.tp)
