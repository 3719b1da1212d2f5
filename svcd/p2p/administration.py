"""Administration of peers and bans by the operator (docs/operator-api.md)."""

import re
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred

from svcd.chain.address import NODE_ID_PATTERN
from svcd.limits import TOO_MANY_REQUESTS, limit
from svcd.net.targets import BadTarget, Endpoint
from svcd.p2p.address_book import OPERATOR
from svcd.p2p.bans import Ban, address_name, endpoint_name, node_name, posts_name
from svcd.p2p.call_budget import CallReason
from svcd.p2p.peer import Peer
from svcd.p2p.peers import HandshakeFailed, Peers
from svcd.web.responses import HttpError

MAX_SHOWN: Final = limit(2_000, "bans that are shown", "bans", TOO_MANY_REQUESTS)

_NODE_ID: Final = re.compile(NODE_ID_PATTERN)


class PeerAdministration:
    """Lists and changes peers and bans; every method raises HttpError for a request that cannot be carried out."""

    def __init__(self, peers: Peers, save: Callable[[], Deferred[None]]) -> None:
        """``save`` writes the bans to disk."""
        self._peers = peers
        self._save = save

    def peers(self) -> list[dict[str, object]]:
        """All peers: outbound ones first, then by endpoint."""
        peers = sorted(self._peers.all(), key=lambda peer: (not peer.outbound, peer.endpoint))
        return [self._record(peer) for peer in peers]

    def bans(self) -> list[dict[str, object]]:
        """The bans that have not ended, at most 2,000: all of the operator's, and the others that last longest."""
        return [self._record_of_ban(ban) for ban in self._peers.bans.listed(self._peers.node.now())[:MAX_SHOWN]]

    async def add(self, endpoint: str) -> dict[str, object]:
        """Add an endpoint to the address book, and connect to it at once; returns the outcome."""
        target, peers, now = _endpoint(endpoint), self._peers, self._peers.node.now()
        if target == peers.node.key.endpoint or peers.book.is_own(target, now):
            raise HttpError(400, f"{target} is this node itself")
        if peers.bans.is_endpoint_banned(target, now):
            raise HttpError(400, f"{target} is banned here; lift the ban first")
        peers.hint(target, source=OPERATOR)
        if peers.book.get(target) is None:
            raise HttpError(400, f"the address book has no room for {target}: nodes that answer have its place")
        peers.book.try_again(target)
        known = peers.get(target)
        try:
            outbound = known.outbound if known else peers.missing() > 0
            peer = await peers.handshake(target, outbound=outbound, reason=CallReason.COMMAND)
        except HandshakeFailed as why:
            return {"peer": None, "why": str(why)}
        full = "it answers and is in the address book, but there is no room for another peer"
        return {"peer": self._record(peer), "why": None} if peer else {"peer": None, "why": full}

    async def ban(
        self, *, endpoint: str | None, node_id: str | None, address: str | None, seconds: int | None
    ) -> dict[str, object]:
        """Ban an endpoint, a node or an address, for some seconds or without an end, and drop its peers."""
        (name, *_) = _names(endpoint, node_id, address)
        key = self._peers.node.key
        if name == node_name(key.node_id) or (key.endpoint and name == endpoint_name(key.endpoint)):
            raise HttpError(400, "that is this node itself")
        try:
            ban = self._peers.bans.ban_by_operator(name, seconds=seconds, now=self._peers.node.now())
        except OverflowError as error:
            raise HttpError(400, str(error)) from error
        dropped = self._peers.drop_banned()
        await self._save_now()
        return {"ban": self._record_of_ban(ban), "dropped": [peer.endpoint for peer in dropped]}

    async def unban(self, *, endpoint: str | None, node_id: str | None, address: str | None) -> dict[str, object]:
        """Lift all bans of an endpoint, a node or an address; the endpoints may be called again at once."""
        names = _names(endpoint, node_id, address)
        peers, now = self._peers, self._peers.node.now()
        lifted = [name for name in names if peers.bans.unban(name, now)]
        if not lifted:
            raise HttpError(404, f"{endpoint or node_id or address} is not banned")
        for entry in peers.book.entries():
            own = {endpoint_name(entry.endpoint), node_name(entry.node_id)}
            if address is not None or own.intersection(lifted):
                peers.book.try_again(entry.endpoint)
        await self._save_now()
        return {}

    def _record(self, peer: Peer) -> dict[str, object]:
        status = peer.status
        return {
            "nodeId": peer.node_id,
            "endpoint": peer.endpoint,
            "address": peer.address or None,
            "direction": "outbound" if peer.outbound else "inbound",
            "height": None if status is None else str(status.height),
            "work": None if status is None else str(status.work),
            "otherChanges": self._peers.has_other_changes(peer.endpoint),
            "lastSeen": str(self._peers.node.unix_milliseconds(peer.last_seen)),
            "failures": peer.failures,
        }

    def _record_of_ban(self, ban: Ban) -> dict[str, object]:
        kind, _, name = ban.name.partition(":")
        until = None if ban.until is None else str(self._peers.node.unix_milliseconds(ban.until))
        return {"kind": kind, "name": name, "until": until, "reason": ban.why or None, "own": ban.own}

    async def _save_now(self) -> None:
        try:
            await self._save()
        except OSError as error:
            why = f"done, but it cannot be saved to disk ({error.strerror}): a restart undoes it"
            raise HttpError(503, why) from error


def _endpoint(text: str) -> Endpoint:
    try:
        return Endpoint(text)
    except BadTarget as error:
        raise HttpError(400, f"{error}, such as http://192.0.2.1:8645") from error


def _names(endpoint: str | None, node_id: str | None, address: str | None) -> list[str]:
    """The names of the bans of the endpoint, the node or the address, whichever is given."""
    if endpoint is not None:
        return [endpoint_name(_endpoint(endpoint))]
    if node_id is not None:
        if not _NODE_ID.fullmatch(node_id):
            raise HttpError(400, "nodeId must be svcnode_ and 32 hex characters")
        return [node_name(node_id)]
    try:
        return [address_name(address or ""), posts_name(address or "")]
    except ValueError as error:
        raise HttpError(400, "address must be an IP address, such as 192.0.2.1, or a /64 of IPv6") from error
