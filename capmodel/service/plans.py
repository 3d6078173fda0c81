"""Plans: the workload of a request to GPUs, latency and money, as JSON, CSV or PDF."""

from typing import Any

import numpy as np

from capmodel.planner import InfeasiblePlan, plan
from capmodel.service.answers import Fields
from capmodel.service.errors import Refused, problem
from capmodel.service.named import calibration_of, gpu_of, noted, shape_of, told
from capmodel.service.plain import json_bytes, plain
from capmodel.workload import Lognormal, Requests, SharedPrefix


def answer_plan(body: Fields) -> dict[str, Any]:
    """`Plan.to_dict()`; where nothing keeps the promises, the plan that says so."""
    shape = shape_of(body["model"])
    given = body["gpu"]
    gpus = None
    if given is not None:
        gpus = [gpu_of(one) for one in (given if isinstance(given, list) else [given])]
    price = body["price"]
    if isinstance(price, dict):
        own = {"*", *(gpu.name for gpu in gpus or ())}
        for name in price.keys() - own:
            gpu_of(name, "price")
    trace = body["trace"]
    if trace is None and body["rate"] is None and body["concurrency"] is None:
        raise Refused(422, [problem("rate", "requests/s, or concurrency (clients), or a trace")])
    if trace is not None:
        with told("trace"):
            columns = {name: np.asarray(values, float) for name, values in trace.items()}
            trace = Requests(**columns, name="trace")  # type: ignore[arg-type]
    prefix = None if body["prefix"] is None else SharedPrefix(**body["prefix"])
    lengths = "input_len" if trace is None else "trace"  # where a length comes from
    with noted() as notes, told("", {"input_len": lengths}):
        try:
            found = plan(
                shape,
                gpus,
                trace=trace,
                input_len=_lengths(body["input_len"]),
                output_len=_lengths(body["output_len"]),
                price=price,
                prefix=prefix,
                calibration=calibration_of(body["calibration"]),
                **{name: body[name] for name in _AS_THEY_ARE},
            )
        except InfeasiblePlan as error:
            if error.plan is None:
                raise
            found = error.plan
    document = found.to_dict()
    document["warnings"] += notes
    answer: dict[str, Any] = plain(document)
    return answer


def plan_json(body: Fields) -> bytes:
    """`answer_plan` as JSON."""
    return json_bytes(answer_plan(body))


_AS_THEY_ARE = (
    "rate", "concurrency", "slo_ttft_p95", "slo_tpot_p95", "slo_e2e_p95", "tp", "weight_dtype",
    "kv_dtype", "simulate", "seed", "engine", "cv", "prefix_cache", "memory_fraction",
    "disaggregate", "date",
)  # fmt: skip


def plan_file(body: Fields) -> bytes:
    """The plan as a PDF or CSV; `format` says which."""
    from capmodel.report.pdf import render_pdf
    from capmodel.report.plan import plan_document
    from capmodel.service.tables import plan_csv

    document = answer_plan(body)
    if body["format"] == "csv":
        return plan_csv(document).encode()
    return render_pdf(plan_document(document))


def _lengths(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value["cv"] == 0:
        return value["mean"]
    return Lognormal(value["mean"], value["cv"])
