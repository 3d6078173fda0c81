"""Run summaries for the tests: one plausible, and variations that are awkward to lay out."""

from typing import Any

_SPLITS = {
    "random": (0.031, 0.048),
    "config": (0.038, 0.052),
    "deployment": (0.071, 0.082),
    "model": (0.084, 0.079),
    "gpu": (0.182, 0.141),
}


def summary() -> dict[str, Any]:
    """A 70B model with int4 weights on one 80 GB GPU, swept over batch at two contexts.

    Terms in seconds from rounded rates: 35.3 GB of weights and 327,680 bytes a token at 2.6 TB/s,
    2 x 69.5e9 FLOP a token at 500 TFLOP/s, 1.2 ms of fixed work.
    """
    sweep = [_step(batch, context) for context in (4096, 32768) for batch in _BATCHES]
    return {
        "title": "Capacity plan: llama-3-70b on h100-80gb",
        "date": None,
        "package_version": "0.1.0",
        "calibration_id": "argonne-2024:vllm/h100-80gb:9c41f2",
        "command": "capmodel run argonne.csv --out reports --seed 0",
        "synthetic": False,
        "inputs": [{"name": "argonne.csv", "sha256": "3f" * 32}],
        "rows": {
            "read": 4286,
            "used": 3942,
            "set_aside": {"below_floor": 13, "over_committed": 101, "warm_up": 230},
        },
        "used_by": [
            {"engine": "vllm", "gpu": "a100-40gb", "rows": 800},
            {"engine": "vllm", "gpu": "h100-80gb", "rows": 712},
            {"engine": "llama.cpp", "gpu": "mi250", "rows": 310},
        ],
        "noise_floor_mape": 0.0098,
        "deployment": {
            "model": "llama-3-70b",
            "gpu": "h100-80gb",
            "engine": "vllm",
            "tp": 1,
            "weight_dtype": "int4",
            "kv_dtype": "bf16",
            "chosen_because": "The pair of model and GPU with the most rows among those used.",
        },
        "memory": {
            "mode": "nameplate",
            "memory_fraction": 0.92,
            "capacity_bytes": 73_600_000_000,
            "weight_bytes": 35_275_000_000,
            "kv_bytes_per_token": 327_680,
            "reserve_bytes": None,
        },
        "fits": [
            {"context_len": 4096, "kv_bytes_per_request": 1_342_177_280, "max_concurrency": 28},
            {"context_len": 32768, "kv_bytes_per_request": 10_737_418_240, "max_concurrency": 3},
        ],
        "sweep": sweep,
        "grade_card": [
            _grade(split, estimator, value)
            for split, (regressor, roofline) in _SPLITS.items()
            for estimator, value in (
                ("raw_linear", 1.9),
                ("raw_boosting", 3 * regressor),
                ("nearest", 4 * regressor),
                ("roofline", roofline),
                ("regressor", regressor),
            )
        ],
        "absent_splits": {},
        "coefficients": [
            _coefficients("vllm", "a100-40gb", 800),
            _coefficients("vllm", "h100-80gb", 712, ["c_f"]),
            _coefficients("llama.cpp", "mi250", 310),
        ],
        "not_modelled": [
            "Speculative decoding: a step that emits more than one token.",
            "Shared prefixes: every request's cache is counted whole.",
        ],
    }


_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def _step(batch: int, context: int) -> dict[str, Any]:
    terms = {
        "weights": 35.3e9 / 2.6e12,
        "kv": batch * context * 327_680 / 2.6e12,
        "compute": 2 * 69.5e9 * batch / 500e12,
        "fixed": 1.2e-3,
        "communication": 0.0,
        "prefill": 0.0,
    }
    step = sum(terms.values())
    return {
        "batch_size": batch,
        "context_len": context,
        "step_time_s": step,
        "low_s": 0.91 * step,
        "high_s": 1.12 * step,
        "tokens_per_s": batch / step,
        "binding": max(terms, key=lambda name: terms[name]),
        "fits": batch <= (28 if context == 4096 else 3),
        "terms": terms,
    }


def _grade(split: str, estimator: str, mape: float) -> dict[str, Any]:
    return {
        "split": split,
        "estimator": estimator,
        "mape": mape,
        "median_ape": 0.7 * mape,
        "p90_ape": 2.1 * mape,
        "bias": -0.1 * mape,
        "r2": 1 - mape**2,
        "r2_log": 1 - 0.5 * mape**2,
        "coverage_90": 0.903 if estimator in ("roofline", "regressor") else None,
        "n": 3942,
    }


def _coefficients(
    engine: str, gpu: str, rows: int, at_bound: list[str] | None = None
) -> dict[str, Any]:
    return {
        "engine": engine,
        "gpu": gpu,
        "rows": rows,
        "c_step": 14.2e-6,
        "c_w": 1.31,
        "c_kv": 1.52,
        "c_f": 0.0 if at_bound else 1.9,
        "mape": 0.047,
        "standard_errors": {"c_step": 0.8e-6, "c_w": 0.04, "c_kv": 0.11, "c_f": None},
        "at_bound": at_bound or [],
    }


def bare() -> dict[str, Any]:
    """Everything that may be empty is empty."""
    return {
        **summary(),
        "inputs": [],
        "rows": {"read": 0, "used": 0, "set_aside": {}},
        "used_by": [],
        "noise_floor_mape": None,
        "fits": [],
        "sweep": [],
        "grade_card": [],
        "absent_splits": {"gpu": "only one GPU among the rows", "model": "only one model"},
        "coefficients": [],
        "not_modelled": [],
        "synthetic": True,
    }


def crowded() -> dict[str, Any]:
    """Forty engine-GPU pairs and names longer than a line."""
    long = "an-organisation-with-a-long-name/A_Model_Name_That_Never_Seems_To_End_405B_Instruct_v2"
    unbroken = "x" * 120
    pairs = [
        (f"engine-number-{i % 5}-nightly", f"accelerator-{i}-of-forty-pcie-80gb") for i in range(40)
    ]
    plain = summary()
    return {
        **plain,
        "title": f"Capacity plan: {long} on {unbroken}",
        "command": f"capmodel run {'runs/' * 30}{unbroken}.csv --out {unbroken}",
        "deployment": {**plain["deployment"], "model": long, "gpu": unbroken},
        "inputs": [{"name": f"{unbroken}-{i}.csv", "sha256": f"{i:064x}"} for i in range(5)],
        "used_by": [{"engine": e, "gpu": g, "rows": 100} for e, g in pairs],
        "coefficients": [_coefficients(e, g, 100, ["c_step", "c_kv"]) for e, g in pairs],
        "rows": {
            "read": 9,
            "used": 9,
            "set_aside": {unbroken: 1, **{f"rule_{i}": i for i in range(30)}},
        },
        "not_modelled": [unbroken, long * 4],
    }


def infeasible() -> dict[str, Any]:
    """Nothing fits at any context or batch, and no interval is known."""
    plain = summary()
    return {
        **plain,
        "fits": [{**row, "max_concurrency": 0} for row in plain["fits"]],
        "sweep": [{**row, "fits": False, "low_s": None, "high_s": None} for row in plain["sweep"]],
    }


def non_latin() -> dict[str, Any]:
    """Chinese, Arabic, Greek, an emoji, and strings that are markup in Typst and HTML."""
    plain = summary()
    return {
        **plain,
        "title": "容量計画 · سعة · Χωρητικότητα · Ёмкость 🚀 <b>&amp;</b> *#panic()* $x$ _y_ @z",
        "date": "2026-03-01",
        "deployment": {**plain["deployment"], "model": "通义千问-72b", "gpu": '#eval("1")'},
        "not_modelled": ['#import "x.typ"', "```", "\\", "a\x00b\ud800c", "line one\nline two"],
    }
