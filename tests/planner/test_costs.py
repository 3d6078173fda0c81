"""Prices, token costs, break-even, energy: by hand, and they add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capmodel.costs import TokenRates, break_even, energy, gpu_price, token_costs
from capmodel.gpus import load_gpu

share = st.floats(0, 1)
flow = st.floats(0.1, 1e5)


@given(share, share, flow, flow, flow, st.floats(0.1, 1e4))
def test_token_costs_add_up_to_the_fleet(prefill, prefix, computed, cached, output, dollars):
    rates = TokenRates(computed, cached, output)
    costs = token_costs(dollars, rates, prefill, prefix)
    total = (
        3600
        / 1e6
        * sum(
            price * tokens
            for price, tokens in (
                (costs.per_million_input, computed),
                (costs.per_million_cached, cached),
                (costs.per_million_output, output),
            )
            if price is not None
        )
    )
    assert total == pytest.approx(dollars, rel=1e-9)


def test_token_costs_by_hand():
    """$36/h, a quarter of the time prefilling 1,000 tokens/s: 9 / 3.6 = $2.50 a million."""
    costs = token_costs(36.0, TokenRates(1000, 0, 500), 0.25)
    assert costs.per_million_input == pytest.approx(2.5)
    assert costs.per_million_output == pytest.approx(27 / 1.8)
    assert costs.per_million_cached is None


def test_a_kind_that_does_not_flow_leaves_its_share():
    costs = token_costs(36.0, TokenRates(0, 0, 1000), 0.25)
    assert costs.per_million_output == pytest.approx(10.0)


def test_break_even_by_hand():
    """$10/h at $0.50 a million: 20e6 tokens an hour, 2,000 a request: 2.78 requests/s."""
    found = break_even(10.0, 2000, 5.0, 0.5)
    assert found.requests_per_s == pytest.approx(20e6 / 2000 / 3600)
    assert found.tokens_per_day == pytest.approx(480e6)
    assert found.reachable
    assert not break_even(10.0, 2000, 1.0, 0.5).reachable


def test_energy_by_hand():
    """8 H100 at 700 W: 5.6 kW; at 1,000 tokens/s a million takes 1,000 s: 1,556 Wh."""
    found = energy(load_gpu("h100"), 8, 1000.0)
    assert found.kilowatts == pytest.approx(5.6)
    assert found.wh_per_million_output == pytest.approx(5600 / 3.6)


def test_prices_given_by_name_and_by_default():
    h100 = load_gpu("h100")
    assert gpu_price(h100, 2.5).estimate == 2.5
    assert gpu_price(h100, {"h100-sxm": 3.0, "*": 1.0}).estimate == 3.0
    assert gpu_price(load_gpu("a100-80gb"), {"h100-sxm": 3.0, "*": 1.0}).estimate == 1.0
    default = gpu_price(h100)
    assert default.low < default.estimate < default.high
    assert default.source
    assert not default.given


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_prices_that_cannot_be(price):
    with pytest.raises(ValueError, match="dollars per GPU-hour"):
        gpu_price(load_gpu("h100"), price)


def test_a_missing_price_asks_for_one():
    gpu = load_gpu({"name": "mine", "memory_bytes": 8e10})
    with pytest.raises(ValueError, match="No price is known for GPU mine"):
        gpu_price(gpu)
