"""The figures an engine prints at start-up, computed from what it had to divide up."""

import difflib
import math
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike

from capmodel.arguments import BYTES, COUNT, Span, number
from capmodel.engines import ENGINES as SPELLINGS
from capmodel.engines import known_engine
from capmodel.kvcache.blocks import BlockTable, Pool, RequestCost
from capmodel.kvcache.llama_cpp import llama_cpp_cache
from capmodel.kvcache.settings import EngineSettings
from capmodel.kvcache.sglang import sglang_cost
from capmodel.kvcache.splits import check_tp
from capmodel.kvcache.tensorrt_llm import tensorrt_llm_cost
from capmodel.kvcache.totals import check_lengths
from capmodel.kvcache.vllm import vllm_cost
from capmodel.kvcache.vllm_versions import vllm_rules
from capmodel.shapes import ModelLike, ModelShape, load_shape
from capmodel.words import shown

LAYOUTS = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
# Names people and logs give the four layouts; forks keep their parent's.
ENGINES = {
    **{name: name for name in LAYOUTS},
    **{other: name for name in LAYOUTS for other in SPELLINGS[name]},
    "vllm-ascend": "vllm", "vllm-cpu": "vllm", "aphrodite": "vllm",
    "sglang+kvcached": "sglang",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Replay:
    """What an engine prints about its cache.

    tokens: "KV cache size". concurrency: requests of `max_model_len`; engines that print none
    would have said this. low, high: the same at the ends of what the rounded available memory
    may have been. cache_bytes: allocated on each GPU [byte].
    """

    engine: str
    version: str | None
    max_model_len: int
    pool: Pool
    tokens: int
    concurrency: float
    cache_bytes: float
    tokens_low: int
    tokens_high: int
    concurrency_low: float
    concurrency_high: float


def engine_name(engine: str) -> str:
    """Canonical layout name. Raises ValueError with the nearest names for an unknown engine."""
    wanted = known_engine(engine) or ""
    name = ENGINES.get(wanted)
    if name is None:
        near = difflib.get_close_matches(wanted, ENGINES, n=3, cutoff=0.4)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(
            f"Got engine={shown(engine)}, but expected {', '.join(LAYOUTS[:-1])} or "
            f"{LAYOUTS[-1]}{hint}"
        )
    return name


def request_cost(
    model: ModelLike, engine: str = "vllm", settings: EngineSettings | None = None
) -> RequestCost:
    """What a request takes of `engine`'s pool: `fixed + slope * length`, in whole blocks.

    Raises ValueError for unknown models, engines, dtypes and for tp that does not divide the
    heads. llama.cpp allocates for all slots at start: a cell of a layer that grows is its block.
    """
    return _cost(load_shape(model), engine, _checked(settings))[0]


def request_blocks(
    model: ModelLike,
    context_len: ArrayLike,
    engine: str = "vllm",
    settings: EngineSettings | None = None,
) -> Any:
    """Blocks a request of `context_len` tokens takes; an array gives an array of its shape."""
    shape = load_shape(model)
    context_len, _ = check_lengths(shape, context_len)
    return _cost(shape, engine, _checked(settings))[0].blocks(context_len)


def replay(
    model: ModelLike,
    available_bytes: float | None,
    max_model_len: int,
    engine: str = "vllm",
    settings: EngineSettings | None = None,
    rounding_bytes: float = 0.0,
) -> Replay:
    """The "KV cache size" and "maximum concurrency" `engine` prints.

    available_bytes: memory for the cache on the GPU that has the least [byte], as the log says
    before it lays the cache out; None for llama.cpp, which allocates what `max_model_len` (its
    n_ctx) takes. rounding_bytes: half of the last printed digit [byte].

    Raises ValueError for unknown models, engines, versions and dtypes, lengths below one, and a
    missing or negative available_bytes.
    """
    shape, settings = load_shape(model), _checked(settings)
    name = engine_name(engine)
    max_model_len = number("max_model_len", max_model_len, COUNT)
    check_lengths(shape, max_model_len)
    if name == "llama.cpp":
        return _replay_llama_cpp(shape, max_model_len, settings)
    available_bytes = float(number("available_bytes", available_bytes, _AVAILABLE))
    rounding_bytes = number("rounding_bytes", rounding_bytes, BYTES)
    cost, layout = _cost(shape, engine, settings)
    if not cost.block_bytes:
        raise ValueError(
            f"Got model {shape.name}, whose layers keep no cache that grows, so an engine has no "
            "pool to print; expected a model with attention layers"
        )
    printed = [
        _printed(name, cost, available, max_model_len, settings)
        for available in (
            available_bytes,
            max(0.0, available_bytes - rounding_bytes),
            available_bytes + rounding_bytes,
        )
    ]
    blocks, tokens, concurrency = printed[0]
    pool = Pool(available_bytes, blocks, cost, layout)
    return Replay(
        engine=engine,
        version=settings.version,
        max_model_len=max_model_len,
        pool=pool,
        tokens=tokens,
        concurrency=concurrency,
        cache_bytes=pool.used_bytes,
        tokens_low=printed[1][1],
        tokens_high=printed[2][1],
        concurrency_low=printed[1][2],
        concurrency_high=printed[2][2],
    )


_AVAILABLE = Span(
    "the memory left for the cache (0 to 1e18 bytes); the log prints it, or `max_concurrency` "
    "estimates it", BYTES.low, BYTES.high,
)  # fmt: skip


def _checked(settings: EngineSettings | None) -> EngineSettings:
    if settings is not None and not isinstance(settings, EngineSettings):
        raise ValueError(f"Got settings={shown(settings)}, but expected EngineSettings or None")
    return settings or EngineSettings()


def _cost(
    shape: ModelShape, engine: str, settings: EngineSettings
) -> tuple[RequestCost, tuple[str, ...]]:
    check_tp(shape, settings.tp)
    if settings.pp > shape.n_layers:
        raise ValueError(
            f"Got pp={settings.pp}, but expected at most the {shape.n_layers} layers of "
            f"{shape.name}"
        )
    match engine_name(engine):
        case "vllm":
            if engine == "vllm-ascend" and settings.block_size is None:
                settings = replace(settings, block_size=128)
            return vllm_cost(shape, settings)
        case "sglang":
            return sglang_cost(shape, settings)
        case "tensorrt-llm":
            return tensorrt_llm_cost(shape, settings)
    rate = llama_cpp_cache(shape, 256, replace(settings, slots=1)).full_bytes / 256
    return RequestCost((BlockTable("full", 1, 1),), rate), ()


def _printed(
    name: str, cost: RequestCost, available: float, max_model_len: int, settings: EngineSettings
) -> tuple[int, int, float]:
    """Blocks of the pool, tokens printed, concurrency printed."""
    round_up = name == "tensorrt-llm"
    ratio = available / cost.block_bytes
    blocks = math.ceil(ratio - 1e-9) if round_up else math.floor(ratio + 1e-9)
    concurrency = blocks / cost.blocks(max_model_len)
    grows = [table.block_size for table in cost.tables if table.fixed is None]
    block_size = min(grows, default=max_model_len)
    if name != "vllm":
        return blocks, blocks * block_size, concurrency
    match vllm_rules(settings.version).prints:
        case "concurrency":
            tokens = int(concurrency * max_model_len)
        case "groups":
            groups = sum(table.count for table in cost.tables)
            tokens = blocks // groups * block_size
        case _:
            tokens = blocks * block_size
            concurrency = tokens / max_model_len
    return blocks, tokens, concurrency


def _replay_llama_cpp(shape: ModelShape, n_ctx: int, settings: EngineSettings) -> Replay:
    cache = llama_cpp_cache(shape, n_ctx, settings)
    lines = []
    if cache.full_bytes:
        lines.append(f"{cache.full_cells:,} cells of layers that grow")
    if cache.windowed_bytes:
        lines.append(f"{cache.windowed_cells:,} cells of windowed layers")
    if cache.state_bytes:
        lines.append(f"states of {settings.slots} slots")
    cost = RequestCost((BlockTable("full", 1, 1),), cache.full_bytes / max(1, cache.full_cells))
    pool = Pool(cache.total_bytes, cache.full_cells, cost, tuple(lines))
    slots = float(settings.slots)
    return Replay(
        engine="llama.cpp",
        version=settings.version,
        max_model_len=n_ctx,
        pool=pool,
        tokens=cache.full_cells,
        concurrency=slots,
        cache_bytes=cache.total_bytes,
        tokens_low=cache.full_cells,
        tokens_high=cache.full_cells,
        concurrency_low=slots,
        concurrency_high=slots,
    )
