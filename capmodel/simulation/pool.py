"""The paged block pool: counts, growth while decoding, and prefixes kept by id."""

from collections import OrderedDict
from collections.abc import Sequence


class BlockPool:
    """Counts blocks; sequences that grow are kept by the phase of their length.

    A sequence of `length` tokens at decode clock `d` has phase `(length - d) mod block_size`,
    which does not change while it decodes; it needs a block in every step where
    `(phase + d) mod block_size == 0`. So the need of a run of steps is a sum over phases.
    """

    __slots__ = ("_idle", "_phases", "_pinned", "block_size", "capacity", "growing", "growth",
                 "id_blocks", "pinned", "private")  # fmt: skip

    def __init__(self, capacity: int, block_size: int, growth: int, id_blocks: int) -> None:
        self.capacity = capacity
        self.block_size = block_size
        self.growth = growth
        self.id_blocks = id_blocks
        self.private = 0
        self.pinned = 0  # blocks of prefixes in use
        self.growing = 0
        self._phases = [0] * block_size
        self._pinned: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def used(self) -> int:
        """Blocks that running sequences hold."""
        return self.private + self.pinned

    @property
    def available(self) -> int:
        """Blocks to be had, those of idle prefixes included."""
        return self.capacity - self.private - self.pinned

    def join(self, length: int, clock: int) -> int:
        """A sequence starts to grow; returns its phase."""
        phase = (length - clock) % self.block_size
        self._phases[phase] += 1
        self.growing += 1
        return phase

    def leave(self, phase: int) -> None:
        """A sequence stops growing."""
        self._phases[phase] -= 1
        self.growing -= 1

    def need(self, clock: int, steps: int) -> int:
        """Blocks the growing sequences take in `steps` steps from `clock` on."""
        if not self.growing:
            return 0
        cycles, rest = divmod(steps, self.block_size)
        crossings = cycles * self.growing
        phases, size = self._phases, self.block_size
        for offset in range(rest):
            crossings += phases[-(clock + offset) % size]
        return crossings * self.growth

    def next_step_fits(self, beside: int = 0) -> bool:
        """Whether a block for every sequence, and `beside` blocks, are to be had: enough for any
        step, so that `need` must be asked only where they are not."""
        return self.growing * self.growth + beside <= self.available

    def steps_that_fit(self, clock: int, most: int) -> int:
        """Steps from `clock` on, at most `most`, before the pool runs out."""
        per_cycle = self.growing * self.growth
        available = self.available
        if available >= (most // self.block_size + 1) * per_cycle:
            return most
        cycles = available // per_cycle
        steps = cycles * self.block_size
        left = available - cycles * per_cycle
        while steps < most:
            left -= self._phases[-(clock + steps) % self.block_size] * self.growth
            if left < 0:
                break
            steps += 1
        return min(steps, most)

    def hits(self, ids: Sequence[int]) -> int:
        """How many leading ids the pool holds."""
        count = 0
        for identity in ids:
            if identity not in self._pinned and identity not in self._idle:
                break
            count += 1
        return count

    def extra(self, ids: Sequence[int]) -> int:
        """Blocks that pinning `ids` takes from the available ones."""
        return self.id_blocks * sum(identity not in self._pinned for identity in ids)

    def pin(self, ids: Sequence[int]) -> None:
        """A sequence uses these prefixes; those not held yet are its own work, now shared."""
        for identity in ids:
            users = self._pinned.get(identity, 0)
            if not users:
                self.pinned += self.id_blocks
                self._idle.pop(identity, None)
            self._pinned[identity] = users + 1

    def unpin(self, ids: Sequence[int]) -> None:
        """A sequence lets go; prefixes nobody uses stay until their room is needed.

        The last block of a prefix becomes the oldest, so that it is given up first.
        """
        for identity in reversed(ids):
            users = self._pinned[identity] - 1
            if users:
                self._pinned[identity] = users
            else:
                del self._pinned[identity]
                self.pinned -= self.id_blocks
                self._idle[identity] = None

    def take(self, blocks: int) -> None:
        """Blocks for one sequence alone; negative gives back. Idle prefixes make room."""
        self.private += blocks
        if self._idle:
            self.make_room()

    def make_room(self) -> None:
        """Give up the idle prefixes, oldest first, that no longer fit."""
        idle, limit = self._idle, self.available
        while idle and len(idle) * self.id_blocks > limit:
            idle.popitem(last=False)
