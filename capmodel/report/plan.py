"""A capacity plan: from the dict of `Plan.to_dict()` to a `Document`."""

from collections.abc import Mapping
from typing import Any

from capmodel.report.card import coefficient_blocks, grade_blocks, rows_blocks, term_blocks
from capmodel.report.document import Block, Bullets, Code, Document, Pairs, Picture, Section, Text
from capmodel.report.fields import pairs
from capmodel.report.figures import grade_picture, interval_picture, residual_picture
from capmodel.report.glossary import GLOSSARY
from capmodel.report.plan_choices import (
    alternatives_blocks,
    rejected_blocks,
    reserve_blocks,
    sensitivity_blocks,
)
from capmodel.report.plan_decision import decision_blocks
from capmodel.report.plan_money import money_blocks
from capmodel.report.plan_sections import (
    latency_blocks,
    ledger_blocks,
    memory_blocks,
    steps_blocks,
    workload_blocks,
)
from capmodel.report.schema import CHOSEN, PLAN, breach

Row = Mapping[str, Any]
SCHEMA_VERSION = 1


def plan_document(plan: Row) -> Document:
    """Lay out a plan: the page that decides, then everything it rests on.

    `plan` is what `Plan.to_dict()` gives, or `plan.json` holds. It may also carry a `title` and,
    under `calibration`, `absent_splits`, `noise_floor_mape`, rows `read` and `set_aside`,
    `coverage` (by split, shares inside over those promised) and `residuals` (`measured_s`,
    `predicted_s`, `group`).
    Raises `ValueError` for what is no plan, or one of another schema version.
    """
    check_plan(plan)
    best = plan["recommendation"]
    card = plan.get("calibration") or {}
    calibration = best["calibration_id"] if best else card.get("id")
    calibration = calibration or ("none" if best else "")
    sections = [Section("", tuple(decision_blocks(plan)))]
    sections.append(Section("Workload", tuple(workload_blocks(plan)), new_page=True))
    sections.append(Section("Assumptions", tuple(ledger_blocks(plan))))
    if best:
        sections += [
            Section("Memory", tuple(memory_blocks(plan))),
            Section("Step time and tokens per second", tuple(steps_blocks(plan))),
            Section("Latency", tuple(latency_blocks(plan))),
            Section("Load and reserve", tuple(reserve_blocks(plan))),
            Section("Money and energy", tuple(money_blocks(plan))),
            Section("What moves the cost", tuple(sensitivity_blocks(plan))),
            Section("Alternatives", tuple(alternatives_blocks(plan))),
        ]
    sections += [
        Section("Candidates set aside", tuple(rejected_blocks(plan))),
        *_calibration(plan),
        Section("What is not modelled", (Bullets(tuple(plan["not_modelled"])),)),
        Section("Words", (Pairs(GLOSSARY),)),
        Section("How to reproduce this", tuple(_reproduce(plan))),
    ]
    return Document(
        title=plan.get("title") or f"Capacity plan: {plan['model']['name']}",
        subtitle=_subtitle(plan),
        date=plan.get("date"),
        footer=f"capmodel {plan['package_version']}"
        + (f" · calibration {calibration}" if calibration else ""),
        sections=tuple(sections),
    )


def check_plan(plan: Row) -> None:
    """Raise `ValueError` unless `plan` is a plan of the schema this version reads."""
    if not isinstance(plan, Mapping) or plan.get("kind") != "plan":
        kind = plan.get("kind") if isinstance(plan, Mapping) else type(plan).__name__
        raise ValueError(
            f'Got {kind!r}, but expected a plan ("kind": "plan"), as capmodel plan writes'
        )
    version = plan.get("schema_version")
    if version != SCHEMA_VERSION:
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        raise ValueError(
            f"Got a plan of schema version {str(version)[:20]}, but this capmodel reads "
            f"{SCHEMA_VERSION}: "
            + ("install the capmodel that wrote it" if newer else "plan again with this capmodel")
        )
    chosen = plan.get("recommendation", True) is not None
    spec = PLAN | CHOSEN if chosen else PLAN
    wrong = breach(plan, spec)
    if wrong:
        raise ValueError(f"This plan cannot be read: {wrong}")


def _subtitle(plan: Row) -> str:
    best = plan["recommendation"]
    if not best:
        return f"{plan['model']['name']}: nothing found"
    return (
        f"{plan['model']['name']} on {best['n_gpus']} × {best['gpu']} · TP {best['tp']} · weights "
        f"{best['weight_dtype']} · KV cache {best['kv_dtype']}"
    )


def _calibration(plan: Row) -> list[Section]:
    card = plan.get("calibration")
    if not card:
        return []
    about = pairs(card, "noise_floor_mape")
    if card.get("sources"):
        about = (*about, ("Rows from", "; ".join(card["sources"])))
    blocks: list[Block] = [Pairs(about)]
    if card.get("rows"):
        blocks += rows_blocks(card["rows"], card.get("used_by") or ())
    grades = card.get("grade_card")
    if grades:
        noise = card.get("noise_floor_mape")
        blocks += _known(grade_picture(grades, noise))
        blocks += grade_blocks(grades, card.get("absent_splits") or {}, noise)
    if card.get("residuals"):
        blocks += _known(residual_picture(card["residuals"], card.get("noise_floor_mape")))
    if card.get("coefficients"):
        basis = card.get("basis")
        rows = card["coefficients"]
        table, *bounds = coefficient_blocks(rows, basis, named=not card.get("terms"))
        blocks += [table, *_known(interval_picture(rows)), *bounds]
        if card.get("terms"):
            blocks += term_blocks(card["terms"], basis or "")
    return [Section("Calibration card", tuple(blocks))]


def _known(picture: Picture | None) -> list[Block]:
    return [] if picture is None else [picture]


def _reproduce(plan: Row) -> list[Block]:
    blocks: list[Block] = []
    if plan.get("command"):
        blocks.append(Code(plan["command"]))
    rows = [("Package", f"capmodel {plan['package_version']}"), ("Seed", str(plan["seed"]))]
    if plan.get("date"):
        rows.append(("Date", f"{plan['date']} (--date {plan['date']})"))
    if plan.get("engine"):
        rows.append(("Engine asked for", str(plan["engine"])))
    card = plan.get("calibration")
    if card:
        rows.append(("Calibration", str(card["id"] or "given")))
    blocks.append(Pairs(tuple(rows)))
    inputs = plan.get("inputs") or ()
    if inputs:
        blocks.append(Text("Inputs, by sha256:"))
        blocks.append(Code("\n".join(f"{entry['sha256']}  {entry['name']}" for entry in inputs)))
    blocks.append(
        Text(
            "Equal arguments, inputs, package, calibration and date give this document byte for "
            "byte."
        )
    )
    return blocks
