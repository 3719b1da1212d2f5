"""One call through the simulated network: its way there and back over two lines, and the limits that end it early."""

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from math import inf

from attrs import define, field
from twisted.internet.defer import Deferred

from svcd.p2p.transport import FailureKind, PeerCallFailed, PeerReply, PeerRequest
from tests.simulation.clock import Call, HeapClock, Lifetime
from tests.simulation.lines import Flow, Line, Sharing

TICK_SECONDS = 0.1
"""How often a caller hears of bytes that arrive."""
_HALF_A_BYTE = 0.5


@define(eq=False)
class Pace:
    """Finds the first period of ``seconds`` in which fewer than ``least`` bytes went over the line."""

    seconds: float
    least: int
    _points: deque[tuple[float, float]] = field(factory=deque)
    """Times, and how many bytes had gone over the line by then; the rate was steady between two of them."""

    def fails_at(self, now: float, total: float, rate: float) -> float:
        """When such a period ends if ``rate``, in bytes per second, stays as it is now; inf: never.

        ``total`` bytes have gone over the line by ``now``. It is to be told of every change of the rate.
        """
        points, least = self._points, self.least - _HALF_A_BYTE
        points.append((now, total))
        while len(points) > 1 and points[1][0] <= now - self.seconds:
            points.popleft()
        for (earlier, before), (later, after) in pairwise(points):
            steady = (after - before) / (later - earlier) if later > earlier else 0.0
            start = max(earlier, now - self.seconds)
            # What goes over the line in the period that begins at ``start``, and in the one that begins at ``later``.
            first = total + rate * (start + self.seconds - now) - (before + steady * (start - earlier))
            last = total + rate * (later + self.seconds - now) - after
            if first < least:
                return start + self.seconds
            if last < least:
                return start + (later - start) * (first - least) / (first - last) + self.seconds
        return inf if rate * self.seconds >= least else now + self.seconds


class SimulatedCall:
    """A request on its way there and back; ``answer`` fires with the reply, or fails with PeerCallFailed."""

    def __init__(self, request: PeerRequest, clock: HeapClock, sharing: Sharing, life: Lifetime) -> None:
        self.request = request
        self.answer: Deferred[PeerReply] = Deferred()
        self.close: Callable[[], None] = lambda: None
        """Closes the connection at its other end."""
        self.on_over: list[Callable[[], object]] = []
        """Called when it is over, in whatever way."""
        self._clock = clock
        self._sharing = sharing
        self._life = life
        self._flow: Flow | None = None
        self._carried = 0.0
        """Bytes of flows that are over."""
        self._limit: Call | None = None
        self._pace = Pace(request.seconds, request.min_bytes) if request.min_bytes else None
        self._told = 0
        if self._pace is None:
            self._limit = clock.callLater(request.seconds, self.fail, FailureKind.TIMEOUT)
        else:
            self._keep_pace()
        self.answer.addBoth(self._over)

    @property
    def under_way(self) -> bool:
        """Whether some of its bytes wait for a line with a limit."""
        return self._flow is not None

    def send(self, source: Line, target: Line, size: int, then: Callable[[], None]) -> None:
        """Carry ``size`` bytes from one node to another; ``then`` is called when the last one has arrived."""
        if not self._is_awaited():
            return

        def arrived() -> None:
            self._flow = None
            self._carried += size
            self._keep_pace()
            then()

        self._flow = Flow(source.up, target.down, size, arrived, self._keep_pace)
        self._sharing.begin(self._flow)

    def receive(self, source: Line, target: Line, reply: PeerReply, head: int) -> None:
        """Carry a reply to the caller, behind a head of so many bytes; it is broken off where it is too long."""
        request, length = self.request, len(reply.body)
        if length > request.max_bytes:
            self.send(source, target, head + request.max_bytes, lambda: self.fail(FailureKind.TOO_LARGE))
            return

        def arrived() -> None:
            self._tell(length)
            if self._is_awaited():
                self.answer.callback(reply)

        self.send(source, target, head + length, arrived)
        if request.on_bytes is not None and self._flow is not None:
            self._clock.callLater(TICK_SECONDS, self._tick, self._flow, head)

    def fail(self, trouble: FailureKind) -> None:
        """End it, unless it is over; a caller that is no more hears nothing."""
        if self._is_awaited():
            self.answer.errback(PeerCallFailed(trouble, f"simulated: {trouble.value}"))
        elif not self.answer.called:
            self._over(None)

    def _is_awaited(self) -> bool:
        return not (self.answer.called or self._life.over)

    def _tick(self, flow: Flow, head: int) -> None:
        if self._flow is flow:
            self._tell(max(int(flow.sent_by(self._clock.seconds())) - head, 0))
            self._clock.callLater(TICK_SECONDS, self._tick, flow, head)

    def _tell(self, arrived: int) -> None:
        news, self._told = arrived - self._told, arrived
        if news and self.request.on_bytes is not None and self._is_awaited():
            self.request.on_bytes(news)

    def _keep_pace(self) -> None:
        """Find out anew when too little will have gone over the line."""
        if self._pace is None or self.answer.called:
            return
        now, flow = self._clock.seconds(), self._flow
        total = self._carried + (flow.sent_by(now) if flow else 0.0)
        end = self._pace.fails_at(now, total, flow.rate if flow else 0.0)
        if self._limit is not None:
            self._limit.cancel()
        self._limit = None if end == inf else self._clock.callLater(end - now, self.fail, FailureKind.TIMEOUT)

    def _over(self, result: object) -> object:
        if self._limit is not None and self._limit.active():
            self._limit.cancel()
        if self._flow is not None:
            flow, self._flow = self._flow, None
            self._sharing.stop(flow)
        self.close()
        for call in self.on_over:
            call()
        self.on_over.clear()
        return result
