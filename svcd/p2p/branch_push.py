"""Branches that a node pushes to peers that lack them, because no peer can call it (docs/peers.md "Relay").

The blocks of a branch are posted one after the other. Of a branch far below the tip of the receiver, the sender posts
the headers first: the receiver stores its blocks only once headers have shown that the branch has more work.
"""

from bisect import bisect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from attrs import define
from twisted.logger import Logger

from svcd.bounded_dict import BoundedDict
from svcd.chain.block import Header
from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.chain.transition import ChainPoint
from svcd.limits import SIDE_BLOCKS, limit
from svcd.node.chain_manager import MAX_WANTED, ChainManager
from svcd.node.tasks import CancellableTasks
from svcd.p2p.client import MAX_BRANCH_HEADERS, MORE, WANTED
from svcd.p2p.headers import CanonicalHeaders, FalseClaim, HeaderStream, StreamEnded
from svcd.p2p.own_errors import OwnErrors
from svcd.p2p.peer import Backoff, Peer
from svcd.p2p.peers import Peers
from svcd.p2p.transport import PeerCallFailed
from svcd.store.chain_store import ChainReader
from svcd.store.pruned import Pruned

_ENDLESS_BRANCH: Final = "Taking a branch from a node that nobody can call: slowly, or again and again from its root"
ROUND_BYTES: Final = limit(64 * 1024 * 1024, "blocks of a branch pushed in a round", "bytes", _ENDLESS_BRANCH)
"""Blocks that are pushed to a peer in one round."""
ROUND_SECONDS: Final = limit(600.0, "time for a round of pushes", "seconds", _ENDLESS_BRANCH)
"""Time limit for a round: a slow peer keeps the others waiting."""
MIN_BLOCK_BYTES: Final = limit(4_096, "least size that a pushed block counts as", "bytes", _ENDLESS_BRANCH)
"""The least that a block counts for in a round: a call has a cost of its own."""
SEARCH_SECONDS: Final = limit(30.0, "time to find the last common block of a branch", "seconds", _ENDLESS_BRANCH)
"""Time limit for a search; no other peer is sent blocks meanwhile."""
FIRST_BACKOFF: Final = limit(60.0, "first pause after a round of pushes without progress", "seconds", _ENDLESS_BRANCH)
MAX_BACKOFF: Final = limit(3_600.0, "longest pause after rounds of pushes without progress", "seconds", _ENDLESS_BRANCH)
"""How long a peer that makes no progress is left alone, the first time and at most."""
_REMEMBERED_PUSHES: Final = 4_096
SHOWN_HEADERS: Final = limit(16_384, "headers of branches that are remembered", "headers", SIDE_BLOCKS)
"""Headers of branches that are remembered, whoever has shown them."""
_PLACED: Final = {"connected", "side", "known"}
"""Answers to a block after which the peer can take the next one."""


# The sender


class _BlockNotAccepted(Exception):
    """A peer does not take the next block."""


@define
class _PushRecord:
    """The outcome of the rounds with a peer, or with a network group."""

    backoff: Backoff
    """After rounds that brought the peer no further."""
    ended: float = 0.0
    """When the last round ended (the node's seconds)."""
    best_work: int = 0
    """The most work of a block of our chain that was its tip after a round: only more than that is progress."""


class BranchPush:
    """Pushes branches to peers that lack them, because no peer can call this node to ask for blocks.

    One peer is served at a time, in rounds, since peers relay the blocks to each other. Each round goes on where the
    last one stopped. A peer that gets no further by a round rests: its answers to single blocks prove nothing.
    """

    log = Logger()

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._in_round = False
        self._own_errors = OwnErrors(peers.node.clock, "pushing a branch")
        self._tasks = CancellableTasks(self._own_errors.note)
        self._records: BoundedDict[str, _PushRecord] = BoundedDict(_REMEMBERED_PUSHES)
        self._unfinished: set[str] = set()
        """Endpoints of peers whose last round was full: they need not lag before the next one."""
        self._placed: dict[str, bytes] = {}
        """By endpoint, the hash of the last block that a peer has placed; on a side branch no request shows it."""

    def tick(self) -> None:
        """Start a round with a peer that lags; to be called every second."""
        lacking = [peer for peer in self._peers.all() if peer.lags or peer.endpoint in self._unfinished]
        for peer in sorted(lacking, key=lambda peer: (self._record(peer).ended, not peer.outbound)):
            self.start(peer)

    def start(self, peer: Peer) -> None:
        """Start to post the blocks that ``peer`` lacks, unless it can ask for them, rests, or a round is under way."""
        if self._peers.reachable or self._in_round or not self._peers.has(peer):
            return
        if self._own_errors.pausing or self._record(peer).backoff.seconds_left:
            return
        self._tasks.start(self._run_round(peer))

    def stop(self) -> None:
        """Cancel the round that is under way, and start none any more."""
        self._tasks.stop()

    def _record(self, peer: Peer) -> _PushRecord:
        return self._records.get(self._peers.reputation_key(peer)) or _PushRecord(Backoff(self._peers.node.clock))

    async def _run_round(self, peer: Peer) -> None:
        self._in_round = True
        try:
            await self._push_and_note(peer)
        finally:
            self._in_round = False

    async def _push_and_note(self, peer: Peer) -> None:
        self._placed = {endpoint: placed for endpoint, placed in self._placed.items() if self._peers.get(endpoint)}
        self._unfinished = {other for other in self._unfinished - {peer.endpoint} if self._peers.get(other)}
        await self._peers.poll_status(peer)
        work_before = peer.status.work if peer.status is not None else 0
        if work_before > self._peers.node.chain_manager.tip.work:
            # This node is the one that lacks blocks, and requests them.
            return
        taken = full = False
        try:
            full = await self._push(peer)
            taken = True
        except (PeerCallFailed, FalseClaim, StreamEnded, _BlockNotAccepted) as failed:
            self.log.debug("{endpoint} takes no more blocks: {why}", endpoint=peer.endpoint, why=str(failed))
        if self._peers.has(peer):
            await self._peers.poll_status(peer)
        self._note_round(peer, work_before, taken=taken)
        if full:
            self._unfinished.add(peer.endpoint)

    def _note_round(self, peer: Peer, work_before: int, *, taken: bool) -> None:
        """Record a round, before which the peer showed ``work_before``."""
        record, clock = self._record(peer), self._peers.node.clock
        shown = self._tip_on_our_chain(peer)
        # Other claims prove nothing.
        work = 0 if shown is None else shown.work
        if work > max(work_before, record.best_work):
            record.best_work = work
            record.backoff = Backoff(clock)
            if not taken:
                # A pause because a block was refused doubles nothing.
                record.backoff.pause(FIRST_BACKOFF)
        else:
            record.backoff.fail(first=FIRST_BACKOFF, longest=MAX_BACKOFF)
        record.ended = clock.seconds()
        self._records[self._peers.reputation_key(peer)] = record

    def _tip_on_our_chain(self, peer: Peer) -> ChainPoint | None:
        """The tip that a peer shows; None if it is not on our chain."""
        status = peer.status
        ours = None if status is None else self._peers.node.chain_manager.reader.canonical(status.height)
        return ours.point if ours is not None and status is not None and ours.point.hash == status.hash else None

    async def _push(self, peer: Peer) -> bool:
        """Post in order the blocks that the peer lacks; True if the round was full before the last one.

        Raises PeerCallFailed, FalseClaim, StreamEnded or _BlockNotAccepted.
        """
        node, began, size = self._peers.node, self._peers.node.now(), 0
        common = await self._last_common(peer)
        height = max(common, node.chain_manager.reader.last_common([self._placed.get(peer.endpoint, b"")]))
        while node.now() - began < ROUND_SECONDS:
            height += 1
            try:
                found = await node.chain_manager.long_reads.ask(partial(_block_at, height))
            except Pruned as pruned:
                raise _BlockNotAccepted(f"it needs a block that this node does not have: {pruned}") from pruned
            if found is None or not self._peers.has(peer):
                return False
            point, wire = found
            size += max(len(wire), MIN_BLOCK_BYTES)
            if size > ROUND_BYTES:
                break
            await self._post(peer, point, wire, until=began + ROUND_SECONDS)
        return True

    async def _last_common(self, peer: Peer) -> int:
        """The height of the last common block; raises PeerCallFailed, FalseClaim or StreamEnded."""
        chain_manager, shown = self._peers.node.chain_manager, self._tip_on_our_chain(peer)
        if shown is not None:
            return shown.height
        stream = HeaderStream(self._peers, peer, CanonicalHeaders(chain_manager), seconds=SEARCH_SECONDS)
        reply, common = await stream.search()
        return reply.headers[common - 1].height if common else reply.first - 1

    async def _post(self, peer: Peer, point: ChainPoint, wire: bytes, *, until: float) -> None:
        """Post one block; raises PeerCallFailed or _BlockNotAccepted.

        ``until`` is when the showing of headers ends (the node's seconds).
        """
        state = await self._peers.client.send_block(peer.endpoint, wire)
        if state == Wait.DEEP:
            await self._show(peer, point.height, until=until)
            state = await self._peers.client.send_block(peer.endpoint, wire)
        if state not in _PLACED:
            # It may have lost blocks that it once had; then the next round begins with the last common one.
            self._placed.pop(peer.endpoint, None)
            raise _BlockNotAccepted(f"it answers block {point.height} with {state}")
        self._placed[peer.endpoint] = point.hash

    async def _show(self, peer: Peer, height: int, *, until: float) -> None:
        """Post headers from ``height`` on until they show the peer more work than its tip has.

        Raises PeerCallFailed or _BlockNotAccepted.
        """
        state = MORE
        while state == MORE and self._peers.node.now() < until:
            first, reads = height, self._peers.node.chain_manager.long_reads
            headers = await reads.ask(lambda reader: reader.headers(first, limit=MAX_BRANCH_HEADERS))  # noqa: B023
            if not headers or not self._peers.has(peer):
                break
            state = await self._peers.client.send_branch(peer.endpoint, headers)
            height += len(headers)
        if state != WANTED:
            raise _BlockNotAccepted(f"it answers the headers before height {height} with {state}")


def _block_at(height: int, reader: ChainReader) -> tuple[ChainPoint, bytes] | None:
    """A canonical block as it is posted; None above the tip."""
    stored = reader.canonical(height)
    if stored is None:
        return None
    return stored.point, reader.wire(stored)


# The receiver


class ShownHeaders:
    """The headers with which nodes show that a branch has more work than the tip.

    Only verified headers are remembered, so each costs participation work. Several nodes may show the same branch.
    """

    def __init__(self, chain_manager: ChainManager) -> None:
        self._chain_manager = chain_manager
        self._checking = False
        self._parents: BoundedDict[bytes, bytes] = BoundedDict(SHOWN_HEADERS)
        """The hash of the parent of each header, by its hash."""

    def check_free(self) -> None:
        """Raise NotYet while the headers of a branch are being checked."""
        if self._checking:
            raise NotYet(Wait.BUSY, "the headers of another branch are being checked; try again later")

    async def receive(self, headers: Sequence[Header], charge: Callable[[float], None]) -> str:
        """Check posted headers, each the child of the one before; the state to answer with.

        The first one follows on a stored block or on a header of an earlier post. WANTED: the blocks of the branch may
        be posted now: it has more work than the tip, and no less than the headers of a start from a snapshot. MORE:
        further headers are needed. ``charge`` is called with the number of headers that have to be verified. Raises
        RuleViolation, and NotYet while other headers are being checked.
        """
        self.check_free()
        self._checking = True
        try:
            return await self._check(headers, charge)
        finally:
            self._checking = False

    async def _check(self, headers: Sequence[Header], charge: Callable[[float], None]) -> str:
        manager = self._chain_manager
        hashes = [headers[0].parent_hash, *(header.hash for header in headers)]
        # Headers that are known have been verified, and so have those before them.
        known = bisect(hashes, False, key=lambda each: not self._is_known(each))
        newest = hashes[max(known - 1, 0)]
        head = manager.checked_head(newest) or await manager.head(newest)
        if head is None:
            return Wait.ORPHAN
        new = headers[max(known - 1, 0) :]
        if new:
            charge(len(new))
        check = await manager.check_headers(head, new)
        if isinstance(check.failure, RuleViolation):
            raise check.failure
        for header in new[: len(check.heads)]:
            self._parents[header.hash] = header.parent_hash
        head = check.heads[-1] if check.heads else head
        # With less than the headers of a start from a snapshot, it may leave the chain where no block can be undone.
        if head.point.work > manager.tip.work and head.point.work >= manager.proven_work:
            return self._want(head.point)
        return MORE if check.failure is None else Wait.EARLY

    def _is_known(self, block_hash: bytes) -> bool:
        manager = self._chain_manager
        return manager.checked_head(block_hash) is not None or manager.reader.point(block_hash) is not None

    def _want(self, tip: ChainPoint) -> str:
        """Let the blocks of the branch up to ``tip`` be posted, the first MAX_WANTED of them."""
        hashes = [tip.hash]
        while (parent := self._parents.get(hashes[-1])) is not None:
            hashes.append(parent)
        hashes.reverse()
        reader = self._chain_manager.reader
        stored = bisect(hashes, False, key=lambda each: reader.point(each) is None)
        if not stored:
            # So many headers have been shown since that the first ones are forgotten.
            return Wait.ORPHAN
        self._chain_manager.want(hashes[stored : stored + MAX_WANTED], tip.work)
        return WANTED
