"""What is planned for: the load, at its busiest and on average, and requests to simulate."""

from dataclasses import dataclass, replace
from os import PathLike

import numpy as np

from capmodel.arguments import Span, flag, number, optional
from capmodel.planner.mix import LengthMix, endless_hits, length_mix
from capmodel.units import format_seconds
from capmodel.words import shown
from capmodel.workload import Fixed, Lengths, Requests, SharedPrefix, Workload, read_trace
from capmodel.workload.limits import CLIENTS, GAPS, RATE, SEED

_STRETCH = 1500
# Of a closed loop, three answers of every client, but no more than a large fleet's share takes.
_MOST_DRAWN = 24_000
# Traces of fewer requests than this may be anything; others have rates between these [1/s].
_FEW, _RARE, _FREQUENT = 50, 0.01, 1000.0
_TOKENS = Span(
    "whole tokens, at least 1 (up to 1e9), or a distribution of capmodel.workload",
    1.0, 1e9, whole=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Load and lengths.

    rate: requests/s that the fleet is sized for (a trace's busiest stretch); mean_rate: those
    that it is paid for. concurrency: clients of a closed loop, in which case both rates are None
    until a fleet answers them. cv: of the gaps between arrivals. mix: lengths at the busiest;
    input_mean, cached_mean, output_mean: tokens per request on average. longest: prompt + output.
    requests: to simulate. refused: requests of the trace over the model's context limit.
    """

    rate: float | None
    mean_rate: float | None
    concurrency: int | None
    cv: float
    mix: LengthMix
    input_mean: float
    cached_mean: float
    output_mean: float
    longest: int
    requests: Requests
    source: str
    n_requests: int
    prefix_cache: bool
    refused: int = 0

    @property
    def peakedness(self) -> float:
        """Variance over mean of the number in service, (1 + cv^2) / 2; 0 in a closed loop."""
        return 0.0 if self.concurrency is not None else (1 + self.cv**2) / 2


def demand(
    *,
    rate: float | None = None,
    concurrency: int | None = None,
    trace: str | PathLike[str] | Requests | None = None,
    input_len: float | Lengths | None = None,
    output_len: float | Lengths | None = None,
    cv: float = 1.0,
    prefix: SharedPrefix | None = None,
    prefix_cache: bool = True,
    max_context: int | None = None,
    seed: int = 0,
) -> Demand:
    """The demand that these arguments of `plan` mean.

    Raises ValueError for no load, two loads, no lengths, lengths beside a trace, prompts over
    `max_context`, and what `Workload` and `read_trace` refuse.
    """
    rate = optional("rate", rate, RATE)
    concurrency = optional("concurrency", concurrency, CLIENTS)
    cv, seed = number("cv", cv, GAPS), number("seed", seed, SEED)
    prefix_cache = flag("prefix_cache", prefix_cache)
    if prefix is not None and not isinstance(prefix, SharedPrefix):
        raise ValueError(f"Got prefix={shown(prefix)}, but expected a SharedPrefix, or None")
    if trace is not None:
        return _of_trace(trace, rate, concurrency, input_len, output_len, prefix_cache, max_context)
    if input_len is None or output_len is None:
        raise ValueError(
            f"Got input_len={shown(input_len)}, output_len={shown(output_len)} and no trace, but "
            "expected both lengths (--input-len, --output-len) or a trace of requests (--trace)"
        )
    if rate is None and concurrency is None:
        raise ValueError(
            "Got no load, but expected rate (requests/s), concurrency (clients) or a trace"
        )
    workload = Workload(
        _lengths(input_len, "input_len"),
        _lengths(output_len, "output_len"),
        rate=rate,
        concurrency=concurrency,
        cv=cv,
        prefix=prefix,
    )
    requests = workload.draw(stretch_of(concurrency or 0), seed)
    requests.check_context(max_context)
    source = "given lengths"
    return _demand(rate, rate, concurrency, cv, requests, requests, requests, source, prefix_cache)


def _of_trace(
    trace: str | PathLike[str] | Requests,
    rate: float | None,
    concurrency: int | None,
    input_len: object,
    output_len: object,
    prefix_cache: bool,
    max_context: int | None,
) -> Demand:
    if input_len is not None or output_len is not None:
        raise ValueError("Got lengths beside a trace, but the trace has its own; give one of them")
    if rate is not None and concurrency is not None:
        raise ValueError(f"Got rate={rate} and concurrency={concurrency}, but expected one of them")
    whole = trace if isinstance(trace, Requests) else _read(trace)
    requests = whole.within_context(max_context)
    refused = len(whole) - len(requests)
    if rate is not None:
        requests = requests.at_rate(rate)
    if concurrency is None and not np.isfinite(requests.rate):
        many = "The one request" if len(requests) == 1 else f"All {len(requests):,} requests"
        raise ValueError(
            f"{many} of {requests.name} arrive{'s' * (len(requests) == 1)} at once, which is no "
            "rate; give rate or concurrency"
        )
    name = requests.name
    if concurrency is not None:
        simulated = requests.head(stretch_of(concurrency))
        found = _demand(
            None, None, concurrency, 0.0, requests, requests, simulated, name, prefix_cache
        )
        return replace(found, refused=refused)
    busiest = busiest_stretch(requests, _STRETCH)
    cv = busiest.interarrival_cv
    cv = cv if np.isfinite(cv) else 1.0
    rates = (busiest.rate, requests.rate)
    found = _demand(*rates, None, cv, requests, busiest, busiest, name, prefix_cache)
    return replace(found, refused=refused)


def _demand(
    rate: float | None,
    mean_rate: float | None,
    concurrency: int | None,
    cv: float,
    everything: Requests,
    busiest: Requests,
    simulated: Requests,
    source: str,
    prefix_cache: bool,
) -> Demand:
    found = endless_hits(everything) if prefix_cache else np.zeros(1)
    return Demand(
        rate=rate,
        mean_rate=mean_rate,
        concurrency=concurrency,
        cv=cv,
        mix=length_mix(busiest, prefix_cache),
        input_mean=float(everything.prompt_tokens.mean()),
        cached_mean=float(found.mean()),
        output_mean=float(everything.output_tokens.mean()),
        longest=int((everything.prompt_tokens + everything.output_tokens).max()),
        requests=simulated,
        source=source,
        n_requests=len(everything),
        prefix_cache=prefix_cache,
    )


def changed(
    demand: Demand,
    *,
    load: float = 1.0,
    prompt: float = 1.0,
    output: float = 1.0,
    hit_share: float | None = None,
    prefix_cache: bool | None = None,
    cv: float | None = None,
    max_context: int | None = None,
) -> Demand:
    """`demand` with its load and lengths multiplied, for what-ifs; not meant to be simulated.

    hit_share: this share of every prompt is found in the prefix cache. max_context: prompts are
    cut so that prompt + output stay within it [tokens].
    """
    requests = demand.requests
    if (prompt, output) != (1.0, 1.0):
        requests = replace(
            requests,
            prompt_tokens=np.maximum(1, np.rint(requests.prompt_tokens * prompt)),
            output_tokens=np.maximum(1, np.rint(requests.output_tokens * output)),
        )
        if max_context is not None:
            room = np.maximum(1, max_context - requests.output_tokens)
            requests = replace(requests, prompt_tokens=np.minimum(requests.prompt_tokens, room))
    found = demand.prefix_cache if prefix_cache is None else prefix_cache
    same = requests is demand.requests and found == demand.prefix_cache
    mix = demand.mix if same else length_mix(requests, found)
    cached = demand.cached_mean * prompt if found == demand.prefix_cache else 0.0
    if hit_share is not None:
        mix = replace(mix, hits=np.floor(mix.prompt * hit_share), hit_share=hit_share)
        cached = demand.input_mean * prompt * hit_share
    clients = demand.concurrency
    return replace(
        demand,
        rate=None if demand.rate is None else demand.rate * load,
        mean_rate=None if demand.mean_rate is None else demand.mean_rate * load,
        concurrency=None if clients is None else max(1, round(clients * load)),
        cv=demand.cv if cv is None else cv,
        mix=mix,
        input_mean=demand.input_mean * prompt,
        cached_mean=cached,
        output_mean=demand.output_mean * output,
        longest=int((requests.prompt_tokens + requests.output_tokens).max()),
        requests=requests,
        prefix_cache=found,
    )


def unit_doubt(demand: Demand) -> str | None:
    """What to ask of a trace whose own rate no service has; None where nothing is odd."""
    rate = demand.mean_rate
    if rate is None or demand.n_requests < _FEW or _RARE <= rate <= _FREQUENT:
        return None
    span = format_seconds((demand.n_requests - 1) / rate)
    return (
        f"{demand.source} spans {span}, {rate:.3g} requests/s on average: check the unit of its "
        "times (seconds; in Mooncake's format milliseconds)"
    )


def stretch_of(clients: int) -> int:
    """Requests to simulate for so many clients, 0 for open arrivals."""
    return min(max(_STRETCH, 3 * clients), _MOST_DRAWN)


def busiest_stretch(requests: Requests, n: int) -> Requests:
    """The `n` consecutive requests that arrive within the shortest time; all when fewer."""
    if len(requests) <= n:
        return requests.window(0, len(requests))
    spans = requests.arrival_s[n - 1 :] - requests.arrival_s[: len(requests) - n + 1]
    start = int(np.argmin(spans))
    return requests.window(start, start + n)


def _read(trace: object) -> Requests:
    if not isinstance(trace, str | PathLike) or not str(trace).strip():
        raise ValueError(
            f"Got trace={shown(trace)}, but expected the path of a trace of requests, Requests, "
            "or None"
        )
    return read_trace(str(trace))


def _lengths(value: float | Lengths, name: str) -> Lengths:
    if not isinstance(value, type) and callable(getattr(value, "draw", None)):
        return value  # type: ignore[return-value]
    return Fixed(number(name, value, _TOKENS))
