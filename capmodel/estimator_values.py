"""A fitted estimator as plain values, as a calibration file holds it, and back."""

from typing import Any

import numpy as np
import numpy.typing as npt

from capmodel.arguments import flag, number
from capmodel.curves import Curve, KernelCurves
from capmodel.estimators import Corrected, Roofline
from capmodel.filed import (
    FIGURE,
    LOG_FACTOR,
    NONNEGATIVE,
    count,
    figure,
    figures,
    listed,
    span_of,
    table,
    text,
    texts,
    unique,
)
from capmodel.operators import KINDS
from capmodel.pooling import SharedCorrection
from capmodel.regressor import COORDINATES, LocalCorrection, Texts, TrafficRegressor
from capmodel.roofline import NAMES, RooflineCoefficients, RooflineRegressor
from capmodel.words import shown

Array = npt.NDArray[np.float64]


def estimator_to_dict(estimator: Corrected) -> dict[str, Any]:
    """Terms, coordinates, coefficients by level and corrections by engine and GPU."""
    roofline = estimator.physics.roofline.coefficients_
    shared = estimator.shared
    corrections = estimator.correction.corrections_
    if shared is not None:
        corrections = {pair: corrections[pair] for pair in sorted(estimator.apart)}
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
    levels = unique("level", map(_level_from, listed("levels", content["levels"])))
    if () not in levels:
        raise ValueError("the pooled level is missing")
    roofline = RooflineRegressor(coefficients_=levels)
    correction = TrafficRegressor(
        corrections_=unique(
            "correction of", map(_correction_from, listed("corrections", content["corrections"]))
        )
    )
    shared = _shared_from(content["shared"]) if content.get("shared") is not None else None
    apart: frozenset[tuple[str, str]] = frozenset()
    if shared is not None:
        apart = frozenset(correction.corrections_)
        for key in roofline.coefficients_:
            if len(key) == 2 and key not in apart:
                correction.corrections_[key[0], key[1]] = shared.local(key[0], key[1])
    curves = unique(
        "curves of",
        ((_pair(entry), _curves_from(entry))
         for entry in listed("curves", content.get("curves", []))),
    )  # fmt: skip
    return Corrected(
        physics=Roofline(roofline=roofline), correction=correction, shared=shared, curves=curves,
        apart=apart,
    )  # fmt: skip


def _pair(entry: dict[str, Any]) -> tuple[str, str]:
    return text("engine", entry["engine"]), text("gpu", entry["gpu"])


def _level_from(entry: dict[str, Any]) -> tuple[tuple[str, ...], RooflineCoefficients]:
    level, n = texts("level", entry["level"]), len(NAMES)
    if len(level) > 2:
        raise ValueError(f"Got level={shown(level)}, but expected an engine and a GPU at most")
    errors = listed("standard_errors", entry["standard_errors"], n)
    flags = listed("identified", entry["identified"], n)
    return level, RooflineCoefficients(
        values=figures("values", entry["values"], n, NONNEGATIVE),
        standard_errors=tuple(
            float("nan") if e is None else figure("standard_errors", e) for e in errors
        ),
        identified=tuple(flag("identified", one) for one in flags),
        n_rows=count("rows", entry["rows"]), mape=figure("mape", entry["mape"]),
        condition_number=figure("condition_number", entry["condition_number"]),
        memory_bound_rows=count("memory_bound_rows", entry["memory_bound_rows"]),
        compute_bound_rows=count("compute_bound_rows", entry["compute_bound_rows"]),
    )  # fmt: skip


def _correction_from(entry: dict[str, Any]) -> tuple[tuple[str, str], LocalCorrection]:
    landmarks, weights = _expansion_from(entry, len(COORDINATES))
    (models,) = _of_landmarks(entry, ("models",), len(landmarks))
    low, high = span_of("range", entry["range"], LOG_FACTOR)
    return _pair(entry), LocalCorrection(
        landmarks, weights, count("rows", entry["rows"]), low, high, models
    )


def _shared_from(entry: dict[str, Any]) -> SharedCorrection:
    landmarks, weights = _expansion_from(entry, len(COORDINATES))
    engines, gpus, versions = _of_landmarks(entry, ("engines", "gpus", "versions"), len(landmarks))
    low, high = span_of("range", entry["range"], LOG_FACTOR)
    return SharedCorrection(landmarks, weights, engines, gpus, versions, low, high)


def _of_landmarks(entry: dict[str, Any], names: tuple[str, ...], n: int) -> list[Texts]:
    """Texts of each of `n` landmarks, by name."""
    found = [np.array(texts(name, entry[name]), dtype=str) for name in names]
    if any(len(own) != n for own in found):
        raise ValueError(f"{', '.join(names)} do not go with the landmarks")
    return found


def _curves_from(entry: dict[str, Any]) -> KernelCurves:
    curves = unique(
        "kind", ((str(own["kind"]), _curve_from(own)) for own in listed("kinds", entry["kinds"]))
    )
    low, high = span_of("range", entry["range"], LOG_FACTOR)
    scale = number("scale", entry["scale"], NONNEGATIVE)
    return KernelCurves(curves, count("rows", entry["rows"]), low, high, scale)


def _curve_from(entry: dict[str, Any]) -> Curve:
    kind = KINDS[str(entry["kind"])]
    if entry["coordinates"] != list(kind.coordinates):
        raise ValueError(f"coordinates of {entry['kind']} are not those of this capmodel")
    landmarks, weights = _expansion_from(entry, len(kind.coordinates))
    return Curve(landmarks, weights, float(number("level", entry["level"], FIGURE)))


def _expansion_from(entry: dict[str, Any], width: int) -> tuple[Array, Array]:
    """Landmarks (m, width) and weights (m,)."""
    landmarks = table("landmarks", entry["landmarks"], width)
    return landmarks, np.array(figures("weights", entry["weights"], len(landmarks)))


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
        "range": [rounded(own.low), rounded(own.high)], "models": own.models.tolist(),
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
