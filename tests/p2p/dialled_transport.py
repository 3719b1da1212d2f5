"""The real transport over a network in memory: names are looked up, addresses are dialled, and every dial is noted."""

# ruff: noqa: N802, N815

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from attrs import frozen
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, UserError
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from svcd.net.addresses import Address, AddressPolicy
from svcd.net.http_client import PinnedClient
from svcd.net.targets import Endpoint, Rules
from svcd.net.trust import load_trust
from svcd.p2p.call_budget import CallBudget
from svcd.p2p.transport import PeerReply, PeerRequest, PinnedTransport
from tests.p2p.memory_transport import LATENCY, MemoryTransport, Responder
from tests.p2p.remote_node import RemoteNode

TRUST = load_trust()
Place = tuple[str, int]
"""An address and a port."""


@frozen
class Dial:
    """One attempt to connect to an address."""

    host: str
    port: int
    at: float


class MemoryConnection:
    """The transport of a connection to a place, where one request after the other is answered while anyone listens."""

    disconnecting = False

    def __init__(self, place: Place, listening: dict[Place, Responder | None], clock: Clock) -> None:
        self._place = place
        self._listening = listening
        self._clock = clock
        self._received = b""
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in lines[1:] if end)
        if not end or len(body) < int(fields.get(b"content-length", 0)):
            return
        method, path, _ = lines[0].decode().split(" ")
        self._received = b""
        request = PeerRequest(path=path, body=body if method == "POST" else None, max_bytes=0, seconds=0)
        if self._place not in self._listening:
            self.abortConnection()
            return
        responder = self._listening[self._place]
        answer = PeerReply(404, b"{}") if responder is None else responder.answer(request)
        if isinstance(answer, PeerReply):
            text = f"HTTP/1.1 {answer.status} X\r\nContent-Length: {len(answer.body)}\r\n\r\n".encode() + answer.body
            self._clock.callLater(LATENCY, self._deliver, text)

    def _deliver(self, text: bytes) -> None:
        if self.protocol is not None:
            self.protocol.dataReceived(text)

    def writeSequence(self, pieces: Sequence[bytes]) -> None:
        self.write(b"".join(pieces))

    def abortConnection(self) -> None:
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            self._clock.callLater(0, protocol.connectionLost, Failure(ConnectionDone()))

    loseConnection = abortConnection

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """Nothing is ever paused."""

    def unregisterProducer(self) -> None:
        """See above."""

    pauseProducing = resumeProducing = stopProducing = unregisterProducer

    def getPeer(self) -> IPv4Address:
        return IPv4Address("TCP", "192.0.2.9", 1)

    getHost = getPeer


class MemoryDialler:
    """A reactor that connects to the responders at addresses, and refuses every other connection."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds, self.callLater = clock.seconds, clock.callLater
        self.dials: list[Dial] = []
        self.listening: dict[Place, Responder | None] = {}
        """By host and port; None answers every request with 404, as a web server would."""

    def connectTCP(self, host: str, port: int, factory: Any, **_: object) -> object:
        self.dials.append(Dial(host, port, self.seconds()))
        connector = MemoryConnector((host, port), factory, self.listening, self._clock)
        factory.doStart()
        factory.startedConnecting(connector)
        return connector


class MemoryConnector:
    """A connection that is being opened."""

    def __init__(self, place: Place, factory: Any, listening: dict[Place, Responder | None], clock: Clock) -> None:
        self._place = place
        self._factory = factory
        self._listening = listening
        self._clock = clock
        self._attempt = clock.callLater(LATENCY, self._connect)

    def getDestination(self) -> Place:
        return self._place

    def stopConnecting(self) -> None:
        if self._attempt.active():
            self._attempt.cancel()
            self._factory.clientConnectionFailed(self, Failure(UserError()))

    def _connect(self) -> None:
        if self._place not in self._listening:
            self._factory.clientConnectionFailed(self, Failure(Refused()))
            return
        line = MemoryConnection(self._place, self._listening, self._clock)
        line.protocol = self._factory.buildProtocol(None)
        if line.protocol is not None:
            line.protocol.makeConnection(line)


class MemoryResolver:
    """A resolver that knows the addresses of names, which a test may change."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}

    def resolve(self, name: str) -> "Deferred[Sequence[Address]]":
        found = self.addresses.get(name)
        if found is None:
            return fail(OSError("no such name"))
        return succeed([ip_address(text) for text in found])


class DialledTransport(MemoryTransport):
    """Calls as the node's real transport does."""

    def __init__(self, clock: Clock, *, allow_private: bool = False) -> None:
        super().__init__(clock)
        self.dialler = MemoryDialler(clock)
        self.names = MemoryResolver()
        policy = AddressPolicy(allow_private=allow_private)
        caller = PinnedClient(self.dialler, resolver=self.names, policy=policy, trust=TRUST)
        rules = Rules.for_peers(allow_private=allow_private)
        self.pinned = PinnedTransport(caller, rules, CallBudget(clock))
        # Peers sets it on the transport that it has been given.
        self.pinned.answered_at = lambda endpoint: self.answered_at(endpoint)
        self.pinned.is_operators = lambda endpoint: self.is_operators(endpoint)

    def call(self, endpoint: str, request: PeerRequest) -> Deferred[PeerReply]:
        return self.pinned.call(endpoint, request)

    def address_of(self, endpoint: str) -> str:
        return self.pinned.address_of(endpoint)

    def forget(self, endpoint: str) -> None:
        self.pinned.forget(endpoint)

    def listen(self, remote: RemoteNode, address: str) -> None:
        """Let a remote node answer at the port of its endpoint on an address, where its name leads, if it has one."""
        endpoint = Endpoint(remote.endpoint)
        self.dialler.listening[address, endpoint.port] = remote
        if endpoint.address is None:
            self.names.addresses[endpoint.host] = [address]

    def dials(self, host: str, since: float = 0.0) -> int:
        """How often an address has been dialled."""
        return sum(dial.host == host and dial.at >= since for dial in self.dialler.dials)
