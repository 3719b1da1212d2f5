"""Connections that can only go to addresses that were checked, and that count what arrives on them."""

# Any below: mypy takes the first parameter of a zope interface's method for self, and does not see who provides what.
# mypy: allow-untyped-calls
# ruff: noqa: N802, N803

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from typing import Any, Final, Protocol, cast

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IProtocolFactory, IReactorTime, IStreamClientEndpoint
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.net.addresses import Address
from svcd.net.calls import CallFailed
from svcd.net.targets import Target
from svcd.net.trust import Trust
from svcd.ports import Clock

MAX_HEAD_BYTES: Final = 16 * 1024
"""Status line and headers, and every 1xx answer before them: a line of these costs far more than a piece of a body."""


class Dialler(Clock, Protocol):
    """A reactor that opens TCP connections (twisted.internet.interfaces.IReactorTCP)."""

    def connectTCP(
        self,
        host: str,
        port: int,
        factory: Any,
        timeout: float = 30,
        bindAddress: tuple[str, int] | None = None,
    ) -> object:
        """Connect ``factory``'s protocol to an address."""


class Meter(ProtocolWrapper):
    """Stands between HTTP and the transport, and closes a connection on which more arrives than was allowed."""

    transport: Any
    exceeded = False
    _left = 0
    _after_head = 0

    def expect_answer(self, max_bytes: int) -> None:
        """A request is being sent: allow an answer of ``max_bytes``."""
        self._left = min(max_bytes, MAX_HEAD_BYTES)
        self._after_head = max_bytes - self._left

    def expect_body(self) -> None:
        """The head is here: allow the rest."""
        self._left += self._after_head
        self._after_head = 0

    def dataReceived(self, data: bytes) -> None:
        """Hand on what is allowed."""
        # In pieces, for the first may complete the head and so allow the second.
        while data and self._left and not self.disconnecting:
            piece, data = data[: self._left], data[self._left :]
            self._left -= len(piece)
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


class _Metering(WrappingFactory[Meter]):
    protocol = Meter

    def doStart(self) -> None:
        """Say nothing: Twisted would write a line into the log for every connection."""

    def doStop(self) -> None:
        """Say nothing."""


@implementer(IStreamClientEndpoint)
class CheckedEndpoint:
    """Connects to the first of ``addresses`` that answers, and ever after to that one only."""

    def __init__(
        self, reactor: Dialler, target: Target, addresses: Sequence[Address], *, trust: Trust, seconds: float
    ) -> None:
        self.addresses = tuple(addresses)
        self._reactor = reactor
        self._target = target
        self._trust = trust
        self._seconds = seconds

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        """A Deferred of the protocol, whose transport is a Meter; fails with ConnectError or CallFailed."""
        return Deferred.fromCoroutine(self._connect(factory))

    async def _connect(self, factory: IProtocolFactory) -> Any:
        secured = self._security()
        failure: ConnectError = ConnectError()
        for address in self.addresses:
            try:
                meter = await secured(self._endpoint(address)).connect(_Metering(factory))
            except ConnectError as error:
                failure = error
            else:
                self.addresses = (address,)
                return meter.wrappedProtocol
        raise failure

    def _endpoint(self, address: Address) -> Any:
        kind = TCP4ClientEndpoint if isinstance(address, IPv4Address) else TCP6ClientEndpoint
        # Each gets its share, so that one which swallows packets does not use up the time of all.
        return kind(self._reactor, str(address), self._target.port, timeout=self._seconds / len(self.addresses))

    def _security(self) -> Callable[[Any], Any]:
        """What wraps an endpoint in TLS if the target demands it."""
        if self._target.scheme == "http":
            return lambda endpoint: endpoint
        try:
            creator: Any = self._trust.creatorForNetloc(self._target.host.encode("ascii"), self._target.port)
        except ValueError as error:
            raise CallFailed("tls", f"{self._target.host} is no name that a certificate can be for") from error
        return lambda endpoint: wrapClientTLS(creator, endpoint, clock=cast(IReactorTime, self._reactor))
