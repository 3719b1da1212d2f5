"""Pushing a branch to a peer that cannot call this node, and so cannot ask for it (docs/peers.md "Relay").

One peer at a time, in rounds: peers relay to each other what one of them has taken. A peer that gets no further by a
round is left alone for a while, since what it says of single blocks proves nothing.
"""

from functools import partial
from typing import Final

from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
from svcd.node.recent import Recent
from svcd.p2p.client import HeadersReply
from svcd.p2p.headers import closer_locator, locator
from svcd.p2p.peers import Peer, Peers
from svcd.p2p.transport import CallFailed
from svcd.store.chain_store import ChainReader

ROUND_BYTES: Final = 64 * 1024 * 1024
"""Blocks that a peer is handed in a round, together."""
SEARCH_HEADERS: Final = 100
"""Headers in each question for the last block that both have."""
SEARCH_QUESTIONS: Final = 8
"""How many such questions there are at most: each narrows the search to a hundredth of what the last one left."""
SEARCH_SECONDS: Final = 30.0
"""Time limit for the search; no other peer is sent blocks meanwhile."""
LEAST_BYTES: Final = 4_096
"""What a block counts as at least: a call costs something too."""
ROUND_SECONDS: Final = 600.0
"""Time limit for a round: a slow peer keeps the others waiting."""
FIRST_REST: Final = 60.0
LONGEST_REST: Final = 3_600.0
"""How long a peer that makes no progress is left alone, the first time and at most."""
_REMEMBERED: Final = 4_096
_PLACED: Final = {"connected", "side", "known"}
"""What a peer says of a block after which it can take the next."""


class _NotTaken(Exception):
    """A peer does not take the next block."""


@define
class _Pace:
    """What has come of the rounds with a peer, or with a part of the network; times are Unix seconds."""

    ended: float = 0.0
    """When the last one ended."""
    rests_until: float = 0.0
    barren: int = 0
    """How many in a row brought it no further."""
    shown: int = 0
    """The most work of a block of our chain that was its tip after a round: what it has shown before is no progress."""


class BranchPush:
    """Hands branches in: to a peer one block after the other, and the next time from where it stopped."""

    log = Logger()

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._work: Deferred[None] | None = None
        """The round that is under way."""
        self._stopping = False
        self._paces: Recent[str, _Pace] = Recent(_REMEMBERED)
        self._unfinished: set[str] = set()
        """By endpoint, those whose last round was full: they need not show first that they wait for the next."""
        self._reached: dict[str, ChainPoint] = {}
        """By endpoint, the last block that a peer has placed: maybe beside its chain, where nobody can ask for it."""

    def consider(self) -> None:
        """Begin with a peer that shows less work than we have and gets no further; to be called every second."""
        lacking = [peer for peer in self._peers.all() if peer.lags or peer.endpoint in self._unfinished]
        for peer in sorted(lacking, key=lambda peer: (self._pace(peer).ended, not peer.outbound)):
            self.begin(peer)

    def begin(self, peer: Peer) -> None:
        """Begin to post our blocks that ``peer`` lacks; nothing if it can ask, is to rest, or a round is under way."""
        home = self._peers.home
        if self._peers.reachable or self._work or self._stopping or self._pace(peer).rests_until > home.now():
            return
        self._work = Deferred.fromCoroutine(self._hand_in(peer))
        self._work.addErrback(self._say_failed).addBoth(self._over)

    def stop(self) -> None:
        """Give up what is under way, and begin nothing any more."""
        self._stopping = True
        if self._work is not None:
            self._work.cancel()

    def _say_failed(self, failure: Failure) -> None:
        if not (self._stopping and failure.check(CancelledError)):  # type: ignore[no-untyped-call]
            self.log.failure("handing blocks in failed", failure)

    def _over(self, _: object) -> None:
        self._work = None

    def _pace(self, peer: Peer) -> _Pace:
        return self._paces.get(self._peers.part_of(peer)) or _Pace()

    async def _hand_in(self, peer: Peer) -> None:
        """One round, and what follows from it."""
        self._reached = {endpoint: point for endpoint, point in self._reached.items() if self._peers.get(endpoint)}
        self._unfinished = {other for other in self._unfinished - {peer.endpoint} if self._peers.get(other)}
        await self._peers.ask_status(peer)
        before = peer.status.work if peer.status is not None else 0
        if before > self._peers.home.ledger.tip.work:
            # We are the ones who lack something, and ask for it.
            return
        taken = full = False
        try:
            full = await self._round(peer)
            taken = True
        except (CallFailed, _NotTaken) as failed:
            self.log.debug("{endpoint} takes no more blocks: {why}", endpoint=peer.endpoint, why=str(failed))
        if self._peers.get(peer.endpoint) is peer:
            await self._peers.ask_status(peer)
        self._note_round(peer, before, taken=taken)
        if full:
            self._unfinished.add(peer.endpoint)

    def _note_round(self, peer: Peer, before: int, *, taken: bool) -> None:
        """Set the pace after a round, before which the peer showed ``before`` of work."""
        pace, now = self._pace(peer), self._peers.home.now()
        shown = self._work_shown(peer)
        further = shown > max(before, pace.shown)
        if further:
            pace.barren, pace.shown = 0, shown
        rest = 0.0 if further and taken else min(FIRST_REST * 2**pace.barren, LONGEST_REST)
        pace.barren = min(pace.barren + (not further), 32)
        pace.ended, pace.rests_until = now, now + rest
        self._paces[self._peers.part_of(peer)] = pace

    def _work_shown(self, peer: Peer) -> int:
        """The work of the tip that a peer shows, if that is on our chain; what else it claims proves nothing: 0."""
        ours = None if peer.status is None else self._peers.home.ledger.reader.canonical(peer.status.height)
        return ours.point.work if ours is not None and peer.status and ours.point.hash == peer.status.hash else 0

    async def _round(self, peer: Peer) -> bool:
        """Post in order what the peer lacks; whether the round was full before all was there.

        Raises CallFailed or _NotTaken.
        """
        home, began, size = self._peers.home, self._peers.home.now(), 0
        height = max(await self._last_common(peer), self._height_reached(peer))
        while home.now() - began < ROUND_SECONDS:
            height += 1
            found = await home.ledger.long_reads.ask(partial(_block_at, height, home.params))
            if found is None or self._peers.get(peer.endpoint) is not peer:
                return False
            point, wire = found
            size += max(len(wire), LEAST_BYTES)
            if size > ROUND_BYTES:
                break
            await self._post(peer, point, wire)
        return True

    async def _last_common(self, peer: Peer) -> int:
        """The height of the last block that both have; raises CallFailed or _NotTaken."""
        ledger, status = self._peers.home.ledger, peer.status
        ours = None if status is None else ledger.reader.canonical(status.height)
        if status is not None and ours is not None and ours.point.hash == status.hash:
            return status.height
        if peer.serves_headers is False:
            raise _NotTaken("it serves no headers, so the last common block cannot be found")
        hashes, least, began = locator(ledger), 0, self._peers.home.now()
        for _ in range(SEARCH_QUESTIONS):
            left = began + SEARCH_SECONDS - self._peers.home.now()
            if left <= 0:
                break
            reply = await self._peers.client.headers(peer.endpoint, hashes, SEARCH_HEADERS, within=left)
            if reply.first <= least:
                raise _NotTaken("its headers do not lead from the last common block upwards")
            common = self._shared(reply)
            if common - reply.first + 1 < SEARCH_HEADERS:
                return common
            hashes, least = closer_locator(ledger, common, ledger.tip.height), common
        raise _NotTaken("the last common block was not found in time")

    def _shared(self, reply: HeadersReply) -> int:
        """The height of the last block of ours that an answer shows, or which it says is below its first header."""
        common, reader = reply.first - 1, self._peers.home.ledger.reader
        for header in reply.headers:
            ours = reader.canonical(common + 1)
            if ours is None or ours.point.hash != header.hash:
                break
            common += 1
        return common

    async def _post(self, peer: Peer, point: ChainPoint, wire: bytes) -> None:
        """Post one block; raises CallFailed or _NotTaken."""
        receipt = await self._peers.client.send_block(peer.endpoint, wire)
        if not receipt.accepted or receipt.state not in _PLACED:
            # It may have lost what it once had; then the next time begins with the last block that is shared.
            self._reached.pop(peer.endpoint, None)
            raise _NotTaken(f"of block {point.height} it says: {receipt.state}")
        self._reached[peer.endpoint] = point

    def _height_reached(self, peer: Peer) -> int:
        """The height of our last block that the peer has placed, as far as that is on our chain still; else 0."""
        point = self._reached.get(peer.endpoint)
        ours = None if point is None else self._peers.home.ledger.reader.canonical(point.height)
        return ours.point.height if ours is not None and ours.point == point else 0


def _block_at(height: int, params: NetworkParams, reader: ChainReader) -> tuple[ChainPoint, bytes] | None:
    """A canonical block as it is posted; None above the tip."""
    stored = reader.canonical(height)
    if stored is None:
        return None
    return stored.point, reader.block_header(stored, params).wire(b",".join(reader.bodies(stored)))
