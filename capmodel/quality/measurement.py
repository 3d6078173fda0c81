"""Checks of how a run was measured: what the client asked for, and what came back."""

import numpy as np
import pandas as pd

from capmodel.quality.hits import Hit, column, text
from capmodel.quality.thresholds import FLAG, SET_ASIDE, Thresholds


def incomplete(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """Requests that did not come back: the load was not the one named."""
    sent, back = column(featured, "requested"), column(featured, "completed")
    share = back / np.where(sent > 0, sent, np.nan)
    figures = {"back": back, "sent": sent}
    reason = "{back} of {sent} requests came back"
    few = share < limits.completed_share
    return [
        Hit("incomplete", SET_ASIDE, few, reason + ": the load was not the one named", figures),
        Hit("incomplete", FLAG, (share < 1) & ~few, reason, figures),
    ]


def short_output(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """Outputs that end early (an end token not ignored): fewer steps than the lengths say."""
    output, target = column(featured, "output_len"), column(featured, "target_output_len")
    mask = output < limits.output_share * target
    reason = "{output} tokens were generated on average, {target} were asked for: outputs end early"
    return [Hit("short_output", SET_ASIDE, mask, reason, {"output": output, "target": target})]


def short_run(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """A run of few latencies is mostly ramp-up and ramp-down. Static batches are not such runs."""
    duration, latency = column(featured, "duration_s"), column(featured, "e2e_s")
    serving = text(featured, "step_time_definition").isin(_SERVING).to_numpy()
    ratio = duration / np.where(latency > 0, latency, np.nan)
    mask = serving & (ratio < limits.duration_latencies)
    reason = "the run of {duration_s} is {ratio} mean latencies of {latency_s}: mostly ramp-up"
    figures = {"duration_s": duration, "latency_s": latency, "ratio": ratio}
    return [Hit("short_run", SET_ASIDE, mask, reason, figures)]


_SERVING = ("tpot", "tpot_decode_only", "itl_median")


def concurrency_not_reached(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """Fewer sequences decoded together than offered: the rest waited or were in prefill.

    The batch is measured, so the row is right; it is flagged since its TTFT is a queue's.
    """
    batch, offered = column(featured, "batch_size"), column(featured, "concurrency")
    share = batch / np.where(offered > 0, offered, np.nan)
    mask = share < limits.concurrency_share
    reason = "{batch} sequences were decoded together, {met_share} of the {offered} offered"
    figures = {"batch": batch, "offered": offered, "met_share": share}
    return [Hit("concurrency_not_reached", FLAG, mask, reason, figures)]


def warm_prefix(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """Prompts that came from a cache: said by the tool, or TTFT below what their FLOP take."""
    share = column(featured, "prefix_hit_share")
    said = share > limits.prefix_hit_share
    ttft, least = column(featured, "ttft_s"), _prompt_time(featured)
    told = ~said & (ttft > 0) & (ttft < least)
    return [
        Hit("warm_prefix", SET_ASIDE, said,
            "{hit_share} of the prompt tokens came from a warm prefix cache", {"hit_share": share}),
        Hit("warm_prefix", SET_ASIDE, told,
            "a first token after {ttft_s} is sooner than the {least_s} its prompt takes at the "
            "dense peak: the prefix cache was warm, or the time is no TTFT",
            {"ttft_s": ttft, "least_s": least}),
    ]  # fmt: skip


def _prompt_time(featured: pd.DataFrame) -> np.ndarray:
    """Least prefill time of one prompt [s], (rows,); NaN where the features hold no prefill."""
    tokens, seconds = column(featured, "prefill_tokens"), column(featured, "prefill_s")
    per_token = seconds / np.where(tokens > 0, tokens, np.nan)
    single = column(featured, "dp", 1.0) == 1
    return np.where(single, per_token * column(featured, "input_len"), np.nan)


def chunk_counting(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """Streamed chunks that are not tokens: several in one, or empty ones counted."""
    gap, tpot = column(featured, "itl_s"), column(featured, "tpot_s")
    ratio = gap / np.where(tpot > 0, tpot, np.nan)
    many = limits.tokens_per_chunk
    mask = (ratio > many) | (ratio < 1 / many)
    by_gap = (text(featured, "step_time_definition") == "itl_median").to_numpy()
    reason = "the mean gap between chunks is {ratio} of the time per token: chunks are not tokens"
    figures = {"ratio": ratio}
    return [
        Hit("chunk_counting", SET_ASIDE, mask & by_gap, reason, figures),
        Hit(
            "chunk_counting",
            FLAG,
            mask & ~by_gap,
            reason + ", which the step does not use",
            figures,
        ),
    ]


def speculative(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """A verified step that emits several tokens is no decode step of the model alone."""
    tokens = column(featured, "accepted_tokens")
    reason = "speculative decoding: {tokens} tokens a verified step, so a token is no step"
    mask = tokens > limits.accepted_tokens
    return [Hit("speculative", SET_ASIDE, mask, reason, {"tokens": tokens})]


def contradiction(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """Throughput and latency that cannot both be true."""
    batch, step = column(featured, "batch_size"), column(featured, "step_time_s")
    said, offered = column(featured, "throughput_tok_s"), column(featured, "concurrency")
    made = batch / step
    apart = np.abs(said / made - 1) > limits.agreement
    flying = (
        column(featured, "output_throughput_tok_s")
        * column(featured, "e2e_s")
        / column(featured, "output_len")
    )
    over = (offered > 0) & (np.fmax(flying, batch) > (1 + limits.agreement) * offered)
    parts = column(featured, "ttft_s") + column(featured, "tpot_s") * (
        column(featured, "output_len") - 1
    )
    whole = column(featured, "e2e_s")
    serving = text(featured, "step_time_definition").isin(_SERVING).to_numpy()
    split = serving & (np.abs(parts / np.where(whole > 0, whole, np.nan) - 1) > limits.agreement)
    return [
        Hit("contradiction", SET_ASIDE, apart,
            "{said} tokens/s were reported, but batch over step time is {made}",
            {"said": said, "made": made}),
        Hit("contradiction", SET_ASIDE, over,
            "throughput x latency needs {flying} requests in flight, {offered} were offered",
            {"flying": np.fmax(flying, batch), "offered": offered}),
        Hit("contradiction", FLAG, split,
            "TTFT and the output's steps make {parts_s}, the latency is {whole_s}",
            {"parts_s": parts, "whole_s": whole}),
    ]  # fmt: skip


def gpu_count(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """Parallel degrees that do not give the GPU count."""
    gpus = column(featured, "n_gpus")
    degrees = (
        column(featured, "tp", 1.0) * column(featured, "pp", 1.0) * column(featured, "dp", 1.0)
    )
    experts = column(featured, "ep", 1.0)
    replicas = (gpus > degrees) & (gpus % degrees == 0)
    wrong = ~np.isnan(gpus) & (gpus != degrees) & ~replicas
    wide = experts > degrees
    figures = {"gpus": gpus, "degrees": degrees, "experts": experts}
    return [
        Hit("gpu_count", SET_ASIDE, wrong,
            "tp x pp x dp gives {degrees} GPUs, the row names {gpus}", figures),
        Hit("gpu_count", SET_ASIDE, wide & ~wrong,
            "experts are split over {experts} GPUs, tp x pp x dp gives {degrees}", figures),
        Hit("replicas", FLAG, replicas,
            "{gpus} GPUs are several copies of {degrees}; the batch may be that of all", figures),
    ]  # fmt: skip
