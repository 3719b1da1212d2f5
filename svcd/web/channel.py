"""One HTTP connection with absolute deadlines, a cap on bodies while they arrive, and JSON for what is malformed.

Twisted's own channel has an idle time-out only, which a client that drips a byte now and then never meets, and stores a
body before anybody is asked about it. Deadlines here cost one timer per connection, not several per request.
"""

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N802

from collections.abc import Callable
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import define, field
from twisted.internet.interfaces import IHalfCloseableProtocol, ISSLTransport, ITCPTransport
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.http_headers import Headers
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.ports import Clock, Timer
from svcd.web.answers import rendered_error, written_out
from svcd.web.connections import AHEAD_BYTES
from svcd.web.errors import HttpError, too_late

if TYPE_CHECKING:
    from svcd.web.fast_lane import FastRequest
    from svcd.web.request import Request
    from svcd.web.site import Site

DISCARDED_BYTES: Final = 64 * 1024
"""How much is read and thrown away after a refusal, so that a client in the middle of sending still gets the answer."""
_LENGTH_DIGITS: Final = 18


class Phase(Enum):
    """Whose turn it is on a connection."""

    IDLE = "nothing of a request has been looked at"
    HEADERS = "a request's first byte has arrived"
    BODY = "its headers have arrived"
    ANSWERING = "all of it has arrived"
    CLOSING = "nothing more is read"


@define
class Deadline:
    """Calls ``passed`` when the time that was set last is over.

    The timer never rings later than the deadline of the moment, and if it rings early it is set again.
    """

    clock: Clock
    passed: Callable[[], object]
    _at: float = field(default=0.0, init=False)
    _latest: float = field(default=inf, init=False)
    _timer: Timer | None = field(default=None, init=False)

    def set(self, seconds: float) -> None:
        """Let it be in so many seconds, at once if that is not positive, and no later than its bound."""
        now = self.clock.seconds()
        self._at = min(now + seconds, self._latest)
        left = max(self._at - now, 0.0)
        if self._timer is None:
            self._timer = self.clock.callLater(left, self._ring)
        elif self._timer.getTime() > self._at:
            self._timer.reset(left)

    def bound(self, seconds: float) -> None:
        """Let what is set, and whatever is set from now on, be no later than in so many seconds; the earliest holds."""
        now = self.clock.seconds()
        self._latest = min(self._latest, now + seconds)
        if self._timer is not None:
            self.set(self._at - now)

    def cancel(self) -> None:
        """Let it never pass; nothing happens if none is set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        left = self._at - self.clock.seconds()
        if left > 0:
            self._timer = self.clock.callLater(left, self._ring)
        else:
            self.passed()


@implementer(IHalfCloseableProtocol)
class Channel(HTTPChannel):
    """The server's end of one connection; :class:`svcd.web.site.Site` builds it."""

    site: "Site"
    group: str | None = None
    transport: Any

    def __init__(self) -> None:
        super().__init__()
        self._phase = Phase.IDLE
        self._started = 0.0
        self._line = b""
        self._cap = 0
        self._client: str | None = None
        self._body_bytes = 0
        self._discarded = 0
        self._client_is_slow = False
        self._answered: Request | FastRequest | None = None
        self._fast: FastRequest | None = None
        self._ahead = b""
        self._client_has_ended = False

    # What the transport tells

    def connectionMade(self) -> None:
        """Count the connection and start the clock."""
        super().connectionMade()
        # Klein asks for both on every request, and the answers are a system call and an adapter away.
        self._host = self.transport.getHost()
        self._peer: Any = None
        self._is_secure = bool(ISSLTransport.providedBy(self.transport))
        self._deadline = Deadline(self.site.clock, self._is_over)
        self.site.connections.add(self)
        self._enter(Phase.IDLE, self.site.limits.header_seconds)

    def getHost(self) -> Any:
        """Our address."""
        return self._host

    def getPeer(self) -> Any:
        """The client's address, or that of a proxy in front of it; once bytes have come it is known."""
        if self._peer is None:
            self._peer = self.transport.getPeer()
        return self._peer

    def isSecure(self) -> bool:
        """Whether this is TLS."""
        return self._is_secure

    def dataReceived(self, data: bytes) -> None:
        """Note the first byte of a request and let Twisted parse, unless others have their turn first."""
        if self.paused:
            self._ahead += data
            if len(self._ahead) > AHEAD_BYTES:
                self.transport.pauseProducing()
            return
        if self._phase is Phase.IDLE:
            if self.site.fast_lane is not None and self.site.fast_lane.take(self, data):
                return
            self._begin()
        super().dataReceived(data)

    def readConnectionLost(self) -> None:
        """The client has ended its half: what came whole is answered as far as that is soon done."""
        # Somebody who is gone altogether looks the same until an answer is sent, and reads for nobody are given up.
        self._client_has_ended = True
        self._deadline.bound(self.site.limits.close_seconds)
        if self._phase is Phase.CLOSING:
            super().loseConnection()
        self._close_if_ended()

    def writeConnectionLost(self) -> None:
        """We have ended our half."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Give back what the connection held."""
        self._phase = Phase.CLOSING
        self._forget_body()
        self._deadline.cancel()
        self.site.turns.forget(self)
        self.site.connections.remove(self)
        if self._fast is not None:
            self._fast.connection_lost()
        super().connectionLost(reason)

    def pauseProducing(self) -> None:
        """More is unsent than the transport likes to hold."""
        self._client_is_slow = True
        if self._fast is None:
            super().pauseProducing()

    def resumeProducing(self) -> None:
        """All is sent: the next pipelined request may be answered."""
        self._client_is_slow = False
        super().resumeProducing()
        answered, self._answered = self._answered, None
        if answered is not None:
            self.requestDone(answered)

    # What the parser of Twisted tells

    def lineReceived(self, line: bytes) -> None:
        """Remember the line, for it may be what is malformed."""
        self._line = line
        super().lineReceived(line)

    def lineLengthExceeded(self, line: bytes) -> None:
        """Refuse a line that is longer than all headers may be."""
        self._line = line[: self.MAX_LENGTH]
        self._respondToBadRequestAndDisconnect()

    def headerReceived(self, line: bytes) -> bool:
        """Refuse an absurd Content-Length; Twisted checks the rest."""
        # int() of thousands of digits raises, and Twisted would drop the connection with a traceback in the log.
        if len(line) > 16 + _LENGTH_DIGITS and line[:15].lower() == b"content-length:" and line[15:].strip().isdigit():
            self.refuse(HttpError(413, f"a Content-Length may have at most {_LENGTH_DIGITS} digits"))
            return False
        return bool(super().headerReceived(line))

    def allHeadersReceived(self) -> None:
        """Refuse a declared body over the cap, before ``100 Continue`` invites it."""
        if self.length != 0:
            path = cast(bytes, self._path).partition(b"?")[0]
            self._cap = self.site.limits.body_caps(self._command, path)
            self._client = self.site.clients.of_request(self.requests[-1])
            if self.length is not None and self.length > self._cap:
                self._refuse_body()
                return
            self._enter(Phase.BODY, self._started + self.site.limits.request_seconds - self.site.clock.seconds())
        super().allHeadersReceived()

    def body_arrives(self, size: int) -> bool:
        """Whether ``size`` more bytes of body may be stored; if not, the request has been refused."""
        if self._phase is Phase.CLOSING:
            return False
        if self._body_bytes + size > self._cap:
            self._refuse_body()
            return False
        self._body_bytes += size
        return self.site.bodies.arrives(self, self._client, size)

    def rawDataReceived(self, data: bytes) -> None:
        """Refuse a body that its request does not take; throw away what comes after the end, up to a bound."""
        if self._phase is not Phase.CLOSING:
            try:
                super().rawDataReceived(data)
            except HttpError as error:
                self.refuse(error)
            return
        self._discarded += len(data)
        if self._discarded > DISCARDED_BYTES:
            self.transport.pauseProducing()

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Headers) -> None:
        """Start the time to take the answer; announce the end of the connection while the site drains."""
        if self._phase is Phase.ANSWERING:
            self._enter(Phase.ANSWERING, self.site.limits.answer_seconds)
        if self.site.draining:
            headers.setRawHeaders(b"Connection", [b"close"])
        super().writeHeaders(version, code, reason, headers)

    def allContentReceived(self) -> None:
        """It is our turn; nothing is asked if the request was refused meanwhile."""
        if self._phase is Phase.CLOSING:
            return
        self._enter(Phase.ANSWERING, self.site.limits.answer_seconds)
        self.site.bodies.is_complete(self)
        self.site.connections.is_served(self)
        super().allContentReceived()

    def answer_within(self, seconds: float) -> None:
        """Wait ``seconds`` for the route of the request to answer before the time to take its answer starts.

        The deadline of the connection so is always later than that of the route, whose 503 reaches the client.
        """
        if self._phase is Phase.ANSWERING:
            self._enter(Phase.ANSWERING, seconds + self.site.limits.answer_seconds)
            self.site.connections.is_served(self)

    # The fast lane

    def begin_fast(self, request: "FastRequest", size: int, ahead: bytes) -> bool:
        """Begin a request that has come whole, with a body of ``size`` bytes, and ``ahead`` what came after it.

        False, with nothing done, if the body is too large, or another one had to give way to it.
        """
        if size:
            site, client = self.site, self.site.clients.of_request(request)
            if size > site.limits.body_caps(request.method, request.path) or not site.bodies.has_room(client, size):
                return False
            site.bodies.arrives(self, client, size)
            site.bodies.is_complete(self)
        self._phase, self._fast = Phase.ANSWERING, request
        self.paused, self._ahead = True, ahead
        return True

    def send(self, answer: bytes) -> None:
        """Write a whole answer; the time to take it starts."""
        self.transport.write(answer)
        if self._client_is_slow:
            self._enter(Phase.ANSWERING, self.site.limits.answer_seconds)

    def requestDone(self, request: "Request | FastRequest") -> None:
        """It is the client's turn, once it has taken the answer."""
        self._forget_body()
        if self._client_is_slow:
            # The next pipelined request would be answered into the same full buffer, and so on without end.
            self._answered = request
            self.site.connections.takes(self, request.sentLength)
            return
        if self.site.draining:
            self.persistent = 0
        self._enter(Phase.IDLE, self.site.limits.idle_seconds)
        self.site.connections.waits(self)
        # What has come of the next requests is handed to us while we are paused, or left in the buffer of lines.
        self.paused = True
        if request is self._fast:
            self._fast = None
            if not self.persistent:
                self.loseConnection()
        else:
            super().requestDone(request)
            self._ahead += self.clearLineBuffer()
        if self._ahead and self.persistent:
            # Thousands of pipelined requests may have come at once; others have their turn in between, or its place.
            self.site.turns.wait(self)
        else:
            self.paused = False
            self._close_if_ended()

    def go_on(self) -> None:
        """Begin the next request, of which something has come already."""
        self.paused = False
        ahead, self._ahead = self._ahead, b""
        if len(ahead) > AHEAD_BYTES:
            self.transport.resumeProducing()
        self.dataReceived(ahead)
        self._close_if_ended()

    # Closing

    def _close_if_ended(self) -> None:
        """Close if the client sends no more and no request of its waits for an answer."""
        if self._client_has_ended and not self.paused and self._phase not in (Phase.ANSWERING, Phase.CLOSING):
            self.loseConnection()

    def loseConnection(self) -> None:
        """Close when all is sent, and in bounded time."""
        self._stop_reading()
        super().loseConnection()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        self.transport.abortConnection()

    def drain(self) -> None:
        """Close if nothing has been asked; otherwise the connection ends with its answer."""
        if self._phase is Phase.IDLE:
            self.loseConnection()

    def refuse(self, error: HttpError) -> None:
        """Answer what cannot become a request with ``error``, let go of its body and close the connection."""
        if self._phase is Phase.CLOSING:
            return
        if self._phase is Phase.BODY:
            self.requests[-1].drop_body()
        self._forget_body()
        target = getattr(self, "_path", None) or self._line.partition(b" ")[2]
        told = rendered_error(error)
        headers = (*self.site.headers_of(target), *told.fields, (b"Connection", b"close"))
        body = b"" if getattr(self, "_command", None) == b"HEAD" else told.body
        self.transport.write(written_out(error.status, headers, body))
        self.site.count(error.status)
        self._linger()

    def _linger(self) -> None:
        """Close our half only: closing a socket with unread bytes resets it, and the client would lose the answer."""
        self._stop_reading()
        if self._client_has_ended or self._is_secure or not ITCPTransport.providedBy(self.transport):
            super().loseConnection()
        else:
            self.transport.loseWriteConnection()

    def _stop_reading(self) -> None:
        self._enter(Phase.CLOSING, self.site.limits.close_seconds)
        # What still comes is no line of a request any more: rawDataReceived throws it away.
        self.setRawMode()

    def _refuse_body(self) -> None:
        self.refuse(HttpError(413, f"the body is too large; at most {self._cap} bytes are accepted here"))

    def _respondToBadRequestAndDisconnect(self) -> None:
        # Twisted calls this for all that is malformed, and would answer without a body.
        most = self.totalHeadersSize
        self.refuse(HttpError(400, f"not a well-formed HTTP/1.1 request with headers of at most {most} bytes"))

    def _forget_body(self) -> None:
        self.site.bodies.forget(self)
        self._body_bytes = 0

    # Deadlines

    def _begin(self) -> None:
        self._started = self.site.clock.seconds()
        self._enter(Phase.HEADERS, self.site.limits.header_seconds)
        self.site.connections.waits(self)

    def _enter(self, phase: Phase, seconds: float) -> None:
        self._phase = phase
        self._deadline.set(seconds)

    def _is_over(self) -> None:
        limits = self.site.limits
        if self._phase is Phase.IDLE:
            self.loseConnection()
        elif self._phase is Phase.HEADERS:
            self.refuse(too_late("headers", limits.header_seconds))
        elif self._phase is Phase.BODY:
            self.refuse(too_late("body", limits.request_seconds))
        else:
            self.abort()
