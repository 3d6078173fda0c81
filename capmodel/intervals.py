"""How far held-out rows were from their predictions, as factors on a new one.

For each kind of novelty the bounds of log(measured / predicted) over rows that were held out in
that way (`capmodel.conformal`): a known deployment on a known GPU takes the random split's of its
engine and GPU, a new model the model split's, an unseen GPU the GPU split's. Bounds never narrow
with novelty.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from capmodel.bands import Bands, Bounds, Reach
from capmodel.conformal import grouped_bounds, log_bounds, wider
from capmodel.evaluation import UNIT_OF_SPLIT, GradeCard
from capmodel.filed import LOG_FACTOR, figures, listed, span_of, text, unique
from capmodel.words import shown

Array = npt.NDArray[np.float64]

LEVELS = (0.5, 0.8, 0.9, 0.95)
# Kind of novelty -> the split whose held-out rows have it, from least to most new.
NOVELTY = {"known": "random", "model": "model", "gpu": "gpu"}

Pairs = tuple[tuple[float, float], ...]
# Method, novelty, engine and GPU; both empty for bounds over all of them.
Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Intervals:
    """quantiles: log factors (low, high) at each of LEVELS."""

    quantiles: dict[Key, Pairs]

    def bands(
        self, level: tuple[str, ...], method: str, own: Reach | None, all_rows: Reach | None
    ) -> Bands:
        """Bounds of predictions from that roofline level.

        own: what is measured of the deployment; all_rows: of the level's engine and GPU.
        """
        pair = (level[0], level[1]) if len(level) == 2 else ("", "")

        def bounds(novelty: str) -> Bounds:
            pooled = self.quantiles.get((method, novelty, "", ""), ())
            told = self.quantiles.get((method, novelty, *pair), pooled)
            return tuple((cover, *ends) for cover, ends in zip(LEVELS, told, strict=False))

        return Bands(bounds("known"), bounds("model"), bounds("gpu"), own, all_rows)

    def to_dict(self) -> list[dict[str, Any]]:
        return [
            {"method": method, "novelty": novelty, "engine": engine, "gpu": gpu,
             "levels": list(LEVELS),
             "log_factors": [[round(v, 6) for v in pair] for pair in pairs]}
            for (method, novelty, engine, gpu), pairs in self.quantiles.items()
        ]  # fmt: skip

    @classmethod
    def from_dict(cls, content: list[dict[str, Any]]) -> "Intervals":
        """The intervals of `to_dict`. Raises KeyError, TypeError or ValueError."""
        return cls(unique("interval of", map(_entry_from, listed("intervals", content))))


def _entry_from(entry: dict[str, Any]) -> tuple[Key, Pairs]:
    method, novelty = text("method", entry["method"]), text("novelty", entry["novelty"])
    pair = text("engine", entry.get("engine", "")), text("gpu", entry.get("gpu", ""))
    if novelty not in NOVELTY:
        raise ValueError(f"Got novelty={shown(novelty)}, but expected {', '.join(NOVELTY)}")
    if figures("levels", entry["levels"], len(LEVELS)) != LEVELS:
        raise ValueError(f"Got levels={shown(entry['levels'])}, but expected {LEVELS}")
    pairs = listed("log_factors", entry["log_factors"], len(LEVELS))
    return (method, novelty, *pair), tuple(
        span_of("log_factors", ends, LOG_FACTOR) for ends in pairs
    )


def with_few_rows(
    intervals: Intervals, pair: tuple[str, str], residuals: dict[str, Array]
) -> Intervals:
    """Intervals that also speak for an engine and GPU adapted to a few rows.

    residuals: log(measured / predicted) of each row, adapted to the others, by method; none where
    there is one row. They only widen what rows of new models were found to need elsewhere, and
    the fewer they are the more: unstretched, those bounds held 82 % of steps where pairs of
    Argonne's rows were adapted to one row.
    """
    found = dict(intervals.quantiles)
    for method, missed in residuals.items():
        for novelty in ("known", "model"):
            own = intervals.quantiles.get((method, novelty, *pair))
            base = own or intervals.quantiles.get((method, "model", "", ""))
            if base is None or (own and not len(missed)):
                continue
            each, stretch = np.arange(len(missed)), 1.0 if own else 1.0 + 3.0 / max(len(missed), 1)
            wide = [wider((low, high), (stretch * low, stretch * high)) for low, high in base]
            if len(missed):
                pairs = zip(LEVELS, wide, strict=True)
                wide = [wider(one, log_bounds(missed, level, each)) for level, one in pairs]
            found[method, novelty, *pair] = tuple(wide)
    return Intervals(found)


def intervals_from(card: GradeCard) -> Intervals | None:
    """Intervals from a card's held-out predictions; None where no split has enough rows."""
    found: dict[Key, Pairs] = {}
    for method in ("regressor", "roofline"):
        less_new: dict[tuple[str, str], Pairs] = {}
        for novelty, split in NOVELTY.items():
            cell = card.cell(split, method)
            if len(cell) < 20:
                continue
            here = _bounds_of(cell, UNIT_OF_SPLIT.get(split))
            if novelty == "gpu":  # an unseen GPU has no rows of its own to take bounds from
                here = {("", ""): here["", ""]}
            for pair in sorted({*here, *(less_new if novelty == "model" else ())}):
                known = less_new.get(pair, less_new.get(("", ""), ()))
                own = here.get(pair, here["", ""])
                found[method, novelty, *pair] = tuple(
                    wider(bounds, known[place]) if known else bounds
                    for place, bounds in enumerate(own)
                )
            less_new = {
                key[2:]: pairs for key, pairs in found.items() if key[:2] == (method, novelty)
            }
    return Intervals(found) if found else None


def _bounds_of(cell: Any, unit: str | None) -> dict[tuple[str, str], Pairs]:
    """Bounds at LEVELS over all rows of a cell, key ("", ""), and of each engine and GPU."""
    residual = np.log(cell["step_time_s"] / cell["predicted_s"]).to_numpy(float)
    groups = cell.groupby(["engine", "gpu"]).ngroup().to_numpy()
    units = cell.groupby(unit).ngroup().to_numpy() if unit else None
    names = dict(zip(groups, zip(cell["engine"], cell["gpu"], strict=True), strict=True))
    by_level = [grouped_bounds(residual, groups, level, units) for level in LEVELS]
    found = {("", ""): tuple(whole for whole, _ in by_level)}
    for group in by_level[0][1]:
        found[names[group]] = tuple(own[group] for _, own in by_level)
    return found
