"""What each step of a generation computes and reads, with the cache and without: data to draw."""

from dataclasses import asdict, dataclass

import numpy as np

from capmodel.lab.config import KINDS, make_config
from capmodel.lab.counters import Counters
from capmodel.lab.decoder import ToyDecoder


@dataclass(frozen=True, slots=True)
class Step:
    """One decode step that makes a sequence `length` tokens long.

    tokens_computed: token rows whose key was projected, per layer. tokens_read: cached tokens
    attended to, mean over layers. flop, cumulative_flop: [FLOP]. cache_bytes, bytes_read: [byte].
    """

    length: int
    tokens_computed: int
    tokens_read: float
    flop: int
    cumulative_flop: int
    cache_bytes: int
    bytes_read: int


def decode_steps(decoder: ToyDecoder, tokens: np.ndarray, cached: bool) -> list[Step]:
    """Feed `tokens` [length] one a step, counting; without a cache each step starts over."""
    counters = Counters()
    cache = decoder.new_cache() if cached else None
    n_layers = len(decoder.config.layers)
    steps = []
    for end in range(1, len(tokens) + 1):
        before = counters.copy()
        decoder.forward(tokens[end - 1 : end] if cached else tokens[:end], cache, counters, True)
        did = counters - before
        steps.append(
            Step(
                end,
                did.key_projections // n_layers,
                did.tokens_read / n_layers,
                did.flop,
                counters.flop,
                cache.nbytes if cache is not None else 0,
                did.cache_bytes_read,
            )
        )
    return steps


def lab_steps(n_tokens: int = 16, seed: int = 0) -> dict[str, object]:
    """Steps of every attention kind, cache off and on, as JSON-ready data.

    `{"n_tokens", "kinds": {kind: {"n_layers", "window", "bytes_per_token", "cached": [...],
    "uncached": [...]}}}`; float32, bytes from the arrays. Raises ValueError for n_tokens < 1.
    """
    if n_tokens < 1:
        raise ValueError(f"Got n_tokens={n_tokens}, but expected at least 1")
    kinds: dict[str, object] = {}
    for kind in KINDS:
        config = make_config(kind)
        decoder = ToyDecoder.random(config, seed, "float32", absorbed=kind == "mla")
        tokens = np.random.default_rng(seed).integers(0, config.vocab_size, n_tokens)
        cached = decode_steps(decoder, tokens, True)
        windows = [getattr(layer, "window", None) for layer in config.layers]
        kinds[kind] = {
            "n_layers": len(config.layers),
            "window": next((window for window in windows if window is not None), None),
            "bytes_per_token": cached[0].cache_bytes,
            "cached": [asdict(step) for step in cached],
            "uncached": [asdict(step) for step in decode_steps(decoder, tokens, False)],
        }
    return {"n_tokens": n_tokens, "kinds": kinds}
