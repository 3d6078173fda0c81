"""Bounds cover what they say, by simulation."""

import numpy as np
import pytest

from capmodel.conformal import ENOUGH, cross_bounds, grouped_bounds, log_bounds


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("n", [60, 300])
def test_new_rows_of_known_kinds_are_covered(level: float, n: int) -> None:
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(400):
        low, high = log_bounds(0.1 * rng.standard_t(4, n), level)
        new = 0.1 * rng.standard_t(4, 200)
        inside.append(((new >= low) & (new <= high)).mean())
    assert level - 0.01 < np.mean(inside) < min(1.0, level + 0.05)


@pytest.mark.parametrize("units", [5, 8, 14, 40])
def test_a_new_unit_is_covered(units: int) -> None:
    """A new model errs like another model, not like another row; uneven row counts do not count."""
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(400):
        rows = rng.integers(5, 400, units)
        centre = rng.normal(0, 0.2, units)
        residual = np.concatenate([
            rng.normal(c, 0.05, n) for c, n in zip(centre, rows, strict=True)
        ])  # fmt: skip
        low, high = log_bounds(residual, 0.9, np.repeat(np.arange(units), rows))
        new = rng.normal(rng.normal(0, 0.2), 0.05, 100)
        inside.append(((new >= low) & (new <= high)).mean())
    assert np.mean(inside) > 0.85


def test_each_group_has_its_own_scatter() -> None:
    rng = np.random.default_rng(2)
    groups = np.repeat([0, 1], 500)
    residual = rng.normal(0, np.where(groups == 0, 0.02, 0.5))
    _, own = grouped_bounds(residual, groups, 0.9)
    assert own[0][1] - own[0][0] < 0.1 < 1.0 < own[1][1] - own[1][0]


def test_a_small_group_takes_the_bounds_of_all() -> None:
    residual = np.linspace(-1, 1, 200)
    groups = np.where(np.arange(200) < ENOUGH - 1, 1, 0)
    whole, own = grouped_bounds(residual, groups, 0.9)
    assert set(own) == {0}
    assert whole == log_bounds(residual, 0.9)


def test_a_fold_is_judged_by_the_others() -> None:
    """Residuals of one fold alone are far off: its own bounds would cover them."""
    residual = np.concatenate([np.linspace(-0.1, 0.1, 100), np.full(100, 5.0)])
    folds = np.repeat([0, 1], 100)
    low, high = cross_bounds(residual, folds, np.zeros(200, int), 0.9)
    inside = (residual >= low) & (residual <= high)
    assert not inside[folds == 1].any()


def test_one_fold_has_no_bounds() -> None:
    low, high = cross_bounds(np.zeros(5), np.zeros(5, int), np.zeros(5, int), 0.9)
    assert np.isnan(low).all()
    assert np.isnan(high).all()


@pytest.mark.parametrize(("residual", "level"), [([], 0.9), ([0.1], 0.0), ([0.1], 1.0)])
def test_what_cannot_be_is_refused(residual: list[float], level: float) -> None:
    with pytest.raises(ValueError, match="Got"):
        log_bounds(np.array(residual), level)
