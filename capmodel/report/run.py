"""The capacity plan of one `capmodel run`: from its summary dict to a `Document`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from capmodel.report.card import TERMS, coefficient_blocks, grade_blocks, rows_blocks
from capmodel.report.decision import SWEEP_COLUMNS, decision_blocks, gpus_text, sweep_row
from capmodel.report.document import (
    Block,
    Bullets,
    Code,
    Column,
    Document,
    Pairs,
    Section,
    Table,
    Text,
)
from capmodel.report.figures import grade_picture, interval_picture, terms_picture
from capmodel.report.numbers import NONE, bytes_text, milliseconds, number, percent, whole

Row = Mapping[str, Any]


def run_document(summary: Row) -> Document:
    """Lay out what a run found: the page that decides first, then what it rests on.

    `summary` is the plain dict `capmodel run` gathers (deployment, memory, fits, sweep, rows,
    grade card, coefficients, provenance). Raises `ValueError` if a part is missing.
    """
    missing = sorted(_PARTS - summary.keys())
    if missing:
        raise ValueError(f"Got a run summary without {missing}, but expected {sorted(_PARTS)}")
    identity = f"capmodel {summary['package_version']} · calibration {summary['calibration_id']}"
    return Document(
        title=summary["title"],
        subtitle=_deployment_line(summary["deployment"]),
        date=summary["date"],
        footer=identity,
        sections=(
            Section("", tuple(decision_blocks(summary))),
            Section("Memory: what fits", tuple(_memory(summary)), new_page=True),
            Section("The sweep over batch", tuple(_sweep(summary))),
            Section("Runs this rests on", tuple(_runs(summary))),
            Section("Grade card", tuple(_grades(summary))),
            Section("Coefficients", tuple(_coefficients(summary["coefficients"]))),
            Section("What is not modelled", (_not_modelled(summary["not_modelled"]),)),
            Section("How to reproduce this", tuple(_reproduce(summary))),
        ),
    )


_PARTS = {
    *("title", "date", "package_version", "calibration_id", "command", "synthetic", "inputs"),
    *("rows", "used_by", "noise_floor_mape", "deployment", "memory", "fits", "sweep"),
    *("grade_card", "absent_splits", "coefficients", "not_modelled"),
}


def _deployment_line(deployment: Row) -> str:
    parts = [
        f"{deployment['model']} on {gpus_text(deployment)}",
        deployment["engine"],
        f"weights {deployment['weight_dtype']}",
        f"KV cache {deployment['kv_dtype']}",
    ]
    return " · ".join(part for part in parts if part)


def _memory(summary: Row) -> list[Block]:
    memory = summary["memory"]
    named: dict[str, tuple[str, Callable[[Any], str]]] = {
        "mode": ("Mode", str),
        "capacity_bytes": ("Memory of a GPU", bytes_text),
        "memory_fraction": ("Share the engine may use", percent),
        "weight_bytes": ("Weights, a GPU", bytes_text),
        "kv_bytes_per_token": ("KV cache a token, a GPU", lambda value: f"{whole(value)} bytes"),
    }
    pairs = [(label, show(memory[key])) for key, (label, show) in named.items() if key in memory]
    pairs += [(_label(key), _shown(key, memory[key])) for key in memory if key not in named]
    blocks: list[Block] = [Pairs(tuple(pairs))]
    if summary["fits"]:
        blocks.append(
            Table(
                "Requests that fit at once, by context length.",
                (
                    Column("Tokens a request", True),
                    Column("KV cache a request and GPU", True),
                    Column("Requests at once", True),
                ),
                tuple(
                    (
                        whole(row["context_len"]),
                        bytes_text(row["kv_bytes_per_request"]),
                        whole(row["max_concurrency"]),
                    )
                    for row in summary["fits"]
                ),
                faint=tuple(
                    i for i, row in enumerate(summary["fits"]) if row["max_concurrency"] < 1
                ),
            )
        )
    return blocks


def _label(key: str) -> str:
    words = key.removesuffix("_bytes").replace("_", " ")
    return _capital(words)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _shown(key: str, value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return bytes_text(value) if key.endswith("bytes") else number(value)


def _sweep(summary: Row) -> list[Block]:
    sweep = summary["sweep"]
    if not sweep:
        return [Text("No batch was swept.")]
    picture = terms_picture(sweep)
    blocks: list[Block] = [picture] if picture else []
    blocks.append(
        Table(
            "The sweep. Step: one decode step of the whole batch. Grey rows: memory does not hold "
            "that batch.",
            SWEEP_COLUMNS,
            tuple(sweep_row(row) for row in sweep),
            faint=tuple(i for i, row in enumerate(sweep) if not row["fits"]),
        )
    )
    names = [name for name in TERMS if any(row["terms"].get(name) for row in sweep)]
    names += sorted({name for row in sweep for name in row["terms"]} - TERMS.keys())
    blocks.append(
        Table(
            "What each step's time goes to, in ms.",
            (
                *SWEEP_COLUMNS[:2],
                *(Column(_capital(TERMS.get(name, name)), True) for name in names),
            ),
            tuple(
                (
                    *sweep_row(row)[:2],
                    *(milliseconds(row["terms"].get(name)) for name in names),
                )
                for row in sweep
            ),
            faint=tuple(i for i, row in enumerate(sweep) if not row["fits"]),
        )
    )
    return blocks


def _runs(summary: Row) -> list[Block]:
    blocks = rows_blocks(
        summary["rows"],
        summary["used_by"],
        "Each row stands in runs_set_aside.csv with its reason.",
    )
    sources = list(summary.get("sources") or ())
    if sources:
        more = f" and {whole(len(sources) - _MOST_SOURCES)} more" * (len(sources) > _MOST_SOURCES)
        named = "; ".join(sources[:_MOST_SOURCES])
        blocks.insert(1, Text(f"{named}{more}.", lead="Where they are from."))
    return blocks


_MOST_SOURCES = 6


def _grades(summary: Row) -> list[Block]:
    card = summary["grade_card"]
    blocks = grade_blocks(card, summary["absent_splits"], summary["noise_floor_mape"])
    picture = grade_picture(card, summary["noise_floor_mape"]) if card else None
    return [picture, *blocks] if picture else blocks


def _coefficients(rows: Sequence[Row]) -> list[Block]:
    picture = interval_picture(rows)
    table, *bounds = coefficient_blocks(rows)
    return [table, *([picture] if picture else []), *bounds]


def _not_modelled(items: Sequence[str]) -> Block:
    return Bullets(tuple(items)) if items else Text("Nothing was named.")


def _reproduce(summary: Row) -> list[Block]:
    blocks: list[Block] = [
        Text("With the same package, inputs and command this document comes out byte for byte."),
        Code(summary["command"]),
        Pairs(
            (
                ("Package", f"capmodel {summary['package_version']}"),
                ("Calibration", summary["calibration_id"]),
            )
        ),
    ]
    if summary["inputs"]:
        lines = [f"{entry['sha256']}  {entry['name']}" for entry in summary["inputs"]]
        blocks += [Text("Inputs, by sha256:"), Code("\n".join(lines))]
    return blocks
