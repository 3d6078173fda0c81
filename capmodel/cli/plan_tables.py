"""Tables of `capmodel plan`, from the plan's dict."""

from collections import Counter
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from capmodel.cli.terminal import terminal
from capmodel.report.fields import RULERS, STAGES, cap_words, limit_words, one_fails_words
from capmodel.units import format_count, format_dollars, format_percent, format_seconds

_FEW = 8
Row = dict[str, Any]


def print_plan(plan: Row) -> None:
    """The whole plan; an infeasible one says what is nearest and what blocks."""
    console = terminal()
    console.print(escape(plan["message"]), style="bold", soft_wrap=True)
    if plan["recommendation"] is not None:
        _recommendation(console, plan)
        _overflow(console, plan["clients"])
        _latency(console, plan)
        _costs(console, plan)
        _what_ifs(console, plan)
        _sensitivities(console, plan)
        _front(console, plan)
    _rejected(console, plan)
    for line in plan["warnings"]:
        console.print(f"Note: {escape(line)}", soft_wrap=True)


def _recommendation(console: Console, plan: Row) -> None:
    best, clients = plan["recommendation"], plan["clients"]
    lines = _lines(console, "Recommendation")
    lines.add_row(
        "Fleet",
        f"{best['replicas']} x tp {best['tp']} = {best['n_gpus']} {escape(best['gpu'])}",
    )
    if best["prefill_replicas"] is not None:
        lines.add_row(
            "  replicas for prompts, for decoding",
            f"{best['prefill_replicas']} and {best['decode_replicas']}",
        )
    low, high = best["replicas_low"], best["replicas_high"]
    span = f"{low} to {high}" if low != high else f"{low} at either end"
    lines.add_row("  replicas, step time low to high", span)
    lines.add_row("Weights, cache", f"{best['weight_dtype']}, {best['kv_dtype']}")
    lines.add_row("Step times from", escape(best["step_basis"] or "the calibration given"))
    sure = plan["measured_instead"]
    if sure is not None:
        lines.add_row(
            f"  covered {sure['covered']} by measured runs",
            f"{_replicas(sure)} x tp {sure['tp']} = {sure['n_gpus']} {escape(sure['gpu'])}, "
            f"{sure['weight_dtype']}, {sure['kv_dtype']} cache, "
            f"{format_dollars(sure['dollars_per_hour'])}/h",
        )
    busiest, mean = best["estimate"]["utilisation"], best["mean_load"]["utilisation"]
    lines.add_row(
        "Load against capacity",
        f"{format_percent(busiest, 0)} at the busiest, {format_percent(mean, 0)} on average",
    )
    lines.add_row("More load is stopped by", limit_words(best["limited_by"]))
    ruler = best["step_ruled_by"]
    lines.add_row("Most of a step goes into", RULERS.get(ruler, ruler))
    lines.add_row("A larger batch runs into", plan["crossover"]["ceiling"])
    lines.add_row("While one replica is down", one_fails_words(plan))
    spare = best["spare"]
    lines.add_row(
        "  one to spare costs",
        f"{format_dollars(spare['dollars_per_hour'])}/h for {spare['replicas']} replicas",
    )
    fits = clients["fits"]
    lines.add_row(
        "Requests a replica's cache holds",
        f"{fits['p50']:,.0f} ({fits['p5']:,.0f} to {fits['p95']:,.0f} in 9 of 10 draws)",
    )
    which = "replica" if best["prefill_replicas"] is None else "decoding replica"
    apart = clients.get("prompts_max_num_seqs")
    prompts = "" if apart is None else f", {apart:,} on every one for prompts"
    lines.add_row("Set max_num_seqs to", f"{clients['max_num_seqs']:,} on every {which}{prompts}")
    lines.add_row(
        "Let in at most",
        f"{clients['clients']:,} requests at once, {cap_words(clients['limited_by'])}",
    )
    console.print(lines)


def _overflow(console: Console, clients: Row) -> None:
    """The cap and what lies above it; nothing to show where no risk does."""
    risks = [risk for risk in clients["risks"] if risk["sequences"] >= clients["max_num_seqs"]]
    near = [risk for risk in risks if risk["sequences"] <= 2 * clients["max_num_seqs"]]
    if not any(risk["overflow"] >= 5e-4 for risk in near):
        return
    title = "Sequences let into a replica, and the chance that its cache overflows (preemption)"
    table = _table(console, title, "Sequences", "Overflow")
    table.columns[0].justify = "right"
    for risk in near:
        cap = "the cap, " if risk["sequences"] == clients["max_num_seqs"] else ""
        table.add_row(f"{cap}{risk['sequences']:,}", _chance(risk["overflow"]))
    console.print(table)


def _chance(share: float) -> str:
    return "below 0.1 %" if 0 < share < 1e-3 else format_percent(share)


def _latency(console: Console, plan: Row) -> None:
    latency, slo = plan["latency"], plan["slo"]
    promises = {f"{name}_p95_s": slo[f"{name}_s"] for name in ("ttft", "tpot", "e2e")}
    promised = any(limit is not None for limit in promises.values())
    source = latency["from"] if promised else f"{latency['from']}; nothing was promised"
    heads = ("Low", "Estimate", "High", *(["Promise"] if promised else []))
    table = _table(console, f"What users feel ({source})", "", *heads)
    for name, row in latency.items():
        if name == "from" or name.endswith("p99_s"):
            continue
        kind, _, part = name.removesuffix("_s").partition("_")
        cells = [_or_dash(row[end], format_seconds) for end in ("low", "estimate", "high")]
        if promised:
            limit = promises.get(name)
            cells.append("" if limit is None else format_seconds(limit))
        table.add_row(f"{kind.upper()} {part}", *cells)
    console.print(table)


def _costs(console: Console, plan: Row) -> None:
    best, costs, energy = plan["recommendation"], plan["costs"], plan["energy"]
    lines = _lines(console, "Money and energy, at the mean load")
    for name, cost in (
        ("The fleet, an hour", best["dollars_per_hour"]),
        ("One GPU, an hour", best["price_per_gpu_hour"]),
    ):
        low, estimate, high = (format_dollars(cost[end]) for end in ("low", "estimate", "high"))
        lines.add_row(name, f"{estimate} ({low} to {high})" if low != high else estimate)
    for kind, words in (("output", "output"), ("input", "prompt"), ("cached", "cached prompt")):
        value = costs[f"per_million_{kind}"]
        if value is not None:
            lines.add_row(f"A million {words} tokens", format_dollars(value))
    for one in plan["break_even"]:
        lines.add_row(
            f"An API at {format_dollars(one['api_price'])}/M is dearer from",
            f"{one['requests_per_s']:.3g} requests/s (this fleet: {costs['capacity_per_s']:.3g})",
        )
    if energy is not None:
        lines.add_row("Power, every GPU at its rating", f"{energy['kilowatts']:.3g} kW")
        if energy["wh_per_million_output"] is not None:
            lines.add_row(
                "  a million output tokens", f"{energy['wh_per_million_output']:,.0f} Wh at most"
            )
    console.print(lines)


def _what_ifs(console: Console, plan: Row) -> None:
    held = "held to the simulation" if plan["simulation"] else "steady state"
    title = f"What if one thing changed (estimates, {held})"
    table = _table(
        console, title, "", "GPUs", "$/h", "Cache holds", "TTFT p95", "TPOT p95", wraps=0
    )
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


def _sensitivities(console: Console, plan: Row) -> None:
    title = "What moves the cost ($/h in proportion to need; GPUs in whole replicas)"
    table = _table(console, title, "", "Low", "High", "$/h", "GPUs")
    for row in plan["sensitivities"]:
        table.add_row(
            row["name"],
            row["low_input"],
            row["high_input"],
            f"{format_dollars(row['low'])} to {format_dollars(row['high'])}",
            f"{row['low_gpus']} to {row['high_gpus']}",
        )
    console.print(table)
    for row in plan["sensitivities_left_out"]:
        console.print(escape(f"Not shown: {row['name']}, {row['reason']}"), soft_wrap=True)


def _front(console: Console, plan: Row) -> None:
    best = plan["recommendation"]
    table = _table(
        console, "Cost against latency (estimates; * the recommendation)",
        "Fleet", "Weights, cache", "$/h", "E2E mean", "TTFT p95", "TPOT p95",
    )  # fmt: skip
    same = ("gpu", "tp", "weight_dtype", "kv_dtype", "replicas", "prefill_replicas")
    for point in plan["pareto"][:_FEW]:
        mark = " *" if all(point[key] == best[key] for key in same) else ""
        table.add_row(
            escape(f"{_replicas(point)} x tp {point['tp']} {point['gpu']}{mark}"),
            f"{point['weight_dtype']}, {point['kv_dtype']}",
            format_dollars(point["dollars_per_hour"]),
            format_seconds(point["e2e_mean_s"]),
            format_seconds(point["ttft_p95_s"]),
            format_seconds(point["tpot_p95_s"]),
        )
    console.print(table)


def _replicas(row: Row) -> str:
    """`'3'`, and `'1+2'` for one that only takes prompts and two that only decode."""
    if row["prefill_replicas"] is None:
        return str(row["replicas"])
    return f"{row['prefill_replicas']}+{row['decode_replicas']}"


def _rejected(console: Console, plan: Row) -> None:
    rejected = plan["rejected"]
    if not rejected:
        return
    counts = Counter(row["stage"] for row in rejected)
    table = _table(console, f"Set aside: {len(rejected)}", "Candidate", "Why", wraps=1)
    shown: Counter[tuple[str, str]] = Counter()
    for row in rejected:
        shown[row["gpu"], row["stage"]] += 1
        if shown[row["gpu"], row["stage"]] > 1 or len(table.rows) >= _FEW:
            continue
        name = f"{row['tp']} x {row['gpu']}, {row['weight_dtype']}, {row['kv_dtype']} cache"
        table.add_row(escape(name), escape(row["reason"]))
    console.print(table)
    for stage, count in counts.most_common():
        console.print(f"{count}: {STAGES.get(stage, stage)}", soft_wrap=True)
    if len(rejected) > len(table.rows):
        console.print(f"(--json lists all {len(rejected)})")


def _or_dash(value: float | None, show: Any) -> str:
    return "-" if value is None else str(show(value))


_WHAT_IF = {
    "n_gpus": "{:,}".format,
    "dollars_per_hour": format_dollars,
    "fits": format_count,
    "ttft_p95_s": format_seconds,
    "tpot_p95_s": format_seconds,
}


def _table(
    console: Console, title: str, first: str, *others: str, wraps: int | None = None
) -> Table:
    """A quiet table under its title, however narrow it is. wraps: the column that may, if any."""
    console.print(f"\n{escape(title)}", style="bold", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    for place, name in enumerate((first, *others)):
        whole = place != wraps
        table.add_column(name, justify="right" if place and whole else "left", no_wrap=whole)
    return table


def _lines(console: Console, title: str) -> Table:
    console.print(f"\n{title}", style="bold")
    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    return table
