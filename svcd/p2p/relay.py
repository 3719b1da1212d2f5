"""Relay of new blocks and transfers (docs/peers.md "Relay").

A small new block goes whole to a few peers, and any block as a header to the others, which fetch it; a block waits for
no transfer, and a slow peer delays no other. What a peer is known to have is not sent to it, nor back to its sender.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Final

from attrs import define, field
from twisted.internet.defer import DeferredSemaphore
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import Wait
from svcd.chain.transition import ChainPoint
from svcd.interfaces import Timer
from svcd.limits import limit
from svcd.node.changes import ChainChange, CommittedBlock
from svcd.node.mempool import Mempool, MempoolEntry, Removals
from svcd.node.tasks import CancellableTasks
from svcd.node.transaction_pool import TransactionPool
from svcd.p2p.branch_push import BranchPush
from svcd.p2p.client import WANTED
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.p2p.transport import PeerCallFailed

OTHERS: Final = 8
"""Inbound peers to which a transfer or a small block is sent whole, beside all outbound ones."""
SMALL_BLOCK: Final = 16 * 1024
"""Bytes up to which a block is sent whole like that: its header alone would not be faster."""
_SLOW_PEER: Final = "Taking transfers or sending blocks slowly, so that new blocks wait"
UPLOADS: Final = limit(2, "large blocks posted to outbound, or to inbound, peers at a time", "blocks", _SLOW_PEER)
"""Larger blocks that are posted at a time to all outbound peers together, and as many to all inbound peers."""
UPLOAD_SECONDS: Final = limit(20.0, "time that a large block keeps others waiting", "seconds", _SLOW_PEER)
"""How long one of them keeps others waiting: a peer that takes a block slowly must not delay it for all others."""
QUEUE: Final = limit(2_048, "transfers queued for one peer", "transfers", _SLOW_PEER)
"""Transfers that may wait for one peer; beyond that the oldest are dropped, and reach it through others."""
BLOCKS_IN_FLIGHT: Final = limit(2, "blocks in flight to one peer", "blocks", _SLOW_PEER)
"""Blocks that may be in flight to one peer; of later ones only the newest waits."""
IN_FLIGHT: Final = limit(4, "transfers in flight to one peer", "transfers", _SLOW_PEER)
"""Transfers that may be in flight to one peer; one for each connection (svcd.net.http_client)."""
_REOFFER_SECONDS: Final = 45.0
"""Between two offers of what no peer has taken."""
_TAKEN: Final = {"accepted", "known"}
"""Answers to a transfer after which the peer has it."""


@define(eq=False)
class _TransferQueue:
    """Transfers to be sent to one peer, in order of arrival here, and the txids of those in flight."""

    waiting: deque[MempoolEntry] = field(factory=lambda: deque(maxlen=QUEUE))
    in_flight: set[bytes] = field(factory=set)
    width: int = IN_FLIGHT
    """How many may be in flight; only one to a peer that has just taken nothing."""

    def next_for(self, peer: Peer, mempool: Mempool) -> MempoolEntry | None:
        """The first transfer that ``peer`` lacks and that is still in ``mempool``; it is in flight from now on."""
        while self.waiting:
            entry = self.waiting.popleft()
            txid = entry.transfer.txid
            if not peer.knows(txid) and txid not in self.in_flight and txid in mempool:
                self.in_flight.add(txid)
                return entry
        return None

    def put_back(self, entry: MempoolEntry) -> None:
        """Let a transfer wait again, before later ones; if the queue is full it is dropped, being the oldest."""
        later = (index for index, other in enumerate(self.waiting) if other.sequence > entry.sequence)
        if len(self.waiting) < QUEUE:
            self.waiting.insert(next(later, len(self.waiting)), entry)


@define(eq=False)
class _BlockQueue:
    """The number of blocks in flight to one peer, and the newest block that waits for one of these to arrive."""

    in_flight: int = 0
    waiting: CommittedBlock | None = None
    full: bool = False
    """Whether the waiting block is to be sent whole."""


class Relay:
    """Sends committed blocks and transfers to peers."""

    log = Logger()

    def __init__(self, peers: Peers, transaction_pool: TransactionPool) -> None:
        self._peers = peers
        self._transaction_pool = transaction_pool
        self._node = peers.node
        self._client = peers.client
        self._unbroadcast: dict[bytes, None] = {
            entry.transfer.txid: None for entry in transaction_pool.mempool.entries()
        }
        """The ids of the transfers in the mempool that no peer is known to have, the first to be offered next."""
        self._transfers: dict[str, _TransferQueue] = {}
        self._blocks: dict[str, _BlockQueue] = {}
        """By endpoint, the peers to which a block is in flight."""
        self._reoffer_at = self._node.clock.seconds() + _REOFFER_SECONDS
        self._newest = b""
        self._uploads = {True: DeferredSemaphore(UPLOADS), False: DeferredSemaphore(UPLOADS)}
        """Places for larger blocks that are posted, by whether the peers are outbound ones.

        Inbound peers, which cost nothing, must not delay these.
        """
        self.branch_push = BranchPush(peers)
        self._tasks = CancellableTasks(self._log_failure)

    def stop(self) -> None:
        """Cancel what is in flight, and send nothing more."""
        self.branch_push.stop()
        self._tasks.stop()

    def chain_changed(self, change: ChainChange) -> None:
        """Offer the new tip; a peer that lacks its parents asks for them."""
        tip = change.tip
        self._newest = tip.hash
        for queue in self._blocks.values():
            # The new tip is offered instead, to the peers that have not shown it.
            queue.waiting = None
        order = self._peers.in_relay_order()
        peers = [peer for peer in order if not peer.knows(tip.hash) and not _is_ahead(peer, tip)]
        if peers and change.newest is not None:
            self._offer(change.newest, peers)

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        """Queue new transfers for peers that have not shown them."""
        for entry in removed:
            self._unbroadcast.pop(entry.transfer.txid, None)
        if not added:
            return
        peers = self._peers.in_relay_order()
        for entry in added:
            if not any(peer.knows(entry.transfer.txid) for peer in peers):
                self._unbroadcast[entry.transfer.txid] = None
        self._offer_transfers(added, peers, peers)

    def peer_added(self, peer: Peer) -> None:
        """Queue for a new peer the newest transfers that no peer has taken: they came while none could be reached."""
        waiting = self._entries(list(self._unbroadcast)[-QUEUE:])
        self._transfers[peer.endpoint] = _TransferQueue(deque(sorted(waiting, key=_sequence), QUEUE))
        self._send_waiting(peer, self._transfers[peer.endpoint])

    def tick(self) -> None:
        """Send what still waits for a peer, and offer again what no peer has taken; to be called every second.

        It does so every 45 seconds. A peer refuses a transfer for the moment if its chain is a block behind or its
        mempool is full, so it is offered to all again, until one has it or it leaves the mempool.
        """
        if self._node.clock.seconds() < self._reoffer_at:
            return
        self._reoffer_at = self._node.clock.seconds() + _REOFFER_SECONDS
        if not self._unbroadcast and not any(queue.waiting for queue in self._transfers.values()):
            return
        peers = self._peers.in_relay_order()
        lacking: list[bytes] = []
        for txid in list(self._unbroadcast)[:QUEUE]:
            del self._unbroadcast[txid]
            if not any(peer.knows(txid) for peer in peers):
                # Behind the others, which have their turn if there are more than a queue takes.
                self._unbroadcast[txid] = None
                lacking.append(txid)
        # What waits for a peer that takes little may be the same.
        free = [
            peer for peer in peers if not (peer.endpoint in self._transfers and self._transfers[peer.endpoint].waiting)
        ]
        self._offer_transfers(self._entries(lacking), free, peers)

    def _entries(self, txids: Iterable[bytes]) -> list[MempoolEntry]:
        mempool = self._transaction_pool.mempool
        return [entry for entry in map(mempool.get, txids) if entry is not None]

    def _offer_transfers(
        self, entries: Sequence[MempoolEntry], receivers: Sequence[Peer], peers: Sequence[Peer]
    ) -> None:
        """Queue transfers for those ``receivers`` that lack them, and go on with the queue of each of ``peers``."""
        self._transfers = {peer.endpoint: self._transfers.get(peer.endpoint) or _TransferQueue() for peer in peers}
        for entry in entries:
            txid = entry.transfer.txid
            for peer in _few(peer for peer in receivers if not peer.knows(txid)):
                self._transfers[peer.endpoint].waiting.append(entry)
        for peer in peers:
            self._send_waiting(peer, self._transfers[peer.endpoint])

    # Blocks

    def _offer(self, block: CommittedBlock, peers: Sequence[Peer]) -> None:
        lacking = [peer for peer in peers if not peer.knows(block.digest)]
        full = len(_few(lacking)) if _is_small(block) else 0
        for index, peer in enumerate(lacking):
            queue = self._blocks.setdefault(peer.endpoint, _BlockQueue())
            queue.waiting, queue.full = block, index < full
            self._send_next_block(peer, queue)

    def _send_next_block(self, peer: Peer, queue: _BlockQueue) -> None:
        """Send the block that waits for a peer, if fewer than two are in flight to it."""
        block = queue.waiting
        if block is not None and queue.in_flight < BLOCKS_IN_FLIGHT:
            queue.waiting = None
            if self._peers.has(peer) and not (peer.knows(block.hash) or peer.knows(block.digest)):
                peer.mark_known(block.hash)
                queue.in_flight += 1
                self._tasks.start(self._send_block(peer, queue, block, full=queue.full))
        if not queue.in_flight:
            self._blocks.pop(peer.endpoint, None)

    async def _send_block(self, peer: Peer, queue: _BlockQueue, block: CommittedBlock, *, full: bool) -> None:
        try:
            state = await self._deliver(peer, block, full=full)
            if state == Wait.ORPHAN:
                # The peer lacks the blocks between, and may not be able to call this node to ask for them.
                self.branch_push.start(peer)
        except PeerCallFailed as failed:
            self.log.debug("{endpoint} did not take a block: {why}", endpoint=peer.endpoint, why=failed.detail)
        finally:
            queue.in_flight -= 1
        self._send_next_block(peer, queue)

    async def _deliver(self, peer: Peer, block: CommittedBlock, *, full: bool) -> str:
        """Send a block in ``full``, or its header and then, if the peer wants it, the block; the peer's last answer.

        A peer that can call this node fetches the block instead. Raises PeerCallFailed.
        """
        if not full:
            state = await self._announce(peer, block)
            if state != WANTED or not self._peers.has(peer):
                return state
        if _is_small(block):
            return await self._client.send_block(peer.endpoint, block.wire)
        return await self._upload(peer, block)

    async def _announce(self, peer: Peer, block: CommittedBlock) -> str:
        """Send the header; the peer's answer. Raises PeerCallFailed."""
        return await self._client.announce(peer.endpoint, block.header, self._node.key.endpoint)

    async def _upload(self, peer: Peer, block: CommittedBlock) -> str:
        """Send a larger block once few others are being sent; the peer's answer. Raises PeerCallFailed.

        If the block had to wait for that, its header is sent once more, for the peer may have the block by now.
        """
        slots = self._uploads[peer.outbound]
        waits = not slots.tokens
        await slots.acquire()
        with ExitStack() as held:
            held.callback(slots.release)
            timer = self._node.clock.callLater(UPLOAD_SECONDS, held.close)
            held.callback(_cancel, timer)
            if waits and self._is_news(peer, block):
                state = await self._announce(peer, block)
                if state != WANTED:
                    return state
            return await self._client.send_block(peer.endpoint, block.wire) if self._is_news(peer, block) else ""

    def _is_news(self, peer: Peer, block: CommittedBlock) -> bool:
        return block.hash == self._newest and self._peers.has(peer) and not peer.knows(block.digest)

    # Transfers

    def _send_waiting(self, peer: Peer, queue: _TransferQueue) -> None:
        if not self._peers.has(peer):
            return
        for _ in range(queue.width - len(queue.in_flight)):
            entry = queue.next_for(peer, self._transaction_pool.mempool)
            if entry is not None:
                self._tasks.start(self._send_transfer(peer, queue, entry))

    async def _send_transfer(self, peer: Peer, queue: _TransferQueue, entry: MempoolEntry) -> None:
        txid = entry.transfer.txid
        try:
            state = await self._client.send_transaction(peer.endpoint, entry.transfer.wire)
            if state in _TAKEN:
                peer.mark_known(txid)
                self._unbroadcast.pop(txid, None)
        except PeerCallFailed as failed:
            self.log.debug("{endpoint} did not take a transfer: {why}", endpoint=peer.endpoint, why=failed.detail)
            if failed.retry_after or not failed.status:
                # The peer is overloaded, or has not answered: it gets it with the next transfer, or within a minute.
                queue.width = 1
                queue.put_back(entry)
                return
        finally:
            queue.in_flight.discard(txid)
        queue.width = min(queue.width + 1, IN_FLIGHT)
        self._send_waiting(peer, queue)

    def _log_failure(self, failure: Failure) -> None:
        self.log.failure("relay failed", failure)


def _sequence(entry: MempoolEntry) -> int:
    return entry.sequence


def _cancel(timer: Timer) -> None:
    if timer.active():
        timer.cancel()


def _is_small(block: CommittedBlock) -> bool:
    """Whether it is sent whole to many peers."""
    return len(block.wire) <= SMALL_BLOCK


def _few(peers: Iterable[Peer]) -> list[Peer]:
    """All outbound ones of ``peers``, which come first, and the first inbound ones, at most OTHERS."""
    chosen: list[Peer] = []
    inbound = 0
    for peer in peers:
        chosen.append(peer)
        inbound += not peer.outbound
        if inbound == OTHERS:
            break
    return chosen


def _is_ahead(peer: Peer, tip: ChainPoint) -> bool:
    """Whether a peer has shown more work than ``tip``, so that this node is the one that has to catch up."""
    return peer.status is not None and peer.status.work > tip.work
