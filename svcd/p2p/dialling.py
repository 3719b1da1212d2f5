"""Other nodes over the real network: every call goes through a pin (docs/threats.md "Dialling").

An endpoint is looked up and checked once, and every connection to it goes to that address until a call fails: a name
cannot be pointed at somebody else's network between two calls.
"""

from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.net.addresses import AddressPolicy
from svcd.net.calls import CallFailed as NetFailed
from svcd.net.calls import CallLimits
from svcd.net.connections import Dialler
from svcd.net.pinned import PinnedCaller, PinnedPeer
from svcd.net.resolving import SystemResolver, Worker
from svcd.net.targets import BadTarget, Rules
from svcd.net.trust import load_trust
from svcd.p2p.caller import CallFailed, Reply, Request, Trouble

MAX_PINS: Final = 256
"""Endpoints that connections are kept to; the oldest is closed for a new one."""
_FRAMING_BYTES: Final = 16 * 1024
"""What a status line and headers may take beside the body."""
_DIGITS: Final = 6
_UNPINNING: Final = {"connect", "tls"}
_TROUBLES: Final = {"timeout": Trouble.TIMEOUT, "too-large": Trouble.TOO_LARGE, "protocol": Trouble.MALFORMED}


def reach(reactor: Dialler, resolver: Worker, *, allow_private: bool) -> "PinnedNetwork":
    """The network as it is: names are looked up in ``resolver``'s threads, certificates are the system's affair."""
    policy = AddressPolicy(allow_private=allow_private)
    caller = PinnedCaller(reactor, resolver=SystemResolver(resolver), policy=policy, trust=load_trust())
    return PinnedNetwork(caller, Rules.for_peers(allow_private=allow_private))


class PinnedNetwork:
    """Reaches other nodes at addresses that may be called; the Caller of a real node."""

    log = Logger()

    def __init__(self, caller: PinnedCaller, rules: Rules) -> None:
        self._caller = caller
        self._rules = rules
        self._pins: dict[str, PinnedPeer] = {}

    def call(self, endpoint: str, request: Request) -> Deferred[Reply]:
        """See :class:`svcd.p2p.caller.Caller`."""
        return Deferred.fromCoroutine(self._call(endpoint, request))

    async def _call(self, endpoint: str, request: Request) -> Reply:
        limits = CallLimits(seconds=request.seconds, max_bytes=request.max_bytes + _FRAMING_BYTES)
        method = "GET" if request.body is None else "POST"
        try:
            peer = self._pins.get(endpoint) or await self._pin(endpoint, request.seconds)
            reply = await peer.call(method, request.path, body=request.body, limits=limits, lane=request.lane)
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
        """See :class:`svcd.p2p.caller.Caller`."""
        peer = self._pins.get(endpoint)
        return str(peer.address) if peer else ""

    def forget(self, endpoint: str) -> None:
        """See :class:`svcd.p2p.caller.Caller`."""
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
