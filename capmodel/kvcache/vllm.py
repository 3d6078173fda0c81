"""vLLM's cache: groups of layers that share one pool of equal pages.

Layers of one kind share a block table. Where a model mixes kinds, every page is made the size
of the largest, the buckets are cut into groups of g layers, and a block is g pages. Sources:
vLLM's kv_cache_utils.py and kv_cache_interface.py (`get_kv_cache_groups`, `max_memory_usage_bytes`
of each spec); what changed when is in `vllm_versions`.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from capmodel.kvcache.blocks import BlockTable, RequestCost
from capmodel.kvcache.layers import cache_pieces, state_bytes
from capmodel.kvcache.settings import EngineSettings
from capmodel.kvcache.vllm_versions import VllmRules, vllm_rules
from capmodel.shapes import CompressedAttention, LatentAttention, ModelShape
from capmodel.shapes.model import LayerGroup
from capmodel.units import format_bytes


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Layers that keep the same: kind "full", "window", "chunk", "state" or "cross".

    token_bytes: per token and layer [byte]; state_page: per request and layer [byte].
    page: [byte] a layer keeps per block, once it is decided.
    """

    kind: str
    count: int
    token_bytes: float = 0.0
    limit: int | None = None
    state_page: float = 0.0
    block_size: int = 0
    page: float = 0.0

    @property
    def label(self) -> str:
        window = f" {self.limit:,}" if self.limit else ""
        return f"{self.count} {self.kind}{window}"


@lru_cache(maxsize=1024)
def vllm_cost(shape: ModelShape, settings: EngineSettings) -> tuple[RequestCost, tuple[str, ...]]:
    """Blocks of a request and bytes of a block on the fullest GPU; and how it came about."""
    rules = vllm_rules(settings.version)
    if any(isinstance(attention, CompressedAttention) for _, attention in shape.attention_layers()):
        return _compressed_cost(shape, settings)
    buckets = _buckets(shape, settings, rules)
    if not rules.grouped or not settings.hybrid_manager:
        buckets = [
            replace(bucket, kind="full", limit=None)
            if bucket.kind in ("window", "chunk")
            else bucket
            for bucket in buckets
            if rules.grouped or bucket.kind != "state"
        ]
    if not buckets:  # layers that keep nothing
        return RequestCost((), 0.0), ()
    block_size = _block_size(shape, settings, buckets, rules)
    if len({(bucket.kind, bucket.limit) for bucket in buckets}) == 1:
        return _one_group(buckets, block_size, settings, rules)
    return _many_groups(buckets, block_size, settings, rules)


def _buckets(shape: ModelShape, settings: EngineSettings, rules: VllmRules) -> list[_Bucket]:
    groups = list(shape.groups)
    if settings.draft_layers:
        groups += draft_groups(shape, settings.draft_layers)
    counted: dict[_Bucket, int] = {}
    for group in groups:
        for bucket in _of_group(shape, group, settings, rules):
            counted[bucket] = counted.get(bucket, 0) + group.count
    return [replace(bucket, count=count) for bucket, count in counted.items()]


def _of_group(
    shape: ModelShape, group: LayerGroup, settings: EngineSettings, rules: VllmRules
) -> list[_Bucket]:
    alone = replace(shape, groups=(group,))
    found = []
    for piece in cache_pieces(alone, settings.kv_dtype, settings.tp):
        if piece.name == "state" or piece.name == "cross":
            continue
        token_bytes = piece.bytes_per_token
        if piece.name == "latent":
            token_bytes = math.ceil(token_bytes / rules.mla_alignment) * rules.mla_alignment
        kind = "full" if piece.window is None else "chunk" if piece.chunked else "window"
        found.append(_Bucket(kind, 0, token_bytes, piece.window))
    if group.state is not None:
        page = state_bytes(group.state, settings.tp, settings.draft_tokens)
        found.append(_Bucket("state", 0, state_page=page))
    if group.cross is not None:
        pieces = cache_pieces(alone, settings.kv_dtype, settings.tp)
        cross = next(piece for piece in pieces if piece.name == "cross")
        found.append(_Bucket("cross", 0, cross.fixed_bytes / group.cross.source_len))
    return found


def draft_groups(shape: ModelShape, layers: int) -> list[LayerGroup]:
    """Layers of a draft head: the checkpoint's own, or ones like the model's main attention."""
    own = [group for group in shape.extra_groups if group.attention is not None]
    pool = own or [group for group in shape.groups if group.attention is not None]
    if not pool:
        raise ValueError(f"{shape.name} has no attention layer for a draft head to be like")
    # Of equally many, the kind that sees everything: draft heads are built with full attention.
    main = max(pool, key=lambda group: (group.count, getattr(group.attention, "window", 1) is None))
    return [replace(main, count=layers)]


def _block_size(
    shape: ModelShape, settings: EngineSettings, buckets: list[_Bucket], rules: VllmRules
) -> int:
    """Tokens of an attention block; raised until its page holds a state (vLLM's `align`)."""
    latent = any(
        isinstance(attention, LatentAttention) for _, attention in shape.attention_layers()
    )
    step = 64 if latent and rules.version >= (0, 8, 0) else 16
    block_size = settings.block_size or step
    state_page = max((bucket.state_page for bucket in buckets), default=0.0)
    token_bytes = [bucket.token_bytes for bucket in buckets if bucket.token_bytes]
    if state_page and token_bytes:
        block_size = max(block_size, step * math.ceil(state_page / (step * token_bytes[0])))
    return block_size


def _one_group(
    buckets: list[_Bucket], block_size: int, settings: EngineSettings, rules: VllmRules
) -> tuple[RequestCost, tuple[str, ...]]:
    """Every layer keeps the same tokens: one table, a block holds the pages of all layers."""
    table = _table(buckets[0], 1, block_size, settings, rules)
    page = (
        buckets[0].state_page
        if buckets[0].kind == "state"
        else block_size * sum(_staged(b.count, settings) * b.token_bytes for b in buckets)
    )
    if buckets[0].kind == "state":
        page *= _staged(sum(bucket.count for bucket in buckets), settings)
    lines = (
        f"one group: {', '.join(bucket.label for bucket in buckets)} layers, "
        f"{block_size} tokens a block",
    )
    return RequestCost((table,), page), lines


def _many_groups(
    buckets: list[_Bucket], block_size: int, settings: EngineSettings, rules: VllmRules
) -> tuple[RequestCost, tuple[str, ...]]:
    buckets, page, lines = _unify(buckets, block_size)
    counts = [bucket.count for bucket in buckets]
    group_layers = min(counts)
    if max(counts) < group_layers * rules.pad_ratio:
        group_layers = max(counts)
    tables = []
    padding = 0
    for bucket in buckets:
        groups = math.ceil(bucket.count / group_layers)
        padding += groups * group_layers - bucket.count
        tables.append(_table(bucket, groups, bucket.block_size, settings, rules))
    lines.append(
        f"groups of {group_layers} layers: "
        + ", ".join(f"{table.count} x {table.name}" for table in tables)
        + (f" ({padding} padding layers)" if padding else "")
    )
    return RequestCost(tuple(tables), _staged(group_layers, settings) * page), tuple(lines)


def _unify(buckets: list[_Bucket], block_size: int) -> tuple[list[_Bucket], float, list[str]]:
    """Make every page as large as the largest: more tokens a block, or padding."""
    sized = [
        replace(
            bucket, block_size=block_size, page=bucket.state_page or block_size * bucket.token_bytes
        )
        for bucket in buckets
    ]
    page = max(bucket.page for bucket in sized)
    lines = [f"pages of {format_bytes(page, 4)} a layer, {block_size} tokens"]
    unified = []
    for bucket in sized:
        if bucket.page < page:
            ratio = page / bucket.page
            if bucket.kind != "state" and ratio == int(ratio):
                bucket = replace(bucket, block_size=block_size * int(ratio))
                lines.append(f"{bucket.label} layers: {bucket.block_size} tokens fill the page")
            else:
                lines.append(f"{bucket.label} layers: page padded by {ratio - 1:.2%}")
        unified.append(replace(bucket, page=page))
    return unified, page, lines


def _table(
    bucket: _Bucket, groups: int, block_size: int, settings: EngineSettings, rules: VllmRules
) -> BlockTable:
    batches = settings.batches_in_flight or rules.batches_in_flight
    in_flight = batches * settings.max_num_batched_tokens
    match bucket.kind:
        case "window" if bucket.limit is not None:
            limit = bucket.limit - 1 + in_flight
            return BlockTable("window", groups, block_size, limit=limit, extra=1)
        case "chunk" if bucket.limit is not None:
            return BlockTable("chunk", groups, block_size, limit=bucket.limit + in_flight)
        case "cross":
            # vLLM reserves its encoder budget, which is max_num_batched_tokens.
            fixed = math.ceil(settings.max_num_batched_tokens / block_size)
            return BlockTable("cross", groups, block_size, fixed=fixed)
        case "state":
            mode = _state_mode(settings, rules)
            if mode == "all":
                return BlockTable("state", groups, block_size)
            held = (2 if mode == "align" else 1) + settings.draft_tokens
            return BlockTable("state", groups, block_size, fixed=held)
    return BlockTable("full", groups, block_size * settings.context_parallel)


def _state_mode(settings: EngineSettings, rules: VllmRules) -> str:
    if settings.state_mode is not None:
        return settings.state_mode
    caching = settings.prefix_caching
    if caching is None:
        caching = rules.prefix_caching_hybrid
    return "align" if caching else "none"


def _staged(layers: int, settings: EngineSettings) -> int:
    """Layers on the pipeline stage that has most of them."""
    return math.ceil(layers / settings.pp)


def _compressed_cost(
    shape: ModelShape, settings: EngineSettings
) -> tuple[RequestCost, tuple[str, ...]]:
    """DeepSeek-V4: fixed + slope by its layers, in 256-token blocks.

    The engines' own padding and compressor states are not in it: no log confirms them.
    """
    block_size = settings.block_size or 256
    slope = fixed = 0.0
    for piece in cache_pieces(shape, settings.kv_dtype, settings.tp):
        if piece.window is None:
            slope += piece.count * piece.bytes_per_token
        else:
            fixed += piece.count * piece.bytes_per_token * piece.window
    block_bytes = block_size * slope / settings.pp
    tables = (
        BlockTable("compressed", 1, block_size * settings.context_parallel),
        BlockTable("window", 1, block_size, fixed=math.ceil(fixed / settings.pp / block_bytes)),
    )
    return RequestCost(tables, block_bytes), (
        "compressed entries and windows; an engine's padding and compressor states not counted",
    )
