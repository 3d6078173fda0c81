"""One replica: admits, prefills in chunks, decodes, preempts. Advances by whole runs of steps.

Between two events the batch does not change, so step times are a straight line in the cached
tokens, and a run of `k` steps is one sum. A run ends at the first completion, at the last step
the pool has room for, or at an arrival that can be admitted.
"""

import math
from heapq import heappop, heappush

from capmodel.simulation.front_end import NO_FRONT_END
from capmodel.simulation.ledger import DECODING, DONE, PREFILLING, WAITING, Ledger
from capmodel.simulation.pool import BlockPool
from capmodel.simulation.server import Server

# A run may at most double the mean context, so that a curved step time stays nearly straight.
_SHORTEST_CAP = 64


class Replica:
    """State of one replica. `plan(now)` starts the next run, `end_run(now)` books it."""

    def __init__(self, server: Server, ledger: Ledger, index: int, prefill_only: bool) -> None:
        self.server = server
        self.ledger = ledger
        self.index = index
        self.prefill_only = prefill_only
        size, count = ledger.growth.block_size, ledger.growth.count
        self.id_tokens = ledger.id_tokens
        id_blocks = ledger.id_tokens // size * count
        self.pool = BlockPool(server.pool_blocks, size, count, id_blocks)
        self.clock = 0  # decode steps so far
        self.decoding = 0
        self.cached = 0  # tokens held by decoding sequences
        self.running = 0
        self.in_system = 0
        self.waiting: list[tuple[float, int]] = []
        self.prefilling: list[list[int]] = []  # [request, tokens done, chunk of this step]
        self.finishing: list[tuple[int, int, int]] = []  # (clock, request, admission serial)
        self.admissions: list[tuple[int, int]] = []  # (serial, request), the latest last
        self.serial = 0
        self.version = 0
        self.start = self.end = 0.0
        self.steps = 0  # decode steps of the run under way
        self.first_step_s = self.slope_s = 0.0
        self.busy = False
        self.has_chunks = False
        # Integrals over time, for the summary.
        self.busy_s = self.area_decoding = self.area_tokens = self.area_blocks = 0.0
        self.area_system = self.system_since = 0.0
        self.engine_steps = 0
        self.peak_blocks = 0

    def receive(self, request: int, now: float) -> float:
        """Take `request` in; seconds until the scheduler sees it."""
        self._count(now, 1)
        self.ledger.server_index[request] = self.index
        front_end = self.server.front_end
        if front_end is NO_FRONT_END:
            return 0.0
        # Beside no decoding it waits for the prompts before it, and the queue is that wait.
        step_s = self._mean_step_s(now) if self.busy and not self.prefill_only else 0.0
        return front_end.delay_s(step_s, self.in_system)

    def arrive(self, request: int) -> bool:
        """Queue `request`; True when the replica should look at it before its run ends."""
        entry = (self.ledger.key[request], request)
        heappush(self.waiting, entry)
        if not self.busy:
            return True
        return self.waiting[0] is entry and self.running < self.server.max_num_seqs

    @property
    def can_be_cut(self) -> bool:
        """Whether a run of more than one decode step is under way."""
        return self.busy and not self.has_chunks and self.steps > 1

    def plan(self, now: float) -> None:
        """Start the next run at `now`, to `end` [s]; stays idle when there is nothing to do."""
        self.version += 1
        self.start = now
        self.steps = 0
        prompt_budget, decode_too = self.server.batching(
            self.decoding, self.server.max_batched_tokens
        )
        crowded = self._make_room()
        work = self._chunks(prompt_budget, now, crowded)
        if self.has_chunks:
            beside = self.decoding if decode_too else 0
            self.steps = 1 if beside else 0
            self.first_step_s = self._seconds(beside, self.cached if beside else 0, work)
            self.slope_s = 0.0
            self.end = now + self.first_step_s
        elif self.decoding:
            self._decode_run()
        self.busy = self.has_chunks or self.decoding > 0

    def interrupt(self, now: float) -> None:
        """Cut a decode run to the step under way at `now`."""
        self.version += 1
        elapsed, first, slope = now - self.start, self.first_step_s, self.slope_s
        if slope > 1e-12 * first:
            # steps * first + slope * steps * (steps - 1) / 2 = elapsed
            half = first / slope - 0.5
            steps = math.sqrt(half * half + 2 * elapsed / slope) - half
        else:
            steps = elapsed / first
        self.steps = max(1, min(self.steps, math.ceil(steps - 1e-9)))
        self.end = self.start + self._span(self.steps)

    def end_run(self, now: float) -> list[int]:
        """Book the run that ends at `now`; requests that left this replica."""
        pool, steps, seconds = self.pool, self.steps, now - self.start
        growth = pool.need(self.clock, steps) if steps else 0
        used, cached = pool.private + pool.pinned, self.cached + self.decoding * steps / 2
        if self.prefilling:
            cached += sum(entry[1] + entry[2] for entry in self.prefilling)
        self.busy_s += seconds
        self.area_decoding += self.decoding * seconds
        self.area_tokens += cached * seconds
        self.area_blocks += (used + growth / 2) * seconds
        self.engine_steps += steps or 1
        if growth:
            pool.take(growth)
        if used + growth > self.peak_blocks:
            self.peak_blocks = used + growth
        self.clock += steps
        self.cached += self.decoding * steps
        gone: list[int] = []
        finishing, serials = self.finishing, self.ledger.serial
        while finishing and finishing[0][0] <= self.clock:
            _, request, serial = heappop(finishing)
            if serials[request] == serial:
                self._leave_decoding(request)
                self._release(request, now, DONE)
                gone.append(request)
        if self.has_chunks:
            self._book_chunks(now, gone)
        self.busy = False
        return gone

    # -- the step to come ------------------------------------------------------------------

    def _make_room(self) -> bool:
        """Preempt the latest until every decoding sequence has room for one more token."""
        if self.pool.next_step_fits():
            return False
        crowded = False
        while self.decoding and self.pool.need(self.clock, 1) > self.pool.available:
            self._preempt_latest()
            crowded = True
        return crowded

    def _chunks(self, budget: int, now: float, crowded: bool) -> float:
        """Fill the step's prompt budget; the work it holds, in prompt tokens."""
        work = 0.0
        self.has_chunks = False
        for entry in self.prefilling:
            entry[2] = min(self.ledger.need[entry[0]] - entry[1], budget)
            budget -= entry[2]
            work += self._chunk_work(entry)
        while self.waiting and not crowded and self.running < self.server.max_num_seqs:
            request = self.waiting[0][1]
            if budget <= 0 and not self.ledger.landed[request]:
                break
            if not self._admit(request, now):
                break
            heappop(self.waiting)
            if self.ledger.landed[request]:
                self._join(request)
                continue
            entry = self.prefilling[-1]
            entry[2] = min(self.ledger.need[request] - entry[1], budget)
            budget -= entry[2]
            work += self._chunk_work(entry)
        return work

    def _chunk_work(self, entry: list[int]) -> float:
        chunk = entry[2]
        if not chunk:
            return 0.0
        self.has_chunks = True
        self.ledger.prefilled[entry[0]] += chunk
        return chunk * (1.0 + (entry[1] + chunk / 2) / self.server.attention_tokens)

    def _admit(self, request: int, now: float) -> bool:
        """Take blocks for the whole prompt; False when the pool has not enough."""
        ledger, pool = self.ledger, self.pool
        private = ledger.blocks[request] + ledger.settled[request]
        ids = ledger.ids[request] if ledger.ids is not None else ()
        hits = 0
        if ids:
            private -= len(ids) * pool.id_blocks
        wanted = private + pool.extra(ids) if ids else private
        roomy = pool.next_step_fits(wanted)
        if not roomy and wanted > pool.available - pool.need(self.clock, 1):
            return False
        if ids:
            hits = pool.hits(ids)
            pool.pin(ids)
        pool.take(private)
        self.serial += 1
        self.running += 1
        ledger.serial[request] = self.serial
        self.admissions.append((self.serial, request))
        if ledger.admitted[request] != ledger.admitted[request]:
            ledger.admitted[request] = now
        if not ledger.landed[request]:
            # The last prompt token is always computed: its logits make the first new one.
            done = min(hits * self.id_tokens, ledger.need[request] - 1)
            ledger.hit_tokens[request] += done
            ledger.state[request] = PREFILLING
            self.prefilling.append([request, done, 0])
        return True

    def _decode_run(self) -> None:
        finishing, serials = self.finishing, self.ledger.serial
        while serials[finishing[0][1]] != finishing[0][2]:
            heappop(finishing)
        cap = max(_SHORTEST_CAP, self.cached // self.decoding)
        steps = min(finishing[0][0] - self.clock, cap)
        steps = self.pool.steps_that_fit(self.clock, steps)
        self.steps = steps
        self.first_step_s = self._seconds(self.decoding, self.cached, 0.0)
        self.slope_s = 0.0
        if steps > 1:
            cached = self.cached + self.decoding * (steps - 1)
            last = self._seconds(self.decoding, cached, 0.0)
            self.slope_s = (last - self.first_step_s) / (steps - 1)
        self.end = self.start + self._span(steps)

    def _span(self, steps: int) -> float:
        return steps * self.first_step_s + self.slope_s * steps * (steps - 1) / 2

    def _seconds(self, batch: int, cached: int, work: float) -> float:
        return self.server.step_scale * float(self.server.step_time.seconds(batch, cached, work))

    # -- what a request goes through -------------------------------------------------------

    def _book_chunks(self, now: float, gone: list[int]) -> None:
        ledger = self.ledger
        still: list[list[int]] = []
        for entry in self.prefilling:
            request = entry[0]
            entry[1] += entry[2]
            entry[2] = 0
            if entry[1] < ledger.need[request]:
                still.append(entry)
                continue
            ledger.left[request] -= 1
            if ledger.first[request] != ledger.first[request]:
                ledger.first[request] = now
            if ledger.left[request] == 0 or self.prefill_only:
                self._release(request, now, DONE if ledger.left[request] == 0 else WAITING)
                gone.append(request)
            else:
                self._join(request)
        self.prefilling = still

    def _join(self, request: int) -> None:
        ledger = self.ledger
        ledger.state[request] = DECODING
        ledger.joined[request] = self.clock
        self.decoding += 1
        self.cached += ledger.need[request]
        if ledger.grows[request]:
            ledger.phase[request] = self.pool.join(ledger.need[request], self.clock)
        heappush(
            self.finishing, (self.clock + ledger.left[request], request, ledger.serial[request])
        )

    def _leave_decoding(self, request: int) -> None:
        """Book the tokens made and the blocks grown since it joined."""
        ledger, pool = self.ledger, self.pool
        made = self.clock - ledger.joined[request]
        before = ledger.need[request]
        self.decoding -= 1
        self.cached -= before + made
        ledger.need[request] = before + made
        ledger.left[request] -= made
        if ledger.grows[request]:
            pool.leave(ledger.phase[request])
            size = pool.block_size
            ledger.blocks[request] = pool.growth * -(-(before + made) // size)

    def _release(self, request: int, now: float, state: int) -> None:
        """Give the blocks back; the request is done, preempted, or goes to a decode replica."""
        ledger, pool = self.ledger, self.pool
        blocks = ledger.blocks[request] + ledger.settled[request]
        ids = ledger.ids[request] if ledger.ids is not None else ()
        if ids:
            pool.unpin(ids)
            blocks -= len(ids) * pool.id_blocks
        pool.take(-blocks)
        self.running -= 1
        ledger.serial[request] = 0
        ledger.state[request] = state
        if state == DONE:
            ledger.finish[request] = now
        self._count(now, -1)

    def _preempt_latest(self) -> None:
        """Recomputation: the latest admitted loses its cache and waits at the head again."""
        ledger = self.ledger
        while ledger.serial[self.admissions[-1][1]] != self.admissions[-1][0]:
            self.admissions.pop()
        _, request = self.admissions.pop()
        if ledger.state[request] == DECODING:
            self._leave_decoding(request)
            made_but_not_held = 1
        else:
            self.prefilling = [entry for entry in self.prefilling if entry[0] != request]
            made_but_not_held = 0
        self._release(request, self.start, WAITING)
        self._count(self.start, 1)
        # The latest token was made, but never cached: recomputation passes over it as well.
        ledger.need[request] += made_but_not_held
        ledger.preempted[request] += 1
        ledger.landed[request] = False
        size = self.pool.block_size
        if ledger.grows[request]:
            ledger.blocks[request] = self.pool.growth * -(-ledger.need[request] // size)
        heappush(self.waiting, (-1.0 / (1 + ledger.key[request]), request))

    def _mean_step_s(self, now: float) -> float:
        """Mean step so far, the run under way included [s]."""
        elapsed = now - self.start
        steps = self.engine_steps + max(1.0, elapsed / max(self.first_step_s, 1e-12))
        return (self.busy_s + max(elapsed, self.first_step_s)) / steps

    def _count(self, now: float, change: int) -> None:
        self.area_system += self.in_system * (now - self.system_since)
        self.system_since = now
        self.in_system += change
