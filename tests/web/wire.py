"""A TCP connection in memory: the server's end behaves as Twisted's, the client's end is driven by the test."""

import json
from collections import Counter
from contextlib import suppress
from typing import Any

from attrs import define, field, frozen
from OpenSSL import SSL
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import (
    IAddress,
    IHalfCloseableProtocol,
    IPushProducer,
    IStreamServerEndpoint,
    ITCPTransport,
)
from twisted.protocols.haproxy import proxyEndpoint
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from svcd.web.site import Site

# Transports have names of Twisted's kind.
# ruff: noqa: N802

SEND_BUFFER = 64 * 1024
"""Twisted pauses the producer when more than this is unsent."""

SERVER = IPv4Address("TCP", "192.0.2.1", 8645)


@frozen
class Response:
    """One answer as a client sees it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json", self.headers
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The sentence of an error, which may have members that its route declares."""
        answer = self.json
        assert answer.keys() >= {"ok", "error"}
        assert answer["ok"] is False
        assert isinstance(answer["error"], str)
        return str(answer["error"])


def split_responses(data: bytes, *, head: bool = False) -> list[Response]:
    """All answers in ``data``, which must end where an answer ends; ``head``: they are answers to HEAD."""
    responses = []
    at = 0
    while at < len(data):
        end = data.find(b"\r\n\r\n", at)
        assert end != -1, f"headers without an end: {data[at:]!r}"
        first, *lines = data[at:end].decode("ascii").split("\r\n")
        at = end + 4
        version, status, _ = first.split(" ", 2)
        assert version in {"HTTP/1.1", "HTTP/1.0"}
        headers: dict[str, str] = {}
        for line in lines:
            name, value = line.split(": ", 1)
            assert name.lower() not in headers, f"{name} is sent twice"
            headers[name.lower()] = value
        if status == "100":
            continue
        size = 0 if head or status in ("204", "304") else int(headers["content-length"])
        assert len(data) >= at + size, "the body is cut off"
        responses.append(Response(int(status), headers, data[at : at + size]))
        at += size
    return responses


@implementer(ITCPTransport, IPushProducer)
class Wire:
    """One connection to ``site`` from ``peer``. A client that ``reads`` takes what is sent at once."""

    def __init__(self, site: Site | Any, peer: IAddress | str = "203.0.113.9", *, reads: bool = True) -> None:
        self._peer = IPv4Address("TCP", peer, 50_000) if isinstance(peer, str) else peer
        self._reads = reads
        self._unsent = bytearray()
        self._producer: Any = None
        self._held = b""
        self._ended = False
        self.paused = False
        self.received = bytearray()
        self.disconnecting = False
        self.saw_end = False
        self.open = True
        self.protocol: Any = site.buildProtocol(self._peer)
        self.protocol.makeConnection(self)

    # The client's end

    def send(self, data: bytes) -> "Wire":
        """Send bytes; the server reads them unless it has stopped reading."""
        self._held += data
        while self._held and self.open and not self.paused:
            data, self._held = self._held, b""
            self.protocol.dataReceived(data)
        if self._ended and self.open and not self._held and not self.paused and not self.disconnecting:
            half = IHalfCloseableProtocol(self.protocol, None)
            # As twisted.internet.tcp.Connection does.
            if half is None:
                self.close()
            else:
                half.readConnectionLost()
        return self

    def read(self) -> None:
        """Take everything that is unsent, as often as there is more."""
        self.read_once()
        while self._unsent and self.open:
            self.read_once()

    def read_once(self) -> None:
        """Take what is unsent, and leave what the server sends then."""
        if self._unsent and self.open:
            self.received += self._unsent
            self._unsent.clear()
            if self._producer is not None:
                self._producer.resumeProducing()
        self._close_if_done()
        self.send(b"")

    def end(self) -> "Wire":
        """The client ends its half: it sends no more, and goes on reading."""
        self._ended = True
        return self.send(b"")

    def close(self) -> None:
        """The connection is lost."""
        self._lose(ConnectionDone())

    def responses(self, *, head: bool = False) -> list[Response]:
        return split_responses(bytes(self.received), head=head)

    def response(self, *, head: bool = False) -> Response:
        (response,) = self.responses(head=head)
        return response

    @property
    def unsent(self) -> int:
        """How many bytes the server holds for the client."""
        return len(self._unsent)

    # The server's end

    def write(self, data: bytes) -> None:
        if not self.open:
            return
        assert not self.saw_end, "the server writes after it has ended its half"
        if self._reads:
            self.received += data
            return
        self._unsent += data
        if self._producer is not None and len(self._unsent) > SEND_BUFFER:
            self._producer.pauseProducing()

    def writeSequence(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def loseConnection(self) -> None:
        self.disconnecting = True
        self._close_if_done()

    def loseWriteConnection(self) -> None:
        self.saw_end = True

    def abortConnection(self) -> None:
        self._lose(ConnectionAborted())

    def registerProducer(self, producer: Any, _streaming: bool) -> None:
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None
        self._close_if_done()

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def stopProducing(self) -> None:
        self.loseConnection()

    def getPeer(self) -> IAddress:
        return self._peer

    def getHost(self) -> IAddress:
        return SERVER

    def setTcpNoDelay(self, _enabled: bool) -> None:
        pass

    def _close_if_done(self) -> None:
        if self.disconnecting and not self._unsent and self._producer is None:
            self._lose(ConnectionDone())

    def _lose(self, reason: Exception) -> None:
        if self.open:
            self.open = False
            self.saw_end = True
            self.protocol.connectionLost(Failure(reason))


class _LaterWire(Wire):
    """A connection whose end the protocol hears of in the next turn of the reactor, as TLS must."""

    def __init__(self, factory: Any, peer: str, clock: Any) -> None:
        self._clock = clock
        super().__init__(factory, peer)

    def _lose(self, reason: Exception) -> None:
        self._clock.callLater(0, super()._lose, reason)


class SecureWire:
    """A connection over TLS to ``site``: what :class:`Wire` is to plain TCP, for a client that takes what is sent."""

    def __init__(self, site: Site, certificate: Any, clock: Any, peer: str = "203.0.113.9") -> None:
        self._clock = clock
        self._wire = _LaterWire(TLSMemoryBIOFactory(certificate, False, site, clock=clock), peer, clock)
        self._taken = 0
        self._client = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
        self._client.set_connect_state()
        self.received = bytearray()
        self.unsent = 0
        self._pump()

    @property
    def open(self) -> bool:
        return self._wire.open

    @property
    def saw_end(self) -> bool:
        return self._wire.saw_end

    @property
    def disconnecting(self) -> bool:
        return self._wire.disconnecting

    def send(self, data: bytes) -> "SecureWire":
        """Send bytes, encrypted."""
        if self.open and data:
            with suppress(SSL.Error):  # The server may have ended the connection.
                self._client.sendall(data)
        return self._pump()

    def read(self) -> None:
        """Take everything that has been sent."""
        self._pump()

    def end(self) -> "SecureWire":
        """The client sends no more (close_notify)."""
        with suppress(SSL.Error):
            self._client.shutdown()
        return self._pump()

    def close(self) -> None:
        """The connection is lost."""
        self._wire.close()
        self._pump()

    def response(self) -> Response:
        (response,) = split_responses(bytes(self.received))
        return response

    def _pump(self) -> "SecureWire":
        """Let both sides read until neither has anything more to say."""
        moved = True
        while moved:
            # The server gathers small writes until the next turn of the reactor.
            self._clock.advance(0)
            moved = False
            with suppress(SSL.WantReadError, SSL.ZeroReturnError, SSL.SysCallError):
                self._client.do_handshake()
            with suppress(SSL.WantReadError):
                self._wire.send(self._client.bio_read(2**20))
                moved = True
            came, self._taken = bytes(self._wire.received[self._taken :]), len(self._wire.received)
            if came:
                self._client.bio_write(came)
                moved = True
            with suppress(SSL.WantReadError, SSL.ZeroReturnError, SSL.SysCallError):
                while True:
                    self.received += self._client.recv(2**16)
        return self


@implementer(IStreamServerEndpoint)
@define
class KeptFactory:
    """An endpoint that keeps the factory which is to listen on it."""

    factory: Any = None

    def listen(self, factory: Any) -> "Deferred[None]":
        self.factory = factory
        return succeed(None)


def behind_haproxy(site: Site, peer: str) -> Wire:
    """A connection of ``peer`` to an endpoint ``haproxy:``, whose proxy is at another address."""
    endpoint = KeptFactory()
    proxyEndpoint(endpoint).listen(site)
    return Wire(endpoint.factory, "192.0.2.7").send(b"PROXY TCP4 %b 192.0.2.1 50000 8645\r\n" % peer.encode())


@define
class Recording:
    """A site's recorder that keeps what it is told."""

    answers: list[tuple[str, bytes, int, float | None]] = field(factory=list)
    statuses: Counter[int] = field(factory=Counter)
    """How many responses had which status."""
    buckets: list[str] = field(factory=list)

    def answered(self, route: str, method: bytes, status: int, seconds: float | None) -> None:
        self.answers.append((route, method, status, seconds))
        self.statuses[status] += 1

    def throttled(self, bucket: str) -> None:
        self.buckets.append(bucket)
