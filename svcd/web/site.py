"""A site that enforces the limits of its clients and answers every error in JSON (docs/http.md)."""

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N802, N815

from typing import Any

from twisted.internet import protocol
from twisted.internet.interfaces import IAddress

from svcd.web.channel import Channel
from svcd.web.site_state import SiteState
from svcd.web.slow_path import Request


class RefusedConnection(protocol.Protocol):
    """The server's end of a connection above the limits."""

    transport: Any

    def connectionMade(self) -> None:
        """Close."""
        self.transport.loseConnection()


class Site(SiteState):
    """The factory of HTTP connections to one resource tree."""

    protocol = Channel  # type: ignore[assignment]
    requestFactory = Request

    def acceptableProtocols(self) -> list[bytes]:
        """HTTP/1.1 only, over TLS too: the limits are those of :class:`svcd.web.channel.Channel`."""
        return [b"http/1.1"]

    def buildProtocol(self, addr: IAddress | None) -> Channel | RefusedConnection:  # type: ignore[override]
        """The server's end of a connection from ``addr``, or one that closes it at once."""
        group = self.clients.of_connection(addr)
        if self.draining or not self.connections.admit(group):
            # Not None, which a TLS endpoint takes for a protocol.
            return RefusedConnection()
        channel: Channel = super().buildProtocol(addr)
        channel.group = group
        return channel
