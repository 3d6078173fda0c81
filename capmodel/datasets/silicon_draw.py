"""Which composed steps the bundled table keeps: a spread over models and GPUs, the same each time.

Draws go by a hash of the text that names a deployment or a step, not by a random generator, so
they do not depend on the version of any library or on an order.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

DEPLOYMENTS_PER_PAIR = 4  # of one model on one GPU
STEPS_PER_DEPLOYMENT = 20
FEWEST_STEPS = 6  # a deployment with fewer measured steps says too little of its slope

# How often a deployment is wanted beside others of the same model and GPU.
DTYPE_WEIGHT = {"bf16": 3.0, "fp8": 1.0, "int4": 1.5, "int8": 1.0, "nvfp4": 1.0, "mxfp4": 1.0}
TP_WEIGHT = {1: 4.0, 2: 1.5, 4: 1.0, 8: 1.0}


def drawn_deployments(names: Sequence[str], weights: Sequence[float]) -> list[int]:
    """Positions of the kept ones of `names`, a weighted draw without replacement.

    The smallest exponential keys win (Efraimidis and Spirakis, 2006).
    """
    keys = [-math.log(_share(name)) / weight for name, weight in zip(names, weights, strict=True)]
    return sorted(np.argsort(keys, kind="stable")[:DEPLOYMENTS_PER_PAIR].tolist())


def drawn_steps(name: str, steps: Sequence[tuple[int, int]]) -> list[int]:
    """Positions of the kept (batch, context) pairs of the deployment called `name`.

    Contexts are drawn whole, so that the step time over the batch can be seen, until
    STEPS_PER_DEPLOYMENT steps are found; of the last context some batches are drawn.
    """
    keys = [
        (_share(f"{name}|{context}"), _share(f"{name}|{batch}|{context}"))
        for batch, context in steps
    ]
    order = sorted(range(len(steps)), key=keys.__getitem__)
    return sorted(order[:STEPS_PER_DEPLOYMENT])


def content_hash(runs: pd.DataFrame) -> str:
    """sha256 of the table as CSV, numbers to six digits: equal content, equal hash."""
    text = runs.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    return hashlib.sha256(text.encode()).hexdigest()


def six_digits(values: pd.Series) -> pd.Series:
    """Rounded to six significant digits, beyond what any kernel time was measured to."""
    safe = values.where(values > 0, 1.0)
    scale = 10.0 ** (5 - np.floor(np.log10(safe)))
    return (values * scale).round() / scale


def _share(text: str) -> float:
    """A number in (0, 1) that depends on `text` alone."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2.0**64
