"""A service that listens, waits until it does, and says in one sentence why it cannot."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from twisted.application.service import Service
from twisted.internet import tcp
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.logger import Logger

from svcd.process.sequential import CannotStart

ACCEPTED_AT_ONCE: Final = 32
"""Connections that one port accepts in a turn of the reactor."""


class Port(Protocol):
    """A port that listens (twisted.internet.interfaces.IListeningPort)."""

    def getHost(self) -> IAddress:  # noqa: N802
        """Where it listens."""

    def stopListening(self) -> Deferred[None] | None:  # noqa: N802
        """Accept no more."""


class ServerEndpoint(Protocol):
    """A place to listen (twisted.internet.interfaces.IStreamServerEndpoint)."""

    def listen(self, factory: IProtocolFactory, /) -> Deferred[Port]:
        """Listen there."""


class Listening(Service):
    """Accepts connections on one endpoint from the end of its start to the beginning of its stop.

    Twisted's StreamServerEndpointService logs a port that is taken and lets the process run on without a listener.
    """

    _log = Logger()

    def __init__(
        self,
        endpoint: ServerEndpoint,
        factory: IProtocolFactory,
        *,
        description: str,
        drain: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make the service.

        Args:
            endpoint: where to listen.
            factory: makes the protocols.
            description: the endpoint as the operator wrote it, for messages.
            drain: waits, for a bounded time, until the connections that are open have done their work.
        """
        self._endpoint = endpoint
        self._factory = factory
        self._description = description
        self._drain = drain
        self._port: Port | None = None

    @property
    def address(self) -> IAddress | None:
        """Where it listens (the port is known even if 0 was asked for); None while it does not."""
        return None if self._port is None else self._port.getHost()

    def startService(self) -> Deferred[None]:
        """Listen.

        Raises:
            CannotStart: somebody else listens there, or the system does not allow it.
        """
        super().startService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._listen())

    def stopService(self) -> Deferred[None]:
        """Accept no more; the Deferred fires when what is open has been drained."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._close())

    async def _listen(self) -> None:
        try:
            self._port = await self._endpoint.listen(self._factory)
        except (CannotListenError, OSError) as error:
            reason = _reason(getattr(error, "socketError", error))
            raise CannotStart(f"cannot listen on {self._description}: {reason}") from error
        if isinstance(self._port, tcp.Port):
            _accept_few(self._port)
        self._log.info("listening on {endpoint}", endpoint=self._description)

    async def _close(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            await maybeDeferred(port.stopListening)
            if self._drain is not None:
                await self._drain()


def _accept_few(port: tcp.Port) -> None:
    """Have ``port`` accept at most ACCEPTED_AT_ONCE connections in a turn of the reactor.

    Twisted accepts ever more of a flood in one turn, and none of them gives its descriptor back before the next.
    """
    accept = port.doRead

    def accept_few() -> None:
        port.numberAccepts = min(port.numberAccepts, ACCEPTED_AT_ONCE)
        accept()  # type: ignore[no-untyped-call]

    port.doRead = accept_few  # type: ignore[method-assign]


def _reason(error: object) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text[:1].lower() + text[1:]
