"""Claims about caching, each checked on arrays: cached equals uncached, and what it costs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from capmodel.arguments import seeded
from capmodel.kvcache import kv_bytes
from capmodel.lab.arithmetic import BLAS, SEQUENTIAL, Arithmetic, Array
from capmodel.lab.cache import KVCache
from capmodel.lab.config import KINDS, ToyConfig, make_config
from capmodel.lab.counters import Counters
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.paging import BlockPool, PagedCache, PrefixIndex, serve
from capmodel.lab.proof_latent import absorption_gaps, order_gaps
from capmodel.lab.steps import decode_steps
from capmodel.lab.threads import one_thread


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, what was measured, and whether it holds."""

    claim: str
    measured: str
    holds: bool


def prove(seed: int = 0) -> list[Check]:
    """All checks, in the order a reader would doubt them. Takes well under two seconds."""
    parts: tuple[Callable[[int], Iterator[Check]], ...] = (
        _equalities,
        _work,
        _bytes,
        _latent,
        _paging,
        _prefixes,
    )
    seed = seeded(seed)
    with one_thread():
        return [check for part in parts for check in part(seed)]


def cached_gap(decoder: ToyDecoder, tokens: Array, prompt: int, cache: KVCache) -> float:
    """Largest difference between one pass over `tokens` [batch, length] and prefill + decode.

    prompt: tokens prefilled at once, the rest follow one by one. 0.0 means equal in every bit.
    """
    whole = decoder.forward(tokens)
    parts = [decoder.forward(tokens[:, :prompt], cache)]
    parts += [decoder.forward(tokens[:, i : i + 1], cache) for i in range(prompt, tokens.shape[1])]
    return float(np.abs(np.concatenate(parts, axis=1) - whole).max())


def _cases() -> Iterator[tuple[ToyConfig, int, int]]:
    """(config, length, prompt): every kind with even and odd sizes, windows under and over."""
    for kind in KINDS:
        for n_heads, n_kv_heads, head_dim, v_head_dim, window, length, prompt in (
            (4, 2, 8, 8, 4, 9, 5),
            (6, 3, 4, 6, 1, 7, 2),
            (3, 3, 10, 2, 30, 8, 4),
            (2, 1, 2, 1, 3, 6, 1),
        ):
            config = make_config(
                kind,
                n_layers=2,
                hidden_size=20,
                n_heads=n_heads,
                n_kv_heads=n_kv_heads,
                head_dim=head_dim,
                v_head_dim=v_head_dim,
                window=window,
                intermediate=24,
            )
            yield config, length, prompt


def _gaps(arithmetic: Arithmetic, dtype: str, seed: int) -> tuple[float, int]:
    gaps = []
    for config, length, prompt in _cases():
        for absorbed in (False, True) if not hasattr(config.layers[0], "window") else (False,):
            decoder = ToyDecoder.random(config, seed, dtype, arithmetic, absorbed)
            tokens = np.random.default_rng(seed).integers(0, config.vocab_size, (2, length))
            gaps.append(cached_gap(decoder, tokens, prompt, decoder.new_cache()))
    return max(gaps), len(gaps)


def _equalities(seed: int) -> Iterator[Check]:
    gap, n = _gaps(SEQUENTIAL, "float64", seed)
    yield Check(
        "cached decoding equals full recomputation, bit for bit (sums in one order)",
        f"largest difference {gap:g} over {n} decoders",
        gap == 0.0,
    )
    gap, n = _gaps(BLAS, "float64", seed)
    yield Check(
        "the same with BLAS, which adds in another order for other shapes, within 1e-12",
        f"largest difference {gap:.1e} over {n} decoders",
        gap <= 1e-12,
    )
    gap, n = _gaps(BLAS, "float32", seed)
    yield Check(
        "the same in float32, within 1e-4",
        f"largest difference {gap:.1e} over {n} decoders",
        gap <= 1e-4,
    )


def _work(seed: int) -> Iterator[Check]:
    decoder = ToyDecoder.random(make_config("gqa"), seed)
    tokens = np.random.default_rng(seed).integers(0, 64, 16)
    cached, uncached = (decode_steps(decoder, tokens, on) for on in (True, False))
    with_cache, without = (
        sum(step.tokens_computed for step in steps) for steps in (cached, uncached)
    )
    yield Check(
        "16 tokens need 16 key projections a layer with the cache, 1 + 2 + ... + 16 without",
        f"{with_cache} against {without}",
        (with_cache, without) == (16, 136),
    )
    rise = [step.flop - earlier.flop for earlier, step in pairwise(cached)]
    yield Check(
        "a cached step's work grows by attention over one more token, an uncached one's by a pass",
        f"step 16: {cached[-1].flop:,} against {uncached[-1].flop:,} FLOP; "
        f"step 1: {cached[0].flop:,} both; {rise[0]:,} FLOP more a cached step",
        len(set(rise)) == 1
        and cached[0].flop == uncached[0].flop
        and uncached[-1].flop > 10 * cached[-1].flop,
    )
    yield Check(
        "caching saves work, not memory: what is held and read grows with every token",
        f"{cached[0].cache_bytes:,} bytes held after 1 token, {cached[-1].cache_bytes:,} after 16",
        cached[-1].cache_bytes == 16 * cached[0].cache_bytes and uncached[-1].cache_bytes == 0,
    )


def _bytes(seed: int) -> Iterator[Check]:
    for kind in KINDS:
        config = make_config(kind, n_kv_heads=2, v_head_dim=6)
        decoder = ToyDecoder.random(config, seed, "float32")
        found, expected = [], []
        for length in (1, 3, 4, 5, 6, 7, 19):
            cache = decoder.new_cache()
            decoder.forward(np.ones((3, length), dtype=int), cache)
            found.append(cache.nbytes)
            expected.append(kv_bytes(config.shape, length, batch_size=3, kv_dtype="fp32"))
        yield Check(
            f"{kind}: bytes of the arrays equal kv_bytes, three rows of 1 to 19 tokens",
            f"{found[0]:,} ... {found[-1]:,} bytes",
            found == expected,
        )


def _latent(seed: int) -> Iterator[Check]:
    config = make_config("mla")
    tokens = np.random.default_rng(seed).integers(0, config.vocab_size, (2, 12))
    expanded, absorbed = (
        ToyDecoder.random(config, seed, absorbed=on).forward(tokens) for on in (False, True)
    )
    gap = float(np.abs(expanded - absorbed).max())
    yield Check(
        "MLA absorbed equals MLA expanded: attention can work on the latents themselves",
        f"largest difference {gap:.1e}",
        gap <= 1e-12,
    )
    apart, turned = absorption_gaps(seed)
    yield Check(
        "absorption needs keys that are not turned: with RoPE on the content keys it is wrong",
        f"score error {apart:.1e} without RoPE there, {turned:.2f} with",
        apart <= 1e-12 < 1e-2 < turned,
    )
    without, with_rope = order_gaps(seed)
    yield Check(
        "so a small turned key is kept beside the latent: without it attention knows no order",
        f"one layer, earlier tokens shuffled: logits move by {without:.1e} without it, "
        f"{with_rope:.2f} with",
        without <= 1e-12 < 1e-2 < with_rope,
    )


def _paging(seed: int) -> Iterator[Check]:
    gaps, tables, padded = [], [], []
    for kind in KINDS:
        config = make_config(kind)
        decoder = ToyDecoder.random(config, seed, "float64", SEQUENTIAL)
        pool = BlockPool(len(config.layers), n_blocks=9, block_size=4, seed=seed)
        cache = PagedCache(config, pool)
        tokens = np.random.default_rng(seed).integers(0, config.vocab_size, (1, 18))
        gaps.append(cached_gap(decoder, tokens, 7, cache))
        tables.append(cache.table)
        padded.append(cache.nbytes == 5 * pool.block_nbytes())
    yield Check(
        "paged equals contiguous, bit for bit, with physical blocks in shuffled order",
        f"largest difference {max(gaps):g} over {len(KINDS)} kinds; block table {tables[0]}",
        max(gaps) == 0.0 and tables[0] != sorted(tables[0]) and all(padded),
    )


def _prefixes(seed: int) -> Iterator[Check]:
    config = make_config("gqa")
    decoder = ToyDecoder.random(config, seed, "float64", SEQUENTIAL)
    rng = np.random.default_rng(seed)
    opening = rng.integers(0, 64, 16).tolist()
    prompts = [opening + rng.integers(0, 64, 6).tolist() for _ in range(2)]
    pool = BlockPool(len(config.layers), n_blocks=40, block_size=4, seed=seed)
    prefixes, projections, same = PrefixIndex(pool), [], []
    for prompt in prompts:
        counters = Counters()
        answer, _ = serve(decoder, pool, prompt, 4, prefixes, counters)
        alone = decoder.generate(np.array([prompt]), 4)
        same.append(bool((answer == alone).all()))
        projections.append(counters.key_projections // len(config.layers))
    yield Check(
        "a second request that starts from the first one's blocks gives the answer it would alone",
        f"same tokens: {same[1]}; key projections {projections[0]} then {projections[1]}",
        all(same) and projections == [22 + 3, 22 - 16 + 3],
    )
    counters, no_cache = Counters(), Counters()
    serve(decoder, pool, prompts[1], 4, None, counters)
    decoder.generate(np.array([prompts[1]]), 4, None, no_cache)
    with_kv, without = (c.key_projections // len(config.layers) for c in (counters, no_cache))
    yield Check(
        "that is not the KV cache: with no prefix shared, decoding still computes one token a step",
        f"{with_kv} key projections with a KV cache alone, {without} with neither; "
        "sharing spares prefill and the shared blocks, never a decode step",
        with_kv == 22 + 3 and without == 22 + 23 + 24 + 25,
    )
