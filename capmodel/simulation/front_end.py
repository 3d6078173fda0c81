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
    """`fixed_s + (steps + prompt_steps * prompt / 1024) * step + per_request_s * open requests`.

    fixed_s: [s]. steps: mean engine steps that pass before it is scheduled. per_request_s: [s] for
    each request the replica has open. prompt_steps: further steps for each 1,024 tokens of the
    prompt, beyond those that its token budget asks for.
    """

    fixed_s: float = 0.0
    steps: float = 0.0
    per_request_s: float = 0.0
    prompt_steps: float = 0.0

    def __post_init__(self) -> None:
        for name in ("fixed_s", "steps", "per_request_s", "prompt_steps"):
            put(self, **{name: number(name, getattr(self, name), _DELAY)})

    def steps_of(self, prompt_tokens: float) -> float:
        """Engine steps that a prompt of so many tokens waits for. Raises ValueError."""
        prompt_tokens = number("prompt_tokens", prompt_tokens, _WAIT)
        return float(self.steps + self.prompt_steps * prompt_tokens / 1024)

    def delay_s(self, step_s: float, in_system: float, prompt_tokens: float = 0.0) -> float:
        """Before the scheduler sees it [s]. Raises ValueError."""
        step_s = number("step_s", step_s, _WAIT)
        in_system = number("in_system", in_system, _WAIT)
        steps = self.steps_of(prompt_tokens)
        return float(self.fixed_s + steps * step_s + self.per_request_s * in_system)


NO_FRONT_END = FrontEnd()

# Fitted by `benchmarks/planner.py accuracy` to what simulated TTFT lacks of measured TTFT, on
# 1,597 closed-loop runs of AIConfigurator's sample: each figure the middle of three draws of the
# folds. An engine that was not measured takes vLLM's.
MEASURED = {
    "vllm": FrontEnd(0.019, 1.3, 0.00065, 0.92),
    "sglang": FrontEnd(0.137, 0.0, 0.0020, 0.0),
    "tensorrt-llm": FrontEnd(0.017, 7.8, 0.0001, 0.2),
}


def front_end_of(engine: str | None) -> FrontEnd:
    """The measured front end of `engine`, vLLM's for one that was not measured."""
    return MEASURED.get(known_engine(engine) or "vllm", MEASURED["vllm"])
