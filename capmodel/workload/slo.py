"""What users were promised."""

from dataclasses import dataclass


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
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"Got {name}={value}, but expected a positive number of seconds")
        if not 0 < self.percentile < 100:
            raise ValueError(f"Got percentile={self.percentile}, but expected between 0 and 100")

    def missed(self, ttft_s: float, tpot_s: float, e2e_s: float = 0.0) -> tuple[str, ...]:
        """Names of the limits that these values at the percentile pass [s]; NaN passes them all."""
        measured = {"ttft": (ttft_s, self.ttft_s), "tpot": (tpot_s, self.tpot_s)}
        measured["e2e"] = (e2e_s, self.e2e_s)
        return tuple(
            name
            for name, (value, limit) in measured.items()
            if limit is not None and not value <= limit
        )
