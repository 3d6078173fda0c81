"""Money and energy: prices per GPU-hour, what a token costs, when an API is cheaper.

Input, output and cached tokens are priced apart; a blended figure hides which of them one buys.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from capmodel.arguments import GPUS, MOST, PART, POSITIVE, Span, instance, number
from capmodel.gpus import Gpu

# $ per million tokens that open-weight APIs asked for in 2026, low and high (issue of the project).
API_PRICES = (0.07, 0.90)
_MILLION = 1e6
_GPU_SAID = "a Gpu (capmodel.load_gpu)"
_DOLLARS = Span("0 or more dollars an hour (up to 1e18)", 0.0, 1e18)
_FLOW = Span("0 or more a second (up to 1e18)", 0.0, 1e18)
_API = Span("dollars per million tokens, above 0 (up to 1e12)", 0.0, MOST, open_low=True)
PRICE = Span("dollars per GPU-hour, 0 or more (up to 1e12)", 0.0, MOST)


@dataclass(frozen=True, slots=True)
class Price:
    """One GPU for one hour [$/h]: low, what is reckoned with, high, and where they are from."""

    low: float
    estimate: float
    high: float
    source: str
    given: bool


def gpu_price(gpu: Gpu, price: float | Mapping[str, float] | None = None) -> Price:
    """The price of `gpu` [$/h].

    price: one figure for every GPU, a mapping from GPU name (or "*") to a figure, or None for
    the catalogue's dated range, whose middle is reckoned with. Raises ValueError for prices that
    are missing, negative or not finite.
    """
    instance("gpu", gpu, Gpu, _GPU_SAID)
    given = price.get(gpu.name, price.get("*")) if isinstance(price, Mapping) else price
    if given is not None:
        dollars = float(number(f"price of {gpu.name}", given, PRICE))
        return Price(dollars, dollars, dollars, "given", True)
    if gpu.price_low is None and gpu.price_high is None:
        raise ValueError(
            f"No price is known for GPU {gpu.name}; give one in dollars per GPU-hour (--price)"
        )
    ends = [end for end in (gpu.price_low, gpu.price_high) if end is not None]
    low, high = min(ends), max(ends)
    return Price(low, (low + high) / 2, high, gpu.price_source or gpu.source, False)


@dataclass(frozen=True, slots=True)
class TokenRates:
    """Tokens per second of a fleet. input_tok_s: prompt tokens computed; cached_tok_s: found."""

    input_tok_s: float
    cached_tok_s: float
    output_tok_s: float

    def __post_init__(self) -> None:
        for name in ("input_tok_s", "cached_tok_s", "output_tok_s"):
            number(name, getattr(self, name), _FLOW)


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """$ per million tokens of each kind; None where none flow. They add up to the fleet's cost."""

    per_million_input: float | None
    per_million_cached: float | None
    per_million_output: float | None


def token_costs(
    dollars_per_hour: float, rates: TokenRates, prefill_share: float, prefix_share: float = 0.0
) -> TokenCosts:
    """Split a fleet's cost over the tokens it handles.

    prefill_share: of the engine's step time, what prompts take. prefix_share: of the cache's
    room, what shared prefixes keep from others; it is the rent of the cached tokens, and comes
    off both others. A kind of which none flow leaves its share to the rest.
    Raises ValueError for shares outside [0, 1].
    """
    dollars_per_hour = number("dollars_per_hour", dollars_per_hour, _DOLLARS)
    instance("rates", rates, TokenRates, "TokenRates")
    prefill_share = number("prefill_share", prefill_share, PART)
    prefix_share = number("prefix_share", prefix_share, PART)
    rent = prefix_share if rates.cached_tok_s > 0 else 0.0
    weights = {
        "input": prefill_share * (1 - rent) if rates.input_tok_s > 0 else 0.0,
        "output": (1 - prefill_share) * (1 - rent) if rates.output_tok_s > 0 else 0.0,
        "cached": rent,
    }
    total = sum(weights.values())
    flow = {
        "input": rates.input_tok_s,
        "output": rates.output_tok_s,
        "cached": rates.cached_tok_s,
    }

    def price(kind: str) -> float | None:
        if not flow[kind] or not total:
            return None
        return dollars_per_hour * weights[kind] / total / (flow[kind] * 3600) * _MILLION

    return TokenCosts(price("input"), price("cached"), price("output"))


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Load from which the fleet is cheaper than an API that asks `api_price` [$/M tokens].

    requests_per_s: where both cost the same; reachable: whether the fleet can serve that much.
    """

    api_price: float
    requests_per_s: float
    tokens_per_day: float
    reachable: bool


def break_even(
    dollars_per_hour: float, tokens_per_request: float, capacity_per_s: float, api_price: float
) -> BreakEven:
    """The load at which an API bill equals the fleet's [requests/s].

    tokens_per_request: input and output, both at `api_price`. capacity_per_s: what the fleet can
    serve. Raises ValueError for a price or length that is not positive.
    """
    api_price = number("api_price", api_price, _API)
    tokens_per_request = number("tokens_per_request", tokens_per_request, POSITIVE)
    dollars_per_hour = number("dollars_per_hour", dollars_per_hour, _DOLLARS)
    capacity_per_s = number("capacity_per_s", capacity_per_s, _FLOW)
    tokens_per_hour = dollars_per_hour / api_price * _MILLION
    rate = tokens_per_hour / tokens_per_request / 3600
    return BreakEven(api_price, rate, tokens_per_hour * 24, rate <= capacity_per_s)


@dataclass(frozen=True, slots=True)
class Energy:
    """At most: every GPU at its TDP all the time. [kW], [Wh per million output tokens]."""

    kilowatts: float
    wh_per_million_output: float | None


def energy(gpu: Gpu, n_gpus: int, output_tok_s: float) -> Energy | None:
    """Energy of `n_gpus` at TDP; None where no source gives the TDP. Raises ValueError."""
    instance("gpu", gpu, Gpu, _GPU_SAID)
    n_gpus = number("n_gpus", n_gpus, GPUS)
    output_tok_s = number("output_tok_s", output_tok_s, _FLOW)
    if gpu.tdp_w is None:
        return None
    watts = gpu.tdp_w * n_gpus
    per_million = watts / 3600 / output_tok_s * _MILLION if output_tok_s > 0 else None
    return Energy(watts / 1e3, per_million)
