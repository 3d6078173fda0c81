"""Why MLA's cache holds a latent and a turned RoPE key, measured on small arrays."""

from dataclasses import replace

import numpy as np

from capmodel.lab.arithmetic import Array
from capmodel.lab.config import make_config
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.parameters import LatentWeights
from capmodel.lab.rope import rotate
from capmodel.shapes.attention import LatentAttention


def absorption_gaps(seed: int = 0) -> tuple[float, float]:
    """Relative error of absorbed scores when content keys are plain, and when they are turned.

    A content score is q . (C W): the product W q can be made once and applied to every latent c.
    With RoPE it is (R_i q) . R_j (c W), and the turn R_j stands between c and W for each j anew,
    so no one absorbed query serves all positions.
    """
    rng = np.random.default_rng(seed)
    tokens, rank, dim = 9, 12, 8
    latents, up = rng.normal(size=(tokens, rank)), rng.normal(size=(rank, dim))
    query = rng.normal(size=dim)
    positions = np.arange(tokens)
    plain = (latents @ up) @ query
    turned_query = rotate(query, np.array(tokens - 1))
    turned = rotate(latents @ up, positions) @ turned_query
    return (
        _relative(latents @ (up @ query), plain),
        _relative(latents @ (up @ turned_query), turned),
    )


def order_gaps(seed: int = 0) -> tuple[float, float]:
    """How far the last token's logits move when the tokens before it are shuffled.

    One layer: with more of them the causal mask alone leaks some order, since each earlier token
    has seen only those before it. First with the part of the query that meets the RoPE key set to
    zero, then as it is.
    """
    config = make_config("mla", n_layers=1)
    decoder = ToyDecoder.random(config, seed)
    rng = np.random.default_rng(seed)
    tokens = rng.permutation(config.vocab_size)[:10]
    shuffled = np.concatenate([tokens[:-1][::-1], tokens[-1:]])

    def moved(with_rope: bool) -> float:
        d = decoder if with_rope else _without_rope(decoder)
        first, second = (d.forward(t[None], last_only=True) for t in (tokens, shuffled))
        return float(np.abs(first - second).max())

    return moved(False), moved(True)


def _without_rope(decoder: ToyDecoder) -> ToyDecoder:
    layer, kind = decoder.parameters.layers[0], decoder.config.layers[0]
    if not isinstance(layer.attention, LatentWeights) or not isinstance(kind, LatentAttention):
        raise ValueError(f"Got a {type(kind).__name__} layer, but expected LatentAttention")
    q = layer.attention.q.reshape(decoder.config.hidden_size, kind.n_heads, -1).copy()
    q[..., kind.qk_nope_head_dim :] = 0
    attention = replace(layer.attention, q=q.reshape(layer.attention.q.shape))
    layers = (replace(layer, attention=attention),)
    return replace(decoder, parameters=replace(decoder.parameters, layers=layers))


def _relative(found: Array, expected: Array) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())
