"""A transport in memory: carries the calls of a node under test at the time of a clock, under the caller's limits."""

from collections.abc import Callable
from math import inf
from typing import Any, Protocol
from urllib.parse import parse_qsl

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.task import Clock

from svcd.net.calls import CallKind
from svcd.net.http_client import MAX_CALLS
from svcd.p2p.transport import FailureKind, PeerCallFailed, PeerReply, PeerRequest

LATENCY = 0.01
"""Seconds that a request or a response takes to arrive."""

Answer = PeerReply | FailureKind | Deferred[PeerReply] | None
"""The outcome of a request: a reply now or later, a failure, or no reply at all."""


@frozen
class Called:
    """One request as the transport got it."""

    endpoint: str
    request: PeerRequest
    at: float

    @property
    def path(self) -> str:
        """The path without its query."""
        return self.request.path.partition("?")[0]

    @property
    def query(self) -> dict[str, int]:
        """The numbers in the query."""
        return {name: int(text) for name, text in parse_qsl(self.request.path.partition("?")[2])}


class Responder(Protocol):
    """A node at an endpoint."""

    def answer(self, request: PeerRequest) -> Answer:
        """The outcome of a request."""


@define(eq=False)
class MemoryTransport:
    """The Transport of a node under test: the nodes that answer, by endpoint, and a list of all requests."""

    clock: Clock
    responders: dict[str, Responder] = field(factory=dict)
    calls: list[Called] = field(factory=list)
    forgotten: list[str] = field(factory=list)
    addresses: dict[str, str] = field(factory=dict)
    """By endpoint, where the address that it leads to matters."""
    most_at_once: dict[str, int] = field(factory=dict)
    """The greatest number of requests for blocks that waited for an answer at the same time, by endpoint."""
    latency: dict[str, float] = field(factory=dict)
    """By endpoint, where it is not LATENCY."""
    patient: bool = False
    """Whether a call that may go on as long as it makes progress is taken to make some."""
    dripping: set[str] = field(factory=set)
    """Endpoints to and from which each transfer makes just enough progress to go on, though it never ends."""
    answered_at: Callable[[str], str] = lambda _: ""
    is_operators: Callable[[str], bool] = lambda _: False
    _waiting: list[Called] = field(factory=list)
    _open: dict[str, int] = field(factory=dict)
    _places: dict[tuple[str, CallKind], DeferredSemaphore] = field(factory=dict)

    def call(self, endpoint: str, request: PeerRequest) -> Deferred[PeerReply]:
        called = Called(endpoint, request, self.clock.seconds())
        self.calls.append(called)
        answer: Deferred[PeerReply] = Deferred()
        self._count(called, answer)
        patient = request.min_bytes and (self.patient or endpoint in self.dripping)
        limit = self.clock.callLater(1e9 if patient else request.seconds, self._end, answer, FailureKind.TIMEOUT)
        self._waiting.append(called)
        answer.addBoth(self._over, called, limit)
        self._in_turn(endpoint, request, answer)
        return answer

    def _in_turn(self, endpoint: str, request: PeerRequest, answer: Deferred[PeerReply]) -> None:
        """Send the request once a connection is free; a real transport has as many connections."""
        lane = endpoint, request.kind
        places = self._places.setdefault(lane, DeferredSemaphore(MAX_CALLS[request.kind]))
        turn = places.acquire()

        def leave(result: Any) -> Any:
            if turn.called:
                places.release()
            else:
                turn.cancel()
            return result

        answer.addBoth(leave)
        turn.addCallback(lambda _: self._later(endpoint, self._arrive, endpoint, request, answer))
        turn.addErrback(lambda failure: failure.trap(CancelledError))

    def address_of(self, endpoint: str) -> str:
        return self.addresses.get(endpoint, "")

    def forget(self, endpoint: str) -> None:
        self.forgotten.append(endpoint)

    def calls_to(self, endpoint: str, path: str = "") -> list[Called]:
        """The requests to an endpoint, of one path or of all."""
        return [call for call in self.calls if call.endpoint == endpoint and path in ("", call.path)]

    def waiting_for(self, endpoint: str, begin: str) -> list[str]:
        """The paths that begin with ``begin`` of which the endpoint owes an answer."""
        return [call.path for call in self._waiting if call.endpoint == endpoint and call.path.startswith(begin)]

    def paths(self, endpoint: str) -> list[str]:
        """The paths asked for at an endpoint, in order."""
        return [call.path for call in self.calls_to(endpoint)]

    def _count(self, called: Called, answer: Deferred[PeerReply]) -> None:
        if called.path != "/p2p/blocks":
            return
        endpoint = called.endpoint
        self._open[endpoint] = self._open.get(endpoint, 0) + 1
        self.most_at_once[endpoint] = max(self.most_at_once.get(endpoint, 0), self._open[endpoint])

        def closed(result: Any) -> Any:
            self._open[endpoint] -= 1
            return result

        answer.addBoth(closed)

    def _later(self, endpoint: str, call: Callable[..., object], *args: object) -> None:
        self.clock.callLater(self.latency.get(endpoint, LATENCY), call, *args)

    def _arrive(self, endpoint: str, request: PeerRequest, answer: Deferred[PeerReply]) -> None:
        responder = self.responders.get(endpoint)
        given = FailureKind.UNREACHABLE if responder is None else responder.answer(request)
        if isinstance(given, Deferred):
            given.addCallback(lambda reply: self._later(endpoint, self._return, request, answer, reply))
        elif given is not None:
            self._later(endpoint, self._return, request, answer, given)

    def _return(self, request: PeerRequest, answer: Deferred[PeerReply], given: PeerReply | FailureKind) -> None:
        if isinstance(given, PeerReply) and len(given.body) > request.max_bytes:
            given = FailureKind.TOO_LARGE
        if isinstance(given, FailureKind):
            self._end(answer, given)
        elif not answer.called:
            answer.callback(given)

    def _end(self, answer: Deferred[PeerReply], trouble: FailureKind) -> None:
        if not answer.called:
            answer.errback(PeerCallFailed(trouble, f"in memory: {trouble.value}"))

    def _over(self, result: Any, called: Called, limit: Any) -> Any:
        self._waiting = [each for each in self._waiting if each is not called]
        if limit.active():
            limit.cancel()
        return result


def run(clock: Clock, seconds: float) -> None:
    """Let time pass, from one thing that is due to the next."""
    run_until(clock, lambda: False, within=seconds)


def run_until(clock: Clock, condition: Callable[[], object], *, within: float) -> bool:
    """Let time pass until ``condition`` is true; False if it is not within so many seconds."""
    end = clock.seconds() + within
    while not condition():
        due = min((call.getTime() for call in clock.getDelayedCalls()), default=inf)
        # Set, for adding the difference may fall short of it by a rounding error, for ever.
        clock.rightNow = max(clock.rightNow, min(due, end))
        if due > end:
            return bool(condition())
        clock.advance(0)
    return True
