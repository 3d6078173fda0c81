"""The requests themselves: when each arrives, how long it is, what prefix it shares."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from capmodel.arguments import PART, Span, number, optional, put, text
from capmodel.workload.lengths import lengths_array
from capmodel.workload.limits import COUNT, RATE, TOKENS, seconds_array, whole_array

_BLOCK = Span(
    "the tokens that a prefix id stands for (0 where there are none)", 0.0, 1e9, whole=True
)
_PLACE = Span("the place of a request, a whole number from 0", 0.0, 1e12, whole=True)
# The last of 1e8 requests at the lowest rate comes before.
_LATEST = 1e18


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
        text("name", self.name, "a name for these requests")
        put(self, arrival_s=seconds_array("arrival_s", self.arrival_s, "seconds from the start"))
        n = len(self.arrival_s)
        if n == 0:
            raise ValueError(f"Got {self.name} without a request, but expected at least one")
        for name in ("prompt_tokens", "output_tokens"):
            put(self, **{name: lengths_array(getattr(self, name), name)})
        if len(self.prompt_tokens) != n or len(self.output_tokens) != n:
            raise ValueError(
                f"Got {n} arrivals, {len(self.prompt_tokens)} prompts and "
                f"{len(self.output_tokens)} outputs, but expected as many of each"
            )
        _check_arrivals(self.arrival_s, self.name)
        self._check_prefixes(n)

    def __len__(self) -> int:
        return len(self.arrival_s)

    def _check_prefixes(self, n: int) -> None:
        most = float(2**62)
        ids = whole_array("prefix_ids", self.prefix_ids, "whole numbers from 0", 0, most)
        offsets = whole_array(
            "prefix_offsets", self.prefix_offsets, "places in prefix_ids", 0, len(ids)
        )
        block = number("prefix_block", self.prefix_block, _BLOCK)
        put(self, prefix_ids=ids, prefix_offsets=offsets, prefix_block=block)
        if len(offsets) not in (0, n + 1):
            raise ValueError(f"Got {len(offsets)} prefix offsets, but expected {n + 1}")
        if len(ids) and not len(offsets):
            raise ValueError("Got prefix ids without prefix_offsets, but expected where each")
        if len(offsets) and (offsets[0] or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any()):
            raise ValueError(
                f"Got prefix_offsets that fall or end elsewhere, but expected a rise from 0 to "
                f"{len(ids)}, the number of prefix_ids"
            )
        if len(ids) and block < 1:
            raise ValueError(
                "Got prefix ids, but expected prefix_block, the tokens each stands for"
            )

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
        return self.window(0, min(number("n", n, COUNT), len(self)))

    def window(self, start: int, stop: int) -> "Requests":
        """Requests `start` to `stop` (not included), the first of them at 0 s.

        Raises ValueError where there is none of them.
        """
        start, stop = number("start", start, _PLACE), number("stop", stop, _PLACE)
        stop = min(stop, len(self))
        if start >= stop:
            raise ValueError(
                f"Got start={start}, stop={stop}, but expected start below stop and below "
                f"{len(self)}, the number of requests"
            )
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
        rate = number("rate", rate, RATE)
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
        max_context = optional("max_context", max_context, TOKENS)
        most_refused = number("most_refused", most_refused, PART)
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
        max_context = optional("max_context", max_context, TOKENS)
        if max_context is None:
            return
        total = self.prompt_tokens + self.output_tokens
        over = total > max_context
        if over.any():
            row = int(np.argmax(over))
            what = "requests" if self.name == "requests" else f"requests of {self.name}"
            raise ValueError(
                f"{int(over.sum())} of {len(self)} {what} exceed the context "
                f"limit of {max_context:,} tokens (the first is request {row} with "
                f"{int(total[row]):,}); shorten or drop them, or choose another model"
            )


def _check_arrivals(arrival_s: NDArray[np.float64], name: str) -> None:
    bad = ~((arrival_s >= 0) & (arrival_s <= _LATEST))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"Got arrival_s[{row}]={arrival_s[row]} in {name}, but expected 0 s or later "
            f"(up to {_LATEST:g})"
        )
    back = np.diff(arrival_s) < 0
    if back.any():
        row = int(np.argmax(back)) + 1
        raise ValueError(
            f"Arrivals of {name} are not sorted: request {row} comes at {arrival_s[row]:g} s, "
            f"after {arrival_s[row - 1]:g} s; sort the rows by arrival"
        )
