"""InferenceX (InferenceMAX) aggregate JSON: agg_*.json, one object or a list.

Written by utils/process_result.py from a serving run: every `*_ms` field became seconds under the
name without `_ms`. `tput_per_gpu` counts input and output and is not read; `output_tput_per_gpu`
is per GPU of `tp`, in disaggregated rows per decode GPU. `conc` is the client's concurrency.
With `dp_attention` the attention is data parallel over the `tp` GPUs. Prompts and outputs are
uniform between 0.8 and 1.0 times `isl` and `osl`. The rows do not say the cache dtype.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import either, numbers, serving_runs

VARIABLE_MAP = {
    "model": "model",
    "hw": "gpu",
    "framework": "engine",
    "precision": "weight_dtype",
    "spec_decoding": "spec_decoding [text]",
    "mtp": "spec_decoding [text]",
    "disagg": "disagg [text]",
    "dp_attention": "dp_attention [text]",
    "decode_dp_attention": "dp_attention [text]",
    "tp": "tp",
    "decode_tp": "tp",
    "ep": "ep",
    "decode_ep": "ep",
    "decode_num_workers": "workers",
    "num_decode_gpu": "decode_gpus",
    "conc": "concurrency",
    "isl": "target_input_len",
    "osl": "target_output_len",
    "mean_ttft": "ttft_s [s]",
    "mean_tpot": "tpot_s [s]",
    "mean_itl": "itl_s [s]",
    "mean_e2el": "e2e_s [s]",
    "output_tput_per_gpu": "output_tput_per_gpu",
}

_MEAN_SHARE = 0.9  # mean of the uniform lengths, of isl and osl
_ENGINES = {"trt": "tensorrt-llm", "trtllm": "tensorrt-llm", "dynamo-trt": "tensorrt-llm",
            "dynamo-trtllm": "tensorrt-llm", "dynamo-sglang": "sglang",
            "dynamo-vllm": "vllm"}  # fmt: skip


def recognises(first: Mapping[str, object]) -> bool:
    """True for an aggregate record of this tool."""
    return {"hw", "conc", "framework", "precision", "tput_per_gpu"} <= first.keys()


def read_inferencex(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked. One decode worker is the deployment where there are several."""
    tp, ep = numbers(raw, "tp"), numbers(raw, "ep")
    attention_dp = _word(raw, "dp_attention").isin(["true", "1"]).to_numpy()
    disagg = _word(raw, "disagg").isin(["true", "1"]).to_numpy()
    workers = either(numbers(raw, "workers"), np.ones(len(raw)))
    gpus = either(numbers(raw, "decode_gpus"), tp)
    engine = _word(raw, "engine")
    weights = _word(raw, "weight_dtype")
    oss = _word(raw, "model").str.contains("gpt-oss").to_numpy()
    spec = ~_word(raw, "spec_decoding").isin(["", "none", "off", "false"]).to_numpy()
    runs = raw.drop(
        columns=["dp_attention", "disagg", "workers", "decode_gpus", "spec_decoding",
                 "output_tput_per_gpu", "target_input_len"], errors="ignore",
    ).assign(
        engine=engine.map(_ENGINES).fillna(engine),
        weight_dtype=np.where(oss & (weights == "fp4"), "mxfp4", weights),
        gpu=_word(raw, "gpu").str.split("_").str[0].str.replace(r"-[a-z]\w*$", "", regex=True),
        input_len=_MEAN_SHARE * numbers(raw, "target_input_len"),
        output_len=_MEAN_SHARE * numbers(raw, "target_output_len"),
        target_output_len=_MEAN_SHARE * numbers(raw, "target_output_len"),
        tp=np.where(attention_dp, 1, tp), dp=np.where(attention_dp, tp, 1),
        ep=either(ep, np.ones(len(raw))), n_gpus=tp,
        concurrency=numbers(raw, "concurrency") / workers,
        output_throughput_tok_s=numbers(raw, "output_tput_per_gpu") * gpus / workers,
        accepted_tokens=np.where(spec, 2.0, 1.0),
    )  # fmt: skip
    runs = serving_runs(runs)
    runs.loc[disagg, "step_time_definition"] = "tpot_decode_only"
    return runs


def _word(raw: pd.DataFrame, name: str) -> pd.Series:
    return raw[name].fillna("").astype(str).str.strip().str.lower()
