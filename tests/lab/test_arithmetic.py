"""Sums in one order do not depend on shape; softmax, norm and RoPE do what they are defined to."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capmodel.lab.arithmetic import BLAS, SEQUENTIAL, rms_norm, silu, softmax
from capmodel.lab.rope import rope_angles, rotate


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 12))
def test_a_row_comes_out_the_same_alone_and_in_a_larger_product(seed: int, k: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 9, k)), rng.normal(size=(k, n))
    whole = SEQUENTIAL.matmul(a, b)
    assert (SEQUENTIAL.matmul(a[:, 4:5], b) == whole[:, 4:5]).all()
    np.testing.assert_allclose(whole, BLAS.matmul(a, b), rtol=0, atol=1e-12)


def test_zeros_behind_a_sum_leave_every_bit_as_it_is() -> None:
    x = np.random.default_rng(0).normal(size=(3, 37))
    padded = np.concatenate([x, np.zeros((3, 20))], axis=1)
    assert (SEQUENTIAL.total(padded) == SEQUENTIAL.total(x)).all()


def test_softmax_of_known_scores() -> None:
    # exp(0) : exp(ln 3) = 1 : 3; the hidden third entry weighs nothing.
    scores = np.array([[0.0, math.log(3.0), 50.0]])
    visible = np.array([[True, True, False]])
    np.testing.assert_allclose(softmax(scores, visible, None, BLAS), [[0.25, 0.75, 0.0]])


def test_a_sink_logit_takes_its_share_and_gives_nothing_back() -> None:
    # 1 : 3 with a sink of weight 4: half of the mass is gone.
    scores = np.array([[0.0, math.log(3.0)]])
    weights = softmax(scores, None, np.array([[math.log(4.0)]]), BLAS)
    np.testing.assert_allclose(weights, [[1 / 8, 3 / 8]])


def test_norm_and_silu_by_hand() -> None:
    # rms of (3, 4) is sqrt(12.5).
    np.testing.assert_allclose(
        rms_norm(np.array([3.0, 4.0]), np.array([1.0, 2.0]), 0.0, BLAS),
        np.array([3.0, 8.0]) / math.sqrt(12.5),
    )
    assert silu(np.array([0.0, 100.0])).tolist() == [0.0, 100.0]


def test_rope_turns_the_first_pair_by_one_radian_a_token() -> None:
    x = np.array([[1.0, 0.0, 0.0, 0.0]])  # halves: pairs are (0, 2) and (1, 3)
    np.testing.assert_allclose(
        rotate(x, np.array([1])), [[math.cos(1), 0, math.sin(1), 0]], atol=1e-15
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 400), st.integers(0, 60), st.integers(1, 500))
def test_scores_depend_on_distance_alone(seed: int, i: int, distance: int, shift: int) -> None:
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, 1, 16))

    def score(at: int) -> float:
        turned = rotate(q, np.array([at + distance])) @ rotate(k, np.array([at])).T
        return float(turned[0, 0])

    assert score(i) == pytest.approx(score(i + shift), abs=1e-11)
    assert np.linalg.norm(rotate(q, np.array([i]))) == pytest.approx(np.linalg.norm(q))


def test_rope_needs_pairs() -> None:
    with pytest.raises(ValueError, match="Got dim=5, but expected an even number"):
        rope_angles(np.arange(3), 5)
