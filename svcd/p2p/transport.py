"""HTTP calls to other nodes, in an interface and over the real network (docs/threats.md "Outbound calls").

An endpoint is resolved and checked once, and every connection to it goes to that address until a call fails: a name
cannot be pointed at another network between two calls.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from svcd.interfaces import Worker
from svcd.ip_addresses import Address
from svcd.limits import STALLING_PEER, limit
from svcd.net.addresses import AddressPolicy, text_of, untranslated
from svcd.net.calls import CallFailed, CallKind, CallLimits, CallPostponed
from svcd.net.happy_eyeballs import Admission, Dialler
from svcd.net.http_client import PinnedClient, PinnedConnections
from svcd.net.resolver import SystemResolver
from svcd.net.targets import BadTarget, Rules
from svcd.net.trust import load_trust
from svcd.p2p.call_budget import CallBudget, CallReason, PlannedCall

_SLOW_NAMES: Final = "Naming endpoints whose names are never looked up to the end, so that no other name is looked up"
_OVERLOADED: Final = {429, 503}
"""Statuses of a node that does not answer at present: too many requests, service unavailable."""
MIN_RETRY_AFTER: Final = 1.0
MAX_RETRY_AFTER: Final = limit(30.0, "longest Retry-After of a peer that is obeyed", "seconds", STALLING_PEER)
"""Bounds, in seconds, within which a ``Retry-After`` is honoured."""


class FailureKind(StrEnum):
    """Why a call failed."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    TOO_LARGE = "too-large"
    MALFORMED = "malformed"
    REFUSED = "refused"
    POSTPONED = "postponed"
    """This node does not call it now: its addresses have been called as often as they may be in an hour."""
    INVALID = "invalid"
    """The reply is well formed, and what is in it does not match a verified header: a block, or accounts."""


class PeerCallFailed(Exception):
    """A call to another node failed; ``status`` is that of its reply, or 0 if there was none.

    ``retry_after`` is the reply's ``Retry-After`` in seconds, 0.0 if it has none.
    """

    def __init__(self, kind: FailureKind, detail: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(kind, detail, status, retry_after)
        self.kind = kind
        self.detail = detail
        self.status = status
        self._retry_after = retry_after

    @property
    def retry_after(self) -> float:
        """How many seconds to wait before the next call, if the node is overloaded; 0.0 for another failure."""
        return min(max(self._retry_after, MIN_RETRY_AFTER), MAX_RETRY_AFTER) if self.status in _OVERLOADED else 0.0

    def __str__(self) -> str:
        return self.detail


@frozen
class PeerReply:
    """The reply to a call."""

    status: int
    body: bytes
    retry_after: float = 0.0
    """The ``Retry-After`` in seconds; 0.0 if there is none."""


@frozen(kw_only=True)
class PeerRequest:
    """One call: ``path`` is the path with its query, ``body`` is JSON, or None for GET."""

    path: str
    body: bytes | None = None
    max_bytes: int
    """Of the body of the reply."""
    seconds: float
    min_bytes: int = 0
    """0: the whole call must end within ``seconds``. Otherwise the call may take as long as it makes progress: it fails
    with FailureKind.TIMEOUT once fewer than this number of bytes, sent or received, moved in ``seconds``."""
    on_bytes: Callable[[int], None] | None = None
    """Called with the number of bytes of the reply's body as they arrive."""
    kind: CallKind = CallKind.ASK
    reason: CallReason = CallReason.PEER
    client: str = ""
    """The address from which the node asked for this call by its hello; "" if it did not."""


def _nowhere(_endpoint: str) -> str:
    """The address where a node has answered, while none has."""
    return ""


def _no_operator_s(_endpoint: str) -> bool:
    """Whether the operator has named an endpoint, while none is named."""
    return False


class Transport(Protocol):
    """Calls other nodes."""

    answered_at: Callable[[str], str]
    """Gives the IP address where a node has answered under an endpoint, "" if none has; set by :class:`Peers`."""
    is_operators: Callable[[str], bool]
    """Whether the operator has named an endpoint; set by :class:`Peers`."""

    def call(self, endpoint: str, request: PeerRequest) -> Deferred[PeerReply]:
        """The reply of the node at ``endpoint`` to ``request``; fails with PeerCallFailed.

        Cancelling the Deferred aborts the call at once.
        """

    def address_of(self, endpoint: str) -> str:
        """The IP address at which an endpoint is called at present; "" if no connection is kept to it.

        Behind a translator (NAT64) that is the IPv4 address at the far end.
        """

    def forget(self, endpoint: str) -> None:
        """Close the connections to an endpoint."""


MAX_PINS: Final = 256
"""Endpoints beside those of peers to which connections are kept; the oldest is closed for a new one."""
LOOK_UPS: Final = 16
"""Names of nodes that are looked up at a time, each in a thread."""
HINT_LOOK_UPS: Final = limit(4, "names of hints that are looked up at a time", "names", _SLOW_NAMES)
"""Of LOOK_UPS, those of endpoints where no node has answered."""
PEER_LOOK_UPS: Final = limit(8, "names of nodes that have answered, looked up at a time", "names", _SLOW_NAMES)
"""The other four are for the names that the operator has chosen."""
_FRAMING_BYTES: Final = 16 * 1024
"""Allowance for the status line and headers."""
_DIGITS: Final = 6
_NO_SHARES: Final[Mapping[CallReason, SystemResolver]] = MappingProxyType({})
_UNPINNING: Final = {"connect", "tls"}
_KINDS: Final = {"timeout": FailureKind.TIMEOUT, "too-large": FailureKind.TOO_LARGE, "protocol": FailureKind.MALFORMED}


def open_transport(reactor: Dialler, resolver: Worker, *, allow_private: bool, peers: int = 0) -> "PinnedTransport":
    """The transport of a node with ``peers`` at most, with the system's certificates and resolver.

    The resolver runs in the threads of ``resolver``.
    """
    policy = AddressPolicy(allow_private=allow_private)
    caller = PinnedClient(reactor, resolver=SystemResolver(resolver), policy=policy, trust=load_trust())
    rules = Rules.for_peers(allow_private=allow_private)
    shares = {
        CallReason.HINT: SystemResolver(resolver, HINT_LOOK_UPS),
        CallReason.PEER: SystemResolver(resolver, PEER_LOOK_UPS),
    }
    return PinnedTransport(caller, rules, CallBudget(reactor), shares=shares, max_pins=MAX_PINS + peers)


class PinnedTransport:
    """The Transport of a real node: calls other nodes at addresses that its policy allows."""

    log = Logger()

    def __init__(
        self,
        caller: PinnedClient,
        rules: Rules,
        budget: CallBudget,
        *,
        shares: Mapping[CallReason, SystemResolver] = _NO_SHARES,
        max_pins: int = MAX_PINS,
    ) -> None:
        """``shares`` look up the names of hints and of peers, instead of the resolver of ``caller``."""
        self.answered_at: Callable[[str], str] = _nowhere
        """See :class:`svcd.p2p.transport.Transport`."""
        self.is_operators: Callable[[str], bool] = _no_operator_s
        """See :class:`svcd.p2p.transport.Transport`."""
        self._shares = shares
        self._caller = caller
        self._rules = rules
        self._budget = budget
        self._max_pins = max_pins
        self._pins: dict[str, PinnedConnections] = {}

    def call(self, endpoint: str, request: PeerRequest) -> Deferred[PeerReply]:
        """See :class:`svcd.p2p.transport.Transport`."""
        return Deferred.fromCoroutine(self._call(endpoint, request))

    async def _call(self, endpoint: str, request: PeerRequest) -> PeerReply:
        limits = CallLimits(
            seconds=request.seconds, max_bytes=request.max_bytes + _FRAMING_BYTES, min_bytes=request.min_bytes
        )
        method = "GET" if request.body is None else "POST"
        try:
            peer = self._pins.get(endpoint) or await self._pin(endpoint, request)
            reply = await peer.call(
                method,
                request.path,
                body=request.body,
                limits=limits,
                kind=request.kind,
                on_bytes=request.on_bytes,
                admit=self._admission(endpoint, peer.target.port, request),
            )
        except BadTarget as error:
            raise PeerCallFailed(FailureKind.UNREACHABLE, str(error)) from error
        except CallPostponed as error:
            self.forget(endpoint)
            raise PeerCallFailed(FailureKind.POSTPONED, f"{endpoint} is not called now: {error}") from error
        except CallFailed as error:
            if error.category in _UNPINNING:
                # The address may have changed for good reasons; the next call resolves and checks it again.
                self.forget(endpoint)
            raise PeerCallFailed(_KINDS.get(error.category, FailureKind.UNREACHABLE), str(error)) from error
        return PeerReply(reply.status, reply.body, _seconds(reply.headers.get("retry-after", "")))

    async def _pin(self, endpoint: str, request: PeerRequest) -> PinnedConnections:
        target, reason = self._rules.parse(endpoint), self._reason(endpoint, request)
        share = self._shares.get(reason)
        if share is not None and share.is_full and reason is CallReason.HINT and target.address is None:
            # It has not failed: waiting for a thread would take all the time that the call has.
            raise CallPostponed("as many names are being looked up as may be")
        peer = await self._caller.pin(target, seconds=request.seconds, resolver=share)
        if endpoint in self._pins:
            # Another call was faster.
            self._close(peer)
            return self._pins[endpoint]
        while len(self._pins) >= self._max_pins:
            self.forget(next(iter(self._pins)))
        self._pins[endpoint] = peer
        return peer

    def _reason(self, endpoint: str, request: PeerRequest) -> CallReason:
        """Why the name of an endpoint is looked up; one where a node has answered before counts as a peer's."""
        if self.is_operators(endpoint):
            return CallReason.OPERATOR
        answered = request.reason is CallReason.HINT and self.answered_at(endpoint)
        return CallReason.PEER if answered else request.reason

    def _admission(self, endpoint: str, port: int, request: PeerRequest) -> Admission:
        """Whether an address may be dialled for ``request``; each one that may counts in the budget."""
        counted = False

        def may_dial(address: Address) -> bool:
            nonlocal counted
            if counted and request.reason is CallReason.OPERATOR:
                # However many addresses the name of a seed has, one attempt to reach it counts once.
                return True
            far_end = self.untranslated(address)
            call = PlannedCall(
                endpoint=endpoint,
                address=far_end,
                port=port,
                answered=text_of(far_end) == self.answered_at(endpoint),
                reason=request.reason,
                client=request.client,
            )
            counted = self._budget.take(call)
            return counted

        return may_dial

    def address_of(self, endpoint: str) -> str:
        """See :class:`svcd.p2p.transport.Transport`."""
        peer = self._pins.get(endpoint)
        return text_of(self.untranslated(peer.address)) if peer else ""

    def untranslated(self, address: Address) -> Address:
        """The IPv4 address that a translator embeds in ``address``; ``address`` itself if there is none."""
        return untranslated(address, self._caller.translators)

    def forget(self, endpoint: str) -> None:
        """See :class:`svcd.p2p.transport.Transport`."""
        peer = self._pins.pop(endpoint, None)
        if peer is not None:
            self._close(peer)

    def _close(self, peer: PinnedConnections) -> None:
        Deferred.fromCoroutine(peer.close()).addErrback(
            lambda failure: self.log.failure("closing connections to a peer failed", failure)
        )


def _seconds(text: str) -> float:
    """The seconds of a ``Retry-After`` (RFC 9110 section 10.2.3); 0.0 for a date, which no node sends."""
    return float(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0.0
