"""The same decoder written the long way: one token, one head, one number at a time."""

import math

import numpy as np

from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.parameters import LatentWeights, SoftmaxWeights
from capmodel.shapes.attention import LatentAttention, SoftmaxAttention


def slow_logits(decoder: ToyDecoder, tokens: list[int]) -> np.ndarray:
    """Logits [tokens, vocab] with Python loops and plain dot products; no cache, no batch."""
    config, parameters = decoder.config, decoder.parameters
    x = [parameters.embedding[token] for token in tokens]
    for kind, layer in zip(config.layers, parameters.layers, strict=True):
        y = [_norm(row, layer.attention_norm, config.norm_eps) for row in x]
        if isinstance(kind, LatentAttention):
            assert isinstance(layer.attention, LatentWeights)
            mixed = _latent(y, kind, layer.attention, config.rope_base, config.norm_eps)
        else:
            assert isinstance(layer.attention, SoftmaxWeights)
            mixed = _softmax(y, kind, layer.attention, config.rope_base, config.sink_tokens)
        x = [a + b for a, b in zip(x, mixed, strict=True)]
        for i, row in enumerate(x):
            z = _norm(row, layer.mlp_norm, config.norm_eps)
            gate = z @ layer.gate
            x[i] = row + (gate / (1 + np.exp(-gate)) * (z @ layer.up)) @ layer.down
    return np.array([_norm(row, parameters.final_norm, config.norm_eps) for row in x]) @ (
        parameters.output
    )


def _softmax(y, kind: SoftmaxAttention, w: SoftmaxWeights, base: float, sinks: int):
    out = []
    for i in range(len(y)):
        heads = []
        for head in range(kind.n_heads):
            shared = head // (kind.n_heads // kind.n_kv_heads)
            q = _turned(_part(y[i] @ w.q, head, kind.head_dim), i, base)
            seen = [
                j for j in range(i + 1) if kind.window is None or i - j < kind.window or j < sinks
            ]
            keys = [_turned(_part(y[j] @ w.k, shared, kind.head_dim), j, base) for j in seen]
            values = [_part(y[j] @ w.v, shared, kind.v_head_dim) for j in seen]
            scores = [float(q @ key) / math.sqrt(kind.head_dim) for key in keys]
            extra = math.exp(w.sink_logits[head]) if w.sink_logits is not None else 0.0
            heads.append(_mix(scores, values, extra))
        out.append(np.concatenate(heads) @ w.o)
    return out


def _latent(y, kind: LatentAttention, w: LatentWeights, base: float, eps: float):
    nope, rope = kind.qk_nope_head_dim, kind.qk_rope_head_dim
    out = []
    for i in range(len(y)):
        heads = []
        for head in range(kind.n_heads):
            q = _part(y[i] @ w.q, head, nope + rope)
            scores, values = [], []
            for j in range(i + 1):
                latent = _norm(y[j] @ w.down, w.norm, eps)
                content = float(q[:nope] @ (latent @ w.up_key[head]))
                position = float(_turned(q[nope:], i, base) @ _turned(y[j] @ w.rope_key, j, base))
                scores.append((content + position) / math.sqrt(nope + rope))
                values.append(latent @ w.up_value[head])
            heads.append(_mix(scores, values, 0.0))
        out.append(np.concatenate(heads) @ w.o)
    return out


def _mix(scores: list[float], values, extra: float):
    weights = [math.exp(score) for score in scores]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / (sum(weights) + extra)


def _part(row, index: int, width: int):
    return row[index * width : (index + 1) * width]


def _norm(row, weight, eps: float):
    return row / math.sqrt(float(row @ row) / len(row) + eps) * weight


def _turned(row, position: int, base: float):
    half = len(row) // 2
    out = row.copy()
    for pair in range(half):
        angle = position * base ** (-2 * pair / len(row))
        a, b = row[pair], row[pair + half]
        out[pair] = a * math.cos(angle) - b * math.sin(angle)
        out[pair + half] = b * math.cos(angle) + a * math.sin(angle)
    return out
