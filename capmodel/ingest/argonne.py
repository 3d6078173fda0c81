"""Argonne's LLM-Inference-Bench table: one static batch, input length = output length.

What the columns mean (argonne-lcf/LLM-Inference-Bench, Plots/All_results.csv):

- Latency [s] is end to end for the whole batch, so the prefill is inside. The decode step is
  taken as latency / output tokens, at a mean context of input + output / 2; the definition
  stays with the row (`e2e_over_output`) and the prefill work enters the fit as a named term.
- Throughput counts input and output tokens, and for llama.cpp leaves the batch out. It is not read.
- llama.cpp's "Batch Size" is `-b`, the prompt tokens per prefill pass: one sequence is
  decoded. Its devices split the layers (pp), those of the other engines the tensors (tp).
- "Intel PVC GPU" and "Intel Max 1550" are one device. The A100 is the 40 GB part, all weights
  and caches are in 16 bits.
- One "AMD MI250" is a card of two dies, and software sees each die as a GPU: the benchmark's own
  MI250 scripts set twice as many visible devices and tensor-parallel ranks as cards. The rows
  agree: Mixtral (93 GB) runs on one, and from two to four the 70B step shrinks faster than the
  bandwidth of single dies would allow. So n cards are read as 2 n dies.
- DeepSpeed-MII (its pipeline.py) and TensorRT-LLM rows decode one prompt many times, so a batch
  touches the same experts: sixteen sequences of Mixtral on four A100 take 11.0 ms, less than
  reading all experts would. vLLM draws random tokens per sequence.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import numbers

VARIABLE_MAP = {
    "Hardware": "gpu",
    "Num of Hardware": "n_gpus",
    "Framework": "engine",
    "Model": "model",
    "Input Output Length": "output_len",
    "Batch Size": "batch_size",
    "Latency": "e2e_s [s]",
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

# Engines whose benchmark script feeds one prompt to every sequence of the batch.
SAME_PROMPT = ("deepspeed-mii", "tensorrt-llm")


def recognises(first: Mapping[str, object]) -> bool:
    """True for this table's header."""
    return set(VARIABLE_MAP) <= first.keys()


def read_argonne(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of the table in the columns of RUNS, unchecked. One row in, one row out.

    raw: the fields of VARIABLE_MAP; its index is the rows' number in the file.
    """
    output, batch = numbers(raw, "output_len"), numbers(raw, "batch_size")
    gpu = raw["gpu"].map(GPUS).fillna(raw["gpu"])
    devices = numbers(raw, "n_gpus") * np.where(gpu == "mi250-die", 2.0, 1.0)
    latency = numbers(raw, "e2e_s")
    engine = raw["engine"].map(ENGINES).fillna(raw["engine"])
    layer_split = (engine == "llama.cpp").to_numpy()
    return pd.DataFrame(
        {
            "run_id": [f"argonne-{row}" for row in raw.index],
            "source": "Argonne LLM-Inference-Bench, measured end to end",
            "gpu": gpu,
            "n_gpus": devices,
            "engine": engine,
            "model": raw["model"],
            "output_len": output,
            "batch_size": np.where(layer_split, 1.0, batch),
            "e2e_s": latency,
            "tp": np.where(layer_split, 1.0, devices),
            "pp": np.where(layer_split, devices, 1.0),
            "prefill_chunk": np.where(layer_split, batch, np.nan),
            "distinct_prompts": np.where(engine.isin(SAME_PROMPT), 1.0, np.nan),
            "input_len": output,
            "context_len": output * 1.5,
            "weight_dtype": "fp16",
            "kv_dtype": "fp16",
            "step_time_s": latency / output,
            "step_time_definition": "e2e_over_output",
        }
    )
