"""What users were promised."""

import math
from dataclasses import dataclass

from capmodel.arguments import Span, number, optional, put
from capmodel.workload.limits import PROMISE

_MEASURED = Span("0 s or more, infinite, or NaN where nothing is known", 0.0, math.inf)
_PERCENTILE = Span(
    "one between 0 and 100, both left out", 0.0, 100.0, open_low=True, open_high=True
)


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits at a percentile of requests [s]; None = not promised.

    ttft_s: time to the first token. tpot_s: time per further token of a request,
    (end - first) / (output - 1). e2e_s: arrival to last token.
    Raises ValueError for limits that are not positive and percentiles outside (0, 100).
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    percentile: float = 95.0

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            put(self, **{name: optional(name, getattr(self, name), PROMISE)})
        put(self, percentile=number("percentile", self.percentile, _PERCENTILE))

    def missed(self, ttft_s: float, tpot_s: float, e2e_s: float = 0.0) -> tuple[str, ...]:
        """Names of the limits that these values at the percentile pass [s]; NaN passes them all.

        Raises ValueError for what is no time.
        """
        measured = {
            "ttft": (_measured("ttft_s", ttft_s), self.ttft_s),
            "tpot": (_measured("tpot_s", tpot_s), self.tpot_s),
            "e2e": (_measured("e2e_s", e2e_s), self.e2e_s),
        }
        return tuple(
            name
            for name, (value, limit) in measured.items()
            if limit is not None and not value <= limit
        )


def _measured(name: str, value: float) -> float:
    unknown = isinstance(value, float) and math.isnan(value)
    return value if unknown else number(name, value, _MEASURED)
