"""The paging paper's figures, on lengths with the means it gives for ShareGPT.

Kwon et al., SOSP 2023: reserving contiguously wastes 60-80 % of the cache, blocks of 16 under
4 %; paged batching serves 2-4 times as much. LLaMA-13B, 2,048 tokens, about 12 GB of cache:
950 blocks of 16 tokens at 819,200 bytes a token.
"""

from dataclasses import replace

import numpy as np
import pytest
from step_times import LinearStep

from capmodel.simulation import Server, context_limit, power_of_two, simulate, summarise
from capmodel.simulation.static import simulate_static
from capmodel.workload import Lognormal, Workload

# 26 GB of weights at 1.4 TB/s, the cache at 1 TB/s, prompts at half of 312 TFLOP/s.
STEP = LinearStep(fixed=0.0186, per_sequence=2e-4, per_cached=8.2e-7, per_prompt=1.7e-4)


@pytest.fixture(scope="module")
def requests():
    drawn = Workload(Lognormal(161, 1.5, 1020), Lognormal(338, 1.0, 1020), rate=1.0).draw(500, 0)
    return replace(drawn, arrival_s=np.zeros(500))


def test_waste_of_each_way_to_reserve(requests):
    paged = Server(STEP, 950)
    longest = replace(paged, reservation=context_limit(2048))
    powers = replace(paged, reservation=power_of_two)
    waste = [summarise(simulate(requests, way), 0.0).waste for way in (longest, powers, paged)]
    assert 0.6 <= waste[0] <= 0.85
    assert 0.4 <= waste[1] <= 0.8
    assert waste[2] < 0.04


def test_paged_serves_two_to_four_times_as_much(requests):
    paged = Server(STEP, 950)
    longest = replace(paged, reservation=context_limit(2048))
    rates = [summarise(simulate(requests, way), 0.0).output_tok_s for way in (paged, longest)]
    assert 2 <= rates[0] / rates[1] <= 4
    static = summarise(simulate_static(requests, paged, max_context=2048), 0.0)
    assert static.output_tok_s < rates[1]
