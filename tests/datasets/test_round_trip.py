"""Noise-free step times made from four coefficients give the four coefficients back."""

import numpy as np
import pytest

from capmodel.datasets import load_silicon_runs, make_runs
from capmodel.features import add_features
from capmodel.roofline import design, fit_coefficients


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("source", ["generated", "silicon"])
def test_four_coefficients_come_back(source: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    if source == "generated":
        runs = make_runs(n=600, seed=seed)
    else:
        runs = load_silicon_runs().query("tp == 1").sample(600, random_state=seed)
    terms = design(add_features(runs))[:, :4]
    truth = np.array([2e-5, 1.2, 1.3, 1.5]) * rng.uniform(0.5, 2.0, size=4)
    padded = np.zeros((len(terms), design(add_features(runs.head(1))).shape[1]))
    padded[:, :4] = terms
    found = fit_coefficients(padded, terms @ truth)
    np.testing.assert_allclose(found.values[:4], truth, rtol=1e-6)
    assert found.mape < 1e-6
    assert found.at_bound == ()
