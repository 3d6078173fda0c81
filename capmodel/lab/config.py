"""What a toy decoder is made of, and the same thing as a `ModelShape`."""

from dataclasses import dataclass, replace

import numpy as np

from capmodel.arguments import POSITIVE, flag, number
from capmodel.lab.sizes import MOST_LAYERS, whole
from capmodel.shapes.attention import LatentAttention, SoftmaxAttention
from capmodel.shapes.model import DenseMlp, LayerGroup, ModelShape
from capmodel.words import shown

KINDS = ("mha", "gqa", "mqa", "mla", "sliding", "sinks")


@dataclass(frozen=True, slots=True)
class ToyConfig:
    """One attention kind per layer; every layer has a gated MLP of `intermediate`.

    sink_tokens: first tokens a windowed layer keeps besides its window (StreamingLLM), 0 = none.
    Raises ValueError for sizes that do not divide and for windows below one token.
    """

    layers: tuple[SoftmaxAttention | LatentAttention, ...]
    hidden_size: int
    vocab_size: int
    intermediate: int
    rope_base: float = 10_000.0
    norm_eps: float = 1e-5
    sink_tokens: int = 0
    tied_embeddings: bool = True

    def __post_init__(self) -> None:
        for name in ("hidden_size", "vocab_size", "intermediate"):
            _at_least(name, getattr(self, name), 1)
        _at_least("sink_tokens", self.sink_tokens, 0)
        for name in ("rope_base", "norm_eps"):
            number(name, getattr(self, name), POSITIVE)
        flag("tied_embeddings", self.tied_embeddings)
        if not isinstance(self.layers, tuple):
            raise ValueError(f"Got layers of {type(self.layers).__name__}, but expected a tuple")
        if not self.layers:
            raise ValueError("Got no layers, but expected at least one attention layer")
        for layer in self.layers:
            match layer:
                case SoftmaxAttention():
                    _check_softmax(layer)
                case LatentAttention():
                    _check_latent(layer)
                case _:
                    raise ValueError(
                        f"Got a {type(layer).__name__} layer, but expected SoftmaxAttention or "
                        "LatentAttention; the lab computes no other kind"
                    )

    @property
    def shape(self) -> ModelShape:
        """The same decoder as the package describes models; sink tokens widen the window."""
        groups = tuple(
            LayerGroup(1, self._as_stored(layer), DenseMlp(self.intermediate))
            for layer in self.layers
        )
        return ModelShape(
            "toy decoder", self.hidden_size, self.vocab_size, groups, self.tied_embeddings
        )

    def _as_stored(
        self, layer: SoftmaxAttention | LatentAttention
    ) -> SoftmaxAttention | LatentAttention:
        if isinstance(layer, SoftmaxAttention) and layer.window is not None:
            return replace(layer, window=layer.window + self.sink_tokens)
        return layer


def make_config(
    kind: str,
    *,
    n_layers: int = 2,
    hidden_size: int = 32,
    n_heads: int = 4,
    n_kv_heads: int = 2,
    head_dim: int = 8,
    v_head_dim: int | None = None,
    window: int = 4,
    kv_lora_rank: int = 12,
    rope_dim: int = 4,
    intermediate: int = 48,
    vocab_size: int = 64,
) -> ToyConfig:
    """A toy of one of `KINDS`; head counts and widths that a kind does not use are ignored.

    `sliding` alternates windowed and full layers and keeps nothing else; `sinks` does the same
    with two sink tokens kept besides the window and a learned sink logit per head.
    Raises ValueError for an unknown kind or sizes that do not divide.
    """
    if window is None:
        raise ValueError("Got window=None, but expected a whole number of at least 1")
    if kind not in KINDS:
        raise ValueError(f"Got attention kind {kind!r}, but expected one of {', '.join(KINDS)}")
    n_layers = whole("n_layers", n_layers, 1, MOST_LAYERS)
    v_dim = head_dim if v_head_dim is None else v_head_dim
    full: SoftmaxAttention | LatentAttention
    if kind == "mla":
        full = LatentAttention(n_heads, None, kv_lora_rank, head_dim, rope_dim, v_dim)
    else:
        heads = {"mha": n_heads, "mqa": 1}.get(kind, n_kv_heads)
        full = SoftmaxAttention(n_heads, heads, head_dim, v_dim, sinks=kind == "sinks")
    layers = [full] * n_layers
    if kind in ("sliding", "sinks") and isinstance(full, SoftmaxAttention):
        layers[::2] = [replace(full, window=window)] * len(layers[::2])
    return ToyConfig(
        tuple(layers),
        hidden_size,
        vocab_size,
        intermediate,
        sink_tokens=2 if kind == "sinks" else 0,
    )


def _check_softmax(layer: SoftmaxAttention) -> None:
    for name in ("n_heads", "n_kv_heads", "head_dim", "v_head_dim"):
        _at_least(name, getattr(layer, name), 1)
    if layer.n_heads % layer.n_kv_heads:
        raise ValueError(
            f"Got n_kv_heads={layer.n_kv_heads}, but expected a divisor of n_heads={layer.n_heads}"
        )
    _even("head_dim", layer.head_dim)
    if layer.window is not None:
        _at_least("window", layer.window, 1, " (the current token); None is full attention")
    unsupported = {
        "chunk": layer.chunk is not None,
        "k_eq_v": layer.k_eq_v,
        "owns_cache=False": not layer.owns_cache,
        "qkv_bias": layer.qkv_bias,
        "out_bias": layer.out_bias,
        "qk_norm": layer.qk_norm,
        "output_gate": layer.output_gate,
        "index_key_dim": bool(layer.index_key_dim),
        "index_topk": layer.index_topk is not None,
    }
    asked = [name for name, used in unsupported.items() if used]
    if asked:
        raise ValueError(
            f"Got {asked[0]} on a layer, but expected plain, windowed or sink attention"
        )


def _check_latent(layer: LatentAttention) -> None:
    for name in ("n_heads", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim"):
        _at_least(name, getattr(layer, name), 1)
    _at_least("qk_rope_head_dim", layer.qk_rope_head_dim, 2)
    _even("qk_rope_head_dim", layer.qk_rope_head_dim)
    if layer.q_lora_rank is not None or layer.indexer is not None:
        raise ValueError("Got q_lora_rank or an indexer, but expected plain MLA in the lab")


def _even(name: str, value: int) -> None:
    if value % 2:
        raise ValueError(f"Got {name}={value}, but expected an even number: RoPE turns pairs")


def _at_least(name: str, value: object, least: int, remedy: str = "") -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"Got {name}={shown(value)}, but expected a whole number of at least {least}{remedy}"
        )
