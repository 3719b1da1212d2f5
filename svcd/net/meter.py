"""A connection whose bytes are counted: what may arrive is bounded, and how far a transfer has come can be told."""

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

MAX_HEAD_BYTES: Final = 16 * 1024
"""Status line and headers, and every 1xx answer before them: a line of these costs far more than a piece of a body."""
_PIECE: Final = 16 * 1024
"""The longest TLS record."""
# struct tcp_info of Linux: 8 octets and 24 numbers of 32 bits, then the pacing rates; since Linux 4.1.
_TCP_INFO: Final = 11
_BYTES_ACKED: Final = struct.Struct("=120xQ")


class _Outgoing:
    """Writes to ``transport`` in pieces, each when the transport has room; the rest of a long body is never copied."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._waiting: deque[memoryview] = deque()
        self._registered = False
        self._paused = False
        self.written = 0

    @property
    def empty(self) -> bool:
        """Whether the transport has been given everything."""
        return not self._waiting

    def write(self, data: bytes) -> None:
        """Send ``data`` after all that is still waiting."""
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
    """Stands between HTTP and the transport: counts bytes, and closes a connection on which too many arrive."""

    transport: Any
    exceeded = False
    _left = 0
    _after_head = 0
    _received = 0
    _written_before = 0
    _acknowledged_before = 0

    def makeConnection(self, transport: Any) -> None:
        """Begin to count."""
        self._outgoing = _Outgoing(transport)
        super().makeConnection(transport)

    def expect_answer(self, max_bytes: int) -> None:
        """A request is being sent: allow an answer of ``max_bytes``, and count from 0."""
        self._left = min(max_bytes, MAX_HEAD_BYTES)
        self._after_head = max_bytes - self._left
        self._received = 0
        self._written_before = self._outgoing.written
        self._acknowledged_before = self._acknowledged() or 0

    def expect_body(self) -> None:
        """The head is here: allow the rest."""
        self._left += self._after_head
        self._after_head = 0

    @property
    def moved(self) -> int:
        """The bytes that were received, and sent and acknowledged, since the request.

        Where the system does not tell what was acknowledged, a byte counts as sent once the transport has it.
        """
        written = self._outgoing.written - self._written_before
        acknowledged = self._acknowledged()
        if acknowledged is None:
            return self._received + written
        # Never more than the request has: TLS alone can be kept busy for ever.
        return self._received + min(written, acknowledged - self._acknowledged_before)

    @property
    def sending(self) -> bool:
        """Whether a part of the request still waits for room in the transport."""
        return not self._outgoing.empty

    def write(self, data: bytes) -> None:
        """Send ``data``, a long one in pieces."""
        self._outgoing.write(data)

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Send all of ``data``."""
        self._outgoing.write(b"".join(data))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Ignore a request's body as a producer: it has nothing to pause, for it is written at once."""

    def unregisterProducer(self) -> None:
        """See :meth:`registerProducer`."""

    def dataReceived(self, data: bytes) -> None:
        """Hand on what is allowed."""
        # In pieces, for the first may complete the head and so allow the second.
        while data and self._left and not self.disconnecting:
            piece, data = data[: self._left], data[self._left :]
            self._left -= len(piece)
            self._received += len(piece)
            super().dataReceived(piece)
        if data and not self.disconnecting:
            self.exceeded = True
            self.abortConnection()

    def loseConnection(self) -> None:
        """Close at once: waiting for the other side's farewell, as TLS does, is waiting for ever if it keeps silent."""
        self.abortConnection()

    def abortConnection(self) -> None:
        """Close at once."""
        self.disconnecting = True
        self.transport.abortConnection()

    def _acknowledged(self) -> int | None:
        """The bytes that the other side's kernel has acknowledged on this connection; None where Linux is not asked.

        What the socket has taken says little: its buffer may hold megabytes, on a slow line a minute's worth.
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
        """Say nothing: Twisted would write a line into the log for every connection."""

    def doStop(self) -> None:
        """Say nothing."""
