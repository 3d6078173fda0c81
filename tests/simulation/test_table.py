"""A step time as a table: exact where the step time is a sum, near where it is curved."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_times import DECODER

from capmodel.simulation import Server, simulate
from capmodel.simulation.table import tabulated
from capmodel.workload import Lognormal, Workload

TABLE = tabulated(DECODER, 256, 8192, 8192)


@settings(deadline=None)
@given(st.integers(0, 400), st.integers(0, 20_000), st.floats(0, 20_000))
def test_sums_of_linear_work_are_exact_inside_and_beyond(batch, context, prompt):
    cached = batch * context
    expected = DECODER.seconds(batch, cached, prompt)
    assert TABLE.seconds(batch, cached, prompt) == pytest.approx(expected, rel=1e-9)


class Experts:
    """Reads 128 experts as they are touched, 8 a token, beside linear work."""

    def seconds(self, batch, cached_tokens, prefill_tokens=0.0):
        touched = -np.expm1(math.log1p(-8 / 128) * (batch + prefill_tokens))
        return DECODER.seconds(batch, cached_tokens, prefill_tokens) + 8e-3 * touched


def test_curved_step_times_are_within_two_percent():
    table = tabulated(Experts(), 256, 8192, 8192)
    rng = np.random.default_rng(0)
    for _ in range(300):
        batch, context = int(rng.integers(1, 256)), int(rng.integers(1, 8192))
        prompt = float(rng.integers(0, 8192)) * (rng.random() < 0.5)
        expected = Experts().seconds(batch, batch * context, prompt)
        assert table.seconds(batch, batch * context, prompt) == pytest.approx(expected, rel=0.02)


def test_a_simulation_does_not_notice():
    requests = Workload(Lognormal(600, 0.8), Lognormal(150, 0.9), rate=10.0).draw(300, 1)
    plain, tabled = (simulate(requests, Server(step, 9000)) for step in (DECODER, TABLE))
    assert tabled.finish_s == pytest.approx(plain.finish_s, rel=1e-9)


def test_limits_below_one_are_refused():
    with pytest.raises(ValueError, match="longest=0"):
        tabulated(DECODER, 1, 0, 1)
