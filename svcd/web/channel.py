"""One HTTP connection with absolute deadlines, bounded bodies, and JSON errors for malformed requests.

Twisted's own channel has only an idle timeout, which a client that drips bytes never reaches, and stores a body before
its size can be checked. The deadlines here cost one timer per connection, not several per request.
"""

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N802

from collections.abc import Callable, Iterable
from enum import Enum
from http import HTTPStatus
from math import inf
from typing import Any, Final, cast

from attrs import define, field
from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IHalfCloseableProtocol, ISSLTransport, ITCPTransport
from twisted.internet.protocol import connectionDone
from twisted.internet.tcp import Server
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.http_headers import Headers
from zope.interface import implementer  # type: ignore[import-untyped]

from svcd.interfaces import Clock, Timer
from svcd.limits import limit
from svcd.web.connections import AHEAD_BYTES
from svcd.web.fast_path import FastRequest, head_of, read_request
from svcd.web.responses import HttpError, Response, error_response, request_timeout, serialize
from svcd.web.site_state import SiteState
from svcd.web.slow_path import Request
from svcd.web.unsent import PIECE_BYTES, UnsentQueue

DISCARDED_BYTES: Final = 64 * 1024
"""How much is read and discarded after a refusal, so that a client that is still sending gets the response."""
_LENGTH_DIGITS: Final = 18
_LONG_HEADERS: Final = "Endless headers, thousands of tiny chunks or digits of a `Content-Length`, to hold up a parser"
# Twisted enforces these two.
limit(HTTPChannel.totalHeadersSize, "a request's headers", "bytes", _LONG_HEADERS)
limit(HTTPChannel.maxHeaders, "lines of a request's headers", "lines", _LONG_HEADERS)
_LOG: Final = Logger()
_HTTP2_PREFACE: Final = b"PRI * HTTP/2.0"
"""The first line of a client that takes HTTP/2 for granted (RFC 9113 section 3.4)."""
_HTTP_1_1_REQUIRED: Final = 0xD
_HTTP2_SENTENCE: Final = b"this node answers HTTP/1.1; for HTTP/2, put a proxy in front of it"
HTTP2_REFUSAL: Final = b"".join(
    [
        # An empty SETTINGS frame, with which a server begins.
        *(bytes([0, 0, 0, 4, 0]), bytes(4)),
        # A GOAWAY frame: the length and the type; the stream 0; no stream was taken; why not.
        *(bytes([0, 0, 8 + len(_HTTP2_SENTENCE), 7, 0]), bytes(4), bytes(4), _HTTP_1_1_REQUIRED.to_bytes(4)),
        _HTTP2_SENTENCE,
    ]
)
"""The response in HTTP/2, since its clients read nothing else (RFC 9113 sections 6.5, 6.8 and 7)."""


FIRST_REQUEST_SECONDS: Final = 1.0
"""How long a new connection may take to begin its first request once the site drains: that may be on its way."""


class ConnectionState(Enum):
    """How far the current request of a connection has come."""

    IDLE = "no byte of a request has been parsed"
    HEADERS = "a request's first byte has arrived"
    BODY = "its headers have arrived"
    ANSWERING = "all of it has arrived"
    CLOSING = "nothing more is read"


@define
class Deadline:
    """Calls ``passed`` at the time that was set last."""

    clock: Clock
    passed: Callable[[], object]
    _latest: float = field(default=inf, init=False)
    _timer: Timer | None = field(default=None, init=False)

    def set(self, seconds: float) -> None:
        """Set the deadline in ``seconds``, at once if not positive, but no later than the bound."""
        if self._latest != inf:
            seconds = min(seconds, self._latest - self.clock.seconds())
        remaining = max(seconds, 0.0)
        if self._timer is None:
            self._timer = self.clock.callLater(remaining, self._ring)
        else:
            self._timer.reset(remaining)

    def bound(self, seconds: float) -> None:
        """Let no deadline, now or later, be more than ``seconds`` from now; the earliest bound holds."""
        now = self.clock.seconds()
        self._latest = min(self._latest, now + seconds)
        if self._timer is not None:
            self.set(self._timer.getTime() - now)

    def cancel(self) -> None:
        """Cancel the deadline; does nothing if none is set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Cancel the deadline for good, and drop the reference to ``passed``, so that its owner is freed at once."""
        self.cancel()
        self.passed = _nothing

    def _ring(self) -> None:
        self._timer = None
        self.passed()


def _nothing() -> None:
    """What passes once a deadline has ended."""


@implementer(IHalfCloseableProtocol)
class Channel(HTTPChannel):
    """The server's end of one connection; :class:`svcd.web.site.Site` builds it."""

    site: SiteState
    group: str | None = None
    """The client group whose limit it counts towards; None if it counts towards none."""
    transport: Any

    def __init__(self) -> None:
        super().__init__()
        self._phase = ConnectionState.IDLE
        self._is_new = True
        """Whether it has had no request yet."""
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
        self._unsent = UnsentQueue()
        self._passed = 0
        self._reader: str | None = None
        self._client_has_ended = False
        self._sends_at_once = False
        """Whether the transport is a plain socket, and keeps nothing that must be sent first."""

    # Events of the transport

    def connectionMade(self) -> None:
        """Count the connection and start its deadline."""
        super().connectionMade()
        # Klein asks for both on every request, and they cost a system call and an adapter each time.
        self._host = self.transport.getHost()
        self._peer: Any = None
        self._is_secure = bool(ISSLTransport.providedBy(self.transport))
        self._sends_at_once = isinstance(self.transport, Server) and not self._is_secure
        self._deadline = Deadline(self.site.clock, self._is_over)
        self.site.connections.add(self)
        self._enter(ConnectionState.IDLE, self.site.limits.header_seconds)

    def getHost(self) -> Any:
        """This server's address."""
        return self._host

    def getPeer(self) -> Any:
        """The address of the client, or of a proxy in front of it; known once bytes have arrived."""
        if self._peer is None:
            self._peer = self.transport.getPeer()
        return self._peer

    def isSecure(self) -> bool:
        """Whether the connection uses TLS."""
        return self._is_secure

    def dataReceived(self, data: bytes) -> None:
        """Try the fast path, then let Twisted parse; keep ``data`` while other connections have their turn."""
        if self.paused:
            self._ahead += data
            if len(self._ahead) > AHEAD_BYTES:
                self.transport.pauseProducing()
            return
        if self._phase is ConnectionState.IDLE:
            if self._take(data):
                return
            self._begin()
        super().dataReceived(data)

    def readConnectionLost(self) -> None:
        """The client has closed its half: complete requests are still answered, within ``close_seconds``."""
        # A client that has disconnected looks the same until a response is sent to it.
        self._client_has_ended = True
        self._deadline.bound(self.site.limits.close_seconds)
        if self._phase is ConnectionState.CLOSING:
            super().loseConnection()
        self._close_if_ended()

    def writeConnectionLost(self) -> None:
        """This side has closed its half; nothing to do."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Release all that the connection held."""
        self._phase = ConnectionState.CLOSING
        self._sends_at_once = False
        self._forget_body()
        self._unsent.clear()
        self._deadline.end()
        self.site.turns.forget(self)
        self.site.connections.remove(self)
        if self._fast is not None:
            self._fast.connection_lost()
        super().connectionLost(reason)

    def pauseProducing(self) -> None:
        """The transport's send buffer is full."""
        self._client_is_slow = True
        if self._fast is None:
            super().pauseProducing()

    def resumeProducing(self) -> None:
        """The send buffer is empty: the next piece of the answer is sent, or the next pipelined request answered."""
        self._client_is_slow = False
        self._passed = 0
        self._send_pieces()
        if self._client_is_slow:
            if self._answered is not None:
                self._mark_unread()
            return
        super().resumeProducing()
        answered, self._answered = self._answered, None
        if answered is not None:
            self.requestDone(answered)

    # Events of Twisted's parser

    def lineReceived(self, line: bytes) -> None:
        """Remember the line for the error response if it is malformed; refuse HTTP/2."""
        self._line = line
        # Among the headers of a request it is only a malformed header.
        if line == _HTTP2_PREFACE and not self.requests:
            self._refuse_http2()
            return
        super().lineReceived(line)

    def lineLengthExceeded(self, line: bytes) -> None:
        """Refuse a line that is longer than all headers may be."""
        self._line = line[: self.MAX_LENGTH]
        self._respondToBadRequestAndDisconnect()

    def headerReceived(self, line: bytes) -> bool:
        """Refuse a Content-Length of too many digits; Twisted checks the rest."""
        # int() of thousands of digits raises, and Twisted would drop the connection with a traceback in the log.
        if len(line) > 16 + _LENGTH_DIGITS and line[:15].lower() == b"content-length:" and line[15:].strip().isdigit():
            self.refuse(HttpError(413, f"a Content-Length may have at most {_LENGTH_DIGITS} digits"))
            return False
        return bool(super().headerReceived(line))

    def allHeadersReceived(self) -> None:
        """Refuse a declared body above the limit, before ``100 Continue`` is sent."""
        if self.length != 0:
            path = cast(bytes, self._path).partition(b"?")[0]
            self._cap = self.site.limits.body_caps(self._command, path)
            self._client = self.site.clients.of_request(self.requests[-1])
            if self.length is not None and self.length > self._cap:
                self._refuse_body()
                return
            self._enter(
                ConnectionState.BODY, self._started + self.site.limits.request_seconds - self.site.clock.seconds()
            )
        super().allHeadersReceived()

    def reserve_body(self, size: int) -> bool:
        """Reserve ``size`` more bytes of body; False if the request was refused."""
        if self._phase is ConnectionState.CLOSING:
            return False
        if self._body_bytes + size > self._cap:
            self._refuse_body()
            return False
        self._body_bytes += size
        return self.site.bodies.reserve(self, self._client, size)

    def rawDataReceived(self, data: bytes) -> None:
        """Refuse a body that its request rejects; while closing, discard input up to DISCARDED_BYTES."""
        if self._phase is not ConnectionState.CLOSING:
            try:
                super().rawDataReceived(data)
            except HttpError as error:
                self.refuse(error)
            return
        self._discarded += len(data)
        if self._discarded > DISCARDED_BYTES:
            self.transport.pauseProducing()

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Headers) -> None:
        """Start the deadline to read the response; send ``Connection: close`` while the site drains."""
        # Twisted passes it to the transport, which may keep it.
        self._sends_at_once = False
        if self._phase is ConnectionState.ANSWERING:
            self._enter(ConnectionState.ANSWERING, self.site.limits.answer_seconds)
        if self.site.draining:
            headers.setRawHeaders(b"Connection", [b"close"])
        # The unread bytes of a client count them too.
        lines = [name + value for name, values in headers.getAllRawHeaders() for value in values]
        self._passed += len(b"  \r\n\r\n" + version + code + reason) + sum(len(line) + len(b": \r\n") for line in lines)
        super().writeHeaders(version, code, reason, headers)

    def allContentReceived(self) -> None:
        """Serve the request, unless it has been refused meanwhile."""
        if self._phase is ConnectionState.CLOSING:
            return
        self._enter(ConnectionState.ANSWERING, self.site.limits.answer_seconds)
        self.site.bodies.keep(self)
        self.site.connections.mark_served(self)
        super().allContentReceived()

    def answer_within(self, seconds: float) -> None:
        """Allow the route ``seconds`` to answer, in addition to the time to read the response.

        So the connection's deadline is always later than the route's, whose 503 reaches the client.
        """
        if self._phase is ConnectionState.ANSWERING:
            self._enter(ConnectionState.ANSWERING, seconds + self.site.limits.answer_seconds)
            self.site.connections.mark_served(self)

    # The fast path (svcd.web.fast_path)

    def _take(self, data: bytes) -> bool:
        """Answer the request at the start of ``data``; False, with nothing done, if it must take the slow path."""
        site = self.site
        if site.router is None:
            return False
        read = read_request(data, site.router, site=site, channel=self, client=self.getPeer())
        if read is None:
            return False
        request, end = read
        length = request.length
        if length:
            client = site.clients.of_request(request)
            # The slow path refuses the body, or evicts another one to make room.
            if length > site.limits.body_caps(request.method, request.path) or not site.bodies.has_room(client, length):
                return False
            site.bodies.reserve(self, client, length)
            site.bodies.keep(self)
        self._phase, self._fast = ConnectionState.ANSWERING, request
        self.paused, self._ahead = True, data[end:]
        answer = request.respond()
        if isinstance(answer, Response):
            try:
                self._send(request, answer)
            except Exception:
                self._failed(Failure(), request)
        else:
            request.work = answer
            answer.addCallback(lambda late: self._send(request, late)).addErrback(self._failed, request)
        return True

    def _send(self, request: FastRequest, answer: Response) -> None:
        """Write a complete response; if the client reads slowly, start its deadline."""
        if request.channel is None:
            return
        request.code = answer.status
        head, body = head_of(request, answer), answer.body
        if len(body) < PIECE_BYTES:
            # Most responses are small: one part costs less than two.
            self.write(head + body)
        else:
            self.write(head)
            self.write(body)
        if self._client_is_slow:
            self._enter(ConnectionState.ANSWERING, self.site.limits.answer_seconds)
        self.site.log(request)
        self.requestDone(request)

    def _failed(self, failure: Failure, request: FastRequest) -> None:
        if not failure.check(CancelledError) or request.channel is not None:
            _LOG.failure("an answer could not be sent", failure=failure)
            if request.channel is not None:
                self.abort()

    # Sending

    def write(self, data: bytes) -> None:
        """Send ``data`` piece by piece: the transport keeps the bytes that it is given, even of a closed connection."""
        if self._unsent or self._client_is_slow or len(data) > PIECE_BYTES:
            self._unsent.append(data)
            self._send_pieces()
        else:
            self._pass(data)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Send all of ``iovec`` as :meth:`write` does."""
        self.write(b"".join(iovec))

    def _send_pieces(self) -> None:
        while self._unsent and not self._client_is_slow:
            self._pass(self._unsent.take())

    def _pass(self, data: bytes) -> None:
        self._passed += len(data)
        if self._sends_at_once and not self.transport.disconnecting:
            # As asyncio does: the transport would send it in the next turn of the reactor, and ask the system twice
            # more, to tell when it may and that it need not any more.
            sent = self.transport.writeSomeData(data)
            if sent == len(data):
                return
            self._sends_at_once = False
            data = data[sent:] if isinstance(sent, int) else data
        self.transport.write(data)

    def _mark_unread(self) -> None:
        # The transport still has what was passed to it since its buffer was empty.
        self.site.connections.mark_unread(self, self._reader, self._passed + len(self._unsent))

    def requestDone(self, request: Request | FastRequest) -> None:
        """Wait for the next request as soon as the client has read the response."""
        self._forget_body()
        if self._client_is_slow:
            # The next pipelined request would be answered into the same full buffer, and so on without end.
            self._answered = request
            self._reader = self.site.clients.of_request(request)
            self._mark_unread()
            return
        self._passed = 0
        self._is_new = False
        if self.site.draining:
            self.persistent = 0
        self._enter(ConnectionState.IDLE, self.site.limits.idle_seconds)
        self.site.connections.mark_waiting(self)
        # Data of the next requests arrives here while the channel is paused, or is left in the line buffer.
        self.paused = True
        if request is self._fast:
            self._fast = None
            if not self.persistent:
                self.loseConnection()
        else:
            super().requestDone(request)
            self._ahead += self.clearLineBuffer()
        if self._ahead and self.persistent:
            # Thousands of pipelined requests may have arrived at once: other connections get their turns in between.
            self.site.turns.wait(self)
        else:
            self.paused = False
            self._close_if_ended()

    def resume(self) -> None:
        """Begin the next, pipelined request, of which data has arrived already."""
        self.paused = False
        ahead, self._ahead = self._ahead, b""
        if len(ahead) > AHEAD_BYTES:
            self.transport.resumeProducing()
        self.dataReceived(ahead)
        self._close_if_ended()

    # Closing

    def _close_if_ended(self) -> None:
        """Close if the client has closed its half and no request awaits a response."""
        if (
            self._client_has_ended
            and not self.paused
            and self._phase not in (ConnectionState.ANSWERING, ConnectionState.CLOSING)
        ):
            self.loseConnection()

    def loseConnection(self) -> None:
        """Close when all data is sent, within ``close_seconds``."""
        self._stop_reading()
        super().loseConnection()

    def abort(self) -> None:
        """Close at once and discard unsent data."""
        self._unsent.clear()
        self.transport.abortConnection()

    def evict(self) -> None:
        """Close at once to make room for responses that clients read."""
        self.site.connections.evict(self)

    def drain(self) -> None:
        """Close if no request has begun, a new connection after a moment; otherwise it closes after its response."""
        if self._phase is ConnectionState.IDLE:
            if self._is_new:
                self._enter(ConnectionState.IDLE, FIRST_REQUEST_SECONDS)
            else:
                self.loseConnection()

    def refuse(self, error: HttpError) -> None:
        """Answer an invalid or incomplete request with ``error``, discard its body and close the connection."""
        if self._phase is ConnectionState.CLOSING:
            return
        if self._phase is ConnectionState.BODY:
            self.requests[-1].drop_body()
        self._forget_body()
        target = getattr(self, "_path", None) or self._line.partition(b" ")[2]
        told = error_response(error)
        headers = (*self.site.headers_of(target), *told.fields, (b"Connection", b"close"))
        body = b"" if getattr(self, "_command", None) == b"HEAD" else told.body
        self.transport.write(serialize(error.status, headers, body))
        self.site.recorder.answered("", b"", error.status, None)
        self._linger()

    def _linger(self) -> None:
        """Close this half only: closing a socket with unread data resets it, and the client would lose the response."""
        self._stop_reading()
        if self._client_has_ended or self._is_secure or not ITCPTransport.providedBy(self.transport):
            super().loseConnection()
        else:
            self.transport.loseWriteConnection()

    def _stop_reading(self) -> None:
        self._enter(ConnectionState.CLOSING, self.site.limits.close_seconds)
        # Further data is not parsed: rawDataReceived discards it.
        self.setRawMode()

    def _refuse_body(self) -> None:
        self.refuse(HttpError(413, f"the body is too large; at most {self._cap} bytes are accepted here"))

    def _refuse_http2(self) -> None:
        self.transport.write(HTTP2_REFUSAL)
        self.site.recorder.answered("", b"", HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, None)
        self._linger()

    def _respondToBadRequestAndDisconnect(self) -> None:
        # Twisted calls this for every malformed request, and would answer without a body.
        maximum = self.totalHeadersSize
        self.refuse(HttpError(400, f"not a well-formed HTTP/1.1 request with headers of at most {maximum} bytes"))

    def _forget_body(self) -> None:
        self.site.bodies.release(self)
        self._body_bytes = 0

    # Deadlines

    def _begin(self) -> None:
        self._started = self.site.clock.seconds()
        self._enter(ConnectionState.HEADERS, self.site.limits.header_seconds)
        self.site.connections.mark_waiting(self)

    def _enter(self, phase: ConnectionState, seconds: float) -> None:
        self._phase = phase
        self._deadline.set(seconds)

    def _is_over(self) -> None:
        limits = self.site.limits
        if self._phase is ConnectionState.IDLE:
            self.loseConnection()
        elif self._phase is ConnectionState.HEADERS:
            self.refuse(request_timeout("headers", limits.header_seconds))
        elif self._phase is ConnectionState.BODY:
            self.refuse(request_timeout("body", limits.request_seconds))
        else:
            self.abort()
