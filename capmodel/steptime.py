"""One engine step of one deployment, in a form that needs no pandas and no fit.

A simulator, a planner or an autoscaler asks a `StepTime` for seconds; nothing here reads rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from capmodel.anchors import Rising, anchors, rising_of
from capmodel.bands import Bands
from capmodel.coverage import Coverage
from capmodel.gpus import Gpu
from capmodel.regressor import COORDINATES, LocalCorrection, coordinates
from capmodel.roofline import FAMILIES, TERMS
from capmodel.traffic import Growth, StepTraffic

Array = npt.NDArray[np.float64]
Number = float | Array
Kernels = Callable[[Array, Array, Array], Array]

LEVEL = 0.9  # the coverage of low_factor and high_factor
_SEQUENCES, _SINGLE, _CONTEXT, _PREFILL = (
    list(COORDINATES).index(name) for name in ("sequences", "single", "context", "prefill")
)


@dataclass(frozen=True, slots=True)
class FamilyCost:
    """Seconds of one family of terms: fixed, per sequence, per prompt token, growing with tokens.

    start_s: [s] where prompts begin; a step with a part of one prompt bears that part of it.
    growth: [s] per sequence and cached token, each up to its limit. experts: (log share of
    experts one token leaves untouched, [s] to read all) of each kind of MoE layer.
    prompt_s: [s] per prompt token and token of the prompt it belongs to.
    """

    family: str
    fixed_s: float = 0.0
    sequence_s: float = 0.0
    prefill_s: float = 0.0
    prompt_s: float = 0.0
    start_s: float = 0.0
    growth: tuple[Growth, ...] = ()
    experts: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step that decodes `batch` sequences and processes some prompt tokens.

    low_factor, high_factor: the interval of `level`, as factors of the estimate of a step among
    the rows; None where no held-out rows said how wide it is. bands: how it widens beyond them.
    `calibration_id` names the fit, `basis` the level of it.
    coverage: what the rows of that level hold; lacks: what of this deployment none of them has.
    floors: what the bytes take at datasheet bandwidth, and the FLOP at peak; no step is faster.
    rising: what the learned correction may not undo, see `monotone`. kernels: what curves of the
    step's kernels say of its decoding, as a factor on the step without its prompts.
    """

    costs: tuple[FamilyCost, ...]
    calibration_id: str
    basis: str
    low_factor: float | None = None
    high_factor: float | None = None
    level: float | None = None
    bands: Bands | None = field(default=None, repr=False)
    coverage: Coverage | None = field(default=None, repr=False)
    lacks: tuple[str, ...] = ()
    dp: int = 1
    floors: tuple[FamilyCost, ...] = ()
    correction: LocalCorrection | None = field(default=None, repr=False)
    place: tuple[float, ...] = field(default=(), repr=False)
    rising: Rising | None = field(default=None, repr=False)
    kernels: Rising | None = field(default=None, repr=False)

    def seconds(
        self,
        batch: Number,
        cached_tokens: Number,
        prefill_tokens: Number = 0.0,
        prompt_len: Number = 0.0,
    ) -> Number:
        """Step time [s]; scalars give a float, arrays broadcast.

        batch: sequences decoded. cached_tokens: tokens they hold together. prefill_tokens:
        prompt tokens processed in the same step, of prompts of prompt_len tokens each; with a
        prompt_len of 0 their attention to each other is left out. A step with nothing to decode
        takes what its prompt tokens take on top of the weights.
        """
        given = batch, cached_tokens, prefill_tokens, prompt_len
        if all(isinstance(value, float | int) for value in given):
            size, cached, prompt, length = map(float, given)
            return self._one(size, cached / size if size else 0.0, prompt, length)
        sizes, cached_all, prompts, lengths = np.broadcast_arrays(
            *(np.asarray(value, float) for value in given)
        )
        context_len = cached_all / np.maximum(sizes, 1e-9)
        total = self._roofline(sizes, context_len, prompts, lengths)
        if self.kernels is not None:
            alone = self._roofline(sizes, context_len, 0.0, 0.0) if prompts.any() else total
            total = total + (self.kernels(sizes, context_len) - 1.0) * alone
        factor, _ = self.correct(sizes.ravel(), context_len.ravel(), prompts.ravel())
        found = np.asarray(total * factor.reshape(sizes.shape))
        if self.rising is not None:
            found = found * self.rising(sizes, context_len)
        return np.maximum(found, self.floor(sizes, context_len, prompts, lengths))

    def interval_factors(self, coverage: float) -> tuple[float, float] | None:
        """(low, high) factors on the estimate at that coverage, of a step among the rows.

        None where none are known.
        """
        return self.bands.nominal(coverage) if self.bands is not None else None

    def intervals(
        self, coverage: float, batch: Array, context_len: Array
    ) -> tuple[Array, Array] | None:
        """(low, high) factors on steps of (n,) sequences and tokens of each, wider beyond the rows.

        None where none are known.
        """
        return self.bands.factors(coverage, batch, context_len) if self.bands is not None else None

    def beyond(self, batch: Array, context_len: Array) -> tuple[str, ...]:
        """How steps of (n,) sequences and tokens of each lie beyond the measured rows, in words.

        Ranges of the deployment's own rows are named where those of its engine and GPU hold.
        Nothing where there are no rows of that engine and GPU at all.
        """
        if self.coverage is None:
            return ()
        found = (*self.lacks, *self.coverage.beyond(batch, context_len))
        own = self.bands.own if self.bands is not None else None
        if own is not None and not found:
            left = own.left(batch, context_len)
            found = tuple(f"{one} of this deployment's rows" for one in left)
        return tuple(f"{reason} ({self.basis})" for reason in found)

    def terms(
        self,
        batch: Number,
        context_len: Number,
        prefill_tokens: Number = 0.0,
        prompt_len: Number = 0.0,
    ) -> dict[str, Number]:
        """Seconds of each family before the learned correction; every family is present."""
        found: dict[str, Number] = dict.fromkeys(FAMILIES, 0.0)
        share = batch / self.dp
        for cost in self.costs:
            value = cost.fixed_s + share * cost.sequence_s
            value = value + prefill_tokens * (cost.prefill_s + cost.prompt_s * prompt_len)
            if cost.start_s:
                value = value + cost.start_s * _started(prefill_tokens, prompt_len)
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
        places = np.tile(np.array(self.place), (len(batch), 1))
        value, near = self.correction(
            standing(places, batch / self.dp, batch, context_len, prefill_tokens)
        )
        return np.exp(value), near

    def _roofline(
        self, batch: Array, context_len: Array, prefill_tokens: Number, prompt_len: Number
    ) -> Array:
        """The sum of the terms, never below the floor [s]."""
        given = batch, context_len, prefill_tokens, prompt_len
        return np.maximum(sum(self.terms(*given).values()), self.floor(*given))

    def _one(self, batch: float, context_len: float, prefill: float, prompt_len: float) -> float:
        """`seconds` of one step, in plain arithmetic."""
        total, least = self._roofline_of_one(batch, context_len, prefill, prompt_len)
        if self.kernels is not None:
            alone = self._roofline_of_one(batch, context_len, 0.0, 0.0)[0] if prefill else total
            total += (self.kernels.of_one(batch, context_len) - 1.0) * alone
        if self.correction is not None:
            one = np.array([batch]), np.array([context_len]), np.array([prefill])
            total *= float(self.correct(*one)[0][0])
        if self.rising is not None:
            total *= self.rising.of_one(batch, context_len)
        return max(total, least)

    def _roofline_of_one(
        self, batch: float, context_len: float, prefill: float, prompt_len: float
    ) -> tuple[float, float]:
        """`_roofline` of one step, in plain arithmetic, and its floor [s]."""
        given = batch, batch / self.dp, context_len, prefill, prompt_len
        total = sum(_cost_of_one(cost, *given) for cost in self.costs)
        least = max((_cost_of_one(cost, *given) for cost in self.floors), default=0.0)
        return max(total, least), least

    def floor(
        self, batch: Number, context_len: Number, prefill_tokens: Number = 0.0,
        prompt_len: Number = 0.0,
    ) -> Number:  # fmt: skip
        """Bytes at datasheet bandwidth or FLOP at peak, whichever takes longer [s]."""
        least: Number = 0.0
        for cost in self.floors:
            value = cost.fixed_s + batch / self.dp * cost.sequence_s
            value = value + prefill_tokens * (cost.prefill_s + cost.prompt_s * prompt_len)
            for growth in cost.growth:
                reached = np.minimum(context_len, growth.limit)
                value = value + batch / self.dp * growth.slope * reached
            least = np.maximum(least, value)
        return least


def _cost_of_one(
    cost: FamilyCost, batch: float, share: float, context_len: float, prefill: float,
    prompt_len: float,
) -> float:  # fmt: skip
    total = cost.fixed_s + share * cost.sequence_s
    total += prefill * (cost.prefill_s + cost.prompt_s * prompt_len)
    if cost.start_s and prompt_len > 0:
        total += cost.start_s * min(prefill / prompt_len, 1.0)
    for growth in cost.growth:
        total += share * growth.slope * min(context_len, growth.limit)
    for missed, seconds in cost.experts:
        total -= seconds * math.expm1(missed * (batch + prefill))
    return total


def _started(prefill_tokens: Number, prompt_len: Number) -> Array:
    """Share of a start that falls into a step; prompts that go through together start once."""
    length = np.asarray(prompt_len, float)
    share = np.asarray(prefill_tokens, float) / np.where(length > 0, length, np.inf)
    return np.asarray(np.minimum(share, 1.0))


def standing(
    places: Array, share: Array, batch: Array, context_len: Array, prefill_tokens: Array
) -> Array:
    """`places` (n, coordinates) of single sequences, moved in place to where each step stands."""
    places[:, _SEQUENCES] = np.log2(np.maximum(share, 0.25)) / 4
    places[:, _SINGLE] = 0.5 * np.clip(2.0 - share, 0.0, 1.0)
    places[:, _CONTEXT] = np.log2(np.maximum(context_len, 1.0)) / 4
    places[:, _PREFILL] = np.log2(1.0 + prefill_tokens / np.maximum(batch, 1e-9)) / 4
    return places


def monotone(step: StepTime) -> StepTime:
    """`step`, made never to say that more sequences or a longer context are faster.

    The learned correction knows nothing of that, and dips where its rows are thin. The step is
    evaluated on anchors, powers of two of batch and context; where one takes less than an anchor
    below it in either, it is lifted to it, and what lies between is lifted in proportion.
    """
    if step.correction is None and step.kernels is None:
        return step
    batch, context = anchors()
    grid = np.asarray(step.seconds(batch, batch * context))
    hull = np.maximum.accumulate(np.maximum.accumulate(grid, axis=0), axis=1)
    factors = hull / grid
    if factors.max() < 1.001:
        return step
    return replace(step, rising=rising_of(factors))


def with_kernels(step: StepTime, kernels: Kernels | None) -> StepTime:
    """`step`, without correction yet, with the factors of its kernels' curves at the anchors."""
    if kernels is None:
        return step
    batch, context = np.broadcast_arrays(*anchors())
    base = np.asarray(step.seconds(batch, batch * context))
    found = kernels(batch.ravel(), context.ravel(), base.ravel()).reshape(base.shape)
    return replace(step, kernels=rising_of(found))


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
    bands: Bands | None = None,
    coverage: Coverage | None = None,
    lacks: tuple[str, ...] = (),
    kernels: Kernels | None = None,
) -> StepTime:
    """Multiply the constants of a deployment with the coefficients of a roofline.

    coefficients: in the order of `roofline.TERMS`. kernels: the factor on steps of
    (n,) sequences, tokens of each and seconds.
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
    shared = c["c_bus"] * tp / 2 + c["c_cross"] * tp**2 / 4
    link *= shared if gpu.shares_bus else c["c_link"]
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
            start_s=c["c_request"],
        ),
    )
    least = traffic.dense_bytes + sum(e.top_k * e.bytes_each for e in traffic.experts)
    floors = (
        FamilyCost(
            "weights", fixed_s=least / width, sequence_s=traffic.kv_fixed_read / width,
            growth=_scaled(traffic.kv_read, 1.0 / width),
        ),
        FamilyCost(
            "compute", sequence_s=traffic.flop_per_token / peak,
            growth=_scaled(traffic.attention_flop, 1.0 / peak),
            prefill_s=traffic.prefill_flop_per_token / peak,
            prompt_s=traffic.prefill_attention_flop / peak,
        ),
    )  # fmt: skip
    low, high = (bands and bands.nominal(LEVEL)) or (None, None)
    step = StepTime(
        costs=costs, calibration_id=calibration_id, basis=basis, dp=dp,
        low_factor=low, high_factor=high, level=None if low is None else LEVEL, bands=bands,
        coverage=coverage, lacks=lacks, floors=floors,
    )  # fmt: skip
    step = with_kernels(step, kernels)
    if correction is not None:
        place = _place(traffic, gpu, peak, tp, pp, kv_dtype)
        step = replace(step, correction=correction, place=place)
    return monotone(step)


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
