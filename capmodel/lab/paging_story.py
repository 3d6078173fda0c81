"""Requests that share a pool of blocks: which blocks, how full, what was computed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capmodel.arguments import flag, seeded
from capmodel.lab.config import make_config
from capmodel.lab.counters import Counters
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.paging import BlockPool, PagedCache, PrefixIndex, serve
from capmodel.lab.sizes import whole
from capmodel.words import shown

LARGEST = 4096  # tokens of a block, a prompt or an answer
MOST_REQUESTS = 64


@dataclass(frozen=True, slots=True)
class PoolUse:
    """The pool when all requests have ended: a block that several hold counts once.

    nbytes: [byte] of the blocks in use; apart_nbytes: what they would take with none shared.
    """

    blocks: int
    free: int
    nbytes: int
    apart_nbytes: int


@dataclass(frozen=True, slots=True)
class PagedRequest:
    """One request as it ended, its blocks still in use.

    table: physical blocks in order; shared_blocks of them came from another request.
    tokens: cached. tokens_computed: rows whose key was projected, a layer.
    nbytes: [byte] of its blocks; token_nbytes: of its tokens alone.
    same_answer: equal to what the request gets alone from a contiguous cache.
    """

    name: str
    prompt_len: int
    tokens: int
    table: tuple[int, ...]
    shared_blocks: int
    tokens_computed: int
    nbytes: int
    token_nbytes: int
    same_answer: bool


def paged_requests(
    block_size: int = 4,
    prompt_lens: Sequence[int] = (22, 19, 9),
    opening_len: int = 16,
    n_new: int = 8,
    prefix_sharing: bool = True,
    seed: int = 0,
) -> tuple[list[PagedRequest], PoolUse]:
    """Serve prompts whose first `opening_len` tokens are the same; also what the pool then holds.

    Raises ValueError for sizes below one token or above LARGEST, and for more than MOST_REQUESTS.
    """
    block_size = whole("block_size", block_size, 1, LARGEST)
    opening_len = whole("opening_len", opening_len, 0, LARGEST)
    n_new = whole("n_new", n_new, 1, LARGEST)
    if np.ndim(prompt_lens) != 1:
        raise ValueError(f"Got prompt_lens={shown(prompt_lens)}, but expected a list of lengths")
    whole("the number of prompts", len(prompt_lens), 1, MOST_REQUESTS)
    prompt_lens = [whole("prompt_lens", length, 1, LARGEST) for length in prompt_lens]
    seed, share = seeded(seed), flag("prefix_sharing", prefix_sharing)
    config = make_config("gqa")
    decoder = ToyDecoder.random(config, seed, "float32")
    rng = np.random.default_rng(seed)
    opening = rng.integers(0, config.vocab_size, opening_len).tolist()
    room = sum(-(-(length + n_new) // block_size) for length in prompt_lens)
    pool = BlockPool(len(config.layers), room + 4, block_size, seed)
    prefixes = PrefixIndex(pool) if share else None
    requests = []
    for i, length in enumerate(prompt_lens):
        tail = rng.integers(0, config.vocab_size, max(length - opening_len, 0)).tolist()
        prompt = (opening + tail)[:length]
        shared = len(prefixes.match(prompt)) if prefixes is not None else 0
        counters = Counters()
        answer, cache = serve(decoder, pool, prompt, n_new, prefixes, counters)
        alone = decoder.new_cache()
        same = bool((answer == decoder.generate(np.array([prompt]), n_new, alone)).all())
        requests.append(_report(f"request {i + 1}", prompt, cache, shared, counters, same))
    used = len({block for request in requests for block in request.table})
    apart = sum(request.nbytes for request in requests)
    return requests, PoolUse(used, pool.n_free, used * pool.block_nbytes(), apart)


def _report(
    name: str,
    prompt: Sequence[int],
    cache: PagedCache,
    shared: int,
    counters: Counters,
    same: bool,
) -> PagedRequest:
    places = len(cache.table) * cache.pool.block_size
    return PagedRequest(
        name,
        len(prompt),
        cache.length,
        tuple(cache.table),
        shared,
        counters.key_projections // len(cache.layers),
        cache.nbytes,
        cache.nbytes // places * cache.length,
        same,
    )
