"""Block download: the blocks of a chain whose headers are verified, by hash, from every peer that has them.

The size of a request follows the rate at which the peer delivers, so that neither a slow line nor a distant peer idles.
A reply may take as long as it makes progress. A block is checked against its header when it arrives, so the peer that
sent a false one is known; blocks are connected in order, several to a commit (docs/peers.md "Catching up").
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.block import Block, Header
from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.interfaces import Clock
from svcd.limits import STALLING_PEER, limit
from svcd.node.changes import BlockOutcome, BlockStatus
from svcd.p2p.client import MAX_HASHES, MAX_REPLY_BYTES, MIN_BYTES, BlocksReply
from svcd.p2p.headers import HeaderChain
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.p2p.progress import SyncProgress
from svcd.p2p.schedule import ABSENT_BACKOFF, SLOW_BACKOFF, Item, ItemsRequest, Schedule, Source
from svcd.p2p.transport import FailureKind, PeerCallFailed

_WITHHELD_BLOCK: Final = "Holding back one block, to fill the node's memory with those behind it"
WINDOW_BYTES: Final = limit(
    64 * 1024 * 1024, "size of the blocks ahead of the one that is missing", "bytes", _WITHHELD_BLOCK
)
"""Blocks that are requested, or wait for an earlier one, together."""
WINDOW_BLOCKS: Final = limit(2_048, "blocks ahead of the one that is missing", "blocks", _WITHHELD_BLOCK)
MAX_BATCHES: Final = 2
"""Batches in the chain manager at a time: one is verified while the other is connected."""
BATCH_BLOCKS: Final = 64
BATCH_BYTES: Final = limit(4 * 1024 * 1024, "size of the blocks that are verified together", "bytes", _WITHHELD_BLOCK)
STALL_SECONDS: Final = limit(60.0, "time without any of the missing blocks", "seconds", STALLING_PEER)
"""How long a chain is followed while no peer delivers any of its blocks."""
_HEADER_BYTES: Final = 1_000
_TRANSACTION_BYTES: Final = 620
_CHECK_SECONDS: Final = 1.0
BUSY_BACKOFF: Final = 1.0
"""How long blocks wait that the chain manager had no room for."""


class DownloadFailed(Exception):
    """The blocks of a chain are not available at present; the text says why."""


class InvalidChain(Exception):
    """A block of a chain breaks a rule that its header does not show; the text says which."""


class NodeBusy(Exception):
    """This node takes no more blocks at present, through no fault of a peer."""


@define(eq=False, kw_only=True)
class _QueuedBlock(Item):
    """A block of the chain that has not been submitted to the chain manager."""

    header: Header
    block: Block | None = None


class Wakeup:
    """An event that one coroutine waits for, with a timeout; an event that comes before the wait is not lost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = cast(IReactorTime, clock)
        self._event: Deferred[None] = Deferred()

    async def wait(self, seconds: float) -> None:
        """Wait for the event, at most ``seconds``."""
        try:
            await self._event.addTimeout(seconds, self._clock, lambda *_: None)
        finally:
            self._event = Deferred()

    def set(self) -> None:
        """Wake the coroutine."""
        if not self._event.called:
            self._event.callback(None)


class BlockDownload:
    """Fetches and connects the blocks of one chain in order."""

    log = Logger()

    def __init__(self, peers: Peers, progress: SyncProgress, chain: HeaderChain) -> None:
        self._peers = peers
        self._node = peers.node
        self._progress = progress
        self._chain = chain
        self._queue: deque[_QueuedBlock] = deque()
        self._schedule: Schedule[_QueuedBlock] = Schedule(
            window=WINDOW_BYTES, most_items=MAX_HASHES, most_bytes=MAX_REPLY_BYTES
        )
        """Of the blocks with transfers; the others are complete with their headers, and count nothing."""
        self._calls: dict[ItemsRequest[_QueuedBlock], Deferred[Any]] = {}
        self._bytes_per_transaction = float(_TRANSACTION_BYTES)
        self._batches = 0
        self._postponed: list[Block] = []
        """Blocks for which the chain manager had no room."""
        self._submit_after = 0.0
        """Until when (the node's seconds) none is submitted."""
        self._failure: Exception | None = None
        self._wakeup = Wakeup(self._node.clock)
        self._bytes_since_progress = 0
        """Bytes of replies since the download was last noted not to be idle."""
        self.last_block = self._idle_since = self._node.now()
        """``last_block``: when a block came last (the node's seconds)."""
        self.delivered = False
        """Whether a peer has delivered a block."""

    def wake(self) -> None:
        """Run the next step at once: headers have come, or the chain has ended."""
        self._wakeup.set()

    def stop(self, failure: Exception) -> None:
        """Give up; :meth:`run` raises ``failure`` as soon as no block is being connected."""
        self._failure = self._failure or failure
        self._wakeup.set()

    def lacks_chain(self, peer: Peer) -> bool:
        """Whether ``peer`` had none of the blocks of this chain last requested from it."""
        source = self._schedule.sources.get(peer.endpoint)
        return source is not None and source.lacks_all

    @property
    def waits_for_headers(self) -> bool:
        """Whether no block is wanted that has not been submitted."""
        return not self._queue

    def pending(self) -> set[bytes]:
        """The hashes of the blocks that are wanted next and have not been submitted."""
        return {wanted.header.hash for wanted in self._queue}

    async def run(self) -> None:
        """Fetch and connect until the chain has ended and every block is connected.

        Raises DownloadFailed, InvalidChain, NodeBusy, or an error of this node itself, such as apsw.Error.
        """
        try:
            await self._fetch_and_connect()
        except Exception as error:
            # Raised when no block is being connected: the next download would meet these blocks, and a stop go on.
            self.stop(error)
        finally:
            self._cancel_all()
        while self._batches:
            await self._wakeup.wait(_CHECK_SECONDS)
        if self._failure is not None:
            raise self._failure

    async def _fetch_and_connect(self) -> None:
        """Fetch and connect until the chain has ended, or the download is stopped."""
        while self._failure is None:
            self._take_headers()
            self._leave_out_stored()
            self._send_requests()
            self._connect()
            if self._failure is None and self._chain.ended and not self._queue and not self._batches:
                self._take_headers()
                if not self._queue:
                    return
                continue
            await self._wakeup.wait(_CHECK_SECONDS)
            self._check_stall()
            self._check_slow_peer()

    def _cancel_all(self) -> None:
        for call in tuple(self._calls.values()):
            call.cancel()

    # Headers

    def _take_headers(self) -> None:
        room = WINDOW_BLOCKS - len(self._queue)
        for header in self._chain.take(room) if room > 0 else ():
            wanted = self._queued(header)
            if not header.transaction_count:
                # It is complete with its header.
                wanted.block = Block(header, ())
                self.last_block = self._node.now()
            else:
                self._schedule.want(wanted)
            self._queue.append(wanted)

    def _queued(self, header: Header, block: Block | None = None) -> _QueuedBlock:
        size = _HEADER_BYTES + int(header.transaction_count * self._bytes_per_transaction)
        size = min(size, self._node.params.max_block_bytes)
        return _QueuedBlock(order=header.height, size=size, header=header, block=block)

    def _leave_out_stored(self) -> None:
        """Drop blocks that arrived by another way: all below a stored block are stored."""
        came = False
        while self._queue and self._node.chain_manager.reader.point(self._queue[0].header.hash) is not None:
            self._schedule.came(self._take_first())
            came = True
            self.last_block = self._idle_since = self._node.now()
        for request, call in tuple(self._calls.items()) if came else ():
            if request.first is None:
                call.cancel()

    def _take_first(self) -> _QueuedBlock:
        wanted = self._queue.popleft()
        if wanted.block is not None and wanted.block.transfers:
            self._schedule.held -= wanted.size
        return wanted

    # Requests

    def _send_requests(self) -> None:
        now, sources = self._node.now(), self._schedule.sources
        self._schedule.update_sources(filter(self._may_have_chain, self._peers.all()), self._peers.has)
        for source in sources.values():
            peer = source.peer
            source.paused = peer.is_paused or not self._peers.has(peer)
            source.least = 0 if peer.status is None else peer.status.prune_height
            # Any number of peers may claim to have the chain, and answer no request for its blocks.
            source.preference = peer is not self._chain.source, not peer.delivered
        urgent = self._queue[0] if self._queue else None
        for source in sorted(sources.values(), key=lambda source: source.rank):
            while wanted := self._schedule.choose(source, now, urgent):
                self._request(source, wanted, now)

    def _may_have_chain(self, peer: Peer) -> bool:
        """Whether a peer may have blocks of a chain with more work than the one here."""
        tip, status = self._node.chain_manager.tip, peer.status
        return status is None or (status.work >= tip.work and status.hash != tip.hash)

    def _request(self, source: Source, wanted: list[_QueuedBlock], now: float) -> None:
        request = self._schedule.begin(source, wanted, now)
        headers = [each.header for each in wanted]
        fetch = self._peers.client.blocks_by_hash(source.name, headers, partial(self._note_bytes, request))
        call = self._calls[request] = Deferred.fromCoroutine(fetch)
        call.addCallback(self._blocks_received, request).addErrback(self._request_failed, request)
        call.addErrback(self._log_failure).addCallback(lambda _: self._request_ended(request))

    def _note_bytes(self, request: ItemsRequest[_QueuedBlock], count: int) -> None:
        request.received += count
        self._bytes_since_progress += count
        if self._bytes_since_progress >= MIN_BYTES:
            self._bytes_since_progress = 0
            self._idle_since = self._node.now()

    def _request_ended(self, request: ItemsRequest[_QueuedBlock]) -> None:
        self._calls.pop(request, None)
        self._schedule.end(request)
        self._wakeup.set()

    def _blocks_received(self, reply: BlocksReply, request: ItemsRequest[_QueuedBlock]) -> None:
        now = self._node.now()
        arrived = {block.header.hash: block for block in reply.blocks}
        came = [wanted for wanted in request.items if wanted.header.hash in arrived]
        for wanted in came:
            if not wanted.done:
                wanted.block = arrived[wanted.header.hash]
        cut = reply.size + self._node.params.max_block_bytes > MAX_REPLY_BYTES
        self._schedule.answered(request, came, reply.size, now, cut=cut)
        if not came:
            return
        request.source.peer.credit_delivery()
        self._progress.sent_by(request.source.name)
        self.delivered = True
        self.last_block = self._idle_since = now
        transactions = sum(len(block.transfers) for block in reply.blocks)
        if transactions:
            self._bytes_per_transaction += (reply.size / transactions - self._bytes_per_transaction) / 4

    def _request_failed(self, failure: Failure, request: ItemsRequest[_QueuedBlock]) -> None:
        if failure.check(CancelledError):  # type: ignore[no-untyped-call]
            return
        error, peer = failure.value, request.source.peer
        invalid = isinstance(error, PeerCallFailed) and error.kind is FailureKind.INVALID
        if not (isinstance(error, PeerCallFailed) and error.retry_after):
            request.source.fail(self._node.now(), rest=SLOW_BACKOFF if invalid else ABSENT_BACKOFF)
        if not isinstance(error, PeerCallFailed):
            self.log.failure("fetching blocks failed", failure)
        elif invalid:
            self._peers.ban(peer, error.detail)
        else:
            self._peers.count_failure(peer, error)

    # Waiting

    def _check_stall(self) -> None:
        """Give up when the next block has not come, and nothing moved, for too long."""
        now = self._node.now()
        head = self._queue[0] if self._queue else None
        if head is None or head.block is not None or self._batches:
            self._idle_since = now
        elif now - self._idle_since >= STALL_SECONDS:
            height = head.header.height
            sources = self._schedule.sources.values()
            able = not sources or any(source.least <= height for source in sources)
            why = f"no peer has delivered block {height} for {STALL_SECONDS:g} s"
            self.stop(DownloadFailed(why if able else f"{why}: the peers have only later blocks"))

    def _check_slow_peer(self) -> None:
        """Request the first missing block from another peer, if its sender takes far longer."""
        now, first = self._node.now(), self._schedule.first()
        request = None if first is None or self._batches else self._schedule.overdue(first, now)
        if request is not None:
            self._schedule.give_up(request, now)
            self._calls[request].cancel()

    # Connecting

    def _connect(self) -> None:
        while self._may_connect() and (blocks := self._next_batch()):
            self._submit(blocks)

    def _may_connect(self) -> bool:
        return self._batches < MAX_BATCHES and not self._postponed and self._submit_after <= self._node.now()

    def _requeue_postponed(self) -> None:
        """Queue the blocks again, in order, for which the chain manager had no room."""
        for block in sorted(self._postponed, key=lambda block: block.header.height, reverse=True):
            wanted = self._queued(block.header, block)
            self._schedule.held += wanted.size if block.transfers else 0
            self._queue.appendleft(wanted)
        self._postponed.clear()
        self._submit_after = self._node.now() + BUSY_BACKOFF

    def _next_batch(self) -> list[Block]:
        """The blocks that come next and are here, as many as share a commit."""
        blocks: list[Block] = []
        size = 0
        while self._queue and len(blocks) < BATCH_BLOCKS and size < BATCH_BYTES:
            block = self._queue[0].block
            if block is None:
                break
            blocks.append(block)
            size += self._take_first().size
        return blocks

    def _submit(self, blocks: list[Block]) -> None:
        self._batches += 1
        first = blocks[0].header.hash
        work = self._node.chain_manager.submit_blocks(
            blocks,
            partial(self._progress.enters, first),
            proven_work=self._chain.tip.work,
            source=self._chain.source.endpoint,
        )
        work.addCallback(self._connected, blocks)
        work.addErrback(self._connect_failed).addErrback(self._log_failure)
        work.addBoth(self._batch_ended, first).addErrback(self._log_failure)

    def _batch_ended(self, _: object, first: bytes) -> None:
        self._progress.leaves(first)
        self._batches -= 1
        if self._postponed and not self._batches:
            self._requeue_postponed()
        self._idle_since = self._node.now()
        self._wakeup.set()

    def _connected(self, outcomes: Sequence[BlockOutcome], blocks: Sequence[Block]) -> None:
        for index, (outcome, block) in enumerate(zip(outcomes, blocks, strict=True)):
            if isinstance(outcome, RuleViolation):
                self.stop(InvalidChain(f"block {block.header.height}: {outcome.detail}"))
                return
            if isinstance(outcome, NotYet):
                # The blocks after one for which there was no room have no parent.
                if outcome.code is Wait.BUSY or (outcome.code is Wait.ORPHAN and self._postponed):
                    self._postponed.extend(blocks[index:])
                    return
                early = outcome.code is Wait.EARLY
                self.stop(NodeBusy(outcome.detail) if early else DownloadFailed(outcome.detail))
                return
        new = sum(outcome is not BlockStatus.KNOWN for outcome in outcomes)
        self._progress.connected(new, self._node.chain_manager.tip.height)

    def _connect_failed(self, failure: Failure) -> None:
        self.stop(cast(Exception, failure.value))

    def _log_failure(self, failure: Failure) -> None:
        self.log.failure("the download of blocks failed", failure)
