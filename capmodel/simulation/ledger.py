"""What is known of every request while the simulation runs: one list entry per request."""

import numpy as np

from capmodel.simulation.server import Server, growth_of, settled_blocks
from capmodel.workload.requests import Requests

WAITING, PREFILLING, DECODING, DONE = range(4)


class Ledger:
    """Plain lists, because the event loop reads and writes single entries.

    need: tokens to hold before the next one can be made. left: tokens still to make.
    landed: the cache arrives computed (from a prefill replica).
    """

    __slots__ = ("admitted", "blocks", "finish", "first", "grows", "growth", "hit_tokens",
                 "id_tokens", "ids", "joined", "key", "landed", "left", "n", "need",
                 "output", "phase", "preempted",
                 "prefilled", "prompt", "serial", "server_index", "settled", "state")  # fmt: skip

    def __init__(self, requests: Requests, server: Server) -> None:
        n = self.n = len(requests)
        prompt, output = requests.prompt_tokens, requests.output_tokens
        growth = self.growth = growth_of(server.cost)
        reserved = np.maximum(server.reservation(prompt, output), prompt)
        # A request of `out` tokens ends holding prompt + out - 1: the last one is not cached.
        final = prompt + output - 1
        held = np.where(reserved >= final, reserved, prompt)
        self.prompt: list[int] = prompt.tolist()
        self.output: list[int] = output.tolist()
        self.need = list(self.prompt)
        self.left = list(self.output)
        self.grows: list[bool] = (reserved < final).tolist()
        self.settled: list[int] = settled_blocks(server.cost, np.maximum(held, final)).tolist()
        self.blocks: list[int] = (growth.count * -(-held // growth.block_size)).tolist()
        self.key = [
            server.order(i, p, o)
            for i, (p, o) in enumerate(zip(self.prompt, self.output, strict=True))
        ]
        self.ids = prefix_lists(requests, server, growth.block_size)
        self.id_tokens = max(requests.prefix_block, growth.block_size)
        self.state = [WAITING] * n
        self.phase = [-1] * n
        self.joined = [0] * n
        self.serial = [0] * n
        self.landed = [False] * n
        self.server_index = [-1] * n
        nan = float("nan")
        self.admitted = [nan] * n
        self.first = [nan] * n
        self.finish = [nan] * n
        self.preempted = [0] * n
        self.hit_tokens = [0] * n
        self.prefilled = [0] * n
        most = np.asarray(server.cost.blocks(np.maximum(held, final)))
        row, largest = int(np.argmax(most)), int(most.max())
        if largest > server.pool_blocks:
            raise ValueError(
                f"Request {row} of {requests.name} ({self.prompt[row]:,} + {self.output[row]:,} "
                f"tokens) needs {largest:,} cache blocks, but the pool has {server.pool_blocks:,}: "
                "it could never finish"
            )


def prefix_lists(requests: Requests, server: Server, size: int) -> list[tuple[int, ...]] | None:
    """Ids of whole pool blocks each prompt begins with; None where prefixes are not cached."""
    if not server.prefix_cache or not len(requests.prefix_offsets):
        return None
    block = requests.prefix_block
    if block % size and size % block:
        raise ValueError(
            f"Prefix ids stand for {block} tokens and pool blocks hold {size}, but expected one to "
            "be a multiple of the other"
        )
    # An id stands for its whole prefix, so of several in one block the last is enough.
    stride = max(1, size // block)
    offsets, ids = requests.prefix_offsets.tolist(), requests.prefix_ids.tolist()
    whole = (requests.prompt_tokens // block).tolist()
    return [
        tuple(ids[start : min(stop, start + count)][stride - 1 :: stride])
        for start, stop, count in zip(offsets[:-1], offsets[1:], whole, strict=True)
    ]
