"""SGLang's cache: one pool of token slots for attention layers, state slots apart.

`max_total_num_tokens = available // cell`, a cell being one token in every attention layer.
With sliding layers a second pool holds `swa_ratio` times as many tokens, so that a cell is
`full + swa_ratio * sliding` bytes (a log of gemma-4-26B-A4B prints cell_size_bytes=184320:
5 * 4,096 + 0.8 * 25 * 8,192). SGLang calls GiB "GB".
"""

from functools import lru_cache

from capmodel.kvcache.blocks import BlockTable, RequestCost
from capmodel.kvcache.layers import cache_pieces, state_bytes
from capmodel.kvcache.settings import EngineSettings
from capmodel.kvcache.vllm import draft_groups
from capmodel.shapes import ModelShape


@lru_cache(maxsize=1024)
def sglang_cost(shape: ModelShape, settings: EngineSettings) -> tuple[RequestCost, tuple[str, ...]]:
    """Slots of a request and bytes of a slot (`page_size` tokens) on each GPU.

    A request shorter than the window takes of the sliding pool what it takes of the full one;
    there the sliding pool, `swa_ratio` as large, is the one that fills.
    """
    full = sliding = 0.0
    for piece in cache_pieces(shape, settings.kv_dtype, settings.tp):
        if piece.window is None:
            full += piece.count * piece.bytes_per_token
        else:
            sliding += piece.count * piece.bytes_per_token
    if settings.draft_layers:
        draft = ModelShape(
            "draft",
            shape.hidden_size,
            shape.vocab_size,
            tuple(draft_groups(shape, settings.draft_layers)),
        )
        pieces = cache_pieces(draft, settings.kv_dtype, settings.tp)
        full += sum(piece.count * piece.bytes_per_token for piece in pieces)
    cell = (full + settings.swa_ratio * sliding if full else sliding) / settings.pp
    page = settings.block_size or 1
    lines = [f"cells of {cell:,.0f} bytes, pages of {page} tokens"]
    if full and sliding:
        lines.append(f"a sliding pool of {settings.swa_ratio:g} times as many tokens")
    if any(group.state is not None for group in shape.groups):
        lines.append("state slots are a pool of their own")
    table = BlockTable("full", 1, page * settings.context_parallel)
    return RequestCost((table,), page * cell), tuple(lines)


def sglang_state_pool_bytes(shape: ModelShape, slots: int, tp: int = 1) -> float:
    """Bytes of the state pool of `slots` requests on each GPU: one slot more is allocated."""
    per_slot = sum(
        group.count * state_bytes(group.state, tp)
        for group in shape.groups
        if group.state is not None
    )
    return (slots + 1) * per_slot
