"""A fitted estimator as plain values, as a calibration file holds it, and back."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from capmodel.curves import Curve, KernelCurves
from capmodel.estimators import Corrected, Roofline
from capmodel.operators import KINDS
from capmodel.pooling import SharedCorrection
from capmodel.regressor import COORDINATES, LocalCorrection, TrafficRegressor
from capmodel.roofline import NAMES, RooflineCoefficients, RooflineRegressor

Array = npt.NDArray[np.float64]


def estimator_to_dict(estimator: Corrected) -> dict[str, Any]:
    """Terms, coordinates, coefficients by level and corrections by engine and GPU."""
    roofline = estimator.physics.roofline.coefficients_
    shared = estimator.shared
    corrections = {} if shared is not None else estimator.correction.corrections_
    found: dict[str, Any] = {} if shared is None else {"shared": _shared_entry(shared)}
    if estimator.curves:
        found["curves"] = [_curves_entry(key, own) for key, own in estimator.curves.items()]
    return {
        "terms": list(NAMES),
        "coordinates": list(COORDINATES),
        "levels": [_level_entry(key, fit) for key, fit in roofline.items()],
        "corrections": [_correction_entry(key, own) for key, own in corrections.items()],
        **found,
    }


def of_this_design(content: dict[str, Any]) -> bool:
    """Whether values were fitted with the terms and coordinates that this capmodel has."""
    return content.get("terms") == list(NAMES) and content.get("coordinates") == list(COORDINATES)


def estimator_from_dict(content: dict[str, Any]) -> Corrected:
    """The estimator of `estimator_to_dict`. Raises KeyError, TypeError or ValueError."""
    roofline = RooflineRegressor()
    for entry in content["levels"]:
        roofline.coefficients_[tuple(map(str, entry["level"]))] = RooflineCoefficients(
            values=_numbers(entry["values"], len(NAMES)),
            standard_errors=tuple(
                float("nan") if e is None else float(e) for e in entry["standard_errors"]
            ),
            identified=tuple(bool(flag) for flag in entry["identified"]),
            n_rows=int(entry["rows"]), mape=float(entry["mape"]),
            condition_number=float(entry["condition_number"]),
            memory_bound_rows=int(entry["memory_bound_rows"]),
            compute_bound_rows=int(entry["compute_bound_rows"]),
        )  # fmt: skip
    if () not in roofline.coefficients_:
        raise ValueError("the pooled level is missing")
    correction = TrafficRegressor()
    for entry in content["corrections"]:
        landmarks = _landmarks(entry["landmarks"])
        weights = np.array(_numbers(entry["weights"], len(landmarks)))
        pair = (str(entry["engine"]), str(entry["gpu"]))
        low, high = _numbers(entry["range"], 2)
        correction.corrections_[pair] = LocalCorrection(
            landmarks, weights, int(entry["rows"]), low, high
        )
    shared = _shared_from(content["shared"]) if content.get("shared") is not None else None
    if shared is not None:
        for key in roofline.coefficients_:
            if len(key) == 2:
                correction.corrections_[key[0], key[1]] = shared.local(key[0], key[1])
    curves = {
        (str(entry["engine"]), str(entry["gpu"])): _curves_from(entry)
        for entry in content.get("curves", ())
    }
    return Corrected(
        physics=Roofline(roofline=roofline), correction=correction, shared=shared, curves=curves
    )


def _shared_from(entry: dict[str, Any]) -> SharedCorrection:
    landmarks = _landmarks(entry["landmarks"])
    names = [np.array(list(map(str, entry[name]))) for name in ("engines", "gpus", "versions")]
    if any(len(own) != len(landmarks) for own in names):
        raise ValueError("engines, gpus and versions do not go with the landmarks")
    weights = np.array(_numbers(entry["weights"], len(landmarks)))
    low, high = _numbers(entry["range"], 2)
    return SharedCorrection(landmarks, weights, names[0], names[1], names[2], low, high)


def _curves_from(entry: dict[str, Any]) -> KernelCurves:
    curves = {str(own["kind"]): _curve_from(own) for own in entry["kinds"]}
    low, high = _numbers(entry["range"], 2)
    scale = _numbers([entry["scale"]], 1)[0]
    return KernelCurves(curves, int(entry["rows"]), low, high, scale)


def _curve_from(entry: dict[str, Any]) -> Curve:
    kind = KINDS[str(entry["kind"])]
    if entry["coordinates"] != list(kind.coordinates):
        raise ValueError(f"coordinates of {entry['kind']} are not those of this capmodel")
    landmarks = _landmarks(entry["landmarks"], len(kind.coordinates))
    weights = np.array(_numbers(entry["weights"], len(landmarks)))
    return Curve(landmarks, weights, _numbers([entry["level"]], 1)[0])


def _landmarks(values: Any, width: int = len(COORDINATES)) -> Array:
    landmarks = np.array(values, dtype=float)
    if landmarks.ndim != 2 or landmarks.shape[1] != width:
        raise ValueError("landmarks do not have the coordinates' width")
    if not np.isfinite(landmarks).all():
        raise ValueError("landmarks are not all finite")
    return landmarks


def _numbers(values: Iterable[Any], n: int) -> tuple[float, ...]:
    found = tuple(float(value) for value in values)
    if len(found) != n or not np.isfinite(found).all():
        raise ValueError(f"expected {n} finite numbers, got {len(found)}")
    return found


def _level_entry(key: tuple[str, ...], fit: RooflineCoefficients) -> dict[str, Any]:
    errors = [None if np.isnan(error) else rounded(error) for error in fit.standard_errors]
    return {
        "level": list(key), "rows": fit.n_rows, "mape": rounded(fit.mape),
        "values": [rounded(value) for value in fit.values], "standard_errors": errors,
        "identified": list(fit.identified), "condition_number": rounded(fit.condition_number),
        "memory_bound_rows": fit.memory_bound_rows, "compute_bound_rows": fit.compute_bound_rows,
    }  # fmt: skip


def _correction_entry(key: tuple[str, str], own: LocalCorrection) -> dict[str, Any]:
    return {
        "engine": key[0], "gpu": key[1], "rows": own.n_rows,
        "range": [rounded(own.low), rounded(own.high)],
        **_expansion(own),
    }  # fmt: skip


def _shared_entry(own: SharedCorrection) -> dict[str, Any]:
    return {
        "range": [rounded(own.low), rounded(own.high)], "engines": own.engines.tolist(),
        "gpus": own.gpus.tolist(), "versions": own.versions.tolist(), **_expansion(own),
    }  # fmt: skip


def _curves_entry(key: tuple[str, str], own: KernelCurves) -> dict[str, Any]:
    return {
        "engine": key[0], "gpu": key[1], "rows": own.n_rows, "scale": rounded(own.scale),
        "range": [rounded(own.low), rounded(own.high)],
        "kinds": [
            {
                "kind": kind, "coordinates": list(KINDS[kind].coordinates),
                "level": rounded(curve.level), **_expansion(curve),
            }
            for kind, curve in own.curves.items()
        ],
    }  # fmt: skip


def _expansion(own: LocalCorrection | SharedCorrection | Curve) -> dict[str, Any]:
    return {
        "landmarks": [[round(float(v), 6) for v in row] for row in own.landmarks],
        "weights": [rounded(value) for value in own.weights],
    }


def rounded(value: float) -> float:
    """Eight significant digits: what a file keeps of a fitted number."""
    return float(f"{float(value):.8g}")
