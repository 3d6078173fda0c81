"""What a plan's dict must hold to be read, part by part: the first breach is named by its path."""

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

# A spec is a type, a check, [spec] for a list of such, (spec,) for "or null", a dict of keys
# (ending in "?" where they may be absent; further keys are let be), or Each(spec).
Spec = Any


class Each(dict[str, Any]):
    """A table whose every value is of the spec under "*"; of other specs under their own keys."""


def _positive(value: Any) -> str | None:
    return None if _is_number(value) and value > 0 else "a number above 0"


def _three(value: Any) -> str | None:
    known = isinstance(value, list) and len(value) == 3 and all(map(_is_number, value))
    return None if known and min(value) > 0 else "three numbers above 0: low, estimate, high"


def _day(value: Any) -> str | None:
    try:
        date.fromisoformat(value)
    except (TypeError, ValueError):
        return "a day such as 2026-12-31"
    return None


_ENDS = {"low": (float,), "estimate": (float,), "high": (float,)}
_PARTS = {"gpu": str, "tp": int, "weight_dtype": str, "kv_dtype": str}
_WORK = Each({"*": (float,), "batch": float, "utilisation": float, "e2e_mean_s": (float,)})
_SPLIT = {"prefill_replicas?": (int,), "decode_replicas?": (int,)}
_OPTION = {
    **_PARTS, **_SPLIT, "replicas": int, "n_gpus": int, "limited_by": str,
    "capacity_per_replica": float, "estimate": _WORK,
}  # fmt: skip
_REJECTED = {
    **_PARTS, "stage": str, "reason": str, "ttft_p95_s": (float,), "tpot_p95_s": (float,),
    "e2e_p95_s?": (float,),
}  # fmt: skip
_PROMISES = ("ttft_s", "tpot_s", "e2e_s")
_FLAT = Each({"*": None})

PLAN: dict[str, Spec] = {
    "package_version": str,
    "seed": int,
    "title?": (str,),
    "date?": (_day,),
    "command?": (str,),
    "inputs?": [{"name": str, "sha256": str}],
    "feasible": bool,
    "message": str,
    "warnings": [str],
    "model": {"name": str},
    "workload": {
        "source": str, "rate": (float,), "mean_rate": (float,), "concurrency": (float,),
        "input_mean": float, "output_mean": float,
    },
    "slo": {**dict.fromkeys(_PROMISES, (_positive,)), "percentile": float},
    "engine?": (str,),
    "simulated": bool,
    "disaggregate?": bool,
    "closest": (_REJECTED,),
    "alternatives": [{**_OPTION, "dollars_per_hour": float}],
    "tried": [
        {
            **_PARTS, **_SPLIT, "replicas": int, "dollars_per_hour": float, "ttft_s": (float,),
            "tpot_s": (float,), "e2e_s?": (float,), "missed": [str], "tries": int,
        }
    ],
    "rejected": [_REJECTED],
    "pareto": [
        {
            **_PARTS, **_SPLIT, "replicas": int, "dollars_per_hour": float, "e2e_mean_s": (float,),
            "ttft_p95_s": (float,), "tpot_p95_s": (float,), "e2e_p95_s?": (float,),
        }
    ],
    "what_ifs": [
        {
            "name": str, "note": str, "replicas": (int,), "n_gpus": (int,),
            "dollars_per_hour": (float,), "fits": (float,), "ttft_p95_s": (float,),
            "tpot_p95_s": (float,),
        }
    ],
    "sensitivities": [
        {
            "name": str, "low_input": str, "high_input": str, "low": float, "high": float,
            "base": float, "low_gpus?": (int,), "high_gpus?": (int,),
        }
    ],
    "sensitivities_left_out?": [{"name": str, "reason": str}],
    "not_modelled": [str],
}  # fmt: skip
# Beside, where a fleet was chosen.
CHOSEN: dict[str, Spec] = {
    "recommendation": {
        **_OPTION, "calibration_id": (str,), "replicas_low": int, "replicas_high": int,
        "dollars_per_hour": dict.fromkeys(_ENDS, float),
        "price_per_gpu_hour": {**dict.fromkeys(_ENDS, float), "source": str, "given": bool},
        "step_ruled_by": str, "mean_load": _WORK,
        "spare": {
            "replicas": int, "dollars_per_hour": float, "one_fails": (_WORK,),
            "keeps_promises": bool,
        },
    },
    "measured_instead?": (
        {
            **_OPTION, "dollars_per_hour": float, "covered": str, "simulated": bool,
            "ttft_p95_s": (float,), "tpot_p95_s": (float,),
        },
    ),
    "latency": Each({"*": _ENDS, "from": str}),
    "simulation": ({"n": int, "replicas_simulated": int},),
    "costs": Each({"*": (float,), "per_million_output": (float,), "per_million_input": (float,)}),
    "break_even": [
        {"api_price": float, "requests_per_s": float, "tokens_per_day": float, "reachable": bool}
    ],
    "energy": (_FLAT,),
    "memory": Each({"*": (float,), "mode": str, "capacity_bytes": _positive}),
    "clients": {
        "max_num_seqs": int, "prompts_max_num_seqs?": (int,), "clients": int, "limited_by": str,
        "fits": Each({"*": float}),
        "risks": [{"sequences": int, "overflow": float}],
    },
    "steps": [
        {
            "batch": _positive, "step_s": _three, "tokens_per_s": _three, "fits": bool,
            "cache_share": float, "prefill_share": float,
        }
    ],
    "crossover": (
        {
            "pool_full": (float,), "cache_longest_from": (float,), "half_gain": (float,),
            "ceiling": str,
        },
    ),
    "fits?": [{"context_len": _positive, "max_concurrency": int}],
    "calibration": {
        "id": (str,), "low_factor": float, "high_factor": float, "basis?": (str,),
        "sources?": [str], "noise_floor_mape?": (float,), "absent_splits?": Each({"*": str}),
        "rows?": {"used": int, "read?": (int,), "set_aside?": Each({"*": int})},
        "used_by?": [{"engine": str, "gpu": str, "rows": int}],
        "grade_card?": [
            {
                "split": str, "estimator": str, "n": int,
                **dict.fromkeys(
                    ("mape", "median_ape", "p90_ape", "bias", "r2", "r2_log", "coverage_90"),
                    (float,),
                ),
            }
        ],
        "coefficients?": [
            {
                "engine": str, "gpu": str, "rows": int, "mape": (float,), "at_bound?": [str],
                **dict.fromkeys(("c_step", "c_w", "c_kv", "c_f"), (float,)),
                "standard_errors?": Each({"*": (float,)}),
            }
        ],
        "terms?": [
            {
                "name": str, "value": float, "standard_error": (float,), "unit": str,
                "at_bound": bool, "identified": bool,
            }
        ],
        "residuals?": (
            {"measured_s": [_positive], "predicted_s": [_positive], "group?": ([str],)},
        ),
    },
    "assumptions": [dict.fromkeys(("what", "value", "kind", "source"), str)],
}  # fmt: skip


def breach(value: Any, spec: Spec, path: str = "") -> str | None:
    """What is wrong with `value`, as `'recommendation.gpu is missing'`; None where nothing is."""
    if isinstance(spec, tuple):
        return None if value is None else breach(value, spec[0], path)
    if isinstance(spec, list):
        if not isinstance(value, Sequence) or isinstance(value, str):
            return _said(path, value, "a list")
        found = (breach(item, spec[0], f"{path}[{i}]") for i, item in enumerate(value))
        return next((wrong for wrong in found if wrong), None)
    if isinstance(spec, Each):
        keys = dict.fromkeys([*(key for key in spec if key != "*"), *_keys(value)])
        return _table(value, {key: spec.get(key, spec["*"]) for key in keys}, path)
    if isinstance(spec, dict):
        return _table(value, spec, path)
    if spec is None:
        return _said(path, value, "a plain value") if isinstance(value, dict | list) else None
    expected = _WORDS[spec](value) if spec in _WORDS else spec(value)
    return None if expected is None else _said(path, value, expected)


def _table(value: Any, spec: Mapping[str, Spec], path: str) -> str | None:
    if not isinstance(value, Mapping):
        return _said(path, value, "a table")
    for name, inner in spec.items():
        key = name.removesuffix("?")
        where = f"{path}.{key}" if path else key
        if key not in value:
            if name.endswith("?"):
                continue
            return f"{where} is missing"
        wrong = breach(value[key], inner, where)
        if wrong:
            return wrong
    return None


def _keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, Mapping) else []


def _said(path: str, value: Any, expected: str) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
    return f"{path} is {shown}, but expected {expected}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _finite(value)


def _finite(value: float) -> bool:
    """Whether a float holds it: integers of JSON have no end."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


_WORDS: dict[Any, Any] = {
    str: lambda value: None if isinstance(value, str) else "text",
    bool: lambda value: None if isinstance(value, bool) else "true or false",
    int: lambda value: None if _is_number(value) else "a number",
    float: lambda value: None if _is_number(value) else "a number",
}
