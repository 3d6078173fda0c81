"""What every serving benchmark's summary has in common: a decode step from TPOT and throughput.

Of a run with many requests in flight, TPOT = (E2E - TTFT) / (output - 1) is the mean step with
the prefill of other requests inside. The sequences decoded together are output throughput x TPOT
(Little's law), never the client's concurrency, which counts requests that wait or prefill.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.words import shown

Array = npt.NDArray[np.float64]


def check_version(what: str, version: object, known: Sequence[object]) -> None:
    """Raises ValueError for a version of a format that is none of those known; none is old."""
    if version is None or version in known or str(version) in map(str, known):
        return
    names = ", ".join(map(str, known))
    raise ValueError(
        f"Got version {shown(version)} of {what}, but expected one of {names}; its fields may mean "
        "something else by now, so write the runs as a table of your own (CSV)"
    )


def numbers(raw: pd.DataFrame, name: str) -> Array:
    """A column as floats, NaN where the tool wrote none."""
    if name not in raw:
        return np.full(len(raw), np.nan)
    return raw[name].to_numpy(float)


def either(first: Array, other: Array) -> Array:
    """`first` where it is given, `other` elsewhere."""
    return np.where(np.isnan(first), other, first)


def serving_runs(raw: pd.DataFrame, definition: str = "tpot") -> pd.DataFrame:
    """Rows of RUNS from a serving summary.

    raw: columns of RUNS where the tool has them, and total_input_tokens, total_output_tokens,
    request_throughput. definition: "tpot", or "tpot_decode_only" where no prefill shares the
    worker. TPOT is derived from mean E2E and TTFT where the tool gives none. Rows without a step
    or a batch carry `aside` and `aside_reason`.
    """
    completed = _counted(raw, "completed")
    known = np.where(completed > 0, completed, np.nan)
    prompt = either(numbers(raw, "input_len"), numbers(raw, "total_input_tokens") / known)
    output = either(numbers(raw, "output_len"), numbers(raw, "total_output_tokens") / known)
    ttft, e2e = numbers(raw, "ttft_s"), numbers(raw, "e2e_s")
    step = either(numbers(raw, "tpot_s"), _positive((e2e - ttft) / (output - 1)))
    throughput = either(
        numbers(raw, "output_throughput_tok_s"),
        either(
            numbers(raw, "request_throughput") * output,
            numbers(raw, "total_output_tokens") / numbers(raw, "duration_s"),
        ),
    )
    batch = either(numbers(raw, "batch_size"), _positive(throughput * step))
    runs = raw.drop(
        columns=["total_input_tokens", "total_output_tokens", "request_throughput"],
        errors="ignore",
    ).assign(
        input_len=prompt,
        output_len=output,
        context_len=prompt + output / 2,
        batch_size=batch,
        tpot_s=step,
        step_time_s=step,
        output_throughput_tok_s=throughput,
        step_time_definition=definition,
    )
    concurrency = numbers(raw, "concurrency")
    runs["concurrency"] = np.where(np.isinf(concurrency), np.nan, concurrency)
    set_aside(runs, completed == 0, "all_failed", "no request of the run came back")
    set_aside(runs, output <= 1, "no_decode", "a single token was generated; nothing was decoded")
    reason = "the tool gives no time per output token, and no E2E and TTFT to derive it from"
    set_aside(runs, ~(step > 0), "no_step", reason)
    reason = "no output throughput, so the number of sequences decoded together is unknown"
    set_aside(runs, ~(batch > 0), "no_batch", reason)
    return runs


def _counted(raw: pd.DataFrame, name: str) -> Array:
    """A count of requests; what is beyond every float is none."""
    counts = numbers(raw, name)
    return np.where(np.isinf(counts), np.nan, counts)


def set_aside(runs: pd.DataFrame, mask: npt.ArrayLike, rule: str, reason: str) -> None:
    """Mark rows that hold no decode step. The first rule that hits a row stays."""
    if "aside" not in runs:
        runs["aside"] = ""
        runs["aside_reason"] = ""
    hit = np.asarray(mask, dtype=bool) & (runs["aside"] == "").to_numpy()
    runs.loc[hit, "aside"] = rule
    runs.loc[hit, "aside_reason"] = reason


def add_flag(runs: pd.DataFrame, mask: npt.ArrayLike, name: str) -> None:
    """Add a doubt to `flags` of the rows of `mask`."""
    before = runs["flags"].astype(str) if "flags" in runs else pd.Series("", index=runs.index)
    joined = (before + "," + name).str.strip(",")
    runs["flags"] = before.where(~np.asarray(mask, dtype=bool), joined)


def _positive(values: Array) -> Array:
    return np.where(values > 0, values, np.nan)
