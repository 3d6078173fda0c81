"""Plan -> plain dict: the only place that names the keys of `plan.json`."""

import math
from dataclasses import asdict
from typing import Any

from capmodel import __version__
from capmodel.kvcache import growth_bytes_per_token
from capmodel.planner.apart import Split
from capmodel.planner.candidate import Candidate
from capmodel.planner.card import calibration_card
from capmodel.planner.demand import Demand
from capmodel.planner.doubts import unmeasured
from capmodel.planner.fleet import Fleet
from capmodel.planner.ledger import assumptions, not_modelled
from capmodel.planner.replica import DoesNotFit, interval_of, step_time_of
from capmodel.planner.result import Plan
from capmodel.planner.search import FrontPoint, Rejection
from capmodel.planner.shipped import calibration_for
from capmodel.planner.sizing import Operation, Option
from capmodel.planner.verify import Verified
from capmodel.simulation import StepTimeLike
from capmodel.weights import parameter_count

_ENDS = ("low", "estimate", "high")
_LENGTHS = tuple(1024 * 2**power for power in range(11))


def plan_dict(plan: Plan) -> dict[str, Any]:
    """All of `plan` as values that JSON has: what is infinite or not a number is None."""
    demand, shape = plan.demand, plan.shape
    document: dict[str, Any] = {
        "schema_version": 1,
        "kind": "plan",
        "package_version": __version__,
        "date": plan.date,
        "command": plan.command or None,
        "inputs": [dict(entry) for entry in plan.inputs],
        "seed": plan.seed,
        "feasible": plan.feasible,
        "message": plan.message,
        "warnings": list(plan.warnings),
        "model": {
            "name": shape.name,
            "parameters": parameter_count(shape),
            "layers": shape.n_layers,
            "max_context": shape.max_context,
        },
        "workload": {
            "source": demand.source,
            "requests": demand.n_requests,
            "rate": demand.rate,
            "mean_rate": demand.mean_rate,
            "concurrency": demand.concurrency,
            "cv": demand.cv,
            "input_mean": demand.input_mean,
            "cached_mean": demand.cached_mean,
            "output_mean": demand.output_mean,
            "longest": demand.longest,
            "refused": demand.refused,
            "prefix_cache": demand.prefix_cache,
            "hit_share": demand.mix.hit_share,
        },
        "slo": asdict(plan.slo),
        "engine": plan.setting.engine,
        "simulated": bool(plan.tried),
        "disaggregate": plan.disaggregate,
        "recommendation": None,
        "closest": None if plan.closest is None else _rejection(plan.closest),
    }
    if plan.chosen is not None and plan.fleet is not None:
        document |= _chosen(plan, plan.chosen, plan.fleet)
    elif plan.closest is not None:
        document |= _calibration_of_closest(plan, plan.closest)
    document |= {
        "alternatives": [_option(one) for one in plan.options if one is not plan.chosen],
        "tried": [_tried(one) for one in plan.tried],
        "rejected": [_rejection(one) for one in plan.rejections],
        "pareto": [_front(point) for point in plan.front],
        "what_ifs": [asdict(row) for row in plan.what_ifs],
        "sensitivities": [asdict(row) for row in plan.sensitivities],
        "sensitivities_left_out": [asdict(row) for row in plan.left_out],
        "not_modelled": list(not_modelled(plan.disaggregate)),
    }
    return {key: _plain(value) for key, value in document.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def _chosen(plan: Plan, option: Option, fleet: Fleet) -> dict[str, Any]:
    replica, price = option.replica, option.price
    return {
        "recommendation": {
            **_option(option),
            "replicas_low": min(option.replicas_low, option.replicas),
            "replicas_high": max(option.replicas_high, option.replicas),
            "dollars_per_hour": dict(zip(_ENDS, fleet.dollars_per_hour, strict=True)),
            "price_per_gpu_hour": asdict(price),
            "step_ruled_by": ruled_by(option.estimate),
            "step_basis": getattr(replica.step_time, "basis", None),
            "spare": asdict(fleet.spare),
            "mean_load": asdict(fleet.mean),
        },
        "measured_instead": None if plan.instead is None else _instead(plan.instead, plan.demand),
        "latency": _latency(plan, option),
        "simulation": None
        if not plan.verified
        else {**asdict(plan.verified[len(plan.verified) // 2].summary), **_about(plan.verified)},
        "costs": {
            **asdict(fleet.tokens),
            **asdict(fleet.rates),
            "capacity_per_s": fleet.capacity_per_s,
        },
        "break_even": [asdict(one) for one in fleet.break_evens],
        "energy": None if fleet.energy is None else asdict(fleet.energy),
        "memory": {
            "mode": replica.budget.mode,
            "fraction": replica.budget.fraction,
            "capacity_bytes": replica.budget.capacity_bytes,
            **replica.budget.parts(),
            "pool_blocks": replica.pool_blocks,
            "block_bytes": replica.cost.block_bytes,
            "growth_bytes_per_token": growth_bytes_per_token(
                plan.shape, replica.candidate.kv_dtype, replica.candidate.tp
            ),
        },
        "clients": None if plan.clients is None else asdict(plan.clients),
        "steps": [asdict(row) for row in plan.steps],
        "crossover": None if plan.crossover is None else asdict(plan.crossover),
        "fits": _fits(plan, option),
        "calibration": _calibration(
            plan, replica.candidate, replica.step_time, (replica.low_factor, replica.high_factor)
        ),
        "assumptions": [asdict(line) for line in assumptions(option, plan.demand, plan.setting)],
    }


def _fits(plan: Plan, option: Option) -> list[dict[str, Any]]:
    """Requests of one length that the pool of a replica holds, for lengths up to the limit."""
    replica = option.replica
    longest = plan.shape.max_context or max(_LENGTHS[3], plan.demand.longest)
    lengths = [length for length in _LENGTHS if length < longest] + [longest]
    return [
        {
            "context_len": length,
            "max_concurrency": int(replica.pool_blocks // int(replica.cost.blocks(length))),
        }
        for length in lengths
    ]


def _calibration(
    plan: Plan, candidate: Candidate, step_time: StepTimeLike, ends: tuple[float, float]
) -> dict[str, Any]:
    """What the step times of `candidate` rest on. ends: the factors at the ends of its interval."""
    found = {
        "id": str(getattr(step_time, "calibration_id", "")),
        "low_factor": ends[0],
        "high_factor": ends[1],
    }
    calibration = calibration_for(plan.setting, candidate.gpu.name)
    if calibration is None:
        return found
    return found | calibration_card(calibration, str(getattr(step_time, "basis", "")))


def _calibration_of_closest(plan: Plan, closest: Rejection) -> dict[str, Any]:
    """The same where no fleet was found; nothing where its step cannot be estimated at all."""
    try:
        step_time = step_time_of(plan.shape, closest.candidate, plan.setting)
    except DoesNotFit:
        return {}
    ends = interval_of(step_time)
    return {"calibration": _calibration(plan, closest.candidate, step_time, ends)}


def ruled_by(operation: Operation) -> str:
    """What most of a step goes into: "prompts", "cache" or "weights"."""
    rest = 1 - operation.prefill_share - operation.cache_share
    shares = {"prompts": operation.prefill_share, "cache": operation.cache_share, "weights": rest}
    return max(shares, key=lambda name: shares[name])


def _latency(plan: Plan, option: Option) -> dict[str, Any]:
    """Each figure at the low end, the estimate and the high end of the step time [s]."""
    if plan.verified:
        rows = [asdict(run.summary) for run in plan.verified]
        names = [name for name in rows[0] if name.startswith(("ttft", "tpot", "e2e"))]
    else:
        rows = [asdict(one) for one in (option.low, option.estimate, option.high)]
        names = [name for name in rows[0] if name.startswith(("ttft", "tpot", "e2e"))]
    figures = {name: dict(zip(_ENDS, (row[name] for row in rows), strict=True)) for name in names}
    return {"from": "simulation" if plan.verified else "steady-state estimate", **figures}


def _about(verified: tuple[Verified, ...]) -> dict[str, Any]:
    middle = verified[len(verified) // 2]
    return {"replicas_simulated": middle.replicas_simulated, "holds": middle.holds}


def _option(option: Option) -> dict[str, Any]:
    return {
        **_candidate(option.replica.candidate),
        "replicas": option.replicas,
        **_split(option.split),
        "n_gpus": option.n_gpus,
        "dollars_per_hour": option.dollars_per_hour,
        "limited_by": option.capacity.limited_by,
        "capacity_per_replica": option.capacity.rate,
        "estimate": asdict(option.estimate),
        "calibration_id": option.replica.calibration_id,
    }


def _split(split: Split | None) -> dict[str, Any]:
    """Replicas for prompts alone and for decoding alone; None where all do both."""
    return {
        "prefill_replicas": None if split is None else split.prompts,
        "decode_replicas": None if split is None else split.decode,
    }


def _candidate(candidate: Any) -> dict[str, Any]:
    return {
        "gpu": candidate.gpu.name,
        "tp": candidate.tp,
        "weight_dtype": candidate.weight_dtype,
        "kv_dtype": candidate.kv_dtype,
    }


def _instead(instead: Option | Verified, demand: Demand) -> dict[str, Any]:
    """A fleet that measured runs cover better; latencies as simulated, where it was [s]."""
    simulated = isinstance(instead, Verified)
    option = instead.option if isinstance(instead, Verified) else instead
    if isinstance(instead, Verified):
        ttft, tpot = instead.ttft_s, instead.tpot_s
    else:
        ttft, tpot = option.estimate.ttft_p95_s, option.estimate.tpot_p95_s
    return {
        **_option(option),
        "covered": "wholly" if unmeasured(option, demand) == 0 else "in part",
        "simulated": simulated,
        "ttft_p95_s": ttft,
        "tpot_p95_s": tpot,
    }


def _tried(run: Verified) -> dict[str, Any]:
    return {
        **_candidate(run.option.replica.candidate),
        "replicas": run.option.replicas,
        **_split(run.option.split),
        "dollars_per_hour": run.option.dollars_per_hour,
        "ttft_s": run.ttft_s,
        "tpot_s": run.tpot_s,
        "e2e_s": run.e2e_s,
        "missed": list(run.missed),
        "tries": run.tries,
    }


def _rejection(rejection: Rejection) -> dict[str, Any]:
    reached = rejection.capacity.lightest if rejection.capacity is not None else None
    return {
        **_candidate(rejection.candidate),
        "stage": rejection.stage,
        "reason": rejection.reason,
        "ttft_p95_s": None if reached is None else reached.ttft_p95_s,
        "tpot_p95_s": None if reached is None else reached.tpot_p95_s,
        "e2e_p95_s": None if reached is None else reached.e2e_p95_s,
    }


def _front(point: FrontPoint) -> dict[str, Any]:
    split = point.option.split
    return {
        **_candidate(point.option.replica.candidate),
        "replicas": point.replicas,
        **_split(split and split.resized(point.replicas)),
        "dollars_per_hour": point.dollars_per_hour,
        "e2e_mean_s": point.operation.e2e_mean_s,
        "ttft_p95_s": point.operation.ttft_p95_s,
        "tpot_p95_s": point.operation.tpot_p95_s,
        "e2e_p95_s": point.operation.e2e_p95_s,
    }
