"""The figures of a report as `Picture` blocks: data out of the dict, drawn by `capmodel.plots`."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from capmodel.plots.calibration import (
    draw_coverage,
    draw_grades,
    draw_intervals,
    draw_predicted,
    draw_residuals,
)
from capmodel.plots.steps import StepCurve, draw_step_time, draw_terms, draw_tokens_per_s
from capmodel.plots.style import above_panels, figure, to_svg
from capmodel.report.card import ESTIMATORS, LEFT_OUT, SPLITS, TERMS
from capmodel.report.document import Picture
from capmodel.report.fields import level_name, shortened
from capmodel.report.numbers import number, percent, whole

Row = Mapping[str, Any]
_MOST_CURVES = 5


def sweep_picture(sweep: Sequence[Row]) -> Picture:
    """Step time and tokens/s over batch, a line a context length (five at most)."""
    groups = _by_context(sweep)
    shown = _spread(list(groups), _MOST_CURVES)
    curves = [_curve(context, groups[context]) for context in shown]
    crossover = [crossover_batch(groups[context]) for context in shown]
    with figure(6.7, 2.7) as fig:
        left, right = fig.subplots(1, 2)
        draw_step_time(left, curves)
        draw_tokens_per_s(right, curves, crossover)
        svg = to_svg(fig, text_as_text=True)
    return Picture(svg, _caption(curves, crossover), _alt(groups, shown))


def terms_picture(sweep: Sequence[Row]) -> Picture | None:
    """What a step is made of over batch, at the shortest context; None if no term is known."""
    groups = _by_context(sweep)
    context, rows = next(iter(groups.items()))
    names = [name for name in TERMS if any(row["terms"].get(name) for row in rows)]
    if not names:
        return None
    with figure(6.7, 2.4) as fig:
        draw_terms(
            fig.subplots(),
            [row["batch_size"] for row in rows],
            {TERMS[name]: [row["terms"].get(name) or 0.0 for row in rows] for name in names},
        )
        svg = to_svg(fig, text_as_text=True)
    caption = f"What a step's time goes to at {whole(context)} cached tokens per sequence."
    return Picture(svg, caption, _terms_alt(rows, names))


def grade_picture(grade_card: Sequence[Row], noise_floor: float | None) -> Picture | None:
    """MAPE and coverage by split, a mark an estimator; None if no error is known."""
    splits = [s for s in SPLITS if any(row["split"] == s for row in grade_card)]
    names = [e for e in ESTIMATORS if any(row["estimator"] == e for row in grade_card)]
    mape = {(row["split"], row["estimator"]): row["mape"] for row in grade_card}
    values = {ESTIMATORS[n]: [mape.get((split, n)) for split in splits] for n in names}
    if not any(value is not None for row in values.values() for value in row):
        return None
    cover = {(row["split"], row["estimator"]): row.get("coverage_90") for row in grade_card}
    inside = {ESTIMATORS[n]: [cover.get((split, n)) for split in splits] for n in names}
    covered = any(share is not None for row in inside.values() for share in row)
    left_out = [LEFT_OUT[split] for split in splits]
    height = 0.9 + 0.32 * len(splits)
    with figure(6.7, height) as fig:
        if covered:
            left, right = fig.subplots(1, 2, sharey=True, width_ratios=(3, 2))
            draw_grades(left, left_out, values, noise_floor, legend=False)
            draw_coverage(right, left_out, inside)
            above_panels(fig, left, height)
        else:
            draw_grades(fig.subplots(), left_out, values, noise_floor)
        svg = to_svg(fig, text_as_text=True)
    best = "; ".join(
        f"{split}: {ESTIMATORS[n]} {percent(mape[split, n])}"
        for split in splits
        for n in names
        if n in ("roofline", "regressor") and (split, n) in mape
    )
    return Picture(
        svg,
        "Error by what was left out, on a log scale"
        + ("; and how many held-out measurements the 90 % band holds." if covered else "."),
        f"Mean error by split. {best}.",
    )


MOST_GROUPS = 6


def residual_picture(residuals: Row, noise_floor: float | None) -> Picture | None:
    """Predicted against measured, and what is left over; None without rows.

    `residuals` has `measured_s`, `predicted_s` [s], equally many, and, if known, `group` (a name a
    row).
    """
    measured = np.asarray(residuals["measured_s"], dtype=float)
    predicted = np.asarray(residuals["predicted_s"], dtype=float)
    if not len(measured) or len(measured) != len(predicted):
        return None
    relative = predicted / measured - 1
    with figure(6.7, 2.9) as fig:
        left, right = fig.subplots(1, 2)
        group = residuals.get("group") or ()
        # Past a handful of names the key would hide the dots it explains.
        told = len(group) == len(measured) and len(set(group)) <= MOST_GROUPS
        draw_predicted(left, measured, predicted, group if told else None)
        draw_residuals(right, 1e3 * measured, relative, "Measured step [ms]", noise_floor)
        svg = to_svg(fig, text_as_text=True)
    off = percent(float(np.mean(np.abs(relative))))
    caption = f"{whole(len(measured))} rows the fit did not see: predicted against measured, and "
    caption += "what is left over."
    if noise_floor is not None:
        caption += f" Grey: the noise of the measurements, {percent(noise_floor)} either way."
    return Picture(svg, caption, f"Scatter of predictions; on average {off} off.")


def interval_picture(coefficients: Sequence[Row]) -> Picture | None:
    """c_w and c_kv with their 90 % intervals, an engine and GPU a line; None if none is known."""
    both = ("c_w", "c_kv")
    rows = [row for row in coefficients if any(_error(row, name) is not None for name in both)]
    rows = rows[:40]
    if not rows:
        return None
    names = [shortened(level_name(row)) for row in rows]
    with figure(6.7, 0.7 + 0.17 * len(rows)) as fig:
        for panel, name in zip(fig.subplots(1, 2), both, strict=True):
            values = [math.nan if row[name] is None else row[name] for row in rows]
            reach = [1.645 * (_error(row, name) or 0.0) for row in rows]
            low = [max(value - half, 0.0) for value, half in zip(values, reach, strict=True)]
            high = [value + half for value, half in zip(values, reach, strict=True)]
            label = f"{name}: time over the datasheet's"
            first = name == both[0]
            draw_intervals(panel, names, values, low, high, label, 1.0, named=first)
        svg = to_svg(fig, text_as_text=True)
    alt = "; ".join(
        f"{name} {number(row['c_w'])} and {number(row['c_kv'])}"
        for name, row in zip(names, rows, strict=True)
    )
    caption = (
        "Reading the weights (c_w) and the cache (c_kv): times longer than the datasheet's "
        "bandwidth allows, with 90 % intervals. Dashed: the datasheet."
    )
    return Picture(svg, caption, f"Dots with bars: {alt}.")


def _error(row: Row, name: str) -> float | None:
    error: float | None = (row.get("standard_errors") or {}).get(name)
    return error


def crossover_batch(rows: Sequence[Row]) -> float | None:
    """The batch [sequences] from which a step spends longer on KV reads than on weight reads.

    Linear between swept batches; None if it does not happen within the sweep.
    """
    batch = np.array([row["batch_size"] for row in rows], dtype=float)
    lead = np.array(
        [(row["terms"].get("kv") or 0) - (row["terms"].get("weights") or 0) for row in rows]
    )
    after = np.flatnonzero((lead[1:] >= 0) & (lead[:-1] < 0))
    if not len(after):
        return None
    i = int(after[0])
    share = -lead[i] / (lead[i + 1] - lead[i])
    return float(batch[i] + share * (batch[i + 1] - batch[i]))


def _by_context(sweep: Sequence[Row]) -> dict[int, list[Row]]:
    ordered = sorted(sweep, key=lambda row: (row["context_len"], row["batch_size"]))
    return {k: list(rows) for k, rows in groupby(ordered, key=lambda row: row["context_len"])}


def _spread(items: list[int], at_most: int) -> list[int]:
    if len(items) <= at_most:
        return items
    return [items[round(i * (len(items) - 1) / (at_most - 1))] for i in range(at_most)]


def _curve(context: int, rows: Sequence[Row]) -> StepCurve:
    known = all(row["low_s"] is not None and row["high_s"] is not None for row in rows)
    return StepCurve(
        label=f"{whole(context)} tokens",
        batch_size=np.array([row["batch_size"] for row in rows], dtype=float),
        step_time_s=np.array([row["step_time_s"] for row in rows], dtype=float),
        fits=np.array([row["fits"] for row in rows], dtype=bool),
        low_s=np.array([row["low_s"] for row in rows], dtype=float) if known else None,
        high_s=np.array([row["high_s"] for row in rows], dtype=float) if known else None,
    )


def _caption(curves: Sequence[StepCurve], crossover: Sequence[float | None]) -> str:
    caption = "Step time and tokens per second over batch, a line a context length"
    caption += "; bands hold 9 of 10 steps." if curves[0].low_s is not None else "."
    if not all(curve.fits.all() for curve in curves):
        caption += " Hollow marks: memory does not hold that batch."
    found = [
        f"{number(batch, 2)} at {curve.label}"
        for curve, batch in zip(curves, crossover, strict=True)
        if batch is not None
    ]
    if found:
        caption += f" Upright ticks: KV reads overtake weight reads, from batch {', '.join(found)}."
    return caption


def _alt(groups: Mapping[int, Sequence[Row]], shown: Sequence[int]) -> str:
    parts = []
    for context in shown:
        first, last = groups[context][0], groups[context][-1]
        parts.append(
            f"at {whole(context)} tokens from {number(1e3 * first['step_time_s'])} ms at batch "
            f"{whole(first['batch_size'])} to {number(1e3 * last['step_time_s'])} ms at batch "
            f"{whole(last['batch_size'])}"
        )
    return "Step time " + "; ".join(parts) + "."


def _terms_alt(rows: Sequence[Row], names: Sequence[str]) -> str:
    last = rows[-1]
    parts = ", ".join(f"{TERMS[n]} {number(1e3 * (last['terms'].get(n) or 0))} ms" for n in names)
    return f"Stacked bars of a step's time; at batch {whole(last['batch_size'])}: {parts}."
