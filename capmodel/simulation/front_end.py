"""What a request goes through before the engine's scheduler sees it.

Receiving, tokenising, handing over to a scheduler that works some steps ahead, and sharing one
process with every open stream. None of it is in the step time, all of it is in the TTFT.
"""

from dataclasses import dataclass

from capmodel.arguments import Span, number, put
from capmodel.engines import known_engine

_DELAY = Span("0 or more (up to 1e6)", 0.0, 1e6)
_WAIT = Span("0 or more (up to 1e18)", 0.0, 1e18)


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """`fixed_s + steps * step + per_request_s * open requests`.

    fixed_s: [s]. steps: mean engine steps that pass before it is scheduled. per_request_s: [s] for
    each request the replica has open.
    """

    fixed_s: float = 0.0
    steps: float = 0.0
    per_request_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("fixed_s", "steps", "per_request_s"):
            put(self, **{name: number(name, getattr(self, name), _DELAY)})

    def delay_s(self, step_s: float, in_system: float) -> float:
        """Before the scheduler sees it [s]. Raises ValueError."""
        step_s = number("step_s", step_s, _WAIT)
        in_system = number("in_system", in_system, _WAIT)
        return float(self.fixed_s + self.steps * step_s + self.per_request_s * in_system)


NO_FRONT_END = FrontEnd()

# Fitted by `benchmarks/planner.py accuracy` to what simulated TTFT lacks of measured TTFT, on
# 1,597 closed-loop runs of AIConfigurator's sample, prompts taking what `planner.prompts` says.
# An engine that was not measured takes vLLM's.
MEASURED = {
    "vllm": FrontEnd(0.004, 3.0, 0.00023),
    "sglang": FrontEnd(0.123, 2.0, 0.0011),
    "tensorrt-llm": FrontEnd(0.0, 11.9, 0.0),
}


def front_end_of(engine: str | None) -> FrontEnd:
    """The measured front end of `engine`, vLLM's for one that was not measured."""
    return MEASURED.get(known_engine(engine) or "vllm", MEASURED["vllm"])
