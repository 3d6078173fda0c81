"""What else could be done: what moves the cost, other fleets, and why they were not taken."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from capmodel.report.document import Block, Bullets, Column, Table, Text
from capmodel.report.fields import SHORT_STAGES, STAGES, cell, fleet_name, limit_words
from capmodel.report.numbers import whole
from capmodel.report.plan_figures import tornado_picture
from capmodel.units import format_dollars

Row = Mapping[str, Any]
# More rows than this stand in plan.json alone; the document says how many.
MOST_ROWS = 40


def reserve_blocks(plan: Row) -> list[Block]:
    """How a replica runs at the busiest load, on average, and when another one has failed."""
    best = plan["recommendation"]
    states = {"busiest": best["estimate"], "mean load": best["mean_load"]}
    if best["spare"]["one_fails"]:
        states["one failed"] = best["spare"]["one_fails"]
    columns = (Column("A replica, steady state"), *(Column(name, True) for name in states))
    keys = list(best["estimate"])
    rows = tuple(
        (_OPERATION.get(key, key), *(cell(key, state.get(key)) for state in states.values()))
        for key in keys
    )
    return [Table("Times in ms, by steady-state estimate.", columns, rows)]


_OPERATION = {
    "batch": "Sequences decoding",
    "rate": "Requests a second",
    "step_s": "Step [ms]",
    "ttft_mean_s": "TTFT, mean [ms]",
    "ttft_p95_s": "TTFT, p95 [ms]",
    "tpot_mean_s": "TPOT, mean [ms]",
    "tpot_p95_s": "TPOT, p95 [ms]",
    "e2e_mean_s": "E2E, mean [ms]",
    "e2e_p95_s": "E2E, p95 [ms]",
    "utilisation": "Of the most it sustains",
    "prefill_share": "Step time on prompts",
    "cache_share": "Step time on cache reads",
}


def sensitivity_blocks(plan: Row) -> list[Block]:
    """What moves the cost, and what-ifs."""
    rows = plan["sensitivities"]
    # An input at one of whose ends no fleet keeps the promises has no bar.
    without = tuple(
        f"{row['name']}: {row['reason']}" for row in plan.get("sensitivities_left_out") or ()
    )
    blocks: list[Block] = []
    if rows:
        blocks += [
            tornado_picture(rows),
            Table(
                f"The plan's {format_dollars(rows[0]['base'])} an hour at either end of each "
                "input, the rest as planned, in proportion to the capacity needed. GPUs: of whole "
                "replicas.",
                (
                    Column("Input"),
                    Column("Low"),
                    Column("High"),
                    Column("$/h, low", True),
                    Column("$/h, high", True),
                    Column("GPUs, low", True),
                    Column("GPUs, high", True),
                ),
                tuple(
                    (
                        row["name"],
                        row["low_input"],
                        row["high_input"] if row["high_input"] != row["low_input"] else "the same",
                        format_dollars(row["low"]),
                        format_dollars(row["high"]),
                        cell("low_gpus", row.get("low_gpus")),
                        cell("high_gpus", row.get("high_gpus")),
                    )
                    for row in rows
                ),
            ),
        ]
    if without:
        blocks += [
            Text("", lead="Not in the figure, as no fleet will do at one end."),
            Bullets(without),
        ]
    if plan["what_ifs"]:
        blocks.append(_what_ifs(plan["what_ifs"], bool(plan["simulation"])))
    return blocks or [Text("Nothing was varied.")]


def _what_ifs(rows: Sequence[Row], simulated: bool) -> Table:
    how = "by steady-state estimate"
    if simulated:
        how += ", held to what the simulation of the plan found"
    return Table(
        f"What if one thing were different, {how}. Held: sequences one replica's pool holds, "
        "median.",
        (
            Column("Change"),
            Column("Replicas", True),
            Column("GPUs", True),
            Column("$/h", True),
            Column("Held", True),
            Column("TTFT p95 [ms]", True),
            Column("TPOT p95 [ms]", True),
            Column("Note"),
        ),
        tuple(
            (
                row["name"],
                cell("replicas", row["replicas"]),
                cell("n_gpus", row["n_gpus"]),
                cell("dollars_per_hour", row["dollars_per_hour"]),
                cell("fits", row["fits"]),
                cell("ttft_p95_s", row["ttft_p95_s"]),
                cell("tpot_p95_s", row["tpot_p95_s"]),
                row["note"],
            )
            for row in rows
        ),
        faint=tuple(i for i, row in enumerate(rows) if row["replicas"] is None),
    )


def alternatives_blocks(plan: Row) -> list[Block]:
    """Cost against latency, the fleets that would do, those simulated."""
    best = plan["recommendation"]
    rows = [{**best, "dollars_per_hour": best["dollars_per_hour"]["estimate"]}]
    rows += plan["alternatives"][:MOST_ROWS]
    instead = plan.get("measured_instead")
    if instead and not any(all(row.get(k) == instead.get(k) for k in _SAME) for row in rows):
        rows.append(instead)
    blocks: list[Block] = [_front(plan["pareto"], best), _costs(rows), _operations(rows)]
    if plan["tried"]:
        blocks.insert(
            2,
            Text(
                "Estimates and simulation differ a little: of the chosen fleet the simulation "
                "decides, so that it may pass or miss the promises here by estimate.",
                small=True,
            ),
        )
    left = len(plan["alternatives"]) - MOST_ROWS
    if left > 0:
        blocks.append(Text(f"{whole(left)} dearer fleets more stand in plan.json.", small=True))
    if plan["tried"]:
        blocks.append(_tried(plan["tried"]))
    if instead:
        blocks.append(_instead(instead))
    if any(row.get("prefill_replicas") is not None for row in (*rows, *plan["pareto"])):
        text = "(1 + 2) × ...: one replica takes the prompts alone, two decode."
        blocks.insert(0, Text(text, small=True))
    return blocks


def _instead(row: Row) -> Table:
    how = "from a simulation of its own" if row["simulated"] else "by steady-state estimate"
    return Table(
        f"The cheapest fleet that measured runs cover better than the chosen one: "
        f"{row['covered']}. Times in ms, {how}.",
        (*_FLEET, Column("$/h", True), Column("TTFT p95", True), Column("TPOT p95", True)),
        ((*_named(row), *_cells(row, "dollars_per_hour", "ttft_p95_s", "tpot_p95_s")),),
    )


def _front(rows: Sequence[Row], best: Row) -> Table:
    return Table(
        "Fleets that none is both cheaper and faster than, by steady-state estimate. Bold: the "
        "chosen one. Times in ms.",
        (
            *_FLEET,
            Column("$/h", True),
            Column("E2E mean", True),
            Column("TTFT p95", True),
            Column("TPOT p95", True),
            Column("E2E p95", True),
        ),
        tuple(
            (
                *_named(row),
                *_cells(row, "dollars_per_hour", "e2e_mean_s", "ttft_p95_s", "tpot_p95_s"),
                cell("e2e_p95_s", row.get("e2e_p95_s")),
            )
            for row in rows
        ),
        strong=tuple(
            i for i, row in enumerate(rows) if all(row.get(k) == best.get(k) for k in _SAME)
        ),
    )


_SAME = ("gpu", "tp", "weight_dtype", "kv_dtype", "replicas", "prefill_replicas")


_FLEET = (Column("Fleet"), Column("Weights"), Column("Cache"))


def _named(row: Row) -> tuple[str, str, str]:
    return (fleet_name(row), row["weight_dtype"], row["kv_dtype"])


def _cells(row: Row, *keys: str) -> tuple[str, ...]:
    return tuple(cell(key, row.get(key)) for key in keys)


def _costs(rows: Sequence[Row]) -> Table:
    return Table(
        "The chosen fleet, and others that keep the promises by estimate but cost as much or "
        "more. Capacity: requests a second one replica carries within them.",
        (
            Column("No.", True),
            *_FLEET,
            Column("GPUs", True),
            Column("$/h", True),
            Column("Capacity", True),
            Column("More load is stopped by"),
        ),
        tuple(
            (
                whole(place),
                *_named(row),
                *_cells(row, "n_gpus", "dollars_per_hour", "capacity_per_replica"),
                limit_words(row["limited_by"]),
            )
            for place, row in enumerate(rows, start=1)
        ),
        strong=(0,),
    )


def _operations(rows: Sequence[Row]) -> Table:
    keys = list(_OPERATION)
    keys.remove("tpot_mean_s")
    heads = (
        "Batch",
        "Req/s",
        "Step",
        "TTFT mean",
        "TTFT p95",
        "TPOT p95",
        "E2E mean",
        "E2E p95",
        "Load",
        "Prompts",
    )
    return Table(
        "The same fleets by their number at the busiest load, a replica each. Times in ms; the "
        "mean TPOT is the step. Load: of the most it sustains; prompts, cache: shares of the step.",
        (Column("No.", True), *(Column(head, True) for head in (*heads, "Cache"))),
        tuple(
            (whole(place), *_cells(row["estimate"], *keys))
            for place, row in enumerate(rows, start=1)
        ),
        strong=(0,),
    )


def _tried(rows: Sequence[Row]) -> Table:
    return Table(
        "Fleets simulated, at the promises' percentile. Times in ms.",
        (
            *_FLEET,
            Column("$/h", True),
            Column("TTFT", True),
            Column("TPOT", True),
            Column("E2E", True),
            Column("Misses"),
            Column("Runs", True),
        ),
        tuple(
            (
                *_named(row),
                *_cells(row, "dollars_per_hour", "ttft_s", "tpot_s"),
                cell("e2e_s", row.get("e2e_s")),
                ", ".join(name.upper() for name in row["missed"]) or "nothing",
                whole(row["tries"]),
            )
            for row in rows
        ),
    )


def _gpus_of(rows: Sequence[Row], stage: str, at_most: int = 12) -> str:
    """The GPUs of the candidates set aside at `stage`, the rest counted."""
    names = list(dict.fromkeys(str(row["gpu"]) for row in rows if row["stage"] == stage))
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more


_LATENCIES = {"ttft_p95_s": "TTFT p95", "tpot_p95_s": "TPOT p95", "e2e_p95_s": "E2E p95"}


def _set_aside(rows: Sequence[Row], closest: bool) -> Table:
    """Rows with their reasons; latencies only where some row has one, to leave reasons the room."""
    keys = [key for key in _LATENCIES if any(row.get(key) is not None for row in rows)]
    caption = "Candidates set aside and why."
    if keys:
        caption += " Latencies in ms with hardly any load, where those are what stops them."
    return Table(
        caption + (" Bold: the closest." if closest else ""),
        (*_FLEET, Column("For"), Column("Why"), *(Column(_LATENCIES[key], True) for key in keys)),
        tuple(
            (
                *_named(row),
                SHORT_STAGES.get(str(row["stage"]), str(row["stage"])),
                row["reason"],
                *(cell(key, row.get(key)) for key in keys),
            )
            for row in rows
        ),
        strong=(0,) if closest else (),
    )


def rejected_blocks(plan: Row) -> list[Block]:
    """Every candidate set aside, with its reason."""
    rows, closest = plan["rejected"], plan["closest"]
    if not rows:
        return [Text("No candidate was set aside.")]
    first = [row for row in rows if closest and row == closest][:1]
    if first:
        rows = first + [row for row in rows if row != closest]
    counts = Counter(row["stage"] for row in rows)
    said = tuple(
        f"{whole(count)}: {STAGES.get(stage, stage)} ({_gpus_of(rows, stage)})"
        for stage, count in counts.most_common()
    )
    blocks: list[Block] = [
        Text(f"{whole(len(rows))} candidate{'s were' if len(rows) > 1 else ' was'} set aside."),
        Bullets(said),
        _set_aside(rows[:MOST_ROWS], closest=bool(first)),
    ]
    if len(rows) > MOST_ROWS:
        blocks.append(Text(f"{whole(len(rows) - MOST_ROWS)} more stand in plan.json.", small=True))
    if plan["tried"] and not plan["recommendation"]:
        blocks.append(_tried(plan["tried"]))
    return blocks
