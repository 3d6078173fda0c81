"""`vllm bench throughput`: offline, all requests at once, no latency of any.

With B sequences decoded together, the run took requests x output / B steps, so a step is
elapsed x B / (requests x output), prefill inside. B is what the engine admits (max_num_seqs, or the
pool) and stands in no file, so it must be given; fewer requests than B make one static batch.
`tokens_per_second` counts prompt and output together and is not read.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from capmodel.ingest.serving import numbers

VARIABLE_MAP = {
    "elapsed_time": "duration_s [s]",
    "num_requests": "requested",
    "total_num_tokens": "total_num_tokens",
    "model": "model",
    "gpu": "gpu",
    "tp": "tp",
}

NEEDS = ("batch_size", "input_len", "output_len")


def recognises(first: Mapping[str, object]) -> bool:
    """True for an object that this tool writes."""
    return {"elapsed_time", "num_requests", "tokens_per_second"} <= first.keys()


def read_vllm_throughput(raw: pd.DataFrame) -> pd.DataFrame:
    """Rows of RUNS, unchecked; the step follows once batch and lengths are given."""
    return raw.assign(engine="vllm", step_time_definition="e2e_over_output")


def finish(runs: pd.DataFrame) -> pd.DataFrame:
    """Step and mean context, from the batch and lengths that were given."""
    requests, total = numbers(runs, "requested"), numbers(runs, "total_num_tokens")
    prompt, output = numbers(runs, "input_len"), numbers(runs, "output_len")
    output = np.where(total > prompt * requests, total / requests - prompt, output)
    batch = np.minimum(numbers(runs, "batch_size"), requests)
    step = numbers(runs, "duration_s") * batch / (requests * output)
    return runs.drop(columns="total_num_tokens", errors="ignore").assign(
        output_len=output, batch_size=batch, step_time_s=step, context_len=prompt + output / 2,
        completed=requests,
    )  # fmt: skip
