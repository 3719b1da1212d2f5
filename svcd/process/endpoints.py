"""Where the node listens: ports below 1024, opened while the process may still be root's, and TLS on any of them.

`twistd --uid` gives up root's rights after `privilegedStartService` and before `startService` (twistd(1)). A node opens
its ports last, so those that only root may open are bound before, and accept connections once it listens on them.
"""

import socket
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from attrs import field, frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, execute
from twisted.internet.endpoints import TCP4ServerEndpoint, serverFromString
from twisted.internet.interfaces import IProtocolFactory, IStreamServerEndpoint
from twisted.protocols.tls import TLSMemoryBIOFactory
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.endpoint_description import EndpointDescription

PRIVILEGED: Final = range(1, 1024)
"""The ports that only root may open, by Linux's default (ip(7), ip_unprivileged_port_start)."""


class ServerEndpoints(Service):
    """Makes endpoints; those on ports below 1024 are bound by `privilegedStartService`."""

    def __init__(self, reactor: Any, endpoints: Iterable[str], *, privileged: Container[int] = PRIVILEGED) -> None:
        """``endpoints`` are descriptions, as in the configuration."""
        self._reactor = reactor
        self.described: Mapping[str, EndpointDescription] = {
            endpoint: EndpointDescription.parse(endpoint) for endpoint in endpoints
        }
        self._privileged = privileged
        self._bound: dict[str, socket.socket] = {}

    def privilegedStartService(self) -> None:
        """Bind the ports below 1024. One that cannot be bound is left to `listen`, whose error names it."""
        super().privilegedStartService()  # type: ignore[no-untyped-call]
        for name, description in self.described.items():
            if description.port is not None and description.port in self._privileged:
                with suppress(OSError):
                    self._bound[name] = _bind(description.interface, description.port)

    def stopService(self) -> None:
        """Close what was bound and never listened on."""
        super().stopService()  # type: ignore[no-untyped-call]
        while self._bound:
            self._bound.popitem()[1].close()

    def server(self, name: str, certificate: Any) -> Any:
        """The endpoint of the description ``name``; ``certificate`` is an IOpenSSLContextFactory, None without TLS."""
        description = self.described[name]
        plain: Any
        if name in self._bound:
            plain = _BoundEndpoint(self._reactor, self._bound.pop(name), description.backlog)
        elif description.kind == "ssl":
            port, interface = description.port, description.interface
            plain = TCP4ServerEndpoint(  # type: ignore[no-untyped-call]
                self._reactor, port, description.backlog, interface
            )
        else:
            plain = serverFromString(self._reactor, description.for_twisted[0])  # type: ignore[no-untyped-call]
        return plain if certificate is None else _TLSEndpoint(plain, certificate, self._reactor)


@implementer(IStreamServerEndpoint)
@frozen
class _BoundEndpoint:
    """Listens on a socket that has its address already."""

    reactor: Any
    bound: socket.socket
    backlog: int

    def listen(self, factory: IProtocolFactory) -> "Deferred[Any]":
        """Accept connections (twisted.internet.interfaces.IStreamServerEndpoint)."""
        return execute(self._listen, factory)

    def _listen(self, factory: IProtocolFactory) -> Any:
        # The reactor has a duplicate of the descriptor (IReactorSocket.adoptStreamPort).
        with self.bound:
            self.bound.listen(self.backlog)
            return self.reactor.adoptStreamPort(self.bound.fileno(), self.bound.family, factory)


@implementer(IStreamServerEndpoint)
@frozen
class _TLSEndpoint:
    """TLS on another endpoint; what reactor.listenSSL does on a port of TCP."""

    plain: Any
    certificate: Any = field(repr=False)
    reactor: Any = field(repr=False)

    def listen(self, factory: IProtocolFactory) -> "Deferred[Any]":
        """Accept connections (twisted.internet.interfaces.IStreamServerEndpoint)."""
        tls: Deferred[Any] = self.plain.listen(
            TLSMemoryBIOFactory(self.certificate, False, factory, clock=self.reactor)
        )
        return tls


def _bind(interface: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in interface else socket.AF_INET)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((interface, port))
    except OSError:
        bound.close()
        raise
    return bound
