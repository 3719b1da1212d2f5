"""A network in memory: every call passes the real HTTP stack of the node it reaches, after a delay, or is lost."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from hashlib import sha256
from random import Random
from typing import Any

from attrs import define, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail

from svcd.net.calls import CallKind
from svcd.net.http_client import MAX_CALLS
from svcd.net.targets import Endpoint
from svcd.p2p.call_budget import CallBudget, PlannedCall
from svcd.p2p.transport import FailureKind, PeerCallFailed, PeerReply, PeerRequest
from svcd.web.site import Site
from tests.simulation.calls import SimulatedCall
from tests.simulation.clock import HeapClock, Lifetime
from tests.simulation.hostile import Answer, Hostile, Late
from tests.simulation.lines import Line, Sharing
from tests.web.wire import Wire

HEAD_BYTES = 200
"""What comes before the body of an answer that no real site has written."""
_FIELD = re.compile(rb"\r\n(content-length|retry-after): ([0-9]+)", re.IGNORECASE)


class Trace:
    """A running hash over everything that happened, in order."""

    def __init__(self, clock: HeapClock) -> None:
        self._clock = clock
        self._hash = sha256()
        self.events = 0

    def note(self, *words: object) -> None:
        """Add one event with its time."""
        self.events += 1
        self._hash.update(f"{self._clock.seconds():.6f} {' '.join(map(str, words))}\n".encode())

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


SiteAnswer = tuple[PeerReply, int] | None
"""An answer, and how many bytes came before its body; None where the connection was lost before it was whole."""


class Connection(Wire):
    """A connection in memory, for one request after the other."""

    def __init__(self, site: Site, peer: Any, host: str = "node") -> None:
        self.site = site
        self._host = host
        self._answered: Callable[[SiteAnswer], object] | None = None
        self._shape: tuple[int, int, int] | None = None
        """The status of the answer, and where its body begins and ends."""
        self._rest = 0.0
        super().__init__(site, peer)

    def ask(self, request: PeerRequest, answered: Callable[[SiteAnswer], object]) -> None:
        """Send a request; ``answered`` is called when the whole answer is written, or the connection is lost."""
        self._answered = answered
        self.send(written(request, self._host))

    def write(self, data: bytes) -> None:
        super().write(data)
        self._look()

    def _look(self) -> None:
        if self._shape is None:
            start = self.received.find(b"\r\n\r\n") + 4
            if start < 4:
                return
            fields = {name.lower(): int(value) for name, value in _FIELD.findall(self.received, 0, start)}
            self._rest = float(fields.get(b"retry-after", 0))
            self._shape = int(self.received[9:12]), start, start + fields[b"content-length"]
        status, start, end = self._shape
        if len(self.received) >= end:
            reply = PeerReply(status, bytes(self.received[start:end]), self._rest)
            self._shape = None
            del self.received[:end]
            self._finish((reply, start))

    def _finish(self, answer: SiteAnswer) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)

    def _lose(self, reason: Exception) -> None:
        super()._lose(reason)
        self._finish(None)


def written(request: PeerRequest, host: str = "node") -> bytes:
    """A request as it goes over the line."""
    body = request.body or b""
    method = "GET" if request.body is None else "POST"
    head = f"{method} {request.path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@define
class Conditions:
    """How good the network is; times in seconds."""

    latency: tuple[float, float] = (0.02, 0.2)
    loss: float = 0.0
    """The part of the requests that is never answered."""
    slowness: float = 10.0
    """How many times as long it takes to and from the slow."""


@define(eq=False)
class Network:
    """Where every endpoint can be reached, unless it is down, cut off, or the request is lost."""

    name: str
    """What the random numbers of everything in it are made from."""
    clock: HeapClock
    random: Random
    trace: Trace
    conditions: Conditions = field(factory=Conditions)
    messages: dict[str, int] = field(factory=dict)
    """How many requests there were for each path."""
    harm: Counter[str] = field(factory=Counter)
    """How often somebody hostile was asked, by kind."""
    slow: set[str] = field(factory=set)
    """Endpoints with a bad line."""
    _lines: dict[str, Line] = field(factory=lambda: defaultdict(Line))
    _sharing: Sharing = field(init=False)
    _carried: dict["Trip", None] = field(factory=dict)
    """What takes its time on a line with a limit."""
    _sites: dict[str, Site] = field(factory=dict)
    _connections: dict[tuple[str, str], list[Connection]] = field(factory=lambda: defaultdict(list))
    """Those from one endpoint to another that wait for the next request."""
    _hostile: dict[str, Hostile] = field(factory=dict)
    _island: dict[str, int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._sharing = Sharing(self.clock)

    def line(self, endpoint: str) -> Line:
        """The line of ``endpoint``, which counts its bytes and may have a limit."""
        return self._lines[endpoint]

    def attach(self, endpoint: str, site: Site) -> None:
        """Let ``endpoint`` be reached."""
        self._sites[endpoint] = site

    def turn(self, endpoint: str, hostile: Hostile) -> None:
        """Let somebody hostile answer at ``endpoint``."""
        self._hostile[endpoint] = hostile

    def detach(self, endpoint: str) -> None:
        """Nobody answers there any more, and what is on its way over its line is lost."""
        self._sites.pop(endpoint, None)
        for ends in [ends for ends in self._connections if endpoint in ends]:
            for connection in self._connections.pop(ends):
                connection.close()
        self._break(lambda trip: endpoint in (trip.source.endpoint, trip.endpoint))

    def part(self, islands: list[list[str]]) -> None:
        """Cut the network into islands that cannot reach one another; none at all joins it again."""
        self._island = {endpoint: number for number, island in enumerate(islands) for endpoint in island}
        self._break(lambda trip: not self._joins(trip))

    def _joins(self, trip: "Trip") -> bool:
        return self._island.get(trip.source.endpoint) == self._island.get(trip.endpoint)

    def _break(self, is_broken: Callable[["Trip"], bool]) -> None:
        for trip in [trip for trip in self._carried if is_broken(trip)]:
            trip.call.fail(FailureKind.UNREACHABLE)

    def send(self, source: "Link", endpoint: str, request: PeerRequest) -> Deferred[PeerReply]:
        """Carry a request there and its answer back."""
        trip = self.prepare(source, endpoint, request)
        self.begin(trip)
        return trip.call.answer

    def prepare(self, source: "Link", endpoint: str, request: PeerRequest) -> "Trip":
        """A request that waits to be sent; its time has begun."""
        path = request.path.partition("?")[0]
        self.messages[path] = self.messages.get(path, 0) + 1
        call = SimulatedCall(request, self.clock, self._sharing, source.life)
        return Trip(source, endpoint, call)

    def begin(self, trip: "Trip") -> None:
        """Send it, unless it gets lost."""
        if self.random.random() >= self.conditions.loss:
            self.clock.callLater(self._delay(trip), self._carry_there, trip)

    def tell(self, source: "Link", endpoint: str, request: PeerRequest) -> None:
        """Send a request whose answer nobody cares for."""
        self.send(source, endpoint, request).addErrback(lambda failure: failure.trap(PeerCallFailed))

    def _delay(self, trip: "Trip") -> float:
        delay = self.random.uniform(*self.conditions.latency)
        is_slow = trip.source.endpoint in self.slow or trip.endpoint in self.slow
        return delay * self.conditions.slowness if is_slow else delay

    def _note_if_carried(self, trip: "Trip") -> None:
        if trip.call.under_way:
            self._carried[trip] = None
            trip.call.on_over.append(lambda: self._carried.pop(trip, None))

    def _carry_there(self, trip: "Trip") -> None:
        """The first byte arrives."""
        if not self._joins(trip) or not (trip.endpoint in self._sites or trip.endpoint in self._hostile):
            trip.call.fail(FailureKind.UNREACHABLE)
            return
        size = len(written(trip.call.request))
        trip.call.send(self.line(trip.source.endpoint), self.line(trip.endpoint), size, lambda: self._arrive(trip))
        self._note_if_carried(trip)

    def _arrive(self, trip: "Trip") -> None:
        endpoint, request = trip.endpoint, trip.call.request
        if endpoint in self._hostile:
            hostile = self._hostile[endpoint]
            self.harm[type(hostile).__name__] += 1
            self._give(trip, hostile.answer(request))
        elif endpoint in self._sites:
            self.trace.note(trip.source.endpoint, endpoint, request.path, len(request.body or b""))
            connection = self._connect(trip)
            trip.call.close = connection.close
            connection.ask(request, lambda answer: self._answered(answer, connection, trip))

    def _connect(self, trip: "Trip") -> Connection:
        """A connection that waits, unless it has been closed or leads to a node that has ended, or else a new one."""
        site, waiting = self._sites[trip.endpoint], self._connections[trip.source.endpoint, trip.endpoint]
        while waiting:
            connection = waiting.pop()
            if connection.open and connection.site is site:
                return connection
        address = IPv4Address("TCP", trip.source.address, 40_000)
        return Connection(site, address, trip.endpoint.partition("://")[2])

    def _give(self, trip: "Trip", answer: Answer) -> None:
        """Send back what somebody hostile makes of a request; silence is ended by the caller's own deadline."""
        if isinstance(answer, Late):
            self.clock.callLater(answer.seconds, self._reply, trip, answer.reply)
        elif isinstance(answer, FailureKind):
            self.clock.callLater(self._delay(trip), trip.call.fail, answer)
        elif answer is not None:
            self._reply(trip, answer)

    def _answered(self, answer: SiteAnswer, connection: Connection, trip: "Trip") -> None:
        if trip.call.answer.called:
            return
        if answer is None:
            self.clock.callLater(self._delay(trip), trip.call.fail, FailureKind.MALFORMED)
        else:
            trip.call.close = lambda: None
            self._connections[trip.source.endpoint, trip.endpoint].append(connection)
            self._reply(trip, *answer)

    def _reply(self, trip: "Trip", reply: PeerReply, head: int = HEAD_BYTES) -> None:
        self.trace.note("answer", reply.status, sha256(reply.body).hexdigest()[:16])
        self.clock.callLater(self._delay(trip), self._carry_back, trip, reply, head)

    def _carry_back(self, trip: "Trip", reply: PeerReply, head: int) -> None:
        """The first byte of the answer arrives."""
        trip.call.receive(self.line(trip.endpoint), self.line(trip.source.endpoint), reply, head)
        self._note_if_carried(trip)


@define(eq=False)
class Trip:
    """A request from one node to another."""

    source: "Link"
    endpoint: str
    call: SimulatedCall


@define(eq=False)
class Lane:
    """The calls of one kind to one endpoint."""

    busy: int = 0
    """How many are under way."""
    waiting: deque[Trip] = field(factory=deque)


@define(eq=False)
class Link:
    """One life's way into the network: its Transport, with as many connections to each endpoint as a real one has."""

    network: Network
    endpoint: str
    """Where it is in the network, though it may not be callable there."""
    address: str
    life: Lifetime
    hostile: Hostile | None = None
    """Who it belongs to, if that is somebody hostile."""
    answered_at: Callable[[str], str] = lambda _: ""
    is_operators: Callable[[str], bool] = lambda _: False
    _lanes: dict[tuple[str, CallKind], Lane] = field(factory=lambda: defaultdict(Lane))
    _budget: CallBudget = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._budget = CallBudget(self.life)

    def call(self, endpoint: str, request: PeerRequest) -> Deferred[PeerReply]:
        kept = request if self.hostile is None else self.hostile.lets_out(request)
        if kept is None:
            return fail(PeerCallFailed(FailureKind.UNREACHABLE, "simulated: kept back"))
        if not self._may_call(Endpoint(endpoint), request):
            return fail(PeerCallFailed(FailureKind.UNREACHABLE, "simulated: called too often"))
        trip = self.network.prepare(self, endpoint, kept)
        lane = self._lanes[endpoint, kept.kind]
        if lane.busy < MAX_CALLS[kept.kind]:
            self._begin(lane, trip)
        else:
            lane.waiting.append(trip)
        return trip.call.answer

    def _may_call(self, endpoint: Endpoint, request: PeerRequest) -> bool:
        """Whether a call is within the limits of a real transport; every endpoint shows its address."""
        address = endpoint.address
        assert address is not None
        return self._budget.take(
            PlannedCall(
                endpoint=endpoint,
                address=address,
                port=endpoint.port,
                answered=str(address) == self.answered_at(endpoint),
                reason=request.reason,
                client=request.client,
            )
        )

    def _begin(self, lane: Lane, trip: Trip) -> None:
        lane.busy += 1
        trip.call.on_over.append(lambda: self._leave(lane))
        self.network.begin(trip)

    def _leave(self, lane: Lane) -> None:
        lane.busy -= 1
        waiting = lane.waiting
        while waiting and waiting[0].call.answer.called:
            waiting.popleft()
        if waiting:
            self._begin(lane, waiting.popleft())

    def address_of(self, endpoint: str) -> str:
        """Endpoints show their addresses."""
        return ""

    def forget(self, endpoint: str) -> None:
        """There are no connections to close."""


def ask_at_once(site: Site, request: PeerRequest) -> PeerReply | None:
    """What a site answers to a request that needs no time; None where it needs some."""
    connection = Connection(site, IPv4Address("TCP", "192.0.2.9", 40_000))
    found: list[SiteAnswer] = []
    connection.ask(request, found.append)
    connection.close()
    return found[0][0] if found[0] else None
