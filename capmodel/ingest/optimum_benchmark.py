"""optimum-benchmark: benchmark.json (config + report), or CSV with dotted column names.

`decode.latency` [s] covers max_new_tokens - 1 steps of one static batch, prefill apart;
`per_token.latency` is one step. The default output is 100 tokens (scenarios/inference).
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import either, numbers, set_aside

VARIABLE_MAP = {
    "config.backend.model": "model",
    "config.backend.name": "engine",
    "config.backend.version": "engine_version",
    "config.backend.quantization_scheme": "weight_dtype",
    "config.backend.torch_dtype": "weight_dtype",
    "config.backend.dtype": "weight_dtype",
    "config.environment.gpu": "gpu",
    "config.environment.gpu.0": "gpu",
    "config.scenario.input_shapes.batch_size": "batch_size",
    "config.scenario.input_shapes.sequence_length": "input_len",
    "config.scenario.generate_kwargs.max_new_tokens": "output_len",
    "report.prefill.latency.mean": "ttft_s [s]",
    "report.decode.latency.mean": "decode_s [s]",
    "report.per_token.latency.mean": "per_token_s [s]",
}

_DEFAULT_NEW_TOKENS = 100.0


def recognises(first: Mapping[str, object]) -> bool:
    """True for a benchmark of text generation by this tool, nested or flat."""
    if "report.decode.latency.mean" in first and "config.backend.name" in first:
        return True
    config, report = first.get("config"), first.get("report")
    return isinstance(config, Mapping) and isinstance(report, Mapping) and "backend" in config


def read_optimum_benchmark(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked. raw: the fields of VARIABLE_MAP, times [s]."""
    prompt = numbers(raw, "input_len")
    output = either(numbers(raw, "output_len"), np.full(len(raw), _DEFAULT_NEW_TOKENS))
    whole = numbers(raw, "decode_s") / np.where(output > 1, output - 1, np.nan)
    step = either(whole, numbers(raw, "per_token_s"))
    runs = raw.drop(columns=["decode_s", "per_token_s"], errors="ignore").assign(
        output_len=output,
        context_len=prompt + output / 2,
        step_time_s=step,
        step_time_definition="decode_step",
    )
    if "gpu" in runs:
        runs["gpu"] = runs["gpu"].str.strip("[]'\" ").str.split(r"['\"],", regex=True).str[0]
    if "weight_dtype" in runs:
        text = runs["weight_dtype"].astype(str)
        runs["weight_dtype"] = text.where(~text.str.lower().isin(["auto"]), "")
    set_aside(runs, ~(step > 0), "no_step", "the report holds no decode latency")
    return runs
