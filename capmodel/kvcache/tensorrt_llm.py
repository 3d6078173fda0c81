"""TensorRT-LLM's cache: one pool of blocks, every layer at its full length.

`blocks = ceil(budget / bytes per token / tokens_per_block)`: the engine rounds up
(kvCacheManager.cpp, `calculateMaxNumBlocks`), and prints "Allocated X GiB for max tokens in
paged KV cache (blocks * tokens_per_block)". Windows count only where the engine was built with
`max_attention_window`, which a start-up log does not say; here they grow.
"""

from functools import lru_cache

from capmodel.kvcache.blocks import BlockTable, RequestCost
from capmodel.kvcache.layers import cache_pieces
from capmodel.kvcache.settings import EngineSettings
from capmodel.shapes import ModelShape

TOKENS_PER_BLOCK = 32


@lru_cache(maxsize=1024)
def tensorrt_llm_cost(
    shape: ModelShape, settings: EngineSettings
) -> tuple[RequestCost, tuple[str, ...]]:
    """Blocks of a request and bytes of a block on each GPU."""
    cell = sum(
        piece.count * piece.bytes_per_token
        for piece in cache_pieces(shape, settings.kv_dtype, settings.tp)
    )
    tokens = settings.block_size or TOKENS_PER_BLOCK
    table = BlockTable("full", 1, tokens * settings.context_parallel)
    lines = (f"{cell:,.0f} bytes per token, {tokens} tokens a block",)
    return RequestCost((table,), tokens * cell / settings.pp), lines
