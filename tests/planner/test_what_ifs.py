"""What-ifs and sensitivities tell the plan's own figures in the plan's own row."""

import math

import pytest
from rates import NameplateCalibration

import capmodel as cm
from capmodel.planner.held import held_to
from capmodel.planner.sizing import fleet_operation
from capmodel.workload import Lognormal

LOAD = {
    "input_len": Lognormal(900, 0.8, 6000),
    "output_len": Lognormal(150, 0.8, 1500),
    "calibration": NameplateCalibration(),
}


def made(**changes):
    arguments = {"rate": 60.0, "slo_ttft_p95": 1.0, "slo_tpot_p95": 0.03, **LOAD, **changes}
    return cm.plan("llama-3.1-8b", ["a100-80gb", "h100"], **arguments)


CASES = {
    "poisson": {},
    "bursty": {"cv": 3.0, "slo_ttft_p95": 0.25},
    "estimate": {"simulate": False},
    "clients": {"rate": None, "concurrency": 200, "slo_ttft_p95": None},
    "no promise": {"slo_ttft_p95": None, "slo_tpot_p95": None},
}


@pytest.fixture(scope="module", params=CASES)
def plan(request):
    return made(**CASES[request.param])


def test_the_row_as_planned_is_the_plan(plan):
    row = next(row for row in plan.what_ifs if row.name == "as planned")
    assert (row.replicas, row.n_gpus) == (plan.chosen.replicas, plan.chosen.n_gpus)
    assert row.dollars_per_hour == pytest.approx(plan.chosen.dollars_per_hour)
    latency = plan.to_dict()["latency"]
    assert row.ttft_p95_s == pytest.approx(latency["ttft_p95_s"]["estimate"])
    assert row.tpot_p95_s == pytest.approx(latency["tpot_p95_s"]["estimate"])


def test_a_row_of_a_fleet_keeps_the_promises_or_says_which_it_misses(plan):
    """Also where only the simulation of another GPU showed that the estimate was too small."""
    for row in plan.what_ifs:
        if row.n_gpus is not None:
            missed = plan.slo.missed(row.ttft_p95_s, row.tpot_p95_s)
            assert bool(missed) == ("missed" in row.note), row


def test_sensitivities_start_from_the_plans_cost(plan):
    cost, price = plan.chosen.dollars_per_hour, plan.chosen.price
    for row in plan.sensitivities:
        assert row.base == cost
        assert row.low_gpus <= plan.chosen.n_gpus <= row.high_gpus
    by_name = {row.name: row for row in plan.sensitivities}
    assert by_name["price"].high == pytest.approx(price.high * plan.chosen.n_gpus)
    assert by_name["price"].low == pytest.approx(price.low * plan.chosen.n_gpus)


def test_a_simulation_that_needs_more_or_fewer_is_met_exactly():
    plan = made()
    run = plan.verified[1]
    estimated = max(1, math.ceil(plan.chosen.share_of_capacity(plan.demand)))
    for count in range(1, estimated + 4):
        now = fleet_operation(plan.chosen.curve, plan.demand, count) or plan.chosen.estimate
        option = _resized(plan.chosen, count, now)
        held = held_to(option, run, plan.demand)
        share = option.share_of_capacity(plan.demand)
        assert held.whole(share) == count
        # Twice the load takes no fewer than as many, and about twice as many at most.
        assert count <= held.whole(2 * share) <= 2 * count


def _resized(option, replicas, estimate):
    from dataclasses import replace

    return replace(option, replicas=replicas, estimate=estimate)


def test_prompts_apart_keep_the_gpus_and_decode_undisturbed():
    """Long prompts, so that prompts in between are what users feel between tokens."""
    plan = made(input_len=4000, output_len=100, rate=80.0, slo_ttft_p95=3.0, slo_tpot_p95=0.05)
    rows = [row for row in plan.what_ifs if row.name.startswith("prompts apart")]
    assert len(rows) == (1 < plan.chosen.replicas <= 8)
    assert rows, "the case must have several replicas"
    row = rows[0]
    counts = [int(word) for word in row.name.split() if word.isdigit()]
    assert sum(counts) == plan.chosen.replicas
    assert row.n_gpus == plan.chosen.n_gpus
    together = plan.verified[1].summary
    assert row.tpot_p95_s < together.tpot_p95_s
    assert 0 < row.ttft_p95_s < float("inf")


def test_no_fleet_that_keeps_the_promises_is_cheaper_than_the_chosen(plan):
    if not plan.tried:
        return
    assert all(one.dollars_per_hour >= plan.chosen.dollars_per_hour for one in plan.options)
    set_aside = {one.candidate for one in plan.rejections if one.stage == "simulation"}
    assert set_aside == {run.option.replica.candidate for run in plan.tried if not run.holds}


def test_a_promise_on_the_whole_answer_is_kept_and_costs():
    free = made(slo_ttft_p95=None, slo_tpot_p95=None)
    e2e = free.verified[1].e2e_s
    bound = made(slo_ttft_p95=None, slo_tpot_p95=None, slo_e2e_p95=0.7 * e2e)
    assert bound.verified[1].e2e_s <= 0.7 * e2e
    assert bound.chosen.dollars_per_hour >= free.chosen.dollars_per_hour
    with pytest.raises(cm.planner.InfeasiblePlan, match="E2E p95"):
        made(slo_e2e_p95=0.01)


def test_estimated_e2e_is_near_the_simulated():
    """Open arrivals at the planned load: within a fifth, as the other estimates."""
    plan = made()
    found, estimate = plan.verified[1].e2e_s, plan.chosen.estimate.e2e_p95_s
    assert estimate == pytest.approx(found, rel=0.2)
