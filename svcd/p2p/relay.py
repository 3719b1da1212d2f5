"""Relay: new blocks, whole to a few peers and as headers to the others, and transfers (docs/peers.md "Relay").

A slow peer delays no other, a slow uplink carries few blocks at a time, and a block waits for no transfer. What a peer
is known to have is not sent to it, nor back to where it came from.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Final

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import Wait
from svcd.chain.transition import ChainPoint
from svcd.node.changes import Change, CommittedBlock
from svcd.node.mempool import Entry
from svcd.node.recent import Recent
from svcd.p2p.branch_push import BranchPush
from svcd.p2p.peers import Peer, Peers
from svcd.p2p.transport import CallFailed
from svcd.ports import Timer

OTHERS: Final = 8
"""Inbound peers, beside all outbound ones, that are sent transfers and small blocks they have not shown."""
SMALL_BLOCK: Final = 16 * 1024
"""Bytes up to which a block goes whole to so many: its header alone would be no quicker."""
WHOLE_BLOCKS: Final = 2
"""Peers that are sent a larger block without having asked for it."""
UPLOADS: Final = 2
"""Larger blocks that are sent at a time, to all peers together."""
UPLOAD_SECONDS: Final = 20.0
"""How long one of them keeps others waiting: a peer that takes a block slowly must not keep it from the others."""
_LATER: Final = {0, 429, 503}
"""Statuses after which to offer the same again: none at all, too many requests, not at present."""
QUEUE: Final = 2_048
"""Transfers that may wait for one peer; beyond that the oldest are dropped, and reach it by others."""
_REMEMBERED: Final = 16_384
BLOCKS_IN_FLIGHT: Final = 2
"""Blocks that may be on their way to one peer; of later ones the newest waits."""
IN_FLIGHT: Final = 4
"""Transfers that may be on their way to one peer; as many as it has places for (svcd.net.pinned.PLACES)."""


@define(eq=False)
class _TransferQueue:
    """Transfers that wait to be sent to one peer, in order of arrival here, and the txids of those being sent."""

    waiting: deque[Entry] = field(factory=lambda: deque(maxlen=QUEUE))
    in_flight: set[bytes] = field(factory=set)
    width: int = IN_FLIGHT
    """How many may be in flight; one only to a peer that has just refused for now."""

    def next_for(self, peer: Peer) -> Entry | None:
        """The first transfer that ``peer`` lacks, which is in flight from now on."""
        while self.waiting:
            entry = self.waiting.popleft()
            txid = entry.transfer.txid
            if not peer.has(txid) and txid not in self.in_flight:
                self.in_flight.add(txid)
                return entry
        return None

    def put_back(self, entry: Entry) -> None:
        """Let a transfer wait again, before those that came later; where the queue is full it is the oldest."""
        later = (index for index, other in enumerate(self.waiting) if other.sequence > entry.sequence)
        if len(self.waiting) < QUEUE:
            self.waiting.insert(next(later, len(self.waiting)), entry)


@define(eq=False)
class _BlockQueue:
    """How many blocks are in flight to one peer, and the newest that waits for one of these to be taken."""

    in_flight: int = 0
    waiting: CommittedBlock | None = None
    whole: bool = False
    """Whether the one that waits is to be sent whole."""


class Relay:
    """Tells peers of new blocks and transfers, after they have been committed here."""

    log = Logger()

    def __init__(self, peers: Peers, recent: Callable[[int], Iterable[Entry]]) -> None:
        """Make it; ``recent(count)`` gives at most so many waiting transfers, the last that came, in their order."""
        self._peers = peers
        self._recent = recent
        self._told: Recent[bytes, None] = Recent(_REMEMBERED)
        """The txids that some peer has taken."""
        self._home = peers.home
        self._client = peers.client
        self._transfers: dict[str, _TransferQueue] = {}
        self._blocks: dict[str, _BlockQueue] = {}
        """By endpoint, the peers to which a block is in flight."""
        self._newest = b""
        self._uploads = DeferredSemaphore(UPLOADS)
        self.branch_push = BranchPush(peers)
        self._work: set[Deferred[None]] = set()
        self._stopping = False

    def stop(self) -> None:
        """Give up what is under way, and begin nothing any more."""
        self._stopping = True
        self.branch_push.stop()
        for work in tuple(self._work):
            work.cancel()

    def chain_changed(self, change: Change) -> None:
        """Offer the new tip; a peer that lacks its parents asks for them."""
        tip = change.tip
        self._newest = tip.hash
        for queue in self._blocks.values():
            # The new one is offered instead, to the peers that have not shown it.
            queue.waiting = None
        peers = [peer for peer in self._in_order() if not peer.has(tip.hash) and not _is_further(peer, tip)]
        if peers:
            self._offer(change.newest, peers)

    def pool_changed(self, added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        """Queue new transfers for peers that have not shown them."""
        if not added:
            return
        peers = self._in_order()
        self._transfers = {peer.endpoint: self._transfers.get(peer.endpoint) or _TransferQueue() for peer in peers}
        for entry in added:
            txid = entry.transfer.txid
            for peer in _some(peer for peer in peers if not peer.has(txid)):
                self._transfers[peer.endpoint].waiting.append(entry)
        for peer in peers:
            self._send_waiting(peer, self._transfers[peer.endpoint])

    def met(self, peer: Peer) -> None:
        """Queue for a new peer the transfers that no peer has taken: they came while none could be reached."""
        waiting = [entry for entry in self._recent(QUEUE) if entry.transfer.txid not in self._told]
        self._transfers[peer.endpoint] = _TransferQueue(deque(waiting, QUEUE))
        self._send_waiting(peer, self._transfers[peer.endpoint])

    def _in_order(self) -> list[Peer]:
        """Every peer, outbound ones first, else by chance: the same few might keep what is new to themselves."""
        random = self._peers.book.random
        return sorted(self._peers.all(), key=lambda peer: (not peer.outbound, random()))

    # Blocks

    def _offer(self, block: CommittedBlock, peers: Sequence[Peer]) -> None:
        lacking = [peer for peer in peers if not peer.has(block.digest)]
        whole = _some(lacking) if _is_small(block) else lacking[:WHOLE_BLOCKS]
        for index, peer in enumerate(lacking):
            queue = self._blocks.setdefault(peer.endpoint, _BlockQueue())
            queue.waiting, queue.whole = block, index < len(whole)
            self._send_block(peer, queue)

    def _send_block(self, peer: Peer, queue: _BlockQueue) -> None:
        """Send the block that waits for a peer, as soon as fewer than two are in flight to it."""
        block = queue.waiting
        if block is not None and queue.in_flight < BLOCKS_IN_FLIGHT:
            queue.waiting = None
            if self._lacks(peer, block):
                peer.note(block.hash)
                queue.in_flight += 1
                self._begin(self._tell(peer, queue, block, whole=queue.whole))
        if not queue.in_flight:
            self._blocks.pop(peer.endpoint, None)

    def _lacks(self, peer: Peer, block: CommittedBlock) -> bool:
        return self._peers.get(peer.endpoint) is peer and not (peer.has(block.hash) or peer.has(block.digest))

    async def _tell(self, peer: Peer, queue: _BlockQueue, block: CommittedBlock, *, whole: bool) -> None:
        try:
            if _is_small(block) and whole:
                state = (await self._client.send_block(peer.endpoint, block.wire)).state
            else:
                state = await self._announce(peer, block, push=whole)
            if state == Wait.ORPHAN:
                # The peer lacks the blocks between, and may not be able to call this node to ask for them.
                self.branch_push.begin(peer)
        except CallFailed as failed:
            self.log.debug("{endpoint} did not take a block: {why}", endpoint=peer.endpoint, why=failed.detail)
        finally:
            queue.in_flight -= 1
        self._send_block(peer, queue)

    async def _announce(self, peer: Peer, block: CommittedBlock, *, push: bool) -> str:
        """Tell a peer the header, and send the block if it is wanted; the peer's last word. Raises CallFailed.

        With ``push`` the peer waits for the block, and does not ask for it meanwhile.
        """
        if peer.announces is False:
            return await self._post(peer, block)
        try:
            state = await self._say(peer, block, push=push)
        except CallFailed as failed:
            if failed.status not in (404, 405):
                raise
            peer.announces = False
            return await self._post(peer, block)
        peer.announces = True
        return await self._post(peer, block, push=push) if state == WANTED else state

    async def _say(self, peer: Peer, block: CommittedBlock, *, push: bool) -> str:
        return (await self._client.announce(peer.endpoint, block.header, self._home.key.endpoint, push=push)).state

    async def _post(self, peer: Peer, block: CommittedBlock, *, push: bool = False) -> str:
        """Send a block whole, a large one only while few are being sent; the peer's word. Raises CallFailed.

        Where it had to wait for that, the peer is told the header once more, for it may have the block by now.
        """
        if _is_small(block):
            return (await self._client.send_block(peer.endpoint, block.wire)).state
        waits = not self._uploads.tokens
        await self._uploads.acquire()
        timer: Timer | None = None

        def give_way() -> None:
            nonlocal timer
            timer = None
            self._uploads.release()

        timer = self._home.clock.callLater(UPLOAD_SECONDS, give_way)
        try:
            if waits and peer.announces and self._is_news(peer, block):
                state = await self._say(peer, block, push=push)
                if state != WANTED:
                    return state
            if not self._is_news(peer, block):
                return ""
            return (await self._client.send_block(peer.endpoint, block.wire)).state
        finally:
            if timer is not None:
                timer.cancel()
                self._uploads.release()

    def _is_news(self, peer: Peer, block: CommittedBlock) -> bool:
        return block.hash == self._newest and not peer.has(block.digest)

    # Transfers

    def _send_waiting(self, peer: Peer, queue: _TransferQueue) -> None:
        if self._peers.get(peer.endpoint) is not peer:
            return
        for _ in range(queue.width - len(queue.in_flight)):
            entry = queue.next_for(peer)
            if entry is not None:
                self._begin(self._send_transfer(peer, queue, entry))

    async def _send_transfer(self, peer: Peer, queue: _TransferQueue, entry: Entry) -> None:
        try:
            sent = await self._sent(peer, entry)
        finally:
            queue.in_flight.discard(entry.transfer.txid)
        if sent:
            queue.width = min(queue.width + 1, IN_FLIGHT)
            self._send_waiting(peer, queue)
        else:
            # It goes on with the next transfer that comes: the peer may refuse for now.
            queue.width = 1
            queue.put_back(entry)

    async def _sent(self, peer: Peer, entry: Entry) -> bool:
        """Whether the peer has been offered a transfer, so that it need not be offered again."""
        try:
            await self._client.send_transaction(peer.endpoint, entry.transfer.wire)
        except CallFailed as failed:
            self.log.debug("{endpoint} did not take a transfer: {why}", endpoint=peer.endpoint, why=failed.detail)
            return failed.status not in _LATER
        peer.note(entry.transfer.txid)
        self._told[entry.transfer.txid] = None
        return True

    def _begin(self, work: Coroutine[Deferred[object], object, None]) -> None:
        if self._stopping:
            work.close()
            return
        begun = Deferred.fromCoroutine(work)
        self._work.add(begun)
        begun.addErrback(self._log_failure).addBoth(lambda _: self._work.discard(begun))

    def _log_failure(self, failure: Failure) -> None:
        if not (self._stopping and failure.check(CancelledError)):  # type: ignore[no-untyped-call]
            self.log.failure("relay failed", failure)


WANTED: Final = "wanted"
"""What a peer answers to a header whose block it wants to be sent."""


def _is_small(block: CommittedBlock) -> bool:
    """Whether it goes whole to many peers."""
    return len(block.wire) <= SMALL_BLOCK


def _some(peers: Iterable[Peer]) -> list[Peer]:
    """Of ``peers`` in order all outbound ones, and as many others as are told of what is new."""
    chosen: list[Peer] = []
    others = 0
    for peer in peers:
        chosen.append(peer)
        others += not peer.outbound
        if others == OTHERS:
            break
    return chosen


def _is_further(peer: Peer, tip: ChainPoint) -> bool:
    """Whether a peer has shown more work than ``tip``, so that this node is the one that is catching up."""
    return peer.status is not None and peer.status.work > tip.work


def note_sender(peers: Peers, client: str | None, item: bytes) -> None:
    """Note that the sender of ``item`` has it: the only peer at the address of ``client``, if there is one.

    ``item`` is a txid, or the SHA-256 of a block's canonical JSON. What is posted is not signed by a node, so the
    address is all there is to go by; where several peers share it, none is left out.
    """
    if client is not None:
        there = [peer for peer in peers.all() if peer.is_at(client)]
        if len(there) == 1:
            there[0].note(item)
