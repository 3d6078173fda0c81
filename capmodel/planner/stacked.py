"""Step times of many deployments at once: the same sums as `StepTime`, a row per deployment.

A search asks two hundred deployments for a few steps each. One by one most of the time goes into
starting NumPy on sixteen numbers; together it goes into the arithmetic.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from capmodel.anchors import Rising, lifted
from capmodel.planner.rows import alike, column
from capmodel.steptime import FamilyCost, StepTime, standing

Array = NDArray[np.float64]


class Stack:
    """`step_times` one under the other. Prompts' attention to each other is left out."""

    def __init__(self, step_times: Sequence[StepTime]) -> None:
        self.step_times = step_times
        self.ranks = column(one.dp for one in step_times)
        families = dict.fromkeys(cost.family for one in step_times for cost in one.costs)
        self.costs = {
            name: _Costs([[c for c in one.costs if c.family == name] for one in step_times])
            for name in families
        }
        most = max(len(one.floors) for one in step_times)
        self.floors = [_Costs([one.floors[k : k + 1] for one in step_times]) for k in range(most)]

    def seconds(self, batch: Array, cached_tokens: Array, prefill_tokens: Array) -> Array:
        """As `StepTime.seconds`: [s], arrays of shape (step times, points)."""
        context = cached_tokens / np.maximum(batch, 1e-9)
        least = self._least(batch, context, prefill_tokens)
        total = np.maximum(sum(self.terms(batch, context, prefill_tokens).values()), least)
        kernels = [one.kernels for one in self.step_times]
        if any(kernels):
            none = np.zeros_like(batch)
            alone = np.maximum(
                sum(self.terms(batch, context, none).values()), self._least(batch, context, none)
            )
            total = total + (self._between(kernels, batch, context) - 1.0) * alone
        rising = [one.rising for one in self.step_times]
        found = total * self._factors(batch, context, prefill_tokens)
        return np.maximum(found * self._between(rising, batch, context), least)

    def terms(self, batch: Array, context_len: Array, prefill_tokens: Array) -> dict[str, Array]:
        """As `StepTime.terms`: [s] by family, each (step times, points)."""
        share = batch / self.ranks
        return {
            name: cost.seconds(share, context_len, prefill_tokens, batch + prefill_tokens)
            for name, cost in self.costs.items()
        }

    def _least(self, batch: Array, context_len: Array, prefill_tokens: Array) -> Array:
        share, least = batch / self.ranks, np.zeros_like(batch)
        for cost in self.floors:
            value = cost.seconds(share, context_len, prefill_tokens, batch + prefill_tokens)
            least = np.maximum(least, value)
        return least

    def _factors(self, batch: Array, context_len: Array, prefill_tokens: Array) -> Array:
        """The learned corrections, each asked once for all the rows it speaks for."""
        found = np.ones_like(batch)
        for rows, correction in alike([one.correction for one in self.step_times]):
            if correction is None:
                continue
            places = np.array([self.step_times[row].place for row in rows])
            own = (batch / self.ranks, batch, context_len, prefill_tokens)
            points = standing(
                np.repeat(places, batch.shape[1], axis=0), *(one[rows].ravel() for one in own)
            )
            found[rows] = np.exp(correction(points)[0]).reshape(len(rows), -1)
        return found

    def _between(self, tables: Sequence[Rising | None], batch: Array, context_len: Array) -> Array:
        """The factors that each `StepTime` holds between anchors, 1 where it has none."""
        found = np.ones_like(batch)
        rows = [row for row, table in enumerate(tables) if table is not None]
        if rows:
            own = np.array([table.factors for table in tables if table is not None])
            found[rows] = lifted(own, batch[rows], context_len[rows])
        return found


class _Costs:
    """One family of each deployment as columns; a deployment without it costs nothing."""

    def __init__(self, costs: Sequence[Sequence[FamilyCost]]) -> None:
        self.fixed_s, self.sequence_s, self.prefill_s = (
            column(sum(getattr(one, name) for one in own) for own in costs)
            for name in ("fixed_s", "sequence_s", "prefill_s")
        )
        growth = [[(g.slope, g.limit) for one in own for g in one.growth] for own in costs]
        experts = [[pair for one in own for pair in one.experts] for own in costs]
        self.growth, self.experts = _columns(growth), _columns(experts)

    def seconds(self, share: Array, context_len: Array, prefill: Array, tokens: Array) -> Array:
        """share: sequences of an attention rank; tokens: that experts see."""
        value = self.fixed_s + share * self.sequence_s + prefill * self.prefill_s
        for slope, limit in self.growth:
            value = value + share * slope * np.minimum(context_len, limit)
        for missed, seconds in self.experts:
            value = value - seconds * np.expm1(missed * tokens)
        return np.asarray(value)


def _columns(pairs: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[Array, Array]]:
    """The k-th pair of every deployment as two columns; zeros where it has fewer."""
    most = max(map(len, pairs), default=0)
    columns = []
    for k in range(most):
        own = np.array([row[k] if k < len(row) else (0.0, 0.0) for row in pairs])
        columns.append((own[:, :1], own[:, 1:]))
    return columns
