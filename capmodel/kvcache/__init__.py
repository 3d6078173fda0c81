"""Cache bytes per token and per request, in blocks, for each engine's layout."""

from capmodel.kvcache.blocks import BlockTable, Pool, RequestCost
from capmodel.kvcache.breakdown import PieceBytes, cache_breakdown, tp_note
from capmodel.kvcache.layers import CachePiece, cache_pieces, kv_heads_per_gpu, state_bytes
from capmodel.kvcache.replay import Replay, engine_name, replay, request_blocks, request_cost
from capmodel.kvcache.settings import EngineSettings
from capmodel.kvcache.splits import check_tp
from capmodel.kvcache.totals import (
    ContextWarning,
    fixed_bytes,
    growth_bytes_per_token,
    kv_bytes,
    kv_bytes_per_token,
)

__all__ = [
    "BlockTable",
    "CachePiece",
    "ContextWarning",
    "EngineSettings",
    "PieceBytes",
    "Pool",
    "Replay",
    "RequestCost",
    "cache_breakdown",
    "cache_pieces",
    "check_tp",
    "engine_name",
    "fixed_bytes",
    "growth_bytes_per_token",
    "kv_bytes",
    "kv_bytes_per_token",
    "kv_heads_per_gpu",
    "replay",
    "request_blocks",
    "request_cost",
    "state_bytes",
    "tp_note",
]
