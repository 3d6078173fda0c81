"""Intervals widen with the distance from measured rows, and say from which."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import capmodel as cm
from capmodel.bands import PER_BATCH, PER_CONTEXT, Bands, Reach
from capmodel.calibration import Calibration
from capmodel.coverage import Coverage, coverage_of, joined
from capmodel.datasets import make_runs
from capmodel.evaluation import used_rows
from capmodel.prediction import shipped_calibrations

NARROW, MODEL, GPU = (
    tuple((level, -half * level, half * level) for level in (0.5, 0.9)) for half in (0.1, 0.2, 0.5)
)
OWN, ROWS = Reach((1, 8), (512, 2048)), Reach((1, 64), (128, 8192))
BANDS = Bands(NARROW, MODEL, GPU, OWN, ROWS)


def width(bands: Bands, batch: float, context_len: float) -> float:
    """Log of the upper factor of one step."""
    found = bands.factors(0.9, np.array([batch]), np.array([context_len]))
    assert found is not None
    return float(np.log(found[1][0]))


def test_known_steps_are_narrow_and_others_as_new_models() -> None:
    assert width(BANDS, 8, 2048) == pytest.approx(0.09)
    assert width(BANDS, 16, 2048) == width(BANDS, 8, 8192) == pytest.approx(0.18)
    assert width(replace(BANDS, own=None), 8, 2048) == pytest.approx(0.18)
    assert width(replace(BANDS, own=None, all_rows=None), 8, 2048) == pytest.approx(0.45)


@pytest.mark.parametrize(
    ("step", "stretch"),
    [
        ((128, 2048), 1 + PER_BATCH),
        ((0.5, 2048), 1 + PER_BATCH),
        ((8, 16384), 1 + PER_CONTEXT),
        ((8, 64), 1 + PER_CONTEXT),
        ((512, 8 * 16384), 1 + 3 * PER_BATCH + 4 * PER_CONTEXT),
    ],
)
def test_doublings_beyond_all_rows_add_up(step: tuple[float, float], stretch: float) -> None:
    assert width(BANDS, *step) == pytest.approx(0.18 * stretch)


def test_ranges_without_an_end_are_left_by_nothing(recwarn: pytest.WarningsRecorder) -> None:
    everything = Reach((0.0, np.inf), (0.0, np.inf))
    assert not np.any(everything.doublings(np.array([1e-3, 1e12]), np.array([1.0, 1e12])))
    assert not recwarn.list


def test_what_no_held_out_rows_tell_is_no_narrower() -> None:
    untold = replace(BANDS, new_model=())
    assert width(untold, 8, 2048) == pytest.approx(0.09)
    assert width(untold, 512, 2048) > width(untold, 128, 2048) > width(untold, 16, 2048) > 0.18
    lucky = replace(BANDS, new_model=tuple((level, 0.0, 0.0) for level in (0.5, 0.9)))
    assert width(lucky, 16, 2048) == pytest.approx(0.09)
    assert Bands((), (), (), OWN, ROWS).factors(0.9, np.ones(1), np.ones(1)) is None


def test_beyond_the_levels_kept_bounds_go_on_widening() -> None:
    """A step of 99 % is no step of 95 %: misses fall with the square of a bound."""
    found = [BANDS.nominal(level) for level in (0.5, 0.9, 0.95, 0.99, 0.9999, 1 - 1e-15)]
    upper = np.log([high for _, high in found if high])
    assert (np.diff(upper) > 0).all()
    assert upper[3] == pytest.approx(upper[1] * np.sqrt(0.1 / 0.01))


@pytest.mark.parametrize("ends", [(-0.1, 0.3), (0.05, 0.3), (-0.3, -0.05)])
def test_a_farther_step_has_no_bound_inside_a_nearer_one(ends: tuple[float, float]) -> None:
    """Also where rows held out were all faster, or all slower, than predicted."""
    skewed = replace(BANDS, known=((0.9, *ends),), new_model=((0.9, *ends),))
    batch, context = np.meshgrid([8, 16, 64, 128, 1e6, 1e12], [512, 2048, 8192, 16384, 1e12])
    found = skewed.factors(0.9, batch, context)
    assert found is not None
    low, high = found
    assert np.isfinite([low, high]).all()
    for axis in (0, 1):
        assert (np.diff(low, axis=axis)[:, 1:] <= 0).all()
        assert (np.diff(high, axis=axis)[:, 1:] >= 0).all()


PAIR, DEPLOYED = ("vllm", "h100-sxm"), ("llama-3-8b", "16-bit", "16-bit", 1)
NAMES = {"model": "llama-3-8b", "gpu": "h100-sxm", "engine": "vllm"}


def measured(reach: Reach) -> Calibration:
    """The shipped calibration, as if `reach` were all that is measured of `DEPLOYED`."""
    shipped = next(one for one in shipped_calibrations() if PAIR in one.coverage)
    rows = shipped.coverage[PAIR]
    known = replace(rows, deployments={**rows.deployments, DEPLOYED: reach})
    return replace(shipped, coverage={**shipped.coverage, PAIR: known})


def test_a_deployment_measured_at_small_batches_is_unsure_of_large_ones() -> None:
    calibration = measured(Reach((1, 8), (512, 2048)))
    most = calibration.coverage[PAIR].batch_range[1]
    batch = np.array([8.0, 64.0, 8 * most])
    found = cm.predict(
        **NAMES, batch_size=batch, context_len=2048, calibration=calibration, interval=0.9
    )
    spread = np.log(found.high_s / found.low_s)
    assert spread[0] < spread[1] < spread[2]
    runs = pd.DataFrame({**NAMES, "batch_size": batch, "context_len": 2048.0, "tp": 1,
                         "weight_dtype": "bf16", "kv_dtype": "bf16"})  # fmt: skip
    low, high = calibration.interval_factors(runs)
    assert np.log(high / low) == pytest.approx(spread)

    def doubts(size: float) -> tuple[str, ...]:
        return cm.predict(
            **NAMES, batch_size=size, context_len=2048, calibration=calibration
        ).extrapolation

    assert not doubts(8)
    assert doubts(64) == ("batch outside the 1 to 8 of this deployment's rows (vllm on h100-sxm)",)
    assert doubts(8 * most)[0].endswith("of the rows (vllm on h100-sxm)")


def test_coverage_survives_its_file_and_older_files_are_read() -> None:
    own = measured(OWN).coverage[PAIR]
    assert Coverage.from_dict(own.to_dict()) == own
    older = own.to_dict()
    del older["deployments"]
    read = Coverage.from_dict(older)
    assert read.own("llama-3-8b", "bf16", "bf16", 1) == read.reach
    assert read.own("no such model", "bf16", "bf16", 1) is None


def test_parts_known_apart_are_no_known_deployment() -> None:
    runs = used_rows(make_runs(400, seed=1))
    first = runs.iloc[[0]]
    one, other = (first.assign(model=name, weight_dtype=weight) for name, weight in
                  (("llama-3-8b", "bf16"), ("llama-3-70b", "fp8")))  # fmt: skip
    both = joined(coverage_of(one), coverage_of(other))
    cache, tp = str(first["kv_dtype"].iloc[0]), int(first["tp"].iloc[0])
    assert both.own("llama-3-8b", "bf16", cache, tp) is not None
    assert both.own("llama-3-8b", "fp8", cache, tp) is None
    assert "at once" in both.lacks("llama-3-8b", "fp8", cache, tp)[0]
    assert both.own("llama-3-70b", "fp8", cache, tp) == coverage_of(other).reach
