"""Block download: the blocks of a chain whose headers are verified, by hash, from every peer that has them.

The size of a request follows the rate at which the peer delivers, so that neither a slow line nor a distant peer idles.
A reply may take as long as it makes progress. A block is checked against its header when it arrives, so the peer that
sent a false one is known; blocks are connected in order, several to a commit (docs/peers.md "Catching up").
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, cast

from attrs import define, field
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
from svcd.p2p.transport import FailureKind, PeerCallFailed

_WITHHELD_BLOCK: Final = "Holding back one block, to fill the node's memory with those behind it"
WINDOW_BYTES: Final = limit(
    64 * 1024 * 1024, "size of the blocks ahead of the one that is missing", "bytes", _WITHHELD_BLOCK
)
"""Blocks that are requested, or wait for an earlier one, together."""
WINDOW_BLOCKS: Final = limit(2_048, "blocks ahead of the one that is missing", "blocks", _WITHHELD_BLOCK)
AIM_SECONDS: Final = 2.0
"""How long a peer takes, at its rate, to deliver what is requested from it at a time; at least one block."""
FIRST_BYTES: Final = 256 * 1024
"""Bytes to request from a peer whose rate is not known; at least one block."""
MAX_REQUESTS: Final = limit(2, "requests for blocks under way to one peer", "requests", STALLING_PEER)
"""Requests to one peer at a time: the line does not idle between a reply and the next request."""
MAX_PASSED: Final = limit(64, "blocks that a peer lacks, passed over for a request to it", "blocks", STALLING_PEER)
"""A peer that lacks more of the next missing blocks is asked for none of the later ones: all of these wait."""
MAX_BATCHES: Final = 2
"""Batches in the chain manager at a time: one is verified while the other is connected."""
BATCH_BLOCKS: Final = 64
BATCH_BYTES: Final = limit(4 * 1024 * 1024, "size of the blocks that are verified together", "bytes", _WITHHELD_BLOCK)
STALL_SECONDS: Final = limit(60.0, "time without any of the missing blocks", "seconds", STALLING_PEER)
"""How long a chain is followed while no peer delivers any of its blocks."""
SLOW_SECONDS: Final = 10.0
"""The first missing block is requested from a second peer if the first would take this much longer than the second,
and twice as long; all later blocks wait for it."""
UNKNOWN_SECONDS: Final = 15.0
"""How long a peer whose rate is not known is assumed to need for a block."""
SLOW_BACKOFF: Final = 60.0
"""How long nothing is requested from a peer that was too slow."""
ABSENT_BACKOFF: Final = 10.0
"""How long nothing is requested from a peer that had none of the blocks requested."""
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


@define(eq=False)
class _QueuedBlock:
    """A block of the chain that has not been submitted to the chain manager."""

    header: Header
    size: int
    """Bytes, estimated."""
    block: Block | None = None
    request: "_BlocksRequest | None" = None
    """The request under way for it."""
    stored: bool = False
    """Whether the block arrived by another way than this download."""
    lacking: dict[str, float] = field(factory=dict)
    """By endpoint of a peer that did not have it, until when (the node's seconds) that peer is not asked again."""


@define(eq=False)
class _Source:
    """A peer as a source of blocks; times are the node's seconds."""

    peer: Peer
    rate: float | None = None
    """Bytes per second; None while unknown, 0.0 after a request that gave nothing."""
    requests: "list[_BlocksRequest]" = field(factory=list)
    backoff_until: float = 0.0
    last_answer: float = 0.0
    off_chain: bool = False
    """Whether it had none of the blocks last requested."""

    def rests(self, now: float) -> bool:
        """Whether nothing is requested from it at ``now``."""
        return self.peer.is_paused or self.backoff_until > now

    def may_have(self, height: int) -> bool:
        """Whether its status does not say that it has only later blocks than that at ``height``."""
        return self.peer.status is None or height >= self.peer.status.prune_height

    @property
    def in_flight(self) -> int:
        """Bytes requested, estimated."""
        # At most MAX_REQUESTS.
        return sum(request.size for request in self.requests)

    @property
    def target(self) -> float:
        """Bytes to have in flight."""
        return FIRST_BYTES if self.rate is None else max(self.rate * AIM_SECONDS, FIRST_BYTES / 4)


@define(eq=False)
class _BlocksRequest:
    """One request for blocks."""

    source: _Source
    wanted: list[_QueuedBlock]
    """In order of height."""
    began: float
    received: int = 0
    call: Deferred[BlocksReply] | None = None
    size: int = field()
    """Bytes, estimated."""

    @size.default
    def _size_of_blocks(self) -> int:
        return sum(wanted.size for wanted in self.wanted)

    @property
    def first(self) -> _QueuedBlock | None:
        """The first block that has not come by another way."""
        return next((wanted for wanted in self.wanted if not wanted.stored), None)


def _height(wanted: _QueuedBlock) -> int:
    return wanted.header.height


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
        self._missing: list[_QueuedBlock] = []
        """Those of the queue that are neither here nor requested, in order of height."""
        self._bytes_here = self._bytes_requested = 0
        """Bytes, estimated, of the queued blocks with transfers that are here, and of the requested ones."""
        self._sources: dict[str, _Source] = {}
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
        source = self._sources.get(peer.endpoint)
        return source is not None and source.off_chain

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
        for source in self._sources.values():
            for request in tuple(source.requests):
                self._cancel(request)

    # Headers

    def _take_headers(self) -> None:
        room = WINDOW_BLOCKS - len(self._queue)
        for header in self._chain.take(room) if room > 0 else ():
            wanted = _QueuedBlock(header, self._estimate(header))
            if not header.transaction_count:
                # It is complete with its header.
                wanted.block = Block(header, ())
                self.last_block = self._node.now()
            else:
                self._missing.append(wanted)
            self._queue.append(wanted)

    def _leave_out_stored(self) -> None:
        """Drop blocks that arrived by another way: all below a stored block are stored."""
        came = False
        while self._queue and self._node.chain_manager.reader.point(self._queue[0].header.hash) is not None:
            wanted = self._take_first()
            wanted.stored = came = True
            if self._missing and self._missing[0] is wanted:
                self._missing.pop(0)
            self.last_block = self._idle_since = self._node.now()
        if not came:
            return
        for source in self._sources.values():
            for request in tuple(source.requests):
                if all(wanted.stored for wanted in request.wanted):
                    self._cancel(request)

    def _take_first(self) -> _QueuedBlock:
        wanted = self._queue.popleft()
        if wanted.block is not None and wanted.block.transfers:
            self._bytes_here -= wanted.size
        return wanted

    @property
    def _window_bytes(self) -> int:
        """Bytes, estimated, that are requested, or wait for an earlier block; empty blocks count nothing."""
        return self._bytes_here + self._bytes_requested

    def _estimate(self, header: Header) -> int:
        size = _HEADER_BYTES + int(header.transaction_count * self._bytes_per_transaction)
        return min(size, self._node.params.max_block_bytes)

    # Requests

    def _send_requests(self) -> None:
        now = self._node.now()
        for peer in self._peers.all():
            if peer.endpoint not in self._sources and self._may_have_chain(peer):
                self._sources[peer.endpoint] = _Source(peer)
        for source in sorted(self._sources.values(), key=self._order):
            if not self._peers.has(source.peer):
                if not source.requests:
                    del self._sources[source.peer.endpoint]
                continue
            while not source.rests(now) and len(source.requests) < MAX_REQUESTS:
                wanted = self._choose(source)
                if not wanted:
                    break
                self._request(source, wanted, now)

    def _order(self, source: _Source) -> tuple[bool, bool, float, bool, bool]:
        """Order of the sources: the fastest first, then of those without a known rate the peer that proved the chain.

        Any number of peers may claim to have the chain, and answer no request for its blocks.
        """
        other = source.peer is not self._chain.source
        silent = source.rate == 0.0
        return source.off_chain, silent, -(source.rate or 0.0), other, not source.peer.delivered

    def _may_have_chain(self, peer: Peer) -> bool:
        """Whether a peer may have blocks of a chain with more work than the one here."""
        tip, status = self._node.chain_manager.tip, peer.status
        return status is None or (status.work >= tip.work and status.hash != tip.hash)

    def _choose(self, source: _Source) -> list[_QueuedBlock]:
        """The next blocks to request from ``source``; none while enough is in flight."""
        if source.requests and source.in_flight >= source.target:
            return []
        room, window = source.target - source.in_flight, WINDOW_BYTES - self._window_bytes
        now, endpoint, status = self._node.now(), source.peer.endpoint, source.peer.status
        start = bisect_left(self._missing, status.prune_height, key=_height) if status is not None else 0
        chosen: list[_QueuedBlock] = []
        size = 0
        for index in range(start, len(self._missing)):
            wanted = self._missing[index]
            if len(chosen) == MAX_HASHES or index - start - len(chosen) > MAX_PASSED:
                break
            if wanted.lacking.get(endpoint, 0.0) > now:
                continue
            first = not chosen and not source.requests
            if not first and size + wanted.size > min(room, MAX_REPLY_BYTES):
                break
            # The first missing block has room however full the window is: all others wait for it.
            if wanted is not self._queue[0] and size + wanted.size > window:
                break
            chosen.append(wanted)
            size += wanted.size
        return chosen

    @staticmethod
    def _may_deliver(source: _Source, wanted: _QueuedBlock, now: float) -> bool:
        return wanted.lacking.get(source.peer.endpoint, 0.0) <= now and source.may_have(wanted.header.height)

    def _request(self, source: _Source, wanted: list[_QueuedBlock], now: float) -> None:
        request = _BlocksRequest(source, wanted, now)
        source.requests.append(request)
        self._bytes_requested += request.size
        for each in wanted:
            each.request = request
        # The blocks lie close together.
        first, last = (bisect_left(self._missing, _height(each), key=_height) for each in (wanted[0], wanted[-1]))
        self._missing[first : last + 1] = [
            each for each in self._missing[first : last + 1] if each.request is not request
        ]
        headers = [each.header for each in wanted]
        call = self._peers.client.blocks_by_hash(source.peer.endpoint, headers, partial(self._note_bytes, request))
        request.call = Deferred.fromCoroutine(call)
        request.call.addBoth(self._request_ended, request)
        request.call.addCallback(self._blocks_received, request).addErrback(self._request_failed, request)
        request.call.addErrback(self._log_failure).addCallback(lambda _: self._miss_again(request))

    def _note_bytes(self, request: _BlocksRequest, count: int) -> None:
        request.received += count
        self._bytes_since_progress += count
        if self._bytes_since_progress >= MIN_BYTES:
            self._bytes_since_progress = 0
            self._idle_since = self._node.now()

    def _cancel(self, request: _BlocksRequest) -> None:
        if request.call is not None:
            request.call.cancel()

    def _request_ended(self, result: BlocksReply | Failure, request: _BlocksRequest) -> BlocksReply | Failure:
        request.source.requests.remove(request)
        self._bytes_requested -= request.size
        for wanted in request.wanted:
            wanted.request = None
        return result

    def _miss_again(self, request: _BlocksRequest) -> None:
        """Note which of the requested blocks have not come, and run the next step."""
        for wanted in request.wanted:
            if wanted.block is None and not wanted.stored:
                insort(self._missing, wanted, key=_height)
        self._wakeup.set()

    def _blocks_received(self, reply: BlocksReply, request: _BlocksRequest) -> None:
        source, now = request.source, self._node.now()
        endpoint = source.peer.endpoint
        self._measure(source, reply.size, now - max(request.began, source.last_answer))
        source.last_answer = now
        arrived = {block.header.hash: block for block in reply.blocks}
        source.off_chain = not arrived
        # A large reply may have ended at its size limit, so the peer may have the blocks after its last one.
        cut = bool(arrived) and reply.size + self._node.params.max_block_bytes > MAX_REPLY_BYTES
        last = max((index for index, each in enumerate(request.wanted) if each.header.hash in arrived), default=-1)
        for index, wanted in enumerate(request.wanted):
            block = arrived.get(wanted.header.hash)
            if block is None:
                if index < last or not cut:
                    wanted.lacking[endpoint] = now + ABSENT_BACKOFF
            elif wanted.block is None and not wanted.stored:
                wanted.block = block
                self._bytes_here += wanted.size
        if not arrived:
            source.backoff_until = now + ABSENT_BACKOFF
            return
        source.peer.credit_delivery()
        self._progress.sent_by(endpoint)
        self.delivered = True
        self.last_block = self._idle_since = now
        transactions = sum(len(block.transfers) for block in reply.blocks)
        if transactions:
            self._bytes_per_transaction += (reply.size / transactions - self._bytes_per_transaction) / 4

    def _measure(self, source: _Source, size: int, seconds: float) -> None:
        rate = size / max(seconds, 1e-3)
        source.rate = rate if source.rate is None else (source.rate + rate) / 2

    def _request_failed(self, failure: Failure, request: _BlocksRequest) -> None:
        if failure.check(CancelledError):  # type: ignore[no-untyped-call]
            return
        source, error = request.source, failure.value
        if isinstance(error, PeerCallFailed) and error.retry_after:
            self._peers.count_failure(source.peer, error)
            return
        source.rate = 0.0
        source.backoff_until = self._node.now() + ABSENT_BACKOFF
        if not isinstance(error, PeerCallFailed):
            self.log.failure("fetching blocks failed", failure)
        elif error.kind is FailureKind.INVALID:
            source.backoff_until = self._node.now() + SLOW_BACKOFF
            self._peers.ban(source.peer, error.detail)
        else:
            self._peers.count_failure(source.peer, error)

    # Waiting

    def _check_stall(self) -> None:
        """Give up when the next block has not come, and nothing moved, for too long."""
        now = self._node.now()
        head = self._queue[0] if self._queue else None
        if head is None or head.block is not None or self._batches:
            self._idle_since = now
        elif now - self._idle_since >= STALL_SECONDS:
            height = head.header.height
            able = not self._sources or any(source.may_have(height) for source in self._sources.values())
            why = f"no peer has delivered block {height} for {STALL_SECONDS:g} s"
            self.stop(DownloadFailed(why if able else f"{why}: the peers have only later blocks"))

    def _check_slow_peer(self) -> None:
        """Request the first missing block from another peer, if its sender takes far longer."""
        firsts = [request.first for source in self._sources.values() for request in source.requests]
        head = min((*self._missing[:1], *filter(None, firsts)), key=_height, default=None)
        request = None if head is None else head.request
        if head is None or request is None or self._batches:
            return
        now = self._node.now()
        elapsed = now - request.began
        # A reply that is larger than expected may never end, so its received bytes count as half of it.
        remaining_bytes = max(
            request.size - request.received, request.received if request.received > request.size else 0
        )
        remaining = remaining_bytes / max(request.received / elapsed, 1.0) if elapsed else 0.0
        others = [source for source in self._sources.values() if self._could_deliver(source, head, request, now)]
        if elapsed < SLOW_SECONDS or not others:
            return
        other = max(others, key=lambda source: source.rate or 0.0)
        quicker = head.size / other.rate if other.rate else UNKNOWN_SECONDS
        if remaining > SLOW_SECONDS + 2 * quicker:
            request.source.backoff_until = now + SLOW_BACKOFF
            self._cancel(request)

    def _could_deliver(self, source: _Source, wanted: _QueuedBlock, request: _BlocksRequest, now: float) -> bool:
        able = source is not request.source and not source.rests(now) and self._may_deliver(source, wanted, now)
        return able and (source.rate is not None or not source.requests)

    # Connecting

    def _connect(self) -> None:
        while self._may_connect() and (blocks := self._next_batch()):
            self._submit(blocks)

    def _may_connect(self) -> bool:
        return self._batches < MAX_BATCHES and not self._postponed and self._submit_after <= self._node.now()

    def _requeue_postponed(self) -> None:
        """Queue the blocks again, in order, for which the chain manager had no room."""
        for block in sorted(self._postponed, key=lambda block: block.header.height, reverse=True):
            wanted = _QueuedBlock(block.header, self._estimate(block.header), block)
            self._bytes_here += wanted.size if block.transfers else 0
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
