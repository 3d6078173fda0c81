"""Tables for the terminal, made of what the package returns."""

from pathlib import Path

import numpy as np
import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from capmodel.cli.terminal import terminal
from capmodel.evaluation import GradeCard
from capmodel.mainjob import MainJob, used_by
from capmodel.prediction import Prediction
from capmodel.quality import gloss
from capmodel.units import format_percent, format_seconds
from capmodel.words import one_line

_FOUR = ("c_step", "c_w", "c_kv", "c_f")
_ERRORS = ("mape", "median_ape", "p90_ape", "bias")


def print_main_job(job: MainJob, written: list[Path]) -> None:
    """What was read, used and set aside, the grade card, and what was written."""
    console = terminal()
    read = len(job.used) + len(job.aside)
    console.print(f"[bold]{read:,} rows read, {len(job.used):,} used[/bold]")
    print_aside(job.aside, console)
    print_used(job.used, console)
    print_card(job.card, console)
    chosen = job.deployment
    console.print(
        f"Plan for {chosen.shape.name} on {chosen.tp} x {chosen.gpu} under {chosen.engine}: "
        f"{chosen.chosen_because}.",
        soft_wrap=True,
    )
    console.print("Written: " + ", ".join(str(path) for path in written), soft_wrap=True)


def print_aside(aside: pd.DataFrame, console: Console) -> None:
    """Rows set aside by rule, with one reason each."""
    if not len(aside):
        console.print("No row was set aside.")
        return
    table = Table("set aside by", "rows", "which means", "for example", title="Rows set aside")
    for rule, n in aside["rule"].value_counts().items():
        example = one_line(aside.loc[aside["rule"] == rule, "reason"].iloc[0])
        table.add_row(str(rule), f"{n:,}", gloss(str(rule)), Text(example))
    console.print(table)


def print_used(used: pd.DataFrame, console: Console) -> None:
    """Used rows per engine and GPU."""
    table = Table("engine", "GPU", "rows", title="Rows used")
    for row in used_by(used):
        table.add_row(row["engine"], row["gpu"], f"{row['rows']:,}")
    console.print(table)


def print_card(card: GradeCard, console: Console) -> None:
    """The grade card: one row per split and estimator, errors in percent."""
    covered = bool(card.table["coverage_90"].notna().any())
    heads = ["split", "estimator", "MAPE", "median", "p90", "bias", "R2", "R2 log"]
    heads += ["90 % in"] if covered else []
    table = Table(title="Grade card: errors on held-out rows [%]", box=SIMPLE, pad_edge=False)
    for head in [*heads, "rows"]:
        table.add_column(head, justify="left" if head in heads[:2] else "right", no_wrap=True)
    last = ""
    for row in card.table.to_dict("records"):
        if last and row["split"] != last:
            table.add_section()
        cells = [f"{100 * float(row[name]):.1f}" for name in _ERRORS]
        cells += [_r2(float(row["r2"])), _r2(float(row["r2_log"]))]
        cells += [f"{100 * float(row['coverage_90']):.1f}"] if covered else []
        split = str(row["split"])
        table.add_row(split if split != last else "", str(row["estimator"]), *cells, str(row["n"]))
        last = split
    console.print(table)
    for split, reason in card.absent.items():
        console.print(f"No {split} split: {reason}.")
    floor = card.noise_floor_mape
    said = format_percent(floor) if floor is not None else "unknown, no configuration was repeated"
    console.print(f"Noise floor (repeats of one configuration): {said}.")


def _r2(value: float) -> str:
    if value != value:
        return "-"
    return f"{value:.3f}" if value > -10 else "< -10"


def print_coefficients(summary: pd.DataFrame, console: Console) -> None:
    """The four coefficients per engine and GPU, each with its standard error."""
    table = Table(title="Roofline coefficients", box=SIMPLE, pad_edge=False)
    for head in ("engine", "GPU", "c_step us", "c_w", "c_kv", "c_f", "MAPE %", "rows"):
        left = head in ("engine", "GPU")
        table.add_column(head, justify="left" if left else "right", no_wrap=True)
    for name, rows in summary.groupby(summary["engine"] + "|" + summary["gpu"], sort=False):
        engine, _, gpu = str(name).partition("|")
        own = rows.set_index("coefficient")
        cells = [
            _coefficient(own.loc[[term]].iloc[0], 1e6 if term == "c_step" else 1.0)
            for term in _FOUR
        ]
        first = rows.iloc[0]
        table.add_row(engine, gpu, *cells, f"{100 * first['mape']:.1f}", str(first["rows"]))
    console.print(table)
    console.print("± one standard error; * at its bound of zero; - not told by the rows.")


def print_suggested(found: pd.DataFrame, console: Console) -> None:
    """Runs to make next, best first, with what each leaves of the uncertainty."""
    before = format_percent(found.attrs["typical_error"], 0)
    table = Table(
        title=f"Runs to make next (typical error before any: {before})", box=SIMPLE, pad_edge=False
    )
    heads = ("model", "GPU", "engine", "tp", "weights", "cache", "batch", "context", "error after")
    for head in heads:
        left = head in ("model", "GPU", "engine", "weights", "cache")
        table.add_column(head, justify="left" if left else "right", no_wrap=True)
    for row in found.to_dict("records"):
        table.add_row(
            row["model"], row["gpu"], row["engine"], str(row["tp"]), row["weight_dtype"],
            row["kv_dtype"], f"{row['batch_size']:,}", f"{row['context_len']:,}",
            format_percent(row["typical_error"], 0),
        )  # fmt: skip
    console.print(table)
    console.print(
        "Measure the steady decode step (a long output, the batch full throughout), put the rows "
        "into one table and adapt: capmodel fit MINE.csv --adapt argonne -o mine.json",
        soft_wrap=True,
    )


def print_prediction(found: Prediction, asked: dict[str, object], console: Console) -> None:
    """One decode step, its parts, and what there is to doubt."""
    console.print(
        f"[bold]{found.model} on {asked['tp']} x {found.gpu}[/bold], "
        f"{asked['weight_dtype']} weights, {asked['kv_dtype']} cache, "
        f"batch {asked['batch_size']}, context {asked['context_len']:,}",
        soft_wrap=True,
    )
    seconds = float(np.asarray(found.step_time_s))
    line = f"step {format_seconds(seconds)}"
    if found.low_s is not None and found.high_s is not None and found.interval is not None:
        low, high = float(np.asarray(found.low_s)), float(np.asarray(found.high_s))
        share = format_percent(found.interval, 0)
        line += f"  ({share} interval {format_seconds(low)} to {format_seconds(high)})"
    console.print(line)
    console.print(f"{float(np.asarray(found.tokens_per_s)):,.0f} tokens/s")
    table = Table("term", "time", "share", box=SIMPLE, pad_edge=False)
    for name, value in found.terms.items():
        part = float(np.asarray(value))
        mark = "  <- binds" if name == found.binding else ""
        table.add_row(name, format_seconds(part), format_percent(part / seconds) + mark)
    console.print(table)
    console.print(
        f"MBU {format_percent(float(np.asarray(found.mbu)))}, "
        f"MFU {format_percent(float(np.asarray(found.mfu)))}; "
        f"{'fits' if found.fits else 'does NOT fit'} in the memory."
    )
    if found.ceiling:
        console.print(f"Ceiling: {found.ceiling}.", soft_wrap=True)
    console.print(f"From {found.calibration_id} ({found.basis}).", soft_wrap=True)
    for note in (*found.assumptions, *found.extrapolation):
        console.print(f"- {note}", soft_wrap=True)


def print_milestones(found: pd.DataFrame, console: Console) -> None:
    """The milestone table."""
    table = Table("milestone", "aim", "measured", "", title="Milestones", box=SIMPLE)
    colours = {"pass": "green", "miss": "red", "not built": "yellow"}
    for row in found.to_dict("records"):
        status = str(row["status"])
        shade = colours.get(status, "white")
        cells = (str(row[name]) for name in ("milestone", "aim", "measured"))
        table.add_row(*cells, f"[{shade}]{status}[/{shade}]")
    console.print(table)


def _coefficient(row: pd.Series, scale: float) -> str:
    if not row["identified"]:
        return "-"
    if row["at_bound"]:
        return "0 *"
    error = float(row["standard_error"]) * scale
    value = float(row["value"]) * scale
    return f"{value:.3g}" if error != error else f"{value:.3g}±{float(f'{error:.1g}'):g}"
