"""How far a plan may be trusted, told where it decides: never more than its own figures bear."""

import copy

import plans
import pytest

from capmodel.plots.choices import Candidate
from capmodel.report.card import coefficient_blocks, rows_blocks, term_blocks
from capmodel.report.document import Bullets, Facts, Pairs, Table, Text, Verdict
from capmodel.report.fields import one_fails_words
from capmodel.report.plan import plan_document
from capmodel.report.plan_choices import alternatives_blocks, rejected_blocks, sensitivity_blocks
from capmodel.report.plan_decision import decision_blocks, doubt_words, never_kept
from capmodel.report.plan_figures import near_the_front, tornado_picture
from capmodel.report.plan_sections import ledger_blocks, steps_blocks


def _first(plan, kind):
    return next(block for block in decision_blocks(plan) if isinstance(block, kind))


def _said(plan, lead):
    texts = [block for block in decision_blocks(plan) if isinstance(block, Text)]
    return next(block.text for block in texts if block.lead == lead)


def _with_interval(low, high):
    """The plan, its steps and interval as a calibration with these ends gives them."""
    made = plans.plan()
    made["calibration"] |= {"low_factor": low, "high_factor": high}
    for row in made["steps"]:
        middle = row["step_s"][1]
        row["step_s"] = [low * middle, middle, high * middle]
    return made


def test_an_interval_says_how_often_it_holds():
    assert _said(_with_interval(0.8, 1.25), "How sure.").startswith(
        "In 9 of 10 cases the step time is 0.800 to 1.25 times the estimate"
    )
    assert "No interval" in _said(_with_interval(1.0, 1.0), "How sure.")


def test_a_step_time_that_is_hardly_known_is_no_ground_to_buy_on():
    known, unknown = _with_interval(0.8, 1.25), _with_interval(0.4, 38.0)
    assert _first(known, Verdict).tone == "yes"
    assert doubt_words(known) == ""
    assert _first(unknown, Verdict).tone == "caution"
    assert "hardly known" in _first(unknown, Verdict).text


def test_no_count_of_replicas_is_named_where_none_keeps_the_promise():
    made = _with_interval(0.4, 38.0)
    # One sequence alone: 10 ms and more at the estimate is beyond 50 ms at 38 times that.
    assert made["steps"][0]["step_s"][1] > 0.05 / 38
    assert never_kept(made)
    fleet, cost, *_ = _first(made, Facts).items
    assert "none suffice" in fleet.note
    assert cost.note.endswith("and more")
    made["slo"]["tpot_s"] = None
    assert not never_kept(made)
    assert "none suffice" not in _first(made, Facts).items[0].note


@pytest.mark.parametrize(
    ("basis", "said"),
    [("vllm on h100-sxm", "deployments left out of the fit the estimate is 6.7 %"),
     ("all engines and GPUs pooled", "GPUs left out of the fit the estimate is 43.9 %"),
     (None, "GPUs left out of the fit the estimate is 43.9 %")],
)  # fmt: skip
def test_the_error_named_is_that_of_what_the_plan_does(basis, said):
    made = plans.plan()
    row = dict.fromkeys(("median_ape", "p90_ape", "bias", "r2", "r2_log", "coverage_90"), 0.1)
    made["calibration"] |= {
        "basis": basis,
        "grade_card": [
            {**row, "split": split, "estimator": estimator, "mape": mape, "n": 9}
            for split, estimator, mape in [
                ("deployment", "roofline", 0.103),
                ("deployment", "regressor", 0.067),
                ("gpu", "roofline", 0.439),
            ]
        ],
    }
    assert said in _said(made, "How sure.")


def test_a_batch_that_is_not_reached_is_no_dash():
    made = plans.plan()
    made["crossover"]["cache_longest_from"] = None
    pairs = [b for b in steps_blocks(made) if isinstance(b, Pairs)]
    assert dict(pairs[0].items)["Cache reads take longest from"] == "no batch looked at"


def test_the_day_can_be_given_again():
    pairs = [b for b in plan_document(plans.plan()).sections[-1].blocks if isinstance(b, Pairs)]
    assert dict(pairs[0].items)["Date"] == "2026-03-01 (--date 2026-03-01)"


def test_every_reason_names_the_gpus_it_stopped_also_past_the_rows_shown():
    made = plans.forty()
    priceless = {**made["rejected"][0], "stage": "price", "gpu": "priceless"}
    made["rejected"] += [priceless, {**priceless, "tp": 2}]
    bullets = next(b for b in rejected_blocks(made) if isinstance(b, Bullets)).items
    assert "2: no price is known (priceless)" in bullets
    assert any("and 28 more" in line for line in bullets)


def test_rows_set_aside_say_why():
    table = rows_blocks({"read": 9, "used": 7, "set_aside": {"below_floor": 1, "odd": 1}}, ())[1]
    assert isinstance(table, Table)
    why = {row[0]: row[2] for row in table.rows}
    assert why["below_floor"] == "faster than its bytes can be read or its FLOP done"
    assert why["odd"] == "–"


@pytest.mark.parametrize(
    ("ttft", "tpot", "said"),
    [(3.0, 0.01, "miss the promised TTFT"), (3.0, 0.1, "miss the promised TTFT and TPOT"),
     (1.0, 0.01, "miss a promise")],
)  # fmt: skip
def test_which_promises_one_failure_breaks(ttft, tpot, said):
    made = plans.plan()
    made["recommendation"]["replicas"] = 3
    made["recommendation"]["spare"] |= {
        "keeps_promises": False,
        "one_fails": {"ttft_p95_s": ttft, "tpot_p95_s": tpot, "e2e_p95_s": 9.0},
    }
    assert one_fails_words(made).endswith(said)


@pytest.mark.parametrize(
    ("change", "said"),
    [({}, "told apart"), ({"at_bound": True, "value": 0.0}, "zero fits best"),
     ({"standard_error": 1.0}, "zero is in the interval"),
     ({"identified": False}, "the prior stands"),
     ({"name": "c_prefill", "value": 0.0, "at_bound": True}, "plans guess instead"),
     ({"name": "c_prefill", "value": 2.0}, "told apart")],
)  # fmt: skip
def test_what_the_rows_tell_of_a_coefficient(change, said):
    term = {
        "name": "c_f", "value": 1.5, "standard_error": 0.1, "unit": "1/share of peak",
        "at_bound": False, "identified": True, **change,
    }  # fmt: skip
    (table,) = term_blocks([term], "vllm on h100-sxm")
    assert isinstance(table, Table)
    assert table.rows[0][-1].endswith(said)


def test_the_figure_of_costs_is_not_pressed_flat():
    front = [Candidate("cheap", 8.0, 7.0, True, chosen=True), Candidate("fast", 2.0, 80.0, True)]
    near, far = Candidate("near", 9.0, 119.0, True), Candidate("far", 9.0, 121.0, True)
    assert near_the_front([*front, near, far]) == [*front, near]
    dear = Candidate("chosen", 9.0, 1000.0, True, chosen=True)
    assert dear in near_the_front([*front, dear])


def test_fleets_left_out_of_the_figure_are_counted():
    made = plans.plan()
    best = made["recommendation"]
    made["alternatives"] = [
        one
        for one in made["alternatives"]
        if one["dollars_per_hour"] < 2 * best["dollars_per_hour"]["estimate"]
    ]
    far = {**best, "gpu": "far", "dollars_per_hour": 1e5}
    made["alternatives"].append(copy.deepcopy(far))
    assert "Not drawn: 1 whose cost" in decision_blocks(made)[-1].caption


def test_a_divided_fleet_says_which_replicas_do_what():
    made = plans.plan()
    best = made["recommendation"]
    split = {"replicas": 3, "prefill_replicas": 1, "decode_replicas": 2}
    made["recommendation"] = {**best, **split}
    assert "(1 for prompts alone, 2 to decode)" in _first(made, Verdict).text
    made["pareto"] = [{**made["pareto"][0], **split}]
    blocks = alternatives_blocks(made)
    assert isinstance(blocks[0], Text)
    assert "takes the prompts alone" in blocks[0].text
    fleets = [row[0] for block in blocks if isinstance(block, Table) for row in block.rows]
    assert any(fleet.startswith("(1 + 2) × ") for fleet in fleets)


def test_the_figures_of_a_fleet_on_firmer_ground_are_listed():
    made = plans.plan()
    best = made["recommendation"]
    firmer = {
        **best, "gpu": "measured-gpu", "dollars_per_hour": 123.0, "covered": "wholly",
        "simulated": True, "ttft_p95_s": 0.4, "tpot_p95_s": 0.03,
    }  # fmt: skip
    made["measured_instead"] = firmer
    tables = [b for b in alternatives_blocks(made) if isinstance(b, Table)]
    # Among the fleets, and with its own latencies.
    assert sum("measured-gpu" in str(table.rows) for table in tables) == 2
    made["measured_instead"] = None
    assert "measured-gpu" not in str(alternatives_blocks(made))


def test_a_plan_from_generated_runs_says_so_before_anything_else():
    made = plans.plan()
    assert _first(made, Verdict).headline != "Made from synthetic runs"
    made["calibration"]["sources"] = ["synthetic: generated by capmodel.make_runs, not measured"]
    assert decision_blocks(made)[0].headline == "Made from synthetic runs"


def test_latencies_have_columns_only_where_something_was_set_aside_for_them():
    made = plans.plan()
    row = {**made["rejected"][0], "ttft_p95_s": None, "tpot_p95_s": 0.0073, "e2e_p95_s": None}
    made["rejected"] = [row, {**row, "tpot_p95_s": None}]
    table = next(block for block in rejected_blocks(made) if isinstance(block, Table))
    assert [column.title for column in table.columns][-2:] == ["Why", "TPOT p95"]


def test_an_input_that_cannot_move_the_cost_has_no_bar():
    moved = plans.plan()["sensitivities"]
    still = {**moved[0], "name": "price given", "low": 3.0, "high": 3.0}
    assert "price given" not in tornado_picture([*moved, still]).svg
    assert "price given" in tornado_picture([still]).svg  # rather than no figure at all


def test_the_coefficients_of_many_fits_stay_one_table():
    """A fit that many terms hold at a bound takes no more room in it than another."""
    held = ["c_f", "c_bus", "c_cross", "c_prefill", "c_request", "c_sequence"]
    rows = [
        {
            "engine": f"engine-{i}", "gpu": "a100-80gb-sxm", "rows": 900, "mape": 0.1,
            "c_step": 1e-5, "c_w": 1.2, "c_kv": 1.1, "c_f": 0.0,
            "at_bound": held if i else ["c_bus"],
        }
        for i in range(20)
    ]  # fmt: skip
    table, _, bounds = coefficient_blocks(rows, named=False)
    assert isinstance(table, Table)
    assert table.whole
    assert isinstance(bounds, Pairs)
    assert dict(bounds.items)["c_bus"] == "all"
    assert dict(bounds.items)["c_f"] == "all but engine-0 on a100-80gb-sxm"
    few = [{**row, "at_bound": ["c_link"] if i == 3 else []} for i, row in enumerate(rows)]
    assert coefficient_blocks(few)[2].items == (
        ("c_link", "all-reduced bytes, own links: engine-3 on a100-80gb-sxm"),
    )


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [(124.0, 6.4, "124 ± 11"), (0.843, 0.047, "0.843 ± 0.078"), (0.048, 0.72, "0.0480 ± 1.2"),
     (1.52, 11.7, "1.52 ± 20"), (2.0, 0.0, "2.00 ± 0.00")],
)  # fmt: skip
def test_an_error_has_two_digits_at_most(value, error, said):
    row = {"engine": "vllm", "gpu": "h100", "rows": 9, "c_step": 1e-6 * value}
    row |= dict.fromkeys(("c_w", "c_kv", "c_f")) | {"standard_errors": {"c_step": 1e-6 * error}}
    (table,) = coefficient_blocks([row])
    assert table.rows[0][3] == said


def test_a_single_price_is_no_range():
    made = plans.plan()
    cost = made["recommendation"]["dollars_per_hour"]
    assert _first(made, Facts).items[1].note.startswith("$")
    made["recommendation"]["dollars_per_hour"] = dict.fromkeys(cost, 2.4)
    assert _first(made, Facts).items[1].note == "the same at either end"
    same = {"low_input": "$2.40/GPU-hour", "high_input": "$2.40/GPU-hour"}
    made["sensitivities"][-1] |= same
    table = next(block for block in sensitivity_blocks(made) if isinstance(block, Table))
    assert table.rows[-1][1:3] == ("$2.40/GPU-hour", "the same")


def test_the_ledger_says_what_each_of_its_kinds_is():
    made = plans.plan()
    (table,) = ledger_blocks(made)
    assert "Generated" not in table.caption
    made["assumptions"][2]["kind"] = "generated"
    kinds = {row["kind"] for row in made["assumptions"]}
    (table,) = ledger_blocks(made)
    assert "nothing was run" in table.caption
    assert 2 in table.strong
    assert all(f"{kind.capitalize()}:" in table.caption for kind in kinds - {"measured"})
