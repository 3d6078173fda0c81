"""The plan that cannot be, with the closest that can."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capmodel.planner.result import Plan


class InfeasiblePlan(ValueError):
    """No candidate meets what was asked. `plan` holds the closest one and every rejection.

    The message says what blocks and what the closest candidate reaches.
    """

    def __init__(self, message: str, plan: "Plan | None" = None) -> None:
        super().__init__(message)
        self.plan = plan
