"""The activation rule and the budget's arithmetic against start-up logs."""

import csv
import re

import pytest

from capmodel.gpus import load_gpu
from capmodel.memory import MemoryBudget, StepLimits, activation_bytes, default_limits
from capmodel.shapes import DenseMlp, LayerGroup, ModelShape
from capmodel.units import GIB


def dense(vocab, hidden, intermediate):
    return ModelShape("dense", hidden, vocab, (LayerGroup(1, None, DenseMlp(intermediate)),))


@pytest.mark.parametrize(
    ("log", "shape", "sequences", "tokens", "logged_gib"),
    [
        # engine_kv_logs.csv; V0 runs 256 sequences, 0.11 on an H100 1,024 (vllm serve defaults).
        ("L012", dense(128_256, 4096, 14_336), 1024, 8192, 4.76),
        ("L013", dense(151_936, 1024, 3072), 1024, 8192, 5.56),
        ("L014", dense(151_936, 5120, 25_600), 1024, 8192, 5.64),
        ("L009", dense(201_088, 2880, 4 * 2880), 1024, 8192, 7.38),
        ("L026", dense(200_064, 3072, 8192), 256, 2048, 1.83),
        ("L166", dense(152_064, 3584, 18_944), 256, 2048, 1.40),
        ("L201", dense(51_200, 2048, 8192), 256, 2048, 0.48),
        ("L150", dense(248_320, 5120, 17_408), 256, 2048, 2.22),
        # No chunked prefill: the forward pass over max_model_len tokens is the larger.
        ("L002", dense(128_256, 4096, 14_336), 256, 20_000, 2.07),
        ("L003", dense(128_256, 4096, 14_336), 256, 29_000, 2.99),
        ("L027", dense(151_936, 1536, 8960), 256, 32_768, 2.02),
        ("L007", dense(128_256, 4096, 14_336), 256, 8192, 1.26),
    ],
)
def test_activation_peaks_of_twelve_logs(log, shape, sequences, tokens, logged_gib):
    # Two constants for twelve models: the logs print two decimals, profiling differs by kernels.
    peak = activation_bytes(shape, StepLimits(sequences, tokens)) / GIB
    assert peak == pytest.approx(logged_gib, rel=0.07)


def test_limits_follow_the_engine_s_rule():
    # vLLM's arg_utils: 8,192 tokens and 1,024 sequences from 70 GiB up unless it is an A100.
    assert default_limits(load_gpu("h100")) == StepLimits(1024, 8192)
    assert default_limits(load_gpu("a100-80gb-sxm")) == StepLimits(256, 2048)
    assert default_limits(load_gpu("l4")) == StepLimits(256, 2048)


def test_the_engine_s_own_arithmetic(shared_data):
    """fraction * total - weights - activation - non-torch is the memory each log says is left."""
    checked = 0
    with open(shared_data / "engine_kv_logs.csv", newline="") as file:
        for row in csv.DictReader(file):
            parts = {
                name: re.search(rf"{name} (-?[\d.]+)", row["notes"])
                for name in ("activation", "non_torch")
            }
            known = ("weights_gib", "total_gpu_gib", "gpu_memory_utilization", "available_kv_gib")
            if not all(parts.values()) or not all(row[name] for name in known):
                continue
            weights, total, fraction, left = (float(row[name]) for name in known)
            budget = MemoryBudget(
                "engine",
                total * GIB,
                fraction,
                weights * GIB,
                activation_bytes=float(parts["activation"].group(1)) * GIB,
                non_torch_bytes=float(parts["non_torch"].group(1)) * GIB,
            )
            # Sizes are rounded to 0.01 GiB, and a fraction of two decimals may be too (0.89).
            rounding = 0.005 * total if len(row["gpu_memory_utilization"]) > 3 else 0.0
            assert budget.cache_bytes / GIB == pytest.approx(left, abs=0.02 + rounding), row["id"]
            checked += 1
    assert checked >= 12
