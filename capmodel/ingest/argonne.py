"""Argonne's LLM-Inference-Bench table: one static batch, input length = output length.

What the columns mean (argonne-lcf/LLM-Inference-Bench, Plots/All_results.csv):

- Latency [s] is end to end for the whole batch, so the prefill is inside. The decode step is
  taken as latency / output tokens, at a mean context of input + output / 2; the definition
  stays with the row (`e2e_over_output`) and the prefill work enters the fit as a named term.
- Throughput counts input and output tokens, and for llama.cpp leaves the batch out. It is not read.
- llama.cpp's "Batch Size" is `-b`, the prompt tokens per prefill pass: one sequence is
  decoded. Its devices split the layers (pp), those of the other engines the tensors (tp).
- "Intel PVC GPU" and "Intel Max 1550" are one device. An MI250 row is most likely one die per
  "hardware": two dies' bandwidth would put many rows far under any engine's efficiency.
  The A100 is the 40 GB part, all weights and caches are in 16 bits.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

VARIABLE_MAP = {
    "Hardware": "gpu",
    "Num of Hardware": "n_gpus",
    "Framework": "engine",
    "Model": "model",
    "Input Output Length": "output_len",
    "Batch Size": "batch_size",
    "Latency": "e2e_s",
}

GPUS = {
    "Nvidia A100 GPU": "a100-40gb-sxm",
    "Nvidia H100 GPU": "h100-sxm",
    "AMD MI250 GPU": "mi250-die",
    "AMD MI300X GPU": "mi300x",
    "Habana Gaudi2": "gaudi2",
    "Intel PVC GPU": "max-1550",
    "Intel Max 1550": "max-1550",
    "SambaNova SN40L": "sn40l",
}

ENGINES = {
    "vLLM": "vllm",
    "llama.cpp": "llama.cpp",
    "TensorRT-LLM": "tensorrt-llm",
    "Deepspeed": "deepspeed",
    "Deepspeed-MII": "deepspeed-mii",
    "sambaflow": "sambaflow",
}


def recognises(first: Mapping[str, object]) -> bool:
    """True for this table's header."""
    return set(VARIABLE_MAP) <= first.keys()


def read_argonne(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of the table in the columns of RUNS, unchecked. One row in, one row out."""
    runs = raw.rename(columns=VARIABLE_MAP)[list(VARIABLE_MAP.values())].copy()
    runs.insert(0, "run_id", [f"argonne-{row}" for row in range(1, len(runs) + 1)])
    runs.insert(1, "source", "Argonne LLM-Inference-Bench, measured end to end")
    runs["gpu"] = runs["gpu"].map(GPUS).fillna(runs["gpu"])
    runs["engine"] = runs["engine"].map(ENGINES).fillna(runs["engine"])
    layer_split = (runs["engine"] == "llama.cpp").to_numpy()
    runs["tp"] = np.where(layer_split, 1, runs["n_gpus"])
    runs["pp"] = np.where(layer_split, runs["n_gpus"], 1)
    runs["prefill_chunk"] = np.where(layer_split, runs["batch_size"], np.nan)
    runs["batch_size"] = np.where(layer_split, 1, runs["batch_size"])
    runs["input_len"] = runs["output_len"]
    runs["context_len"] = runs["input_len"] + runs["output_len"] / 2
    runs["weight_dtype"] = "fp16"
    runs["kv_dtype"] = "fp16"
    runs["step_time_s"] = runs["e2e_s"] / runs["output_len"]
    runs["step_time_definition"] = "e2e_over_output"
    return runs
