"""What each step of a generation computes and reads, with the cache and without: data to draw."""

from dataclasses import asdict, dataclass

import numpy as np

from capmodel.arguments import flag, instance, seeded
from capmodel.lab.config import KINDS, make_config
from capmodel.lab.counters import Counters
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.sizes import whole
from capmodel.lab.threads import one_thread
from capmodel.words import shown

MOST = 128  # about two seconds: without a cache the work of all steps grows with the cube


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
    """Feed `tokens` [length] one a step, counting; without a cache each step starts over.

    Raises ValueError for tokens of another shape or none.
    """
    instance("decoder", decoder, ToyDecoder)
    if np.ndim(tokens) != 1 or not np.size(tokens):
        raise ValueError(f"Got tokens {shown(tokens)}, but expected a row of at least one token")
    cached = flag("cached", cached)
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


@dataclass(frozen=True, slots=True)
class KindSteps:
    """The same tokens decoded with a cache and without, by one attention kind.

    window: of its windowed layers [token], None = all layers see everything. bytes_per_token:
    [byte] held after the first token.
    """

    kind: str
    n_layers: int
    window: int | None
    bytes_per_token: int
    cached: tuple[Step, ...]
    uncached: tuple[Step, ...]


def kind_steps(n_tokens: int = 16, seed: int = 0) -> list[KindSteps]:
    """Steps of every attention kind in float32, cache off and on; bytes from the arrays.

    Raises ValueError for n_tokens outside 1 to MOST.
    """
    n_tokens, seed = whole("n_tokens", n_tokens, 1, MOST), seeded(seed)
    with one_thread():
        return [_steps_of(kind, n_tokens, seed) for kind in KINDS]


def lab_steps(n_tokens: int = 16, seed: int = 0) -> dict[str, object]:
    """What `kind_steps` finds as JSON-ready data, for the web lab.

    `{"n_tokens", "kinds": {kind: {"n_layers", "window", "bytes_per_token", "cached": [...],
    "uncached": [...]}}}`. Raises ValueError for n_tokens outside 1 to MOST.
    """
    kinds = {}
    kinds_found = kind_steps(n_tokens, seed)
    for found in kinds_found:
        plain = asdict(found)
        kinds[plain.pop("kind")] = plain
    return {"n_tokens": len(kinds_found[0].cached), "kinds": kinds}


def _steps_of(kind: str, n_tokens: int, seed: int) -> KindSteps:
    config = make_config(kind)
    decoder = ToyDecoder.random(config, seed, "float32", absorbed=kind == "mla")
    tokens = np.random.default_rng(seed).integers(0, config.vocab_size, n_tokens)
    cached = decode_steps(decoder, tokens, True)
    windows = [getattr(layer, "window", None) for layer in config.layers]
    return KindSteps(
        kind,
        len(config.layers),
        next((window for window in windows if window is not None), None),
        cached[0].cache_bytes,
        tuple(cached),
        tuple(decode_steps(decoder, tokens, False)),
    )
