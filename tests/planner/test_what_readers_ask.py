"""Doubts a careful reader has: how sure, which prices counted, which heads, what is not shown."""

import pytest

import capmodel as cm
from capmodel.planner import InfeasiblePlan
from capmodel.planner.doubts import surer, unmeasured

LOAD = {"rate": 4.0, "input_len": 1000, "output_len": 200, "slo_tpot_p95": 0.05}
# Of these the shipped calibrations hold rows of the first alone.
KNOWN, UNKNOWN = "h100-sxm", "rtx-4090"


@pytest.fixture(scope="module", params=[True, False])
def unsure(request):
    """The cheapest is on a GPU without a row, by its price."""
    prices = {KNOWN: 3.0, UNKNOWN: 0.01}
    return cm.plan(
        "llama-3.1-8b", [KNOWN, UNKNOWN], price=prices, simulate=request.param, **LOAD
    )  # fmt: skip


def test_beside_an_unmeasured_choice_stands_the_cheapest_measured_one(unsure):
    assert unsure.chosen.replica.candidate.gpu.name == UNKNOWN
    assert unmeasured(unsure.chosen, unsure.demand) == 2
    instead = unsure.to_dict()["measured_instead"]
    assert instead["gpu"] == KNOWN
    assert instead["simulated"] == bool(unsure.verified)
    assert any("measured runs cover" in line for line in unsure.warnings)
    better = surer(unsure.chosen, unsure.options, unsure.demand)
    grades = [unmeasured(one, unsure.demand) for one in better]
    assert grades == sorted(grades)
    first = [one.dollars_per_hour for one in better if unmeasured(one, unsure.demand) == grades[0]]
    assert first == sorted(first)
    if not unsure.verified:
        assert instead["dollars_per_hour"] == first[0]


def test_a_measured_choice_stands_alone():
    plan = cm.plan("llama-3.1-8b", KNOWN, weight_dtype="bf16", kv_dtype="bf16", tp=1,
                   simulate=False, **LOAD)  # fmt: skip
    document = plan.to_dict()
    if not unmeasured(plan.chosen, plan.demand):
        assert document["measured_instead"] is None
    assert not surer(plan.chosen, [plan.chosen], plan.demand)


def test_a_price_of_a_gpu_that_is_no_candidate_is_said():
    """Under any of its names, also where nothing can be planned; `*` is every GPU's."""
    given = {"h100": 2.0, "h200": 3.0, "*": 4.0}
    plan = cm.plan("llama-3.1-8b", "h100", price=given, simulate=False, **LOAD)
    lines = [line for line in plan.warnings if "among the candidates" in line]
    assert len(lines) == 1
    assert lines[0].startswith("a price is given for h200-sxm, which is not")
    assert plan.chosen.price.estimate == 2.0
    with pytest.raises(InfeasiblePlan) as error:
        cm.plan(
            "llama-3.1-8b", "h100", price=given, simulate=False, **{**LOAD, "slo_tpot_p95": 1e-6}
        )
    assert lines[0] in error.value.plan.warnings
    silent = cm.plan("llama-3.1-8b", "h100", price=2.0, simulate=False, **LOAD)
    assert not any("among the candidates" in line for line in silent.warnings)


@pytest.mark.parametrize("tp", [3, 128])
def test_heads_that_do_not_divide_are_the_reason_and_what_divides_them_is_said(tp):
    with pytest.raises(
        InfeasiblePlan, match=r"no candidate can divide .* 64 attention heads .*use 8|use 1, 2, 4"
    ) as error:
        cm.plan("llama-3-70b", "h100", tp=tp, simulate=False, **LOAD)
    assert "can hold" not in str(error.value)
    assert {one.stage for one in error.value.plan.rejections} == {"tp"}
    mixed = cm.plan("llama-3-70b", "h100", tp=[tp, 8], simulate=False, **LOAD)
    assert {one.stage for one in mixed.rejections if one.candidate.tp == tp} == {"tp"}


def test_a_sensitivity_that_cannot_be_says_why():
    """A promise on tokens just above what one sequence takes: the slow end passes it."""
    one = {"tp": 1, "weight_dtype": "bf16", "kv_dtype": "bf16", "simulate": False, **LOAD}
    free = cm.plan("llama-3.1-8b", "h100", **one)
    fastest = free.chosen.capacity.lightest.tpot_p95_s
    assert free.to_dict()["sensitivities_left_out"] == []
    tight = cm.plan("llama-3.1-8b", "h100", **{**one, "slo_tpot_p95": 1.04 * fastest})
    assert tight.chosen.replica.high_factor > 1.04
    names = {row.name for row in tight.sensitivities}
    (left_out,) = tight.to_dict()["sensitivities_left_out"]
    assert left_out["name"] == "step time"
    assert "step time" not in names
    assert f"x {tight.chosen.replica.high_factor:.3f}" in left_out["reason"]
    assert "TPOT p95" in left_out["reason"]
    assert "promised" in left_out["reason"]


def test_of_what_does_not_fit_the_closest_is_the_one_that_lacks_least():
    with pytest.raises(InfeasiblePlan) as error:
        cm.plan("llama-3-70b", ["l4", "t4"], tp=1, simulate=False, **LOAD)
    plan = error.value.plan
    lacking = [one.lacking_bytes for one in plan.rejections if one.lacking_bytes is not None]
    assert plan.closest.lacking_bytes == min(lacking)
    assert plan.closest.candidate.weight_dtype == "int4"
    assert plan.closest.candidate.gpu.name == "l4"
