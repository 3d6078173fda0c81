"""What the numbers rest on: rows used and set aside, the grade card, the fitted coefficients."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from capmodel.quality.glosses import GLOSSES
from capmodel.report.document import Block, Bullets, Column, Pairs, Table, Text
from capmodel.report.fields import cell, level_name
from capmodel.report.numbers import NONE, number, percent, whole

# What a split leaves out, as a cell.
LEFT_OUT = {
    "random": "random rows",
    "config": "configuration",
    "deployment": "deployment",
    "model": "model",
    "gpu": "GPU",
}
SPLITS = {
    "random": "rows like those measured (random rows)",
    "config": "a new context, batch free (configuration left out)",
    "deployment": "a new deployment (engine, model and GPU together left out)",
    "model": "a model never measured (model left out)",
    "gpu": "a GPU never measured (GPU left out)",
}
ESTIMATORS = {
    "raw_linear": "linear on raw columns",
    "raw_boosting": "boosted trees on raw columns",
    "nearest": "nearest measured row",
    "roofline": "roofline",
    "regressor": "traffic regressor",
}
TERMS = {
    "weights": "weight reads",
    "kv": "KV reads",
    "compute": "compute",
    "fixed": "fixed work",
    "communication": "communication",
    "prefill": "prefill",
}
# What each coefficient is of.
COEFFICIENTS = {
    "c_step": "fixed work of a layer",
    "c_w": "reading the weights",
    "c_kv": "reading the cache",
    "c_f": "arithmetic of decoded tokens",
    "c_expert": "reading an expert, on top of c_w",
    "c_quantised": "fixed work of a quantised layer",
    "c_reduce": "starting an all-reduce",
    "c_link": "all-reduced bytes, own links",
    "c_round": "rounds of an all-reduce",
    "c_bus": "all-reduced bytes, shared bus",
    "c_cross": "all-reduced bytes, bridged buses",
    "c_hop": "handing on to the next stage",
    "c_prefill": "arithmetic of prompts inside a step",
    "c_sequence": "sampling and scheduling a sequence",
    "c_attention": "re-reading the cache per query head",
    "c_request": "starting a request",
}


def rows_blocks(
    rows: Mapping[str, Any], used_by: Sequence[Mapping[str, Any]], where: str = ""
) -> list[Block]:
    """Rows read, used and set aside by rule, and the rows used of each engine and GPU.

    `where` says in a sentence where the rows set aside can be read.
    """
    set_aside = dict(rows.get("set_aside") or {})
    sentence = f"{whole(rows['used'])} rows were used"
    if rows.get("read") is not None:
        sentence = (
            f"{whole(rows['read'])} rows were read; {whole(rows['used'])} were used and "
            f"{whole(sum(set_aside.values()))} set aside, each by a named rule"
        )
    blocks: list[Block] = [Text(f"{sentence}.")]
    if set_aside:
        counts = sorted(set_aside.items(), key=lambda item: (-item[1], item[0]))
        blocks.append(
            Table(
                f"Rows set aside, by rule. {where}".strip(),
                (Column("Rule"), Column("Rows", True), Column("Why")),
                tuple((rule, whole(n), GLOSSES.get(rule, NONE)) for rule, n in counts),
            )
        )
    if used_by:
        blocks.append(
            Table(
                "Rows used, by engine and GPU.",
                (Column("Engine"), Column("GPU"), Column("Rows", True)),
                tuple((row["engine"], row["gpu"], whole(row["rows"])) for row in used_by),
            )
        )
    return blocks


def grade_blocks(
    grade_card: Sequence[Mapping[str, Any]],
    absent_splits: Mapping[str, str],
    noise_floor: float | None,
) -> list[Block]:
    """The grade card, split by split, the noise floor, and the splits that could not be made."""
    blocks: list[Block] = []
    if grade_card:
        order = {name: place for place, name in enumerate(SPLITS)}
        names = {name: place for place, name in enumerate(ESTIMATORS)}
        rows = sorted(
            grade_card,
            key=lambda row: (order.get(row["split"], 99), names.get(row["estimator"], 99)),
        )
        covered = any(row["coverage_90"] is not None for row in rows)
        cover = "; cover: share of measurements inside the 90 % band" if covered else ""
        blocks.append(
            Table(
                "Errors on rows the estimator did not see. MAPE: mean absolute error in percent of "
                f"the measured step time; bias: mean signed error{cover}. Left out together: a "
                "configuration's batches; all rows of one engine, model and GPU (deployment); of "
                "one model; of one GPU.",
                (
                    Column("Left out"),
                    Column("Estimator"),
                    Column("MAPE", True),
                    Column("Median", True),
                    Column("90th pct.", True),
                    Column("Bias", True),
                    Column("R²", True),
                    Column("R² log", True),
                    *([Column("Cover", True)] if covered else []),
                    Column("Rows", True),
                ),
                tuple(_grade_row(row, covered) for row in rows),
                strong=tuple(i for i, row in enumerate(rows) if row["estimator"] == "regressor"),
            )
        )
    else:
        blocks.append(Text("No split could be graded on these rows."))
    blocks.append(Text(_noise_sentence(noise_floor), small=True))
    if absent_splits:
        blocks.append(
            Bullets(
                tuple(f"No “{name}” split: {why}" for name, why in sorted(absent_splits.items()))
            )
        )
    return blocks


def coefficient_blocks(
    coefficients: Sequence[Mapping[str, Any]], basis: str | None = None, *, named: bool = True
) -> list[Block]:
    """The roofline's four coefficients per engine and GPU, and which fits hold which at a bound.

    basis: the pair set bold, as "vllm on h100-sxm". named: whether to say what those at a bound
    are of.
    """
    if not coefficients:
        return [Text("No roofline was fitted on these rows.")]
    known = any(
        error is not None
        for row in coefficients
        for error in (row.get("standard_errors") or {}).values()
    )
    table = Table(
        "Roofline coefficients. c_step: seconds of fixed work a layer, here in µs; c_w, c_kv and "
        "c_f: how many times longer than the datasheet's bandwidth or peak would allow (1 is the "
        "datasheet, 2 half of it; below 1 another term carries part of the work)."
        + (" ±: half of the 90 % interval, where the fit gives one." if known else ""),
        (
            Column("Engine"),
            Column("GPU"),
            Column("Rows", True),
            Column("c_step [µs]", True),
            Column("c_w", True),
            Column("c_kv", True),
            Column("c_f", True),
            Column("MAPE", True),
        ),
        tuple(
            (
                *(str(row[key]).strip("()") for key in ("engine", "gpu")),
                whole(row["rows"]),
                *(_coefficient(row, name) for name in ("c_step", "c_w", "c_kv", "c_f")),
                percent(row.get("mape")),
            )
            for row in coefficients
        ),
        strong=tuple(i for i, row in enumerate(coefficients) if level_name(row) == basis),
    )
    bound = sum(bool(row.get("at_bound")) for row in coefficients)
    if not bound:
        return [table]
    return [
        table,
        Text(
            f"{bound} of {len(coefficients)} fits hold a coefficient at its bound: zero fits best "
            "there, as the other terms carry its work. Such a value should not be read as "
            "hardware.",
            lead="At a bound.",
        ),
        Pairs(tuple(_bounds(coefficients, named))),
    ]


def _bounds(coefficients: Sequence[Mapping[str, Any]], named: bool) -> Iterator[tuple[str, str]]:
    """Each coefficient that a fit holds at its bound, and whose fits do; the fewer are listed."""
    for name, gloss in COEFFICIENTS.items():
        held = [name in (row.get("at_bound") or ()) for row in coefficients]
        if not any(held):
            continue
        most = sum(held) > len(held) / 2
        listed = [
            level_name(row) for row, own in zip(coefficients, held, strict=True) if own != most
        ]
        fits = "; ".join(listed)
        if most:
            fits = f"all but {fits}" if listed else "all"
        yield name, f"{gloss}: {fits}" if named else fits


def term_blocks(terms: Sequence[Mapping[str, Any]], basis: str) -> list[Block]:
    """Every coefficient of one fit with its 90 % interval, and what its rows tell of it."""
    return [
        Table(
            f"All coefficients of the fit this plan takes, {basis}. ±: half of the 90 % interval.",
            (
                Column("Coefficient"),
                Column("Of"),
                Column("Value", True),
                Column("±", True),
                Column("Unit"),
                Column("What the rows tell"),
            ),
            tuple(_term_row(row) for row in terms),
        )
    ]


def _term_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    scale = 1e6 if row["unit"].startswith("s/") else 1.0
    error = row["standard_error"]
    return (
        row["name"],
        COEFFICIENTS.get(row["name"], NONE),
        number(scale * row["value"]),
        NONE if error is None else _reach(scale * row["value"], 1.645 * scale * error),
        ("µ" if scale > 1 else "") + row["unit"],
        _told(row),
    )


def _told(row: Mapping[str, Any]) -> str:
    """What the rows tell of a coefficient; the ledger of assumptions says the same of prompts."""
    if not row["identified"]:
        return "nothing: the prior stands"
    if row["name"] == "c_prefill" and row["value"] < 1:
        # The planner takes no prompt to be faster than the datasheet's peak.
        return "beats the peak: plans guess instead"
    if row["at_bound"]:
        return "zero fits best"
    error = row["standard_error"]
    if error is not None and 1.645 * error >= row["value"]:
        return "little: zero is in the interval"
    return "told apart"


def _coefficient(row: Mapping[str, Any], name: str) -> str:
    """The coefficient, with half the width of its 90 % interval where that is known."""
    scale = 1e6 if name == "c_step" else 1.0
    value, error = row[name], (row.get("standard_errors") or {}).get(name)
    if value is None:
        return NONE
    if error is None:
        return number(scale * value)
    return f"{number(scale * value)} ± {_reach(scale * value, 1.645 * scale * error)}"


def _reach(value: float, error: float) -> str:
    """`error` rounded up to two digits, or fewer where `value` has fewer behind its point:
    `'0.01'` beside 1.23, `'1.2'` beside 0.048."""
    wanted = 1 - math.floor(math.log10(error)) if error > 0 else 9
    places = max(min(len(number(value).partition(".")[2]), wanted), 0)
    return f"{math.ceil(error * 10**places - 1e-9) / 10**places:,.{places}f}"


def _grade_row(row: Mapping[str, Any], covered: bool) -> tuple[str, ...]:
    return (
        LEFT_OUT.get(row["split"], row["split"]),
        ESTIMATORS.get(row["estimator"], row["estimator"]),
        percent(row["mape"]),
        percent(row["median_ape"]),
        percent(row["p90_ape"]),
        percent(row["bias"]),
        cell("r2", row["r2"]),
        cell("r2_log", row["r2_log"]),
        *([percent(row["coverage_90"])] if covered else []),
        whole(row["n"]),
    )


def _noise_sentence(noise_floor: float | None) -> str:
    if noise_floor is None:
        return "No configuration was measured twice, so the noise of the measurements is unknown."
    return (
        f"Measuring one configuration twice differs by {percent(noise_floor)} (MAPE of repeats): "
        "no estimator can be better than that."
    )
