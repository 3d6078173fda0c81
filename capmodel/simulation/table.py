"""A step time as a table: a few microseconds a step, whatever it costs to evaluate.

Straight between its points in sequences, context and prompt tokens, so exact for every sum of
fixed, per-sequence, per-cached-token and per-prompt-token work; curved step times (experts
touched, learned corrections) are met at the points.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from capmodel.arguments import LENGTH, number, with_method
from capmodel.simulation.server import StepTimeLike

_BATCHES, _CONTEXTS, _PROMPTS = 18, 14, 8


@dataclass(frozen=True, slots=True)
class StepTable:
    """Seconds at `batch` x `context` x `prompt`, rows after one another in `seconds_at`.

    batch: sequences decoding, 0 first. context: mean cached tokens of each. prompt: prompt
    tokens in the step, 0 first. Beyond the last points the last slope goes on.
    """

    batch: tuple[float, ...]
    context: tuple[float, ...]
    prompt: tuple[float, ...]
    seconds_at: tuple[float, ...]

    def seconds(self, batch: float, cached_tokens: float, prefill_tokens: float = 0.0) -> float:
        """One step [s]; scalars only."""
        i, u = _place(self.batch, batch)
        j, v = _place(self.context, cached_tokens / batch if batch else 0.0)
        width, depth = len(self.prompt), len(self.context)
        corner = (i * depth + j) * width
        values, across = self.seconds_at, depth * width
        if not prefill_tokens:
            near = values[corner] * (1 - v) + values[corner + width] * v
            far = values[corner + across] * (1 - v) + values[corner + across + width] * v
            return near * (1 - u) + far * u
        k, w = _place(self.prompt, prefill_tokens)
        corner += k
        total = 0.0
        for place, share in ((corner, 1 - u), (corner + across, u)):
            low = values[place] * (1 - w) + values[place + 1] * w
            high = values[place + width] * (1 - w) + values[place + width + 1] * w
            total += share * (low * (1 - v) + high * v)
        return total


def tabulated(
    step_time: StepTimeLike, most_sequences: float, longest: float, most_prompt: float
) -> StepTable:
    """`step_time` on a grid up to these sequences, context [tokens] and prompt tokens a step.

    Raises ValueError for limits below one.
    """
    for name, limit in (
        ("most_sequences", most_sequences), ("longest", longest), ("most_prompt", most_prompt)
    ):  # fmt: skip
        number(name, limit, LENGTH)
    with_method("step_time", step_time, "seconds", "a StepTime")
    batch = np.concatenate([[0.0], _spaced(1.0, most_sequences, _BATCHES)])
    context = np.concatenate([[0.0], _spaced(16.0, longest, _CONTEXTS)])
    prompt = np.concatenate([[0.0], _spaced(16.0, most_prompt, _PROMPTS)])
    grid = np.meshgrid(batch, context, prompt, indexing="ij")
    sizes, contexts, prompts = (values.ravel() for values in grid)
    seconds = np.asarray(step_time.seconds(sizes, sizes * contexts, prompts), dtype=float)
    return StepTable(
        tuple(batch.tolist()),
        tuple(context.tolist()),
        tuple(prompt.tolist()),
        tuple(seconds.tolist()),
    )


def _spaced(low: float, high: float, points: int) -> np.ndarray:
    """Points from `low` to at least twice `low`, evenly in the logarithm."""
    return np.geomspace(low, max(high, 2 * low), points)


def _place(points: tuple[float, ...], value: float) -> tuple[int, float]:
    """Interval of `value` and how far into it, past 1 beyond the end."""
    at = min(bisect_right(points, value) - 1, len(points) - 2)
    return at, (value - points[at]) / (points[at + 1] - points[at])
