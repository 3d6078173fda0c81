"""Kernel curves: they find a truth they can express, and predict models that were never run."""

import json

import numpy as np
import pandas as pd
import pytest

import capmodel as cm
from capmodel.calibration import CalibrationError, fit
from capmodel.curves import fit_curves
from capmodel.datasets import load_silicon_runs, make_runs
from capmodel.estimators import Corrected
from capmodel.evaluation import used_rows
from capmodel.features import deployments
from capmodel.kernel_rows import steady
from capmodel.loading import calibration_from
from capmodel.operators import operators
from capmodel.step_kernels import kernels_of


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Silicon steps of one engine on one GPU: about 1,700."""
    runs = load_silicon_runs()
    own = runs[(runs["engine"] == "vllm") & (runs["gpu"] == "l40s")]
    return used_rows(own.reset_index(drop=True))


@pytest.fixture(scope="module")
def halves(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Dense models apart: fitted ones, and every fifth held out."""
    models = sorted(rows["model"][rows["routed"] == 0].unique())
    held = rows["model"].isin(models[::5])
    return rows[~held].reset_index(drop=True), rows[held].reset_index(drop=True)


@pytest.fixture(scope="module")
def calibration(rows: pd.DataFrame) -> cm.Calibration:
    return fit(rows, name="curves")


def _seconds(estimator: Corrected, rows: pd.DataFrame) -> np.ndarray:
    return np.abs(estimator.predict(rows) / rows["step_time_s"].to_numpy() - 1)


def test_a_truth_of_kernels_is_found(rows: pd.DataFrame) -> None:
    """Textbook seconds times a factor by kind: an exact member of the family, so 1 % or less."""
    served, which = deployments(rows)
    known = [operators(d.shape, d.gpu, d.weight_dtype, d.kv_dtype, d.tp) for d in served]
    batch, context = (rows[name].to_numpy(float) for name in ("batch_size", "context_len"))
    steps = kernels_of(known, which, batch, context)
    factor = {"matmul": 1.3, "attention": 0.7, "experts": 1.6, "reduce": 2.0, "latent": 1.1,
              "step": 0.5}  # fmt: skip
    truth = np.zeros(len(rows))
    for kind, own in steps.items():
        spent = own.count * own.seconds[own.point] * factor[kind]
        truth += np.bincount(own.step, spent, len(rows))
    found, near = fit_curves(steps, truth, truth).seconds(steps, len(rows))
    assert np.abs(found / truth - 1).mean() < 0.01
    assert near.min() > 0
    assert near.max() <= 1 + 1e-9


def test_models_that_never_ran(halves) -> None:
    """Seven tenths of the error of the correction on whole steps, six of the roofline's here."""
    fitted, held = halves
    seconds = fitted["step_time_s"].to_numpy()
    curves = Corrected().fit(fitted, seconds)
    assert list(curves.curves) == [("vllm", "l40s")]
    apart = Corrected()._fit_apart(fitted, seconds)
    assert _seconds(curves, held).mean() < 0.8 * _seconds(apart, held).mean()
    assert _seconds(curves, held).mean() < 0.7 * _seconds(apart.physics, held).mean()


def test_where_prompts_are_inside_nothing_changes() -> None:
    """A factor on steps of pure decoding says nothing of others."""
    runs = make_runs(n=600, seed=4).assign(
        input_len=512, output_len=128, step_time_definition="tpot"
    )
    rows = used_rows(runs)
    assert (rows["prefill_tokens"] > 0).all()
    assert not steady(rows).any()
    assert not Corrected().fit(rows, rows["step_time_s"].to_numpy()).curves


@pytest.mark.parametrize(("model", "tp"), [("llama-3.1-8b", 1), ("gpt-oss-120b", 4)])
def test_a_prompt_inside_a_step_costs_what_the_roofline_says(calibration, model, tp) -> None:
    """The curves' factor is on the decoding alone, not on a prompt's all-reduces and experts."""
    asked = {"tp": tp, "weight_dtype": "bf16", "engine": "vllm"}
    step, bare = (
        calibration.step_time(model, "l40s", method=method, **asked)
        for method in ("regressor", "roofline")
    )
    assert step.kernels is not None
    before, after = (own.seconds(16, 16 * 2048, 0.0) for own in (step, bare))
    with_prompt, without = (own.seconds(16, 16 * 2048, 8192.0) for own in (step, bare))
    assert with_prompt - before == pytest.approx(without - after, rel=1e-2)


def test_a_file_keeps_every_prediction(calibration, rows) -> None:
    """Eight digits are kept of each weight."""
    read = calibration_from(json.loads(json.dumps(calibration.to_dict())))
    assert read.calibration_id == calibration.calibration_id
    assert read.predict(rows) == pytest.approx(calibration.predict(rows), rel=1e-5)


@pytest.mark.parametrize("part", ["kinds", "range", "scale", "weights", "kind", "coordinates"])
def test_curves_cut_short_are_refused(calibration, part: str) -> None:
    content = json.loads(json.dumps(calibration.to_dict()))
    entry = content["curves"][0]
    if part in ("kinds", "range", "scale"):
        del entry[part]
    elif part == "kind":
        entry["kinds"][0]["kind"] = "telepathy"
    else:
        entry["kinds"][0][part] = entry["kinds"][0][part][:-1]
    with pytest.raises(CalibrationError, match="lacks a part or holds a wrong one"):
        calibration_from(content)


def test_a_few_runs_of_a_slower_version_move_the_curves(calibration, rows) -> None:
    """A fifth slower throughout: one factor says it, on rows it was not told of too."""
    slower = rows.assign(step_time_s=1.2 * rows["step_time_s"])
    told = slower.iloc[:: len(rows) // 12]
    adapted = calibration.adapt(told)
    rest = slower.drop(told.index)
    moved = adapted.predict(rest) / calibration.predict(rest)
    assert np.median(moved) == pytest.approx(1.2, abs=0.04)


def test_shapes_without_known_kernels_keep_the_roofline(calibration) -> None:
    step = calibration.step_time("jamba-1.5-mini", "l40s", engine="vllm")
    assert step.kernels is None
    assert step.seconds(8, 8 * 1024) > 0
