"""A table of sound rows, on which each test breaks one thing."""

from collections.abc import Callable

import pandas as pd

Table = Callable[..., pd.DataFrame]

# One decode step of 20 ms over a floor of 10: 20 GB at 2 TB/s, on a GPU of 80 GB.
SOUND = {
    "engine": "vllm", "model": "m", "gpu": "g", "tp": 1, "pp": 1, "dp": 1, "ep": 1, "n_gpus": 1,
    "weight_dtype": "bf16", "kv_dtype": "bf16", "batch_size": 8.0, "context_len": 1000.0,
    "step_time_s": 0.02, "step_time_definition": "decode_step", "flags": "",
    "floor_s": 0.01, "flop_s": 0.001, "prefill_s": 0.0, "layers": 32.0, "prefill_tokens": 0.0,
    "weight_stored_bytes": 16e9, "kv_stored_bytes": 4e9, "gpu_memory_bytes": 80e9,
}  # fmt: skip
