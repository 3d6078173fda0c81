"""What is known of the calibration a plan rests on: rows, held-out errors, coefficients."""

from typing import Any

from capmodel.calibration import Calibration

Row = dict[Any, Any]

_FOUR = ("c_step", "c_w", "c_kv", "c_f")
_ALL = "(all)"
_KNOWN = ("noise_floor_mape", "absent_splits", "residuals")


def calibration_card(calibration: Calibration, basis: str) -> dict[str, Any]:
    """The card of `calibration` as plain values.

    basis: the level that the plan takes, as `StepTime.basis` says it. Keys: rows, used_by,
    fitted_by (command), fitted_on (date), grade_card (split, estimator and METRICS),
    coefficients (four per engine and GPU, with standard_errors), terms (all of `basis`, those at
    a bound or untold by its rows marked). Units as in `Calibration.summary`.
    """
    levels: dict[tuple[str, str], list[Row]] = {}
    for row in calibration.summary.to_dict("records"):
        levels.setdefault((str(row["engine"]), str(row["gpu"])), []).append(row)
    known = calibration.evidence
    own = next((rows for level, rows in levels.items() if _words(level) == basis), [])
    return {
        "name": calibration.name,
        "basis": basis,
        "fitted_on": calibration.date or None,
        "fitted_by": calibration.command or None,
        "sources": list(calibration.sources),
        "rows": _rows(calibration),
        **{name: known[name] for name in _KNOWN if known.get(name)},
        "used_by": [
            {"engine": level[0], "gpu": level[1], "rows": int(rows[0]["rows"])}
            for level, rows in levels.items()
            if _ALL not in level
        ],
        "grade_card": [
            {"split": split, "estimator": estimator, **scores}
            for split, graded in calibration.scores.items()
            for estimator, scores in graded.items()
        ],
        "coefficients": [_coefficients(level, rows) for level, rows in levels.items()],
        "terms": [_term(row) for row in own],
    }


def _rows(calibration: Calibration) -> dict[str, Any]:
    used, aside = calibration.n_rows, calibration.evidence.get("set_aside")
    if aside is None:
        return {"used": used}
    return {"used": used, "read": used + sum(aside.values()), "set_aside": dict(aside)}


def _words(level: tuple[str, str]) -> str:
    """As `Calibration.step_time` words it."""
    return " on ".join(name for name in level if name != _ALL) or "all engines and GPUs pooled"


def _coefficients(level: tuple[str, str], rows: list[Row]) -> dict[str, Any]:
    own = {str(row["coefficient"]): row for row in rows}
    return {
        "engine": level[0],
        "gpu": level[1],
        "rows": int(rows[0]["rows"]),
        "mape": float(rows[0]["mape"]),
        "at_bound": [name for name, row in own.items() if row["at_bound"]],
        **{name: float(own[name]["value"]) for name in _FOUR},
        "standard_errors": {name: float(own[name]["standard_error"]) for name in _FOUR},
    }


def _term(row: Row) -> dict[str, Any]:
    return {
        "name": str(row["coefficient"]),
        "value": float(row["value"]),
        "standard_error": float(row["standard_error"]),
        "unit": str(row["unit"]),
        "at_bound": bool(row["at_bound"]),
        "identified": bool(row["identified"]),
    }
