"""Causal attention in its kinds: MHA, GQA and MQA by head counts; MLA expanded and absorbed."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from capmodel.lab.arithmetic import Arithmetic, Array, rms_norm, softmax
from capmodel.lab.cache import Held, LayerStore
from capmodel.lab.counters import Counters
from capmodel.lab.parameters import LatentWeights, SoftmaxWeights
from capmodel.lab.rope import rope_table, rotate, rotate_by
from capmodel.shapes.attention import LatentAttention, SoftmaxAttention


@dataclass(frozen=True, slots=True)
class Pass:
    """What every layer of one forward pass shares.

    positions [new]: of the new tokens. absorbed: MLA works on latents, without expanding them.
    """

    positions: Array
    arithmetic: Arithmetic
    counters: Counters
    rope_base: float
    norm_eps: float
    sink_tokens: int
    absorbed: bool
    tables: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    def project(self, x: Array, weight: Array) -> Array:
        """x [..., in] times `weight` [in, out] (or one a head: [heads, in, out]), counted."""
        self.counters.count_projection(x, weight)
        return self.arithmetic.matmul(x, weight)

    def product(self, a: Array, b: Array) -> Array:
        """Batched product inside attention, counted apart from the projections."""
        self.counters.count_attention(a, b)
        return self.arithmetic.matmul(a, b)

    def count_reading(self, store: LayerStore | None, held: Held) -> None:
        """Tokens and bytes that came out of a cache; without one nothing did."""
        if store is not None:
            self.counters.tokens_read += held.arrays[0].shape[0] * held.arrays[0].shape[-2]
            self.counters.cache_bytes_read += sum(array.nbytes for array in held.arrays)

    def turn(self, x: Array, positions: Array | None = None) -> Array:
        """RoPE to `positions`; None = those of the new tokens, whose table is made once a pass."""
        if positions is not None:
            return rotate(x, positions, self.rope_base)
        dim = x.shape[-1]
        if dim not in self.tables:
            self.tables[dim] = rope_table(self.positions, dim, self.rope_base, x.dtype)
        return rotate_by(x, self.tables[dim])


def softmax_attention(
    x: Array, kind: SoftmaxAttention, weights: SoftmaxWeights, store: LayerStore | None, run: Pass
) -> Array:
    """x [batch, new, hidden] -> the same shape; keys and values go through `store`, if any."""
    batch, new, _ = x.shape
    groups = kind.n_heads // kind.n_kv_heads
    q = _heads(run.project(x, weights.q), kind.n_heads)
    k = _heads(run.project(x, weights.k), kind.n_kv_heads)
    v = _heads(run.project(x, weights.v), kind.n_kv_heads)
    run.counters.key_projections += batch * new
    q = run.turn(q)
    held = _remember(store, run, k, v)
    keys, values = held.arrays
    run.count_reading(store, held)
    rows = q.reshape(batch, kind.n_kv_heads, groups * new, kind.head_dim)
    scores = run.product(rows, keys.swapaxes(-1, -2)) / np.sqrt(kind.head_dim).astype(x.dtype)
    visible = _visible(run.positions, held.positions, kind.window, run.sink_tokens)
    if visible is not None:
        visible = np.tile(visible, (groups, 1))
    sinks = None
    if weights.sink_logits is not None:
        sinks = weights.sink_logits.reshape(kind.n_kv_heads, groups).repeat(new, axis=1)[..., None]
    mixing = softmax(scores, visible, sinks, run.arithmetic)
    if store is not None:
        store.observe(mixing)
    mixed = run.product(mixing, values)
    mixed = mixed.reshape(batch, kind.n_heads, new, kind.v_head_dim)
    return run.project(_joined(mixed), weights.o)


def latent_attention(
    x: Array, kind: LatentAttention, weights: LatentWeights, store: LayerStore | None, run: Pass
) -> Array:
    """MLA: the store holds one latent and one turned RoPE key a token, for all heads.

    Expanded, keys and values of every held token are made again from the latents; absorbed,
    the up-projections move into the query and the output, and attention works on latents.
    """
    batch, new, _ = x.shape
    nope, heads = kind.qk_nope_head_dim, kind.n_heads
    q = _heads(run.project(x, weights.q), heads)
    q_content, q_rope = q[..., :nope], run.turn(q[..., nope:])
    latent = rms_norm(run.project(x, weights.down), weights.norm, run.norm_eps, run.arithmetic)
    run.counters.key_projections += batch * new
    held = _remember(store, run, run.project(x, weights.rope_key), latent)
    rope_keys, latents = held.arrays
    run.count_reading(store, held)
    attend = _absorbed if run.absorbed else _expanded
    scale = np.sqrt(nope + kind.qk_rope_head_dim).astype(x.dtype)
    visible = _visible(run.positions, held.positions, None, 0)

    def mix(content_scores: Array) -> Array:
        position_scores = run.product(q_rope, rope_keys[:, None].swapaxes(-1, -2))
        return softmax((content_scores + position_scores) / scale, visible, None, run.arithmetic)

    mixed = attend(q_content, latents[:, None], weights, mix, run)
    return run.project(_joined(mixed), weights.o)


def _expanded(
    q: Array, latents: Array, weights: LatentWeights, mix: Callable[[Array], Array], run: Pass
) -> Array:
    tiled = np.broadcast_to(latents, (*q.shape[:2], *latents.shape[-2:]))
    keys = run.project(tiled, weights.up_key)
    values = run.project(tiled, weights.up_value)
    return run.product(mix(run.product(q, keys.swapaxes(-1, -2))), values)


def _absorbed(
    q: Array, latents: Array, weights: LatentWeights, mix: Callable[[Array], Array], run: Pass
) -> Array:
    q_latent = run.project(q, weights.up_key.swapaxes(-1, -2))
    mixed = run.product(mix(run.product(q_latent, latents.swapaxes(-1, -2))), latents)
    return run.project(mixed, weights.up_value)


def _remember(store: LayerStore | None, run: Pass, keys: Array, rest: Array) -> Held:
    """Turn the keys and store both, or store them unturned and turn what comes back."""
    if store is None:
        return Held((run.turn(keys), rest), run.positions)
    if not store.before_rope:
        return store.append(run.positions, (run.turn(keys), rest))
    held = store.append(run.positions, (keys, rest))
    if held.positions is None:
        raise ValueError("Got a store of unturned keys without positions, but expected them")
    return Held((run.turn(held.arrays[0], held.positions), held.arrays[1]), held.positions)


def _visible(queries: Array, held: Array | None, window: int | None, sinks: int) -> Array | None:
    """[new, held]: at or before the query, and inside its window or among the sink tokens."""
    if held is None:
        return None
    distance = queries[:, None] - held
    visible = distance >= 0
    if window is not None:
        visible &= (distance < window) | (held < sinks)
    return None if visible.all() else np.asarray(visible)


def _heads(x: Array, n_heads: int) -> Array:
    """[batch, tokens, heads * width] -> [batch, heads, tokens, width]."""
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, n_heads, width // n_heads).swapaxes(1, 2)


def _joined(x: Array) -> Array:
    """[batch, heads, tokens, width] -> [batch, tokens, heads * width]."""
    batch, heads, tokens, width = x.shape
    return x.swapaxes(1, 2).reshape(batch, tokens, heads * width)
