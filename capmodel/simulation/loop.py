"""The event loop: arrivals, ends of runs, hand-overs. Time jumps from event to event."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from capmodel.arguments import COUNT, Span, function, instance, number, optional, put
from capmodel.simulation.ledger import Ledger
from capmodel.simulation.policies import Route, least_loaded
from capmodel.simulation.records import Simulation, collect
from capmodel.simulation.replica import Replica
from capmodel.simulation.server import Server
from capmodel.workload.requests import Requests

REPLICAS = Span(
    "a whole number of replicas, at least 1 replica (up to 100,000)", 1.0, 1e5, whole=True
)
WAIT = Span("0 s or more (up to 1e9)", 0.0, 1e9)

# An arrival event of this version has passed the front end.
_SEEN = 1


@dataclass(frozen=True, slots=True)
class PrefillPool:
    """Replicas that only prefill; the cache then travels to a decode replica.

    transfer_s_per_token: [s] per cached token (bytes per token over the link's rate).
    transfer_latency_s: [s] per request.
    """

    server: Server
    replicas: int = 1
    transfer_s_per_token: float = 0.0
    transfer_latency_s: float = 0.0
    route: Route = least_loaded

    def __post_init__(self) -> None:
        instance("server", self.server, Server)
        put(
            self,
            replicas=number("replicas", self.replicas, REPLICAS),
            transfer_s_per_token=number("transfer_s_per_token", self.transfer_s_per_token, WAIT),
            transfer_latency_s=number("transfer_latency_s", self.transfer_latency_s, WAIT),
        )
        function("route", self.route)

    def transfer_s(self, tokens: int) -> float:
        """Time to move the cache of `tokens` tokens [s]. Raises ValueError."""
        tokens = number("tokens", tokens, COUNT)
        return self.transfer_latency_s + tokens * self.transfer_s_per_token


def simulate(
    requests: Requests,
    server: Server,
    *,
    replicas: int = 1,
    route: Route = least_loaded,
    concurrency: int | None = None,
    think_s: float = 0.0,
    prefill: PrefillPool | None = None,
) -> Simulation:
    """Continuous batching of `requests` on `replicas` copies of `server`.

    concurrency: clients of a closed loop, each sending its next request `think_s` [s] after its
    answer; arrival times are then ignored. None = the requests' own arrivals. prefill: replicas
    that prefill for these, which then only decode (disaggregation).

    Deterministic. Raises ValueError for no replicas or clients, and for a request that could
    never fit the pool.
    """
    instance("requests", requests, Requests)
    instance("server", server, Server)
    replicas = number("replicas", replicas, REPLICAS)
    function("route", route)
    concurrency = optional("concurrency", concurrency, COUNT)
    think_s = number("think_s", think_s, WAIT)
    if prefill is not None and (
        instance("prefill", prefill, PrefillPool, "a PrefillPool, or None").server.cost
        != server.cost
    ):
        raise ValueError("Prefill and decode servers must agree on the cache's block cost")
    ledger = Ledger(requests, server)
    decoders = [Replica(server, ledger, index, False) for index in range(replicas)]
    prefillers = []
    if prefill is not None:
        Ledger(requests, prefill.server)  # raises where a prompt cannot fit there
        prefillers = [
            Replica(prefill.server, ledger, replicas + index, True)
            for index in range(prefill.replicas)
        ]
    events = _Events(requests, concurrency, think_s)
    door = prefillers or decoders
    door_route = prefill.route if prefill is not None else route
    everyone = decoders + prefillers
    while (now := events.next_time()) is not None:
        touched: dict[int, Replica] = {}
        for is_arrival, subject, version in events.due(now):
            if not is_arrival:
                replica = everyone[subject]
                if replica.version != version:
                    continue  # this run was cut short
                for request in replica.end_run(now):
                    if ledger.left[request]:  # prefilled here, decoded elsewhere
                        ledger.landed[request] = True
                        landing = now + _transfer_s(prefill, ledger.need[request])
                        events.push_arrival(landing, request)
                    else:
                        events.answered(now)
                touched[subject] = replica
                continue
            if version == _SEEN:
                target = everyone[ledger.server_index[subject]]
            elif ledger.landed[subject]:
                target = decoders[_choice(route, decoders, ledger, subject)]
                target.receive(subject, now)
            else:
                target = door[_choice(door_route, door, ledger, subject)]
                events.arrived[subject] = now
                delay = target.receive(subject, now)
                if delay > 0:
                    events.push_arrival(now + delay, subject, _SEEN)
                    continue
            if target.arrive(subject):
                touched[target.index] = target
        for replica in touched.values():
            if not replica.busy:
                replica.plan(now)
            elif replica.can_be_cut:
                replica.interrupt(now)
            else:
                continue
            if replica.busy:
                events.push_run_end(replica)
    return collect(requests, ledger, events.arrived, everyone)


def _choice(route: Route, pool: list[Replica], ledger: Ledger, request: int) -> int:
    if len(pool) == 1:
        return 0
    ids = ledger.ids[request] if ledger.ids is not None else ()
    return route(request, ids[0] if ids else -1, [replica.in_system for replica in pool])


def _transfer_s(prefill: PrefillPool | None, tokens: int) -> float:
    return 0.0 if prefill is None else prefill.transfer_s(tokens)


class _Events:
    """What comes next: scheduled events, and arrivals in their order."""

    def __init__(self, requests: Requests, concurrency: int | None, think_s: float) -> None:
        n = len(requests)
        self.heap: list[tuple[float, int, bool, int, int]] = []
        self.arrived = requests.arrival_s.tolist()
        self.closed = concurrency is not None
        self.think_s = think_s
        self.n = n
        self.order = 0
        self.next = 0  # the next request not sent yet
        if concurrency is not None:
            for _ in range(min(concurrency, n)):
                self._send(0.0)

    def next_time(self) -> float | None:
        """When something happens next [s]; None when nothing does."""
        scheduled = self.heap[0][0] if self.heap else None
        if self.closed or self.next >= self.n:
            return scheduled
        arrival = self.arrived[self.next]
        return arrival if scheduled is None or arrival <= scheduled else scheduled

    def due(self, now: float) -> Iterator[tuple[bool, int, int]]:
        """(is arrival, request or replica, version) of all that happens at `now`.

        Also what is pushed for the same moment while it is being worked off.
        """
        heap, arrived = self.heap, self.arrived
        while True:
            if not self.closed and self.next < self.n and arrived[self.next] <= now:
                self.next += 1
                yield True, self.next - 1, 0
            elif heap and heap[0][0] <= now:
                _, _, is_arrival, subject, version = heappop(heap)
                yield is_arrival, subject, version
            else:
                return

    def push_run_end(self, replica: Replica) -> None:
        """The run that `replica` has under way will end."""
        self.order += 1
        heappush(self.heap, (replica.end, self.order, False, replica.index, replica.version))

    def push_arrival(self, moment: float, request: int, version: int = 0) -> None:
        """`request` arrives at `moment` [s]; version _SEEN: at the scheduler."""
        self.order += 1
        heappush(self.heap, (moment, self.order, True, request, version))

    def answered(self, now: float) -> None:
        """A client has its answer and, in a closed loop, sends its next request."""
        if self.closed and self.next < self.n:
            self._send(now + self.think_s)

    def _send(self, moment: float) -> None:
        self.push_arrival(moment, self.next)
        self.next += 1
