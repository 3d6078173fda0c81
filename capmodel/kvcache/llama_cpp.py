"""llama.cpp's cache: allocated whole at start, `n_ctx` cells for all slots together.

Windowed layers keep `pad256(min(ctx, W * (unified ? slots : 1) + n_ubatch))` cells, that per
slot when the cache is not unified (llama-kv-cache-iswa.cpp). Recurrent states are fp32 in both
parts. Layers split over GPUs divide the cache; nothing is replicated.
"""

from dataclasses import dataclass
from functools import lru_cache

from capmodel.dtypes import KV_ELEMENT_BYTES, kv_dtype_names
from capmodel.kvcache.layers import cache_pieces, state_parts
from capmodel.kvcache.settings import EngineSettings
from capmodel.shapes import LatentAttention, ModelShape
from capmodel.shapes.model import LayerGroup


@dataclass(frozen=True, slots=True)
class LlamaCppCache:
    """What llama.cpp allocates [byte], over all GPUs.

    full: layers that grow. windowed: layers with a window. state: recurrent layers.
    """

    full_cells: int
    full_bytes: float
    windowed_cells: int
    windowed_bytes: float
    state_bytes: float

    @property
    def total_bytes(self) -> float:
        """All of it [byte]."""
        return self.full_bytes + self.windowed_bytes + self.state_bytes


@lru_cache(maxsize=1024)
def llama_cpp_cache(shape: ModelShape, n_ctx: int, settings: EngineSettings) -> LlamaCppCache:
    """The cache of `n_ctx` cells, as the log prints `n_ctx` (the engine rounds it up itself)."""
    slots, streams = settings.slots, 1 if settings.unified else settings.slots
    per_stream = n_ctx if streams == 1 else _pad(-(-n_ctx // streams))
    full = windowed = state = 0.0
    window_cells = 0
    for group in shape.groups:
        for rate, window in _rates(shape, group, settings):
            if window is None or settings.full_windows:
                full += group.count * rate * per_stream * streams
                continue
            held = window * (slots if settings.unified else 1) + settings.micro_batch
            window_cells = _pad(min(per_stream, held)) * streams
            windowed += group.count * rate * window_cells
        if group.state is not None:
            recurrent, conv = state_parts(group.state)
            state += group.count * slots * (recurrent + 2 * conv)
    return LlamaCppCache(per_stream * streams, full, window_cells, windowed, state)


def _rates(
    shape: ModelShape, group: LayerGroup, settings: EngineSettings
) -> list[tuple[float, int | None]]:
    """Bytes per cell and layer, and the window, of each thing a layer of `group` keeps."""
    attention = group.attention
    if isinstance(attention, LatentAttention) and settings.latent != "latent":
        key, value = (KV_ELEMENT_BYTES[name] for name in kv_dtype_names(settings.kv_dtype))
        rank, rope = attention.kv_lora_rank, attention.qk_rope_head_dim
        if settings.latent == "latent+v":
            return [((rank + rope) * key + rank * value, None)]
        head = (attention.qk_nope_head_dim + rope) * key + attention.v_head_dim * value
        return [(attention.n_heads * head, None)]
    one = ModelShape(shape.name, shape.hidden_size, shape.vocab_size, (group,))
    return [
        (piece.bytes_per_token, piece.window)
        for piece in cache_pieces(one, settings.kv_dtype)
        if piece.bytes_per_token
    ]


def _pad(cells: int) -> int:
    return -(-cells // 256) * 256
