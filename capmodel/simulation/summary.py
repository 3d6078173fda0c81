"""Numbers people ask for, from the records: percentiles, throughput, use, waste, intervals."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from capmodel.arguments import SHARE, Span, function, instance, number
from capmodel.simulation.records import Simulation
from capmodel.words import shown
from capmodel.workload.limits import SEED

_LEFT_OUT = Span("a share below 1", 0.0, 1.0, open_high=True)


@dataclass(frozen=True, slots=True)
class Summary:
    """One simulation in figures, warm-up left out of those that are per request.

    ttft, tpot, e2e: mean and percentiles [s]; TPOT over requests of at least two tokens.
    output_tok_s, input_tok_s: tokens per second over the whole span. mean_in_system: time
    average over all replicas. utilisation: share of the time replicas spend in steps.
    mean_decoding: sequences decoding, per replica, while it is busy. pool_use: blocks held over
    blocks there are; waste: share of held token slots that hold no token
    (NaN with a prefix cache: shared blocks hold the tokens of several).
    hit_share: prompt tokens found in the prefix cache.
    """

    n: int
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    tpot_p50_s: float
    tpot_p95_s: float
    tpot_p99_s: float
    e2e_mean_s: float
    e2e_p50_s: float
    e2e_p95_s: float
    e2e_p99_s: float
    span_s: float
    request_rate: float
    output_tok_s: float
    input_tok_s: float
    mean_in_system: float
    utilisation: float
    mean_decoding: float
    pool_use: float
    peak_pool_use: float
    waste: float
    hit_share: float
    preemptions_per_request: float
    preempted_share: float


def summarise(result: Simulation, warmup: float = 0.1, cooldown: float = 0.0) -> Summary:
    """Figures of `result` without the first `warmup` and last `cooldown` share of requests.

    Raises ValueError when nothing is left.
    """
    n = len(instance("result", result, Simulation))
    warmup, cooldown = number("warmup", warmup, _LEFT_OUT), number("cooldown", cooldown, _LEFT_OUT)
    if warmup + cooldown >= 1:
        raise ValueError(f"Got warmup={warmup}, cooldown={cooldown}, but expected shares below 1")
    keep = slice(int(n * warmup), max(int(n * warmup) + 1, n - int(n * cooldown)))
    span = result.end_s - float(result.arrival_s[0])
    span = span if span > 0 else float("nan")
    totals = result.totals
    decoders = [total for total in totals if not total.prefill_only]
    busy = sum(total.busy_s for total in totals)
    decode_busy = sum(total.busy_s for total in decoders)
    held = sum(total.area_blocks * total.block_tokens for total in decoders)
    blocks = sum(total.pool_blocks for total in decoders)
    cached = sum(total.area_tokens for total in decoders)
    latency = {
        **_percentiles("ttft", result.ttft_s[keep]),
        **_percentiles("tpot", result.tpot_s[keep]),
        **_percentiles("e2e", result.e2e_s[keep]),
    }
    return Summary(
        n=len(result.ttft_s[keep]),
        **latency,
        span_s=span,
        request_rate=n / span,
        output_tok_s=float(result.output_tokens.sum()) / span,
        input_tok_s=float(result.prompt_tokens.sum()) / span,
        mean_in_system=sum(total.area_system for total in totals) / span,
        utilisation=busy / (span * len(totals)),
        mean_decoding=_ratio(sum(total.area_decoding for total in decoders), decode_busy),
        pool_use=sum(total.area_blocks for total in decoders) / (blocks * span),
        peak_pool_use=max(total.peak_blocks / total.pool_blocks for total in decoders),
        waste=float("nan") if result.hit_tokens.any() else 1 - _ratio(cached, held),
        hit_share=float(result.hit_tokens.sum() / result.prompt_tokens.sum()),
        preemptions_per_request=float(result.preemptions.mean()),
        preempted_share=float((result.preemptions > 0).mean()),
    )


def replicate(
    run: Callable[[int], Summary], seeds: Iterable[int], level: float = 0.95
) -> pd.DataFrame:
    """Mean and t-interval of every figure over independent replications.

    run: seed -> Summary. Returns one row per figure: `mean low high`; the interval is NaN for
    one replication. Raises ValueError without seeds.
    """
    function("run", run)
    level = number("level", level, SHARE)
    if not isinstance(seeds, Iterable) or isinstance(seeds, str | bytes):
        raise ValueError(f"Got seeds={shown(seeds)}, but expected several whole numbers")
    table = pd.DataFrame([asdict(run(number("seed", seed, SEED))) for seed in seeds])
    if table.empty:
        raise ValueError("Got no seeds, but expected at least one replication")
    n = len(table)
    spread = table.std(ddof=1) / np.sqrt(n) if n > 1 else table.iloc[0] * np.nan
    reach = float(stdtrit(n - 1, 0.5 + level / 2)) if n > 1 else float("nan")
    mean = table.mean()
    return pd.DataFrame({"mean": mean, "low": mean - reach * spread, "high": mean + reach * spread})


def _percentiles(name: str, values: NDArray[np.float64]) -> dict[str, float]:
    values = values[np.isfinite(values)]
    if not len(values):
        return {f"{name}_{part}_s": float("nan") for part in ("mean", "p50", "p95", "p99")}
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    return {
        f"{name}_mean_s": float(values.mean()),
        f"{name}_p50_s": float(p50),
        f"{name}_p95_s": float(p95),
        f"{name}_p99_s": float(p99),
    }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")
