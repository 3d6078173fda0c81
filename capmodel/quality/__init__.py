"""Rows that cannot be true: named checks, each with a threshold, a reason and a test.

A row is set aside or flagged, never dropped. A row that several checks set aside counts under
the first of `capmodel.quality.checks.CHECKS`.
"""

from capmodel.quality.checks import check_runs, split_aside
from capmodel.quality.glosses import GLOSSES, gloss
from capmodel.quality.intake import Intake, take_in
from capmodel.quality.physical import check_units, physical_floor
from capmodel.quality.repeats import noise_floor_mape, repeat_group
from capmodel.quality.screening import Screened, screen_runs
from capmodel.quality.thresholds import FLAG, SET_ASIDE, Thresholds

__all__ = [
    "FLAG",
    "GLOSSES",
    "SET_ASIDE",
    "Intake",
    "Screened",
    "Thresholds",
    "check_runs",
    "check_units",
    "gloss",
    "noise_floor_mape",
    "physical_floor",
    "repeat_group",
    "screen_runs",
    "split_aside",
    "take_in",
]
