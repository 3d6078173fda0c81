"""Disaggregation: some replicas for prompts alone, the others for decoding alone.

Steady-state estimates, as in `curve`. All replicas of a fleet are alike; what differs is what they
do. A fleet is spoken of by its average replica, so that its curve reads like any other: of
`prompts + decode` replicas each carries its part of the rate and of the decoding sequences.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from capmodel.kvcache import kv_bytes
from capmodel.planner.candidate import Candidate
from capmodel.planner.curve import Z95, Array, LoadCurves, batches, step_parts, whole_p95
from capmodel.planner.demand import Demand
from capmodel.planner.mix import LengthMix
from capmodel.planner.pool import most_sequences, settle
from capmodel.planner.replica import Replica
from capmodel.planner.rows import column, gradient, interpolated
from capmodel.shapes import ModelShape
from capmodel.workload import Slo

# One way, between two servers: a 400 Gbit/s adapter for each replica.
NETWORK_BYTES_PER_S = 50e9
# GPUs of one server, within which the cache travels over their own link.
SERVER_GPUS = 8
# Prompt replicas are never reckoned with busier than this, nor planned busier without a promise.
_BUSIEST, _USUAL = 0.95, 0.8


@dataclass(frozen=True, slots=True)
class Split:
    """Replicas for prompts alone and for decoding alone.

    transfer_s_per_token: to send a prompt's cache from one to the other [s]; over: what.
    """

    prompts: int
    decode: int
    transfer_s_per_token: float
    over: str

    @property
    def share(self) -> float:
        """Of all replicas, those for prompts."""
        return self.prompts / (self.prompts + self.decode)

    def resized(self, replicas: int) -> "Split":
        """`replicas` divided in about the same proportion, at least one of each."""
        prompts = min(max(1, round(replicas * self.share)), max(1, replicas - 1))
        return replace(self, prompts=prompts, decode=max(1, replicas - prompts))


def split_of(
    shape: ModelShape, candidate: Candidate, tokens: float, prompts: int, decode: int
) -> Split:
    """So many replicas of `candidate` for prompts of `tokens` and for decoding.

    Within one server each GPU sends its part over its own link, where the catalogue gives it;
    else the replica sends all of it over one network adapter.
    """
    per_gpu = float(kv_bytes(shape, tokens, 1, candidate.kv_dtype, candidate.tp)) / tokens
    gpu = candidate.gpu
    if gpu.link_bytes_per_s is not None and (prompts + decode) * candidate.tp <= SERVER_GPUS:
        return Split(prompts, decode, per_gpu / gpu.link_bytes_per_s, f"the link of {gpu.name}")
    sent = per_gpu * candidate.tp / NETWORK_BYTES_PER_S
    return Split(prompts, decode, sent, f"one adapter of {NETWORK_BYTES_PER_S / 1e9:g} GB/s")


@dataclass(frozen=True, slots=True)
class PromptTimes:
    """A prompt on a replica that does nothing else [s]: moments and p95."""

    mean: float
    square: float
    p95: float


def prompt_times(replica: Replica, mix: LengthMix) -> PromptTimes:
    """One prompt at a time, in as many steps as the token budget asks for."""
    new = np.maximum(mix.prompt - mix.hits, 1.0)
    work = new * (1.0 + (mix.hits + new / 2) / replica.prompts.attention_tokens)
    steps = np.ceil(new / replica.limits.max_num_batched_tokens)
    grid = np.unique(np.geomspace(1.0, max(2.0, float((work / steps).max())), 24))
    none = np.zeros_like(grid)
    seconds = np.asarray(replica.step_time.seconds(none, none, grid), dtype=float)
    times = steps * np.interp(work / steps, grid, seconds)
    p95 = float(np.percentile(times, 95))
    return PromptTimes(float(times.mean()), float((times**2).mean()), p95)


def first_token_s(
    replica: Replica, times: PromptTimes, load: Array, servers: float
) -> tuple[Array, Array]:
    """Mean and 95th percentile of the TTFT on `servers` prompt replicas, busy `load` of the time.

    Prompts queue like M/G/c (Sakasegawa's approximation; Pollaczek-Khinchine for one), the tail of
    the wait taken as exponential. Prompts that share a step would wait less.
    """
    front = replica.front_end
    waits = load ** (np.sqrt(2 * (servers + 1)) - 1)
    before = front.fixed_s + waits * front.per_request_s
    wait = waits / (1 - load) / servers * times.square / (2 * times.mean)
    tail = wait / waits * np.log(np.maximum(waits / 0.05, 1.0))
    return before + wait + times.mean, before + tail + times.p95


def split_for(
    replica: Replica, demand: Demand, slo: Slo, decode_rate: float, decode_clients: float
) -> tuple[int, int] | None:
    """Prompt and decode replicas for `demand`; None where no load on the first is light enough.

    decode_rate, decode_clients: what a decode replica carries within its promise [requests/s],
    and requests it has in flight then.
    """
    times = prompt_times(replica, demand.mix)
    if slo.ttft_s is not None:
        _, soonest = first_token_s(replica, times, np.array([0.01]), 1.0)
        if soonest[0] > slo.ttft_s:
            return None
    rate = demand.rate or 0.0
    if demand.concurrency is not None:
        clients = decode_clients + decode_rate * times.mean / (1 - _USUAL)
        rate = demand.concurrency / clients * decode_rate
    work = rate * times.mean
    decode = max(1, math.ceil(rate / decode_rate - 1e-9))
    if slo.ttft_s is None:
        return max(1, math.ceil(work / _USUAL - 1e-9)), decode
    prompts = max(1, math.ceil(work / _BUSIEST - 1e-9))
    while first_token_s(replica, times, np.array([work / prompts]), prompts)[1][0] > slo.ttft_s:
        prompts = max(prompts + 1, math.ceil(1.02 * prompts))
    return prompts, decode


def decode_curves(replicas: Sequence[Replica], demands: Sequence[Demand]) -> LoadCurves:
    """The steady state of replicas that only decode; their TTFT is 0."""
    mixes = [one.mix for one in demands]
    tops = column(
        max(settle(most_sequences(one, mix, 0.0)[0], Z95 * math.sqrt(demand.peakedness)), 1e-3)
        for one, mix, demand in zip(replicas, mixes, demands, strict=True)
    )
    return _decoding(replicas, demands, tops)


def apart_curves(
    replicas: Sequence[Replica], demands: Sequence[Demand], splits: Sequence[Split]
) -> LoadCurves:
    """The steady state of the average replica of each divided fleet."""
    share = column(one.share for one in splits)
    times = [prompt_times(one, demand.mix) for one, demand in zip(replicas, demands, strict=True)]
    alone = decode_curves(replicas, demands)
    # Decoding stops where the prompts' replicas can send no more.
    fed = (_BUSIEST * share / (column(one.mean for one in times) * (1 - share)))[:, 0]
    (ends,) = interpolated(alone.rate, fed, [alone.batch])
    first = alone.rate[:, 0]
    ends = np.where(fed < first, alone.batch[:, 0] * fed / first, ends)
    curves = _decoding(replicas, demands, ends[:, None])
    sent = column(
        split.transfer_s_per_token * demand.mix.input_mean / demand.mix.steps_held
        for split, demand in zip(splits, demands, strict=True)
    )
    load = curves.rate * (1 - share) / share * column(one.mean for one in times)
    load = np.clip(load, 1e-9, 0.999)
    firsts = [
        first_token_s(one, own, row, split.prompts)
        for one, own, row, split in zip(replicas, times, load, splits, strict=True)
    ]
    ttft, ttft_p95 = (np.array([pair[end] for pair in firsts]) for end in (0, 1))
    further = column(bool(one.mix.steps.any()) for one in demands)
    step, tpot_p95 = curves.step_s + sent, further * (curves.tpot_p95_s + sent)
    return replace(
        curves,
        batch=(1 - share) * curves.batch,
        rate=(1 - share) * curves.rate,
        step_s=step,
        tpot_p95_s=tpot_p95,
        ttft_s=ttft,
        ttft_p95_s=ttft_p95,
        e2e_p95_s=whole_p95(ttft, ttft_p95, step, tpot_p95, [one.mix for one in demands]),
        prefill_share=np.broadcast_to(share, curves.batch.shape),
        cache_share=(1 - share) * curves.cache_share,
        front_s=np.broadcast_to(
            column(one.front_end.fixed_s for one in replicas), curves.batch.shape
        ),
        top_by=tuple(
            "prompts" if end < most - 1e-9 else name
            for end, most, name in zip(ends, alone.batch[:, -1], alone.top_by, strict=True)
        ),
    )


def _decoding(replicas: Sequence[Replica], demands: Sequence[Demand], tops: Array) -> LoadCurves:
    mixes = [one.mix for one in demands]
    batch, points = batches(np.maximum(tops, 1e-6))
    _, step, bare = step_parts(replicas, mixes, batch)
    held = column(mix.steps_held for mix in mixes)
    rate = batch / (held * step)
    counts = np.minimum(np.argmax(rate, axis=1) + 1, points)
    last = np.minimum(np.arange(batch.shape[1]), counts[:, None] - 1)
    batch, step, bare, rate = (
        np.take_along_axis(values, last, axis=1) for values in (batch, step, bare, rate)
    )
    peak = column(one.peakedness for one in demands)
    tpot_p95 = step + gradient(step, batch, counts) * Z95 * np.sqrt(peak * batch / 2)
    tpot_p95 = np.maximum.accumulate(tpot_p95, axis=1)
    none = np.zeros_like(step)
    return LoadCurves(
        batch=batch,
        step_s=step,
        rate=np.maximum.accumulate(rate, axis=1),
        tpot_p95_s=tpot_p95,
        ttft_s=none,
        ttft_p95_s=none,
        e2e_p95_s=whole_p95(none, none, step, tpot_p95, mixes),
        prefill_share=none,
        cache_share=(step - bare) / step,
        front_s=none,
        top_by=tuple(
            most_sequences(one, mix, 0.0)[1] for one, mix in zip(replicas, mixes, strict=True)
        ),
        counts=counts,
    )
