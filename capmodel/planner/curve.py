"""A replica's steady state over the number of sequences it decodes at once.

A decoding sequence makes one token a step, and each step carries the prompts of the requests
that replace those which end: in the steady state `batch * input / steps` prompt tokens. So the
load that keeps `batch` sequences decoding needs no iteration: `batch / (steps * step_time)`.

A search asks this of hundreds of replicas, so all is worked out for many at once, a row each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from capmodel.planner.mix import LengthMix, PrefillWork
from capmodel.planner.pool import most_sequences, settle
from capmodel.planner.replica import Replica
from capmodel.planner.rows import alike, column, gradient, interpolated
from capmodel.planner.stacked import Stack
from capmodel.steptime import StepTime

Array = NDArray[np.float64]

_POINTS = 16
Z95 = 1.6448536


@dataclass(frozen=True, slots=True, eq=False)
class LoadCurve:
    """Arrays over `batch` decoding sequences, shape (points,).

    step_s: mean step [s], prompts inside. rate: requests/s. tpot_p95_s, ttft_s, ttft_p95_s [s].
    e2e_p95_s: from arrival to the last token [s]. Shares of the step time: prefill_share;
    cache_share, reading the cache; the rest is weights and fixed work.
    front_s: of the TTFT, what no step takes [s]. top_by: what stops more sequences.
    """

    batch: Array
    step_s: Array
    rate: Array
    tpot_p95_s: Array
    ttft_s: Array
    ttft_p95_s: Array
    e2e_p95_s: Array
    prefill_share: Array
    cache_share: Array
    front_s: Array
    top_by: str

    def scaled(self, step_scale: float) -> "LoadCurve":
        """The same replica with every step `step_scale` times as long."""
        return stacked([self]).scaled(np.array([step_scale])).row(0)

    def at_rate(self, rate: float) -> float:
        """Sequences decoding at `rate` requests/s; NaN above the curve's end."""
        return float(stacked([self]).at_rate(np.array([rate]))[0])

    def value(self, name: str, batch: float) -> float:
        """The array `name` at `batch` sequences."""
        return float(np.interp(batch, self.batch, getattr(self, name)))


@dataclass(frozen=True, slots=True, eq=False)
class LoadCurves:
    """Curves of `n` replicas: `LoadCurve`'s arrays, shape (n, points), top_by one of each.

    counts: points of each, shape (n,); what follows repeats the last.
    """

    batch: Array
    step_s: Array
    rate: Array
    tpot_p95_s: Array
    ttft_s: Array
    ttft_p95_s: Array
    e2e_p95_s: Array
    prefill_share: Array
    cache_share: Array
    front_s: Array
    top_by: tuple[str, ...]
    counts: NDArray[np.intp]

    def scaled(self, step_scale: Array) -> "LoadCurves":
        """The same replicas with every step `step_scale` times as long, shape (n,)."""
        scale, front = step_scale[:, None], self.front_s
        return replace(
            self,
            step_s=scale * self.step_s,
            rate=self.rate / scale,
            tpot_p95_s=scale * self.tpot_p95_s,
            ttft_s=front + scale * (self.ttft_s - front),
            ttft_p95_s=front + scale * (self.ttft_p95_s - front),
            e2e_p95_s=front + scale * (self.e2e_p95_s - front),
        )

    def at_rate(self, rate: Array) -> Array:
        """Sequences of each decoding at `rate` requests/s; NaN above a curve's end, (n,)."""
        (found,) = interpolated(self.rate, rate, [self.batch])
        found = np.where(rate < self.rate[:, 0], self.batch[:, 0] * rate / self.rate[:, 0], found)
        return np.where(rate > self.rate[:, -1], np.nan, found)

    def take(self, rows: Sequence[int]) -> "LoadCurves":
        """Some of the rows, in any order."""
        places = np.asarray(rows, dtype=np.intp)
        arrays = {name: getattr(self, name)[places] for name in (*ARRAYS, "counts")}
        return LoadCurves(**arrays, top_by=tuple(self.top_by[row] for row in rows))

    def row(self, row: int) -> LoadCurve:
        """One of the curves."""
        count = int(self.counts[row])
        arrays = {name: getattr(self, name)[row, :count] for name in ARRAYS}
        return LoadCurve(**arrays, top_by=self.top_by[row])


ARRAYS = tuple(field.name for field in fields(LoadCurve) if field.name != "top_by")


def stacked(curves: Sequence[LoadCurve]) -> LoadCurves:
    """Curves one under the other; those with fewer points repeat their last."""
    counts = np.array([len(curve.batch) for curve in curves])
    places = np.minimum(np.arange(counts.max(initial=1)), counts[:, None] - 1)
    arrays = {
        name: np.array([
            getattr(curve, name)[place] for curve, place in zip(curves, places, strict=True)
        ])
        for name in ARRAYS
    }  # fmt: skip
    return LoadCurves(**arrays, top_by=tuple(curve.top_by for curve in curves), counts=counts)


def load_curve(
    replica: Replica, mix: LengthMix, peakedness: float, step_scale: float = 1.0
) -> LoadCurve:
    """The steady state of `replica` under `mix`.

    peakedness: variance over mean of the number in service (0: a closed loop, none).
    step_scale: multiplies the step time.
    """
    curves = load_curves([replica], [mix], [peakedness])
    return curves.scaled(np.array([step_scale])).row(0)


def load_curves(
    replicas: Sequence[Replica], mixes: Sequence[LengthMix], peakedness: Sequence[float]
) -> LoadCurves:
    """The steady state of each replica under the mix and peakedness at its place."""
    works = [
        mix.work(one.prompts.attention_tokens) for one, mix in zip(replicas, mixes, strict=True)
    ]  # fmt: skip
    held = column(mix.steps_held for mix in mixes)
    per_sequence = column(work.mean for work in works) / held
    limits = [
        most_sequences(one, mix, float(share))
        for one, mix, (share,) in zip(replicas, mixes, per_sequence, strict=True)
    ]
    # Room for the ordinary fluctuation of the number in service.
    reach = Z95 * np.sqrt(np.asarray(peakedness, dtype=float))
    tops = column(
        max(settle(most, float(own)), 1e-3)
        for (most, _), own in zip(limits, reach, strict=True)
    )  # fmt: skip
    batch, points = batches(tops)
    step, decode, bare = step_parts(replicas, mixes, batch)
    rate = batch / (held * step)
    counts = np.minimum(np.argmax(rate, axis=1) + 1, points)
    last = np.minimum(np.arange(_POINTS), counts[:, None] - 1)
    batch, step, decode, bare, rate = (
        np.take_along_axis(values, last, axis=1) for values in (batch, step, decode, bare, rate)
    )
    per_token = (step - decode) / (batch * per_sequence)
    wait, wait_p95 = _waits(rate, per_token, decode, works, column(peakedness))
    chunk = np.maximum(column(one.limits.max_num_batched_tokens for one in replicas) - batch, 1.0)
    own, own_p95 = (
        per_token * prompt + decode * np.ceil(prompt / chunk)
        for prompt in (column(work.p50 for work in works), column(work.p95 for work in works))
    )
    front = [one.front_end for one in replicas]
    fixed = (
        column(one.fixed_s for one in front) + column(one.per_request_s for one in front) * batch
    )
    schedule = column(one.steps for one in front) * step
    # A fuller batch evens out the prompts that one meets, but never makes a token come sooner.
    # Where every answer is one token, nobody waits for a second.
    spread = column(peakedness)
    tpot_p95 = step + _unlucky(batch, step, decode, rate, works, spread, counts)
    tpot_p95 = np.where(column(bool(mix.steps.any()) for mix in mixes) > 0, tpot_p95, 0.0)
    tpot_p95 = np.maximum.accumulate(tpot_p95, axis=1)
    ttft, ttft_p95 = fixed + (schedule + wait + own), fixed + (schedule + wait_p95 + own_p95)
    return LoadCurves(
        batch=batch,
        step_s=step,
        rate=np.maximum.accumulate(rate, axis=1),
        tpot_p95_s=tpot_p95,
        ttft_s=ttft,
        ttft_p95_s=ttft_p95,
        e2e_p95_s=whole_p95(ttft, ttft_p95, step, tpot_p95, mixes),
        prefill_share=(step - decode) / step,
        cache_share=(decode - bare) / step,
        front_s=fixed,
        top_by=tuple(
            "throughput" if count < most else name
            for count, most, (_, name) in zip(counts, points, limits, strict=True)
        ),
        counts=counts,
    )


def batches(tops: Array) -> tuple[Array, NDArray[np.intp]]:
    """Batches up to each top (n, 1), evenly in the logarithm from 1, and how many differ, (n,)."""
    logs = np.log(np.maximum(tops, 1.0))
    grid = np.arange(_POINTS) * (logs / (_POINTS - 1))
    grid[:, -1:] = logs
    several = tops > 1.01
    return np.where(several, np.exp(grid), tops), np.where(several[:, 0], _POINTS, 1)


def step_parts(
    replicas: Sequence[Replica], mixes: Sequence[LengthMix], batch: Array
) -> tuple[Array, Array, Array]:
    """Steady-state step, the same without prompts, and without a cache [s], shape of `batch`.

    batch: (replicas, points).
    """
    held = batch * column(mix.held_mean for mix in mixes)
    works = [
        mix.work(one.prompts.attention_tokens).mean
        for one, mix in zip(replicas, mixes, strict=True)
    ]
    work = column(works)
    prompts = batch * work / column(mix.steps_held for mix in mixes)
    # A prompt comes whole, or in chunks of the token budget, into some steps; spread thinly over
    # all of them it would have each read its experts again.
    budget = column(one.limits.max_num_batched_tokens for one in replicas)
    chunk = work / np.maximum(np.ceil(work / np.maximum(budget - batch, 1.0)), 1.0)
    chunk = np.maximum(chunk, prompts)
    ours = [row for row, one in enumerate(replicas) if isinstance(one.step_time, StepTime)]
    step, decode, bare = np.empty_like(batch), np.empty_like(batch), np.empty_like(batch)
    if ours:
        own = [one.step_time for one in replicas if isinstance(one.step_time, StepTime)]
        step[ours], decode[ours], bare[ours] = _of_step_times(
            Stack(own), batch[ours], held[ours], chunk[ours]
        )
    for row in sorted(set(range(len(replicas))) - set(ours)):
        step[row], decode[row], bare[row] = _of_others(
            replicas[row], batch[row], held[row], chunk[row]
        )
    share = np.divide(prompts, chunk, out=np.zeros_like(chunk), where=chunk > 0)
    return decode + share * (step - decode), decode, bare


def _of_step_times(
    stack: Stack, batch: Array, held: Array, prompts: Array
) -> tuple[Array, Array, Array]:
    none = np.zeros_like(batch)
    seconds = stack.seconds(
        np.hstack([batch, batch]), np.hstack([held, held]), np.hstack([prompts, none])
    )
    step, decode = np.hsplit(seconds, 2)
    decode = np.minimum(decode, step)
    # Step times of our own say what the cache takes: without any they would be extrapolated.
    terms = stack.terms(batch, held / batch, none)
    return step, decode, decode * (1 - terms["kv"] / sum(terms.values()))


def _of_others(
    replica: Replica, batch: Array, held: Array, prompts: Array
) -> tuple[Array, Array, Array]:
    none = np.zeros_like(batch)
    seconds = replica.step_time.seconds(
        np.tile(batch, 3), np.concatenate([held, held, none]), np.concatenate([prompts, none, none])
    )
    step, decode, bare = np.split(np.asarray(seconds, dtype=float), 3)
    decode = np.minimum(decode, step)
    return step, decode, np.minimum(bare, decode)


def _unlucky(
    batch: Array,
    step: Array,
    decode: Array,
    rate: Array,
    works: Sequence[PrefillWork],
    peakedness: Array,
    counts: NDArray[np.intp],
) -> Array:
    """What the 95th percentile of requests waits per token over the mean step [s].

    It meets more prompts than the average, and a fuller batch; the number in service changes
    about as fast as requests end, so half its variance averages out.
    """
    tail = np.empty_like(step)
    for rows, work in alike(works):
        tail[rows] = work.tail_at((rate * step)[rows])
    met = (step - decode) * (tail - 1)
    fuller = gradient(step, batch, counts) * Z95 * np.sqrt(peakedness * batch / 2)
    return np.where((counts[:, None] == 1) | (peakedness == 0), met, np.hypot(met, fuller))


def _waits(
    rate: Array, per_token: Array, decode: Array, works: Sequence[PrefillWork], peakedness: Array
) -> tuple[Array, Array]:
    """Mean and 95th percentile of the wait for earlier prompts and the step under way [s].

    Prompts queue like M/G/1 (Pollaczek-Khinchine), those of bursts longer (Kingman: the variance
    of the gaps counts as that of the prompts does); the tail is taken as exponential.
    """
    mean, square = column(work.mean for work in works), column(work.square for work in works)
    load = np.minimum(rate * per_token * mean, 0.999)
    bursts = np.maximum(peakedness - 1, 0.0) * load * per_token * mean
    queue = (rate * per_token**2 * square / 2 + bursts) / (1 - load)
    tail = np.divide(queue, load, out=np.zeros_like(queue), where=load > 0)
    queue_p95 = tail * np.log(np.maximum(load / 0.05, 1.0))
    return decode / 2 + queue, decode + queue_p95


def whole_p95(
    ttft: Array, ttft_p95: Array, step: Array, tpot_p95: Array, mixes: Sequence[LengthMix]
) -> Array:
    """95th percentile from arrival to the last token [s].

    The mean, and what a long wait, a long answer and slow steps add, taken as independent.
    """
    steps, most = column(mix.steps_mean for mix in mixes), column(mix.steps_p95 for mix in mixes)
    wait = ttft_p95 - ttft
    longer = (most - steps) * step
    slower = steps * (tpot_p95 - step)
    return np.asarray(ttft + steps * step + np.sqrt(wait**2 + longer**2 + slower**2))
