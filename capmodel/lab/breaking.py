"""Where an eviction policy breaks: the largest budget at which a measure is no longer kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capmodel.lab.compress import Outcome

TEXT_LIMIT = 0.02  # a perplexity rise of 2 % that the interval leaves no doubt of
RETRIEVAL_LIMIT = 0.9  # of what the full cache answers


@dataclass(frozen=True, slots=True)
class Breaking:
    """Budgets [token] at which text and retrieval break; None = at none that was measured."""

    policy: str
    text_budget: int | None
    retrieval_budget: int | None


def breaking_points(outcomes: "Sequence[Outcome]", full_retrieval: float) -> list[Breaking]:
    """One row per policy of the evicted `outcomes`, in their order."""
    evicted = [o for o in outcomes if o.policy is not None]
    rows = []
    for policy in dict.fromkeys(o.policy for o in evicted):
        own = [o for o in evicted if o.policy == policy]
        text = [o.budget for o in own if o.change_low > TEXT_LIMIT]
        answers = [o.budget for o in own if o.retrieval < RETRIEVAL_LIMIT * full_retrieval]
        rows.append(
            Breaking(
                str(policy),
                max((b for b in text if b is not None), default=None),
                max((b for b in answers if b is not None), default=None),
            )
        )
    return rows
