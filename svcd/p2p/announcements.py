"""Announced blocks: a peer sends the header of a new block, and this node fetches the block (docs/peers.md "Relay")."""

from typing import Final

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.bounded_dict import BoundedDict
from svcd.chain.block import Block, Header
from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.interfaces import Timer
from svcd.limits import limit
from svcd.node.changes import BlockOutcome, ChainChange, HeaderCheck
from svcd.p2p.client import ASKED, KNOWN, WANTED, BlocksReply
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.p2p.transport import FailureKind, PeerCallFailed

_NOT_DELIVERED: Final = "Announcing a block and not delivering it, so that others are not asked"
MAX_FETCHES: Final = limit(8, "announced blocks that are fetched at a time", "blocks", _NOT_DELIVERED)
"""Announced blocks that are fetched at a time."""
HEAD_START_SECONDS: Final = limit(3.0, "head start of the first peer that announced a block", "seconds", _NOT_DELIVERED)
"""How long a peer has to deliver a block until another peer is asked too, unless the block is arriving by then."""
FETCH_SECONDS: Final = limit(
    30.0, "time that a slow delivery of a block keeps others from being asked", "seconds", _NOT_DELIVERED
)
"""How long peers that deliver a block slowly keep others from being asked."""
GOOD_RATE: Final = limit(64 * 1024, "rate of delivery at which no other peer is asked", "bytes/s", _NOT_DELIVERED)
"""Bytes per second from all peers together at which no further peer is asked."""
MIN_RATE: Final = limit(8 * 1024, "rate of delivery of a peer that delivers at all", "bytes/s", _NOT_DELIVERED)
"""Bytes per second of a peer that counts as delivering. Two such peers suffice: more copies would share a slow line."""
MAX_CHECKS: Final = limit(
    16,
    "announced headers that are checked at a time",
    "headers",
    "Announcing endless headers, to have their work checked",
)
"""Different announced headers whose work is checked at a time; each check computes an Argon2 hash."""
MAX_FETCH_SECONDS: Final = limit(60.0, "time that a fetch keeps its place", "seconds", _NOT_DELIVERED)
"""How long a fetch keeps its place from other blocks, and synchronisation from the block."""
UNRELIABLE_SECONDS: Final = limit(
    3_600.0, "time in which a peer that did not deliver a block is asked last", "seconds", _NOT_DELIVERED
)
"""How long a peer that did not deliver a block as announced is asked last."""
_LOOK_SECONDS: Final = 0.5
_REMEMBERED: Final = 1_024


@define(eq=False)
class _BlockSource:
    """A peer that is asked for a block."""

    peer: Peer
    began: float
    trusted: bool
    """Whether the peer may keep other peers from being asked."""
    received: int = 0
    """Bytes of the block so far."""
    fetching: Deferred[None] | None = None
    """The request that is under way."""

    def count_bytes(self, count: int) -> None:
        """Count bytes that have come."""
        self.received += count

    def rate(self, now: float) -> float:
        """Bytes per second, so far."""
        return self.received / max(now - self.began, 1.0)

    def has_head_start(self, now: float) -> bool:
        """Whether no other peer is asked even if nothing comes."""
        return now - self.began < HEAD_START_SECONDS


@define(eq=False)
class _AnnouncedBlock:
    """A block that peers are asked for."""

    header: Header
    began: float
    """When it was announced first (the node's seconds)."""
    sources: list[_BlockSource] = field(factory=list)
    """The peers that may deliver the block at present."""
    asked: dict[str, Peer] = field(factory=dict)
    """By endpoint, the peers that were asked for the block; each peer is asked once."""
    timer: Timer | None = None
    over: bool = False
    """Whether no further peer is asked."""

    def may_ask(self, peer: Peer, now: float, *, trusted: bool) -> bool:
        """Whether it is time to ask ``peer`` too.

        An inbound peer keeps no outbound peer from being asked for longer than its head start, however well it seems to
        deliver. A peer that is not trusted keeps no other one from being asked, and waits for all others.
        """
        if any(source.has_head_start(now) for source in self.sources if source.trusted or not trusted):
            return False
        rivals = [source for source in self.sources if source.trusted and (source.peer.outbound or not peer.outbound)]
        rates = [source.rate(now) for source in rivals if now - source.began < FETCH_SECONDS]
        return sum(rates) < GOOD_RATE and sum(rate >= MIN_RATE for rate in rates) < 2

    def is_coming(self, now: float) -> bool:
        """Whether the block is being delivered, or an outbound peer was just asked, so that no other is needed."""
        return self.over or any(
            source.rate(now) >= (MIN_RATE if source.peer.outbound else GOOD_RATE)
            or (source.peer.outbound and source.has_head_start(now))
            for source in self.sources
            if source.trusted and now - source.began < FETCH_SECONDS
        )

    def end(self) -> None:
        """Cancel all requests, and ask no further peer."""
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for source in tuple(self.sources):
            if source.fetching is not None:
                source.fetching.cancel()


class Announcements:
    """Takes headers of new blocks, and fetches the blocks from the peers that have announced them."""

    log = Logger()

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._node = peers.node
        self._fetches: dict[bytes, _AnnouncedBlock] = {}
        self._checks: dict[tuple[bytes, bytes], list[Deferred[HeaderCheck]]] = {}
        """The announcements that wait for the check of a header, by its hash and signature."""
        self._unreliable_until: BoundedDict[str, float] = BoundedDict(_REMEMBERED)
        """Until when (the node's seconds) those that did not deliver are asked last, by endpoint and group."""
        self._stopping = False

    def stop(self) -> None:
        """Cancel all fetches, and start none any more."""
        self._stopping = True
        for fetch in tuple(self._fetches.values()):
            self._end(fetch)

    def chain_changed(self, change: ChainChange) -> None:
        """End the fetch of a block that has arrived."""
        if (fetch := self._fetches.get(change.tip.hash)) is not None:
            self._arrived(fetch)

    def is_coming(self, block_hash: bytes) -> bool:
        """Whether a new block is being fetched, for a minute at most."""
        fetch = self._fetches.get(block_hash)
        return fetch is not None and self._node.now() - fetch.began < MAX_FETCH_SECONDS

    async def receive(self, header: Header, announcer: Peer | None) -> str:
        """Take an announced header; the state to answer with. Raises RuleViolation or NotYet.

        ``announcer`` is the sender if it is a peer that can be called.
        """
        chain_manager = self._node.chain_manager
        if announcer is not None:
            announcer.mark_known(header.hash)
        if chain_manager.reader.point(header.hash) is not None:
            return KNOWN
        if (fetch := self._fetches.get(header.hash)) is not None:
            return self._join(fetch, announcer)
        if chain_manager.reader.point(header.parent_hash) is None:
            self._peers.poll_all()
            return Wait.ORPHAN
        check = await self._check(header)
        if isinstance(check.failure, RuleViolation):
            raise check.failure
        if check.failure is not None:
            return Wait.EARLY
        if not chain_manager.keeps(check.heads[-1].point.work):
            return Wait.DEEP
        if not header.transaction_count:
            outcome = await self._submit(Block(header, ()), announcer)
            if isinstance(outcome, Exception):
                raise outcome
            return KNOWN
        if (fetch := self._fetches.get(header.hash)) is not None:
            # Another peer has announced it while its work was checked.
            return self._join(fetch, announcer)
        if announcer is None or self._stopping or not self._has_room(announcer):
            return WANTED
        fetch = self._fetches[header.hash] = _AnnouncedBlock(header, self._node.now())
        self._continue(fetch)
        return ASKED

    def _join(self, fetch: _AnnouncedBlock, announcer: Peer | None) -> str:
        """The state to answer with if the block is being fetched already."""
        if announcer is None:
            return ASKED if fetch.is_coming(self._node.now()) else WANTED
        self._continue_later(fetch, 0.0)
        return ASKED

    def _has_room(self, announcer: Peer) -> bool:
        """Whether one more block can be fetched, if need be in place of one that is less likely to arrive."""
        if len(self._fetches) < MAX_FETCHES:
            return True
        now, peers = self._node.now(), self._peers.all()
        for fetch in self._fetches.values():
            backed = any(peer.outbound and peer.knows(fetch.header.hash) for peer in peers)
            if not fetch.over and (now - fetch.began >= MAX_FETCH_SECONDS or (announcer.outbound and not backed)):
                self._end(fetch)
                return True
        return False

    def _check(self, header: Header) -> Deferred[HeaderCheck]:
        """Check a header whose parent is stored, once for all who announce it meanwhile.

        Cancelling the Deferred does not stop the check. Raises NotYet if too many checks are under way.
        """
        # The hash does not cover the signature.
        name = header.hash, header.signature
        begun = name in self._checks
        if not begun and len(self._checks) >= MAX_CHECKS:
            raise NotYet(Wait.BUSY, f"{MAX_CHECKS} announced headers wait for the check of their work; try again later")
        waiting = self._checks.setdefault(name, [])
        announcement: Deferred[HeaderCheck] = Deferred(waiting.remove)
        waiting.append(announcement)
        if not begun:
            check = Deferred.fromCoroutine(self._check_on_parent(header))
            check.addBoth(self._checked, name).addErrback(self._log_failure)
        return announcement

    async def _check_on_parent(self, header: Header) -> HeaderCheck:
        parent = await self._node.chain_manager.head(header.parent_hash)
        if parent is None:
            raise NotYet(Wait.ORPHAN, f"the parent {header.parent_hash.hex()} is not known any more")
        return await self._node.chain_manager.check_headers(parent, [header])

    def _checked(self, result: HeaderCheck | Failure, name: tuple[bytes, bytes]) -> Failure | None:
        """Pass the result of a check on to all that wait for it; gives back a failure for which nothing waits."""
        waiting = self._checks.pop(name)
        unheard = result if isinstance(result, Failure) and not waiting else None
        # Popped one by one, because each may cancel others.
        while waiting:
            waiting.pop(0).callback(result)
        return unheard

    # Fetching

    def _continue_later(self, fetch: _AnnouncedBlock, seconds: float) -> None:
        if fetch.timer is not None:
            fetch.timer.cancel()
        fetch.timer = self._node.clock.callLater(seconds, self._continue, fetch)

    def _continue(self, fetch: _AnnouncedBlock) -> None:
        """Ask one more peer if it is time, and continue in half a second; give up if no peer is left."""
        fetch.timer = None
        if fetch.over:
            return
        now = self._node.now()
        if self._node.chain_manager.reader.point(fetch.header.hash) is not None:
            self._arrived(fetch)
            return
        peer = self._next_peer(fetch)
        trusted = peer is not None and not self._is_unreliable(peer)
        if peer is not None and fetch.may_ask(peer, now, trusted=trusted):
            self._ask(peer, fetch, trusted=trusted)
        elif peer is None and not fetch.sources:
            self._end(fetch)
            # Peers that have the block show more work, so synchronisation finds it.
            self._peers.poll_all()
            return
        self._continue_later(fetch, _LOOK_SECONDS)

    def _next_peer(self, fetch: _AnnouncedBlock) -> Peer | None:
        """The best peer to ask among those that have announced the block, or show it as their tip.

        Of the inbound peers in one network group one comes before those in other groups, and the rest after them.
        """
        groups = {self._peers.reputation_key(peer) for peer in fetch.asked.values()}

        def rank(peer: Peer) -> tuple[bool, ...]:
            crowded = not peer.outbound and self._peers.reputation_key(peer) in groups
            return self._is_unreliable(peer), crowded, not peer.outbound, not peer.delivered

        having = [peer for peer in self._peers.all() if peer.knows(fetch.header.hash) and not peer.is_paused]
        return min((peer for peer in having if peer.endpoint not in fetch.asked), key=rank, default=None)

    def _ask(self, peer: Peer, fetch: _AnnouncedBlock, *, trusted: bool) -> None:
        source = _BlockSource(peer, self._node.now(), trusted=trusted)
        fetch.asked[peer.endpoint] = peer
        fetch.sources.append(source)
        source.fetching = Deferred.fromCoroutine(self._fetch_from(source, fetch)).addErrback(self._log_failure)

    async def _fetch_from(self, source: _BlockSource, fetch: _AnnouncedBlock) -> None:
        """Take the block from a peer; if it does not deliver, the next one is asked."""
        peer = source.peer
        try:
            reply = await self._peers.client.blocks_by_hash(peer.endpoint, [fetch.header], source.count_bytes)
        except CancelledError:
            self.log.debug("{endpoint} is not waited for any longer", endpoint=peer.endpoint)
            return
        except PeerCallFailed as failed:
            self.log.debug("{endpoint} did not deliver a block: {why}", endpoint=peer.endpoint, why=failed.detail)
            if failed.retry_after:
                self._peers.count_failure(peer, failed)
            if failed.kind is FailureKind.TIMEOUT:
                self._mark_unreliable(peer)
            if failed.kind is FailureKind.INVALID:
                self._peers.ban(peer, failed.detail)
            reply = BlocksReply([], 0)
        finally:
            if source in fetch.sources:
                fetch.sources.remove(source)
        if fetch.over:
            return
        if not reply.blocks:
            self._continue_later(fetch, 0.0)
            return
        peer.credit_delivery()
        self._mark_overtaken(fetch)
        fetch.end()
        try:
            outcome = await self._submit(reply.blocks[0], peer)
        finally:
            self._end(fetch)
        if isinstance(outcome, Exception):
            # No ban: the header was valid, and an invalid state is the producer's fault, not the sender's.
            self.log.info("an announced block is not connected: {why}", why=str(outcome))

    def _arrived(self, fetch: _AnnouncedBlock) -> None:
        """End the fetch of a block that arrived from another peer than those that were asked for it."""
        self._mark_overtaken(fetch)
        self._end(fetch)

    def _mark_overtaken(self, fetch: _AnnouncedBlock) -> None:
        """Record the peers that had a head start, delivered next to nothing, and were overtaken."""
        now = self._node.now()
        for source in fetch.sources:
            if not source.has_head_start(now) and source.rate(now) < MIN_RATE and not fetch.over:
                self._mark_unreliable(source.peer)

    def _mark_unreliable(self, peer: Peer) -> None:
        """Record that a peer did not deliver a block as announced."""
        for key in (peer.endpoint, self._peers.reputation_key(peer)):
            self._unreliable_until[key] = self._node.now() + UNRELIABLE_SECONDS

    def _is_unreliable(self, peer: Peer) -> bool:
        """Whether a peer is recorded, or an inbound one for another in its network group.

        An outbound peer answers for itself only: others in its group must not be able to spoil its record.
        """
        key = peer.endpoint if peer.outbound else self._peers.reputation_key(peer)
        return self._unreliable_until.get(key, 0.0) > self._node.now()

    def _end(self, fetch: _AnnouncedBlock) -> None:
        """End the fetch and forget it."""
        fetch.end()
        if self._fetches.get(fetch.header.hash) is fetch:
            del self._fetches[fetch.header.hash]

    async def _submit(self, block: Block, sender: Peer | None) -> BlockOutcome:
        source = "" if sender is None else sender.endpoint
        (outcome,) = await self._node.chain_manager.submit_blocks([block], source=source)
        return outcome

    def _log_failure(self, failure: Failure) -> None:
        self.log.failure("fetching an announced block failed", failure)
