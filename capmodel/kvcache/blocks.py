"""What a request costs in a paged engine, in blocks; the idea every engine's layout shares.

A request owns one block table per group of layers. A table of growing layers takes
`ceil(length / block_size)` blocks, one of windowed layers stops at a limit, one of state layers
is fixed. The engines differ in how they form the groups and in the limits.
"""

from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BlockTable:
    """`count` like tables of one request.

    block_size: tokens a block holds, over all GPUs that share one sequence.
    limit: tokens after which the table stops growing, None = never.
    extra: blocks on top (a window need not start where a block does).
    fixed: blocks whatever the length, None = it grows.
    """

    name: str
    count: int
    block_size: int
    limit: int | None = None
    extra: int = 0
    fixed: int | None = None

    def blocks(self, context_len: Any) -> Any:
        """Blocks of all `count` tables for a request of `context_len` tokens."""
        if self.fixed is not None:
            return self.count * self.fixed
        if self.limit is not None:
            context_len = (
                min(context_len, self.limit)
                if isinstance(context_len, int)
                else np.minimum(context_len, self.limit)
            )
        return self.count * (-(-context_len // self.block_size) + self.extra)


@dataclass(frozen=True, slots=True)
class RequestCost:
    """What one request takes of the pool: `fixed + slope * length`, in whole blocks.

    block_bytes: [byte] of one block on each GPU, over the layers of its group.
    """

    tables: tuple[BlockTable, ...]
    block_bytes: float

    @overload
    def blocks(self, context_len: int) -> int: ...
    @overload
    def blocks(self, context_len: ArrayLike) -> Any: ...
    def blocks(self, context_len: ArrayLike) -> Any:
        """Blocks of a request of `context_len` tokens; an array gives an array of its shape."""
        if not isinstance(context_len, int):
            lengths = np.ceil(np.asarray(context_len, float)).astype(np.int64)
            if lengths.ndim == 0:
                return self.blocks(int(lengths))
            total = np.zeros(lengths.shape, dtype=np.int64)
            for table in self.tables:
                total += table.blocks(lengths)
            return total
        return sum(table.blocks(context_len) for table in self.tables)

    def bytes(self, context_len: ArrayLike) -> Any:
        """Bytes those blocks take on each GPU [byte]."""
        return self.blocks(context_len) * self.block_bytes

    @property
    def slope(self) -> float:
        """Blocks one more token takes in a long request, blocks being whole or not."""
        return sum(
            table.count / table.block_size
            for table in self.tables
            if table.fixed is None and table.limit is None
        )

    @property
    def fixed(self) -> int:
        """Blocks of a long request that its length does not change: windows full, states kept."""
        full = 0
        for table in self.tables:
            if table.fixed is not None:
                full += table.count * table.fixed
            elif table.limit is not None:
                full += table.blocks(table.limit)
            else:
                full += table.count * table.extra
        return full

    @property
    def slope_bytes(self) -> float:
        """Bytes per token of a long request on each GPU [byte]."""
        return self.slope * self.block_bytes

    @property
    def fixed_bytes(self) -> float:
        """Bytes of a long request that its length does not change [byte]."""
        return self.fixed * self.block_bytes


@dataclass(frozen=True, slots=True)
class Pool:
    """The blocks an engine cuts the available memory into, and what a request takes of them.

    available_bytes: [byte] on the GPU that has the least. blocks: whole blocks in it.
    layout: how the layers were grouped, in words, one line a step.
    """

    available_bytes: float
    blocks: int
    cost: RequestCost
    layout: tuple[str, ...] = ()

    @property
    def used_bytes(self) -> float:
        """Bytes the blocks take; what is left over is less than one block [byte]."""
        return self.blocks * self.cost.block_bytes

    def concurrency(self, context_len: int) -> float:
        """Requests of `context_len` tokens the pool holds at once, whole or not."""
        return self.blocks / self.cost.blocks(context_len)
