"""A decoder of the Llama family: RMSNorm, attention, RMSNorm, gated MLP."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from capmodel.arguments import flag, instance
from capmodel.lab.arithmetic import BLAS, Arithmetic, Array, rms_norm, silu
from capmodel.lab.attention import Pass, latent_attention, softmax_attention
from capmodel.lab.cache import KVCache, LayerStore
from capmodel.lab.config import ToyConfig
from capmodel.lab.counters import Counters
from capmodel.lab.parameters import LatentWeights, LayerWeights, Parameters, make_parameters
from capmodel.lab.sizes import MOST_NEW, whole
from capmodel.shapes.attention import LatentAttention, SoftmaxAttention


@dataclass(frozen=True, slots=True)
class ToyDecoder:
    """Computes logits with or without a cache; holds no state of its own.

    absorbed: MLA layers attend over latents instead of expanding them.
    """

    config: ToyConfig
    parameters: Parameters
    arithmetic: Arithmetic = BLAS
    absorbed: bool = False

    def __post_init__(self) -> None:
        instance("config", self.config, ToyConfig)
        instance("parameters", self.parameters, Parameters)
        instance("arithmetic", self.arithmetic, Arithmetic)
        flag("absorbed", self.absorbed)

    @classmethod
    def random(
        cls,
        config: ToyConfig,
        seed: int = 0,
        dtype: str = "float64",
        arithmetic: Arithmetic = BLAS,
        absorbed: bool = False,
    ) -> "ToyDecoder":
        """A decoder of `config` with random weights."""
        return cls(config, make_parameters(config, seed, dtype), arithmetic, absorbed)

    def new_cache(self) -> KVCache:
        """An empty contiguous cache."""
        return KVCache.contiguous(self.config)

    def forward(
        self,
        tokens: ArrayLike,
        cache: KVCache | None = None,
        counters: Counters | None = None,
        last_only: bool = False,
    ) -> Array:
        """Logits [batch, new, vocab] of `tokens` [batch, new] (or [new], a batch of one).

        With a cache the tokens follow what it holds (prefill: many; decode: one) and are added
        to it; without one they are the whole sequence. last_only: logits of the last token only.
        Raises ValueError for tokens outside the vocabulary or of another shape, and for a cache
        made for another decoder or filled with other rows.
        """
        ids, last_only = self._checked(tokens), flag("last_only", last_only)
        if counters is not None:
            instance("counters", counters, Counters)
        if cache is not None:
            instance("cache", cache, KVCache)
            self._check_own(cache, ids.shape[0])
        start = cache.length if cache is not None else 0
        run = Pass(
            np.arange(start, start + ids.shape[1]),
            self.arithmetic,
            counters if counters is not None else Counters(),
            self.config.rope_base,
            self.config.norm_eps,
            self.config.sink_tokens,
            self.absorbed,
        )
        x = self.parameters.embedding[ids]
        for i, (kind, weights) in enumerate(
            zip(self.config.layers, self.parameters.layers, strict=True)
        ):
            x = _layer(x, kind, weights, cache.layers[i] if cache is not None else None, run)
        if cache is not None:
            cache.length = start + ids.shape[1]
        if last_only:
            x = x[:, -1:]
        x = rms_norm(x, self.parameters.final_norm, self.config.norm_eps, self.arithmetic)
        return run.project(x, self.parameters.output)

    def generate(
        self,
        prompt: ArrayLike,
        n_new: int,
        cache: KVCache | None = None,
        counters: Counters | None = None,
    ) -> Array:
        """Greedy continuation [batch, n_new] of `prompt` [batch, tokens]; n_new from 1 up.

        Without a cache every step recomputes the whole sequence so far.
        """
        n_new = whole("n_new", n_new, 1, MOST_NEW)
        ids = self._checked(prompt)
        out: list[Array] = []
        step = ids
        for _ in range(n_new):
            new = self.forward(step, cache, counters, last_only=True)[:, -1].argmax(-1)[:, None]
            out.append(new)
            step = new if cache is not None else np.concatenate([ids, *out], axis=1)
        return np.concatenate(out, axis=1)

    def _check_own(self, cache: KVCache, rows: int) -> None:
        own = cache.config is None or cache.config.layers == self.config.layers
        if not own or len(cache.layers) != len(self.config.layers):
            raise ValueError(
                f"Got a cache of {len(cache.layers)} layers made for another decoder, but expected "
                f"one for the {len(self.config.layers)} layers of this one: use its new_cache()"
            )
        filled = (rows, str(self.parameters.dtype))
        if cache.length and cache.filled_with not in (None, filled):
            raise ValueError(
                "Got {} rows in {} for a cache filled with {} rows in {}, but expected the "
                "same; use a new_cache()".format(*filled, *cache.filled_with)
            )
        cache.filled_with = filled

    def _checked(self, tokens: ArrayLike) -> Array:
        try:
            ids = np.atleast_2d(np.asarray(tokens))
        except ValueError:
            raise ValueError(
                "Got rows of unequal lengths, but expected whole numbers of shape [batch, tokens]"
            ) from None
        if ids.ndim != 2 or ids.size == 0 or not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(
                f"Got tokens of shape {np.shape(tokens)} and dtype {ids.dtype}, but expected "
                "whole numbers of shape [batch, tokens] with at least one token"
            )
        if ids.min() < 0 or ids.max() >= self.config.vocab_size:
            raise ValueError(
                f"Got token {ids.min() if ids.min() < 0 else ids.max()}, but expected ids from 0 "
                f"to {self.config.vocab_size - 1}"
            )
        return ids


def _layer(
    x: Array,
    kind: SoftmaxAttention | LatentAttention,
    weights: LayerWeights,
    store: LayerStore | None,
    run: Pass,
) -> Array:
    y = rms_norm(x, weights.attention_norm, run.norm_eps, run.arithmetic)
    if isinstance(kind, LatentAttention) and isinstance(weights.attention, LatentWeights):
        x = x + latent_attention(y, kind, weights.attention, store, run)
    elif isinstance(kind, SoftmaxAttention) and not isinstance(weights.attention, LatentWeights):
        x = x + softmax_attention(y, kind, weights.attention, store, run)
    else:
        raise ValueError(
            f"Got {type(weights.attention).__name__} for a {type(kind).__name__} layer, but "
            "expected weights of the same kind"
        )
    y = rms_norm(x, weights.mlp_norm, run.norm_eps, run.arithmetic)
    return x + run.project(
        silu(run.project(y, weights.gate)) * run.project(y, weights.up), weights.down
    )
