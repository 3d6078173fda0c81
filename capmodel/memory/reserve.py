"""What an engine takes beside weights and cache: activation peak, CUDA graphs, non-torch.

The activation peak is the larger of two: the sampler's, in fp32 over the whole vocabulary for
every sequence, and a forward pass over one step's tokens. Both constants were read off the
start-up logs of `engine_kv_logs.csv` (vLLM 0.6.4 to 0.26):

- sampler: activation / (max_num_seqs * vocabulary * 4 bytes) = 9.73 (Llama-3.1-8B), 9.59
  (Qwen3-0.6B), 9.73 (Qwen3-32B), 9.62 (gpt-oss-20b), 9.59 (Phi-4-mini), 9.65 (Qwen2.5-7B): it
  does not know the model but by its vocabulary;
- forward: 2 bytes * (3 hidden + 3 intermediate) a token: Llama-3.1-8B at 20,000 and 29,000 tokens
  took 2.07 and 2.99 GiB, which is 110,592 bytes a token to 1 %.

Multimodal models profile an image as well (Pixtral 8.27 GiB), which is not in it.
"""

from dataclasses import dataclass

from capmodel.arguments import COUNT, number
from capmodel.gpus import Gpu
from capmodel.shapes import DenseMlp, ModelShape, MoeMlp
from capmodel.units import GIB

SAMPLER_BYTES = 4 * 9.65
FORWARD_WIDTHS = 3

# Medians of 7 and 17 start-up logs (engine_kv_logs.csv): graphs -0.88 to 0.67 GiB, the rest of
# the driver's and NCCL's memory 0.01 to 2.10 GiB (tp 8).
GRAPHS_BYTES = 0.1 * GIB
NON_TORCH_BYTES = 0.13 * GIB

LARGE_GPU_BYTES = 70 * GIB


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Sequences and tokens one engine step may hold."""

    max_num_seqs: int
    max_num_batched_tokens: int

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            object.__setattr__(self, name, number(name, getattr(self, name), COUNT))


def default_limits(gpu: Gpu) -> StepLimits:
    """What `vllm serve` takes for this GPU: 1,024 and 8,192 from 70 GiB up, but for the A100."""
    memory = gpu.memory_reported_bytes or gpu.memory_bytes
    if memory >= LARGE_GPU_BYTES and "a100" not in gpu.name.lower():
        return StepLimits(1024, 8192)
    return StepLimits(256, 2048)


def activation_bytes(shape: ModelShape, limits: StepLimits, tp: int = 1) -> float:
    """Peak of the profiling run on each GPU [byte]; a rule read off logs, not a bound.

    Of the 18 logs of text models that state it 12 are within 7 % (9 within 1.5 %); the others
    were started with limits that their lines do not say.
    """
    sampler = SAMPLER_BYTES * limits.max_num_seqs * shape.vocab_size
    width = shape.hidden_size + max(map(_mlp_width, shape.groups), default=0) / tp
    forward = 2 * FORWARD_WIDTHS * width * limits.max_num_batched_tokens
    return max(sampler, forward)


def _mlp_width(group: object) -> int:
    mlp = getattr(group, "mlp", None)
    match mlp:
        case DenseMlp():
            return mlp.intermediate
        case MoeMlp():
            return mlp.top_k * mlp.expert_intermediate + mlp.shared_intermediate
    return 0
