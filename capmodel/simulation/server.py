"""One replica as facts: how long its steps take, what its pool holds, what limits it obeys."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from capmodel.simulation import policies


class StepTimeLike(Protocol):
    """Seconds of one engine step; `capmodel.StepTime` is one."""

    def seconds(self, batch: float, cached_tokens: float, prefill_tokens: float = 0.0, /) -> float:
        """Decode `batch` sequences that hold `cached_tokens` in all; `prefill_tokens` beside."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """Layers that stop growing: `weight` pool blocks per `block_size` tokens, `most` times."""

    block_size: int
    most: int
    weight: int = 1


@dataclass(frozen=True, slots=True)
class BlockCost:
    """Pool blocks a request holds, as a function of its length.

    `growth` blocks for each begun `block_size` tokens, without end; windowed layers, charged at
    admission for the request's final length (at most one window too early); and `fixed` ones.
    """

    block_size: int = 16
    growth: int = 1
    windows: tuple[Window, ...] = ()
    fixed: int = 0

    def __post_init__(self) -> None:
        if self.block_size < 1 or self.growth < 0 or self.fixed < 0:
            raise ValueError(
                f"Got block_size={self.block_size}, growth={self.growth}, fixed={self.fixed}, but "
                "expected a positive block size and no negative blocks"
            )

    def settled(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Blocks that do not grow while decoding, for final lengths `tokens`, shape (n,)."""
        blocks = np.full(len(tokens), self.fixed, dtype=np.int64)
        for window in self.windows:
            blocks += window.weight * np.minimum(-(-tokens // window.block_size), window.most)
        return blocks

    def total(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """All blocks at length `tokens`, shape (n,)."""
        return self.growth * -(-tokens // self.block_size) + self.settled(tokens)


@dataclass(frozen=True, slots=True)
class Server:
    """What a replica is and how its scheduler decides.

    pool_blocks: cache blocks in all. max_num_seqs: sequences admitted at once.
    max_batched_tokens: tokens one step may process. prefix_cache: keep blocks of finished
    prompts and reuse them by id. attention_tokens: context at which a prompt token's attention
    costs as much as its matrices; a chunk that starts after `c` tokens counts as
    `1 + c / attention_tokens` times its length (infinite: the step time knows no context).
    step_scale: multiplies every step time (an interval's end, a slower host).
    """

    step_time: StepTimeLike
    pool_blocks: int
    cost: BlockCost = field(default_factory=BlockCost)
    max_num_seqs: int = 256
    max_batched_tokens: int = 8192
    prefix_cache: bool = False
    attention_tokens: float = float("inf")
    step_scale: float = 1.0
    batching: policies.Batching = policies.mixed
    order: policies.Order = policies.first_come
    reservation: policies.Reservation = policies.on_demand

    def __post_init__(self) -> None:
        for name in ("pool_blocks", "max_num_seqs", "max_batched_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"Got {name}={getattr(self, name)}, but expected at least 1")
        if not self.attention_tokens > 0 or not self.step_scale > 0:
            raise ValueError(
                f"Got attention_tokens={self.attention_tokens}, step_scale={self.step_scale}, but "
                "expected positive numbers"
            )
        if self.batching is policies.mixed and self.max_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"Got max_batched_tokens={self.max_batched_tokens}, but expected at least "
                f"max_num_seqs={self.max_num_seqs}: every decoding sequence takes one token a step"
            )
