"""How each figure of a plan is printed: its unit follows from its key, everywhere the same."""

from collections.abc import Mapping
from typing import Any

from capmodel.report.numbers import NONE, milliseconds, number, percent, score, whole
from capmodel.units import format_dollars, format_gib, format_seconds

# Keys whose label the words of the key do not make plain.
LABELS = {
    "id": "Calibration",
    "name": "Name",
    "basis": "Step times of",
    "fitted_on": "Fitted on",
    "fitted_by": "Fitted by",
    "rate": "Requests a second, at the busiest",
    "mean_rate": "Requests a second, on average",
    "concurrency": "Clients, each waiting for its answer",
    "cv": "Gaps between arrivals, deviation over mean",
    "input_mean": "Prompt tokens a request, mean",
    "cached_mean": "Prompt tokens in the prefix cache, mean",
    "output_mean": "Output tokens a request, mean",
    "longest": "Longest request [tokens]",
    "refused": "Requests too long for the model, left out",
    "hit_share": "Prompt tokens found in the prefix cache",
    "max_context": "Context limit [tokens]",
    "weights_bytes": "Weights",
    "activation_bytes": "Activation peak",
    "graphs_bytes": "CUDA graphs",
    "non_torch_bytes": "Outside PyTorch",
    "cache_bytes": "KV cache",
    "outside_bytes": "Left unused",
    "capacity_bytes": "Memory of one GPU",
    "fraction": "Share the engine may use",
    "growth_bytes_per_token": "Cache growth a token [bytes]",
    "block_bytes": "One block [bytes]",
    "pool_blocks": "Blocks in the pool",
    "n": "Requests counted, warm-up left out",
    "span_s": "Time simulated",
    "request_rate": "Requests a second",
    "output_tok_s": "Output tokens a second",
    "input_tok_s": "Prompt tokens a second",
    "cached_tok_s": "Cached tokens a second",
    "mean_in_system": "Requests in the system, mean",
    "mean_decoding": "Sequences decoding a replica, while busy",
    "utilisation": "Time spent in steps",
    "pool_use": "Blocks in use, mean",
    "peak_pool_use": "Blocks in use, peak",
    "waste": "Slots in held blocks without a token",
    "preempted_share": "Requests preempted",
    "holds": "Keeps the promises",
    "capacity_per_s": "Requests a second within the promises",
    "per_million_input": "A million prompt tokens",
    "per_million_cached": "A million cached tokens",
    "per_million_output": "A million output tokens",
    "wh_per_million_output": "Watt-hours a million output tokens, at most",
    "kilowatts": "Power at most [kW]",
    "n_gpus": "GPUs",
    "gpus": "GPUs looked at",
    "dollars_per_hour": "Cost an hour",
    "limited_by": "More load is stopped by",
    "load_share": "Load against capacity",
    "max_num_seqs": "max_num_seqs to set",
    "clients": "Requests to let into the fleet",
    "noise_floor_mape": "Noise of repeated measurements",
    "low_factor": "Step time, low end (× estimate)",
    "high_factor": "Step time, high end (× estimate)",
}
# What stops more load, as the planner names it.
LIMITS = {
    "ttft": "the promised time to the first token",
    "tpot": "the promised time per token",
    "e2e": "the promised time to the end",
    "cache": "room in the KV cache",
    "max_num_seqs": "the engine's limit on sequences",
    "max_num_batched_tokens": "the engine's limit on tokens a step",
    "throughput": "throughput: more batch brings no more tokens",
    "prompts": "the replicas that only take prompts",
}
# Why a candidate is set aside, as the planner names it.
STAGES = {
    "memory": "the model or its longest request does not fit",
    "tp": "the heads of the model do not divide by tp",
    "slo": "a promise is missed with hardly any load",
    "price": "no price is known",
    "step time": "no step time is known",
    "simulation": "the simulation missed a promise",
}
SHORT_STAGES = {"slo": "a promise", "step time": "no step time", "price": "no price"}
# Why no more requests should be let in, as the planner names what stops them.
CAPS = {
    "ttft": "so that the promised time to the first token holds",
    "tpot": "so that the promised time per token holds",
    "e2e": "so that the promised time to the end holds",
    "cache": "which is what the KV cache holds",
    "max_num_seqs": "which is the engine's limit on sequences",
    "max_num_batched_tokens": "which is the engine's limit on tokens a step",
    "throughput": "as more bring no more tokens",
    "prompts": "which is what the replicas for prompts take",
}
RULERS = {"weights": "weights and fixed work", "cache": "reading the cache", "prompts": "prompts"}

_SHARES = {
    *("fraction", "utilisation", "waste", "pool_use", "peak_pool_use", "overflow"),
    *("mape", "median_ape", "p90_ape", "bias", "coverage_90", "noise_floor_mape"),
}
_TIMES = ("ttft", "tpot", "e2e", "step_s")
_SPELT = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "gpu": "GPU", "tp": "TP", "kv": "KV"}
# Sequences that are there or not; means over time keep their fractions.
_WHOLE = {"fits", "pool_full", "cache_longest_from", "half_gain"}
_PLAIN_BYTES = {"growth_bytes_per_token", "block_bytes"}
_MONEY = ("dollars", "per_million", "api_price", "price")


def cell(key: str, value: Any) -> str:
    """`value` of the plan's key as it stands in a table whose head names the unit.

    Times are in ms (`span_s` in s), bytes in GiB, shares in percent, money in dollars, tokens a
    day in millions.
    """
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | dict):
        return f"{len(value)} entries"
    if isinstance(value, str):
        return limit_words(value) if key == "limited_by" else value
    if key == "percentile":
        return f"{value:g}"
    if key in _PLAIN_BYTES:
        return whole(value)
    if key.endswith("_bytes"):
        return format_gib(value)
    if key.startswith(_MONEY):
        return format_dollars(value)
    if key in _SHARES or key.endswith("share"):
        return percent(value)
    if key.startswith(_TIMES):
        return milliseconds(value)
    if key in ("r2", "r2_log"):
        return score(value)
    if key == "c_step":
        return number(1e6 * value)
    if key == "tokens_per_day":
        return number(value / 1e6)
    if key in _WHOLE:
        return whole(value)
    return number(value)


def label(key: str) -> str:
    """The key in words: `'input_mean'` is `'Prompt tokens a request, mean'`."""
    if key in LABELS:
        return LABELS[key]
    words = key.removesuffix("_bytes").removesuffix("_s").split("_")
    text = " ".join(_SPELT.get(word, word) for word in words)
    unit = " [ms]" if key.startswith(_TIMES) else ""
    return text[:1].upper() + text[1:] + unit


def pairs(values: Mapping[str, Any], *skip: str) -> tuple[tuple[str, str], ...]:
    """Label and value of every scalar of `values` that is known, those of `skip` left out."""
    return tuple(
        (label(key), cell(key, value) + (" s" if key == "span_s" else ""))
        for key, value in values.items()
        if key not in skip and value is not None and not isinstance(value, dict | list)
    )


def limit_words(name: str) -> str:
    """What stops more load, in words."""
    return LIMITS.get(name, name)


def cap_words(name: str) -> str:
    """Why the cap on requests stands where it does, as the end of a sentence."""
    return CAPS.get(name, f"for {name}")


def level_name(row: Mapping[str, Any]) -> str:
    """`'vllm on h100-sxm'`; of a wider level `'vllm, all GPUs'` and `'all engines and GPUs'`."""
    engine, gpu = (str(row[key]).strip("()") for key in ("engine", "gpu"))
    if engine == "all":
        return "all engines and GPUs"
    return f"{engine}, all GPUs" if gpu == "all" else f"{engine} on {gpu}"


def one_fails_words(plan: Mapping[str, Any]) -> str:
    """What happens while one replica is down, as the end of a sentence."""
    best = plan["recommendation"]
    spare = best["spare"]
    left = spare["one_fails"]
    if best["replicas"] == 1:
        return "nothing is served until it is back"
    if left is None:
        return "the rest cannot keep up"
    if any(plan["slo"].get(f"{name}_s") is not None for name in ("ttft", "tpot", "e2e")):
        if spare["keeps_promises"]:
            return "the rest keep the promises"
        return f"the rest keep up, but miss {_missed(plan['slo'], left)}"
    return (
        f"the rest keep up: TTFT p95 {format_seconds(left['ttft_p95_s'])}, TPOT p95 "
        f"{format_seconds(left['tpot_p95_s'])}"
    )


def _missed(slo: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """The promises that a steady state does not keep, as far as its p95 tells."""
    limits = {name: slo.get(f"{name}_s") for name in ("ttft", "tpot", "e2e")}
    names = [
        name.upper()
        for name, limit in limits.items()
        if limit is not None and (state.get(f"{name}_p95_s") or 0.0) > limit
    ]
    return f"the promised {' and '.join(names)}" if names else "a promise"


def shortened(text: str, at_most: int = 34) -> str:
    """`text`, its middle left out where it would crowd a figure."""
    if len(text) <= at_most:
        return text
    head = (at_most - 1) * 2 // 3
    return f"{text[:head]}…{text[head + 1 - at_most :]}"


def fleet_name(row: Mapping[str, Any]) -> str:
    """`'2 × (4 × h100-sxm)'`: replicas of a tensor-parallel group; `'4 × h100-sxm'` for one.

    `'(1 + 2) × (4 × h100-sxm)'` where one replica takes the prompts alone and two decode.
    """
    group = f"{row['tp']} × {row['gpu']}"
    if row.get("prefill_replicas") is not None:
        return f"({row['prefill_replicas']} + {row['decode_replicas']}) × ({group})"
    replicas = row.get("replicas")
    return group if replicas in (None, 1) else f"{replicas} × ({group})"
