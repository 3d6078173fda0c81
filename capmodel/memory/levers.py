"""When it does not fit: by how much, and what each lever would give."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from capmodel.arguments import LENGTH, number
from capmodel.gpus import Gpu, GpuLike, load_gpu
from capmodel.kvcache import EngineSettings, check_tp, kv_bytes, request_cost
from capmodel.memory.budget import MEMORY_FRACTION, MemoryBudget, memory_budget
from capmodel.memory.concurrency import held, step_limits
from capmodel.memory.reserve import StepLimits
from capmodel.memory.variants import attention_variants
from capmodel.shapes import ModelLike, ModelShape, load_shape

_MORE_GPUS = (2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Lever:
    """One thing to change, everything else as asked, and the requests that would then fit."""

    name: str
    change: str
    concurrency: int


@dataclass(frozen=True, slots=True)
class Fit:
    """How many requests fit and why no more.

    request_bytes: what one takes on each GPU, in whole blocks in engine mode [byte].
    shortfall_bytes: what is missing for the first request, 0 where one fits [byte].
    levers: empty where at least one request fits.
    """

    budget: MemoryBudget
    context_len: int
    concurrency: int
    request_bytes: float
    shortfall_bytes: float
    levers: tuple[Lever, ...]


@dataclass(frozen=True, slots=True)
class _Question:
    """What was asked, so that one thing at a time can be changed."""

    shape: ModelShape
    gpu: Gpu
    context_len: int
    weight_dtype: str | None
    settings: EngineSettings
    memory_fraction: float
    mode: str
    reserve_bytes: float | None
    limits: StepLimits

    def budget(self) -> MemoryBudget:
        return memory_budget(
            self.shape,
            self.gpu,
            weight_dtype=self.weight_dtype,
            tp=self.settings.tp,
            memory_fraction=self.memory_fraction,
            mode=self.mode,
            reserve_bytes=self.reserve_bytes,
            limits=self.limits,
        )

    def holds(self, shape: ModelShape | None = None) -> int:
        """Requests that fit; `shape` keeps the cache another way in the same weights."""
        return int(held(shape or self.shape, self.budget(), self.context_len, self.settings))

    def with_kv(self, kv_dtype: str) -> "_Question":
        return replace(self, settings=replace(self.settings, kv_dtype=kv_dtype))

    def with_tp(self, tp: int) -> "_Question":
        return replace(self, settings=replace(self.settings, tp=tp))


def explain_fit(
    model: ModelLike,
    gpu: GpuLike,
    context_len: int,
    *,
    weight_dtype: str | None = "bf16",
    kv_dtype: str = "bf16",
    tp: int = 1,
    memory_fraction: float = MEMORY_FRACTION,
    mode: str = "nameplate",
    reserve_bytes: float | None = None,
    max_num_batched_tokens: int | None = None,
    block_size: int = 16,
) -> Fit:
    """`max_concurrency` with its reasons: the budget, what is missing, and the levers.

    Arguments, errors and warnings are those of `max_concurrency`.
    """
    shape, device = load_shape(model), load_gpu(gpu)
    context_len = number("context_len", context_len, LENGTH)
    limits = step_limits(device, max_num_batched_tokens)
    settings = EngineSettings(
        kv_dtype=kv_dtype,
        tp=tp,
        block_size=block_size,
        max_num_batched_tokens=limits.max_num_batched_tokens,
    )
    asked = _Question(
        shape,
        device,
        context_len,
        weight_dtype,
        settings,
        memory_fraction,
        mode,
        reserve_bytes,
        limits,
    )
    budget, concurrency = asked.budget(), asked.holds()
    asked = _unlimited(asked)
    if mode == "nameplate":
        request = float(kv_bytes(asked.shape, context_len, 1, kv_dtype, tp))
    else:
        request = float(request_cost(shape, "vllm", settings).bytes(context_len))
    missing = request + budget.shortfall_bytes - budget.cache_bytes
    return Fit(
        budget=budget,
        context_len=context_len,
        concurrency=concurrency,
        request_bytes=request,
        shortfall_bytes=0.0 if concurrency else missing,
        levers=() if concurrency else tuple(_levers(asked)),
    )


def _unlimited(asked: _Question) -> _Question:
    """The same without the model's maximum, of which the question itself has warned."""
    return replace(asked, shape=replace(asked.shape, max_context=None))


def _levers(asked: _Question) -> Iterator[Lever]:
    yield from _attention_levers(asked)
    for kv_dtype in ("fp8", "nvfp4"):
        if kv_dtype != asked.settings.kv_dtype:
            count = asked.with_kv(kv_dtype).holds()
            yield Lever("KV quantisation", f"{kv_dtype} cache", count)
    if asked.budget().cache_bytes == 0:
        for weight_dtype in ("fp8", "int4"):
            if weight_dtype != asked.weight_dtype:
                count = replace(asked, weight_dtype=weight_dtype).holds()
                yield Lever("weight quantisation", f"{weight_dtype} weights", count)
    longest = _longest_context(asked)
    if longest:
        count = replace(asked, context_len=longest).holds()
        yield Lever("shorter context", f"{longest:,} tokens", count)
    degrees = [n for n in _MORE_GPUS if n > asked.settings.tp and _divides(asked.shape, n)]
    counts = {degree: asked.with_tp(degree).holds() for degree in degrees}
    if counts:
        enough = next((degree for degree in degrees if counts[degree]), degrees[-1])
        yield Lever("more tp", f"tp {enough}", counts[enough])
    quarter = max(1, asked.context_len // 4)
    count = replace(asked, context_len=quarter).holds()
    yield Lever("fewer long requests", f"only requests of {quarter:,} tokens here", count)


def _attention_levers(asked: _Question) -> Iterator[Lever]:
    """The cache of the same model with fewer KV heads, or with one latent for all of them."""
    variants = attention_variants(asked.shape)
    for kind, change in (("GQA 8", "8 KV heads, a model trained so"), ("MLA", "one latent of 576")):
        variant = variants.get(kind)
        if variant is not None and variant is not asked.shape:
            yield Lever(kind.split()[0], change, asked.holds(variant))


def _longest_context(asked: _Question) -> int:
    """The longest context of which one request fits, 0 if not one token does."""
    low, high = 0, asked.context_len
    while high - low > 1:
        middle = (low + high) // 2
        if replace(asked, context_len=middle).holds():
            low = middle
        else:
            high = middle
    return low


def _divides(shape: ModelShape, tp: int) -> bool:
    try:
        check_tp(shape, tp)
    except ValueError:
        return False
    return True
