"""What arrives: a rate or a number of clients, lengths, and shared prefixes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capmodel.arguments import PART, instance, number, optional, put, with_method
from capmodel.words import shown
from capmodel.workload.lengths import Fixed, Lengths
from capmodel.workload.limits import CLIENTS, COUNT, GAPS, RATE, TOKENS, generator
from capmodel.workload.requests import Requests

LENGTHS_SAID = "a distribution of capmodel.workload, such as Fixed(1000)"


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """A share of the prompts begins with one of `n_prefixes` common texts of `tokens` tokens."""

    tokens: int
    share: float = 1.0
    n_prefixes: int = 1

    def __post_init__(self) -> None:
        put(
            self,
            tokens=number("tokens", self.tokens, TOKENS),
            share=number("share", self.share, PART),
            n_prefixes=number("n_prefixes", self.n_prefixes, COUNT),
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests as distributions; `draw` makes them concrete.

    rate: arrivals per second (open loop), or concurrency: clients that each keep one request
    in flight (closed loop). Exactly one of the two. cv: coefficient of variation of the gaps
    between arrivals: 1 Poisson, 0 a metronome, above 1 bursty (gamma gaps).
    """

    prompt: Lengths
    output: Lengths
    rate: float | None = None
    concurrency: int | None = None
    cv: float = 1.0
    prefix: SharedPrefix | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "output"):
            with_method(name, getattr(self, name), "draw", LENGTHS_SAID)
        if (self.rate is None) == (self.concurrency is None):
            raise ValueError(
                f"Got rate={shown(self.rate)} and concurrency={shown(self.concurrency)}, but "
                "expected exactly one: requests/s that arrive by themselves, or clients that wait "
                "for their answer"
            )
        put(
            self,
            rate=optional("rate", self.rate, RATE),
            concurrency=optional("concurrency", self.concurrency, CLIENTS),
            cv=number("cv", self.cv, GAPS),
        )
        if self.prefix is not None:
            instance("prefix", self.prefix, SharedPrefix, "a SharedPrefix, or None")

    @classmethod
    def fixed(
        cls,
        input_len: int,
        output_len: int,
        rate: float | None = None,
        concurrency: int | None = None,
    ) -> "Workload":
        """Every request alike: `input_len` prompt and `output_len` generated tokens."""
        return cls(Fixed(input_len), Fixed(output_len), rate=rate, concurrency=concurrency)

    def draw(self, n: int, seed: int | np.random.Generator = 0) -> Requests:
        """`n` requests; the same seed gives the same ones. In a closed loop all arrive at 0."""
        n, rng = number("n", n, COUNT), generator(seed)
        arrivals = np.zeros(n) if self.rate is None else arrival_times(n, self.rate, self.cv, rng)
        prompt = self.prompt.draw(n, rng)
        output = self.output.draw(n, rng)
        if self.prefix is None:
            return Requests(arrivals, prompt, output)
        ids, offsets, block = _prefixes(self.prefix, prompt, rng)
        return Requests(arrivals, prompt, output, ids, offsets, block)


def arrival_times(
    n: int, rate: float, cv: float = 1.0, seed: int | np.random.Generator = 0
) -> NDArray[np.float64]:
    """`n` arrival times [s] with gamma gaps of mean `1 / rate` and the given cv, shape (n,)."""
    n, rate = number("n", n, COUNT), number("rate", rate, RATE)
    cv, rng = number("cv", cv, GAPS), generator(seed)
    if cv < 1e-9:  # 1 / cv**2 has no figure much below
        return np.asarray((np.arange(n) + 1.0) / rate)
    shape = 1.0 / cv**2
    return np.cumsum(rng.gamma(shape, 1.0 / (rate * shape), size=n))


def _prefixes(
    prefix: SharedPrefix, prompt: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Ids in blocks of 16 tokens; a prompt shorter than the prefix shares what it has."""
    block = 16
    shares = rng.random(len(prompt)) < prefix.share
    which = rng.integers(0, prefix.n_prefixes, size=len(prompt))
    width = prefix.tokens // block
    counts = np.where(shares, np.minimum(prompt, prefix.tokens) // block, 0)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    return np.repeat(which * width, counts) + place, offsets, block
