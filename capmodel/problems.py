"""What is wrong with a table of runs: every problem at once, by row, column, value and reason."""

from collections.abc import Sequence

import pandas as pd

from capmodel.words import one_line, shown


class RunsError(ValueError):
    """A runs table that cannot be used.

    problems: one row per problem, columns `row` (counted from 1 below the header), `column`,
    `value` and `reason`.
    """

    def __init__(self, problems: pd.DataFrame, where: str = "runs table") -> None:
        self.problems = problems.reset_index(drop=True)
        self.where = where
        super().__init__(self._message())

    def _message(self, limit: int = 8) -> str:
        lines = [
            f"{'row ' + str(row) + ', ' if row else ''}{_brief(column)}: {_brief(reason)}"
            + (f" (got {shown(value)})" if value is not None else "")
            for row, column, value, reason in self.problems.head(limit).itertuples(index=False)
        ]
        more = len(self.problems) - len(lines)
        tail = [f"and {more} more"] if more > 0 else []
        count = f"{len(self.problems)} problem{'s' if len(self.problems) > 1 else ''}"
        return f"{one_line(self.where)} has {count}: " + "; ".join(lines + tail)


def problem_table(problems: Sequence[tuple[int | None, str, object, str]]) -> pd.DataFrame:
    """Problems as the table that `RunsError` carries."""
    return pd.DataFrame(problems, columns=["row", "column", "value", "reason"], dtype=object)


def _brief(text: object, limit: int = 700) -> str:
    words = one_line(text)
    return words if len(words) <= limit else f"{words[:limit]}..."
