"""A service that listens on an endpoint, and fails to start with one sentence where it cannot."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, cast

from twisted.application.service import Service
from twisted.internet import tcp
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.logger import Logger

from svcd.limits import IDLE_CONNECTIONS, limit
from svcd.process.sequential import CannotStart

ACCEPTED_AT_ONCE: Final = limit(
    32, "connections accepted in an iteration of the reactor", "connections", IDLE_CONNECTIONS
)
"""Connections that one port accepts in one iteration of the reactor."""


class Port(Protocol):
    """A listening port (twisted.internet.interfaces.IListeningPort)."""

    def getHost(self) -> IAddress:  # noqa: N802
        """The address that it listens on."""

    def stopListening(self) -> Deferred[None] | None:  # noqa: N802
        """Close the port."""


class StreamServerEndpoint(Protocol):
    """An endpoint to listen on (twisted.internet.interfaces.IStreamServerEndpoint)."""

    def listen(self, factory: IProtocolFactory, /) -> Deferred[Port]:
        """Listen on it."""


class ListenerService(Service):
    """Accepts connections on one endpoint from the end of its start to the beginning of its stop.

    Twisted's StreamServerEndpointService logs a port that is taken and lets the process run on without a listener.
    """

    _log = Logger()

    def __init__(
        self,
        endpoint: StreamServerEndpoint,
        factory: IProtocolFactory,
        *,
        description: str,
        drain: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make the service.

        Args:
            endpoint: the endpoint to listen on.
            factory: makes the protocols.
            description: the endpoint as the operator wrote it, for messages.
            drain: waits, for a bounded time, until the open connections have finished their requests.
        """
        self._endpoint = endpoint
        self._factory = factory
        self._description = description
        self._drain = drain
        self._port: Port | None = None
        self._closing: Deferred[None] | None = None

    @property
    def address(self) -> IAddress | None:
        """The address that it listens on, with the actual port where 0 was configured; None while it is closed."""
        return None if self._port is None else self._port.getHost()

    def startService(self) -> Deferred[None]:
        """Listen.

        Raises:
            CannotStart: the address is in use, or the system does not allow it.
        """
        super().startService()  # type: ignore[no-untyped-call]
        self._closing = None
        return Deferred.fromCoroutine(self._listen())

    def stop_accepting(self) -> None:
        """Close the port, and begin to drain the open connections; see `svcd.process.sequential.StopsAccepting`."""
        if self._closing is None:
            self._closing = Deferred.fromCoroutine(self._close())

    def stopService(self) -> Deferred[None]:
        """Close the port; the Deferred fires when the open connections have been drained."""
        super().stopService()  # type: ignore[no-untyped-call]
        self.stop_accepting()
        return cast("Deferred[None]", self._closing)

    async def _listen(self) -> None:
        try:
            self._port = await self._endpoint.listen(self._factory)
        except (CannotListenError, OSError) as error:
            reason = _reason(getattr(error, "socketError", error))
            raise CannotStart(f"cannot listen on {self._description}: {reason}") from error
        if isinstance(self._port, tcp.Port):
            _limit_accepts(self._port)
        self._log.info("listening on {endpoint}", endpoint=self._description)

    async def _close(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            await maybeDeferred(port.stopListening)
            if self._drain is not None:
                await self._drain()


def _limit_accepts(port: tcp.Port) -> None:
    """Let ``port`` accept at most ACCEPTED_AT_ONCE connections in one iteration of the reactor.

    In a flood Twisted accepts more and more in one iteration, and a refused connection is closed only in the next one.
    There is no public limit: doRead of Twisted 26.10.0 reads `numberAccepts` first, and adds 20 after a full round.
    """
    accept = port.doRead

    def accept_few() -> None:
        port.numberAccepts = min(port.numberAccepts, ACCEPTED_AT_ONCE)
        accept()  # type: ignore[no-untyped-call]

    port.doRead = accept_few  # type: ignore[method-assign]


def _reason(error: object) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text[:1].lower() + text[1:]
