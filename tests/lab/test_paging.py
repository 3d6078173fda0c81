"""Blocks: conserved, scattered, never full of someone else's tokens; prefixes shared truly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capmodel.kvcache import kv_bytes
from capmodel.lab.arithmetic import SEQUENTIAL
from capmodel.lab.config import KINDS, make_config
from capmodel.lab.counters import Counters
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.paging import BlockPool, PagedCache, PrefixIndex, serve
from capmodel.lab.paging_story import paged_requests


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 7), st.integers(1, 20), st.integers(0, 1000))
def test_paged_equals_contiguous_bit_for_bit(
    kind: str, block_size: int, length: int, seed: int
) -> None:
    config = make_config(kind, hidden_size=16, intermediate=12)
    decoder = ToyDecoder.random(config, seed, arithmetic=SEQUENTIAL)
    pool = BlockPool(len(config.layers), 24, block_size, seed)
    paged, contiguous = PagedCache(config, pool), decoder.new_cache()
    tokens = np.random.default_rng(seed).integers(0, 64, (1, length))
    half = length // 2
    for a, b in ((0, half), (half, length)):
        if a < b:
            found = decoder.forward(tokens[:, a:b], paged)
            assert (found == decoder.forward(tokens[:, a:b], contiguous)).all()
    assert len(paged.table) == -(-length // block_size)
    assert paged.nbytes == len(paged.table) * pool.block_nbytes()
    paged.free()
    assert pool.n_free == 24


def test_two_requests_interleaved_do_not_touch_each_other() -> None:
    config = make_config("gqa")
    decoder = ToyDecoder.random(config, 0, arithmetic=SEQUENTIAL)
    pool = BlockPool(len(config.layers), 12, 3, seed=5)
    rows = np.random.default_rng(0).integers(0, 64, (2, 14))
    caches = [PagedCache(config, pool) for _ in rows]
    for i in range(14):
        for row, cache in zip(rows, caches, strict=True):
            last = decoder.forward(row[None, i : i + 1], cache)
    assert (last == decoder.forward(rows[1:], last_only=True)).all()
    assert not set(caches[0].table) & set(caches[1].table)


def test_a_block_is_padded_bytes_and_nothing_else() -> None:
    # 18 tokens in blocks of 4: five blocks, two places empty.
    config = make_config("mqa")
    decoder = ToyDecoder.random(config, 0, "float32")
    pool = BlockPool(len(config.layers), 6, 4)
    cache = PagedCache(config, pool)
    decoder.forward(np.ones((1, 18), int), cache)
    assert cache.nbytes == kv_bytes(config.shape, 20, kv_dtype="fp32")
    assert cache.nbytes - kv_bytes(config.shape, 18, kv_dtype="fp32") == 2 * kv_bytes(
        config.shape, 1, kv_dtype="fp32"
    )


def test_a_shared_prefix_spares_its_prefill_and_changes_no_answer() -> None:
    config = make_config("gqa")
    decoder = ToyDecoder.random(config, 4, arithmetic=SEQUENTIAL)
    pool = BlockPool(len(config.layers), 30, 4, seed=2)
    prefixes = PrefixIndex(pool)
    first = list(range(1, 19))
    second = [*first[:12], 40, 41, 42]
    serve(decoder, pool, first, 3, prefixes)
    counters = Counters()
    answer, cache = serve(decoder, pool, second, 3, prefixes, counters)
    assert (answer == decoder.generate([second], 3)).all()
    # 12 of 15 prompt tokens lie in three shared blocks; 3 are prefilled, 2 of 3 new ones fed back.
    assert counters.key_projections == 2 * (3 + 2)
    assert cache.table[:3] == prefixes.match(second)


def test_a_prompt_that_is_wholly_known_still_computes_its_last_token() -> None:
    config = make_config("gqa")
    decoder = ToyDecoder.random(config, 4)
    pool = BlockPool(len(config.layers), 30, 4)
    prefixes = PrefixIndex(pool)
    prompt = list(range(8))
    once, _ = serve(decoder, pool, prompt, 2, prefixes)
    assert len(prefixes.match(prompt)) == 1  # the second block holds the last token
    again, _ = serve(decoder, pool, prompt, 2, prefixes)
    assert (once == again).all()


def test_a_block_is_shared_only_under_the_same_whole_past() -> None:
    pool = BlockPool(1, 10, 2)
    prefixes = PrefixIndex(pool)
    prefixes.add([1, 2, 3, 4], [pool.take(), pool.take()])
    assert len(prefixes.match([1, 2, 3, 4, 5])) == 2
    assert prefixes.match([9, 2, 3, 4, 5]) == []
    assert prefixes.match([9, 9, 3, 4, 5]) == []


def test_shared_blocks_outlive_the_request_that_made_them() -> None:
    pool = BlockPool(1, 4, 2)
    prefixes, table = PrefixIndex(pool), [pool.take()]
    prefixes.add([7, 8], table)
    pool.release(table[0])
    assert pool.n_free == 3
    pool.release(table[0])
    assert pool.n_free == 4
    with pytest.raises(ValueError, match="expected one in use"):
        pool.release(table[0])


def test_a_pool_that_is_full_says_so() -> None:
    config = make_config("gqa")
    decoder = ToyDecoder.random(config)
    pool = BlockPool(len(config.layers), 2, 4)
    with pytest.raises(ValueError, match="Got a pool of 2 blocks, all in use"):
        decoder.forward(np.ones((1, 9), int), PagedCache(config, pool))
    with pytest.raises(ValueError, match="Got block_size=0"):
        BlockPool(1, 1, 0)
    with pytest.raises(ValueError, match="Got a batch of 2, but expected 1"):
        decoder.forward(np.ones((2, 1), int), PagedCache(config, BlockPool(2, 2, 4)))


def test_the_story_counts_what_sharing_spares() -> None:
    shared, pool = paged_requests(4)
    apart, own = paged_requests(4, prefix_sharing=False)
    assert pool.blocks == len({b for r in shared for b in r.table}) == own.blocks - 6
    assert pool.apart_nbytes == own.nbytes == own.apart_nbytes == sum(r.nbytes for r in apart)
    assert pool.nbytes * own.blocks == own.nbytes * pool.blocks
    assert all(r.same_answer for r in [*shared, *apart])
    assert [r.tokens_computed for r in apart] == [r.tokens for r in apart] == [29, 26, 16]
    # Openings of 16 tokens are four blocks; the third prompt's 9 tokens share two.
    assert [r.tokens_computed for r in shared] == [29, 26 - 16, 16 - 8]
    assert [r.shared_blocks for r in shared] == [0, 4, 2]


def test_a_request_the_pool_has_no_room_for_leaves_nothing_behind() -> None:
    decoder = ToyDecoder.random(make_config("gqa"))
    pool = BlockPool(2, 6, 4)
    prefixes = PrefixIndex(pool)
    _, first = serve(decoder, pool, range(9), 2, prefixes)
    first.free()
    assert pool.n_free == 4  # the index keeps the two full blocks of the prompt
    for prompt, n_new, message in (
        ([*range(8), *range(8)], 20, "all in use, but expected a free one"),
        ([*range(8), 999], 2, "Got token 999"),
        ([], 2, "Got tokens of shape"),
    ):
        with pytest.raises(ValueError, match=message):
            serve(decoder, pool, prompt, n_new, prefixes)
        assert pool.n_free == 4
    prefixes.forget()
    assert pool.n_free == 6
    assert prefixes.match(range(9)) == []
    with pytest.raises(ValueError, match="Got a pool for 1 layers, but expected 2"):
        serve(decoder, BlockPool(1, 6, 4), [1], 2)


@pytest.mark.parametrize("block", [0, -1, 99, None, 1.5])
def test_only_a_block_in_use_is_shared_or_given_back(block: object) -> None:
    pool = BlockPool(1, 3, 4)
    for ask in (pool.share, pool.release):
        with pytest.raises(ValueError, match="expected one in use"):
            ask(block)  # type: ignore[arg-type]
    assert pool.n_free == 3
