"""What prompts add to the steps that hold them, where a calibration's rows do not tell."""

from dataclasses import dataclass, replace
from functools import lru_cache

from capmodel.arguments import Span, number, put
from capmodel.engines import known_engine
from capmodel.gpus import Gpu
from capmodel.planner.candidate import Candidate
from capmodel.shapes import ModelShape
from capmodel.steptime import FamilyCost, StepTime
from capmodel.traffic import StepTraffic, step_traffic

_COST = Span("0 or more (up to 1e6)", 0.0, 1e6)
# The dtype that attention is computed in, whatever the weights and the cache are stored in.
_ATTENTION = "bf16"
# What a fit says of prompts whose rows hold none: the prior of c_prefill, 55 % of the peak.
PRIOR = 1.8
# No measured prompt takes longer than this over its time at the peak; rows that say so took
# something else for prompts.
_SLOWEST = 10.0


@dataclass(frozen=True, slots=True)
class PromptCost:
    """What an engine's prompts take, by what they are made of; experts to read come on top.

    matmul: time over what their matrices take at the dense peak. attention: the same of attention,
    at the 16-bit peak. layer_s: [s] per prompt token and layer, whatever the model's width and tp:
    norms, routing, writing the cache. link: time over what all-reduces take at the link's rate.
    """

    matmul: float = 0.0
    attention: float = 0.0
    layer_s: float = 0.0
    link: float = 0.0

    def __post_init__(self) -> None:
        for name in ("matmul", "attention", "layer_s", "link"):
            put(self, **{name: number(name, getattr(self, name), _COST)})

    def seconds(self, parts: "PromptParts") -> tuple[float, float]:
        """[s] per prompt token, and per prompt token and token before it in the prompt."""
        token = self.matmul * parts.matmul_s + self.layer_s * parts.layers
        return token + self.link * parts.link_s, self.attention * parts.attention_s


@dataclass(frozen=True, slots=True)
class PromptParts:
    """What a prompt token of a deployment asks for at datasheet rates.

    matmul_s, link_s: [s] per prompt token. attention_s: [s] per prompt token and token before it.
    """

    matmul_s: float
    attention_s: float
    layers: int
    link_s: float


def prompt_parts(traffic: StepTraffic, gpu: Gpu, weight_dtype: str) -> PromptParts:
    """The parts of `traffic` on `gpu`. Raises ValueError for a GPU without a peak."""
    link = gpu.link_bytes_per_s
    # A token attends to half of its prompt on average: what is counted per token of the whole
    # prompt is twice as much per token before it.
    pairs = 2 * traffic.prefill_attention_flop
    return PromptParts(
        traffic.prefill_flop_per_token / gpu.matmul_flops_per_s(weight_dtype),
        pairs / gpu.matmul_flops_per_s(_ATTENTION),
        traffic.layers,
        traffic.all_reduce_bytes / link if link else 0.0,
    )


# Fitted by `benchmarks/planner.py accuracy` to the TTFT of 1,597 closed-loop runs of
# AIConfigurator's sample on H100 to GB200. An engine that was not measured takes vLLM's.
MEASURED = {
    "vllm": PromptCost(1.0, 1.1, 0.15e-6, 2.4),
    "sglang": PromptCost(1.0, 2.1, 0.33e-6, 1.1),
    "tensorrt-llm": PromptCost(1.0, 2.6, 0.08e-6, 0.0),
}


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a replica's prompts take.

    attention_tokens: context at which attention costs a prompt token as much as all else of it.
    peak_share: of the dense peak that their matrices reach; None unknown. own: the calibration's
    rows told, not the engine's measured prompts.
    """

    attention_tokens: float
    peak_share: float | None = None
    own: bool = False


def prompt_cost_of(engine: str | None) -> PromptCost:
    """The measured prompts of `engine`, vLLM's for one that was not measured."""
    return MEASURED.get(known_engine(engine) or "vllm", MEASURED["vllm"])


def with_prompts(
    found: StepTime, shape: ModelShape, candidate: Candidate, engine: str | None
) -> tuple[StepTime, Prompts]:
    """The step time with prompts as the simulator means them, and what they take.

    The simulator knows how far into its prompt each chunk is and counts that attention itself.
    A fit that has prompts faster than the GPU's peak, many times slower, or just where its prior
    has them had rows which could not tell prompts from the rest: then what was measured of the
    engine stands in.
    """
    dtype = candidate.weight_dtype
    traffic = step_traffic(shape, dtype, candidate.kv_dtype, candidate.tp, found.dp)
    parts = prompt_parts(traffic, candidate.gpu, dtype)
    least = parts.matmul_s
    fitted = sum(cost.prefill_s for cost in found.costs if cost.family == "prefill")
    if 1.0 <= fitted / least <= _SLOWEST and abs(fitted / (PRIOR * least) - 1) > 1e-6:
        costs = [replace(cost, prompt_s=0.0) if cost.prompt_s else cost for cost in found.costs]
        tokens = attention_tokens(shape, dtype, candidate.kv_dtype)
        return replace(found, costs=tuple(costs)), Prompts(tokens, least / fitted, own=True)
    token, before = prompt_cost_of(engine).seconds(parts)
    token = max(token, least)
    return with_prompt_seconds(found, token), Prompts(
        token / before if before else float("inf"), least / token
    )


def with_prompt_seconds(found: StepTime, token_s: float) -> StepTime:
    """`found` with `token_s` [s] for a prompt token, beside the experts that it has read."""
    costs = [
        replace(cost, prefill_s=0.0) if cost.prefill_s else cost
        for cost in found.costs
        if cost.family != "prefill"
    ]
    return replace(found, costs=(*costs, FamilyCost("prefill", prefill_s=token_s)))


@lru_cache(maxsize=1024)
def attention_tokens(shape: ModelShape, weight_dtype: str, kv_dtype: str) -> float:
    """Where attention takes as long as the matrices at one and the same share of the peak.

    Half the context squared is counted per prompt, so a token at `c` costs twice its rate.
    """
    traffic = step_traffic(shape, weight_dtype, kv_dtype)
    if not traffic.prefill_attention_flop:
        return float("inf")
    return traffic.prefill_flop_per_token / (2 * traffic.prefill_attention_flop)
