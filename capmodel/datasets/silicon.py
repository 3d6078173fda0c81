"""The bundled silicon runs: decode steps composed from kernel times measured on five GPUs."""

import pandas as pd

from capmodel.arguments import flag
from capmodel.bundled import bundled_path

SILICON_FILE = "silicon_runs.parquet"
# Seconds of a step by kind of kernel; they sum to step_time_s.
PART_COLUMNS = ("gemm_s", "attention_s", "moe_s", "all_reduce_s", "head_s")


def load_silicon_runs(parts: bool = False) -> pd.DataFrame:
    """Runs table of decode steps composed from measured kernels; the default of `capmodel run`.

    Each step is the sum of GEMM, generation-attention, MoE and all-reduce times that
    aiconfigurator-core 0.12.0 (Apache-2.0) publishes for A100, H100, H200, B200 and L40S under
    TensorRT-LLM, vLLM and SGLang. They were measured kernel by kernel, never end to end: norms,
    sampling and the scheduler are not in them. `data/README.md` is the dictionary.

    parts: add the seconds of each kind of kernel as PART_COLUMNS [s]. They sum to the target,
    so they are left out by default.

    Models named `varied-...` exist nowhere; their shape columns say what they are made of. For
    catalogue models those columns are empty. Raises ValueError for parts that is no flag.
    """
    parts = flag("parts", parts)
    runs = pd.read_parquet(bundled_path(SILICON_FILE))
    return runs if parts else runs.drop(columns=list(PART_COLUMNS))
