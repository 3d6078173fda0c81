"""`plan`: from a workload to GPUs, latency and money."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from capmodel.arguments import FRACTION, flag, number, optional
from capmodel.costs import PRICE
from capmodel.engines import known_engine
from capmodel.gpus import load_gpu
from capmodel.loading import load_calibration
from capmodel.memory import MEMORY_FRACTION
from capmodel.planner.candidate import Candidate, GpuLike, candidates
from capmodel.planner.clients import client_cap
from capmodel.planner.demand import Demand, demand, unit_doubt
from capmodel.planner.doubts import doubts, surer
from capmodel.planner.failing import infeasible, infeasible_by_simulation, missed_by_simulation
from capmodel.planner.fleet import fleet_of
from capmodel.planner.held import held_to
from capmodel.planner.provenance import day, inputs_of
from capmodel.planner.replica import CalibrationLike, Setting
from capmodel.planner.result import Plan, headline
from capmodel.planner.search import Search, pareto, search
from capmodel.planner.sensitivity import sensitivities
from capmodel.planner.shipped import Shipped
from capmodel.planner.sizing import Option
from capmodel.planner.steps import crossover, step_rows
from capmodel.planner.variations import Planned, best_elsewhere, what_ifs
from capmodel.planner.verify import Verified, cover, run_fleet, server_of, verify
from capmodel.shapes import ModelLike, load_shape
from capmodel.words import shown
from capmodel.workload import Lengths, Requests, SharedPrefix, Slo
from capmodel.workload.limits import PROMISE

# Called with what is being done, how much is done, and all there is.
Progress = Callable[[str, int, int], None]

# Fleets that are simulated at most to find the cheapest.
_SIMULATED = 16
# And to find one that measured runs cover.
_SURER = 2


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
    slo_e2e_p95: float | None = None,
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
    disaggregate: bool = False,
    download: bool = False,
    date: str | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The cheapest fleet that serves a workload within its promises, and how sure that is.

    gpu: one or several; None searches the catalogue. rate [requests/s], concurrency [clients]
    or trace (path or Requests; with rate its time is stretched). input_len, output_len [tokens]:
    a number or a distribution of `capmodel.workload`. slo_ttft_p95, slo_tpot_p95, slo_e2e_p95
    (arrival to the last token) [s]: None = no promise. tp, weight_dtype, kv_dtype: None searches.
    price: [$/GPU-hour] for all, or by GPU name; None takes the catalogue's dated ranges.
    calibration: a `Calibration` or its file; None takes the shipped ones. simulate: check the
    cheapest few against continuous batching of the requests. seed: of arrivals and lengths. cv: of
    the gaps between arrivals; prefix: shared prefixes; prefix_cache: whether the engine keeps
    them. memory_fraction: of the memory, what the engine may use. disaggregate: look at
    every candidate also with some replicas for prompts alone. download: fetch the config of a
    `model` outside the catalogue. date: the ISO day the plan carries; None: today. progress:
    called with a label, what is done and all there is.

    Raises ValueError for bad input, InfeasiblePlan (with the closest candidate) where no
    candidate fits the model or keeps the promises.
    """
    shape = load_shape(model, download)
    slo = Slo(
        optional("slo_ttft_p95", slo_ttft_p95, PROMISE),
        optional("slo_tpot_p95", slo_tpot_p95, PROMISE),
        optional("slo_e2e_p95", slo_e2e_p95, PROMISE),
    )
    simulate = flag("simulate", simulate)
    disaggregate = flag("disaggregate", disaggregate)
    memory_fraction = number("memory_fraction", memory_fraction, FRACTION)
    if progress is not None and not callable(progress):
        raise ValueError(f"Got progress={shown(progress)}, but expected a function, or None")
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
    own = known_engine(engine)
    setting = Setting(_calibration(calibration), own, memory_fraction, load.longest)
    looked_at = list(candidates(shape, gpu, tp, weight_dtype, kv_dtype))
    inputs = inputs_of(model, gpu, trace, calibration)
    asked = Plan(
        shape,
        load,
        slo,
        setting,
        int(seed),
        "",
        date=day(date),
        inputs=inputs,
        disaggregate=disaggregate,
    )
    prices = _by_name(price, looked_at)
    odd = unit_doubt(load) if trace is not None and rate is None else None
    asked = replace(asked, warnings=(*([odd] if odd else []), *_unused(prices, looked_at)))
    show = progress or (lambda label, done, total: None)
    show("candidates sized", 0, len(looked_at))
    found = search(
        shape, looked_at, load, slo, setting, prices,
        prices_required=gpu is not None, disaggregate=disaggregate,
    )  # fmt: skip
    if not found.options:
        raise infeasible(asked, found)
    show("candidates sized", len(looked_at), len(looked_at))
    tried = _simulated(found.options, load, slo, show) if simulate else []
    holding = [run for run in tried if run.holds]
    if simulate and not holding:
        raise infeasible_by_simulation(asked, found, tried)
    best = min(holding, key=lambda run: run.option.dollars_per_hour) if holding else None
    return _finished(asked, found, tried, best)


def _by_name(
    price: float | Mapping[str, float] | None, looked_at: Sequence[Candidate]
) -> float | Mapping[str, float] | None:
    """Prices under the names the candidates' GPUs have; an alias is as good.

    Raises ValueError for names that no GPU has.
    """
    if not isinstance(price, Mapping):
        return optional("price", price, PRICE)
    for name, each in price.items():
        number(f"price of {shown(name)}", each, PRICE)
    own = {candidate.gpu.name for candidate in looked_at} | {"*"}
    return {name if name in own else load_gpu(name).name: each for name, each in price.items()}


def _unused(
    price: float | Mapping[str, float] | None, looked_at: Sequence[Candidate]
) -> tuple[str, ...]:
    """A sentence on each price of a GPU that is no candidate."""
    names = set(price) if isinstance(price, Mapping) else set()
    own = {candidate.gpu.name for candidate in looked_at}
    return tuple(
        f"a price is given for {name}, which is not among the candidates ({', '.join(sorted(own))})"
        for name in sorted(names - own - {"*"})
    )


def _finished(asked: Plan, found: Search, tried: list[Verified], best: Verified | None) -> Plan:
    load, slo = asked.demand, asked.slo
    chosen = best.option if best is not None else found.options[0]
    replica, apart = chosen.replica, chosen.split is not None
    verified: tuple[Verified, ...] = ()
    coverable = False
    if best is not None:
        server = server_of(chosen, load)
        ends = [
            run_fleet(chosen, load, slo, factor, server)
            for factor in (replica.low_factor, replica.high_factor)
        ]
        verified = (ends[0], best, ends[1])
        most, coverable = cover(chosen, load, slo, server, ends[1])
        chosen = replace(chosen, replicas_high=max(chosen.replicas, most))
    options = (chosen, *_others(found.options, tried, chosen))
    held = held_to(chosen, best, load)
    planned = Planned(asked.shape, chosen, load, slo, asked.setting, held, best is not None)
    other = best_elsewhere(options, replica.candidate.gpu)
    rows, left_out = sensitivities(planned)
    instead = _instead(options, load, slo, best is not None)
    other_run = next((run for run in tried if run.option is other), None)
    return replace(
        asked,
        message=headline(chosen, best),
        chosen=chosen,
        verified=verified,
        tried=tuple(tried),
        options=options,
        rejections=(*missed_by_simulation(tried), *found.rejections),
        front=pareto(options, load),
        fleet=fleet_of(chosen, load, slo),
        clients=client_cap(chosen, load),
        steps=tuple(step_rows(replica, load, apart)),
        crossover=crossover(replica, load, apart),
        what_ifs=tuple(what_ifs(planned, other, other_run)),
        sensitivities=tuple(rows),
        left_out=tuple(left_out),
        instead=instead,
        warnings=(
            *doubts(chosen, verified, coverable, load, asked.setting.engine, instead),
            *asked.warnings,
        ),
    )


def _instead(
    options: Sequence[Option], load: Demand, slo: Slo, simulated: bool
) -> Option | Verified | None:
    """The cheapest fleet that measured runs cover better than the first of `options`.

    simulated: as it came out of the simulation, of the first few that keep the promises there.
    """
    for option in surer(options[0], options[1:], load)[: _SURER if simulated else 1]:
        if not simulated:
            return option
        run = verify(option, load, slo)
        if run.holds:
            return run
    return None


def _others(options: Sequence[Option], tried: Sequence[Verified], chosen: Option) -> list[Option]:
    """All but the chosen one; those simulated as the simulation sized them, or left out where it
    missed a promise."""
    runs = {_fleet(run.option): run for run in tried}
    others = []
    for option in options:
        run = runs.get(_fleet(option))
        if _fleet(option) == _fleet(chosen) or (run is not None and not run.holds):
            continue
        others.append(option if run is None else run.option)
    return sorted(others, key=lambda one: (one.dollars_per_hour, one.estimate.e2e_mean_s))


def _fleet(option: Option) -> tuple[int, bool]:
    """The same for one candidate in any number of replicas, divided or not."""
    return id(option.replica), option.split is not None


def _simulated(options: Sequence[Option], load: Demand, slo: Slo, show: Progress) -> list[Verified]:
    """The cheapest few, until the next cannot be cheaper than the best that holds."""
    tried: list[Verified] = []
    best = float("inf")
    for option in options:
        done = sum(run.tries for run in tried)
        if done >= _SIMULATED or option.dollars_per_hour >= best:
            break
        show("fleets simulated", done, _SIMULATED)
        run = verify(option, load, slo, best)
        tried.append(run)
        if run.holds:
            best = min(best, run.option.dollars_per_hour)
    return tried


def _calibration(given: CalibrationLike | str | PathLike[str] | None) -> CalibrationLike:
    """The calibration given, the file it names, or the shipped ones."""
    if given is None:
        return Shipped()
    if isinstance(given, str | PathLike):
        return load_calibration(Path(given))
    if isinstance(given, type) or not callable(getattr(given, "step_time", None)):
        raise ValueError(
            f"Got calibration={shown(given)}, but expected a Calibration, the path of its file, "
            "or None"
        )
    return given
