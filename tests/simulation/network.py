"""A network in memory: every call passes the real HTTP stack of the node it reaches, after a delay, or is lost."""

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
from svcd.p2p.transport import FailureKind, PeerCallFailed, PeerReply, PeerRequest
from svcd.web.site import Site
from tests.simulation.calls import SimulatedCall
from tests.simulation.clock import HeapClock, Lifetime
from tests.simulation.hostile import Answer, Hostile, Late
from tests.simulation.lines import Line, Sharing
from tests.web.wire import Wire

HEAD_BYTES = 200
"""What comes before the body of an answer that no real site has written."""


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


class Answering(Wire):
    """One request in memory; ``answered`` fires when the whole answer is written, or the connection is lost."""

    def __init__(self, site: Site, peer: Any) -> None:
        self.answered: Deferred[tuple[PeerReply, int] | None] = Deferred()
        """The answer, and how many bytes came before its body."""
        self._shape: tuple[int, int, int] | None = None
        """The status of the answer, and where its body begins and ends."""
        self._rest = 0.0
        super().__init__(site, peer)

    def ask(self, request: PeerRequest) -> None:
        """Send the one request."""
        self.send(written(request))

    def write(self, data: bytes) -> None:
        super().write(data)
        self._look()

    def _look(self) -> None:
        if self._shape is None:
            start = self.received.find(b"\r\n\r\n") + 4
            if start < 4:
                return
            lines = bytes(self.received[:start]).lower().split(b"\r\n")
            length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
            self._rest = next((float(line[12:]) for line in lines if line.startswith(b"retry-after:")), 0.0)
            self._shape = int(lines[0].split()[1]), start, start + length
        status, start, end = self._shape
        if len(self.received) >= end:
            self._finish((PeerReply(status, bytes(self.received[start:end]), self._rest), start))

    def _finish(self, answer: tuple[PeerReply, int] | None) -> None:
        if not self.answered.called:
            self.answered.callback(answer)

    def _lose(self, reason: Exception) -> None:
        super()._lose(reason)
        self._finish(None)


def written(request: PeerRequest) -> bytes:
    """A request as it goes over the line."""
    body = request.body or b""
    method = "GET" if request.body is None else "POST"
    return f"{method} {request.path} HTTP/1.1\r\nHost: node\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


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
    _lines: dict[str, Line] = field(factory=dict)
    _sharing: Sharing = field(init=False)
    _carried: dict["Trip", None] = field(factory=dict)
    """What takes its time on a line with a limit."""
    _sites: dict[str, Site] = field(factory=dict)
    _hostile: dict[str, Hostile] = field(factory=dict)
    _island: dict[str, int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._sharing = Sharing(self.clock)

    def line(self, endpoint: str) -> Line:
        """The line of ``endpoint``, which counts its bytes and may have a limit."""
        return self._lines.setdefault(endpoint, Line())

    def attach(self, endpoint: str, site: Site) -> None:
        """Let ``endpoint`` be reached."""
        self._sites[endpoint] = site

    def turn(self, endpoint: str, hostile: Hostile) -> None:
        """Let somebody hostile answer at ``endpoint``."""
        self._hostile[endpoint] = hostile

    def detach(self, endpoint: str) -> None:
        """Nobody answers there any more, and what is on its way over its line is lost."""
        self._sites.pop(endpoint, None)
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
        return delay * self.conditions.slowness if self.slow & {trip.source.endpoint, trip.endpoint} else delay

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
            wire = Answering(self._sites[endpoint], IPv4Address("TCP", trip.source.address, 40_000))
            trip.call.close = wire.close
            wire.answered.addCallback(self._answered, wire, trip)
            wire.ask(request)

    def _give(self, trip: "Trip", answer: Answer) -> None:
        """Send back what somebody hostile makes of a request; silence is ended by the caller's own deadline."""
        if isinstance(answer, Late):
            self.clock.callLater(answer.seconds, self._reply, trip, answer.reply)
        elif isinstance(answer, FailureKind):
            self.clock.callLater(self._delay(trip), trip.call.fail, answer)
        elif answer is not None:
            self._reply(trip, answer)

    def _answered(self, answer: tuple[PeerReply, int] | None, wire: Wire, trip: "Trip") -> None:
        wire.close()
        if trip.call.answer.called:
            return
        if answer is None:
            self.clock.callLater(self._delay(trip), trip.call.fail, FailureKind.MALFORMED)
        else:
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
class Link:
    """One life's way into the network: its Transport, with as many connections to each endpoint as a real one has."""

    network: Network
    endpoint: str
    """Where it is in the network, though it may not be callable there."""
    address: str
    life: Lifetime
    hostile: Hostile | None = None
    """Who it belongs to, if that is somebody hostile."""
    _busy: Counter[tuple[str, CallKind]] = field(factory=Counter)
    _waiting: dict[tuple[str, CallKind], deque[Trip]] = field(factory=lambda: defaultdict(deque))

    def call(self, endpoint: str, request: PeerRequest) -> Deferred[PeerReply]:
        kept = request if self.hostile is None else self.hostile.lets_out(request)
        if kept is None:
            return fail(PeerCallFailed(FailureKind.UNREACHABLE, "simulated: kept back"))
        trip = self.network.prepare(self, endpoint, kept)
        lane = endpoint, kept.kind
        if self._busy[lane] < MAX_CALLS[kept.kind]:
            self._begin(lane, trip)
        else:
            self._waiting[lane].append(trip)
        return trip.call.answer

    def _begin(self, lane: tuple[str, CallKind], trip: Trip) -> None:
        self._busy[lane] += 1
        trip.call.on_over.append(lambda: self._leave(lane))
        self.network.begin(trip)

    def _leave(self, lane: tuple[str, CallKind]) -> None:
        self._busy[lane] -= 1
        waiting = self._waiting[lane]
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
    wire = Answering(site, IPv4Address("TCP", "192.0.2.9", 40_000))
    wire.ask(request)
    found: list[tuple[PeerReply, int] | None] = []
    wire.answered.addCallback(found.append)
    wire.close()
    return found[0][0] if found[0] else None
