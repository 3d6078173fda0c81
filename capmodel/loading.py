"""Calibrations read from the files that `Calibration.save` writes; nothing in them is run."""

import json
from pathlib import Path
from typing import Any

from capmodel import filed
from capmodel.calibration import FORMAT, VERSION, Calibration, CalibrationError, file_path
from capmodel.coverage import Coverage
from capmodel.estimator_values import estimator_from_dict, of_this_design
from capmodel.intervals import Intervals
from capmodel.words import one_line, shown


def load_calibration(path: str | Path) -> Calibration:
    """Read the calibration that `Calibration.save` wrote to `path`.

    Raises CalibrationError naming what is wrong.
    """
    where, file = one_line(path), file_path(path)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CalibrationError(f"calibration {where} is not there; check the name") from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise CalibrationError(f"calibration {where} cannot be read: {one_line(error)}") from error
    except json.JSONDecodeError as error:
        raise CalibrationError(
            f"calibration {where} is not whole JSON (line {error.lineno}): fit it again"
        ) from error
    return calibration_from(content, where)


def calibration_from(content: Any, where: str = "calibration") -> Calibration:
    """A calibration from the content of its file. Raises CalibrationError."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CalibrationError(f"{where} is no capmodel calibration (format is not {FORMAT!r})")
    version = content.get("version")
    if version != VERSION or isinstance(version, bool):
        raise CalibrationError(
            f"{where} has version {shown(version)}, but this capmodel reads version {VERSION}; "
            "install the capmodel that wrote it, or fit it again"
        )
    if not of_this_design(content):
        raise CalibrationError(
            f"{where} was fitted with other terms than this capmodel has; fit it again"
        )
    try:
        return _from_content(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CalibrationError(
            f"{where} lacks a part or holds a wrong one: {shown(error, 300)}"
        ) from error


def _from_content(content: dict[str, Any]) -> Calibration:
    intervals = content["intervals"]
    return Calibration(
        name=filed.text("name", content["name"]),
        estimator=estimator_from_dict(content),
        n_rows=filed.count("rows", content["rows"]),
        sources=filed.texts("sources", content["sources"]),
        command=filed.text("command", content["command"]),
        date=filed.text("date", content.get("date", "")),
        coverage=filed.unique(
            "coverage of",
            (((filed.text("engine", entry["engine"]), filed.text("gpu", entry["gpu"])),
              Coverage.from_dict(entry))
             for entry in filed.listed("coverage", content["coverage"])),
        ),
        intervals=None if intervals is None else Intervals.from_dict(intervals),
        scores=filed.mapped("scores", content.get("scores", {})),
        evidence=filed.mapped("evidence", content.get("evidence", {})),
    )  # fmt: skip
