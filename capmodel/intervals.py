"""How far held-out rows were from their predictions, as factors on a new one.

Split conformal: for each kind of novelty the quantiles of log(measured / predicted) over rows
that were held out in that way. A known model on a known GPU takes the random split's, an unseen
model the model split's, an unseen GPU the GPU split's. Widths never shrink with novelty.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from capmodel.evaluation import GradeCard

LEVELS = (0.5, 0.8, 0.9, 0.95)
# Kind of novelty -> the split whose held-out rows have it, from least to most new.
NOVELTY = {"known": "random", "model": "model", "gpu": "gpu"}


@dataclass(frozen=True, slots=True)
class Intervals:
    """quantiles: (method, novelty) -> log factors (low, high) at each of LEVELS."""

    quantiles: dict[tuple[str, str], tuple[tuple[float, float], ...]]

    def log_factors(
        self, level: tuple[str, ...], known_model: bool, method: str
    ) -> tuple[tuple[float, float, float], ...]:
        """(coverage, low, high) rows for a prediction from that roofline level.

        Empty where no held-out rows speak for it.
        """
        novelty = "gpu" if len(level) < 2 else "known" if known_model else "model"
        own = self.quantiles.get((method, novelty), ())
        return tuple((cover, low, high) for cover, (low, high) in zip(LEVELS, own, strict=False))

    def to_dict(self) -> list[dict[str, Any]]:
        return [
            {"method": method, "novelty": novelty, "levels": list(LEVELS),
             "log_factors": [[round(v, 6) for v in pair] for pair in pairs]}
            for (method, novelty), pairs in self.quantiles.items()
        ]  # fmt: skip

    @classmethod
    def from_dict(cls, content: list[dict[str, Any]]) -> "Intervals":
        return cls({
            (str(entry["method"]), str(entry["novelty"])): tuple(
                (float(low), float(high)) for low, high in entry["log_factors"]
            )
            for entry in content
        })  # fmt: skip


def intervals_from(card: GradeCard) -> Intervals | None:
    """Intervals from a card's held-out predictions; None where it has no random split."""
    found: dict[tuple[str, str], tuple[tuple[float, float], ...]] = {}
    for method in ("regressor", "roofline"):
        wider = [(0.0, 0.0)] * len(LEVELS)
        for novelty, split in NOVELTY.items():
            cell = card.cell(split, method)
            if len(cell) < 20:
                continue
            ratio = np.log(
                cell["step_time_s"].to_numpy(float) / cell["predicted_s"].to_numpy(float)
            )
            pairs = []
            for level, outer in zip(LEVELS, wider, strict=True):
                # Finite-sample correction: the quantile of n + 1 rows.
                reach = min(1.0, (level + (1 - level) / 2) * (len(ratio) + 1) / len(ratio))
                low, high = np.quantile(ratio, [1 - reach, reach])
                pairs.append((min(float(low), outer[0]), max(float(high), outer[1])))
            wider = pairs
            found[method, novelty] = tuple(pairs)
    return Intervals(found) if found else None
