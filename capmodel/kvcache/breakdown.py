"""What each kind of layer keeps of one request, for tables."""

from dataclasses import dataclass, replace

from capmodel.kvcache.layers import CachePiece, cache_pieces, kv_heads_per_gpu
from capmodel.kvcache.splits import check_tp
from capmodel.shapes import LatentAttention, ModelLike, SoftmaxAttention, load_shape


@dataclass(frozen=True, slots=True)
class PieceBytes:
    """One kind of storage in `layers` layers, on each GPU.

    bytes_per_token: over all its layers while it grows [byte]. window: tokens after which it
    stops, None = never. request_bytes: of one request of the length asked for [byte].
    """

    name: str
    layers: int
    bytes_per_token: float
    window: int | None
    request_bytes: float


def cache_breakdown(
    model: ModelLike, context_len: float, kv_dtype: str = "bf16", tp: int = 1
) -> tuple[PieceBytes, ...]:
    """The pieces of one request of `context_len` tokens; they sum to `kv_bytes`.

    Raises ValueError for an unknown model or dtype and for a tp that does not divide the heads.
    """
    shape = load_shape(model)
    check_tp(shape, tp)
    alike: dict[CachePiece, int] = {}
    for piece in cache_pieces(shape, kv_dtype, tp):
        one = replace(piece, count=1)
        alike[one] = alike.get(one, 0) + piece.count
    return tuple(
        PieceBytes(
            name=piece.name,
            layers=layers,
            bytes_per_token=layers * piece.bytes_per_token,
            window=piece.window,
            request_bytes=layers
            * (
                piece.fixed_bytes
                + piece.bytes_per_token
                * (context_len if piece.window is None else min(context_len, piece.window))
            ),
        )
        for piece, layers in alike.items()
    )


def tp_note(model: ModelLike, tp: int) -> str | None:
    """What tp does not divide, in words; None where it divides the whole cache."""
    shape = load_shape(model)
    if tp == 1:
        return None
    if any(isinstance(attention, LatentAttention) for _, attention in shape.attention_layers()):
        return f"the latent of MLA is one for all heads: each of the {tp} GPUs keeps all of it"
    heads = [a.n_kv_heads for _, a in shape.attention_layers() if isinstance(a, SoftmaxAttention)]
    fewest = min(heads, default=tp)
    if fewest < tp:
        copies = tp // fewest * kv_heads_per_gpu(fewest, tp)
        return f"{fewest} KV heads on {tp} GPUs: each head is kept {copies} times"
    return None
