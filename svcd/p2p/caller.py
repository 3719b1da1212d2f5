"""How other nodes are called: a port that the real network and the simulated one both fill."""

from enum import StrEnum
from typing import Final, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred

from svcd.net.calls import Lane

_ENOUGH: Final = {429, 503}
"""Statuses of a node that has had enough for now: too many requests, not at present."""
SHORTEST_REST: Final = 1.0
LONGEST_REST: Final = 30.0
"""However long whoever has had enough asks us to wait."""


class Trouble(StrEnum):
    """Why a call came to nothing."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    TOO_LARGE = "too-large"
    MALFORMED = "malformed"
    REFUSED = "refused"


class CallFailed(Exception):
    """A call to another node came to nothing; ``status`` is that of its answer, or 0 if there was none.

    ``retry_after`` are the seconds after which it wants to be asked again, 0.0 where it does not say.
    """

    def __init__(self, trouble: Trouble, detail: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(trouble, detail, status, retry_after)
        self.trouble = trouble
        self.detail = detail
        self.status = status
        self._retry_after = retry_after

    @property
    def rest(self) -> float:
        """For how many seconds to leave alone a node that has had enough for now; 0.0 if that is not why."""
        return min(max(self._retry_after, SHORTEST_REST), LONGEST_REST) if self.status in _ENOUGH else 0.0

    def __str__(self) -> str:
        return self.detail


@frozen
class Reply:
    """What came back."""

    status: int
    body: bytes
    retry_after: float = 0.0
    """Seconds after which to ask again, as it was answered; 0.0 where it was not."""


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
