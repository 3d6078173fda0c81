"""The same scheduler written again the slow way: one step at a time, blocks counted anew.

Shares no code with `capmodel.simulation`; one replica, first come, mixed batching, on demand.
"""

from dataclasses import dataclass


@dataclass
class Sequence:
    number: int
    arrival: float
    prompt: int
    output: int
    held: int = 0  # tokens in the cache
    made: int = 0
    first: float = -1.0
    finish: float = -1.0
    preempted: int = 0
    blocks: int = 0
    decoding: bool = False

    def target(self):
        """Tokens to hold before the next one can be made."""
        return self.prompt + self.made


def blocks_for(tokens, size):
    return -(-tokens // size)


def run(step, arrivals, prompts, outputs, pool, size, max_seqs, budget_tokens):
    """Sequences with their times."""
    sequences = [
        Sequence(i, *row) for i, row in enumerate(zip(arrivals, prompts, outputs, strict=True))
    ]
    future = list(sequences)
    waiting, running, done = [], [], []
    now = 0.0
    while len(done) < len(sequences):
        while future and future[0].arrival <= now + 1e-12:
            waiting.append(future.pop(0))
        decoding = [s for s in running if s.decoding]
        crowded = False
        while True:
            decoding = [s for s in decoding if s in running]
            grow = sum(blocks_for(s.held + 1, size) > s.blocks for s in decoding)
            if not decoding or sum(s.blocks for s in running) + grow <= pool:
                break
            victim = running.pop()
            victim.blocks, victim.held, victim.decoding = 0, 0, False
            victim.preempted += 1
            crowded = True
            waiting.append(victim)
            waiting.sort(key=lambda s: (-s.preempted > -1, s.number))
        budget = budget_tokens - len(decoding)
        chunks = []
        for s in running:
            if s not in decoding and budget > 0:
                chunks.append((s, min(s.target() - s.held, budget)))
                budget -= chunks[-1][1]
        while waiting and budget > 0 and not crowded and len(running) < max_seqs:
            s = waiting[0]
            need = blocks_for(s.target(), size)
            if sum(other.blocks for other in running) + grow + need > pool:
                break
            waiting.pop(0)
            s.blocks = need
            running.append(s)
            chunks.append((s, min(s.target(), budget)))
            budget -= chunks[-1][1]
        if not chunks and not decoding:
            now = future[0].arrival
            continue
        cached = sum(s.held for s in decoding)
        now += step.seconds(len(decoding), cached, sum(chunk for _, chunk in chunks))
        for s in decoding:
            s.held += 1
            s.blocks = max(s.blocks, blocks_for(s.held, size))
            s.made += 1
        for s, chunk in chunks:
            s.held += chunk
            if s.held == s.target():
                s.made += 1
                s.decoding = True
                if s.first < 0:
                    s.first = now
        for s in [s for s in running if s.made == s.output]:
            s.finish = now
            running.remove(s)
            s.blocks = 0
            done.append(s)
    return sequences
