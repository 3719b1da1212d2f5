"""How requests leave the process: over TCP, or through the Unix socket of a node on this computer."""

# Twisted's web client is not annotated, and its interfaces have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N802

from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer
from zope.interface import implementer  # type: ignore[import-untyped]


def public_agent(reactor: Any) -> Any:
    """An IAgent that connects over TCP, with TLS for https."""
    return Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False))


def operator_agent(reactor: Any, socket: str) -> Any:
    """An IAgent that connects to the Unix socket at the path ``socket``, whatever the URL."""
    pool = HTTPConnectionPool(reactor, persistent=False)
    return Agent.usingEndpointFactory(reactor, _OneSocket(reactor, socket), pool)


@implementer(IBodyProducer)
class WholeBody:
    """A request's body that is written at once: it is small, and treq's own producer needs the global reactor."""

    def __init__(self, body: bytes) -> None:
        self.length = len(body)
        self._body = body

    def startProducing(self, consumer: Any) -> "Deferred[None]":
        """Write everything."""
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Nothing is left to pause."""

    def resumeProducing(self) -> None:
        """Nothing is left to resume."""

    def stopProducing(self) -> None:
        """Nothing is left to stop."""


@implementer(IAgentEndpointFactory)
@frozen
class _OneSocket:
    reactor: Any
    path: str

    def endpointForURI(self, _uri: URI) -> UNIXClientEndpoint:
        return UNIXClientEndpoint(self.reactor, self.path)
