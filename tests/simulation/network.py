"""A network in memory: every call passes the real HTTP stack of the node it reaches, after a delay, or is lost."""

from hashlib import sha256
from random import Random
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred

from svcd.p2p.caller import CallFailed, Reply, Request, Trouble
from svcd.web.site import Site
from tests.simulation.clock import HeapClock
from tests.simulation.hostile import Hostile
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
        super().__init__(site, peer)

    def write(self, data: bytes) -> None:
        super().write(data)
        self._look()

    def _look(self) -> None:
        head, blank, body = bytes(self.received).partition(b"\r\n\r\n")
        if not blank or self.answered.called:
            return
        lines = head.split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
        if len(body) >= length:
            self._finish(Reply(int(lines[0].split()[1]), body[:length]))

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
        answer: Deferred[Reply] = Deferred()
        limit: Any = self.clock.callLater(request.seconds, self._fail, answer, Trouble.TIMEOUT)

        def over(result: T) -> T:
            if limit.active():
                limit.cancel()
            return result

        answer.addBoth(over)
        if self.random.random() >= self.conditions.loss:
            self.clock.callLater(self._delay(), self._arrive, source, endpoint, request, answer)
        return answer

    def _delay(self) -> float:
        return self.random.uniform(*self.conditions.latency)

    def _arrive(self, source: "Link", endpoint: str, request: Request, answer: Deferred[Reply]) -> None:
        cut_off = self._island.get(source.endpoint) != self._island.get(endpoint)
        site = None if cut_off else self._sites.get(endpoint)
        hostile = self._hostile.get(endpoint)
        if hostile is not None and not cut_off:
            self._reply(hostile.answer(request), request, answer)
            return
        if site is None:
            self._fail(answer, Trouble.UNREACHABLE)
            return
        wire = Answering(site, IPv4Address("TCP", source.address, 40_000))
        body = request.body or b""
        method = "GET" if request.body is None else "POST"
        head = f"{method} {request.path} HTTP/1.1\r\nHost: node\r\nContent-Length: {len(body)}\r\n\r\n"
        self.trace.note(source.endpoint, endpoint, method, request.path, len(body))
        wire.send(head.encode() + body)
        wire.answered.addCallback(self._answered, wire, request, answer)

    def _answered(self, reply: Reply | None, wire: Wire, request: Request, answer: Deferred[Reply]) -> None:
        wire.close()
        self._reply(reply or Reply(0, b""), request, answer)

    def _reply(self, reply: Reply | None, request: Request, answer: Deferred[Reply]) -> None:
        if reply is None:
            return  # Silence: the caller's own deadline ends it.
        if not reply.status or len(reply.body) > request.max_bytes:
            self.clock.callLater(
                self._delay(), self._fail, answer, Trouble.TOO_LARGE if reply.status else Trouble.MALFORMED
            )
            return
        self.trace.note("answer", reply.status, sha256(reply.body).hexdigest()[:16])
        self.clock.callLater(self._delay(), self._return, answer, reply)

    def _return(self, answer: Deferred[Reply], reply: Reply) -> None:
        if not answer.called:
            answer.callback(reply)

    def _fail(self, answer: Deferred[Reply], trouble: Trouble) -> None:
        if not answer.called:
            answer.errback(CallFailed(trouble, f"simulated: {trouble.value}"))


@define(eq=False)
class Link:
    """One node's way into the network: its Caller."""

    network: Network
    endpoint: str
    address: str

    def call(self, endpoint: str, request: Request) -> Deferred[Reply]:
        return self.network.send(self, endpoint, request)

    def address_of(self, endpoint: str) -> str:
        """Endpoints show their addresses."""
        return ""

    def forget(self, endpoint: str) -> None:
        """There are no connections to close."""
