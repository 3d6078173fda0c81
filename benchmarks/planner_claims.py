"""Published claims about cache management, measured with the simulator on real lengths.

Published: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention", SOSP 2023 (waste of contiguous reservation 60-80 %, paged under 4 %, 2-4 times
the throughput; ShareGPT 161 + 338 tokens on average, LLaMA-13B on an A100-40GB, 2,048 tokens);
DeepSeek-AI, "DeepSeek-V2", 2024 (5.76 times DeepSeek-67B's generation throughput on eight H800).
"""

from dataclasses import dataclass, replace

import numpy as np

from capmodel.gpus import load_gpu
from capmodel.planner.candidate import Candidate
from capmodel.planner.replica import CalibrationLike, Setting, replica_of
from capmodel.shapes import load_shape
from capmodel.simulation import (
    Server,
    context_limit,
    power_of_two,
    simulate,
    summarise,
    whole_request,
)
from capmodel.simulation.static import simulate_static
from capmodel.traffic import step_traffic
from capmodel.workload import Lognormal, Requests, Workload, read_trace


@dataclass(frozen=True, slots=True)
class Claim:
    """A published figure beside ours, and why they differ where they do."""

    claim: str
    setting: str
    published: str
    ours: str
    why: str


def sharegpt_like(n: int = 1500) -> Requests:
    """Lengths with ShareGPT's published means, heavy tails, cut at 2,048 tokens in all."""
    drawn = Workload(Lognormal(161, 1.5, 1020), Lognormal(338, 1.0, 1020), rate=1.0).draw(n, 0)
    return replace(drawn, arrival_s=np.zeros(n), name="ShareGPT's means")


def azure_within(path: str, longest: int, n: int = 1500) -> Requests:
    """The first requests of the Azure conversation trace that fit in `longest` tokens."""
    trace = read_trace(path)
    keep = np.flatnonzero(trace.prompt_tokens + trace.output_tokens <= longest)[:n]
    return Requests(
        np.zeros(len(keep)),
        trace.prompt_tokens[keep],
        trace.output_tokens[keep],
        name=f"Azure conversation, {len(keep):,} requests within {longest:,}",
    )


def cache_claims(
    calibration: CalibrationLike, model: str, gpu: str, requests: Requests, longest: int
) -> list[Claim]:
    """Waste and throughput of each way to reserve, all requests waiting from the start."""
    candidate = Candidate(load_gpu(gpu), 1, "bf16", "bf16")
    replica = replica_of(
        load_shape(model), candidate, Setting(calibration, longest_request=longest)
    )
    paged = replica.server(False, longest)
    ways: dict[str, Server] = {
        "paged": paged,
        "whole": replace(paged, reservation=whole_request),
        "power of two": replace(paged, reservation=power_of_two),
        "longest": replace(paged, reservation=context_limit(longest)),
    }
    found = {name: summarise(simulate(requests, way), 0.0) for name, way in ways.items()}
    static = summarise(simulate_static(requests, paged, max_context=longest), 0.0)
    where = f"{model}, {gpu}, {requests.name}"
    waste = {name: 100 * summary.waste for name, summary in found.items()}
    rate = {name: summary.output_tok_s for name, summary in found.items()}
    return [
        Claim(
            "contiguous reservation wastes the cache",
            where,
            "60-80 %",
            f"{waste['longest']:.0f} % (longest context), {waste['power of two']:.0f} % (power of "
            f"two), {waste['whole']:.0f} % (an oracle of the output)",
            "waste is 1 - mean length / reserved; the published systems also lose room between "
            "their regions, which counting tokens does not see",
        ),
        Claim(
            "blocks of 16 waste little",
            where,
            "under 4 %",
            f"{waste['paged']:.1f} %",
            "half a block of 16 per request, over its mean length",
        ),
        Claim(
            "paged over contiguous, both continuous",
            where,
            "2-4 x (Orca)",
            f"{rate['paged'] / rate['longest']:.1f} x longest, "
            f"{rate['paged'] / rate['power of two']:.1f} x power of two, "
            f"{rate['paged'] / rate['whole']:.1f} x oracle",
            "at saturation; the paper compares the load at one latency",
        ),
        Claim(
            "paged continuous over static batches",
            where,
            "2-4 x (and up to 22 x FasterTransformer)",
            f"{rate['paged'] / static.output_tok_s:.1f} x",
            "static batches pad to the longest and wait for it",
        ),
    ]


def deepseek_claim(step: "StepRates", context: int = 1000) -> Claim:
    """Generation throughput of DeepSeek-V2 over DeepSeek-67B on eight H800, filled to the brim.

    V2: fp8 weights, experts spread over the eight, attention data-parallel (its latent would be
    replicated under tp), 6-bit cache: 0.75 of fp8's bytes. 67B: bf16, tp 8. Decode only.
    """
    v2, dense = load_shape("deepseek-v2"), load_shape("deepseek-67b")
    gpu = load_gpu("h100")  # an H800's memory, bandwidth and peak
    total = 0.92 * float(gpu.memory_reported_bytes or gpu.memory_bytes) - 3e9
    a = step_traffic(v2, "fp8", "fp8", tp=1, dp=8)
    b = step_traffic(dense, "bf16", "bf16", tp=8)
    per_token_a, per_token_b = 0.75 * a.kv_bytes_per_token, b.kv_bytes_per_token
    batch_a = (total - a.weight_stored_bytes) / (per_token_a * context)
    batch_b = (total - b.weight_stored_bytes) / (per_token_b * context)
    seconds_a = step.seconds(a, gpu, "fp8", batch_a, context, 0.75, 8 * batch_a)
    seconds_b = step.seconds(b, gpu, "bf16", batch_b, context, 1.0, batch_b)
    ours = 8 * batch_a / seconds_a, batch_b / seconds_b
    many = f"{8 * batch_a:,.0f} against {batch_b:,.0f} sequences"
    return Claim(
        "DeepSeek-V2 over DeepSeek-67B",
        f"8 x H800, {context:,} tokens a sequence, {many}",
        "5.76 x (over 50,000 tokens/s)",
        f"{ours[0] / ours[1]:.1f} x ({ours[0]:,.0f} against {ours[1]:,.0f} tokens/s)",
        "decode only, no scheduler and no expert skew; the service's lengths are not published",
    )


@dataclass(frozen=True, slots=True)
class StepRates:
    """Achieved shares of datasheet rates for the DeepSeek comparison, the same for both."""

    weights: float = 0.8
    cache: float = 0.6
    compute: float = 0.5
    layer_s: float = 4e-5

    def seconds(self, t, gpu, dtype, batch, context, cache_scale, tokens) -> float:  # type: ignore[no-untyped-def]
        """A decode step [s]: bytes and FLOP of PHYSICS section 5 at these shares."""
        touched = sum(
            e.n_experts * e.bytes_each * -np.expm1(np.log1p(-e.top_k / e.n_experts) * tokens)
            for e in t.experts
        )
        cache = cache_scale * batch * context * sum(growth.slope for growth in t.kv_read)
        flop = batch * (t.flop_per_token + context * sum(g.slope for g in t.attention_flop))
        bandwidth = gpu.bandwidth_bytes_per_s
        return (
            t.layers * self.layer_s
            + (t.dense_bytes + touched) / bandwidth / self.weights
            + cache / bandwidth / self.cache
            + flop / gpu.matmul_flops_per_s(dtype) / self.compute
        )
