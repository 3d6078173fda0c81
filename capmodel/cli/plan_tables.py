"""Tables of `capmodel plan`, from the plan's dict, for a terminal of 80 columns."""

from collections import Counter
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from capmodel.units import format_count, format_dollars, format_percent, format_seconds

_FEW = 8


def print_plan(plan: dict[str, Any]) -> None:
    """The whole plan; an infeasible one says what is nearest and what blocks."""
    console = Console(highlight=False)
    console.print(escape(plan["message"]), style="bold", soft_wrap=True)
    if plan["recommendation"] is not None:
        _recommendation(console, plan)
        _latency(console, plan)
        _costs(console, plan)
        _what_ifs(console, plan)
        _sensitivities(console, plan)
        _front(console, plan)
    _rejected(console, plan)
    for line in plan["warnings"]:
        console.print(f"Note: {escape(line)}", soft_wrap=True)


def _recommendation(console: Console, plan: dict[str, Any]) -> None:
    best, clients, crossover = plan["recommendation"], plan["clients"], plan["crossover"]
    lines = _lines("Recommendation")
    lines.add_row(
        "Fleet",
        f"{best['replicas']} x tp {best['tp']} = {best['n_gpus']} {escape(best['gpu'])}",
    )
    lines.add_row(
        "  replicas over the step time's interval",
        f"{best['replicas_low']} to {best['replicas_high']}",
    )
    lines.add_row("Weights, cache", f"{best['weight_dtype']}, {best['kv_dtype']}")
    lines.add_row("More load is stopped by", best["limited_by"])
    lines.add_row("Most of a step goes into", best["step_ruled_by"])
    lines.add_row(
        "Utilisation, busiest and mean",
        f"{format_percent(best['estimate']['utilisation'], 0)}, "
        f"{format_percent(best['mean_load']['utilisation'], 0)}",
    )
    spare = best["spare"]
    lines.add_row(
        "One replica fails",
        "promises kept" if spare["keeps_promises"] else "promises missed",
    )
    lines.add_row(
        "  with a spare",
        f"{spare['replicas']} replicas, {format_dollars(spare['dollars_per_hour'])}/h",
    )
    fits = clients["fits"]
    lines.add_row(
        "Sequences a pool holds (p5, p50, p95)",
        f"{fits['p5']:,.0f}, {fits['p50']:,.0f}, {fits['p95']:,.0f}",
    )
    lines.add_row("Set max_num_seqs to", f"{clients['max_num_seqs']:,}")
    lines.add_row("Let in at most", f"{clients['clients']:,} clients ({clients['limited_by']})")
    lines.add_row("Ceiling", crossover["ceiling"])
    console.print(lines)
    risks = _table("Above the cap", "Sequences", "Pool overflows, preempts")
    for risk in clients["risks"]:
        risks.add_row(f"{risk['sequences']:,}", format_percent(risk["overflow"]))
    console.print(risks)


def _latency(console: Console, plan: dict[str, Any]) -> None:
    latency, slo = plan["latency"], plan["slo"]
    table = _table(f"What users feel ({latency['from']})", "", "Low", "Estimate", "High", "Promise")
    promises = {"ttft_p95_s": slo["ttft_s"], "tpot_p95_s": slo["tpot_s"]}
    names = [name for name in latency if name != "from" and not name.endswith("p99_s")]
    for name in names:
        row, limit = latency[name], promises.get(name)
        kind, _, part = name.removesuffix("_s").partition("_")
        table.add_row(
            f"{kind.upper()} {part}",
            *(_or_dash(row[end], format_seconds) for end in ("low", "estimate", "high")),
            "" if limit is None else format_seconds(limit),
        )
    console.print(table)


def _costs(console: Console, plan: dict[str, Any]) -> None:
    best, costs, energy = plan["recommendation"], plan["costs"], plan["energy"]
    lines = _lines("Money and energy, at the mean load")
    hour, price = best["dollars_per_hour"], best["price_per_gpu_hour"]
    lines.add_row(
        "Per hour",
        f"{format_dollars(hour['estimate'])} ({format_dollars(hour['low'])} to "
        f"{format_dollars(hour['high'])})",
    )
    lines.add_row(
        "Per GPU-hour",
        f"{format_dollars(price['estimate'])} ({format_dollars(price['low'])} to "
        f"{format_dollars(price['high'])})",
    )
    for kind in ("output", "input", "cached"):
        value = costs[f"per_million_{kind}"]
        if value is not None:
            lines.add_row(f"Per million {kind} tokens", format_dollars(value))
    for one in plan["break_even"]:
        reach = "within" if one["reachable"] else "beyond"
        lines.add_row(
            f"Cheaper than an API at {format_dollars(one['api_price'])}/M from",
            f"{one['requests_per_s']:.3g} requests/s, {reach} this fleet",
        )
    if energy is not None:
        lines.add_row("Power at most", f"{energy['kilowatts']:.3g} kW")
        if energy["wh_per_million_output"] is not None:
            lines.add_row(
                "  per million output tokens", f"{energy['wh_per_million_output']:,.0f} Wh"
            )
    console.print(lines)


def _what_ifs(console: Console, plan: dict[str, Any]) -> None:
    table = _table("What if (steady-state estimates)", "", "GPUs", "$/h", "Fits", "TTFT", "TPOT")
    notes = list(dict.fromkeys(row["note"] for row in plan["what_ifs"] if row["note"]))
    for row in plan["what_ifs"]:
        mark = f" [{notes.index(row['note']) + 1}]" if row["note"] else ""
        table.add_row(
            escape(row["name"] + mark),
            *(_or_dash(row[key], show) for key, show in _WHAT_IF.items()),
        )
    console.print(table)
    for number, note in enumerate(notes, start=1):
        console.print(escape(f"[{number}] {note}"), soft_wrap=True)


def _sensitivities(console: Console, plan: dict[str, Any]) -> None:
    table = _table("What moves the cost ($/h, fractional replicas)", "", "Low", "High", "$/h")
    for row in plan["sensitivities"]:
        table.add_row(
            row["name"],
            row["low_input"],
            row["high_input"],
            f"{format_dollars(row['low'])} to {format_dollars(row['high'])}",
        )
    console.print(table)


def _front(console: Console, plan: dict[str, Any]) -> None:
    table = _table(
        "Cost against latency (estimates)", "Fleet", "Weights, cache", "$/h", "E2E", "TPOT p95"
    )
    for point in plan["pareto"][:_FEW]:
        table.add_row(
            escape(f"{point['replicas']} x tp {point['tp']} {point['gpu']}"),
            f"{point['weight_dtype']}, {point['kv_dtype']}",
            format_dollars(point["dollars_per_hour"]),
            format_seconds(point["e2e_mean_s"]),
            format_seconds(point["tpot_p95_s"]),
        )
    console.print(table)


def _rejected(console: Console, plan: dict[str, Any]) -> None:
    rejected = plan["rejected"]
    if not rejected:
        return
    counts = Counter(row["stage"] for row in rejected)
    said = ", ".join(f"{count} by {stage}" for stage, count in counts.most_common())
    table = _table(f"Set aside: {said}", "Candidate", "Why")
    shown: Counter[tuple[str, str]] = Counter()
    for row in rejected:
        shown[row["gpu"], row["stage"]] += 1
        if shown[row["gpu"], row["stage"]] > 1 or len(table.rows) >= _FEW:
            continue
        name = f"{row['tp']} x {row['gpu']}, {row['weight_dtype']}, {row['kv_dtype']} cache"
        table.add_row(escape(name), escape(row["reason"]))
    console.print(table)
    if len(rejected) > len(table.rows):
        console.print(f"... and {len(rejected) - len(table.rows)} more (--json lists them all)")


def _or_dash(value: float | None, show: Any) -> str:
    return "-" if value is None else str(show(value))


_WHAT_IF = {
    "n_gpus": "{:,}".format,
    "dollars_per_hour": format_dollars,
    "fits": format_count,
    "ttft_p95_s": format_seconds,
    "tpot_p95_s": format_seconds,
}


def _table(title: str, *names: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for index, name in enumerate(names):
        table.add_column(name, justify="left" if index == 0 else "right", overflow="fold")
    return table


def _lines(title: str) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE, show_header=False
    )
    table.add_column()
    table.add_column(overflow="fold")
    return table
