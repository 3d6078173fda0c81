"""Many candidates at once give what each gives alone, and NumPy's own tools row by row."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rates import NameplateCalibration

from capmodel.costs import gpu_price
from capmodel.gpus import load_gpu
from capmodel.planner.candidate import candidates
from capmodel.planner.curve import ARRAYS, load_curve, load_curves, stacked
from capmodel.planner.demand import demand
from capmodel.planner.replica import DoesNotFit, Setting, replica_of
from capmodel.planner.rows import gradient, interpolated
from capmodel.planner.shipped import Shipped
from capmodel.planner.sizing import Case, Option, fleet_operation, fleet_operations, size
from capmodel.planner.stacked import Stack
from capmodel.shapes import load_shape
from capmodel.workload import Lognormal, Slo

GPUS = ["h100", "a100-80gb", "b200", "mi300x", "l40s", "gaudi3", "rtx-4090"]
LOAD = {"rate": 6.0, "input_len": Lognormal(900, 0.8, 6000), "output_len": Lognormal(150, 0.8)}
# BLAS adds the products of a row in another order where there are more rows.
SAME = pytest.approx


@cache
def replicas(model="gpt-oss-120b", calibration=None):
    shape, setting = load_shape(model), Setting(calibration or Shipped(), None, 0.92, 8000)
    found = []
    for candidate in candidates(shape, GPUS):
        try:
            found.append(replica_of(shape, candidate, setting))
        except DoesNotFit:
            continue
    return found


@pytest.mark.parametrize("model", ["llama-3-70b", "gpt-oss-120b", "deepseek-v2"])
def test_a_stack_is_its_step_times(model):
    """Dense, windowed with experts, latent: with and without corrections, on several levels."""
    steps = [one.step_time for one in replicas(model)]
    assert len({step.basis for step in steps}) > 1
    assert {step.correction is None for step in steps} == {True, False}
    rng = np.random.default_rng(0)
    shape = (len(steps), 9)
    batch, context = 2 ** rng.uniform(0, 9, shape), 2 ** rng.uniform(4, 14, shape)
    prompts = np.where(rng.random(shape) < 0.3, 0.0, rng.uniform(0, 4000, shape))
    found = Stack(steps).seconds(batch, batch * context, prompts)
    terms = Stack(steps).terms(batch, context, prompts)
    for row, step in enumerate(steps):
        alone = step.seconds(batch[row], batch[row] * context[row], prompts[row])
        assert found[row] == SAME(alone, rel=1e-12)
        own = step.terms(batch[row], context[row], prompts[row])
        for family, values in terms.items():
            assert values[row] == SAME(np.broadcast_to(own[family], 9), rel=1e-12), family


def test_curves_of_many_are_the_curves_of_each():
    """Step times of ours and of others mixed, dense and bursty loads, tiny pools beside large."""
    load = demand(**LOAD)
    other = demand(**{**LOAD, "rate": 20.0, "input_len": 4000})
    ones = replicas() + replicas("llama-3.1-8b", NameplateCalibration())
    mixes = [(load if place % 3 else other).mix for place in range(len(ones))]
    peaks = [float(place % 2) for place in range(len(ones))]
    curves = load_curves(ones, mixes, peaks)
    # Every fifth alone: of both kinds of step times, mixes and peaks.
    for row in range(0, len(ones), 5):
        one, mix, peak = ones[row], mixes[row], peaks[row]
        alone, own = load_curve(one, mix, peak), curves.row(row)
        assert own.top_by == alone.top_by
        for name in ARRAYS:
            assert getattr(own, name) == SAME(getattr(alone, name), rel=1e-11), name
    again = stacked([curves.row(row) for row in range(len(ones))])
    assert np.array_equal(again.ttft_p95_s, curves.ttft_p95_s)


@pytest.mark.parametrize("load", [LOAD, {**LOAD, "rate": None, "concurrency": 64}])
def test_sizes_of_many_are_the_sizes_of_each(load):
    asked, slo = demand(**load), Slo(ttft_s=0.3, tpot_s=0.01)
    shape = load_shape("gpt-oss-120b")
    cases = [
        Case(one, gpu_price(load_gpu(one.candidate.gpu), 2.0), asked, shape, apart)
        for one in replicas()
        for apart in (False, True)
    ]
    together = size(cases, slo)
    assert {isinstance(one, Option) for one in together} == {True, False}
    for case, one in list(zip(cases, together, strict=True))[::5]:
        (alone,) = size([case], slo)
        assert type(one) is type(alone)
        if isinstance(one, Option):
            counts = (one.replicas, one.replicas_low, one.replicas_high)
            assert counts == (alone.replicas, alone.replicas_low, alone.replicas_high)
            assert one.estimate.ttft_p95_s == SAME(alone.estimate.ttft_p95_s, rel=1e-11)
        else:
            assert (one.excess_by, one.excess) == (alone.excess_by, SAME(alone.excess, rel=1e-11))
    options = [one for one in together if isinstance(one, Option)]
    counts = [float(place % 3 + 1) for place in range(len(options))]
    curves = stacked([one.curve for one in options])
    fleets = fleet_operations(curves, [asked] * len(options), counts)
    for one, count, fleet in zip(options, counts, fleets, strict=True):
        assert fleet == fleet_operation(one.curve, asked, count)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_interpolation_is_numpys(seed, points):
    """Between points, on them, before the first and after the last, and over plateaus."""
    rng = np.random.default_rng(seed)
    across = np.sort(rng.integers(0, 12, (5, points)), axis=1).astype(float)
    values = rng.normal(size=(5, points))
    at = rng.choice([-1.0, 13.0, *np.arange(0, 12, 0.5)], 5)
    (found,) = interpolated(across, at, [values])
    expected = [np.interp(*row) for row in zip(at, across, values, strict=True)]
    assert found == SAME(expected, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_gradients_are_numpys(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, 6)
    across = np.cumsum(rng.uniform(0.1, 2.0, (6, 8)), axis=1)
    values = rng.normal(size=(6, 8))
    found = gradient(values, across, counts)
    for row, count in enumerate(counts):
        expected = np.zeros(8)
        if count > 1:
            expected[:count] = np.gradient(values[row, :count], across[row, :count])
        assert found[row] == SAME(expected, rel=1e-9, abs=1e-12)
