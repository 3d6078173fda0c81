"""`plan`: from a workload to GPUs, latency and money."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from os import PathLike
from pathlib import Path

import numpy as np

from capmodel.calibration import Calibration, load_calibration
from capmodel.gpus import Gpu, load_gpu
from capmodel.planner.candidate import Candidate, GpuLike, candidates
from capmodel.planner.clients import client_cap
from capmodel.planner.demand import Demand, demand
from capmodel.planner.errors import InfeasiblePlan
from capmodel.planner.fleet import fleet_of
from capmodel.planner.replica import MEMORY_FRACTION, CalibrationLike, Setting
from capmodel.planner.result import Plan, headline
from capmodel.planner.search import Rejection, Search, pareto, search
from capmodel.planner.sizing import Option
from capmodel.planner.steps import crossover, step_rows
from capmodel.planner.variations import Planned, best_elsewhere, sensitivities, what_ifs
from capmodel.planner.verify import Verified, cover, run_fleet, server_of, verify
from capmodel.prediction import choose_calibration
from capmodel.shapes import ModelLike, ModelShape, load_shape
from capmodel.simulation import StepTimeLike
from capmodel.steptime import StepTime
from capmodel.workload import Lengths, Requests, SharedPrefix, Slo

# Candidates that are simulated at most, the cheapest first.
_SIMULATED = 3


def plan(
    model: ModelLike,
    gpu: GpuLike | Sequence[GpuLike] | None = None,
    *,
    rate: float | None = None,
    concurrency: int | None = None,
    trace: str | PathLike[str] | Requests | None = None,
    input_len: float | Lengths | None = None,
    output_len: float | Lengths | None = None,
    slo_ttft_p95: float | None = None,
    slo_tpot_p95: float | None = None,
    tp: int | Sequence[int] | None = None,
    weight_dtype: str | Sequence[str] | None = None,
    kv_dtype: str | Sequence[str] | None = None,
    price: float | Mapping[str, float] | None = None,
    calibration: CalibrationLike | str | PathLike[str] | None = None,
    simulate: bool = True,
    seed: int = 0,
    engine: str | None = None,
    cv: float = 1.0,
    prefix: SharedPrefix | None = None,
    prefix_cache: bool = True,
    memory_fraction: float = MEMORY_FRACTION,
    download: bool = False,
) -> Plan:
    """The cheapest fleet that serves a workload within its promises, and how sure that is.

    gpu: one or several; None searches the catalogue. rate [requests/s], concurrency [clients]
    or trace (path or Requests; with rate its time is stretched). input_len, output_len [tokens]:
    a number or a distribution of `capmodel.workload`. slo_ttft_p95, slo_tpot_p95 [s]: None = no
    promise. tp, weight_dtype, kv_dtype: None searches. price: [$/GPU-hour] for all, or by GPU
    name; None takes the catalogue's dated ranges. calibration: a `Calibration` or its file; None
    takes the shipped ones. simulate: check the cheapest few against continuous batching of the
    requests. seed: of arrivals and lengths. cv: of the gaps between arrivals; prefix: shared
    prefixes; prefix_cache: whether the engine keeps them. memory_fraction: of the memory, what the
    engine may use. download: fetch the config of a `model` outside the catalogue.

    Raises ValueError for bad input, InfeasiblePlan (with the closest candidate) where no
    candidate fits the model or keeps the promises.
    """
    shape = load_shape(model, download)
    slo = Slo(slo_ttft_p95, slo_tpot_p95)
    load = demand(
        rate=rate,
        concurrency=concurrency,
        trace=trace,
        input_len=input_len,
        output_len=output_len,
        cv=cv,
        prefix=prefix,
        prefix_cache=prefix_cache,
        max_context=shape.max_context,
        seed=seed,
    )
    if not 0 < memory_fraction <= 1:
        raise ValueError(f"Got memory_fraction={memory_fraction}, but expected one in (0, 1]")
    setting = Setting(_calibration(calibration), engine, memory_fraction, load.longest)
    looked_at = list(candidates(shape, gpu, tp, weight_dtype, kv_dtype))
    prices = _by_name(price, looked_at)
    found = search(shape, looked_at, load, slo, setting, prices, prices_required=gpu is not None)
    if not found.options:
        raise _infeasible(shape, load, slo, setting, seed, found)
    tried = _simulated(found.options, load, slo) if simulate else []
    holding = [run for run in tried if run.holds]
    if simulate and not holding:
        raise _infeasible_by_simulation(shape, load, slo, setting, seed, found, tried)
    best = min(holding, key=lambda run: run.option.dollars_per_hour) if holding else None
    chosen = best.option if best is not None else found.options[0]
    return _finished(shape, load, slo, setting, seed, found, tried, best, chosen)


def _by_name(
    price: float | Mapping[str, float] | None, looked_at: Sequence[Candidate]
) -> float | Mapping[str, float] | None:
    """Prices under the names the candidates' GPUs have; an alias is as good.

    Raises ValueError for names that no GPU has.
    """
    if not isinstance(price, Mapping):
        return price
    own = {candidate.gpu.name for candidate in looked_at} | {"*"}
    return {name if name in own else load_gpu(name).name: each for name, each in price.items()}


def _finished(
    shape: ModelShape,
    load: Demand,
    slo: Slo,
    setting: Setting,
    seed: int,
    found: Search,
    tried: list[Verified],
    best: Verified | None,
    chosen: Option,
) -> Plan:
    replica = chosen.replica
    verified: tuple[Verified, ...] = ()
    if best is not None:
        server = server_of(chosen, load)
        ends = [
            run_fleet(chosen, load, slo, factor, server)
            for factor in (replica.low_factor, replica.high_factor)
        ]
        verified = (ends[0], best, ends[1])
        most = cover(chosen, load, slo, server, ends[1])
        chosen = replace(chosen, replicas_high=max(chosen.replicas, most))
    planned = Planned(shape, chosen, load, slo, setting)
    other = best_elsewhere(found.options, replica.candidate.gpu)
    same = [one for one in found.options if one.replica is not replica]
    return Plan(
        shape=shape,
        demand=load,
        slo=slo,
        setting=setting,
        seed=seed,
        message=headline(chosen, best),
        chosen=chosen,
        verified=verified,
        tried=tuple(tried),
        options=(chosen, *same),
        rejections=found.rejections,
        front=pareto((chosen, *same), load),
        fleet=fleet_of(chosen, load, slo),
        clients=client_cap(chosen, load),
        steps=tuple(step_rows(replica, load)),
        crossover=crossover(replica, load),
        what_ifs=tuple(what_ifs(planned, other)),
        sensitivities=tuple(sensitivities(planned)),
        warnings=tuple(_warnings(chosen, verified, load)),
    )


def _simulated(options: Sequence[Option], load: Demand, slo: Slo) -> list[Verified]:
    """The cheapest few, until the next cannot be cheaper than the best that holds."""
    tried: list[Verified] = []
    best = float("inf")
    for option in options:
        if len(tried) >= _SIMULATED or option.dollars_per_hour >= best:
            break
        run = verify(option, load, slo)
        tried.append(run)
        if run.holds:
            best = min(best, run.option.dollars_per_hour)
    return tried


def _warnings(chosen: Option, verified: tuple[Verified, ...], load: Demand) -> list[str]:
    lines = []
    candidate = chosen.replica.candidate
    if candidate.gpu.assumption:
        lines.append(candidate.gpu.assumption)
    if not chosen.price.given:
        lines.append(
            f"price of {candidate.gpu.name} from the catalogue: {chosen.price.source}; give yours"
        )
    if verified and verified[-1].missed:
        missed = " and ".join(name.upper() for name in verified[-1].missed)
        lines.append(
            f"at the slow end of the step time {missed} is missed; {chosen.replicas_high} replicas "
            "would be needed"
        )
    if load.refused:
        lines.append(
            f"{load.refused} of {load.n_requests + load.refused:,} requests pass the model's "
            "context limit; an engine refuses them, and they are left out"
        )
    step_time = chosen.replica.step_time
    if isinstance(step_time, StepTime):
        lines += _doubts(step_time, chosen, load)
    if chosen.replica.low_factor == chosen.replica.high_factor == 1.0:
        lines.append("the calibration has no interval here, so low and high equal the estimate")
    if load.mix.hit_share > 0:
        lines.append("sized for prefix hits: a cold cache needs more, see the what-ifs")
    return lines


def _doubts(step_time: StepTime, chosen: Option, load: Demand) -> list[str]:
    """What the calibration's rows do not say about the chosen fleet."""
    if step_time.coverage is None:
        gpu = chosen.replica.candidate.gpu.name
        return [f"extrapolation: no rows on {gpu}, coefficients of {step_time.basis}"]
    batch, context = np.array([chosen.estimate.batch]), np.array([load.mix.held_mean])
    beyond = (*step_time.lacks, *step_time.coverage.beyond(batch, context))
    return [f"extrapolation: {reason} ({step_time.basis})" for reason in beyond]


def _infeasible(
    shape: ModelShape, load: Demand, slo: Slo, setting: Setting, seed: int, found: Search
) -> InfeasiblePlan:
    """Nothing fits, or no load is light enough for the promises."""
    by_slo = [one for one in found.rejections if one.capacity is not None]
    if by_slo:
        closest = min(by_slo, key=lambda one: one.capacity.excess if one.capacity else 0.0)
        message = f"no candidate keeps the promises; the closest, {closest.candidate.name}: "
    elif found.rejections:
        closest = min(found.rejections, key=_missing)
        message = f"no candidate can hold {shape.name}; the closest, {closest.candidate.name}: "
    else:
        raise ValueError("Got no candidate, but expected at least one GPU, tp and dtype")
    message += closest.reason
    failed = Plan(
        shape, load, slo, setting, seed, message, None, (), (), (), found.rejections, closest
    )
    return InfeasiblePlan(message, failed)


def _infeasible_by_simulation(
    shape: ModelShape,
    load: Demand,
    slo: Slo,
    setting: Setting,
    seed: int,
    found: Search,
    tried: list[Verified],
) -> InfeasiblePlan:
    """The estimates said yes, the simulation no."""

    def excess(run: Verified) -> float:
        return max(
            run.ttft_s / (slo.ttft_s or float("inf")), run.tpot_s / (slo.tpot_s or float("inf"))
        )

    nearest = min(tried, key=excess)
    candidate = nearest.option.replica.candidate
    missing = " and ".join(name.upper() for name in nearest.missed)
    reason = (
        f"simulated with {nearest.option.replicas} replicas: TTFT p95 {nearest.ttft_s:.3g} s, TPOT "
        f"p95 {1e3 * nearest.tpot_s:.3g} ms, missing {missing}"
    )
    closest = Rejection(candidate, "simulation", reason, nearest.option.replica)
    message = f"no candidate keeps the promises; the closest, {candidate.name}, {reason}"
    failed = Plan(
        shape,
        load,
        slo,
        setting,
        seed,
        message,
        None,
        (),
        tuple(tried),
        found.options,
        found.rejections,
        closest,
    )
    return InfeasiblePlan(message, failed)


def _missing(rejection: Rejection) -> tuple[bool, float]:
    """Nearest to fitting first: the memory of its GPUs together, the largest."""
    candidate: Candidate = rejection.candidate
    return (rejection.stage != "memory", -candidate.gpu.memory_bytes * candidate.tp)


@lru_cache(maxsize=256)
def _nearest(engine: str | None, gpu: str) -> Calibration:
    return choose_calibration(engine, gpu)


class Shipped:
    """The shipped calibration that knows most of each engine and GPU."""

    def step_time(
        self,
        model: ModelShape,
        gpu: Gpu,
        *,
        tp: int = 1,
        weight_dtype: str = "bf16",
        kv_dtype: str = "bf16",
        engine: str | None = None,
    ) -> StepTimeLike:
        """As `Calibration.step_time`."""
        return _nearest(engine, gpu.name).step_time(
            model, gpu, tp=tp, weight_dtype=weight_dtype, kv_dtype=kv_dtype, engine=engine
        )


def _calibration(given: CalibrationLike | str | PathLike[str] | None) -> CalibrationLike:
    """The calibration given, the file it names, or the shipped ones."""
    if given is None:
        return Shipped()
    return load_calibration(Path(given)) if isinstance(given, str | PathLike) else given
