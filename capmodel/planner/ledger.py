"""What the plan rests on, line by line, and what it leaves out."""

from dataclasses import dataclass

from capmodel.costs import Price
from capmodel.engines import known_engine
from capmodel.memory import MemoryBudget
from capmodel.planner.demand import Demand
from capmodel.planner.provenance import kind_of
from capmodel.planner.replica import Replica, Setting
from capmodel.planner.shipped import calibration_for
from capmodel.planner.sizing import Option
from capmodel.simulation.front_end import MEASURED
from capmodel.units import format_dollars, format_gib


@dataclass(frozen=True, slots=True)
class Assumption:
    """One input of the plan.

    kind: "given", "measured", "composed" (of measured kernels), "generated" (nothing was run),
    "datasheet" or "guessed".
    """

    what: str
    value: str
    kind: str
    source: str


NOT_MODELLED = (
    "Quality: int4 and fp8 weights or caches may answer worse; that is for the user to test.",
    "Speculative decoding: a step that emits more than one token per sequence.",
    "Skewed expert routing: experts are touched as uniform routing touches them.",
    "Network between clients and servers.",
    "Replicas that fail or start during the hour, and autoscaling.",
    "Output tokens kept as prefixes of a later turn.",
)


DIVIDED = (
    "Divided fleets: replicas for prompts on another GPU or in another tp than those that decode.",
    "Divided fleets: a cache that is sent while its prompt is still read, and transfers that share "
    "a link.",
)


def not_modelled(disaggregate: bool) -> tuple[str, ...]:
    """What no figure of the plan knows of."""
    return (*NOT_MODELLED, *DIVIDED) if disaggregate else NOT_MODELLED


def assumptions(option: Option, demand: Demand, setting: Setting) -> list[Assumption]:
    """The ledger of `option`."""
    replica, price = option.replica, option.price
    candidate, budget = replica.candidate, replica.budget
    gpu = candidate.gpu
    measured = demand.source != "given lengths"
    steps = _steps(replica, setting)
    lines = [
        Assumption(
            "load",
            _load(demand),
            "measured" if measured else "given",
            demand.source,
        ),
        Assumption(
            "lengths",
            f"{demand.input_mean:,.0f} prompt and {demand.output_mean:,.0f} output tokens, mean",
            "measured" if measured else "given",
            demand.source,
        ),
        Assumption(
            "step time",
            _factors(replica),
            steps if replica.low_factor < replica.high_factor else "guessed",
            f"calibration {replica.calibration_id or 'given'}",
        ),
        *_prompts(replica, setting, steps),
        Assumption(
            "price",
            _price(price),
            "given" if price.given else "guessed",
            price.source,
        ),
        Assumption("GPU memory", _capacity(budget), "datasheet", gpu.source),
        Assumption(
            "memory left for the cache",
            f"{budget.fraction:.0%} of it, less {format_gib(budget.weights_bytes)} weights and "
            f"{format_gib(budget.reserve_bytes)} reserve",
            "guessed",
            "reserve estimated from start-up logs",
        ),
        Assumption(
            "cache layout",
            f"{replica.pool_blocks:,} blocks",
            "measured",
            f"layout of {replica.scheduler.layout}, checked against start-up logs",
        ),
        Assumption(
            "limits of a step",
            f"{replica.limits.max_num_seqs:,} sequences, "
            f"{replica.limits.max_num_batched_tokens:,} tokens",
            "guessed",
            "the engine's defaults for this GPU",
        ),
        Assumption(
            "before the scheduler",
            f"{1e3 * replica.front_end.fixed_s:.0f} ms, {replica.front_end.steps:.1f} steps and "
            f"{1e3 * replica.front_end.per_request_s:.2f} ms per open request",
            "measured",
            f"TTFT of {_front(setting)}",
        ),
    ]
    if option.split is not None:
        lines.append(
            Assumption(
                "cache sent to decode",
                f"{1e6 * option.split.transfer_s_per_token:.2g} us a prompt token, after the first "
                "token",
                "guessed",
                f"over {option.split.over}, nothing else sent meanwhile",
            )
        )
    if demand.mix.hit_share > 0:
        lines.append(
            Assumption(
                "prefix cache",
                f"{demand.mix.hit_share:.0%} of prompt tokens found, if nothing is forgotten",
                "measured" if measured else "given",
                demand.source,
            )
        )
    if gpu.assumption:
        lines.append(Assumption("GPU name", gpu.assumption, "guessed", "catalogue"))
    return lines


def _price(price: Price) -> str:
    said = f"{format_dollars(price.estimate)} per GPU-hour"
    if price.low == price.high:
        return said
    return f"{said} ({format_dollars(price.low)} to {format_dollars(price.high)})"


def _factors(replica: Replica) -> str:
    if replica.low_factor == replica.high_factor:
        return "as estimated: no held-out rows give an interval"
    return f"x {replica.low_factor:.3f} to x {replica.high_factor:.3f}"


def _steps(replica: Replica, setting: Setting) -> str:
    """The kind of what step times were fitted on; those of no calibration of ours were given."""
    calibration = calibration_for(setting, replica.candidate.gpu.name)
    return "given" if calibration is None else kind_of(calibration.sources)


def _prompts(replica: Replica, setting: Setting, steps: str) -> list[Assumption]:
    share, own = replica.prompts.peak_share, replica.prompts.own
    if share is None:
        return []
    told = f"calibration {replica.calibration_id}" if own else f"TTFT of {_front(setting)}"
    value = f"{share:.0%} of the dense peak"
    return [Assumption("prompts", value, steps if own else "measured", told)]


def _front(setting: Setting) -> str:
    """Whose measured TTFT stands in."""
    known = known_engine(setting.engine) or "vllm"
    return f"{known if known in MEASURED else 'vllm'} in AIConfigurator's sample of measured runs"


def _load(demand: Demand) -> str:
    if demand.concurrency is not None:
        return f"{demand.concurrency:,} clients, each waiting for its answer"
    return (
        f"{demand.rate or 0:.3g} requests/s at the busiest, {demand.mean_rate or 0:.3g} mean, "
        f"gaps with cv {demand.cv:.2f}"
    )


def _capacity(budget: MemoryBudget) -> str:
    kind = "as drivers report it" if budget.mode == "engine" else "as marketed"
    return f"{format_gib(budget.capacity_bytes)}, {kind} ({budget.mode} mode)"
