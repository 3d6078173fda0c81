"""Conservation, monotonicity and limits of the simulator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_times import DECODER, LinearStep

from capmodel.kvcache import BlockTable, RequestCost
from capmodel.simulation import (
    FrontEnd,
    PrefillPool,
    Server,
    context_limit,
    least_loaded,
    power_of_two,
    prefill_first,
    replicate,
    round_robin,
    same_prefix,
    shortest_prompt,
    simulate,
    summarise,
    whole_request,
)
from capmodel.simulation.server import settled_blocks
from capmodel.simulation.static import simulate_static, slots_of
from capmodel.workload import Fixed, Lognormal, Requests, SharedPrefix, Uniform, Workload


def busy_workload(n=1500, rate=12.0, seed=7, prefix=None):
    return Workload(Lognormal(600, 0.8), Lognormal(150, 0.9), rate=rate, prefix=prefix).draw(
        n, seed
    )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    pool=st.integers(600, 3000),
    route=st.sampled_from([round_robin, least_loaded, same_prefix]),
    batching=st.sampled_from(["mixed", "prefill_first"]),
    replicas=st.integers(1, 3),
    prefix=st.booleans(),
)
def test_tokens_are_conserved(seed, pool, route, batching, replicas, prefix):
    """Everyone ends once; time goes forward; prompts are computed or found, no less."""
    shared = SharedPrefix(256, 0.7, 3) if prefix else None
    requests = busy_workload(80, 30.0, seed, shared)
    server = Server(DECODER, pool, prefix_cache=prefix)
    if batching == "prefill_first":
        server = Server(DECODER, pool, prefix_cache=prefix, batching=prefill_first)
    result = simulate(requests, server, replicas=replicas, route=route)
    assert (result.admitted_s >= result.arrival_s).all()
    assert (result.first_s > result.admitted_s).all()
    assert (result.finish_s >= result.first_s).all()
    calm = result.preemptions == 0
    computed = result.prefilled_tokens + result.hit_tokens
    assert (computed[calm] == result.prompt_tokens[calm]).all()
    assert (computed[~calm] > result.prompt_tokens[~calm]).all()
    assert (result.hit_tokens < result.prompt_tokens * (1 + result.preemptions) + 1).all()
    for total in result.totals:
        assert 0 <= total.peak_blocks <= pool
    # Every further token of every request is one place in one decode step of one second.
    lone = Server(LinearStep(per_sequence=1.0), 10**6, batching=server.batching)
    counted = simulate(requests, lone, replicas=replicas, route=route)
    decoded = sum(total.busy_s for total in counted.totals)
    assert decoded == pytest.approx((requests.output_tokens - 1).sum())


def test_slower_steps_and_more_load_never_help():
    requests = busy_workload()
    base = summarise(simulate(requests, Server(DECODER, 6000)))
    slow = summarise(simulate(requests, Server(DECODER, 6000, step_scale=1.3)))
    crowd = summarise(simulate(requests.at_rate(20.0), Server(DECODER, 6000)))
    alone = summarise(simulate(requests, Server(DECODER, 6000), replicas=3))
    for other in (slow, crowd):
        assert other.ttft_p95_s > base.ttft_p95_s
        assert other.tpot_p95_s > base.tpot_p95_s
    assert alone.e2e_mean_s < base.e2e_mean_s
    assert slow.utilisation >= base.utilisation > alone.utilisation


def test_step_scale_multiplies_every_time_of_a_lone_request():
    requests = Requests(np.array([0.0]), np.array([700]), np.array([60]))
    one, two = (simulate(requests, Server(DECODER, 500, step_scale=s)) for s in (1.0, 2.0))
    assert two.e2e_s[0] == pytest.approx(2 * one.e2e_s[0])


def test_a_smaller_pool_preempts_and_a_request_that_never_fits_is_refused():
    requests = busy_workload(400, 40.0)
    roomy, tight = (simulate(requests, Server(DECODER, pool)) for pool in (40_000, 900))
    assert roomy.preemptions.sum() == 0
    assert tight.preemptions.sum() > 0
    assert tight.e2e_s.mean() > roomy.e2e_s.mean()
    assert summarise(tight).peak_pool_use <= 1
    with pytest.raises(ValueError, match="could never finish"):
        simulate(requests, Server(DECODER, 100))


def test_whole_reservation_never_preempts_and_context_reservation_admits_by_the_slot():
    requests = busy_workload(400, 40.0)
    whole = simulate(requests, Server(DECODER, 900, reservation=whole_request))
    assert whole.preemptions.sum() == 0
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    pool = 10 * -(-longest // 16)
    slots = simulate(requests, Server(DECODER, pool, reservation=context_limit(longest)))
    paged = simulate(requests, Server(DECODER, pool))
    decoding = summarise(slots).mean_decoding
    assert decoding <= 10 < summarise(paged).mean_decoding
    assert summarise(paged).waste < 0.05 < 0.4 < summarise(slots).waste
    powers = simulate(requests, Server(DECODER, pool, reservation=power_of_two))
    assert summarise(paged).waste < summarise(powers).waste < summarise(slots).waste


def test_windowed_layers_charge_their_window_and_no_more():
    """PHYSICS section 2, gemma-4-31b: 8,192 + 5 * 577 blocks at 262,144 tokens."""
    windows = BlockTable("window", 5, 16, limit=1024 - 1 + 8192, extra=1)
    cost = RequestCost((BlockTable("full", 1, 32), windows), 0.0)
    assert settled_blocks(cost, np.array([16, 262_144])).tolist() == [5 * 2, 5 * 577]
    # Pools of exactly two such requests, and of too little for two prompts.
    requests = Requests(np.zeros(2), np.full(2, 9000), np.full(2, 100))
    need = int(cost.blocks(9099))
    two, one = (
        simulate(requests, Server(DECODER, pool, cost)) for pool in (2 * need, 2 * need - 7)
    )
    assert two.admitted_s[1] < two.first_s[0]
    assert one.admitted_s[1] == one.finish_s[0]


def test_prefix_hits_are_counted_and_save_prefill():
    """Half of 1,024-token prompts begin with the same 512: all but the first find it."""
    workload = Workload(Fixed(1024), Fixed(20), rate=2.0, prefix=SharedPrefix(512, 1.0))
    requests = workload.draw(200, 1)
    cold = simulate(requests, Server(DECODER, 4000))
    warm = simulate(requests, Server(DECODER, 4000, prefix_cache=True))
    assert cold.hit_tokens.sum() == 0
    assert warm.hit_tokens.sum() == 199 * 512
    assert warm.ttft_s.mean() < 0.7 * cold.ttft_s.mean()


def test_prefixes_nobody_uses_make_room():
    """A pool for two requests keeps serving hundreds with different prefixes."""
    prefix = SharedPrefix(512, 1.0, n_prefixes=50)
    requests = Workload(Fixed(600), Fixed(10), rate=1.0, prefix=prefix).draw(300, 2)
    result = simulate(requests, Server(DECODER, 100, prefix_cache=True))
    assert summarise(result).peak_pool_use <= 1
    assert 0 < summarise(result).hit_share < 0.4


def test_routing_by_prefix_finds_more_than_routing_in_turn():
    prefix = SharedPrefix(1024, 1.0, n_prefixes=60)
    requests = Workload(Fixed(1100), Fixed(30), rate=8.0, prefix=prefix).draw(600, 3)
    server = Server(DECODER, 2000, prefix_cache=True)
    turn, home = (
        summarise(simulate(requests, server, replicas=4, route=route)).hit_share
        for route in (round_robin, same_prefix)
    )
    assert home > turn + 0.1


def test_disaggregation_keeps_decoding_undisturbed_and_pays_the_transfer():
    """No prompt is computed on a decode replica, so no step there exceeds a decode step."""
    requests = busy_workload(600, 8.0)
    server = Server(DECODER, 20_000)
    together = simulate(requests, server, replicas=2)
    pool = PrefillPool(server, 1, transfer_s_per_token=2e-6, transfer_latency_s=1e-3)
    apart = simulate(requests, server, replicas=1, prefill=pool)
    assert len(apart) == 600
    assert [total.prefill_only for total in apart.totals] == [False, True]
    limit = DECODER.seconds(256, 20_000 * 16)
    several = apart.output_tokens > 20
    assert apart.tpot_s[several].max() < limit
    assert np.percentile(apart.tpot_s[several], 99) < np.percentile(together.tpot_s[several], 99)
    lone = Requests(np.array([0.0]), np.array([1000]), np.array([5]))
    one = simulate(lone, server, prefill=pool)
    both = simulate(lone, server)
    assert one.e2e_s[0] - both.e2e_s[0] == pytest.approx(1e-3 + 1000 * 2e-6, rel=1e-9)


def test_shortest_prompt_first_helps_the_mean():
    requests = Workload(Lognormal(2000, 2.0), Fixed(4), rate=18.0).draw(800, 5)
    fifo, short = (
        simulate(requests, server)
        for server in (
            Server(DECODER, 10**6, max_num_seqs=4),
            Server(DECODER, 10**6, max_num_seqs=4, order=shortest_prompt),
        )
    )
    assert short.ttft_s.mean() < fifo.ttft_s.mean()


def test_static_batches_waste_slots_and_time():
    """Contiguous caches of 8,192 tokens for requests of about 750 hold mostly nothing."""
    requests = busy_workload(800, 50.0)
    server = Server(DECODER, 16 * 256, max_num_seqs=64)
    static = simulate_static(requests, server, max_context=8192)
    paged = simulate(requests, server)
    assert slots_of(server, 8192) == 8
    assert summarise(static).waste > 0.6
    assert summarise(static).output_tok_s < summarise(paged).output_tok_s / 2
    assert (static.finish_s > static.first_s).all()
    with pytest.raises(ValueError, match="contiguous cache"):
        slots_of(server, 10**6)


def test_a_static_batch_of_one_takes_what_continuous_batching_takes():
    requests = Requests(np.array([1.0]), np.array([500]), np.array([30]))
    server = Server(DECODER, 1000)
    static = simulate_static(requests, server, max_context=600)
    assert static.e2e_s[0] == pytest.approx(simulate(requests, server).e2e_s[0], rel=1e-12)


def test_replications_give_an_interval_that_covers_the_m_d_1_wait():
    """Eight replications; W of M/D/1 at load 0.5 is half a service time."""
    server = Server(LinearStep(per_prompt=1e-4), 10**9, max_num_seqs=1, max_batched_tokens=10**9)

    def run(seed):
        return summarise(simulate(Workload.fixed(1000, 1, rate=5.0).draw(4000, seed), server))

    row = replicate(run, range(8)).loc["ttft_mean_s"]
    assert row["low"] < 0.15 < row["high"]
    assert row["high"] - row["low"] < 0.02


def test_bad_settings_name_the_value():
    with pytest.raises(ValueError, match="pool_blocks=0"):
        Server(DECODER, 0)
    with pytest.raises(ValueError, match="one token a step"):
        Server(DECODER, 10, max_num_seqs=100, max_batched_tokens=50)
    requests = Requests(np.zeros(1), np.array([5]), np.array([5]))
    with pytest.raises(ValueError, match="replicas=0"):
        simulate(requests, Server(DECODER, 10), replicas=0)
    with pytest.raises(ValueError, match="concurrency=0"):
        simulate(requests, Server(DECODER, 10), concurrency=0)
    with pytest.raises(ValueError, match="warmup"):
        summarise(simulate(requests, Server(DECODER, 10)), warmup=1.0)


def test_uniform_lengths_break_the_lockstep_of_a_closed_loop():
    """64 clients with equal lengths all prefill together; 80-100 % lengths spread them out."""
    server = Server(DECODER, 10**5)
    fixed = Workload.fixed(1024, 256, concurrency=64).draw(640, 1)
    spread = Workload(Uniform(820, 1024), Uniform(205, 256), concurrency=64).draw(640, 1)
    late = [summarise(simulate(r, server, concurrency=64), warmup=0.3) for r in (fixed, spread)]
    assert late[1].ttft_p50_s < 0.5 * late[0].ttft_p50_s


def test_a_front_end_delays_the_first_token_and_nothing_after():
    """20 ms, two steps under way and 1 ms for each open request."""
    lone = Requests(np.array([0.0, 5.0]), np.array([500, 500]), np.array([200, 200]))
    plain = simulate(lone, Server(DECODER, 1000))
    front = FrontEnd(0.020, 2.0, 0.001)
    late = simulate(lone, Server(DECODER, 1000, front_end=front))
    # Idle: no step is under way, and the request itself is the open one.
    assert late.ttft_s - plain.ttft_s == pytest.approx(0.020 + 0.001)
    assert late.tpot_s == pytest.approx(plain.tpot_s)
    busy = Requests(np.array([0.0, 0.5]), np.array([500, 500]), np.array([200, 200]))
    second = simulate(busy, Server(DECODER, 1000, front_end=front)).ttft_s[1]
    step = DECODER.seconds(1, 560)
    without = simulate(busy, Server(DECODER, 1000)).ttft_s[1]
    assert second - without == pytest.approx(0.020 + 2 * step + 2 * 0.001, abs=2 * step)
    span = late.end_s
    system = sum(total.area_system for total in late.totals) / span
    assert system == pytest.approx(len(late) / span * late.e2e_s.mean(), rel=1e-9)
