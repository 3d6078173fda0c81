"""Fit and grade what a client sent."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from capmodel.calibration import fit
from capmodel.evaluation import (
    GradeCard,
    cross_validate,
    grade_predictions,
    grade_test,
)
from capmodel.service.errors import Refused, problem
from capmodel.service.named import calibration_of, noted, told
from capmodel.service.plain import plain
from capmodel.service.uploads import Uploaded, files_told, read_uploaded

Fields = Mapping[str, Any]

_ASIDE_TOLD = 200  # rows set aside that are listed; all are counted


def answer_fit(body: Fields) -> dict[str, Any]:
    """A calibration of the runs, with what it rests on."""
    with noted() as notes, told("runs"):
        uploaded = read_uploaded(body["runs"], body["most_rows"])
        used = _usable(uploaded, "runs")
        card = None
        if body["grade"]:
            card = cross_validate(
                used, estimators=["nearest", "roofline", "regressor"], seed=body["seed"], threads=1
            )
        calibration = fit(used, name=body["name"], command="POST /v1/fit", grade_card=card)
    return {
        "calibration_id": calibration.calibration_id,
        "rows": _rows(uploaded),
        "set_aside": _aside(uploaded),
        "files": files_told(uploaded),
        "coefficients": plain(calibration.summary.to_dict("records")),
        **_card(card, used, body["figures"]),
        "calibration": plain(calibration.to_dict()),
        "warnings": notes,
    }


def answer_grade(body: Fields) -> dict[str, Any]:
    """The grade card of the runs, of `test`, or of a given calibration."""
    if body["test"] is not None and body["calibration"] is not None:
        expected = "either this or a calibration"
        raise Refused(422, [problem("test", expected)])
    names = body["estimators"] or None
    with noted() as notes, told("runs"):
        uploaded = read_uploaded(body["runs"], body["most_rows"])
        graded = uploaded
        if body["calibration"] is not None:
            own = calibration_of(body["calibration"])
            used = _usable(uploaded, "runs")
            methods = list(names or ("roofline", "regressor"))
            if own is None or not set(methods) <= {"roofline", "regressor"}:
                expected = "roofline or regressor, which a calibration holds"
                raise Refused(422, [problem("estimators", expected)])
            card = grade_predictions(used, {name: own.predict(used, name) for name in methods})
        elif body["test"] is not None:
            graded = read_uploaded(body["test"], body["most_rows"], "test")
            used = _usable(graded, "test")
            card = grade_test(_usable(uploaded, "runs"), used, estimators=names)
        else:
            used = _usable(uploaded, "runs")
            card = cross_validate(
                used, splits=body["splits"] or None, estimators=names, seed=body["seed"], threads=1
            )
    return {
        "rows": _rows(graded),
        "set_aside": _aside(graded),
        "files": files_told(graded),
        **_card(card, used, body["figures"]),
        "warnings": notes,
    }


def _usable(uploaded: Uploaded, field: str) -> pd.DataFrame:
    screened = uploaded.screened
    if not len(screened.used):
        first = screened.aside.iloc[0]
        expected = "at least one row that no check sets aside"
        message = f"none of {uploaded.rows:,} rows can be used; {first['rule']}: {first['reason']}"
        raise Refused(422, [problem(field, expected, message)])
    return screened.used.reset_index(drop=True)


def _rows(uploaded: Uploaded) -> dict[str, Any]:
    return {
        "read": uploaded.rows,
        "used": len(uploaded.screened.used),
        "set_aside": uploaded.screened.counts,
    }


def _aside(uploaded: Uploaded) -> list[dict[str, Any]]:
    aside = uploaded.screened.aside.head(_ASIDE_TOLD)
    columns = [name for name in ("run_id", "model", "gpu", "engine", "batch_size", "context_len",
                                 "step_time_s", "rule", "reason") if name in aside]  # fmt: skip
    told: list[dict[str, Any]] = plain(aside[columns].to_dict("records"))
    return told


def _card(card: GradeCard | None, used: pd.DataFrame, figures: bool) -> dict[str, Any]:
    if card is None:
        return {"splits": {}, "absent_splits": {}, "noise_floor_mape": None, "figures": {}}
    return {
        "splits": plain(card.to_dict()),
        "absent_splits": dict(card.absent),
        "noise_floor_mape": plain(card.noise_floor_mape),
        "figures": card_figures(card, used) if figures else {},
    }


def card_figures(card: GradeCard, used: pd.DataFrame) -> dict[str, dict[str, str]]:
    """The grade card's figures: name -> SVG, caption, and the same in words."""
    from capmodel.report.figures import grade_picture, residual_picture

    rows = [{str(k): plain(v) for k, v in row.items()} for row in card.table.to_dict("records")]
    pictures = {"grades": grade_picture(rows, card.noise_floor_mape)}
    for split in ("config", "random", "test"):
        cell = card.cell(split, "regressor")
        if len(cell):
            residuals = {
                "measured_s": cell["step_time_s"].to_numpy(),
                "predicted_s": cell["predicted_s"].to_numpy(),
                "group": used["gpu"].iloc[cell["row"].to_numpy()].astype(str).to_list(),
            }
            pictures["residuals"] = residual_picture(residuals, card.noise_floor_mape)
            break
    return {
        name: {"svg": picture.svg, "caption": picture.caption, "alt": picture.alt}
        for name, picture in pictures.items()
        if picture is not None
    }
