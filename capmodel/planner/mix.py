"""What a workload's lengths mean for a replica in the steady state."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from capmodel.workload import Requests

_SAMPLE = 1024
_TAIL_POINTS, _TAIL_EVERY = 16, 3
_GOLDEN = 0.6180339887498949

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class LengthMix:
    """Means over all requests, and a sample of `m` for what is not linear.

    input_mean, output_mean: [tokens]. steps_mean, steps_p95: decode steps per request,
    output - 1.
    hit_share: share of prompt tokens that an endless prefix cache would find.
    prompt, hits, steps: sample, shape (m,) [tokens]. held: tokens that a decoding sequence holds
    at a random moment, shape (m,): requests weigh by their steps, and stand anywhere in them.
    final: what the same sequences hold at their end, shape (m,).
    """

    input_mean: float
    output_mean: float
    steps_mean: float
    steps_p95: float
    hit_share: float
    prompt: Array
    hits: Array
    steps: Array
    held: Array
    final: Array

    @property
    def held_mean(self) -> float:
        """Tokens a decoding sequence holds on average."""
        return float(self.held.mean())

    @property
    def steps_held(self) -> float:
        """Steps for which a request keeps its place: even an answer of one token takes one."""
        return max(self.steps_mean, 1.0)

    def work(self, attention_tokens: float) -> "PrefillWork":
        """Prefill work per prompt in tokens, attention counted."""
        return _work(self, attention_tokens)


@dataclass(frozen=True, slots=True)
class PrefillWork:
    """Moments and percentiles of the work in a prompt [tokens], and of what a request meets.

    tail_prompts: prompts begun per step; tail: what the prompts met by the unlucky 95th
    percentile of requests add to a step of theirs, over the average. Few steps, few prompts:
    wide.
    """

    mean: float
    square: float
    p50: float
    p95: float
    tail_prompts: tuple[float, ...]
    tail: tuple[float, ...]

    def tail_at(self, prompts_per_step: Array) -> Array:
        """`tail` at other numbers of prompts per step, shape kept."""
        grid = np.log(self.tail_prompts)
        return np.interp(np.log(np.maximum(prompts_per_step, 1e-12)), grid, self.tail)


def length_mix(requests: Requests, prefix_cache: bool = False) -> LengthMix:
    """The mix of `requests`. Deterministic: the sample is taken at even ranks."""
    prompt = requests.prompt_tokens.astype(float)
    output = requests.output_tokens.astype(float)
    hits = endless_hits(requests) if prefix_cache else np.zeros(len(requests))
    steps = output - 1
    n = len(requests)
    take = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).round().astype(int))
    ranks = (np.arange(_SAMPLE) + 0.5) / _SAMPLE
    weight = np.maximum(steps, 1e-9)
    order = np.argsort(prompt + output, kind="stable")
    cumulative = np.cumsum(weight[order])
    chosen = order[np.minimum(np.searchsorted(cumulative, ranks * cumulative[-1]), n - 1)]
    place = (np.arange(1, _SAMPLE + 1) * _GOLDEN) % 1.0
    return LengthMix(
        input_mean=float(prompt.mean()),
        output_mean=float(output.mean()),
        steps_mean=float(max(steps.mean(), 1e-9)),
        steps_p95=float(np.percentile(steps, 95)),
        hit_share=float(hits.sum() / prompt.sum()),
        prompt=prompt[take],
        hits=hits[take],
        steps=steps[take],
        held=prompt[chosen] + place * steps[chosen],
        final=prompt[chosen] + output[chosen],
    )


@lru_cache(maxsize=64)
def _work(mix: LengthMix, attention_tokens: float) -> PrefillWork:
    new = mix.prompt - mix.hits
    work = new * (1.0 + (mix.hits + new / 2) / attention_tokens)
    p50, p95 = np.percentile(work, [50, 95])
    mean, square = float(work.mean()), float((work**2).mean())
    # Prompts met over a request's steps: compound Poisson, taken as gamma of equal mean and
    # variance. A fixed seed: the table is a property of the mix.
    prompts = np.geomspace(1e-3, 30, _TAIL_POINTS)
    steps = mix.steps[mix.steps > 0][::_TAIL_EVERY]
    if not len(steps):
        return PrefillWork(mean, square, float(p50), float(p95), (1.0,), (1.0,))
    shape = prompts[:, None] * steps * mean**2 / square
    met = np.random.default_rng(0).standard_gamma(shape) / shape
    tail = np.maximum(np.percentile(met, 95, axis=1), 1.0)
    return PrefillWork(
        mean,
        square,
        float(p50),
        float(p95),
        tuple(prompts.tolist()),
        tuple(tail.tolist()),
    )


def endless_hits(requests: Requests) -> Array:
    """Prompt tokens each request would find in a prefix cache that forgets nothing, shape (n,).

    An id stands for its whole prefix, so an id seen before means that all before it were, too.
    The last token is always computed.
    """
    n = len(requests)
    if not len(requests.prefix_offsets):
        return np.zeros(n)
    offsets, block = requests.prefix_offsets, requests.prefix_block
    owner = np.repeat(np.arange(n), np.diff(offsets))
    whole = (
        np.arange(len(requests.prefix_ids)) - offsets[owner]
        < requests.prompt_tokens[owner] // block
    )
    _, first, inverse = np.unique(requests.prefix_ids, return_index=True, return_inverse=True)
    seen = (owner[first][inverse] < owner) & whole
    tokens = np.bincount(owner, weights=seen, minlength=n) * block
    return np.minimum(tokens, requests.prompt_tokens - 1).astype(float)
