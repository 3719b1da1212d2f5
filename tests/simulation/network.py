"""A network in memory: every call passes the real HTTP stack of the node it reaches, after a delay, or is lost."""

from collections import Counter
from hashlib import sha256
from random import Random
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail

from svcd.p2p.caller import CallFailed, Reply, Request, Trouble
from svcd.web.site import Site
from tests.simulation.clock import HeapClock, Lifetime
from tests.simulation.hostile import Answer, Hostile, Late
from tests.web.wire import Wire

T = TypeVar("T")


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
    """One request in memory; ``answered`` fires when the whole answer has come, or the connection has gone."""

    def __init__(self, site: Site, peer: Any) -> None:
        self.answered: Deferred[Reply | None] = Deferred()
        self._shape: tuple[int, int, int] | None = None
        """The status of the answer, and where its body begins and ends."""
        super().__init__(site, peer)

    def ask(self, request: Request) -> None:
        """Send the one request."""
        body = request.body or b""
        method = "GET" if request.body is None else "POST"
        head = f"{method} {request.path} HTTP/1.1\r\nHost: node\r\nContent-Length: {len(body)}\r\n\r\n"
        self.send(head.encode() + body)

    def write(self, data: bytes) -> None:
        super().write(data)
        self._look()

    def _look(self) -> None:
        if self._shape is None:
            head, blank, _ = bytes(self.received).partition(b"\r\n\r\n")
            if not blank:
                return
            lines, start = head.split(b"\r\n"), len(head) + len(blank)
            length = next(int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
            self._shape = int(lines[0].split()[1]), start, start + length
        status, start, end = self._shape
        if len(self.received) >= end:
            self._finish(Reply(status, bytes(self.received[start:end])))

    def _finish(self, reply: Reply | None) -> None:
        if not self.answered.called:
            self.answered.callback(reply)

    def _lose(self, reason: Exception) -> None:
        super()._lose(reason)
        self._finish(None)


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
    _sites: dict[str, Site] = field(factory=dict)
    _hostile: dict[str, Hostile] = field(factory=dict)
    _island: dict[str, int] = field(factory=dict)

    def attach(self, endpoint: str, site: Site) -> None:
        """Let ``endpoint`` be reached."""
        self._sites[endpoint] = site

    def turn(self, endpoint: str, hostile: Hostile) -> None:
        """Let somebody hostile answer at ``endpoint``."""
        self._hostile[endpoint] = hostile

    def detach(self, endpoint: str) -> None:
        """Nobody answers there any more."""
        self._sites.pop(endpoint, None)

    def part(self, islands: list[list[str]]) -> None:
        """Cut the network into islands that cannot reach one another; none at all joins it again."""
        self._island = {endpoint: number for number, island in enumerate(islands) for endpoint in island}

    def send(self, source: "Link", endpoint: str, request: Request) -> Deferred[Reply]:
        """Carry a request there and its answer back."""
        path = request.path.partition("?")[0]
        self.messages[path] = self.messages.get(path, 0) + 1
        trip = _Trip(source, endpoint, request)
        limit: Any = self.clock.callLater(request.seconds, self._fail, trip, Trouble.TIMEOUT)

        def over(result: T) -> T:
            if limit.active():
                limit.cancel()
            return result

        trip.answer.addBoth(over)
        if self.random.random() >= self.conditions.loss:
            self.clock.callLater(self._delay(trip), self._arrive, trip)
        return trip.answer

    def tell(self, source: "Link", endpoint: str, request: Request) -> None:
        """Send a request whose answer nobody cares for."""
        self.send(source, endpoint, request).addErrback(lambda failure: failure.trap(CallFailed))

    def _delay(self, trip: "_Trip") -> float:
        delay = self.random.uniform(*self.conditions.latency)
        return delay * self.conditions.slowness if self.slow & {trip.source.endpoint, trip.endpoint} else delay

    def _arrive(self, trip: "_Trip") -> None:
        endpoint, request = trip.endpoint, trip.request
        if self._island.get(trip.source.endpoint) != self._island.get(endpoint):
            self._fail(trip, Trouble.UNREACHABLE)
        elif endpoint in self._hostile:
            hostile = self._hostile[endpoint]
            self.harm[type(hostile).__name__] += 1
            self._give(trip, hostile.answer(request))
        elif endpoint in self._sites:
            self.trace.note(trip.source.endpoint, endpoint, request.path, len(request.body or b""))
            wire = Answering(self._sites[endpoint], IPv4Address("TCP", trip.source.address, 40_000))
            wire.answered.addCallback(self._answered, wire, trip)
            wire.ask(request)
        else:
            self._fail(trip, Trouble.UNREACHABLE)

    def _give(self, trip: "_Trip", answer: Answer) -> None:
        """Send back what somebody hostile makes of a request; silence is ended by the caller's own deadline."""
        if isinstance(answer, Late):
            self.clock.callLater(answer.seconds, self._reply, trip, answer.reply)
        elif isinstance(answer, Trouble):
            self.clock.callLater(self._delay(trip), self._fail, trip, answer)
        elif answer is not None:
            self._reply(trip, answer)

    def _answered(self, reply: Reply | None, wire: Wire, trip: "_Trip") -> None:
        wire.close()
        self._reply(trip, reply or Reply(0, b""))

    def _reply(self, trip: "_Trip", reply: Reply) -> None:
        if not reply.status or len(reply.body) > trip.request.max_bytes:
            trouble = Trouble.TOO_LARGE if reply.status else Trouble.MALFORMED
            self.clock.callLater(self._delay(trip), self._fail, trip, trouble)
            return
        self.trace.note("answer", reply.status, sha256(reply.body).hexdigest()[:16])
        self.clock.callLater(self._delay(trip), self._return, trip, reply)

    def _return(self, trip: "_Trip", reply: Reply) -> None:
        if trip.is_awaited():
            trip.answer.callback(reply)

    def _fail(self, trip: "_Trip", trouble: Trouble) -> None:
        if trip.is_awaited():
            trip.answer.errback(CallFailed(trouble, f"simulated: {trouble.value}"))


@define(eq=False)
class _Trip:
    """A request on its way there and back."""

    source: "Link"
    endpoint: str
    request: Request
    answer: Deferred[Reply] = field(factory=Deferred)

    def is_awaited(self) -> bool:
        """Whether there is anybody who still wants the answer."""
        return not self.answer.called and not self.source.life.over


@define(eq=False)
class Link:
    """One life's way into the network: its Caller."""

    network: Network
    endpoint: str
    """Where it is in the network, though it may not be callable there."""
    address: str
    life: Lifetime
    hostile: Hostile | None = None
    """Who it belongs to, if that is somebody hostile."""

    def call(self, endpoint: str, request: Request) -> Deferred[Reply]:
        kept = request if self.hostile is None else self.hostile.lets_out(request)
        if kept is None:
            return fail(CallFailed(Trouble.UNREACHABLE, "simulated: kept back"))
        return self.network.send(self, endpoint, kept)

    def address_of(self, endpoint: str) -> str:
        """Endpoints show their addresses."""
        return ""

    def forget(self, endpoint: str) -> None:
        """There are no connections to close."""


def ask_at_once(site: Site, request: Request) -> Reply | None:
    """What a site answers to a request that needs no time; None where it needs some."""
    wire = Answering(site, IPv4Address("TCP", "192.0.2.9", 40_000))
    wire.ask(request)
    found: list[Reply | None] = []
    wire.answered.addCallback(found.append)
    wire.close()
    return found[0]
