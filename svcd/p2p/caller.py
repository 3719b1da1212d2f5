"""How other nodes are called: a port that the real network and the simulated one both fill."""

from enum import StrEnum
from typing import Protocol

from attrs import frozen
from twisted.internet.defer import Deferred

from svcd.net.calls import Lane


class Trouble(StrEnum):
    """Why a call came to nothing."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    TOO_LARGE = "too-large"
    MALFORMED = "malformed"
    REFUSED = "refused"


class CallFailed(Exception):
    """A call to another node came to nothing; ``status`` is that of its answer, or 0 if there was none."""

    def __init__(self, trouble: Trouble, detail: str, status: int = 0) -> None:
        super().__init__(trouble, detail, status)
        self.trouble = trouble
        self.detail = detail
        self.status = status

    def __str__(self) -> str:
        return self.detail


@frozen
class Reply:
    """What came back."""

    status: int
    body: bytes


@frozen(kw_only=True)
class Request:
    """One call: ``path`` is a constant of ours with its query, ``body`` is JSON or None for GET."""

    path: str
    body: bytes | None = None
    max_bytes: int
    seconds: float
    lane: Lane = Lane.ASK


class Caller(Protocol):
    """Reaches other nodes."""

    def call(self, endpoint: str, request: Request) -> Deferred[Reply]:
        """The reply to ``request`` of whoever answers at ``endpoint``; fails with CallFailed."""

    def address_of(self, endpoint: str) -> str:
        """The IP address at which an endpoint is called at present; "" where no connection is kept to it."""

    def forget(self, endpoint: str) -> None:
        """Close the connections to an endpoint that is not needed for now."""
