"""The figures of a plan as `Picture` blocks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from capmodel.plots.budget import draw_memory
from capmodel.plots.choices import Candidate, Swing, draw_cost_latency, draw_tornado, pareto_front
from capmodel.plots.memory import draw_frontier
from capmodel.plots.steps import StepCurve, draw_step_time, draw_terms, draw_tokens_per_s
from capmodel.plots.style import figure, to_svg
from capmodel.report.document import Picture
from capmodel.report.fields import fleet_name, label, shortened
from capmodel.report.numbers import milliseconds, number, whole
from capmodel.units import format_dollars, format_gib

Row = Mapping[str, Any]


def memory_picture(memory: Row) -> Picture:
    """The budget of one GPU as a stacked bar."""
    parts = memory_parts(memory)
    with figure(6.7, 1.5) as fig:
        named = {label(key): value for key, value in parts.items()}
        draw_memory(fig.subplots(), named, memory["capacity_bytes"])
        svg = to_svg(fig, text_as_text=True)
    alt = ", ".join(f"{label(key)} {format_gib(value)}" for key, value in parts.items())
    return Picture(svg, "Memory of one GPU, part by part, in GiB.", f"Stacked bar: {alt}.")


def memory_parts(memory: Row) -> dict[str, float]:
    """The parts that fill a GPU [byte], the cache and what is left unused last."""
    parts = {
        key: value
        for key, value in memory.items()
        if key.endswith("_bytes") and key not in ("capacity_bytes", "block_bytes") and value
    }
    last = ("cache_bytes", "outside_bytes")
    ordered = [key for key in parts if key not in last] + [key for key in last if key in parts]
    return {key: parts[key] for key in ordered}


def steps_picture(plan: Row) -> Picture:
    """Step time and tokens/s of one replica over batch, with bands and the crossovers."""
    rows, crossover = plan["steps"], plan["crossover"] or {}
    low, step, high = (np.array([row["step_s"][end] for row in rows]) for end in range(3))
    curve = StepCurve(
        label="",
        batch_size=np.array([row["batch"] for row in rows], dtype=float),
        step_time_s=step,
        fits=np.array([row["fits"] for row in rows], dtype=bool),
        low_s=low,
        high_s=high,
    )
    marks = {
        words: crossover[key]
        for key, words in CROSSOVERS.items()
        if crossover.get(key) is not None
        and curve.batch_size[0] <= crossover[key] <= curve.batch_size[-1]
    }
    with figure(6.7, 2.7) as fig:
        left, right = fig.subplots(1, 2)
        draw_step_time(left, [curve], plan["slo"]["tpot_s"])
        draw_tokens_per_s(right, [curve], marks=marks)
        svg = to_svg(fig, text_as_text=True)
    caption = (
        "One replica over batch, prompts of the load inside the step; bands: the step time's "
        "interval. Hollow marks: the pool overflows more than one time in a hundred."
    )
    first, last = rows[0], rows[-1]
    alt = (
        f"Step time from {milliseconds(first['step_s'][1])} ms at batch {whole(first['batch'])} to "
        f"{milliseconds(last['step_s'][1])} ms at {whole(last['batch'])}; tokens per second from "
        f"{number(first['tokens_per_s'][1])} to {number(last['tokens_per_s'][1])}."
    )
    return Picture(svg, caption, alt)


CROSSOVERS = {
    "half_gain": "doubling pays less",
    "cache_longest_from": "cache reads lead",
    "pool_full": "pool full",
}


def shares_picture(steps: Sequence[Row], at_most: int = 12) -> Picture:
    """What a step's time goes to over batch, as stacked bars."""
    rows = [steps[round(i)] for i in np.linspace(0, len(steps) - 1, min(at_most, len(steps)))]
    seconds = [row["step_s"][1] for row in rows]
    cache = [s * row["cache_share"] for s, row in zip(seconds, rows, strict=True)]
    prompts = [s * row["prefill_share"] for s, row in zip(seconds, rows, strict=True)]
    rest = [s - c - p for s, c, p in zip(seconds, cache, prompts, strict=True)]
    with figure(6.7, 2.2) as fig:
        draw_terms(
            fig.subplots(),
            [row["batch"] for row in rows],
            {"weights, fixed": rest, "cache reads": cache, "prompts": prompts},
        )
        svg = to_svg(fig, text_as_text=True)
    alt = (
        f"Stacked bars; at batch {whole(rows[-1]['batch'])}: weights and fixed work "
        f"{milliseconds(rest[-1])} ms, cache reads {milliseconds(cache[-1])} ms, prompts "
        f"{milliseconds(prompts[-1])} ms."
    )
    return Picture(svg, "What a step's time goes to, by batch.", alt)


def concurrency_picture(fits: Sequence[Row], name: str) -> Picture | None:
    """Requests at once over their context; None if none fits at any length."""
    requests = np.array([row["max_concurrency"] for row in fits], dtype=float)
    if not (requests >= 1).any():
        return None
    lengths = np.array([row["context_len"] for row in fits], dtype=float)
    with figure(6.7, 2.2) as fig:
        draw_frontier(fig.subplots(), lengths, {name: requests})
        svg = to_svg(fig, text_as_text=True)
    alt = ", ".join(
        f"{whole(n)} of {whole(c)} tokens" for c, n in zip(lengths, requests, strict=True)
    )
    return Picture(svg, "Context against concurrency, for one replica.", f"Line: {alt}.")


def cost_picture(plan: Row) -> Picture:
    """Cost against mean latency: the chosen fleet, the front, the alternatives."""
    best = plan["recommendation"]
    fleets = [{**best, "dollars_per_hour": best["dollars_per_hour"]["estimate"]}]
    fleets += plan["alternatives"]
    points = [(row, row["estimate"]["e2e_mean_s"]) for row in fleets]
    points += [(row, row["e2e_mean_s"]) for row in plan["pareto"]]
    seen: dict[tuple[Any, ...], Candidate] = {}
    for row, latency in points:
        if latency is None:
            continue
        parts = ("gpu", "tp", "weight_dtype", "kv_dtype", "replicas", "prefill_replicas")
        key = tuple(row.get(part) for part in parts)
        name = f"{shortened(fleet_name(row), 28)}, {row['weight_dtype']}/{row['kv_dtype']}"
        seen.setdefault(
            key, Candidate(name, latency, row["dollars_per_hour"], True, chosen=row is fleets[0])
        )
    fleets_seen = list(seen.values())
    near = near_the_front(fleets_seen)
    with figure(6.7, 2.6) as fig:
        draw_cost_latency(fig.subplots(), near, "Mean time of a request")
        svg = to_svg(fig, text_as_text=True)
    front = "; ".join(
        f"{fleet_name(row)} {format_dollars(row['dollars_per_hour'])} an hour at "
        f"{milliseconds(row['e2e_mean_s'])} ms"
        for row in plan["pareto"]
    )
    caption = (
        "Cost against the mean time from arrival to the last token, by steady-state estimate. "
        "Ringed: the chosen fleet."
    )
    if len(near) > 1:
        caption += (
            " The line joins those that none is both cheaper and faster than; grey: the rest that "
            "keep the promises."
        )
    far = len(fleets_seen) - len(near)
    if far:
        caption += f" Not drawn: {whole(far)} whose cost is far above the line's."
    return Picture(svg, caption, f"Scatter of cost over latency. On the front: {front}.")


def near_the_front(fleets: Sequence[Candidate]) -> list[Candidate]:
    """Those that cost no more than half again the dearest that is worth its money, or chosen.

    A few fleets at many times that cost would press all others into one line.
    """
    cost = np.array([fleet.dollars_per_hour for fleet in fleets])
    latency = np.array([fleet.latency_s for fleet in fleets])
    front = pareto_front(latency, cost, np.ones(len(fleets), dtype=bool))
    most = 1.5 * max(cost[front], default=0.0)
    return [fleet for fleet in fleets if fleet.chosen or fleet.dollars_per_hour <= most]


def tornado_picture(sensitivities: Sequence[Row]) -> Picture:
    """How far the cost moves with each input; one that cannot move it, as a price given, has no
    bar."""
    moving = [row for row in sensitivities if row["low"] != row["high"]] or sensitivities
    swings = [
        Swing(
            shortened(row["name"]),
            row["low"],
            row["high"],
            shortened(row["low_input"], 18),
            shortened(row["high_input"], 18),
        )
        for row in moving
    ]
    with figure(6.7, 0.8 + 0.3 * len(swings)) as fig:
        draw_tornado(fig.subplots(), swings, sensitivities[0]["base"], "Cost of the fleet [$/hour]")
        svg = to_svg(fig, text_as_text=True)
    alt = "; ".join(
        f"{row['name']} {row['low_input']} to {row['high_input']}: {format_dollars(row['low'])} to "
        f"{format_dollars(row['high'])}"
        for row in moving
    )
    return Picture(svg, "What moves the cost, the widest first.", f"Tornado: {alt}.")
