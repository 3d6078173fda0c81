"""The four-coefficient roofline: round trips, bounds, identifiability, intervals that cover."""

import numpy as np
import pandas as pd
import pytest

from capmodel.roofline import (
    COLUMNS,
    NAMES,
    FitError,
    RooflineRegressor,
    coefficients_from,
    design,
    fit_coefficients,
)

TRUTH = {"c_step": 3e-5, "c_w": 1.3, "c_kv": 1.6, "c_f": 1.9}


def features(seed: int, n: int = 400) -> pd.DataFrame:
    """Independent columns over the ranges that decode steps have."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "engine": "vllm", "gpu": "h100-sxm",
        "layers": rng.integers(16, 100, n).astype(float),
        "weight_s": 10 ** rng.uniform(-3, -1.5, n),
        "kv_s": 10 ** rng.uniform(-5, -1.5, n),
        "flop_s": 10 ** rng.uniform(-5, -2, n),
    })  # fmt: skip


def times(frame: pd.DataFrame, truth: dict[str, float] = TRUTH) -> np.ndarray:
    return design(frame) @ np.array(coefficients_from(truth).values)


@pytest.mark.parametrize("seed", range(8))
def test_noise_free_rows_give_the_coefficients_back(seed: int) -> None:
    frame = features(seed)
    fitted = RooflineRegressor().fit(frame, times(frame)).coefficients_[("vllm", "h100-sxm")]
    for name, value in TRUTH.items():
        assert fitted[name] == pytest.approx(value, rel=1e-6), name


def test_a_coefficient_that_is_zero_is_reported_at_its_bound() -> None:
    frame = features(1)
    target = times(frame, TRUTH | {"c_f": 0.0}) * np.random.default_rng(0).lognormal(0, 0.02, 400)
    # Take a little of the compute term away, so that the unbounded answer would be negative.
    fitted = fit_coefficients(design(frame), target - 0.05 * frame["flop_s"].to_numpy() * 0.1)
    assert "c_f" in fitted.at_bound or fitted["c_f"] < 0.05
    assert all(value >= 0 for value in fitted.values)


def test_terms_absent_from_the_rows_are_not_identified() -> None:
    frame = features(2)
    fitted = fit_coefficients(design(frame), times(frame))
    identified = dict(zip(NAMES, fitted.identified, strict=True))
    assert identified["c_w"]
    assert not identified["c_reduce"]
    assert np.isnan(fitted.standard_errors[NAMES.index("c_reduce")])


def test_one_dense_model_cannot_tell_layers_from_weights() -> None:
    # PHYSICS section 6: one dense model on one GPU; the columns are proportional.
    frame = features(3).assign(layers=32.0, weight_s=0.004)
    fitted = fit_coefficients(design(frame), times(frame))
    assert fitted.condition_number > 1e6


def test_standard_errors_cover() -> None:
    inside = 0
    for seed in range(60):
        frame = features(seed, 150)
        noise = np.random.default_rng(1000 + seed).normal(1.0, 0.05, 150)
        fitted = fit_coefficients(design(frame), times(frame) * noise)
        error = fitted.standard_errors[NAMES.index("c_w")]
        inside += abs(fitted["c_w"] - TRUTH["c_w"]) < 1.96 * error
    # 95 % nominal; 60 draws leave 0.83 to 1 at three sigma, and the relative loss is biased
    # by the noise squared.
    assert 0.82 <= inside / 60 <= 1.0


def test_a_twentieth_of_corrupted_rows_hardly_moves_the_fit() -> None:
    frame = features(4)
    rng = np.random.default_rng(5)
    target = times(frame) * rng.lognormal(0, 0.04, 400)
    spoiled = target.copy()
    spoiled[rng.permutation(400)[:20]] *= rng.uniform(1.5, 4.0, 20)
    clean = fit_coefficients(design(frame), target)
    robust = fit_coefficients(design(frame), spoiled)
    fresh = features(6)
    truth = times(fresh)
    errors = [
        np.abs(design(fresh) @ np.array(f.values) / truth - 1).mean() for f in (clean, robust)
    ]
    assert errors[1] < errors[0] + 0.01


def test_levels_fall_back_and_say_so() -> None:
    frame = pd.concat([features(7), features(8).assign(gpu="a100-80gb-sxm")], ignore_index=True)
    fitted = RooflineRegressor().fit(frame, times(frame))
    assert fitted.level("vllm", "h100-sxm") == ("vllm", "h100-sxm")
    assert fitted.level("vllm", "unseen") == ("vllm",)
    assert fitted.level("unseen", "h100-sxm") == ()
    few = RooflineRegressor(min_rows=1000).fit(frame, times(frame))
    assert few.level("vllm", "h100-sxm") == ()


def test_terms_sum_to_the_prediction() -> None:
    frame = features(9)
    fitted = RooflineRegressor().fit(frame, times(frame))
    np.testing.assert_allclose(fitted.predict_terms(frame).sum(axis=1), fitted.predict(frame))


def test_summary_names_every_level_and_coefficient() -> None:
    frame = features(10)
    summary = RooflineRegressor().fit(frame, times(frame)).summary
    assert set(summary["coefficient"]) == set(NAMES)
    assert set(zip(summary["engine"], summary["gpu"], strict=True)) == {
        ("(all)", "(all)"), ("vllm", "(all)"), ("vllm", "h100-sxm"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f, t: (f.iloc[:0], t[:0]), "no rows"),
        (lambda f, t: (f, np.where(np.arange(len(t)) == 3, np.nan, t)), "missing"),
        (lambda f, t: (f, -t), "zero or less"),
    ],
)
def test_rows_that_cannot_be_fitted(spoil, said: str) -> None:
    frame = features(11)
    rows, target = spoil(frame, times(frame))
    with pytest.raises(FitError, match=said):
        fit_coefficients(design(rows), target)


def test_missing_columns_are_named() -> None:
    with pytest.raises(ValueError, match=r"kv_s.*add_features"):
        design(features(12).drop(columns="kv_s"))
    with pytest.raises(ValueError, match="c_x"):
        coefficients_from({"c_x": 1.0})
    assert len(COLUMNS) == len(set(COLUMNS))
