"""The first page of a run's plan: what fits, step time and tokens/s at a few batches, how sure."""

from collections.abc import Mapping, Sequence
from typing import Any

from capmodel.report.card import SPLITS, TERMS
from capmodel.report.document import Block, Column, Fact, Facts, Table, Text, Verdict
from capmodel.report.figures import sweep_picture
from capmodel.report.numbers import NONE, bytes_text, milliseconds, number, percent, whole

Row = Mapping[str, Any]

SWEEP_COLUMNS = (
    Column("Context [tokens]", True),
    Column("Batch", True),
    Column("Step [ms]", True),
    Column("90 % range [ms]", True),
    Column("Tokens/s", True),
    Column("Tokens/s a request", True),
    Column("Binds"),
    Column("Fits"),
)


def sweep_row(row: Row) -> tuple[str, ...]:
    """The cells of one swept step, as `SWEEP_COLUMNS` name them."""
    return (
        whole(row["context_len"]),
        whole(row["batch_size"]),
        milliseconds(row["step_time_s"]),
        _range(row),
        number(row["tokens_per_s"]),
        number(row["tokens_per_s"] / row["batch_size"]),
        str(TERMS.get(row["binding"], row["binding"])),
        "yes" if row["fits"] else "no",
    )


def gpus_text(deployment: Row) -> str:
    """The GPUs of a deployment, as `2 × h100`."""
    return f"{deployment['tp']} × {deployment['gpu']}"


GENERATED = Verdict(
    "Made from synthetic runs",
    "The runs behind this document were generated, not measured. It shows what the tool does; no "
    "figure in it says anything about real hardware.",
    "caution",
)


def decision_blocks(summary: Row) -> list[Block]:
    """The page that decides: what fits, how fast, how sure, in a manager's words."""
    blocks: list[Block] = []
    if summary["synthetic"]:
        blocks.append(GENERATED)
    blocks += [_verdict(summary), _facts(summary)]
    chosen = summary["deployment"]["chosen_because"]
    if chosen:
        said = chosen[:1].upper() + chosen[1:].rstrip(".")
        blocks.append(Text(f"{said}.", lead="Why this deployment."))
    if summary["sweep"]:
        blocks.append(_short_table(_few(summary["sweep"])))
    blocks.append(Text(_how_sure(summary), lead="How sure."))
    if summary["sweep"]:
        blocks.append(sweep_picture(summary["sweep"]))
    return blocks


def _verdict(summary: Row) -> Verdict:
    deployment, fits = summary["deployment"], summary["fits"]
    if not fits:
        return Verdict(
            "No context length was asked about",
            "The run gives step times, but no answer on how many requests fit.",
            "caution",
        )
    held = [row for row in fits if row["max_concurrency"] >= 1]
    gpus = gpus_text(deployment)
    if not held:
        return Verdict(
            f"{deployment['model']} does not fit on {gpus}",
            f"Not one request of {whole(fits[0]['context_len'])} tokens fits beside the weights "
            f"({bytes_text(summary['memory'].get('weight_bytes'))} a GPU). More GPUs, fewer bits "
            "per weight or a larger GPU are needed.",
            "no",
        )
    best = _best(summary["sweep"])
    sentence = " ".join(
        f"{whole(row['max_concurrency'])} requests of {whole(row['context_len'])} tokens fit."
        for row in held[:1]
    )
    for row in held[1:3]:
        sentence += (
            f" At {whole(row['context_len'])} tokens each, {whole(row['max_concurrency'])} fit."
        )
    if best:
        sentence += (
            f" The most the sweep found within memory is {number(best['tokens_per_s'])} tokens/s, "
            f"at a batch of {whole(best['batch_size'])} and {whole(best['context_len'])} tokens; "
            f"a step then takes {milliseconds(best['step_time_s'])} ms, and "
            f"{TERMS.get(best['binding'], best['binding'])} bind."
        )
    return Verdict(f"{deployment['model']} fits on {gpus}", sentence)


def _best(sweep: Sequence[Row]) -> Row | None:
    inside = [row for row in sweep if row["fits"]]
    return max(inside, key=lambda row: row["tokens_per_s"]) if inside else None


def _facts(summary: Row) -> Facts:
    facts = []
    if summary["fits"]:
        first = summary["fits"][0]
        facts.append(
            Fact(
                "Requests that fit at once",
                whole(first["max_concurrency"]),
                f"of {whole(first['context_len'])} tokens, {summary['memory']['mode']} mode",
            )
        )
    best = _best(summary["sweep"])
    if best:
        facts.append(
            Fact(
                "Most tokens per second",
                number(best["tokens_per_s"]),
                f"at batch {whole(best['batch_size'])}, {whole(best['context_len'])} tokens",
            )
        )
        facts.append(
            Fact(
                "Step time there",
                f"{milliseconds(best['step_time_s'])} ms",
                _range(best) + " ms in 9 of 10 cases" if _has_range(best) else "no interval known",
            )
        )
    error = _error(summary["grade_card"], "deployment") or _error(summary["grade_card"], "random")
    if error:
        left_out = "deployments" if error["split"] == "deployment" else "rows"
        facts.append(
            Fact("Mean error", percent(error["mape"]), f"of step times, on {left_out} left out")
        )
    return Facts(tuple(facts))


def _few(sweep: Sequence[Row], at_most: int = 6) -> list[Row]:
    """Batches evenly over the sweep of the first context length, its ends among them."""
    rows = [row for row in sweep if row["context_len"] == sweep[0]["context_len"]]
    if len(rows) <= at_most:
        return rows
    return [rows[round(i * (len(rows) - 1) / (at_most - 1))] for i in range(at_most)]


def _has_range(row: Row) -> bool:
    return row["low_s"] is not None and row["high_s"] is not None


def _range(row: Row) -> str:
    if not _has_range(row):
        return NONE
    return f"{milliseconds(row['low_s'])} to {milliseconds(row['high_s'])}"


def _short_table(rows: Sequence[Row]) -> Table:
    return Table(
        f"One decode step at {whole(rows[0]['context_len'])} cached tokens per sequence. "
        "Grey rows: memory does not hold that batch.",
        SWEEP_COLUMNS[1:],
        tuple(sweep_row(row)[1:] for row in rows),
        faint=tuple(i for i, row in enumerate(rows) if not row["fits"]),
    )


def _error(grade_card: Sequence[Row], split: str) -> Row | None:
    by_name = {row["estimator"]: row for row in grade_card if row["split"] == split}
    return by_name.get("regressor") or by_name.get("roofline")


def _how_sure(summary: Row) -> str:
    deployment, card = summary["deployment"], summary["grade_card"]
    rows = sum(
        row["rows"]
        for row in summary["used_by"]
        if (row["engine"], row["gpu"]) == (deployment["engine"], deployment["gpu"])
    )
    sentences = [
        f"{whole(rows)} of the rows used are of {deployment['engine']} on {deployment['gpu']}."
        if rows
        else f"No row is of {deployment['engine']} on {deployment['gpu']}: the figures "
        "carry over from other engines and GPUs."
    ]
    for split, meaning in SPLITS.items():
        error = _error(card, split)
        if error and split in ("random", "deployment", "model", "gpu"):
            sentences.append(f"For {meaning} the error was {percent(error['mape'])} on average.")
    if not card:
        sentences.append("These runs allow no held-out test, so the error is unknown.")
    return " ".join(sentences)
