"""A transport wrapper that counts bytes: it bounds what may arrive, and measures the progress of a transfer."""

# Any below: mypy takes the first parameter of a zope interface's method for self, and does not see who provides what.
# mypy: allow-untyped-calls
# ruff: noqa: N802

import struct
import sys
from collections import deque
from collections.abc import Iterable
from socket import IPPROTO_TCP
from typing import Any, Final

from twisted.protocols.policies import ProtocolWrapper, WrappingFactory

from svcd.limits import ENDLESS_ANSWER, limit

MAX_HEAD_BYTES: Final = limit(16 * 1024, "headers of a response to the node", "bytes", ENDLESS_ANSWER)
"""Status line, headers, and 1xx responses before them; a header costs far more memory than as many bytes of a body."""

_PIECE: Final = 16 * 1024
"""The longest TLS record."""
# struct tcp_info of Linux: 8 octets and 24 numbers of 32 bits, then the pacing rates; since Linux 4.1.
_TCP_INFO: Final = 11
_BYTES_ACKED: Final = struct.Struct("=120xQ")


class _Outgoing:
    """Writes to ``transport`` in pieces, each when the transport has room; a long body is never copied whole."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._waiting: deque[memoryview] = deque()
        self._registered = False
        self._paused = False
        self.written = 0

    @property
    def empty(self) -> bool:
        """Whether everything has been written to the transport."""
        return not self._waiting

    def write(self, data: bytes) -> None:
        """Write ``data`` behind everything that is still queued."""
        self._waiting.append(memoryview(data))
        if len(data) > _PIECE and not self._registered:
            self._registered = True
            self._transport.registerProducer(self, True)
        self._feed()

    def pauseProducing(self) -> None:
        """The transport is full."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The transport has room."""
        self._paused = False
        self._feed()

    def stopProducing(self) -> None:
        """The connection is gone."""
        self._waiting.clear()

    def _feed(self) -> None:
        while self._waiting and not self._paused:
            data = self._waiting.popleft()
            if len(data) > _PIECE:
                self._waiting.appendleft(data[_PIECE:])
            piece = bytes(data[:_PIECE])
            self.written += len(piece)
            self._transport.write(piece)
        if self._registered and not self._waiting:
            self._registered = self._paused = False
            self._transport.unregisterProducer()


class Meter(ProtocolWrapper):
    """Wraps the transport of an HTTP connection: counts bytes, and closes the connection when too many arrive."""

    transport: Any
    exceeded = False
    _remaining = 0
    _after_head = 0
    _received = 0
    _written_before = 0
    _acknowledged_before = 0

    def makeConnection(self, transport: Any) -> None:
        """Start counting."""
        self._outgoing = _Outgoing(transport)
        super().makeConnection(transport)

    def expect_answer(self, max_bytes: int) -> None:
        """Begin a request: allow a response of ``max_bytes``, and count from 0."""
        self._remaining = min(max_bytes, MAX_HEAD_BYTES)
        self._after_head = max_bytes - self._remaining
        self._received = 0
        self._written_before = self._outgoing.written
        self._acknowledged_before = self._acknowledged() or 0

    def expect_body(self) -> None:
        """The head has arrived: allow the rest."""
        self._remaining += self._after_head
        self._after_head = 0

    @property
    def moved(self) -> int:
        """The bytes received, and those sent and acknowledged, since the request began.

        Where the system does not report acknowledgements, a byte counts as sent once the transport has it.
        """
        written = self._outgoing.written - self._written_before
        acknowledged = self._acknowledged()
        if acknowledged is None:
            return self._received + written
        # Never more than the request has: a peer could keep TLS itself busy for ever.
        return self._received + min(written, acknowledged - self._acknowledged_before)

    @property
    def sending(self) -> bool:
        """Whether part of the request still waits for room in the transport."""
        return not self._outgoing.empty

    def write(self, data: bytes) -> None:
        """Send ``data``, a long one in pieces."""
        self._outgoing.write(data)

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Send all of ``data``."""
        self._outgoing.write(b"".join(data))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Do nothing: the request's body is written at once, so there is nothing to pause."""

    def unregisterProducer(self) -> None:
        """See :meth:`registerProducer`."""

    def dataReceived(self, data: bytes) -> None:
        """Pass on what is allowed."""
        # In pieces: the first may complete the head, which allows the second.
        while data and self._remaining and not self.disconnecting:
            piece, data = data[: self._remaining], data[self._remaining :]
            self._remaining -= len(piece)
            self._received += len(piece)
            super().dataReceived(piece)
        if data and not self.disconnecting:
            self.exceeded = True
            self.abortConnection()

    def loseConnection(self) -> None:
        """Close at once: TLS would wait for the other side's close_notify, for ever if that keeps silent."""
        self.abortConnection()

    def abortConnection(self) -> None:
        """Close at once."""
        self.disconnecting = True
        self.transport.abortConnection()

    def _acknowledged(self) -> int | None:
        """The bytes that the other side's kernel has acknowledged on this connection; None if it does not report them.

        The bytes accepted by the socket say little: its buffer may hold megabytes, a minute's worth on a slow line.
        """
        transport = self.transport
        while isinstance(transport, ProtocolWrapper):
            transport = transport.transport
        if sys.platform != "linux" or not hasattr(transport, "getHandle"):
            return None
        try:
            info = transport.getHandle().getsockopt(IPPROTO_TCP, _TCP_INFO, _BYTES_ACKED.size)
        except (AttributeError, OSError):
            return None  # Twisted has dropped the socket, or the kernel has closed it.
        count: int = _BYTES_ACKED.unpack(info)[0] if len(info) == _BYTES_ACKED.size else 0
        return count


class Metering(WrappingFactory[Meter]):
    """Makes a Meter for every connection."""

    protocol = Meter

    def doStart(self) -> None:
        """Do not log: Twisted would write a line for every connection."""

    def doStop(self) -> None:
        """Do not log."""
