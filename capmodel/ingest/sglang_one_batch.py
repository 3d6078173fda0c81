"""SGLang `bench_one_batch` and `bench_one_batch_server`: one static batch, JSONL.

`bench_one_batch` times every decode step by itself, synchronised: its median_decode_latency is the
decode step, the best source there is. The server variant gives the latency of the batch and its
last TTFT; the rest is output - 1 steps with no prefill inside. `run_name` is free text.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import either, numbers, set_aside

VARIABLE_MAP = {
    "model": "model",
    "engine": "engine",
    "gpu": "gpu",
    "tp": "tp",
    "batch_size": "batch_size",
    "input_len": "input_len",
    "output_len": "output_len",
    "median_decode_latency": "decode_s [s]",
    "total_latency": "e2e_s [s]",
    "latency": "e2e_s [s]",
    "prefill_latency": "ttft_s [s]",
    "last_ttft": "ttft_s [s]",
    "ttft": "ttft_s [s]",
    "acc_length": "accepted_tokens",
    "cache_hit_rate": "prefix_hit_share",
}


def recognises(first: Mapping[str, object]) -> bool:
    """True for an object that this tool writes."""
    batch = {"run_name", "batch_size", "input_len", "output_len"} <= first.keys()
    return batch and bool({"median_decode_latency", "prefill_latency", "last_ttft"} & first.keys())


def read_sglang_one_batch(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked. raw: the fields of VARIABLE_MAP, times [s]."""
    prompt, output = numbers(raw, "input_len"), numbers(raw, "output_len")
    rest = (numbers(raw, "e2e_s") - numbers(raw, "ttft_s")) / np.where(
        output > 1, output - 1, np.nan
    )
    step = either(numbers(raw, "decode_s"), rest)
    accepted = numbers(raw, "accepted_tokens")
    runs = raw.drop(columns=["decode_s", "accepted_tokens"], errors="ignore").assign(
        step_time_s=step,
        context_len=prompt + output / 2,
        step_time_definition="decode_step",
    )
    runs["engine"] = runs["engine"].replace("", "sglang")
    if (accepted > 0).any():  # -1 stands for no speculation
        runs["accepted_tokens"] = np.where(accepted > 0, accepted, np.nan)
    set_aside(runs, output <= 1, "no_decode", "a single token was generated; nothing was decoded")
    set_aside(runs, ~(step > 0), "no_step", "the record holds no decode latency")
    return runs
