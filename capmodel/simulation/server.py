"""One replica as facts: how long its steps take, what its pool holds, what limits it obeys."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from capmodel.arguments import (
    COUNT,
    POSITIVE,
    Span,
    flag,
    function,
    instance,
    number,
    put,
    with_method,
)
from capmodel.kvcache import BlockTable, RequestCost
from capmodel.simulation import policies
from capmodel.simulation.front_end import NO_FRONT_END, FrontEnd

_ATTENTION = Span("a positive number of tokens, or inf", 0.0, float("inf"), open_low=True)


class StepTimeLike(Protocol):
    """Seconds of one engine step; `capmodel.StepTime` is one."""

    def seconds(self, batch: Any, cached_tokens: Any, prefill_tokens: Any = 0.0, /) -> Any:
        """Decode `batch` sequences that hold `cached_tokens` in all; `prefill_tokens` beside.

        Scalars give a float [s], arrays broadcast.
        """
        ...


# One growing table of 16-token blocks: plain paged attention.
PAGED = RequestCost((BlockTable("full", 1, 16),), block_bytes=0.0)


@dataclass(frozen=True, slots=True)
class BlockGrowth:
    """How a request's blocks grow: `count` for each begun `block_size` tokens, without end."""

    block_size: int
    count: int


def growth_of(cost: RequestCost) -> BlockGrowth:
    """The part of `cost` that grows with length; count 0 where every layer is windowed.

    Raises ValueError where growing layers have blocks of different sizes.
    """
    tables = [table for table in cost.tables if table.fixed is None and table.limit is None]
    sizes = {table.block_size for table in tables}
    if len(sizes) > 1:
        raise ValueError(
            f"Growing layers have blocks of {sorted(sizes)} tokens, but the simulator expects one "
            "size; set the engine's block size"
        )
    return BlockGrowth(sizes.pop() if sizes else 16, sum(table.count for table in tables))


def settled_blocks(cost: RequestCost, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Blocks that do not grow while decoding: windows and states, at final length `tokens` (n,).

    Windowed layers are charged at admission for the request's end, at most a window too early.
    """
    growth = growth_of(cost)
    grown = growth.count * -(-tokens // growth.block_size)
    return np.asarray(cost.blocks(tokens), dtype=np.int64) - grown


@dataclass(frozen=True, slots=True)
class Server:
    """What a replica is and how its scheduler decides.

    pool_blocks: cache blocks in all; cost: those a request takes. max_num_seqs: sequences
    admitted at once. max_batched_tokens: tokens one step may process. prefix_cache: keep blocks
    of finished prompts and reuse them by id. attention_tokens: context at which a prompt token's
    attention costs as much as its matrices; a chunk that starts after `c` tokens counts as
    `1 + c / attention_tokens` times its length (infinite: the step time knows no context).
    step_scale: multiplies every step time (an interval's end, a slower host). front_end: what a
    request goes through before the scheduler sees it.
    """

    step_time: StepTimeLike
    pool_blocks: int
    cost: RequestCost = PAGED
    max_num_seqs: int = 256
    max_batched_tokens: int = 8192
    prefix_cache: bool = False
    attention_tokens: float = float("inf")
    step_scale: float = 1.0
    front_end: FrontEnd = NO_FRONT_END
    batching: policies.Batching = policies.mixed
    order: policies.Order = policies.first_come
    reservation: policies.Reservation = policies.on_demand

    def __post_init__(self) -> None:
        for name in ("pool_blocks", "max_num_seqs", "max_batched_tokens"):
            put(self, **{name: number(name, getattr(self, name), COUNT)})
        put(
            self,
            attention_tokens=number("attention_tokens", self.attention_tokens, _ATTENTION),
            step_scale=number("step_scale", self.step_scale, POSITIVE),
            prefix_cache=flag("prefix_cache", self.prefix_cache),
        )
        with_method("step_time", self.step_time, "seconds", "a StepTime")
        instance("cost", self.cost, RequestCost, "a RequestCost")
        instance("front_end", self.front_end, FrontEnd, "a FrontEnd")
        for name in ("batching", "order", "reservation"):
            function(name, getattr(self, name))
        if self.batching is policies.mixed and self.max_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"Got max_batched_tokens={self.max_batched_tokens}, but expected at least "
                f"max_num_seqs={self.max_num_seqs}: every decoding sequence takes one token a step"
            )
