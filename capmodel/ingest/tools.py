"""The tools whose output is read, and which of them wrote a file.

A new format is one module with a `VARIABLE_MAP`, a `recognises` and a `read_<tool>`, and one line
in TOOLS. A module may also have `records` (the runs inside one object), `NEEDS` (facts to be
given) and `finish` (what follows once they are).
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import pandas as pd

from capmodel.ingest import (
    aiconfigurator,
    aiperf,
    argonne,
    guidellm,
    inference_perf,
    inferencex,
    llama_bench,
    llmd_report,
    optimum_benchmark,
    own,
    sglang_one_batch,
    sglang_serving,
    trtllm_bench,
    vllm_latency,
    vllm_serve,
    vllm_throughput,
)
from capmodel.ingest.documents import Document, refuse
from capmodel.runs import RunsError


@dataclass(frozen=True, slots=True)
class Tool:
    """One format: its name, the module that maps it, and its reader."""

    name: str
    module: ModuleType
    read: Callable[[pd.DataFrame], pd.DataFrame]


# In the order in which they are asked; a new format is one module and one line here.
TOOLS = (
    Tool("argonne", argonne, argonne.read_argonne),
    Tool("aiconfigurator", aiconfigurator, aiconfigurator.read_aiconfigurator),
    Tool("inferencex", inferencex, inferencex.read_inferencex),
    Tool("llama-bench", llama_bench, llama_bench.read_llama_bench),
    Tool("optimum-benchmark", optimum_benchmark, optimum_benchmark.read_optimum_benchmark),
    Tool("trtllm-bench", trtllm_bench, trtllm_bench.read_trtllm_bench),
    Tool("guidellm", guidellm, guidellm.read_guidellm),
    Tool("inference-perf", inference_perf, inference_perf.read_inference_perf),
    Tool("llm-d-report", llmd_report, llmd_report.read_llmd_report),
    Tool("aiperf", aiperf, aiperf.read_aiperf),
    Tool("sglang-one-batch", sglang_one_batch, sglang_one_batch.read_sglang_one_batch),
    Tool("sglang-serving", sglang_serving, sglang_serving.read_sglang_serving),
    Tool("vllm-serve", vllm_serve, vllm_serve.read_vllm_serve),
    Tool("vllm-latency", vllm_latency, vllm_latency.read_vllm_latency),
    Tool("vllm-throughput", vllm_throughput, vllm_throughput.read_vllm_throughput),
    Tool("own", own, own.read_own),
)
FORMATS = ("auto", *(tool.name for tool in TOOLS))


class NoBenchmark(RunsError):
    """A file that no known tool wrote."""


def identify(document: Document, format: str = "auto") -> Tool:
    """The tool that wrote a document: the one named, or by its fields.

    Raises ValueError for an unknown format, NoBenchmark where no known tool wrote it.
    """
    check_format(format)
    if format == "auto" and own.lists_set_aside(document.first):
        error = refuse(document.path, "file", "it lists the rows that an earlier call set aside")
        raise NoBenchmark(error.problems, str(document.path))
    for tool in TOOLS:
        if tool.name == format or (format == "auto" and tool.module.recognises(document.first)):
            return tool
    fields = ", ".join(map(str, list(document.first)[:8])) or "none"
    error = refuse(document.path, "file", f"no benchmark that is known; its fields are {fields}")
    raise NoBenchmark(error.problems, str(document.path))


def check_format(format: str) -> None:
    """Raises ValueError for a format that is none of FORMATS."""
    if format not in FORMATS:
        raise ValueError(f"Got format {format!r}, but expected one of {', '.join(FORMATS)}")
