"""Calls to other nodes: the port that peers use, and the real network (docs/threats.md "Dialling").

An endpoint is resolved and checked once, and every connection to it goes to that address until a call fails: a name
cannot be pointed at another network between two calls.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.net.addresses import Address, AddressPolicy, text_of, untranslated
from svcd.net.calls import CallFailed as NetFailed
from svcd.net.calls import CallLimits, Lane
from svcd.net.connections import Dialler
from svcd.net.pinned import PinnedCaller, PinnedPeer
from svcd.net.resolving import SystemResolver, Worker
from svcd.net.targets import BadTarget, Rules
from svcd.net.trust import load_trust

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
    FALSE = "false"
    """The answer is whole, and a block in it breaks a rule or is not what its header commits to."""


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
    """Of the body of the reply."""
    seconds: float
    least_bytes: int = 0
    """0: the whole call must end within ``seconds``. Otherwise it may take as long as it makes progress: it fails with
    Trouble.TIMEOUT once fewer than so many bytes went over the line, either way, in ``seconds``."""
    on_bytes: Callable[[int], None] | None = None
    """Called with the number of bytes of the reply's body as they arrive."""
    lane: Lane = Lane.ASK


class Transport(Protocol):
    """Reaches other nodes."""

    def call(self, endpoint: str, request: Request) -> Deferred[Reply]:
        """The reply to ``request`` of the node that answers at ``endpoint``; fails with CallFailed.

        Cancelling the Deferred ends the transfer at once.
        """

    def address_of(self, endpoint: str) -> str:
        """The IP address at which an endpoint is called at present; "" where no connection is kept to it.

        Behind a translator (NAT64) that is the IPv4 address to which the call goes in the end.
        """

    def forget(self, endpoint: str) -> None:
        """Close the connections to an endpoint that is not needed for now."""


MAX_PINS: Final = 256
"""Endpoints that connections are kept to; the oldest is closed for a new one."""
_FRAMING_BYTES: Final = 16 * 1024
"""What a status line and headers may take beside the body."""
_DIGITS: Final = 6
_UNPINNING: Final = {"connect", "tls"}
_TROUBLES: Final = {"timeout": Trouble.TIMEOUT, "too-large": Trouble.TOO_LARGE, "protocol": Trouble.MALFORMED}


def reach(reactor: Dialler, resolver: Worker, *, allow_private: bool) -> "PinnedTransport":
    """The network as it is: names are looked up in ``resolver``'s threads, certificates are the system's affair."""
    policy = AddressPolicy(allow_private=allow_private)
    caller = PinnedCaller(reactor, resolver=SystemResolver(resolver), policy=policy, trust=load_trust())
    return PinnedTransport(caller, Rules.for_peers(allow_private=allow_private))


class PinnedTransport:
    """Reaches other nodes at addresses that may be called; the Transport of a real node."""

    log = Logger()

    def __init__(self, caller: PinnedCaller, rules: Rules) -> None:
        self._caller = caller
        self._rules = rules
        self._pins: dict[str, PinnedPeer] = {}

    def call(self, endpoint: str, request: Request) -> Deferred[Reply]:
        """See :class:`svcd.p2p.transport.Transport`."""
        return Deferred.fromCoroutine(self._call(endpoint, request))

    async def _call(self, endpoint: str, request: Request) -> Reply:
        limits = CallLimits(
            seconds=request.seconds, max_bytes=request.max_bytes + _FRAMING_BYTES, least_bytes=request.least_bytes
        )
        method = "GET" if request.body is None else "POST"
        try:
            peer = self._pins.get(endpoint) or await self._pin(endpoint, request.seconds)
            reply = await peer.call(
                method, request.path, body=request.body, limits=limits, lane=request.lane, on_bytes=request.on_bytes
            )
        except BadTarget as error:
            raise CallFailed(Trouble.UNREACHABLE, str(error)) from error
        except NetFailed as error:
            if error.category in _UNPINNING:
                # The address may have changed for good reasons; the next call looks again, and checks again.
                self.forget(endpoint)
            raise CallFailed(_TROUBLES.get(error.category, Trouble.UNREACHABLE), str(error)) from error
        return Reply(reply.status, reply.body, _seconds(reply.headers.get("retry-after", "")))

    async def _pin(self, endpoint: str, seconds: float) -> PinnedPeer:
        peer = await self._caller.pin(self._rules.parse(endpoint), seconds=seconds)
        if endpoint in self._pins:
            # Another call was quicker.
            self._close(peer)
            return self._pins[endpoint]
        while len(self._pins) >= MAX_PINS:
            self.forget(next(iter(self._pins)))
        self._pins[endpoint] = peer
        return peer

    def address_of(self, endpoint: str) -> str:
        """See :class:`svcd.p2p.transport.Transport`."""
        peer = self._pins.get(endpoint)
        return text_of(self.untranslated(peer.address)) if peer else ""

    def untranslated(self, address: Address) -> Address:
        """The public IPv4 address of which a translator makes ``address``; where none does, ``address`` itself."""
        return untranslated(address, self._caller.translators)

    def forget(self, endpoint: str) -> None:
        """See :class:`svcd.p2p.transport.Transport`."""
        peer = self._pins.pop(endpoint, None)
        if peer is not None:
            self._close(peer)

    def forget_all(self) -> None:
        """Close every connection."""
        for endpoint in list(self._pins):
            self.forget(endpoint)

    def _close(self, peer: PinnedPeer) -> None:
        Deferred.fromCoroutine(peer.close()).addErrback(self._say_failed)

    def _say_failed(self, failure: Failure) -> None:
        self.log.failure("closing connections to a peer failed", failure)


def _seconds(text: str) -> float:
    """The seconds of a ``Retry-After`` (RFC 9110 section 10.2.3); 0.0 for a date, which no node sends."""
    return float(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0.0
