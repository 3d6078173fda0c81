"""The requests themselves: when each arrives, how long it is, what prefix it shares."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from capmodel.workload.lengths import lengths_array


def _empty() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """`n` requests in order of arrival; arrays of shape (n,).

    arrival_s: [s] from the start, never falling. prompt_tokens, output_tokens: at least 1.
    prefix_ids, prefix_offsets: ids of the blocks of `prefix_block` tokens that each prompt
    begins with, `prefix_ids[offsets[i]:offsets[i + 1]]`; an id stands for its whole prefix,
    so equal ids mean equal tokens so far. Empty where no prefix is known.

    Raises ValueError for unequal lengths, unsorted or negative arrivals, NaN, empty requests.
    """

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    prefix_ids: NDArray[np.int64] = field(default_factory=_empty)
    prefix_offsets: NDArray[np.int64] = field(default_factory=_empty)
    prefix_block: int = 0
    name: str = "requests"

    def __post_init__(self) -> None:
        n = len(self.arrival_s)
        if n == 0:
            raise ValueError(f"Got {self.name} without a request, but expected at least one")
        if len(self.prompt_tokens) != n or len(self.output_tokens) != n:
            raise ValueError(
                f"Got {n} arrivals, {len(self.prompt_tokens)} prompts and "
                f"{len(self.output_tokens)} outputs, but expected as many of each"
            )
        for name in ("prompt_tokens", "output_tokens"):
            object.__setattr__(self, name, lengths_array(getattr(self, name), name))
        _check_arrivals(self.arrival_s, self.name)
        if len(self.prefix_offsets) not in (0, n + 1):
            raise ValueError(f"Got {len(self.prefix_offsets)} prefix offsets, but expected {n + 1}")
        if len(self.prefix_ids) and self.prefix_block < 1:
            raise ValueError(
                "Got prefix ids, but expected prefix_block, the tokens each stands for"
            )

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def duration_s(self) -> float:
        """From the start to the last arrival [s]."""
        return float(self.arrival_s[-1])

    @property
    def rate(self) -> float:
        """Arrivals per second; infinite when all arrive at once."""
        span = float(self.arrival_s[-1] - self.arrival_s[0])
        return (len(self) - 1) / span if span > 0 else float("inf")

    @property
    def interarrival_cv(self) -> float:
        """Standard deviation over mean of the gaps between arrivals; NaN below three requests."""
        gaps = np.diff(self.arrival_s)
        return (
            float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else float("nan")
        )

    def head(self, n: int) -> "Requests":
        """The first `n` requests."""
        return self.window(0, min(n, len(self)))

    def window(self, start: int, stop: int) -> "Requests":
        """Requests `start` to `stop` (not included), the first of them at 0 s."""
        offsets = self.prefix_offsets[start : stop + 1]
        ids = self.prefix_ids[offsets[0] : offsets[-1]] if len(offsets) else self.prefix_ids
        return replace(
            self,
            arrival_s=self.arrival_s[start:stop] - self.arrival_s[start],
            prompt_tokens=self.prompt_tokens[start:stop],
            output_tokens=self.output_tokens[start:stop],
            prefix_offsets=offsets - offsets[0] if len(offsets) else offsets,
            prefix_ids=ids,
        )

    def at_rate(self, rate: float) -> "Requests":
        """The same requests with time stretched so that `rate` arrive per second."""
        if not 0 < rate < np.inf:
            raise ValueError(f"Got rate={rate}, but expected a positive number of requests/s")
        if not np.isfinite(self.rate):
            raise ValueError(
                f"All arrivals of {self.name} fall on one moment; draw new ones instead"
            )
        start = self.arrival_s[0]
        return replace(self, arrival_s=(self.arrival_s - start) * (self.rate / rate))

    def without_prefixes(self) -> "Requests":
        """The same requests with no prefix known to be shared."""
        return replace(self, prefix_ids=_empty(), prefix_offsets=_empty(), prefix_block=0)

    def within_context(self, max_context: int | None, most_refused: float = 0.01) -> "Requests":
        """Without the requests that pass `max_context` [tokens], which an engine refuses.

        Raises ValueError where they are more than the share `most_refused`: then the model is
        the wrong one for them.
        """
        if max_context is None:
            return self
        keep = self.prompt_tokens + self.output_tokens <= max_context
        if keep.all():
            return self
        if (~keep).mean() > most_refused:
            self.check_context(max_context)
        counts = np.diff(self.prefix_offsets) if len(self.prefix_offsets) else None
        kept = replace(
            self,
            arrival_s=self.arrival_s[keep],
            prompt_tokens=self.prompt_tokens[keep],
            output_tokens=self.output_tokens[keep],
            prefix_offsets=_empty(),
            prefix_ids=_empty(),
        )
        if counts is None:
            return kept
        offsets = np.concatenate([[0], np.cumsum(counts[keep])]).astype(np.int64)
        ids = self.prefix_ids[np.repeat(keep, counts)]
        return replace(kept, prefix_offsets=offsets, prefix_ids=ids)

    def check_context(self, max_context: int | None) -> None:
        """Raises ValueError when prompt + output passes `max_context` [tokens]; None = no limit."""
        if max_context is None:
            return
        total = self.prompt_tokens + self.output_tokens
        over = total > max_context
        if over.any():
            row = int(np.argmax(over))
            raise ValueError(
                f"{int(over.sum())} of {len(self)} requests of {self.name} exceed the context "
                f"limit of {max_context:,} tokens (the first is request {row} with "
                f"{int(total[row]):,}); shorten or drop them, or choose another model"
            )


def _check_arrivals(arrival_s: NDArray[np.float64], name: str) -> None:
    bad = ~np.isfinite(arrival_s) | (arrival_s < 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"Got arrival_s[{row}]={arrival_s[row]} in {name}, but expected 0 or later"
        )
    back = np.diff(arrival_s) < 0
    if back.any():
        row = int(np.argmax(back)) + 1
        raise ValueError(
            f"Arrivals of {name} are not sorted: request {row} comes at {arrival_s[row]:g} s, "
            f"after {arrival_s[row - 1]:g} s; sort the rows by arrival"
        )
