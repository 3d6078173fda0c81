"""Cache bytes per token and per request, in blocks, for each engine's layout."""

from capmodel.kvcache.layers import CachePiece, cache_pieces, kv_heads_per_gpu, state_bytes

__all__ = ["CachePiece", "cache_pieces", "kv_heads_per_gpu", "state_bytes"]
