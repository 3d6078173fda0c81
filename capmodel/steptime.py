"""One engine step of one deployment, in a form that needs no pandas and no fit.

A simulator, a planner or an autoscaler asks a `StepTime` for seconds; nothing here reads rows.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from capmodel.coverage import Coverage
from capmodel.gpus import Gpu
from capmodel.regressor import COORDINATES, LocalCorrection, coordinates
from capmodel.roofline import FAMILIES, TERMS
from capmodel.traffic import Growth, StepTraffic

Array = npt.NDArray[np.float64]
Number = float | Array

_SEQUENCES, _SINGLE, _CONTEXT, _PREFILL = (
    list(COORDINATES).index(name) for name in ("sequences", "single", "context", "prefill")
)


@dataclass(frozen=True, slots=True)
class FamilyCost:
    """Seconds of one family of terms: fixed, per sequence, per prompt token, growing with tokens.

    growth: [s] per sequence and cached token, each up to its limit. experts: (log share of
    experts one token leaves untouched, [s] to read all) of each kind of MoE layer.
    prompt_s: [s] per prompt token and token of prompt already there.
    """

    family: str
    fixed_s: float = 0.0
    sequence_s: float = 0.0
    prefill_s: float = 0.0
    prompt_s: float = 0.0
    growth: tuple[Growth, ...] = ()
    experts: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step that decodes `batch` sequences and processes some prompt tokens.

    low_factor, high_factor: the interval of `level`, as factors of the estimate; None where no
    held-out rows said how wide it is. `calibration_id` names the fit, `basis` the level of it.
    coverage: what the rows of that level hold; lacks: what of this deployment none of them has.
    """

    costs: tuple[FamilyCost, ...]
    calibration_id: str
    basis: str
    low_factor: float | None = None
    high_factor: float | None = None
    level: float | None = None
    log_factors: tuple[tuple[float, float, float], ...] = field(default=(), repr=False)
    coverage: Coverage | None = field(default=None, repr=False)
    lacks: tuple[str, ...] = ()
    dp: int = 1
    floor_fixed_s: float = 0.0
    floor_growth: tuple[Growth, ...] = ()
    correction: LocalCorrection | None = field(default=None, repr=False)
    place: tuple[float, ...] = field(default=(), repr=False)

    def seconds(self, batch: Number, cached_tokens: Number, prefill_tokens: Number = 0.0) -> Number:
        """Step time [s]; scalars give a float, arrays broadcast.

        batch: sequences decoded. cached_tokens: tokens they hold together. prefill_tokens:
        prompt tokens processed in the same step. A step with nothing to decode takes what its
        prompt tokens take on top of the weights.
        """
        if isinstance(batch, float | int) and isinstance(cached_tokens, float | int):
            context = cached_tokens / batch if batch else 0.0
            if isinstance(prefill_tokens, float | int):
                return self._one(float(batch), context, float(prefill_tokens))
        size, cached, prompt = np.broadcast_arrays(
            np.asarray(batch, float), np.asarray(cached_tokens, float),
            np.asarray(prefill_tokens, float),
        )  # fmt: skip
        context_len = cached / np.maximum(size, 1e-9)
        total = sum(self.terms(size, context_len, prompt).values()) + np.zeros(size.shape)
        total = np.maximum(total, self._floor(size, context_len))
        factor, _ = self.correct(size.ravel(), context_len.ravel(), prompt.ravel())
        return np.asarray(total * factor.reshape(size.shape))

    def interval_factors(self, coverage: float) -> tuple[float, float] | None:
        """(low, high) factors on the estimate at that coverage; None where none are known."""
        if not self.log_factors:
            return None
        levels, low, high = zip(*self.log_factors, strict=True)
        return (
            math.exp(float(np.interp(coverage, levels, low))),
            math.exp(float(np.interp(coverage, levels, high))),
        )

    def terms(
        self, batch: Number, context_len: Number, prefill_tokens: Number = 0.0
    ) -> dict[str, Number]:
        """Seconds of each family before the learned correction; every family is present."""
        found: dict[str, Number] = dict.fromkeys(FAMILIES, 0.0)
        share = batch / self.dp
        for cost in self.costs:
            value = cost.fixed_s + share * cost.sequence_s
            value = value + prefill_tokens * (cost.prefill_s + cost.prompt_s * context_len)
            for growth in cost.growth:
                value = value + share * growth.slope * np.minimum(context_len, growth.limit)
            for missed, seconds in cost.experts:
                value = value - seconds * np.expm1(missed * (batch + prefill_tokens))
            found[cost.family] = found[cost.family] + value
        return found

    def correct(
        self, batch: Array, context_len: Array, prefill_tokens: Array
    ) -> tuple[Array, Array]:
        """Factor on the roofline and similarity to measured rows, each (n,)."""
        if self.correction is None:
            return np.ones(len(batch)), np.zeros(len(batch))
        points = np.tile(np.array(self.place), (len(batch), 1))
        share = batch / self.dp
        points[:, _SEQUENCES] = np.log2(np.maximum(share, 0.25)) / 4
        points[:, _SINGLE] = 0.5 * (share <= 1.0)
        points[:, _CONTEXT] = np.log2(np.maximum(context_len, 1.0)) / 4
        points[:, _PREFILL] = np.log2(1.0 + prefill_tokens / np.maximum(batch, 1e-9)) / 4
        value, near = self.correction(points)
        return np.exp(value), near

    def _one(self, batch: float, context_len: float, prefill_tokens: float) -> float:
        """The same sum for one step, in plain arithmetic."""
        share, total = batch / self.dp, 0.0
        for cost in self.costs:
            total += cost.fixed_s + share * cost.sequence_s
            total += prefill_tokens * (cost.prefill_s + cost.prompt_s * context_len)
            for growth in cost.growth:
                total += share * growth.slope * min(context_len, growth.limit)
            for missed, seconds in cost.experts:
                total -= seconds * math.expm1(missed * (batch + prefill_tokens))
        total = max(total, float(self._floor(batch, context_len)))
        if self.correction is None:
            return total
        one = np.array([batch]), np.array([context_len]), np.array([prefill_tokens])
        return total * float(self.correct(*one)[0][0])

    def _floor(self, batch: Number, context_len: Number) -> Number:
        total: Number = self.floor_fixed_s
        for growth in self.floor_growth:
            if isinstance(context_len, float):
                total = total + batch / self.dp * growth.slope * min(context_len, growth.limit)
            else:
                total = total + batch / self.dp * growth.slope * np.minimum(
                    context_len, growth.limit
                )
        return total


def build_step_time(
    traffic: StepTraffic,
    gpu: Gpu,
    coefficients: tuple[float, ...],
    *,
    peak_flops_per_s: float,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    kv_dtype: str = "bf16",
    correction: LocalCorrection | None = None,
    calibration_id: str = "",
    basis: str = "",
    log_factors: tuple[tuple[float, float, float], ...] = (),
    coverage: Coverage | None = None,
    lacks: tuple[str, ...] = (),
) -> StepTime:
    """Multiply the constants of a deployment with the coefficients of a roofline.

    coefficients: in the order of `roofline.TERMS`. log_factors: (coverage, low, high) rows of
    log factors that held-out rows support, by rising coverage.
    Raises ValueError for a GPU without a bandwidth figure.
    """
    if gpu.bandwidth_bytes_per_s is None:
        raise ValueError(
            f"GPU {gpu.name} has no bandwidth figure, so its steps cannot be estimated; "
            "give bandwidth_bytes_per_s in a TOML entry of your own"
        )
    c = dict(zip((term.coefficient for term in TERMS), coefficients, strict=True))
    width, peak = gpu.bandwidth_bytes_per_s, peak_flops_per_s
    link = traffic.all_reduce_bytes / gpu.link_bytes_per_s if gpu.link_bytes_per_s else 0.0
    link *= c["c_link"] + c["c_bus"] * tp / 2
    experts = tuple(
        (math.log1p(-min(e.top_k / e.n_experts, 1 - 1e-15)),
         (c["c_w"] + c["c_expert"]) * e.n_experts * e.bytes_each / width)
        for e in traffic.experts
    )  # fmt: skip
    costs = (
        FamilyCost("weights", fixed_s=c["c_w"] * traffic.dense_bytes / width, experts=experts),
        FamilyCost(
            "kv",
            sequence_s=c["c_kv"] * traffic.kv_fixed_read / width,
            growth=_scaled(traffic.kv_read, c["c_kv"] / width)
            + _scaled(traffic.attention_flop, c["c_attention"] / peak),
        ),
        FamilyCost(
            "compute",
            sequence_s=c["c_f"] * traffic.flop_per_token / peak,
            growth=_scaled(traffic.attention_flop, c["c_f"] / peak),
        ),
        FamilyCost(
            "fixed",
            fixed_s=c["c_step"] * traffic.layers + c["c_quantised"] * traffic.quantised_layers,
            sequence_s=c["c_sequence"],
        ),
        FamilyCost(
            "communication",
            fixed_s=(c["c_reduce"] + c["c_round"] * (tp - 1)) * traffic.all_reduces
            + c["c_hop"] * (pp - 1),
            sequence_s=link,
            prefill_s=link,
        ),
        FamilyCost(
            "prefill",
            prefill_s=c["c_prefill"] * traffic.prefill_flop_per_token / peak,
            prompt_s=c["c_prefill"] * traffic.prefill_attention_flop / peak,
        ),
    )
    least = traffic.dense_bytes + sum(e.top_k * e.bytes_each for e in traffic.experts)
    nominal = next((row for row in log_factors if row[0] == 0.9), None)
    return StepTime(
        costs=costs, calibration_id=calibration_id, basis=basis, dp=dp,
        low_factor=math.exp(nominal[1]) if nominal else None,
        high_factor=math.exp(nominal[2]) if nominal else None,
        level=nominal[0] if nominal else None,
        log_factors=log_factors, coverage=coverage, lacks=lacks,
        floor_fixed_s=least / width, floor_growth=_scaled(traffic.kv_read, 1.0 / width),
        correction=correction,
        place=_place(traffic, gpu, peak, tp, pp, kv_dtype) if correction is not None else (),
    )  # fmt: skip


def _scaled(pieces: tuple[Growth, ...], factor: float) -> tuple[Growth, ...]:
    return tuple(Growth(piece.slope * factor, piece.limit) for piece in pieces if factor)


def _place(
    traffic: StepTraffic, gpu: Gpu, peak: float, tp: int, pp: int, kv_dtype: str
) -> tuple[float, ...]:
    """Where a single-sequence step of the deployment stands among the regressor's coordinates."""
    one = {
        "sequences": 1.0, "batch_size": 1.0, "context_len": 1.0, "tp": tp, "hops": pp - 1.0,
        "weight_stored_bytes": traffic.weight_stored_bytes / pp, "layers": traffic.layers,
        "kv_bytes_per_token": traffic.kv_bytes_per_token, "flop": traffic.flop_per_token,
        "attention_flop": 0.0, "gpu_peak_flops": peak,
        "gpu_bandwidth": gpu.bandwidth_bytes_per_s, "routed": float(bool(traffic.experts)),
    }  # fmt: skip
    columns = {name: np.array([value], float) for name, value in one.items()}
    return tuple(coordinates(columns, kv_dtype=np.array([kv_dtype]))[0].tolist())
