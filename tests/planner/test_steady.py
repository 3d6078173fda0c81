"""The steady state: closed forms, and the simulator as the independent answer."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rates import NameplateCalibration

from capmodel.gpus import load_gpu
from capmodel.planner.candidate import Candidate
from capmodel.planner.curve import load_curve
from capmodel.planner.demand import busiest_stretch, changed, demand
from capmodel.planner.mix import endless_hits, length_mix
from capmodel.planner.pool import overflow_risk, pool_batch
from capmodel.planner.replica import DoesNotFit, Setting, replica_of
from capmodel.planner.sizing import capacity_of, fleet_operation
from capmodel.shapes import load_shape
from capmodel.simulation import prefill_first, simulate, summarise
from capmodel.workload import Fixed, Lognormal, Requests, SharedPrefix, Slo, Workload


def replica(
    gpu="h100", tp=1, weight_dtype="bf16", kv_dtype="bf16", model="llama-3.1-8b", longest=1
):
    setting = Setting(NameplateCalibration(), longest_request=longest)
    return replica_of(
        load_shape(model), Candidate(load_gpu(gpu), tp, weight_dtype, kv_dtype), setting
    )


def test_fixed_lengths_hold_prompt_plus_half_the_output():
    """A growing request's mean context is prompt + output / 2 (PHYSICS section 5)."""
    mix = length_mix(Workload.fixed(1000, 201, rate=1.0).draw(100))
    assert mix.held_mean == pytest.approx(1000 + 200 / 2, rel=1e-3)
    assert mix.steps_mean == 200


def test_long_outputs_weigh_more_in_what_is_held():
    """Two kinds, 100 + 10 and 1,000 + 910 tokens, half each: 9 and 909 steps.

    Held: (9 * 104.5 + 909 * 1454.5) / 918 = 1441.3.
    """
    requests = Requests(np.arange(100.0), np.array([100, 1000] * 50), np.array([10, 910] * 50))
    assert length_mix(requests).held_mean == pytest.approx(1441.3, rel=0.01)


def test_endless_hits_are_blocks_seen_before_and_leave_one_token():
    """Prompts of 64, 64 and 48 tokens in blocks of 16; the third repeats all of its blocks."""
    requests = Requests(
        np.arange(3.0),
        np.array([64, 64, 48]),
        np.array([1, 1, 1]),
        np.array([1, 2, 3, 4, 1, 2, 8, 9, 1, 2, 3]),
        np.array([0, 4, 8, 11]),
        16,
    )
    assert endless_hits(requests).tolist() == [0, 32, 47]


def test_mooncake_finds_the_published_share(shared_data):
    """An endless cache finds 37 % of the trace's blocks."""
    from capmodel.workload import read_trace

    trace = read_trace(shared_data / "traces" / "mooncake_conversation_trace.jsonl")
    mix = length_mix(trace, prefix_cache=True)
    assert mix.hit_share == pytest.approx(0.37, abs=0.01)


def test_a_pool_holds_as_many_fixed_requests_as_one_can_divide():
    """Without spread the pool is a quotient: no room for chance."""
    one = replica()
    requests = Requests(np.arange(50.0), np.full(50, 1600), np.ones(50, dtype=int))
    mix = length_mix(requests)
    assert pool_batch(one, mix) == pytest.approx(one.pool_blocks / 100, rel=1e-6)


def test_engines_schedule_in_their_own_way():
    """TensorRT-LLM sets the whole request aside: for 1,000 + 1,000 tokens a third more."""
    mix = length_mix(Workload.fixed(1000, 1000, rate=1.0).draw(100))
    shape, card = load_shape("llama-3.1-8b"), Candidate(load_gpu("h100"), 1, "bf16", "bf16")
    found = {
        engine: replica_of(shape, card, Setting(NameplateCalibration(), engine, longest_request=1))
        for engine in ("vllm", "sglang", "trtllm", "my-engine")
    }
    assert found["sglang"].server(False, 100).batching is prefill_first
    assert found["trtllm"].scheduler.reserves_whole
    assert found["my-engine"].scheduler == found["vllm"].scheduler
    taken = {
        name: one.pool_blocks * one.cost.tables[0].block_size / pool_batch(one, mix, 0.0)
        for name, one in found.items()
    }
    assert taken["vllm"] == pytest.approx(1500, rel=0.02)
    assert taken["trtllm"] == pytest.approx(2000, rel=0.03)


def test_overflow_risk_is_one_percent_at_the_safe_batch_and_half_at_the_median():
    one = replica()
    mix = length_mix(Workload(Lognormal(2000, 1.0), Lognormal(500, 1.0), rate=1.0).draw(4000))
    assert overflow_risk(one, mix, pool_batch(one, mix)) == pytest.approx(0.01, abs=1e-4)
    assert overflow_risk(one, mix, pool_batch(one, mix, 0.0)) == pytest.approx(0.5, abs=1e-3)


def test_overflow_risk_agrees_with_drawing():
    """Sums of random requests against the normal approximation."""
    one = replica()
    mix = length_mix(Workload(Lognormal(2000, 1.0), Lognormal(500, 1.0), rate=1.0).draw(4000))
    n = round(pool_batch(one, mix, 0.8))
    rng = np.random.default_rng(0)
    blocks = np.asarray(one.cost.blocks(mix.held))
    sums = rng.choice(blocks, size=(4000, n)).sum(axis=1)
    assert (sums > one.pool_blocks).mean() == pytest.approx(overflow_risk(one, mix, n), abs=0.03)


@settings(max_examples=25, deadline=None)
@given(
    prompt=st.integers(50, 4000),
    output=st.integers(5, 800),
    peakedness=st.sampled_from([0.0, 1.0, 4.0]),
)
@example(736, 23, 0.0)  # its tail fell by 0.3 us from one sequence to one and a half
def test_more_load_never_feels_better(prompt, output, peakedness):
    mix = length_mix(Workload(Lognormal(prompt, 0.7), Lognormal(output, 0.7), rate=1.0).draw(400))
    curve = load_curve(replica(), mix, peakedness)
    for name in ("batch", "step_s", "rate", "tpot_p95_s", "ttft_p95_s"):
        assert (np.diff(getattr(curve, name)) >= -1e-12).all(), name
    slower = load_curve(replica(), mix, peakedness, 1.5)
    assert slower.rate[-1] == pytest.approx(curve.rate[-1] / 1.5)
    shares = curve.prefill_share + curve.cache_share
    assert ((shares > 0) & (shares < 1)).all()


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_the_estimate_is_near_the_simulation(load):
    """Means within 15 %, tails within 40 %: the estimate ranks, the simulation decides."""
    workload = Workload(Lognormal(900, 0.8), Lognormal(150, 0.8), rate=1.0)
    requests = workload.draw(2500, 3)
    one, mix = replica(), length_mix(requests)
    curve = load_curve(one, mix, 1.0)
    requests = requests.at_rate(load * float(curve.rate[-1]))
    found = summarise(simulate(requests, one.server(False, 8000)))
    batch = curve.at_rate(requests.rate)
    assert found.mean_decoding == pytest.approx(batch, rel=0.15)
    assert found.tpot_mean_s == pytest.approx(curve.value("step_s", batch), rel=0.15)
    assert found.tpot_p95_s == pytest.approx(curve.value("tpot_p95_s", batch), rel=0.4)
    assert found.ttft_p95_s == pytest.approx(curve.value("ttft_p95_s", batch), rel=0.4)


def test_promises_cut_the_curve_where_they_are_passed():
    load = demand(rate=5.0, input_len=1000, output_len=200)
    curve = load_curve(replica(), load.mix, load.peakedness)
    free = capacity_of(curve, Slo())
    assert free.rate == pytest.approx(curve.rate[-1])
    middle = float(curve.tpot_p95_s[len(curve.batch) // 2])
    bound = capacity_of(curve, Slo(tpot_s=middle))
    assert bound.limited_by == "tpot"
    assert np.interp(bound.batch, curve.batch, curve.tpot_p95_s) == pytest.approx(middle, rel=1e-6)
    never = capacity_of(curve, Slo(ttft_s=1e-6))
    assert (never.rate, never.excess_by) == (0.0, "ttft")
    assert never.excess > 1


def test_a_closed_loop_divides_its_clients():
    """Little: clients = rate * (time to first token + decode steps)."""
    load = demand(concurrency=64, input_len=1000, output_len=200)
    curve = load_curve(replica(), load.mix, load.peakedness)
    operation = fleet_operation(curve, load, 2)
    assert operation.rate * operation.e2e_mean_s == pytest.approx(32, rel=0.02)


def test_what_does_not_fit_says_by_how_much():
    with pytest.raises(DoesNotFit, match=r"weights: 141.1 GB per GPU"):
        replica(model="llama-3-70b")
    with pytest.raises(DoesNotFit, match="longest request"):
        replica(model="llama-3-70b", weight_dtype="int4", gpu="l40s", longest=40_000)


def test_changed_demands_change_one_thing():
    load = demand(rate=5.0, input_len=Lognormal(1000, 0.5), output_len=Fixed(200))
    assert changed(load, load=0.5).rate == 2.5
    double = changed(load, prompt=2.0)
    assert double.mix.input_mean == pytest.approx(2 * load.mix.input_mean, rel=1e-2)
    assert double.mix.output_mean == load.mix.output_mean
    cut = changed(load, prompt=2.0, max_context=1500)
    assert cut.longest <= 1500
    half = changed(load, hit_share=0.5)
    assert half.mix.work(np.inf).mean == pytest.approx(0.5 * load.mix.work(np.inf).mean, rel=1e-2)


def test_the_busiest_stretch_is_the_densest():
    gaps = np.concatenate([np.full(50, 1.0), np.full(20, 0.1), np.full(50, 1.0)])
    requests = Requests(np.cumsum(gaps), np.full(120, 10), np.full(120, 5))
    busy = busiest_stretch(requests, 20)
    assert busy.rate == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_len": 10, "output_len": 5}, "no load"),
        ({"rate": 1.0}, "no trace"),
        ({"rate": 1.0, "concurrency": 2, "input_len": 10, "output_len": 5}, "exactly one"),
        ({"rate": 0.0, "input_len": 10, "output_len": 5}, "rate=0.0"),
        ({"rate": float("nan"), "input_len": 10, "output_len": 5}, "rate=nan"),
        ({"rate": 1.0, "input_len": float("nan"), "output_len": 5}, "input_len=nan"),
        ({"rate": 1.0, "input_len": 10.5, "output_len": 5}, "input_len=10.5"),
        ({"rate": 1.0, "input_len": 10, "output_len": 5, "max_context": 12}, "context limit"),
    ],
)
def test_demands_that_cannot_be(arguments, message):
    message = (
        message.replace("context limit", "context limit of 12") if "max" in message else message
    )
    with pytest.raises(ValueError, match=message):
        demand(**arguments)


def test_a_trace_has_its_own_lengths_and_loses_what_an_engine_refuses():
    requests = Workload(Fixed(100), Fixed(10), rate=2.0).draw(500, 1)
    with pytest.raises(ValueError, match="its own"):
        demand(trace=requests, input_len=10, output_len=5)
    long = Requests(
        requests.arrival_s,
        np.where(np.arange(500) == 7, 5000, requests.prompt_tokens),
        requests.output_tokens,
    )
    load = demand(trace=long, max_context=1000)
    assert (load.refused, load.n_requests, load.longest) == (1, 499, 110)
    with pytest.raises(ValueError, match="exceed the context"):
        demand(trace=long, max_context=50)


def test_dropping_requests_keeps_the_prefixes_of_the_rest():
    workload = Workload(Lognormal(600, 0.9), Fixed(5), rate=1.0, prefix=SharedPrefix(160, 0.5, 3))
    requests = workload.draw(400, 2)
    limit = int(np.quantile(requests.prompt_tokens + 5, 0.995))
    kept = requests.within_context(limit)
    assert 0 < len(requests) - len(kept) <= 4
    keep = np.flatnonzero(requests.prompt_tokens + 5 <= limit)
    for new, old in enumerate(keep[:50]):
        mine = kept.prefix_ids[kept.prefix_offsets[new] : kept.prefix_offsets[new + 1]]
        theirs = requests.prefix_ids[
            requests.prefix_offsets[old] : requests.prefix_offsets[old + 1]
        ]
        assert mine.tolist() == theirs.tolist()
