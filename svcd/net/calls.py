"""What a call may cost, what comes back, and every way in which it fails."""

# mypy: allow-untyped-calls

import os
from collections.abc import Coroutine, Iterator, Mapping
from enum import Enum
from typing import Any, Final, Literal, TypeVar, cast

from attrs import frozen
from OpenSSL import SSL
from service_identity import VerificationError
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, ConnectingCancelledError, ConnectionClosed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from twisted.web.client import RequestGenerationFailed, RequestTransmissionFailed, ResponseFailed

from svcd.ports import Clock

Category = Literal["refused-address", "dns", "connect", "tls", "timeout", "too-large", "protocol"]

T = TypeVar("T")

FAILURES: Final = (
    ConnectError,
    ConnectingCancelledError,
    ConnectionClosed,
    RequestGenerationFailed,
    RequestTransmissionFailed,
    ResponseFailed,
)
"""What Twisted raises when a request or its answer is lost on the way."""


class Lane(Enum):
    """What a call to a peer is for: none waits for a connection that a call of another lane has."""

    ASK = "ask"
    FETCH = "fetch"
    TELL = "tell"
    URGENT = "urgent"


@frozen(kw_only=True)
class CallLimits:
    """What one call may cost."""

    seconds: float
    """For all of it: look-up, connection, TLS, request, answer."""
    max_bytes: int
    """How much may arrive in answer: a head of at most 16 KiB, and the body with the framing of its chunks."""


@frozen(kw_only=True)
class Reply:
    """What was answered. Redirects are not followed, and nothing is decoded."""

    status: int
    headers: Mapping[str, str]
    """``content-type`` and ``retry-after``, as far as they were sent."""
    body: bytes


class CallFailed(Exception):
    """A call has no answer; the text is one sentence with the host in it, never the path or anything that was sent."""

    def __init__(self, category: Category, sentence: str) -> None:
        super().__init__(sentence)
        self.category: Category = category


def within(seconds: float, clock: Clock, work: Coroutine[Deferred[Any], Any, T], late: str) -> Deferred[T]:
    """The outcome of ``work``, or CallFailed with the sentence ``late`` if it takes longer; it is then cancelled."""

    def in_time(outcome: T | Failure, _seconds: float) -> T | Failure:
        return Failure(CallFailed("timeout", late)) if isinstance(outcome, Failure) else outcome

    return Deferred.fromCoroutine(work).addTimeout(seconds, cast(IReactorTime, clock), in_time)


def explain(error: Exception, place: str) -> Exception:
    """What to raise instead of one of the FAILURES: CallFailed, or CancelledError for a call that was cancelled."""
    causes = list(_causes(error))
    if any(isinstance(cause, CancelledError | ConnectingCancelledError) for cause in causes):
        return CancelledError()
    for cause in causes:
        if isinstance(cause, VerificationError):
            return CallFailed("tls", f"{place} shows a certificate that is not for its name")
        if isinstance(cause, SSL.Error):
            return CallFailed("tls", f"TLS with {place} failed: {_tls_reason(cause)}")
        if isinstance(cause, ConnectError):
            return CallFailed("connect", f"{place} cannot be reached: {_connect_reason(cause)}")
    return CallFailed("protocol", f"{place} gave no whole HTTP answer")


def _causes(error: BaseException) -> Iterator[BaseException]:
    yield error
    for failure in getattr(error, "reasons", ()):
        yield from _causes(failure.value)


def _tls_reason(error: SSL.Error) -> str:
    """OpenSSL's own words, which hold nothing that the other side said."""
    entries = error.args[0] if error.args and isinstance(error.args[0], list) else []
    return entries[-1][-1] if entries else "the connection was closed"


def _connect_reason(error: ConnectError) -> str:
    number = getattr(error, "osError", None)
    return os.strerror(number).lower() if isinstance(number, int) else "no connection in time"
