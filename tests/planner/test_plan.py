"""`plan` end to end, on step times one can follow: datasheet rates at fixed shares."""

import itertools
import json

import numpy as np
import pytest
from rates import NameplateCalibration

import capmodel as cm
from capmodel.gpus import load_gpu
from capmodel.planner import InfeasiblePlan
from capmodel.workload import Lognormal, Requests, SharedPrefix

CALIBRATION = NameplateCalibration()
CHAT = {
    "input_len": Lognormal(900, 0.8, 6000),
    "output_len": Lognormal(150, 0.8, 1500),
    "calibration": CALIBRATION,
}


def chat(model="llama-3.1-8b", gpu=("h100", "a100-80gb"), **changes):
    arguments = {"rate": 20.0, "slo_ttft_p95": 1.0, "slo_tpot_p95": 0.05, **CHAT, **changes}
    return cm.plan(model, list(gpu) if gpu else None, **arguments)


@pytest.fixture(scope="module")
def plan():
    return chat()


def test_the_chosen_fleet_keeps_its_promises_in_simulation(plan):
    assert plan.feasible
    assert plan.verified[1].holds
    summary = plan.verified[1].summary
    assert summary.ttft_p95_s <= 1.0
    assert summary.tpot_p95_s <= 0.05


def test_a_prompt_reads_its_experts_once_and_not_with_every_step():
    """8,000 tokens in one step of DeepSeek-V3: the estimate is near what is simulated, 0.3 s."""
    load = {"rate": 0.2, "input_len": 8000, "output_len": 200, "slo_ttft_p95": 5.0}
    one = {"gpu": ["b200"], "tp": [8], "weight_dtype": ["fp8"], "kv_dtype": ["fp8"], **load}
    estimated = cm.plan("deepseek-v3", **one, simulate=False).to_dict()["latency"]
    simulated = cm.plan("deepseek-v3", **one).to_dict()["latency"]
    for name in ("ttft_mean_s", "ttft_p95_s"):
        found, played = (one[name]["estimate"] for one in (estimated, simulated))
        assert 0.1 < played < 1.0
        assert 0.6 < found / played < 1.7


def test_nothing_simulated_and_holding_is_cheaper(plan):
    cost = plan.chosen.dollars_per_hour
    assert all(run.option.dollars_per_hour >= cost for run in plan.tried if run.holds)
    assert all(one.dollars_per_hour >= cost for one in plan.options)


def test_one_replica_less_would_not_do(plan):
    """By the estimate: fewer replicas than sized pass a promise or the curve's end."""
    from capmodel.planner.sizing import fleet_operation

    option = next(one for one in plan.options if one.replicas > 1)
    fewer = fleet_operation(option.curve, plan.demand, option.replicas - 1)
    assert fewer is None or plan.slo.missed(fewer.ttft_p95_s, fewer.tpot_p95_s)


def test_low_estimate_and_high_are_in_order(plan):
    latency = plan.to_dict()["latency"]
    for name in ("ttft_p95_s", "tpot_p95_s", "e2e_mean_s"):
        ends = latency[name]
        assert ends["low"] < ends["estimate"] < ends["high"]
    low, estimate, high = plan.fleet.dollars_per_hour
    assert low <= estimate <= high


def test_the_front_is_sorted_and_not_dominated(plan):
    front = plan.front
    assert len(front) > 1
    for cheap, dear in itertools.pairwise(front):
        assert cheap.dollars_per_hour <= dear.dollars_per_hour
        assert cheap.operation.e2e_mean_s > dear.operation.e2e_mean_s


def test_the_dict_is_json_and_tells_the_same(plan):
    document = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    best = document["recommendation"]
    assert best["n_gpus"] == best["replicas"] * best["tp"] == plan.chosen.n_gpus
    assert document["message"] == plan.message
    costs = document["costs"]
    total = (
        3600
        / 1e6
        * (
            costs["per_million_input"] * costs["input_tok_s"]
            + costs["per_million_output"] * costs["output_tok_s"]
        )
    )
    assert total == pytest.approx(best["dollars_per_hour"]["estimate"])
    parts = document["memory"]
    names = ("weights", "activation", "graphs", "non_torch", "cache", "outside")
    assert sum(parts[f"{name}_bytes"] for name in names) == pytest.approx(parts["capacity_bytes"])
    assert {line["kind"] for line in document["assumptions"]} <= {
        "given", "measured", "datasheet", "guessed"
    }  # fmt: skip


def test_same_seed_same_plan(plan):
    assert chat().to_dict() == plan.to_dict()


def test_more_load_costs_more_and_half_costs_no_more(plan):
    more = chat(rate=200.0, simulate=False)
    assert more.chosen.dollars_per_hour > plan.chosen.dollars_per_hour
    rows = {row.name: row for row in plan.what_ifs}
    planned = rows["as planned"].dollars_per_hour
    assert rows["half the load"].dollars_per_hour <= planned
    assert rows["prompts doubled"].ttft_p95_s > rows["as planned"].ttft_p95_s


def test_attention_what_ifs_follow_their_cache():
    """Llama-3.1-8B keeps 8 of 32 heads: MHA takes four times the cache, MQA an eighth."""
    found = chat(gpu=("h100",), tp=1, weight_dtype="bf16", kv_dtype="bf16", simulate=False)
    fits = {row.name: row.fits for row in found.what_ifs}
    grouped = fits["as planned"]
    assert fits["MHA attention"] == pytest.approx(grouped / 4, rel=0.05)
    assert fits["MQA attention"] == pytest.approx(grouped * 8, rel=0.05)
    assert fits["fp8 cache"] == pytest.approx(grouped * 2, rel=0.05)


def test_prefixes_save_and_are_priced():
    prefix = SharedPrefix(512, 1.0, 4)
    one = {"gpu": ("h100",), "tp": 1, "weight_dtype": "bf16", "kv_dtype": "bf16"}
    warm = chat(prefix=prefix, simulate=False, **one)
    cold = chat(prefix=prefix, prefix_cache=False, simulate=False, **one)
    assert warm.demand.mix.hit_share > 0.4
    assert warm.chosen.capacity.rate > cold.chosen.capacity.rate
    costs = warm.to_dict()["costs"]
    # The pool has room, so a cached token takes nothing from anyone.
    assert costs["per_million_cached"] == 0 < costs["per_million_input"]
    assert any(row.name == "prefix cache off" for row in warm.what_ifs)


def test_a_given_price_needs_no_catalogue_and_has_no_range():
    found = chat(price={"*": 2.0}, simulate=False)
    low, estimate, high = (
        found.chosen.price.low, found.chosen.price.estimate, found.chosen.price.high
    )  # fmt: skip
    assert low == estimate == high == 2.0
    assert found.chosen.dollars_per_hour == 2.0 * found.chosen.n_gpus
    by_alias = chat(gpu=("h100",), price={"h100": 3.0}, simulate=False)
    assert by_alias.chosen.price.estimate == 3.0
    with pytest.raises(ValueError, match="not in the catalogue"):
        chat(price={"h1000": 3.0}, simulate=False)


def test_the_whole_catalogue_is_searched_when_no_gpu_is_named():
    found = chat(gpu=None, simulate=False)
    looked = {one.replica.candidate.gpu.name for one in found.options}
    assert len(looked) > 8
    assert {one.stage for one in found.rejections} >= {"memory", "price"}
    cheapest = min(one.dollars_per_hour for one in found.options)
    assert found.chosen.dollars_per_hour == cheapest


def test_clients_closed_loop():
    found = chat(rate=None, concurrency=100, slo_ttft_p95=None)
    summary = found.verified[1].summary
    assert found.chosen.replicas >= 1
    assert summary.mean_in_system <= 100
    assert found.demand.rate is None


def test_caps_and_risks_rise(plan):
    risks = [risk.overflow for risk in plan.clients.risks]
    assert risks == sorted(risks)
    assert plan.clients.fits["p5"] < plan.clients.fits["p50"] < plan.clients.fits["p95"]
    assert plan.clients.max_num_seqs >= plan.chosen.estimate.batch


def test_an_impossible_promise_names_the_closest():
    with pytest.raises(
        InfeasiblePlan, match=r"closest.*TPOT p95 .* ms with hardly any load"
    ) as failed:
        chat(slo_tpot_p95=1e-4)
    document = failed.value.plan.to_dict()
    assert document["feasible"] is False
    assert document["recommendation"] is None
    assert document["closest"]["tpot_p95_s"] > 1e-4
    every = [row["tpot_p95_s"] for row in document["rejected"] if row["tpot_p95_s"]]
    assert document["closest"]["tpot_p95_s"] == min(every)
    json.dumps(document, allow_nan=False)


def test_a_model_too_large_for_every_gpu_says_what_is_missing():
    with pytest.raises(InfeasiblePlan, match=r"no candidate can hold deepseek-v3.*GB too much"):
        chat("deepseek-v3", gpu=("l4",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": -1.0}, "rate=-1"),
        ({"rate": 1e300}, r"rate=1e\+300, but expected requests/s"),
        ({"rate": None, "concurrency": 10**9}, "concurrency=1000000000"),
        ({"slo_e2e_p95": -1.0}, "slo_e2e_p95=-1"),
        ({"date": "tomorrow"}, "date='tomorrow'"),
        ({"engine": " "}, "engine="),
        ({"tp": 0}, "tp=0"),
        ({"tp": []}, "empty list"),
        ({"price": -2.0}, "price=-2"),
        ({"price": float("nan")}, "price=nan"),
        ({"gpu": ("a100",)}, "ambiguous"),
        ({"gpu": ("t400",)}, "not in the catalogue"),
        ({"weight_dtype": "q4_k_m"}, "weight dtype"),
        ({"slo_ttft_p95": 0.0}, "slo_ttft_p95=0"),
        ({"slo_tpot_p95": float("nan")}, "slo_tpot_p95=nan"),
        ({"memory_fraction": 1.5}, "memory_fraction"),
        ({"input_len": 200_000}, "context limit"),
        ({"trace": "nowhere.csv", "input_len": None, "output_len": None}, "cannot be read"),
    ],
)
def test_bad_input_names_the_value(changes, message):
    with pytest.raises(ValueError, match=message):
        chat(**changes)


def test_the_shipped_calibrations_make_a_plan():
    """No prompt beats the peak: a 70B model's load of 8 x 1,000 prompt tokens/s on an H100.

    2 x 69.5e9 FLOP a token, 989.5 TFLOP/s dense: at least 0.14 ms a token, so 0.8 replicas of
    one GPU by compute alone, and no fewer than two with any decoding beside.
    """
    found = cm.plan(
        "llama-3-70b", "h100", rate=8.0, input_len=1000, output_len=100, tp=1,
        weight_dtype="int4", kv_dtype="fp8", simulate=False,
    )  # fmt: skip
    assert found.chosen.replicas >= 2
    assert 0 < found.chosen.replica.prompts.peak_share <= 1
    assert found.chosen.replica.calibration_id
    low, high = found.chosen.replica.low_factor, found.chosen.replica.high_factor
    assert low <= 1 <= high
    lines = {line["what"]: line for line in found.to_dict()["assumptions"]}
    assert "of the dense peak" in lines["prompts"]["value"]


def test_a_fleet_beyond_the_measured_lengths_is_less_sure():
    """Each option's interval is that of the batch and context it works at."""
    ask = {"rate": 0.5, "output_len": 200, "tp": 1, "engine": "vllm", "simulate": False}
    kind = {"weight_dtype": "bf16", "kv_dtype": "bf16"}
    near, far = (
        cm.plan("llama-3.1-8b", "h100", input_len=tokens, **ask, **kind).to_dict()["calibration"]
        for tokens in (1000, 30_000)
    )
    assert near["id"] == far["id"]
    assert far["low_factor"] < near["low_factor"] < 1 < near["high_factor"] < far["high_factor"]


@pytest.mark.parametrize(
    ("engine", "said"),
    [("trtllm", None), ("vlm", "did you mean vllm"), ("mine", "stands by itself")],
)
def test_an_engine_nobody_knows_is_said(engine, said):
    found = cm.plan(
        "llama-3-8b", "h100", rate=1.0, input_len=500, output_len=50, tp=1, engine=engine,
        simulate=False,
    )  # fmt: skip
    told = [line for line in found.warnings if line.startswith("engine ")]
    assert told == [] if said is None else said in told[0]


def test_a_short_gpu_name_is_said_to_be_read_as_another_and_a_full_one_is_not():
    def said(*gpu):
        found = chat(gpu=gpu, simulate=False).to_dict()
        ledger = [line["value"] for line in found["assumptions"] if line["what"] == "GPU name"]
        return [one for one in found["warnings"] if "is read as" in one], ledger

    short = ["h100 is read as the 80 GB SXM part"]
    assert said("h100") == (short, short)
    assert said("h100-sxm") == said("H100_SXM") == said(load_gpu("h100-sxm")) == ([], [])
    both = chat(gpu=("h100", "h100-sxm"), simulate=False)
    assert len(both.options) == len(chat(gpu=("h100",), simulate=False).options)


def test_named_gpus_without_a_price_ask_for_one():
    own = {"name": "mine", "memory_bytes": 8e10, "memory_reported_bytes": 8e10,
           "bandwidth_bytes_per_s": 2e12, "bf16_flops_per_s": 4e14}  # fmt: skip
    with pytest.raises(ValueError, match="No price is known"):
        chat(gpu=[own])
    assert chat(gpu=[own], price=1.0, simulate=False).chosen.price.estimate == 1.0


def test_answers_of_one_token_miss_no_promise_on_further_ones():
    found = chat(output_len=1, slo_tpot_p95=1e-3)
    assert found.feasible
    assert found.chosen.estimate.tpot_p95_s == found.chosen.estimate.tpot_mean_s == 0


def test_the_lowest_load_and_the_most_clients_are_planned_like_any():
    """Three million requests would be drawn for a million clients, and simulated for hours."""
    one = {"gpu": ("h100",), "tp": 1, "weight_dtype": "fp8", "kv_dtype": "fp8"}
    idle = chat(rate=1e-9, **one)
    assert idle.chosen.n_gpus == 1
    crowd = chat(rate=None, concurrency=10**6, slo_ttft_p95=None, **one)
    assert len(crowd.demand.requests) < 10**5
    assert crowd.chosen.replicas > 100


@pytest.mark.parametrize("trace", [[0.0], [0.0, 0.0]])
def test_a_trace_of_one_moment_has_no_rate(trace):
    requests = Requests(np.array(trace), np.full(len(trace), 500), np.full(len(trace), 50))
    free = {"input_len": None, "output_len": None, "rate": None}
    with pytest.raises(ValueError, match="no rate; give rate or concurrency"):
        chat(trace=requests, **free)
    assert chat(trace=requests, **{**free, "concurrency": 2}, simulate=False).feasible


@pytest.mark.parametrize(("high_factor", "ending"), [(1.2, "would be needed"), (1.4, "there too")])
def test_the_slow_end_promises_no_number_of_replicas_that_was_not_seen_to_do(high_factor, ending):
    found = chat(
        gpu=("h100",), tp=(1,), weight_dtype=("bf16",), kv_dtype=("bf16",), slo_ttft_p95=0.4,
        slo_tpot_p95=0.0122, rate=40.0, calibration=NameplateCalibration(high_factor=high_factor),
    )  # fmt: skip
    slow = found.verified[-1]
    assert slow.missed
    told = [line for line in found.warnings if "at the slow end" in line]
    assert len(told) == 1
    assert told[0].endswith(ending)
    assert f"{found.chosen.replicas_high} replicas" in told[0]
