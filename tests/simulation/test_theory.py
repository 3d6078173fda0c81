"""The simulator against queueing theory, where it reduces to it.

Tolerances: simulated means over 12,000 to 30,000 requests at the loads below have standard errors
of about 2 % (M/D/1) to 4 % (processor sharing at heavy tails); the tests allow three of them.
"""

import numpy as np
import pytest
from step_times import LinearStep

from capmodel.simulation import Server, round_robin, simulate, summarise
from capmodel.workload import Fixed, Lognormal, Requests, Uniform, Workload


def one_at_a_time(per_prompt):
    """Prompts only, one a step: a first-come single server with service = prompt * per_prompt."""
    return Server(
        LinearStep(per_prompt=per_prompt), 10**9, max_num_seqs=1, max_batched_tokens=10**9
    )


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_fixed_prompts_one_at_a_time_are_m_d_1(load):
    """Pollaczek-Khinchine for M/D/1: W = rho * S / (2 (1 - rho))."""
    service = 0.1
    requests = Workload.fixed(1000, 1, rate=load / service).draw(30_000, seed=1)
    result = simulate(requests, one_at_a_time(service / 1000))
    wait = result.ttft_s[3000:].mean() - service
    assert wait == pytest.approx(load * service / (2 * (1 - load)), rel=0.08)
    assert summarise(result).utilisation == pytest.approx(load, rel=0.03)


def test_random_prompts_one_at_a_time_are_m_g_1():
    """Pollaczek-Khinchine: W = rate * E[S^2] / (2 (1 - rho)), moments taken from the draw."""
    requests = Workload(Uniform(200, 1800), Fixed(1), rate=6.0).draw(25_000, seed=2)
    result = simulate(requests, one_at_a_time(1e-4))
    service = requests.prompt_tokens * 1e-4
    rho = 6.0 * service.mean()
    expected = 6.0 * (service**2).mean() / (2 * (1 - rho))
    assert (result.ttft_s - service)[2500:].mean() == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("cv", [0.0, 1.5])
def test_decoding_whose_step_grows_with_the_batch_is_processor_sharing(cv):
    """M/G/1-PS: E[T] = E[S] / (1 - rho), whatever the distribution of S.

    A step of `batch * s` seconds gives each sequence one token: equal shares of one server.
    The residual step that an arrival waits for is about one token in 200.
    """
    per_sequence, mean_out, load = 1e-3, 200, 0.7
    output = Fixed(mean_out) if cv == 0 else Lognormal(mean_out, cv)
    rate = load / (mean_out * per_sequence)
    requests = Workload(Fixed(16), output, rate=rate).draw(12_000, seed=3)
    server = Server(
        LinearStep(per_sequence=per_sequence), 10**9, max_num_seqs=10**6, max_batched_tokens=10**9
    )
    result = simulate(requests, server)
    service = (requests.output_tokens - 1) * per_sequence
    rho = requests.rate * service.mean()
    assert result.e2e_s[1200:].mean() == pytest.approx(service.mean() / (1 - rho), rel=0.1)


def test_a_step_time_without_contention_is_m_g_infinity():
    """With steps that do not slow down, the number in system is rate * E[S]; its law is Poisson."""
    requests = Workload(Fixed(16), Uniform(50, 250), rate=30.0).draw(12_000, seed=4)
    server = Server(LinearStep(fixed=0.01), 10**9, max_num_seqs=10**6, max_batched_tokens=10**9)
    result = simulate(requests, server)
    # out tokens take `out` steps (one of them the prefill), plus half a step until the next starts
    sojourn = (requests.output_tokens.mean() + 0.5) * 0.01
    assert result.e2e_s.mean() == pytest.approx(sojourn, rel=0.02)
    assert summarise(result).mean_in_system == pytest.approx(30.0 * sojourn, rel=0.05)


@pytest.mark.parametrize("replicas", [1, 3])
def test_littles_law(replicas):
    """L = lambda W, L integrated over time by the replicas, W averaged over the records."""
    requests = Workload(Lognormal(800, 1.0), Lognormal(200, 1.0), rate=4.0).draw(3000, seed=5)
    server = Server(LinearStep(6e-3, 2e-5, 5e-8, 2.5e-5), 20_000)
    result = simulate(requests, server, replicas=replicas, route=round_robin)
    span = result.end_s - result.arrival_s[0]
    system = sum(total.area_system for total in result.totals) / span
    assert system == pytest.approx(len(result) / span * result.e2e_s.mean(), rel=1e-9)


def test_a_closed_loop_has_its_clients_in_flight_and_obeys_littles_law():
    """C clients without think time: X * E[T] = C, up to the run-down at the end."""
    requests = Workload(Uniform(100, 900), Uniform(50, 350), concurrency=24).draw(4000, seed=6)
    server = Server(LinearStep(6e-3, 2e-5, 5e-8, 2.5e-5), 100_000)
    result = simulate(requests, server, concurrency=24)
    throughput = len(result) / result.end_s
    assert throughput * result.e2e_s.mean() == pytest.approx(24, rel=0.01)


def test_a_lone_request_takes_the_time_one_can_add_up():
    """1,000 prompt tokens, 11 output tokens: 2 chunks of 512 and less, then 10 decode steps.

    Decode step k (k = 0..9) reads 1000 + k tokens: 10 * (2e-3 + 1e-4) + 1e-6 * (10,000 + 45).
    """
    server = Server(LinearStep(2e-3, 1e-4, 1e-6, 3e-6), 1000, max_batched_tokens=512)
    requests = Requests(np.array([5.0]), np.array([1000]), np.array([11]))
    result = simulate(requests, server)
    assert result.ttft_s[0] == pytest.approx(2 * 2e-3 + 1000 * 3e-6, rel=1e-12)
    decode = 10 * (2e-3 + 1e-4) + 1e-6 * (10 * 1000 + 45)
    assert result.e2e_s[0] == pytest.approx(result.ttft_s[0] + decode, rel=1e-12)
    assert result.totals[0].steps == 12
