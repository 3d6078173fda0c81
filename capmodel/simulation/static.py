"""The baseline: static batches in contiguous caches.

A batch of waiting requests is prefilled together, padded to its longest prompt, and decoded
until its longest output ends; nobody joins or leaves before. Every slot holds the longest
context allowed.
"""

from dataclasses import replace

import numpy as np

from capmodel.arguments import instance, number
from capmodel.simulation.loop import REPLICAS
from capmodel.simulation.records import ReplicaTotals, Simulation
from capmodel.simulation.server import Server, growth_of
from capmodel.workload.limits import TOKENS
from capmodel.workload.requests import Requests


def slots_of(server: Server, max_context: int) -> int:
    """Contiguous caches of `max_context` tokens that the pool holds, at most `max_num_seqs`.

    Raises ValueError when it holds none.
    """
    instance("server", server, Server)
    max_context = number("max_context", max_context, TOKENS)
    blocks = server.cost.blocks(max_context)
    slots = min(server.pool_blocks // blocks, server.max_num_seqs)
    if slots < 1:
        raise ValueError(
            f"One contiguous cache of {max_context:,} tokens needs {blocks:,} blocks, but the pool "
            f"has {server.pool_blocks:,}"
        )
    return slots


def simulate_static(
    requests: Requests, server: Server, *, max_context: int, replicas: int = 1
) -> Simulation:
    """Static batching of `requests`, dealt to `replicas` in turn.

    max_context: tokens each slot reserves. A batch starts when the replica is free and someone
    waits. First tokens come with the batch's prefill, answers with the batch's end.
    Raises ValueError for no replicas and for requests longer than a slot.
    """
    instance("requests", requests, Requests)
    instance("server", server, Server)
    replicas = number("replicas", replicas, REPLICAS)
    max_context = number("max_context", max_context, TOKENS)
    requests.check_context(max_context)
    n = len(requests)
    admitted, first, finish = np.zeros(n), np.zeros(n), np.zeros(n)
    totals = [
        _one_replica(
            requests, server, max_context, np.arange(r, n, replicas), admitted, first, finish
        )
        for r in range(min(replicas, n))
    ]
    return Simulation(
        arrival_s=requests.arrival_s,
        admitted_s=admitted,
        first_s=first,
        finish_s=finish,
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        hit_tokens=np.zeros(n, dtype=np.int64),
        prefilled_tokens=requests.prompt_tokens.copy(),
        preemptions=np.zeros(n, dtype=np.int64),
        replica=np.arange(n) % replicas,
        totals=tuple(totals),
    )


def _one_replica(
    requests: Requests,
    server: Server,
    max_context: int,
    mine: np.ndarray,
    admitted: np.ndarray,
    first: np.ndarray,
    finish: np.ndarray,
) -> ReplicaTotals:
    slots = slots_of(server, max_context)
    growth = growth_of(server.cost)
    slot_blocks = server.cost.blocks(max_context)
    arrival = requests.arrival_s[mine]
    empty = ReplicaTotals(
        prefill_only=False, busy_s=0.0, steps=0, area_decoding=0.0, area_tokens=0.0,
        area_blocks=0.0, area_system=0.0, peak_blocks=0, pool_blocks=server.pool_blocks,
        block_tokens=growth.block_size / max(1, growth.count),
    )  # fmt: skip
    now, start, steps, peak = 0.0, 0, 0, 0
    busy = decoding = tokens = blocks = 0.0
    while start < len(mine):
        now = max(now, float(arrival[start]))
        stop = min(int(np.searchsorted(arrival, now, side="right")), start + slots)
        batch = mine[start:stop]
        size = len(batch)
        prompt, output = requests.prompt_tokens[batch], requests.output_tokens[batch]
        longest, most = int(prompt.max()), int(output.max())
        prefill_s = server.step_scale * float(server.step_time.seconds(0, 0, size * longest))
        decode_s = _padded_decode_s(server, size, longest, most - 1)
        admitted[batch] = now
        first[batch] = now + prefill_s
        finish[batch] = now + prefill_s + decode_s
        span = prefill_s + decode_s
        # Tokens that exist: each sequence stops growing at its own end.
        share = np.clip((output - 1) / max(1, most - 1), 0, 1)
        held = prompt + output * (1 - share / 2)
        tokens += float(held.sum()) * span
        blocks += server.pool_blocks * span
        decoding += float((output - 1).sum()) / max(1, most - 1) * decode_s
        busy += span
        steps += most
        peak = max(peak, size * slot_blocks)
        now += span
        start = stop
    return replace(
        empty, busy_s=busy, steps=steps, area_decoding=decoding, area_tokens=tokens,
        area_blocks=blocks, peak_blocks=peak,
        area_system=float((finish[mine] - arrival).sum()),
    )  # fmt: skip


def _padded_decode_s(server: Server, size: int, longest: int, steps: int) -> float:
    """`steps` decode steps of the whole batch, padded to its longest [s]."""
    if steps < 1:
        return 0.0
    ends = [
        float(server.step_time.seconds(size, size * (longest + at), 0.0)) for at in (0, steps - 1)
    ]
    return server.step_scale * steps * sum(ends) / 2
