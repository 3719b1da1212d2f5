"""A receiver of callbacks to try things with: listens, checks, tells what came, and ends at Ctrl-C."""

# Twisted's web server is not annotated, and its methods have names of their own.
# mypy: allow-untyped-calls
# ruff: noqa: N815

import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from attrs import field, frozen
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.ssl import CertificateOptions
from twisted.web.resource import Resource

from svcd.commerce.signing import BadSignature
from svcd.ports import Clock
from svcd.wallet.bind import Bind
from svcd.wallet.callbacks import Event, NoEvent, check_genuine, read_event
from svcd.wallet.failed import Failed
from svcd.web.clients import Clients
from svcd.web.errors import HttpError, method_not_allowed
from svcd.web.limits import BodyCaps, SiteLimits
from svcd.web.request import Request
from svcd.web.site import Site

MAX_BODY_BYTES: Final = 16 * 1024
"""Four times what a node's events may have."""
REMEMBERED: Final = 10_000
"""Events whose ids are kept, to tell which of them come again."""
CLOSE_SECONDS: Final = 2.0

_OK: Final = b'{"ok":true}'


@frozen
class Told:
    """Where a receiver says what came and what it refused."""

    event: Callable[[Event, bool, float], None]
    """Called with an event, whether it came before, and the Unix time in seconds; may raise OSError."""
    refused: Callable[[str], None]


class Callbacks(Resource):
    """Answers every POST: 200 to what is genuine, 401 to what is not, 400 to what is signed but no event."""

    isLeaf = True

    def __init__(self, secrets: Sequence[str], *, clock: Clock, told: Told) -> None:
        super().__init__()
        self._secrets = secrets
        self._clock = clock
        self._told = told
        self._seen: dict[str, None] = {}

    def render(self, request: Request) -> bytes:
        """Check and tell; raises HttpError."""
        if request.method != b"POST":
            raise method_not_allowed(["POST"])
        try:
            event = self._event(request, request.content.read())
        except BadSignature as wrong:
            raise self._refusal(401, str(wrong)) from None
        except NoEvent as wrong:
            raise self._refusal(400, str(wrong)) from None
        again = event.id in self._seen
        try:
            self._told.event(event, again, self._clock.seconds())
        except OSError as gone:
            raise HttpError(503, "nobody reads any more what this receiver prints; try again later") from gone
        self._remember(event.id)
        request.setHeader(b"Content-Type", b"application/json")
        return _OK

    def _event(self, request: Request, body: bytes) -> Event:
        timestamp, signature = (_only(request, name) for name in ("X-Svc-Timestamp", "X-Svc-Signature"))
        now = int(self._clock.seconds())
        check_genuine(body, timestamp=timestamp, signature=signature, secrets=self._secrets, now=now)
        return read_event(body)

    def _refusal(self, status: int, sentence: str) -> HttpError:
        self._told.refused(sentence)
        return HttpError(status, sentence)

    def _remember(self, event_id: str) -> None:
        self._seen[event_id] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]


def _only(request: Request, name: str) -> str:
    """The value of a header that stands there once, else nothing."""
    values = request.requestHeaders.getRawHeaders(name) or []
    return values[0] if len(values) == 1 else ""


def site_of(callbacks: Callbacks, *, clock: Clock, random: Callable[[int], bytes]) -> Site:
    """The web site that ``callbacks`` answers on: bounded bodies, deadlines, errors in JSON."""
    limits = SiteLimits(body_caps=BodyCaps(default=MAX_BODY_BYTES))
    # Any: mypy does not see that a class provides a zope interface.
    root: Any = callbacks
    return Site(root, limits=limits, clients=Clients(), clock=clock, new_id=lambda: random(8).hex())


@frozen
class Receiver:
    """One run of a receiver: where it listens, and with what."""

    place: Bind
    tls: CertificateOptions | None
    _ended: "Deferred[None]" = field(init=False, factory=Deferred)

    async def run(self, reactor: Any, site: Site, started: Callable[[str], None]) -> None:
        """Listen until the reactor stops or :meth:`end`; ``started`` is told the URL. Raises Failed."""
        port = self._listen(reactor, site)
        closed: Deferred[None] = Deferred()
        reactor.addSystemEventTrigger("before", "shutdown", self._close, closed)
        try:
            started(self.place.url(port.getHost().port, "http" if self.tls is None else "https"))
            await self._ended
        finally:
            await maybeDeferred(port.stopListening)
            await site.drain(CLOSE_SECONDS)
            closed.callback(None)

    def end(self, failure: Exception | None = None) -> None:
        """End the run; with a failure, the run raises it."""
        if not self._ended.called:
            self._ended.callback(None) if failure is None else self._ended.errback(failure)

    def _close(self, closed: "Deferred[None]") -> "Deferred[None]":
        self.end()
        return closed

    def _listen(self, reactor: Any, site: Site) -> Any:
        host, port = self.place.host, self.place.port
        try:
            if self.tls is None:
                return reactor.listenTCP(port, site, interface=host)
            return reactor.listenSSL(port, site, self.tls, interface=host)
        except CannotListenError as error:
            number = error.socketError.errno
            reason = os.strerror(number).lower() if isinstance(number, int) else "the port cannot be opened"
            where = f"{host} port {port}"
            raise Failed(f"cannot listen at {where}: {reason}; choose another place with --listen") from None
