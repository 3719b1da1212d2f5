"""HTTP calls: their limits, replies and failures."""

# mypy: allow-untyped-calls

import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
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

from svcd.interfaces import Clock, Timer

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
"""Twisted's exceptions for a request or response that is lost on the way."""

_CHECKS: Final = 4
"""Checks in a period: a stall is noticed after one period, or a quarter of one later."""


class CallKind(Enum):
    """The kinds of calls to a peer, each with connections of its own, so that none waits for one of another kind."""

    ASK = "ask"
    HEADERS = "headers"
    FETCH = "fetch"
    TELL = "tell"
    URGENT = "urgent"


@frozen(kw_only=True)
class CallLimits:
    """The limits on time and size of one call.

    With ``min_bytes`` 0 the whole call must end within ``seconds``: look-up, connection, TLS, request, response.
    Otherwise the whole call has no limit; instead each stage (the look-up or the wait for a free connection, the TCP
    connection, the transfer) must end within ``seconds``, and the transfer gets further periods of ``seconds`` as long
    as at least ``min_bytes`` bytes are moved in each. Received bytes count as they arrive, sent bytes when the other
    side has acknowledged them.
    """

    seconds: float
    max_bytes: int
    """The longest response: a head of at most 16 KiB, and the body with the framing of its chunks."""
    min_bytes: int = 0


@frozen(kw_only=True)
class Reply:
    """A response. Redirects are not followed, and nothing is decoded."""

    status: int
    headers: Mapping[str, str]
    """``content-type`` and ``retry-after``, where they were sent."""
    body: bytes


class CallFailed(Exception):
    """A call failed; the text is one sentence with the host in it, never the path or anything that was sent."""

    def __init__(self, category: Category, sentence: str) -> None:
        super().__init__(sentence)
        self.category: Category = category


class CallPostponed(Exception):
    """A call that may not be made at present; nothing was sent, and the other side is not to blame."""


def within(seconds: float, clock: Clock, work: Coroutine[Deferred[Any], Any, T], late: str) -> Deferred[T]:
    """Return the result of ``work``; after ``seconds`` cancel it and fail with CallFailed and the sentence ``late``."""

    def in_time(outcome: T | Failure, _seconds: float) -> T | Failure:
        return Failure(CallFailed("timeout", late)) if isinstance(outcome, Failure) else outcome

    return Deferred.fromCoroutine(work).addTimeout(seconds, cast(IReactorTime, clock), in_time)


class Progress:
    """Measures the bytes that one call moves, and cancels a call that moves fewer than ``limits`` demands."""

    def __init__(self, limits: CallLimits, clock: Clock, on_bytes: Callable[[int], None] | None = None) -> None:
        self._limits = limits
        self._clock = clock
        self._on_bytes = on_bytes
        self._measure: Callable[[], int] = _none_moved
        self._seen: deque[int] = deque([0], maxlen=_CHECKS + 1)
        self._timer: Timer | None = None
        self._running: Deferred[Any] = Deferred()
        self._stalled = False

    def watch(self, work: Coroutine[Deferred[Any], Any, T], origin: str) -> Deferred[T]:
        """Return the result of ``work``, a call to ``origin``; CallFailed("timeout") when a limit cancels it."""
        if not self._limits.min_bytes:
            late = f"{origin} did not answer within {self._limits.seconds:g} s"
            return within(self._limits.seconds, self._clock, work, late)
        self._timer = self._clock.callLater(self._slice, self._check)
        running = self._running = Deferred.fromCoroutine(work)
        return running.addBoth(self._ended, origin)

    def begin_stage(self, measure: Callable[[], int] | None = None) -> None:
        """Begin a new period; ``measure`` returns the bytes moved since now, and without it none count."""
        self._measure = measure or _none_moved
        self._seen = deque([0], maxlen=_CHECKS + 1)
        if self._timer is not None:
            self._timer.reset(self._slice)

    def body_received(self, count: int) -> None:
        """Report ``count`` further bytes of the response's body."""
        if self._on_bytes is not None:
            self._on_bytes(count)

    @property
    def _slice(self) -> float:
        return self._limits.seconds / _CHECKS

    def _check(self) -> None:
        self._seen.append(self._measure())
        if len(self._seen) > _CHECKS and self._seen[-1] - self._seen[0] < self._limits.min_bytes:
            self._timer = None
            self._stalled = True
            self._running.cancel()
        else:
            self._timer = self._clock.callLater(self._slice, self._check)

    def _ended(self, outcome: T | Failure, origin: str) -> T | Failure:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not (self._stalled and isinstance(outcome, Failure)):
            return outcome
        amount = _amount(self._limits.min_bytes)
        sentence = f"{origin} took and sent less than {amount} in {self._limits.seconds:g} s"
        return Failure(CallFailed("timeout", sentence))


def _none_moved() -> int:
    return 0


def _amount(count: int) -> str:
    return f"{count // 1024} KiB" if count % 1024 == 0 else f"{count} bytes"


def explain(error: Exception, origin: str) -> Exception:
    """Translate one of the FAILURES into CallFailed, or CancelledError for a call that was cancelled."""
    causes = list(_causes(error))
    if any(isinstance(cause, CancelledError | ConnectingCancelledError) for cause in causes):
        return CancelledError()
    for cause in causes:
        if isinstance(cause, VerificationError):
            return CallFailed("tls", f"{origin} shows a certificate that is not for its name")
        if isinstance(cause, SSL.Error):
            return CallFailed("tls", f"TLS with {origin} failed: {_tls_reason(cause)}")
        if isinstance(cause, ConnectError):
            return CallFailed("connect", f"{origin} cannot be reached: {_connect_reason(cause)}")
    return CallFailed("protocol", f"{origin} gave no whole HTTP answer")


def _causes(error: BaseException) -> Iterator[BaseException]:
    yield error
    for failure in getattr(error, "reasons", ()):
        yield from _causes(failure.value)


def _tls_reason(error: SSL.Error) -> str:
    """OpenSSL's own words, which contain nothing from the other side."""
    entries = error.args[0] if error.args and isinstance(error.args[0], list) else []
    return entries[-1][-1] if entries else "the connection was closed"


def _connect_reason(error: ConnectError) -> str:
    number = getattr(error, "osError", None)
    return os.strerror(number).lower() if isinstance(number, int) else "no connection in time"
