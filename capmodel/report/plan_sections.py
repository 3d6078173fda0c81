"""What a plan rests on and how its replica runs: workload, ledger, memory, steps, latency."""

from collections.abc import Mapping
from typing import Any

from capmodel.report.document import Block, Column, Pairs, Table, Text
from capmodel.report.fields import cap_words, cell, label, pairs
from capmodel.report.numbers import percent, whole
from capmodel.report.plan_figures import (
    concurrency_picture,
    memory_parts,
    memory_picture,
    shares_picture,
    steps_picture,
)

Row = Mapping[str, Any]
_ENDS = ("low", "estimate", "high")
# What kind of knowledge an assumption is; the doubtful ones are set bold.
KINDS = {
    "given": "Given: stated for this plan.",
    "measured": "Measured: from runs or logs.",
    "composed": "Composed: added up from measured kernels; no such step was run.",
    "generated": "Generated: from rows that a program made up; nothing was run.",
    "datasheet": "Datasheet: the maker's figure.",
    "guessed": "Guessed: a default that nobody checked for this case.",
}
DOUBTFUL = ("guessed", "generated")


def workload_blocks(plan: Row) -> list[Block]:
    """What was asked: the model, the load, the promises."""
    slo = plan["slo"]
    promises = tuple(
        (f"{name.upper()}, {slo['percentile']:g}th percentile", f"{cell(f'{name}_s', limit)} ms")
        for name in ("ttft", "tpot", "e2e")
        if (limit := slo[f"{name}_s"]) is not None
    )
    return [
        Pairs((("Model", str(plan["model"]["name"])), *pairs(plan["model"], "name"))),
        Text("", lead="Load."),
        Pairs(pairs(plan["workload"])),
        Text("" if promises else "None was made.", lead="Promises."),
        *([Pairs(promises)] if promises else []),
    ]


def ledger_blocks(plan: Row) -> list[Block]:
    """Every assumption with what kind of knowledge it is and where it comes from."""
    lines = plan.get("assumptions") or []
    if not lines:
        return [
            Text(
                "No fleet was chosen, so none is listed. What is said of the candidates set aside "
                "rests on the datasheets and the calibration that a plan takes for each"
                + ("; the card below is of the closest's." if plan.get("calibration") else ".")
            )
        ]
    kinds = {row["kind"] for row in lines}
    glosses = " ".join(text for kind, text in KINDS.items() if kind in kinds)
    return [
        Table(
            f"Assumptions. {glosses}",
            (Column("What"), Column("Value"), Column("Kind"), Column("Source")),
            tuple((row["what"], row["value"], row["kind"], row["source"]) for row in lines),
            strong=tuple(i for i, row in enumerate(lines) if row["kind"] in DOUBTFUL),
        )
    ]


def memory_blocks(plan: Row) -> list[Block]:
    """The budget of one GPU, what the pool holds, and the limits to set."""
    memory, clients = plan["memory"], plan["clients"]
    parts = memory_parts(memory)
    blocks: list[Block] = [
        memory_picture(memory),
        Table(
            f"One GPU in {memory['mode']} mode.",
            (Column("Part"), Column("Size", True), Column("Share", True)),
            tuple(
                (label(key), cell(key, value), percent(value / memory["capacity_bytes"]))
                for key, value in parts.items()
            ),
        ),
        Pairs(pairs(memory, "mode", *parts)),
    ]
    fits = clients["fits"]
    held = ", ".join(
        f"{cell('fits', fits[end])} ({end})" for end in ("p5", "p50", "p95") if end in fits
    )
    blocks += [
        Text(
            f"Over the mix of lengths one replica's pool holds {held} sequences: as many in 5, 50 "
            "and 95 of 100 draws, or fewer.",
            lead="What the pool holds.",
        ),
        Table(
            "Chance that the pool overflows and requests are preempted. Cap: "
            f"{whole(clients['max_num_seqs'])} sequences a replica (bold), "
            f"{whole(clients['clients'])} requests in the fleet, "
            f"{cap_words(clients['limited_by'])}.",
            (Column("Sequences a replica", True), Column("Overflow", True)),
            tuple(
                (whole(risk["sequences"]), percent(risk["overflow"])) for risk in clients["risks"]
            ),
            strong=tuple(
                i
                for i, risk in enumerate(clients["risks"])
                if risk["sequences"] == clients["max_num_seqs"]
            ),
        ),
    ]
    if plan.get("fits"):
        blocks += _fits(plan)
    return blocks


def _fits(plan: Row) -> list[Block]:
    rows, best = plan["fits"], plan["recommendation"]
    picture = concurrency_picture(rows, f"{best['kv_dtype']} cache")
    table = Table(
        "Requests one replica holds at once, by their length.",
        (Column("Tokens a request", True), Column("Requests at once", True)),
        tuple((whole(row["context_len"]), whole(row["max_concurrency"])) for row in rows),
        faint=tuple(i for i, row in enumerate(rows) if row["max_concurrency"] < 1),
    )
    return [picture, table] if picture else [table]


def steps_blocks(plan: Row) -> list[Block]:
    """Step time and tokens/s over batch, and where more batch stops paying."""
    rows, crossover = plan["steps"], plan["crossover"]
    if not rows:
        return [Text("No step was reckoned.")]
    blocks: list[Block] = [steps_picture(plan)]
    if crossover:
        blocks += [
            Text(f"A larger batch runs into {crossover['ceiling']}.", lead="The ceiling."),
            Pairs(
                (
                    ("Pool full at batch", _from(crossover, "pool_full")),
                    ("Cache reads take longest from", _from(crossover, "cache_longest_from")),
                    ("Doubling gives under a quarter from", _from(crossover, "half_gain")),
                )
            ),
        ]
    blocks += [_steps_table(rows), shares_picture(rows)]
    return blocks


def _from(crossover: Row, key: str) -> str:
    return "no batch looked at" if crossover[key] is None else cell(key, crossover[key])


def _steps_table(rows: list[Row]) -> Table:
    return Table(
        "One replica over batch. Grey: the pool overflows more than one time in a hundred.",
        (
            Column("Batch", True),
            Column("Step, low [ms]", True),
            Column("Estimate", True),
            Column("High", True),
            Column("Tokens/s, low", True),
            Column("Estimate", True),
            Column("High", True),
            Column("Cache", True),
            Column("Prompts", True),
            Column("Fits"),
        ),
        tuple(
            (
                whole(row["batch"]),
                *(cell("step_s", value) for value in row["step_s"]),
                *(cell("tokens_per_s", value) for value in row["tokens_per_s"]),
                percent(row["cache_share"]),
                percent(row["prefill_share"]),
                cell("fits", row["fits"]),
            )
            for row in rows
        ),
        faint=tuple(i for i, row in enumerate(rows) if not row["fits"]),
    )


def latency_blocks(plan: Row) -> list[Block]:
    """Every latency at the ends and the estimate, and the simulation it is from."""
    latency, simulation = plan["latency"], plan["simulation"]
    blocks: list[Block] = [
        Table(
            f"Latency in ms, from the {latency['from']}.",
            (
                Column("In ms"),
                Column("Low", True),
                Column("Estimate", True),
                Column("High", True),
            ),
            tuple(
                (_latency_name(key), *(cell(key, figures[end]) for end in _ENDS))
                for key, figures in latency.items()
                if key != "from"
            ),
        )
    ]
    if simulation:
        shown = [key for key in simulation if key in latency]
        blocks += [
            Text("", lead="The simulation at the estimate."),
            Pairs(pairs(simulation, *shown)),
        ]
    return blocks


def _latency_name(key: str) -> str:
    kind, _, part = key.removesuffix("_s").partition("_")
    return f"{kind.upper()}, {part}"
