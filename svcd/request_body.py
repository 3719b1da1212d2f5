"""The body of a request in memory, for Twisted's client."""

# mypy: allow-untyped-calls
# ruff: noqa: N802

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer  # type: ignore[import-untyped]


@implementer(IBodyProducer)
class WholeBody:
    """A request body in memory, which is written at once.

    Twisted's client does not read while it writes a body in pieces, and would lose an early response (413, 503). The
    producer of treq needs the global reactor.
    """

    def __init__(self, body: bytes) -> None:
        self.length = len(body)
        self._body = body

    def startProducing(self, consumer: Any) -> Deferred[None]:
        """Write everything."""
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Do nothing: everything is written."""

    def resumeProducing(self) -> None:
        """Do nothing: everything is written."""

    def stopProducing(self) -> None:
        """Do nothing: everything is written."""
