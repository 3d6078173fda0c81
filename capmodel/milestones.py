"""Milestones: the idea at a glance, each with its aim, what was measured, and pass or miss.

A part that is not built says so and counts as missed. Nothing here computes anything of its own:
each milestone calls the part it speaks of.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from capmodel.arguments import instance

PASS, MISS, NOT_BUILT = "pass", "miss", "not built"

RAW_LINEAR_R2 = 0.6  # at most: the raw columns must not already explain the time
ROOFLINE_MAPE, ROOFLINE_R2 = 0.09, 0.95
REGRESSOR_MAPE, REGRESSOR_R2 = 0.062, 0.97
PLAN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Milestone:
    """One line of the table. status: PASS, MISS, NOT_BUILT, or "" where it only informs."""

    milestone: str
    aim: str
    measured: str
    status: str


def milestones(
    runs: pd.DataFrame, test: pd.DataFrame | None = None, card: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Table of all milestones on `runs`: columns milestone, aim, measured, status.

    test: hidden rows that estimators fitted on `runs` are graded on; None cross-validates `runs`
    on random rows. card: the grade card of just that, where it has been made already, or of `runs`
    by a calibration. Raises RunsError for a table that fails its checks, ValueError for no table.
    """
    for name, table in (("runs", runs), ("test", test), ("card", card)):
        if table is not None or name == "runs":
            instance(name, table, pd.DataFrame, "a DataFrame, such as read_runs gives")
    if card is not None and not {"split", "estimator", "mape", "r2"} <= set(card.columns):
        raise ValueError(
            f"Got a card with columns {', '.join(map(str, card.columns)) or 'none'}, but expected "
            "split, estimator, mape and r2, as grade gives them"
        )
    checks: tuple[tuple[str, Callable[[], Iterator[Milestone]]], ...] = (
        ("profile", lambda: _profile(runs)),
        ("cache bytes", lambda: _cache_bytes(runs)),
        ("concurrency", _concurrency),
        ("NumPy decoder", _decoder),
        ("estimators", lambda: _estimators(runs, test, card)),
        ("planner", _planner),
    )
    rows = [row for name, check in checks for row in _tried(name, check)]
    columns = ["milestone", "aim", "measured", "status"]
    return pd.DataFrame([astuple(row) for row in rows], columns=columns)


def missed(table: pd.DataFrame) -> int:
    """Milestones missed or not built."""
    return int(table["status"].isin([MISS, NOT_BUILT]).sum())


def _tried(name: str, check: Callable[[], Iterator[Milestone]]) -> list[Milestone]:
    try:
        return list(check())
    except ImportError as error:
        return [Milestone(name, "", f"absent: {error.name}", NOT_BUILT)]


def _row(name: str, aim: str, measured: str, holds: bool) -> Milestone:
    return Milestone(name, aim, measured, PASS if holds else MISS)


def _profile(runs: pd.DataFrame) -> Iterator[Milestone]:
    from capmodel.profile import profile_runs

    found = profile_runs(runs)
    layouts = found.layouts["layout"].tolist()
    yield _row(
        "profile: attention layouts", "MHA, GQA and MQA", ", ".join(layouts),
        {"MHA", "GQA", "MQA"} <= set(layouts),
    )  # fmt: skip
    context = found.features["context_len"]
    yield _row(
        "profile: contexts", "several", f"{context.min():,.0f} to {context.max():,.0f} tokens",
        bool(context.min() < context.max()),
    )  # fmt: skip
    speed = found.features["tokens_per_s"]
    spread = float(speed.max() / speed.min())
    yield _row("profile: throughput range", "above 7,000", f"{spread:,.0f}", spread > 7_000)


def _cache_bytes(runs: pd.DataFrame) -> Iterator[Milestone]:
    from capmodel.features import add_features
    from capmodel.kvcache import kv_bytes_per_token
    from capmodel.runs import validate_runs

    known = add_features(validate_runs(runs))["kv_bytes_per_token"]
    count = int(np.isfinite(known).sum())
    yield _row(
        "cache bytes per token for every run", f"{len(runs):,} rows", f"{count:,} rows",
        count == len(runs),
    )  # fmt: skip
    found = kv_bytes_per_token("llama-3-70b")
    name = "cache bytes per token, Llama-3-70B shape"
    yield _row(name, "327,680", f"{found:,.0f}", found == 327_680)


def _concurrency() -> Iterator[Milestone]:
    from capmodel.memory import max_concurrency
    from capmodel.shapes import load_shape

    shape = load_shape("llama-3.1-70b")
    cases = ((shape, "bf16", 3), (shape, "fp8", 7), (shape.with_attention("mha"), "bf16", 0))
    found = [
        int(max_concurrency(model, "h100-sxm", 32_768, weight_dtype="int4", kv_dtype=dtype))
        for model, dtype, _ in cases
    ]
    expected = [number for _, _, number in cases]
    yield _row(
        "concurrency of the Llama-3-70B shape, int4, 32,768 tokens: bf16, fp8, 64 KV heads",
        "3, 7, 0", ", ".join(map(str, found)), found == expected,
    )  # fmt: skip


def _decoder() -> Iterator[Milestone]:
    from capmodel.lab import ToyDecoder, make_config
    from capmodel.lab.arithmetic import SEQUENTIAL
    from capmodel.lab.proof import cached_gap
    from capmodel.lab.steps import decode_steps

    config = make_config("gqa")
    decoder = ToyDecoder.random(config, seed=0, arithmetic=SEQUENTIAL)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (1, 16))
    gap = cached_gap(decoder, tokens, 1, decoder.new_cache())
    yield _row("decoder: cached equals full recomputation", "difference 0", f"{gap:g}", gap == 0.0)
    found = tuple(
        sum(step.tokens_computed for step in decode_steps(decoder, tokens[0], cached))
        for cached in (True, False)
    )
    yield _row(
        "decoder: key projections of 16 tokens, with and without cache", "16 and 136",
        f"{found[0]} and {found[1]}", found == (16, 136),
    )  # fmt: skip


def _estimators(
    runs: pd.DataFrame, test: pd.DataFrame | None, card: pd.DataFrame | None
) -> Iterator[Milestone]:
    if card is None:
        from capmodel.evaluation import cross_validate, grade, used_rows

        if test is None:
            card = cross_validate(used_rows(runs), splits=["random"]).table
        else:
            card = grade(runs, test=test)
    ready = test is None and "test" in set(card["split"])  # a calibration's, which fits nothing
    split = "test" if test is not None or ready else "random"
    own = card[card["split"] == split].set_index("estimator")[["mape", "r2"]].astype(float)
    where = "random rows held out"
    if split == "test":
        where = "all rows, by the calibration" if ready else "hidden rows"

    def of(name: str) -> tuple[float, float]:
        mape, r2 = own.reindex([name]).to_numpy(float)[0]
        return float(mape), float(r2)

    if ready:
        yield Milestone(
            "raw_linear and raw_boosting",
            "fitted on rows",
            "not graded: a calibration has none",
            "",
        )
    else:
        _, r2 = of("raw_linear")
        yield _row(f"raw_linear R2, {where}", f"at most {RAW_LINEAR_R2}", _figure(r2, 3),
                   r2 <= RAW_LINEAR_R2)  # fmt: skip
    for name, most, least in (
        ("roofline", ROOFLINE_MAPE, ROOFLINE_R2),
        ("regressor", REGRESSOR_MAPE, REGRESSOR_R2),
    ):
        mape, r2 = of(name)
        yield _row(f"{name} MAPE, {where}", f"at most {most}", _figure(mape), mape <= most)
        yield _row(f"{name} R2, {where}", f"at least {least}", _figure(r2), r2 >= least)
    if not ready:
        mape, r2 = of("raw_boosting")
        yield Milestone(
            f"raw_boosting, tuned, beside it, {where}", "reported",
            f"MAPE {_figure(mape)}, R2 {_figure(r2)}", "",
        )  # fmt: skip


def _figure(value: float, digits: int = 4) -> str:
    return "not graded" if np.isnan(value) else f"{value:.{digits}f}"


def _planner() -> Iterator[Milestone]:
    from capmodel.planner import Plan, plan

    def ask() -> Plan:
        return plan("llama-3.1-8b", "h100-sxm", rate=2.0, input_len=1000, output_len=200)

    ask()  # the first answer loads the libraries
    start, worked = time.perf_counter(), time.process_time()
    found = ask()
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    yield _row("planner answers", f"within {PLAN_SECONDS:g} s",
               f"{seconds:.2f} s, {worked:.2f} s of them computing",
               seconds <= PLAN_SECONDS)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.pdf"
        found.write_pdf(path)
        size = path.stat().st_size if path.exists() else 0
    yield _row("the plan is written", "a PDF", f"{size:,} bytes", size > 0)
