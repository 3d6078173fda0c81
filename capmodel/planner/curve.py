"""A replica's steady state over the number of sequences it decodes at once.

A decoding sequence makes one token a step, and each step carries the prompts of the requests
that replace those which end: in the steady state `batch * input / steps` prompt tokens. So the
load that keeps `batch` sequences decoding needs no iteration: `batch / (steps * step_time)`.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from capmodel.planner.mix import LengthMix, PrefillWork
from capmodel.planner.replica import Replica
from capmodel.steptime import StepTime

Array = NDArray[np.float64]

_POINTS = 16
_Z95 = 1.6448536
_Z99 = 2.3263479


@dataclass(frozen=True, slots=True, eq=False)
class LoadCurve:
    """Arrays over `batch` decoding sequences, shape (points,).

    step_s: mean step [s], prompts inside. rate: requests/s. tpot_p95_s, ttft_s, ttft_p95_s [s].
    steps_mean, steps_p95: decode steps a request takes. Shares of the step time: prefill_share;
    cache_share, reading the cache; the rest is weights and fixed work.
    front_s: of the TTFT, what no step takes [s]. top: the most sequences, and what sets it.
    """

    batch: Array
    step_s: Array
    rate: Array
    tpot_p95_s: Array
    ttft_s: Array
    ttft_p95_s: Array
    prefill_share: Array
    cache_share: Array
    front_s: Array
    steps_mean: float
    steps_p95: float
    top: float
    top_by: str

    def scaled(self, step_scale: float) -> "LoadCurve":
        """The same replica with every step `step_scale` times as long."""
        if step_scale == 1.0:
            return self
        return replace(
            self,
            step_s=step_scale * self.step_s,
            rate=self.rate / step_scale,
            tpot_p95_s=step_scale * self.tpot_p95_s,
            ttft_s=self.front_s + step_scale * (self.ttft_s - self.front_s),
            ttft_p95_s=self.front_s + step_scale * (self.ttft_p95_s - self.front_s),
        )

    @property
    def e2e_p95_s(self) -> Array:
        """95th percentile from arrival to the last token [s], shape (points,).

        The mean, and what a long wait, a long answer and slow steps add, taken as independent.
        """
        wait = self.ttft_p95_s - self.ttft_s
        longer = (self.steps_p95 - self.steps_mean) * self.step_s
        slower = self.steps_mean * (self.tpot_p95_s - self.step_s)
        mean = self.ttft_s + self.steps_mean * self.step_s
        return np.asarray(mean + np.sqrt(wait**2 + longer**2 + slower**2))

    def at_rate(self, rate: float) -> float:
        """Sequences decoding at `rate` requests/s; NaN above the curve's end."""
        if rate > self.rate[-1]:
            return float("nan")
        if rate < self.rate[0]:
            return float(self.batch[0] * rate / self.rate[0])
        return float(np.interp(rate, self.rate, self.batch))

    def value(self, name: str, batch: float) -> float:
        """The array `name` at `batch` sequences."""
        return float(np.interp(batch, self.batch, getattr(self, name)))


def pool_batch(replica: Replica, mix: LengthMix, z: float = _Z99) -> float:
    """Decoding sequences that overflow the pool with a chance of no more than `z` says.

    Blocks of `n` sequences are about normal: `n * mean + z * sqrt(n) * sd = pool`.
    """
    blocks = blocks_taken(replica, mix)
    return _settle(replica.pool_blocks / blocks.mean(), z * float(blocks.std() / blocks.mean()))


def blocks_taken(replica: Replica, mix: LengthMix) -> Array:
    """Blocks of decoding sequences at a random moment, as the scheduler sets them aside, (m,)."""
    tokens = mix.final if replica.scheduler.reserves_whole else mix.held
    return np.asarray(replica.cost.blocks(tokens), dtype=float)


def overflow_risk(replica: Replica, mix: LengthMix, sequences: float) -> float:
    """Chance that `sequences` decoding ones need more blocks than there are."""
    blocks = blocks_taken(replica, mix)
    spread = float(blocks.std()) * np.sqrt(sequences)
    gap = replica.pool_blocks - sequences * float(blocks.mean())
    if spread == 0:
        return 0.0 if gap >= 0 else 1.0
    return float(ndtr(-gap / spread))


def load_curve(
    replica: Replica, mix: LengthMix, peakedness: float, step_scale: float = 1.0
) -> LoadCurve:
    """The steady state of `replica` under `mix`.

    peakedness: variance over mean of the number in service (0: a closed loop, none).
    step_scale: multiplies the step time.
    """
    work = mix.work(replica.attention_tokens)
    per_sequence = work.mean / mix.steps_held
    most, top_by = most_sequences(replica, mix, per_sequence)
    # Room for the ordinary fluctuation of the number in service.
    top = max(_settle(most, _Z95 * np.sqrt(peakedness)), 1e-3)
    batch = np.exp(np.linspace(0.0, np.log(top), _POINTS)) if top > 1.01 else np.array([top])
    step, decode, bare = step_parts(replica, mix, batch)
    rate = batch / (mix.steps_held * step)
    peak = int(np.argmax(rate)) + 1
    if peak < len(batch):
        top_by = "throughput"
        batch, step, decode, bare, rate = (a[:peak] for a in (batch, step, decode, bare, rate))
    per_token = (step - decode) / (batch * per_sequence)
    wait, wait_p95 = _waits(rate, per_token, decode, work)
    chunk = np.maximum(replica.limits.max_num_batched_tokens - batch, 1.0)
    own, own_p95 = (
        per_token * prompt + decode * np.ceil(prompt / chunk) for prompt in (work.p50, work.p95)
    )
    front = replica.front_end
    fixed = front.fixed_s + front.per_request_s * batch
    schedule = front.steps * step
    # A fuller batch evens out the prompts that one meets, but never makes a token come sooner.
    # Where every answer is one token, nobody waits for a second.
    tpot_p95 = step + _unlucky(batch, step, decode, rate, work, peakedness)
    if not mix.steps.any():
        tpot_p95 = np.zeros_like(step)
    return LoadCurve(
        batch=batch,
        step_s=step_scale * step,
        rate=np.maximum.accumulate(rate) / step_scale,
        tpot_p95_s=step_scale * np.maximum.accumulate(tpot_p95),
        ttft_s=fixed + step_scale * (schedule + wait + own),
        ttft_p95_s=fixed + step_scale * (schedule + wait_p95 + own_p95),
        front_s=fixed,
        steps_mean=mix.steps_mean,
        steps_p95=mix.steps_p95,
        prefill_share=(step - decode) / step,
        cache_share=(decode - bare) / step,
        top=float(batch[-1]),
        top_by=top_by,
    )


def step_parts(replica: Replica, mix: LengthMix, batch: Array) -> tuple[Array, Array, Array]:
    """Steady-state step, the same without prompts, and without a cache [s], shape of `batch`."""
    none = np.zeros_like(batch)
    held = batch * mix.held_mean
    prompts = batch * (mix.work(replica.attention_tokens).mean / mix.steps_held)
    cases = [(held, prompts), (held, none)]
    # Step times of our own say what the cache takes: without any they would be extrapolated.
    if not isinstance(replica.step_time, StepTime):
        cases.append((none, none))
    seconds = replica.step_time.seconds(
        np.tile(batch, len(cases)),
        np.concatenate([cached for cached, _ in cases]),
        np.concatenate([prompt for _, prompt in cases]),
    )
    step, decode, *rest = np.split(np.asarray(seconds, dtype=float), len(cases))
    decode = np.minimum(decode, step)
    if not isinstance(replica.step_time, StepTime):
        return step, decode, np.minimum(rest[0], decode)
    terms = replica.step_time.terms(batch, held / batch)
    share = terms["kv"] / sum(terms.values())
    return step, decode, decode * (1 - np.asarray(share))


def _unlucky(
    batch: Array, step: Array, decode: Array, rate: Array, work: PrefillWork, peakedness: float
) -> Array:
    """What the 95th percentile of requests waits per token over the mean step [s].

    It meets more prompts than the average, and a fuller batch; the number in service changes
    about as fast as requests end, so half its variance averages out.
    """
    met = (step - decode) * (work.tail_at(rate * step) - 1)
    if len(batch) == 1 or not peakedness:
        return np.asarray(met)
    fuller = np.gradient(step, batch) * _Z95 * np.sqrt(peakedness * batch / 2)
    return np.hypot(met, fuller)


def most_sequences(replica: Replica, mix: LengthMix, work_per_step: float) -> tuple[float, str]:
    """Decoding sequences a replica ever holds, and what stops more.

    work_per_step: prompt tokens each of them brings to a step. A step's token budget holds
    the decoding ones and their prompts.
    """
    limits = {
        "cache": pool_batch(replica, mix),
        "max_num_seqs": float(replica.limits.max_num_seqs),
        "max_num_batched_tokens": replica.limits.max_num_batched_tokens / (1 + work_per_step),
    }
    name = min(limits, key=lambda key: limits[key])
    return limits[name], name


def _waits(rate: Array, per_token: Array, decode: Array, work: PrefillWork) -> tuple[Array, Array]:
    """Mean and 95th percentile of the wait for earlier prompts and the step under way [s].

    Prompts queue like M/G/1 (Pollaczek-Khinchine); its tail is taken as exponential.
    """
    load = np.minimum(rate * per_token * work.mean, 0.999)
    queue = rate * per_token**2 * work.square / (2 * (1 - load))
    tail = np.divide(queue, load, out=np.zeros_like(queue), where=load > 0)
    queue_p95 = tail * np.log(np.maximum(load / 0.05, 1.0))
    return decode / 2 + queue, decode + queue_p95


def _settle(most: float, reach: float) -> float:
    """The mean `n` for which `n + reach * sqrt(n) = most`."""
    root = (-reach + np.sqrt(reach**2 + 4 * most)) / 2
    return float(root**2)
