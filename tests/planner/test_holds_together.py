"""Plans beside each other: more work is never cheaper; a short simulation tells of a long run."""

from dataclasses import replace

import pytest
from rates import NameplateCalibration

import capmodel as cm
from capmodel.planner import InfeasiblePlan
from capmodel.planner.demand import demand
from capmodel.planner.verify import run_fleet
from capmodel.workload import Fixed, Lognormal, Slo, Workload

PROMPTS, ANSWERS = Lognormal(900, 0.8, 6000), Lognormal(200, 0.8, 1500)
LOAD = {
    "rate": 8.0, "input_len": PROMPTS, "output_len": ANSWERS, "slo_ttft_p95": 0.8,
    "slo_tpot_p95": 0.03,
}  # fmt: skip


def costs(changes):
    """Dollars an hour of each of the plans; infinite where there is none."""
    found = []
    for change in changes:
        try:
            plan = cm.plan(
                "llama-3.1-8b", ["h100", "l40s"], simulate=False, **{**LOAD, **change},
                calibration=NameplateCalibration(),
            )  # fmt: skip
            found.append(plan.chosen.dollars_per_hour)
        except InfeasiblePlan:
            found.append(float("inf"))
    return found


@pytest.mark.parametrize(
    "changes",
    [
        [{"rate": 2.0 * 4**power} for power in range(4)],
        [{"slo_tpot_p95": 0.12 / 2**power} for power in range(5)],
        [{"slo_ttft_p95": 3.2 / 3**power} for power in range(4)],
        [{"price": {"h100": dollars, "l40s": 1.5}} for dollars in (0.4, 1.6, 6.4)],
        [{"output_len": Lognormal(100 * 3**power, 0.5)} for power in range(3)],
    ],
    ids=["rate", "tpot", "ttft", "price", "answers"],
)
def test_more_work_tighter_promises_and_dearer_gpus_never_cost_less(changes):
    found = costs(changes)
    assert found == sorted(found)
    assert found[0] < found[-1]


def test_a_fleet_is_judged_full_and_not_while_it_fills_up():
    """250 sequences on each of 30 replicas: 1,500 requests never fill 8 of them.

    The tail of the tokens lies within a tenth of that of a run five times as long; played on 8
    replicas the short one is 40 % too fast.
    """
    asked = {"rate": 800.0, "input_len": 500, "output_len": Lognormal(300, 0.6, 1500)}
    plan = cm.plan(
        "llama-3.1-8b", "h100", tp=1, weight_dtype="bf16", kv_dtype="fp8", simulate=False,
        slo_tpot_p95=0.04, calibration=NameplateCalibration(), **asked,
    )  # fmt: skip
    load, slo, option = demand(**asked), Slo(tpot_s=0.04), plan.chosen
    assert option.replicas * option.estimate.batch > len(load.requests)
    workload = Workload(Fixed(500), asked["output_len"], rate=asked["rate"])
    longer = replace(load, requests=workload.draw(5 * len(load.requests), 1))
    short, long = run_fleet(option, load, slo), run_fleet(option, longer, slo)
    assert short.replicas_simulated < long.replicas_simulated
    assert short.tpot_s == pytest.approx(long.tpot_s, rel=0.1)
