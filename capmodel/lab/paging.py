"""A cache in blocks: a pool of physical blocks, a table per request, and shared prefixes.

Three things that are often confused: the KV cache keeps a request's own past; paging says where
those bytes lie; prefix sharing lets another request start from blocks that are already there.
"""

from collections.abc import Sequence

import numpy as np

from capmodel.arguments import instance, seeded
from capmodel.lab.arithmetic import Array
from capmodel.lab.cache import Held, KVCache
from capmodel.lab.config import ToyConfig
from capmodel.lab.counters import Counters
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.sizes import MOST_LAYERS, MOST_TOKENS, whole
from capmodel.words import shown


class BlockPool:
    """`n_blocks` physical blocks of `block_size` tokens, handed out in a shuffled order."""

    def __init__(self, n_layers: int, n_blocks: int, block_size: int, seed: int = 0) -> None:
        self.block_size = whole("block_size", block_size, 1, MOST_TOKENS)
        self.n_blocks = whole("n_blocks", n_blocks, 1, MOST_TOKENS // self.block_size)
        self.arrays: list[tuple[Array, ...]] = [()] * whole("n_layers", n_layers, 1, MOST_LAYERS)
        self._free = np.random.default_rng(seeded(seed)).permutation(self.n_blocks).tolist()
        self._users = np.zeros(self.n_blocks, dtype=int)

    @property
    def n_free(self) -> int:
        """Blocks nobody uses."""
        return len(self._free)

    def block_nbytes(self) -> int:
        """[byte] of one block over all layers; 0 before the first token."""
        return sum(array[0].nbytes for layer in self.arrays for array in layer)

    def take(self) -> int:
        """A free block. Raises ValueError when there is none."""
        if not self._free:
            raise ValueError(
                f"Got a pool of {self.n_blocks} blocks, all in use, but expected a free one; "
                "free a request, let a prefix index forget or make the pool larger"
            )
        block = int(self._free.pop())
        self._users[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more user of `block`. Raises ValueError if it has none yet."""
        self._check_used("a share", block)
        self._users[block] += 1

    def release(self, block: int) -> None:
        """One user less; without any the block is free. Raises ValueError if it already was."""
        self._check_used("release", block)
        self._users[block] -= 1
        if self._users[block] == 0:
            self._free.append(block)

    def _check_used(self, asked: str, block: int) -> None:
        if block not in range(self.n_blocks) or self._users[block] < 1:
            raise ValueError(f"Got {asked} of block {shown(block)}, but expected one in use")

    def layer_arrays(self, layer: int, like: tuple[Array, ...]) -> tuple[Array, ...]:
        """Arrays [n_blocks, ..., block_size, width] of a layer, made for entries like `like`."""
        if not self.arrays[layer]:
            self.arrays[layer] = tuple(
                np.full(
                    (self.n_blocks, *a.shape[1:-2], self.block_size, a.shape[-1]), np.nan, a.dtype
                )
                for a in like
            )
        return self.arrays[layer]


class _PagedStore:
    before_rope = False

    def __init__(self, cache: "PagedCache", layer: int) -> None:
        self._cache, self._layer = cache, layer

    @property
    def nbytes(self) -> int:
        arrays = self._cache.pool.arrays[self._layer]
        return len(self._cache.table) * sum(array[0].nbytes for array in arrays)

    def append(self, positions: Array, arrays: tuple[Array, ...]) -> Held:
        if arrays[0].shape[0] != 1:
            raise ValueError(f"Got a batch of {arrays[0].shape[0]}, but expected 1: one table each")
        cache, size = self._cache, self._cache.pool.block_size
        end = int(positions[-1]) + 1
        cache.reserve(end)
        physical = cache.pool.layer_arrays(self._layer, arrays)
        blocks, offsets = np.array(cache.table)[positions // size], positions % size
        for array, new in zip(physical, arrays, strict=True):
            array[blocks, ..., offsets, :] = np.moveaxis(new[0], -2, 0)
        gathered = tuple(_in_order(array[cache.table], end) for array in physical)
        return Held(gathered, np.arange(end))

    def observe(self, weights: Array) -> None:
        """Nothing to learn from: everything stays."""


class PagedCache(KVCache):
    """One request's cache in blocks of `pool`; `shared` blocks already hold its first tokens.

    Raises ValueError for a pool of another number of layers and for shared blocks nobody uses.
    """

    def __init__(self, config: ToyConfig, pool: BlockPool, shared: Sequence[int] = ()) -> None:
        if len(pool.arrays) != len(config.layers):
            raise ValueError(
                f"Got a pool for {len(pool.arrays)} layers, but expected {len(config.layers)}, "
                "as the decoder has"
            )
        self.pool = pool
        self.table = list(shared)
        super().__init__([_PagedStore(self, i) for i in range(len(config.layers))], config)
        for block in shared:
            pool.share(block)
        self.length = len(shared) * pool.block_size

    def reserve(self, tokens: int) -> None:
        """Take blocks until `tokens` fit."""
        while len(self.table) * self.pool.block_size < tokens:
            self.table.append(self.pool.take())

    def free(self) -> None:
        """Give every block back."""
        for block in self.table:
            self.pool.release(block)
        self.table, self.length = [], 0


class PrefixIndex:
    """Which full blocks of tokens are in the pool already, found by all tokens up to their end."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self._blocks: dict[tuple[int, ...], int] = {}

    def forget(self) -> None:
        """Give back every block that is kept for prompts to come."""
        for block in self._blocks.values():
            self.pool.release(block)
        self._blocks.clear()

    def match(self, tokens: Sequence[int]) -> list[int]:
        """Blocks that hold the start of `tokens`; the last token is always left to compute."""
        found: list[int] = []
        size = self.pool.block_size
        for end in range(size, len(tokens), size):
            block = self._blocks.get(tuple(tokens[:end]))
            if block is None:
                break
            found.append(block)
        return found

    def add(self, tokens: Sequence[int], table: Sequence[int]) -> None:
        """Remember the full blocks of `tokens`; the index is one more user of each."""
        size = self.pool.block_size
        for i, end in enumerate(range(size, len(tokens) + 1, size)):
            key = tuple(tokens[:end])
            if key not in self._blocks:
                self._blocks[key] = table[i]
                self.pool.share(table[i])


def serve(
    decoder: ToyDecoder,
    pool: BlockPool,
    prompt: Sequence[int],
    n_new: int,
    prefixes: PrefixIndex | None = None,
    counters: Counters | None = None,
) -> tuple[Array, PagedCache]:
    """Greedy answer [1, n_new] to `prompt` from a paged cache, sharing prefixes if asked.

    Returns the answer and the cache, whose blocks stay in use until `.free()`. Raises ValueError
    for a bad prompt and when the pool runs out; then the request holds no block.
    """
    instance("decoder", decoder, ToyDecoder)
    instance("pool", pool, BlockPool)
    if np.ndim(prompt) != 1:
        raise ValueError(f"Got prompt {shown(prompt)}, but expected a row of tokens")
    if prefixes is not None:
        instance("prefixes", prefixes, PrefixIndex)
    shared = prefixes.match(prompt) if prefixes is not None else []
    cache = PagedCache(decoder.config, pool, shared)
    try:
        answer = decoder.generate([prompt[cache.length :]], n_new, cache, counters)
    except ValueError:
        cache.free()
        raise
    if prefixes is not None:
        prefixes.add(prompt, cache.table)
    return answer, cache


def _in_order(blocks: Array, tokens: int) -> Array:
    """[n, ..., block_size, width] as the table lists them -> [1, ..., tokens, width]."""
    blocks = np.moveaxis(blocks, 0, -3)
    flat = blocks.reshape(*blocks.shape[:-3], -1, blocks.shape[-1])
    return np.ascontiguousarray(flat[..., :tokens, :])[None]
