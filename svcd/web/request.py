"""A request as routes and limits see it, whichever parser has read it, and the counter of responses."""

from io import BytesIO
from typing import Protocol

from twisted.internet.interfaces import IAddress
from twisted.web.http_headers import Headers


class Recorder:
    """Counts the responses of a site; this base class does nothing.

    The methods are called in the reactor's thread, so they must be quick.
    """

    def answered(self, route: str, method: bytes, status: int, seconds: float | None) -> None:
        """A response was sent, ``seconds`` after the last byte of the request.

        ``route`` is the declared path with its placeholders, "" if no route matched; ``method`` is as the client sent
        it; ``seconds`` is None for input that never became a request.
        """

    def throttled(self, bucket: str) -> None:
        """A request was refused because its client exceeds a rate limit."""


class Answering(Protocol):
    """The connection of a request that is being answered."""

    def answer_within(self, seconds: float) -> None:
        """Allow the route ``seconds`` to answer, in addition to the time to read the response."""


class IncomingRequest(Protocol):
    """A request to a site."""

    method: bytes
    uri: bytes
    """The request target: path and query, still encoded."""
    route: str
    """The path of the route with its placeholders, which labels the metrics; "" without a route."""
    code: int
    """The status of its response."""
    began: float
    """When its last byte arrived, in the clock's seconds."""

    @property
    def client(self) -> IAddress:
        """The remote address of the connection."""

    @property
    def requestHeaders(self) -> Headers:  # noqa: N802
        """The request headers, which must not be changed."""

    @property
    def content(self) -> BytesIO | None:
        """The body."""

    @property
    def channel(self) -> Answering | None:
        """The connection; None once the client is gone."""

    @property
    def recorder(self) -> Recorder:
        """Counts the response."""
