"""Which fitted pair a new engine and GPU is like, and what its runs say of it."""

import numpy as np
import pytest

from capmodel.known_pairs import SINGLE, SMOOTH, Candidates, Learned, candidates_of, learned
from capmodel.roofline import NAMES, PRIOR, SPREAD, RooflineCoefficients, RooflineRegressor

TERMS = len(NAMES)
FOUR = np.arange(TERMS) < 4


def fitted(values: np.ndarray, told: np.ndarray = FOUR, mape: float = 0.05) -> RooflineCoefficients:
    return RooflineCoefficients(
        tuple(values), tuple(0.1 * values), tuple(map(bool, told)), 99, mape, 1.0, 99, 0
    )


def coefficients(c_step: float, c_w: float, c_kv: float, c_f: float) -> np.ndarray:
    return np.where(FOUR, np.concatenate([[c_step, c_w, c_kv, c_f], PRIOR[4:]]), PRIOR)


@pytest.fixture
def roofline() -> RooflineRegressor:
    """Two kinds: three pairs of an engine `a` that waits, three of `b` that reads slowly."""
    pairs = {}
    for place, gpu in enumerate(("x", "y", "z")):
        pairs["a", gpu] = fitted(coefficients(2e-4 + 1e-5 * place, 1.1, 1.1, 1.2))
        pairs["b", gpu] = fitted(coefficients(2e-5, 2.5 + 0.1 * place, 2.4, 1.2))
    return RooflineRegressor(coefficients_=pairs)


def steps(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Terms of n steps and where they stand; only the four base terms are there."""
    rng = np.random.default_rng(seed)
    terms = np.zeros((n, TERMS))
    layers = rng.choice([24, 32, 48, 80], n)
    batch = 2.0 ** rng.integers(0, 7, n)
    terms[:, 0] = layers
    terms[:, 1] = layers * rng.uniform(5e-5, 3e-4, n)
    terms[:, 2] = batch * rng.uniform(2e-6, 1e-4, n)
    terms[:, 3] = batch * rng.uniform(1e-6, 1e-5, n)
    return terms, np.column_stack([np.log2(batch) / 4, np.log2(terms[:, 1:3] / 1e-5) / 4])


def said(
    candidates: Candidates, truth: np.ndarray, n: int, seed: int, factor: np.ndarray | float = 1.0
) -> Learned:
    terms, points = steps(n, seed)
    return learned(candidates, terms, factor * (terms @ truth), np.full(n, 1e-6), points)


def test_without_pairs_there_is_the_textbook() -> None:
    found = candidates_of(RooflineRegressor(coefficients_={}))
    assert (found.centres == PRIOR).all()
    assert (found.spreads == SPREAD).all()
    assert found.weights.sum() == 1.0


def test_with_few_pairs_the_middle_is_the_textbook() -> None:
    two = {("a", gpu): fitted(coefficients(1e-5, 2.0, 2.0, 2.0)) for gpu in ("x", "y")}
    found = candidates_of(RooflineRegressor(coefficients_=two))
    assert found.centres[2] == pytest.approx(PRIOR)
    assert found.weights.sum() == pytest.approx(1.0)


def test_pairs_of_its_engine_come_first(roofline: RooflineRegressor) -> None:
    found = candidates_of(roofline, ("a", "new"))
    assert found.weights[:6].tolist() == pytest.approx([found.weights[0], found.weights[0] / 5] * 3)
    assert found.weights.sum() == pytest.approx(1.0)
    assert found.centres[6][0] == pytest.approx(2.1e-4)  # the middle of its engine
    assert candidates_of(roofline).centres[6][0] == pytest.approx(1.1e-4, rel=0.01)  # of all


def test_a_pair_does_not_stand_for_itself(roofline: RooflineRegressor) -> None:
    found = candidates_of(roofline, ("a", "x"))
    assert len(found.centres) == 5 + 2
    assert (
        not (found.centres == np.array(roofline.coefficients_["a", "x"].values)).all(axis=1).any()
    )


def test_what_a_pair_does_not_tell_comes_from_the_others(roofline: RooflineRegressor) -> None:
    told = FOUR & (np.arange(TERMS) != 3)
    roofline.coefficients_["c", "x"] = fitted(coefficients(1e-4, 1.5, 1.5, 99.0), told)
    found = candidates_of(roofline, ("d", "new"))
    place = list(roofline.coefficients_).index(("c", "x"))
    assert found.centres[place][3] == pytest.approx(1.2)
    assert found.spreads[place][3] > found.spreads[place - 1][3]


@pytest.mark.parametrize("seed", range(4))
def test_three_runs_tell_the_kind(roofline: RooflineRegressor, seed: int) -> None:
    """The new pair is like those of another engine, which its own name does not say."""
    candidates = candidates_of(roofline, ("a", "new"))
    like_b = coefficients(2e-5, 2.55, 2.4, 1.2)
    found = said(candidates, like_b, 3, seed)
    of_b = found.likely[[1, 3, 5]].sum()
    assert of_b > 0.9
    terms, _ = steps(200, 99)
    assert np.abs(terms @ found.values / (terms @ like_b) - 1).mean() < 0.05


@pytest.mark.parametrize("seed", range(4))
def test_many_exact_runs_give_the_truth_whatever_the_candidates(
    roofline: RooflineRegressor, seed: int
) -> None:
    truth = coefficients(9e-5, 1.7, 0.9, 3.0)
    found = said(candidates_of(roofline, ("a", "new")), truth, 40, seed)
    terms, _ = steps(200, 98)
    assert np.abs(terms @ found.values / (terms @ truth) - 1).mean() < 0.03


@pytest.mark.parametrize("seed", range(4))
def test_a_run_gone_wrong_is_not_trusted(roofline: RooflineRegressor, seed: int) -> None:
    truth = coefficients(2e-5, 2.55, 2.4, 1.2)
    factor = np.ones(8)
    factor[3] = 2.0
    found = said(candidates_of(roofline, ("b", "new")), truth, 8, seed, factor)
    assert found.trusted.argmin() == 3
    assert found.trusted[3] < 0.2
    terms, _ = steps(200, 97)
    assert np.abs(terms @ found.values / (terms @ truth) - 1).mean() < 0.06


def test_a_pair_that_scatters_more_is_seen_to(roofline: RooflineRegressor) -> None:
    candidates = candidates_of(roofline, ("b", "new"))
    truth = coefficients(2e-5, 2.55, 2.4, 1.2)
    noise = np.random.default_rng(5).normal(size=16)
    quiet, loud = (said(candidates, truth, 16, 0, np.exp(sd * noise)) for sd in (0.01, 0.3))
    assert quiet.smooth < SMOOTH * candidates.typical < loud.smooth
    assert loud.single / loud.smooth == pytest.approx(SINGLE / SMOOTH)


def test_errors_cover(roofline: RooflineRegressor) -> None:
    """Truths drawn from the candidates: 90 % intervals of c_w hold 80 to 99 % of them."""
    candidates = candidates_of(roofline, ("b", "new"))
    rng = np.random.default_rng(6)
    inside = []
    for seed in range(150):
        one = rng.choice(len(candidates.weights), p=candidates.weights)
        truth = np.maximum(rng.normal(candidates.centres[one], candidates.spreads[one]), 0.0)
        found = said(candidates, truth, 8, seed, np.exp(rng.normal(0, 0.02, 8)))
        inside.append(abs(found.values[1] - truth[1]) < 1.645 * found.errors[1])
    assert 0.8 <= np.mean(inside) <= 0.99
    assert np.isnan(found.errors[~FOUR]).all()  # no run has any of those terms
