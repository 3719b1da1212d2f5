"""Where the node listens, with TLS on any kind of endpoint."""

from typing import Any

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint, serverFromString
from twisted.internet.interfaces import IProtocolFactory, IStreamServerEndpoint
from twisted.protocols.tls import TLSMemoryBIOFactory
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.endpoint_description import EndpointDescription


def server_endpoint(reactor: Any, endpoint: str, certificate: Any) -> Any:
    """The endpoint of a description; ``certificate`` is an IOpenSSLContextFactory, None without TLS."""
    description = EndpointDescription.parse(endpoint)
    plain: Any
    if description.kind == "ssl":
        port, backlog, interface = description.port, description.backlog, description.interface
        plain = TCP4ServerEndpoint(reactor, port, backlog, interface)  # type: ignore[no-untyped-call]
    else:
        plain = serverFromString(reactor, description.for_twisted[0])  # type: ignore[no-untyped-call]
    return plain if certificate is None else _TLSEndpoint(plain, certificate, reactor)


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
