"""A slow link between a node and its callers: a TCP proxy on loopback that delays and throttles the traffic.

    python -m benchmarks.slow_link PORT TARGET_PORT --round-trip MILLISECONDS --mbits RATE

serves until its input ends. All connections share the rate, which is that of each direction. A connection is made a
round trip later than by itself; that TCP is slow at first, and what a line loses, is left out.
"""

# mypy: allow-untyped-calls

import argparse
from collections import deque
from typing import Any, Final

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ServerEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.stdio import StandardIO
from twisted.internet.task import react
from twisted.python.failure import Failure

from svcd.interfaces import Clock

# The names are Twisted's.
# ruff: noqa: N802

_PIECE: Final = 8 * 1024
"""Bytes that go over the line at a time, so that connections take turns."""
_HELD: Final = 4 * 1024 * 1024
"""Bytes that may be on the line for one connection and direction; more than that wait in the sender's socket."""


@define
class Direction:
    """What passes one way: ``delay`` in seconds, ``rate`` in bytes per second or None for no limit."""

    clock: Clock
    delay: float
    rate: float | None
    _free_at: float = 0.0

    def due(self, size: int) -> float:
        """When the last of so many bytes is at the other end; the line is taken until shortly before."""
        now = self.clock.seconds()
        if self.rate is not None:
            self._free_at = max(self._free_at, now) + size / self.rate
        return max(self._free_at, now) + self.delay


@define(eq=False)
class Pipe:
    """Carries the bytes of one connection one way."""

    direction: Direction
    source: Any
    """The transport that is read from."""
    target: Any
    """The one that is written to; None until it is connected."""
    opens_at: float
    _waiting: deque[tuple[float, bytes]] = field(factory=deque)
    _held: int = 0
    _ended: bool = False
    _paused: bool = False
    _running: bool = False

    def carry(self, data: bytes) -> None:
        """Send bytes off."""
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            self._waiting.append((max(self.direction.due(len(piece)), self.opens_at), piece))
        self._held += len(data)
        if self._held > _HELD and not self._paused:
            self._paused = True
            self.source.pauseProducing()
        self.run()

    def end(self) -> None:
        """Close the other end once everything has arrived there."""
        self._ended = True
        self.run()

    def run(self) -> None:
        """Deliver what is due, and come back for the rest."""
        if self.target is None or self._running:
            return
        clock = self.direction.clock
        while self._waiting and self._waiting[0][0] <= clock.seconds():
            _, piece = self._waiting.popleft()
            self._held -= len(piece)
            self.target.write(piece)
        if self._paused and self._held <= _HELD // 2:
            self._paused = False
            self.source.resumeProducing()
        if self._waiting:
            self._running = True
            clock.callLater(max(self._waiting[0][0] - clock.seconds(), 0.0), self._go_on)
        elif self._ended:
            self.target.loseConnection()

    def _go_on(self) -> None:
        self._running = False
        self.run()


class Far(Protocol):
    """The connection to the node."""

    def __init__(self, there: Pipe, back: Pipe) -> None:
        self._there = there
        self._back = back

    def connectionMade(self) -> None:
        """Let what waits for it through."""
        self._there.target = self._back.source = self.transport
        self._there.run()

    def dataReceived(self, data: bytes) -> None:
        """Carry what the node says."""
        self._back.carry(data)

    def connectionLost(self, reason: Failure | None = None) -> None:
        """The node has closed it."""
        self._back.end()


class Near(Protocol):
    """The connection of a caller."""

    def __init__(self, line: "Proxy") -> None:
        self._line = line

    def connectionMade(self) -> None:
        """Connect to the node too."""
        line = self._line
        opens_at = line.clock.seconds() + 2 * line.there.delay
        self._there = Pipe(line.there, self.transport, None, opens_at)
        self._back = Pipe(line.back, None, self.transport, opens_at)
        far = HostnameEndpoint(line.clock, "127.0.0.1", line.target)
        connectProtocol(far, Far(self._there, self._back)).addErrback(lambda _: self._back.end())

    def dataReceived(self, data: bytes) -> None:
        """Carry what the caller says."""
        self._there.carry(data)

    def connectionLost(self, reason: Failure | None = None) -> None:
        """The caller has closed it."""
        self._there.end()


@frozen
class Proxy:
    """Carries connections to the port ``target`` of this machine."""

    clock: Any
    """The reactor."""
    target: int
    there: Direction
    back: Direction


class _Callers(Factory):
    noisy = False

    def __init__(self, line: Proxy) -> None:
        self._line = line

    def buildProtocol(self, address: object) -> Near:
        """A connection more."""
        return Near(self._line)


class _End(Protocol):
    """Notices the end of the input."""

    def __init__(self) -> None:
        self.ended: Deferred[None] = Deferred()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """It has ended."""
        self.ended.callback(None)


async def serve(reactor: Any, port: int, target: int, *, round_trip: float, mbits: float | None) -> None:
    """Carry connections from ``port`` to ``target``, both of this machine, until the input ends.

    ``round_trip`` in seconds, ``mbits`` in Mbit/s each way or None for no limit.
    """
    rate = None if mbits is None else mbits * 1e6 / 8
    there, back = (Direction(reactor, round_trip / 2, rate) for _ in range(2))
    listening = await TCP4ServerEndpoint(reactor, port, interface="127.0.0.1").listen(
        _Callers(Proxy(reactor, target, there, back))
    )
    end = _End()
    StandardIO(end)
    await end.ended
    await listening.stopListening()


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow_link", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("target", type=int)
    parser.add_argument("--round-trip", type=float, default=0.0, metavar="MILLISECONDS")
    parser.add_argument("--mbits", type=float, metavar="RATE", help="Mbit/s each way; no limit if left out")
    arguments = parser.parse_args()

    def run(reactor: Any) -> Deferred[None]:
        serving = serve(
            reactor, arguments.port, arguments.target, round_trip=arguments.round_trip / 1000, mbits=arguments.mbits
        )
        return Deferred.fromCoroutine(serving)

    react(run)


if __name__ == "__main__":
    main()
