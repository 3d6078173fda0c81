"""Fleets with some replicas for prompts alone: sized, simulated, shown and honest about it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from rates import NameplateCalibration

import capmodel as cm
from capmodel.cli.plan import command
from capmodel.gpus import load_gpu
from capmodel.planner.apart import (
    NETWORK_BYTES_PER_S,
    Split,
    apart_curves,
    first_token_s,
    prompt_times,
    split_of,
)
from capmodel.planner.candidate import Candidate
from capmodel.planner.demand import demand
from capmodel.planner.replica import Setting, replica_of
from capmodel.shapes import load_shape
from capmodel.simulation import PrefillPool, simulate, summarise
from capmodel.workload import Lognormal

# Long prompts and a tight promise on tokens, which prompts in between would break.
LOAD = {
    "rate": 12.0, "input_len": Lognormal(4000, 0.4, 16000), "output_len": Lognormal(100, 0.4, 900),
    "slo_ttft_p95": 3.0, "slo_tpot_p95": 0.02, "calibration": NameplateCalibration(),
}  # fmt: skip


def made(**changes):
    return cm.plan("llama-3.1-8b", ["a100-80gb", "l40s"], tp=1, **{**LOAD, **changes})


@pytest.fixture(scope="module")
def plan():
    return made(disaggregate=True)


@pytest.fixture(scope="module")
def together():
    return made()


def replica(gpu="a100-80gb", tp=1):
    setting = Setting(NameplateCalibration(), longest_request=16_900)
    return replica_of(
        load_shape("llama-3.1-8b"), Candidate(load_gpu(gpu), tp, "bf16", "bf16"), setting
    )


def test_divided_fleets_are_proposed_only_where_asked_for(plan, together):
    assert all(one.split is None for one in together.options)
    assert any(one.split is not None for one in plan.options)
    assert plan.chosen.split is not None, "the case must be one for it"
    assert plan.chosen.dollars_per_hour < together.chosen.dollars_per_hour
    assert plan.verified[1].holds


def test_the_counts_stand_wherever_the_fleet_does(plan, together):
    document = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    best = document["recommendation"]
    assert best["prefill_replicas"] + best["decode_replicas"] == best["replicas"]
    assert (
        f"({best['prefill_replicas']} for prompts, {best['decode_replicas']} decode)"
        in (document["message"])
    )
    for rows in ("alternatives", "tried", "pareto"):
        for row in document[rows]:
            if row["prefill_replicas"] is not None:
                assert row["prefill_replicas"] + row["decode_replicas"] == row["replicas"]
    assert any("cache sent" in line["what"] for line in document["assumptions"])
    assert any("Divided" in line for line in document["not_modelled"])
    assert not any("Divided" in line for line in together.to_dict()["not_modelled"])


def test_replicas_for_prompts_have_a_limit_of_their_own(plan, together):
    """As many prompts as fill a step of theirs: far fewer than sequences that decode."""
    clients, replica = plan.clients, plan.chosen.replica
    short = np.percentile(plan.demand.mix.prompt, 5)
    fill = replica.limits.max_num_batched_tokens / short
    assert fill <= clients.prompts_max_num_seqs <= fill + 2
    assert plan.to_dict()["clients"]["prompts_max_num_seqs"] == clients.prompts_max_num_seqs
    assert together.clients.prompts_max_num_seqs is None


def test_the_row_as_planned_is_the_divided_plan(plan):
    row = next(row for row in plan.what_ifs if row.name == "as planned")
    assert (row.replicas, row.n_gpus) == (plan.chosen.replicas, plan.chosen.n_gpus)
    latency = plan.to_dict()["latency"]
    assert row.ttft_p95_s == pytest.approx(latency["ttft_p95_s"]["estimate"])
    assert row.tpot_p95_s == pytest.approx(latency["tpot_p95_s"]["estimate"])
    together = next(row for row in plan.what_ifs if row.name.endswith("together"))
    assert together.n_gpus is None or together.n_gpus > row.n_gpus


def test_estimates_of_a_divided_fleet_are_near_its_simulation():
    """TPOT within a tenth, TTFT within a fifth: the simulation sends each prompt to the emptiest
    replica, which queues less than one line for all does."""
    load = demand(**{key: LOAD[key] for key in ("rate", "input_len", "output_len")})
    one, split = replica(), Split(8, 2, 2e-6, "a link")
    curve = apart_curves([one], [load], [split]).row(0)
    batch = curve.at_rate(load.rate / 10)
    server = one.server(False, load.longest)
    found = summarise(
        simulate(load.requests, server, replicas=2, prefill=PrefillPool(server, 8, 2e-6))
    )
    assert curve.value("step_s", batch) == pytest.approx(found.tpot_mean_s, rel=0.1)
    assert curve.value("ttft_s", batch) == pytest.approx(found.ttft_mean_s, rel=0.2)


def test_one_prompt_replica_queues_like_pollaczek_and_khinchine():
    """E[W] = rate E[S^2] / (2 (1 - load)), and no wait at all without load."""
    one, load = replica(), demand(rate=1.0, input_len=Lognormal(2000, 0.8), output_len=50)
    times, busy = prompt_times(one, load.mix), np.array([1e-9, 0.6])
    mean, _ = first_token_s(one, times, busy, 1.0)
    front = one.front_end
    before = front.fixed_s + busy * front.per_request_s
    wait = busy / times.mean * times.square / (2 * (1 - busy))
    assert mean == pytest.approx(before + wait + times.mean)


def test_a_cache_travels_over_the_gpus_link_or_over_the_network():
    """Llama-3.1-8B in bf16: 131,072 bytes a token; an H100 sends 450 GB/s one way."""
    shape = load_shape("llama-3.1-8b")
    card = Candidate(load_gpu("h100"), 2, "bf16", "bf16")
    near, far = split_of(shape, card, 1000, 2, 2), split_of(shape, card, 1000, 3, 2)
    assert near.transfer_s_per_token == pytest.approx(131_072 / 2 / card.gpu.link_bytes_per_s)
    assert far.transfer_s_per_token == pytest.approx(131_072 / NETWORK_BYTES_PER_S)
    assert near.resized(6) == Split(3, 3, near.transfer_s_per_token, near.over)


def test_a_slower_link_is_felt_between_the_first_two_tokens():
    load = demand(**{key: LOAD[key] for key in ("rate", "input_len", "output_len")})
    one = replica()
    fast, slow = (
        apart_curves([one], [load], [Split(8, 2, sent, "a link")]).row(0) for sent in (0.0, 1e-4)
    )
    extra = 1e-4 * load.mix.input_mean / load.mix.steps_mean
    assert slow.step_s - fast.step_s == pytest.approx(extra)
    assert slow.ttft_s == pytest.approx(fast.ttft_s)


def test_the_command_shows_both_counts():
    given = {
        "model": "llama-3.1-8b", "gpu": "a100-80gb", "tp": 1, "rate": 30, "input-len": 4000,
        "output-len": 100, "slo-ttft-p95": 3, "slo-tpot-p95": 0.016,
    }  # fmt: skip
    arguments = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    arguments.append("--no-simulate")
    divided = CliRunner().invoke(command, [*arguments, "--disaggregate"])
    assert divided.exit_code == 0
    assert "replicas for prompts, for decoding" in divided.output
    assert "replicas for prompts" not in CliRunner().invoke(command, arguments).output
