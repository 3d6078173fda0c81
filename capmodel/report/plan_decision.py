"""The first page of a plan: what to rent, what it costs, what users feel, how sure that is."""

from collections.abc import Mapping
from typing import Any

from capmodel.report.decision import GENERATED
from capmodel.report.document import (
    Block,
    Bullets,
    Column,
    Fact,
    Facts,
    Table,
    Text,
    Verdict,
)
from capmodel.report.fields import (
    RULERS,
    SHORT_STAGES,
    STAGES,
    cap_words,
    cell,
    fleet_name,
    limit_words,
    one_fails_words,
)
from capmodel.report.numbers import NONE, number, percent, whole
from capmodel.report.plan_figures import cost_picture
from capmodel.units import format_dollars, format_percent, format_seconds

Row = Mapping[str, Any]
_ENDS = ("low", "estimate", "high")
_PROMISED = {
    "ttft": "Time to the first token",
    "tpot": "Time per further token",
    "e2e": "To the end",
}


def decision_blocks(plan: Row) -> list[Block]:
    """The page that decides, in a manager's words."""
    blocks = _feasible(plan) if plan["recommendation"] else _infeasible(plan)
    sources = (plan.get("calibration") or {}).get("sources") or ()
    if any("synthetic" in source.lower() for source in sources):
        blocks = [GENERATED, *blocks]
    if plan["warnings"]:
        blocks += [Text("", lead="Mind."), Bullets(tuple(plan["warnings"]))]
    if plan["recommendation"]:
        blocks.append(cost_picture(plan))
    return blocks


def _feasible(plan: Row) -> list[Block]:
    best, clients = plan["recommendation"], plan["clients"]
    cost = best["dollars_per_hour"]
    gpus = f"{best['tp']} GPUs" if best["tp"] > 1 else "one GPU"
    several = "replicas, each of" if best["replicas"] > 1 else "replica of"
    replicas = f"{whole(best['replicas'])} {several} {gpus}"
    kept = "within the promises" if _promises(plan["slo"]) else "(no latency was promised)"
    doubt = doubt_words(plan)
    if best.get("prefill_replicas") is not None:
        alone, decode = best["prefill_replicas"], best["decode_replicas"]
        replicas += f" ({whole(alone)} for prompts alone, {whole(decode)} to decode)"
    serve = "They serve" if best["n_gpus"] > 1 else "It serves"
    blocks: list[Block] = [
        Verdict(
            f"{best['n_gpus']} × {best['gpu']} for {format_dollars(cost['estimate'])} an hour",
            f"{serve} {plan['model']['name']} {kept}: {replicas}, weights in "
            f"{best['weight_dtype']}, KV cache in {best['kv_dtype']}. {_load(plan['workload'])}"
            + (f" {doubt}" if doubt else ""),
            "caution" if doubt else "yes",
        ),
        Facts(
            (
                Fact("GPUs", whole(best["n_gpus"]), _replica_range(plan)),
                Fact(
                    "Cost an hour",
                    format_dollars(cost["estimate"]),
                    _between(cost["low"], cost["high"]) + (" and more" if never_kept(plan) else ""),
                ),
                Fact(
                    "A million output tokens",
                    cell("per_million_output", plan["costs"]["per_million_output"]),
                    f"prompt tokens {cell('per_million_input', plan['costs']['per_million_input'])}"
                    ", at the mean load",
                ),
                Fact(
                    "Load against capacity",
                    format_percent(best["estimate"]["utilisation"], 0),
                    _mean_load(best),
                ),
            )
        ),
        _felt(plan),
        Text(_binds(plan), lead="What binds."),
        Text(_how_sure(plan), lead="How sure."),
        Text(_one_fails(plan), lead="While one replica is down."),
        Text(
            f"Set max_num_seqs to {whole(clients['max_num_seqs'])} on every {_which(clients)} and "
            f"let at most {whole(clients['clients'])} requests into the fleet at once, "
            f"{cap_words(clients['limited_by'])}.",
            lead="What to set.",
        ),
    ]
    return blocks


def _which(clients: Row) -> str:
    """Where the limit on sequences is to be set; replicas for prompts alone have their own."""
    apart = clients.get("prompts_max_num_seqs")
    return (
        "replica" if apart is None else f"decoding replica and {whole(apart)} on those for prompts"
    )


def _between(low: float, high: float) -> str:
    ends = format_dollars(low), format_dollars(high)
    return f"{ends[0]} to {ends[1]}" if ends[0] != ends[1] else "the same at either end"


def _infeasible(plan: Row) -> list[Block]:
    blocks: list[Block] = [Verdict("No fleet was found that does this", _sentence(plan), "no")]
    closest = plan["closest"]
    if closest:
        blocks.append(
            Facts(
                (
                    Fact(
                        "Closest",
                        fleet_name(closest),
                        f"weights {closest['weight_dtype']}, cache {closest['kv_dtype']}",
                    ),
                    Fact(
                        "Set aside for",
                        SHORT_STAGES.get(closest["stage"], closest["stage"]),
                        STAGES.get(closest["stage"], ""),
                    ),
                    Fact("Its TTFT p95", _time(closest["ttft_p95_s"]), _limit(plan, "ttft_s")),
                    Fact("Its TPOT p95", _time(closest["tpot_p95_s"]), _limit(plan, "tpot_s")),
                )
            )
        )
        blocks.append(Text(closest["reason"], lead="What blocks it."))
    blocks.append(Text(_load(plan["workload"]), lead="What was asked."))
    return blocks


def _sentence(plan: Row) -> str:
    text = str(plan["message"]).strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _limit(plan: Row, key: str) -> str:
    value = plan["slo"].get(key)
    return "nothing was promised" if value is None else f"promised {format_seconds(value)}"


def _time(seconds: float | None) -> str:
    return NONE if seconds is None else format_seconds(seconds)


def _load(workload: Row) -> str:
    lengths = (
        f"{whole(workload['input_mean'])} prompt and {whole(workload['output_mean'])} output "
        "tokens on average"
    )
    if workload["concurrency"] is not None:
        return f"The load: {whole(workload['concurrency'])} clients at once, {lengths}."
    busiest, mean = number(workload["rate"]), number(workload["mean_rate"])
    rate = f"{busiest} requests a second"
    if mean != busiest:
        rate += f" at the busiest ({mean} on average)"
    return f"The load: {rate}, {lengths}."


def doubt_words(plan: Row) -> str:
    """What keeps the answer from being one to buy on, in a sentence or two; or nothing."""
    card = plan["calibration"]
    low, high = card["low_factor"], card["high_factor"]
    said = []
    if never_kept(plan):
        said.append(
            "At the slow end of the step time's interval no number of these GPUs keeps the "
            "promised time per token."
        )
    if high > WIDE * low:
        said.append(
            "The step time on these GPUs is hardly known: measure a few runs before renting them "
            "(capmodel fit --suggest)."
        )
    return " ".join(said)


# An interval whose high end is this many times the low end is no ground to buy on.
WIDE = 4.0


def never_kept(plan: Row) -> bool:
    """Whether, at the slow end, even a sequence alone takes longer a token than was promised."""
    promised, steps = plan["slo"]["tpot_s"], plan["steps"]
    if promised is None or not steps:
        return False
    lightest = min(steps, key=lambda row: row["batch"])
    # Its step holds the load's prompts too; without them it is at least this long.
    return bool(lightest["step_s"][2] * (1 - lightest["prefill_share"]) > promised)


def _mean_load(best: Row) -> str:
    busiest, mean = (
        format_percent(best[key]["utilisation"], 0) for key in ("estimate", "mean_load")
    )
    return "at any time" if mean == busiest else f"at the busiest; {mean} on average"


def _replica_range(plan: Row) -> str:
    best = plan["recommendation"]
    if never_kept(plan):
        return (
            f"{whole(best['replicas_low'])} replicas at the fast end of the step time's interval; "
            "at the slow end none suffice"
        )
    if best["replicas_low"] == best["replicas_high"]:
        return "as many at either end of the step time's interval"
    return (
        f"{whole(best['replicas_low'])} to {whole(best['replicas_high'])} replicas over the step "
        "time's interval"
    )


def _promises(slo: Row) -> dict[str, float]:
    return {name: slo[f"{name}_s"] for name in _PROMISED if slo.get(f"{name}_s") is not None}


def _felt(plan: Row) -> Table:
    latency, slo = plan["latency"], plan["slo"]
    part = f"p{slo['percentile']:g}"
    rows = []
    for name, words in _PROMISED.items():
        figures = latency.get(f"{name}_{part}_s")
        if figures is None:
            continue
        limit = slo.get(f"{name}_s")
        rows.append(
            (
                f"{words} ({name.upper()})",
                _time(limit),
                *(_time(figures[end]) for end in _ENDS),
                _kept(figures, limit),
            )
        )
    return Table(
        f"What users feel: {slo['percentile']:g} of 100 requests stay below. Low and high are the "
        f"ends of the step time's interval. From the {latency['from']}.",
        (
            Column(""),
            Column("Promised", True),
            Column("Low", True),
            Column("Estimate", True),
            Column("High", True),
            Column("Kept"),
        ),
        tuple(rows),
    )


def _kept(figures: Row, limit: float | None) -> str:
    if limit is None:
        return NONE
    met = [value is not None and value <= limit for value in (figures[end] for end in _ENDS)]
    if all(met):
        return "yes, at both ends"
    return "yes, but not at the high end" if met[1] else "no"


def _binds(plan: Row) -> str:
    best = plan["recommendation"]
    text = (
        f"More load is stopped by {limit_words(best['limited_by'])}. Most of a step goes into "
        f"{RULERS.get(best['step_ruled_by'], best['step_ruled_by'])}."
    )
    if plan["crossover"]:
        text += f" A larger batch runs into {plan['crossover']['ceiling']}."
    return text


def _how_sure(plan: Row) -> str:
    calibration = plan["calibration"]
    low, high = calibration["low_factor"], calibration["high_factor"]
    given = calibration["id"] or "given"
    if low == high == 1.0:
        text = f"No interval of the step time is known (calibration {given}). "
    else:
        text = (
            f"In 9 of 10 cases the step time is {number(low)} to {number(high)} times the estimate "
            f"(calibration {given}). "
        )
    text += _held_out(calibration)
    simulation = plan["simulation"]
    if simulation:
        text += (
            f"Latencies come from simulating {whole(simulation['n'])} requests on "
            f"{whole(simulation['replicas_simulated'])} replica"
            f"{'s' if simulation['replicas_simulated'] > 1 else ''}, at the estimate and at either "
            "end."
        )
    else:
        text += "Latencies are steady-state estimates; nothing was simulated."
    return text


def _held_out(calibration: Row) -> str:
    """The mean error on what a fit had not seen, in a sentence; or nothing.

    Deployments are left out where the step times are of this engine and GPU, else whole GPUs.
    """
    split = "deployment" if " on " in (calibration.get("basis") or "") else "gpu"
    rows = [row for row in calibration.get("grade_card") or () if row["split"] == split]
    errors = {row["estimator"]: row["mape"] for row in rows}
    error = errors.get("regressor", errors.get("roofline"))
    if error is None:
        return ""
    left_out = "deployments" if split == "deployment" else "GPUs"
    return f"On {left_out} left out of the fit the estimate is {percent(error)} off on average. "


def _one_fails(plan: Row) -> str:
    spare, first = plan["recommendation"]["spare"], one_fails_words(plan)
    return (
        f"{first[:1].upper()}{first[1:]}. One to spare makes it {whole(spare['replicas'])} "
        f"replicas and {format_dollars(spare['dollars_per_hour'])} an hour."
    )
