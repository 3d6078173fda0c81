"""Skipping ahead gives the times that one step at a time gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import run
from step_times import LinearStep

from capmodel.kvcache import BlockTable, RequestCost
from capmodel.simulation import Server, simulate
from capmodel.workload import Requests

# Steps of a quarter of a millisecond and powers of two: sums are exact, ties are real ties.
STEP = LinearStep(2.0**-10, 2.0**-14, 2.0**-20, 2.0**-13)


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 400), st.integers(1, 60), st.integers(1, 40)),
        min_size=1,
        max_size=25,
    ),
    size=st.sampled_from([1, 4, 16]),
    slack=st.integers(0, 12),
    max_seqs=st.integers(1, 12),
    budget=st.sampled_from([12, 40, 512]),
)
def test_times_and_preemptions_equal_those_of_single_steps(rows, size, slack, max_seqs, budget):
    gaps, prompts, outputs = (np.array(column) for column in zip(*rows, strict=True))
    arrivals = np.cumsum(gaps) / 4096
    largest = max(-(-(p + o) // size) for p, o in zip(prompts, outputs, strict=True))
    server = Server(
        STEP,
        largest + slack,
        RequestCost((BlockTable("full", 1, size),), 0.0),
        max_num_seqs=max_seqs,
        max_batched_tokens=budget,
    )
    result = simulate(Requests(arrivals, prompts, outputs), server)
    expected = run(
        STEP,
        arrivals.tolist(),
        prompts.tolist(),
        outputs.tolist(),
        largest + slack,
        size,
        max_seqs,
        budget,
    )
    assert result.first_s == pytest.approx([s.first for s in expected], rel=1e-9)
    assert result.finish_s == pytest.approx([s.finish for s in expected], rel=1e-9)
    assert result.preemptions.tolist() == [s.preempted for s in expected]


def test_the_strategy_above_does_reach_preemption():
    """Ten requests that grow from 1 to 4 blocks in a pool of 12."""
    n = 10
    server = Server(STEP, 12, max_num_seqs=16, max_batched_tokens=64)
    requests = Requests(np.zeros(n), np.full(n, 10), np.full(n, 50))
    assert simulate(requests, server).preemptions.sum() > 3
