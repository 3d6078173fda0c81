"""Plans for the tests: one as `capmodel plan` makes it, and variations that are awkward to set."""

import copy
import json
from functools import cache
from typing import Any

import numpy as np
from summaries import summary

import capmodel as cm


@cache
def _made() -> str:
    found = cm.plan(
        "llama-3-70b", ["h100", "h200"], rate=12.0, input_len=2000, output_len=300, cv=1.3,
        tp=[1, 2, 4], weight_dtype=["bf16", "fp8"], slo_ttft_p95=2.0,
        slo_tpot_p95=0.05, date="2026-03-01",
    )  # fmt: skip
    return json.dumps(found.to_dict(), allow_nan=False)


def plan() -> dict[str, Any]:
    """A few replicas of llama-3-70b, fleets that would do too, some that do not fit."""
    made: dict[str, Any] = json.loads(_made())
    return copy.deepcopy(made)


def complete() -> dict[str, Any]:
    """With all a plan may carry beside: command, inputs, requests by context, calibration card."""
    card = {key: value for key, value in summary().items() if key in _CARD}
    made = plan()
    return {
        **made,
        "command": "capmodel plan --model llama-3-70b --gpu h100 --gpu h200 --rate 12",
        "inputs": [{"name": "conv.csv", "sha256": "ab" * 32}],
        "calibration": {**made["calibration"], **card, "residuals": _residuals()},
    }


def _residuals() -> dict[str, Any]:
    """300 rows that are 5 % off at random, three engines."""
    rng = np.random.default_rng(3)
    measured = np.exp(rng.normal(-4, 1, 300))
    predicted = measured * np.exp(rng.normal(0, 0.05, 300))
    return {
        "measured_s": measured.tolist(),
        "predicted_s": predicted.tolist(),
        "group": ["vllm", "trt-llm", "llama.cpp"] * 100,
    }


_CARD = {"rows", "noise_floor_mape", "absent_splits"}


def long_names() -> dict[str, Any]:
    """A model and a GPU whose names do not fit a line, and reasons that do not fit a cell."""
    made = plan()
    unbroken, many = "accelerator" * 12, "an-organisation/A_Very_Long_Name-405B-Instruct " * 3
    made["model"]["name"] = many + unbroken
    made["warnings"] = [many * 5, unbroken]
    for row in (made["recommendation"], *made["alternatives"], *made["pareto"], *made["tried"]):
        row["gpu"] = unbroken
    for row in made["rejected"]:
        row |= {"gpu": unbroken, "reason": many * 3, "stage": unbroken}
    made["sensitivities"][0]["name"] = "an input whose name is longer than most"
    made["what_ifs"][0]["note"] = many * 4
    return made


def forty() -> dict[str, Any]:
    """Forty alternatives, forty set aside; of its calibration the bare interval."""
    made = _with_bare_card()
    made["alternatives"] = [
        {
            **made["alternatives"][i % len(made["alternatives"])],
            "gpu": f"gpu-{i}",
            "dollars_per_hour": 20.0 + i,
        }
        for i in range(40)
    ]
    made["rejected"] = [{**made["rejected"][0], "gpu": f"old-{i}"} for i in range(40)]
    return made


def _with_bare_card() -> dict[str, Any]:
    """Without the calibration's tables and figures, which `complete` and `long_names` have."""
    made = plan()
    kept = ("id", "low_factor", "high_factor", "basis", "name", "sources")
    made["calibration"] = {key: made["calibration"][key] for key in kept}
    return made


def single() -> dict[str, Any]:
    """One candidate, no promise, nothing simulated, no energy, no interval."""
    made = plan()
    latency = {
        key: dict.fromkeys(("low", "estimate", "high"), figures["estimate"])
        for key, figures in made["latency"].items()
        if key in ("ttft_mean_s", "ttft_p95_s", "tpot_mean_s", "tpot_p95_s", "e2e_mean_s")
    }
    empty = ("alternatives", "tried", "rejected", "pareto", "what_ifs", "sensitivities")
    return {
        **made,
        **{key: [] for key in (*empty, "warnings", "break_even", "not_modelled")},
        "slo": {"ttft_s": None, "tpot_s": None, "e2e_s": None, "percentile": 95.0},
        "latency": {"from": "steady-state estimate", **latency},
        "simulation": None,
        "energy": None,
        "calibration": {"id": None, "low_factor": 1.0, "high_factor": 1.0},
    }


def infeasible() -> dict[str, Any]:
    """Nothing keeps the promises; the closest misses one, and carries its calibration."""
    made = complete()
    closest = {
        **made["rejected"][0],
        "stage": "slo",
        "reason": "TPOT p95 7.3 ms with hardly any load, promised 1.0 ms",
        "ttft_p95_s": 0.0654,
        "tpot_p95_s": 0.00729,
    }
    kept = {key: made[key] for key in _ALWAYS}
    return {
        **kept,
        "feasible": False,
        "message": "no candidate keeps the promises; the closest: TPOT p95 7.3 ms",
        "recommendation": None,
        "closest": closest,
        "alternatives": [],
        "tried": [],
        "rejected": [closest, *made["rejected"]],
        "pareto": [],
        "what_ifs": [],
        "sensitivities": [],
    }


_ALWAYS = (
    *("schema_version", "kind", "package_version", "seed", "warnings", "model", "workload"),
    *("slo", "simulated", "not_modelled", "calibration"),
)


def non_latin() -> dict[str, Any]:
    """Titles and names in scripts the text font lacks, and markup of Typst and HTML."""
    made = _with_bare_card()
    made["model"]["name"] = "通义千问-72b"
    return {
        **made,
        "title": "容量計画 · خطة السعة · План ёмкости 🚀 <script>alert(1)</script> #panic() $x$",
        "warnings": ['#import "x.typ"', "<img src=x>", "a\x00b\ud800c"],
        "not_modelled": ["*bold* _emph_ @ref // comment"],
    }
