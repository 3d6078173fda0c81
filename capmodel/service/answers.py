"""What short requests of `/v1` are answered with: the package called, its result as plain values.

Every function takes the fields of its body and runs in this process or in a job's.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from capmodel.kvcache import kv_bytes
from capmodel.memory import explain_fit, max_concurrency
from capmodel.memory.summary import summarise_cache
from capmodel.prediction import predict
from capmodel.service.errors import Refused, problem
from capmodel.service.named import (
    calibration_of,
    gpu_of,
    noted,
    shape_of,
    told,
)
from capmodel.service.plain import plain

Fields = Mapping[str, Any]


def answer_predict(body: Fields) -> dict[str, Any]:
    """`Prediction.to_dict()`; lists where lists were given."""
    shape, gpu = shape_of(body["model"]), gpu_of(body["gpu"])
    named = isinstance(body["model"], str) and isinstance(body["gpu"], str)
    with noted() as notes, told(""):
        found = predict(
            # By name, the package keeps the step's coefficients for the next request.
            body["model"] if named else shape,
            body["gpu"] if named else gpu,
            batch_size=body["batch_size"],
            context_len=body["context_len"],
            tp=body["tp"],
            weight_dtype=body["weight_dtype"],
            kv_dtype=body["kv_dtype"],
            engine=body["engine"],
            method=body["method"],
            calibration=calibration_of(body["calibration"]),
            interval=body["interval"],
        )
    answer: dict[str, Any] = plain(found.to_dict())
    return {**answer, "warnings": notes}


def answer_kv(body: Fields) -> dict[str, Any]:
    """The cache of requests of one length and what fits; of several lengths, the curve."""
    shape = shape_of(body["model"])
    gpu = None if body["gpu"] is None else gpu_of(body["gpu"])
    asked = {name: body[name] for name in ("weight_dtype", "kv_dtype", "tp", "memory_fraction",
                                           "mode", "reserve_bytes", "max_num_batched_tokens",
                                           "block_size")}  # fmt: skip
    context = body["context_len"]
    with noted() as notes, told(""):
        if isinstance(context, list):
            lengths = np.asarray(context)
            answer: dict[str, Any] = {
                "model": shape.name,
                "context_len": context,
                "kv_bytes": kv_bytes(
                    shape, lengths, body["batch_size"], body["kv_dtype"], body["tp"]
                ),
                "max_concurrency": None
                if gpu is None
                else max_concurrency(shape, gpu, lengths, **asked),
            }
        else:
            summary = summarise_cache(
                shape, context, body["batch_size"], body["kv_dtype"], body["tp"]
            )
            fit = None
            if gpu is not None:
                found = explain_fit(shape, gpu, context, **asked)
                fit = {**asdict(found), "parts": found.budget.parts()}
            answer = {**asdict(summary), "fit": fit}
    return {**plain(answer), "gpu": None if gpu is None else gpu.name, "warnings": notes}


def candidates_of(body: Fields) -> int | None:
    """How many deployments a plan looks at; None where it searches the catalogue."""
    if body["gpu"] is None:
        return None
    sizes = {"gpu": 1, "tp": 4, "weight_dtype": 3, "kv_dtype": 2}
    count = 1
    for name, usual in sizes.items():
        value = body[name]
        count *= len(value) if isinstance(value, list) else 1 if value is not None else usual
    return count


def check_steps(body: Fields) -> None:
    """Raise Refused for lists of a batch prediction that do not go together."""
    sizes = {
        name: len(body[name])
        for name in ("batch_size", "context_len", "tp")
        if isinstance(body[name], list)
    }
    lengths = {size for size in sizes.values() if size != 1}
    if len(lengths) > 1:
        told_sizes = ", ".join(f"{name} of {size}" for name, size in sizes.items())
        expected = "lists of one length"
        raise Refused(
            422,
            [problem(next(iter(sizes)), expected, f"Got {told_sizes}, but expected {expected}")],
        )
