"""The learned correction: what rows of one model say of another."""

import numpy as np
import pandas as pd
import pytest

from capmodel.features import add_features
from capmodel.regressor import OTHER_MODEL, ROOFLINE, LocalCorrection, TrafficRegressor

LIKE = ["llama-3-8b", "mistral-7b-v0.1", "qwen3-8b"]  # nearly one shape
FACTORS = {"llama-3-8b": 0.8, "mistral-7b-v0.1": 1.25}  # two versions of one engine


def steps(model: str) -> pd.DataFrame:
    frame = pd.DataFrame(
        [(batch, context) for batch in (1, 4, 16, 64) for context in (512, 2048, 8192)],
        columns=["batch_size", "context_len"],
    ).assign(model=model, engine="vllm", gpu="h100-sxm", weight_dtype="bf16", kv_dtype="bf16", tp=1)
    featured = add_features(frame)
    return featured.assign(**{ROOFLINE: featured["weight_s"] + featured["kv_s"]})


def fitted() -> TrafficRegressor:
    rows = pd.concat([steps(model) for model in FACTORS], ignore_index=True)
    factors = rows["model"].map(FACTORS)
    return TrafficRegressor().fit(rows, rows[ROOFLINE] * factors)


@pytest.mark.parametrize("model", FACTORS)
def test_each_model_keeps_what_its_own_rows_say(model: str) -> None:
    rows = steps(model)
    found = fitted().predict(rows) / rows[ROOFLINE]
    np.testing.assert_allclose(found, FACTORS[model], rtol=0.03)


def test_an_unseen_model_gets_what_others_agree_on() -> None:
    # Half the rows say a fifth less, half a quarter more: nothing in common.
    value, near = fitted().correct(steps("qwen3-8b"))
    assert np.abs(value).max() < 0.6 * np.log(1.25)
    assert near.min() > 0.9
    # Where models agree, it hears all of it.
    rows = pd.concat([steps(model) for model in FACTORS], ignore_index=True)
    agreed = TrafficRegressor().fit(rows, 1.25 * rows[ROOFLINE])
    value, _ = agreed.correct(steps("qwen3-8b"))
    np.testing.assert_allclose(value, np.log(1.25), rtol=0.1)


def test_one_model_at_a_time_says_what_rows_get() -> None:
    regressor = fitted()
    local = regressor.corrections_["vllm", "h100-sxm"]
    assert set(local.models) == set(FACTORS)
    loud = local.of("llama-3-8b").weights / local.weights
    wanted = np.where(local.models == "llama-3-8b", 1.0, OTHER_MODEL)
    np.testing.assert_allclose(loud, wanted, rtol=1e-12)
    untold = LocalCorrection(
        local.landmarks, local.weights, 24, local.low, local.high, np.full(len(local.weights), "")
    )
    np.testing.assert_array_equal(untold.of("llama-3-8b").weights, local.weights)
    mixed = pd.concat([steps(model) for model in LIKE], ignore_index=True).sample(
        frac=1.0, random_state=0
    )
    together, _ = regressor.correct(mixed)
    for model in LIKE:
        own = (mixed["model"] == model).to_numpy()
        apart, _ = regressor.correct(mixed[own])
        np.testing.assert_allclose(together[own], apart, rtol=1e-12)


def test_rows_that_tell_no_model_are_heard_alike() -> None:
    rows = pd.concat([steps(model) for model in FACTORS], ignore_index=True).drop(columns="model")
    regressor = TrafficRegressor().fit(rows, 1.1 * rows[ROOFLINE])
    np.testing.assert_allclose(regressor.predict(rows) / rows[ROOFLINE], 1.1, rtol=0.01)


def test_a_model_not_told_is_not_another_rows_model() -> None:
    regressor, rows = fitted(), steps("llama-3-8b")
    named = rows.assign(model=["llama-3-8b"] * 6 + [None] * 6)
    value, _ = regressor.correct(named)
    untold, _ = regressor.correct(rows.assign(model=""))
    np.testing.assert_allclose(value[6:], untold[6:], rtol=1e-12)
    known, _ = regressor.correct(rows)
    np.testing.assert_allclose(value[:6], known[:6], rtol=1e-12)
    alone, _ = regressor.correct(named.iloc[[7]])
    assert alone[0] == pytest.approx(untold[7], rel=1e-12)
