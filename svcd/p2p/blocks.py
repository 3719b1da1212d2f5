"""Block download: the bodies of a chain whose headers are verified, by hash, from every peer that has them.

How much is asked of a peer follows the rate at which it delivers, so that neither a slow line nor a distant peer idles.
A transfer may take as long as it makes progress. A body is checked against its header before it counts, so the peer
that sent a wrong one is known; blocks are connected in order, several to a commit (docs/peers.md "Catching up").
"""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from typing import Final, Protocol

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.block import Block, Header
from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.node.changes import Outcome, Standing
from svcd.p2p.bans import INVALID_SECONDS
from svcd.p2p.block_server import MAX_HASHES, MAX_REPLY_BYTES
from svcd.p2p.client import LEAST_BYTES, Bodies
from svcd.p2p.peers import Peer, Peers
from svcd.p2p.progress import Progress
from svcd.p2p.transport import CallFailed, Trouble
from svcd.ports import Clock, Timer

WINDOW_BYTES: Final = 64 * 1024 * 1024
"""Blocks that are asked for, or wait for an earlier one, together."""
WINDOW_BLOCKS: Final = 2_048
AIM_SECONDS: Final = 2.0
"""How long a peer takes, at its rate, to deliver what it is asked for at a time; one block at least."""
FIRST_BYTES: Final = 256 * 1024
"""What a peer is asked for before its rate is known; one block at least."""
MAX_REQUESTS: Final = 2
"""Requests to one peer at a time: the line does not idle between an answer and the next question."""
MAX_BATCHES: Final = 2
"""Batches in the chain manager at a time: one is verified while the other is connected."""
BATCH_BLOCKS: Final = 64
BATCH_BYTES: Final = 4 * 1024 * 1024
STALL_SECONDS: Final = 60.0
"""How long a chain is followed while no peer delivers any of the blocks it lacks."""
SLOW_SECONDS: Final = 10.0
"""A block that everything waits for is asked of another peer when it would come so much later, and twice as late."""
UNKNOWN_SECONDS: Final = 15.0
"""How long a peer whose rate is not known is taken to need for a block."""
SLOW_REST: Final = 60.0
"""How long such a slow peer is asked for nothing."""
ABSENT_REST: Final = 10.0
"""How long a peer that has none of the blocks it was asked for is asked for nothing."""
_HEADER_BYTES: Final = 1_000
_TRANSACTION_BYTES: Final = 620
_LOOK_SECONDS: Final = 1.0
BUSY_REST: Final = 1.0
"""How long blocks wait that the chain manager has no room for."""


class DownloadFailed(Exception):
    """The blocks of a chain cannot be had at present; the text says why."""


class InvalidChain(Exception):
    """A block of a chain breaks a rule that its header does not show; the text says which."""


class NodeBusy(Exception):
    """This node takes no more blocks at present, which is no peer's fault."""


class HeaderFeed(Protocol):
    """Where the verified headers of the chain come from."""

    source: Peer
    """The peer whose headers they are."""

    @property
    def ended(self) -> bool:
        """Whether the last header of the chain has been taken or waits to be."""

    def take(self, limit: int) -> Sequence[Header]:
        """The next verified headers, at most ``limit``; each is given once."""


@define(eq=False)
class _Wanted:
    """A block of the chain that has not been handed on."""

    header: Header
    size: int
    """Bytes, estimated."""
    block: Block | None = None
    asked: bool = False
    gone: bool = False
    """Whether it came another way."""
    lacking: dict[str, float] = field(factory=dict)
    """By endpoint of a peer that did not have it, until when (Unix seconds) it is not asked again."""


@define(eq=False)
class _Source:
    """A peer as a source of blocks; times are Unix seconds."""

    peer: Peer
    rate: float | None = None
    """Bytes per second; None while unknown."""
    fetches: "list[_Fetch]" = field(factory=list)
    rests_until: float = 0.0
    last_answer: float = 0.0
    off_chain: bool = False
    """Whether it did not have the blocks it was asked for last."""
    failures: int = 0
    """How many questions in a row it has not answered."""

    @property
    def under_way(self) -> int:
        """Bytes that it has been asked for, estimated."""
        return sum(fetch.size for fetch in self.fetches)

    @property
    def aim(self) -> float:
        """Bytes to have under way."""
        return FIRST_BYTES if self.rate is None else max(self.rate * AIM_SECONDS, FIRST_BYTES / 4)


@define(eq=False)
class _Fetch:
    """One request for blocks."""

    source: _Source
    wanted: list[_Wanted]
    began: float
    received: int = 0
    call: Deferred[Bodies] | None = None

    @property
    def size(self) -> int:
        """Bytes, estimated."""
        return sum(wanted.size for wanted in self.wanted)


class Wakeup:
    """Lets one coroutine wait for news, a bounded time; news that come before are not lost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set = False
        self._waiting: Deferred[None] | None = None
        self._timer: Timer | None = None

    async def wait(self, seconds: float) -> None:
        """Wait for news, at most ``seconds``."""
        if not self._set:
            self._waiting = Deferred()
            self._timer = self._clock.callLater(seconds, self._time_out)
            await self._waiting
        self._set = False

    def set(self) -> None:
        """There is news."""
        self._set = True
        self.cancel_timer()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def _time_out(self) -> None:
        self._timer = None
        self.set()

    def cancel_timer(self) -> None:
        """Leave no timer behind."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


class BlockDownload:
    """Fetches and connects the blocks of one chain in order."""

    log = Logger()

    def __init__(self, peers: Peers, progress: Progress, feed: HeaderFeed) -> None:
        self._peers = peers
        self._home = peers.home
        self._progress = progress
        self._feed = feed
        self._row: deque[_Wanted] = deque()
        self._window_bytes = 0
        """Bytes, estimated, of blocks in the row that are asked for or here."""
        self._sources: dict[str, _Source] = {}
        self._bytes_per_transaction = float(_TRANSACTION_BYTES)
        self._batches = 0
        self._batch_number = 0
        self._returned: list[Block] = []
        """Blocks that the chain manager had no room for."""
        self._rests_until = 0.0
        """Until when (Unix seconds) none is handed on."""
        self._failure: Exception | None = None
        self._wakeup = Wakeup(self._home.clock)
        self._moved = 0
        """Bytes of answers since the last time that so many came that a line is not idle."""
        self.last_block = self._idle_since = self._home.now()
        """``last_block``: when a block came last (Unix seconds)."""
        self.delivered = False
        """Whether a peer has delivered a block."""

    def wake(self) -> None:
        """Look at once whether there is something to do: headers have come, or the feed has ended."""
        self._wakeup.set()

    def stop(self, failure: Exception) -> None:
        """Give up; :meth:`run` raises ``failure`` as soon as no block is being connected."""
        self._failure = self._failure or failure
        self._wakeup.set()

    def lacks_chain(self, peer: Peer) -> bool:
        """Whether ``peer`` did not have the blocks of this chain that it was asked for last."""
        source = self._sources.get(peer.endpoint)
        return source is not None and source.off_chain

    def pending(self) -> set[bytes]:
        """The hashes of the blocks that are wanted next and have not been handed on."""
        return {wanted.header.hash for wanted in self._row}

    async def run(self) -> None:
        """Fetch and connect until the feed has ended and every block is connected.

        Raises DownloadFailed, InvalidChain or NodeBusy.
        """
        try:
            while self._failure is None:
                self._take_headers()
                self._leave_out_stored()
                self._ask()
                self._connect()
                if self._feed.ended and not self._row and not self._batches:
                    self._take_headers()
                    if not self._row:
                        return
                    continue
                await self._wakeup.wait(_LOOK_SECONDS)
                self._look_for_stall()
                self._look_for_slow_peer()
            self._cancel_all()
            while self._batches:
                await self._wakeup.wait(_LOOK_SECONDS)
            raise self._failure
        finally:
            self._cancel_all()
            self._wakeup.cancel_timer()

    def _cancel_all(self) -> None:
        for source in self._sources.values():
            for fetch in tuple(source.fetches):
                self._cancel(fetch)

    # Headers

    def _take_headers(self) -> None:
        room = WINDOW_BLOCKS - len(self._row)
        for header in self._feed.take(room) if room > 0 else ():
            wanted = _Wanted(header, self._estimate(header))
            if not header.transaction_count:
                # Its header says everything about it.
                wanted.block = Block(header, ())
                self.last_block = self._home.now()
            self._row.append(wanted)

    def _leave_out_stored(self) -> None:
        """Drop blocks that came another way: all below a stored block are stored."""
        while self._row and self._home.ledger.reader.point(self._row[0].header.hash) is not None:
            wanted = self._row.popleft()
            wanted.gone = True
            if wanted.block is not None and wanted.block.transfers:
                self._window_bytes -= wanted.size
            self.last_block = self._idle_since = self._home.now()
        for source in self._sources.values():
            for fetch in tuple(source.fetches):
                if all(wanted.gone for wanted in fetch.wanted):
                    self._cancel(fetch)

    def _estimate(self, header: Header) -> int:
        size = _HEADER_BYTES + int(header.transaction_count * self._bytes_per_transaction)
        return min(size, self._home.params.max_block_bytes)

    # Asking

    def _ask(self) -> None:
        now = self._home.now()
        for peer in self._peers.all():
            if peer.endpoint not in self._sources and self._may_have_it(peer):
                self._sources[peer.endpoint] = _Source(peer)
        for source in sorted(self._sources.values(), key=self._order):
            if self._peers.get(source.peer.endpoint) is not source.peer:
                if not source.fetches:
                    del self._sources[source.peer.endpoint]
                continue
            while source.rests_until <= now and len(source.fetches) < MAX_REQUESTS:
                wanted = self._choose(source)
                if not wanted:
                    break
                self._fetch(source, wanted, now)

    def _order(self, source: _Source) -> tuple[bool, int, float, bool, bool]:
        """Which source to ask first: the quickest, and of those whose rate is not known the peer that proved the chain.

        Any number of peers may claim to have it, and answer no question for its blocks.
        """
        other = source.peer is not self._feed.source
        return source.off_chain, source.failures, -(source.rate or 0.0), other, not source.peer.delivered

    def _may_have_it(self, peer: Peer) -> bool:
        """Whether a peer may have blocks of a chain with more work than the one here."""
        tip, status = self._home.ledger.tip, peer.status
        ahead = status is None or (status.work >= tip.work and status.hash != tip.hash)
        return ahead and peer.serves_headers is not False

    def _choose(self, source: _Source) -> list[_Wanted]:
        """The next blocks to ask ``source`` for; none while it has enough to do."""
        endpoint, room = source.peer.endpoint, source.aim - source.under_way
        chosen: list[_Wanted] = []
        size = 0
        for wanted in self._missing(endpoint, self._home.now()):
            first = not chosen and not source.fetches
            if not first and size + wanted.size > min(room, MAX_REPLY_BYTES):
                break
            # The block that everything waits for has room however full the window is.
            if wanted is not self._row[0] and self._window_bytes + size + wanted.size > WINDOW_BYTES:
                break
            chosen.append(wanted)
            size += wanted.size
            if len(chosen) == MAX_HASHES:
                break
        return chosen

    def _missing(self, endpoint: str, now: float) -> Iterator[_Wanted]:
        return (
            wanted
            for wanted in self._row
            if wanted.block is None and not wanted.asked and wanted.lacking.get(endpoint, 0.0) <= now
        )

    def _fetch(self, source: _Source, wanted: list[_Wanted], now: float) -> None:
        fetch = _Fetch(source, wanted, now)
        source.fetches.append(fetch)
        for each in wanted:
            each.asked = True
            self._window_bytes += each.size
        headers = [each.header for each in wanted]
        call = self._peers.client.bodies(source.peer.endpoint, headers, partial(self._note_bytes, fetch))
        fetch.call = Deferred.fromCoroutine(call)
        fetch.call.addBoth(self._over, fetch)
        fetch.call.addCallbacks(self._came, self._failed, callbackArgs=(fetch,), errbackArgs=(fetch,))
        fetch.call.addErrback(lambda failure: self.log.failure("taking in blocks failed", failure))
        fetch.call.addBoth(lambda _: self._wakeup.set())

    def _note_bytes(self, fetch: _Fetch, count: int) -> None:
        fetch.received += count
        self._moved += count
        if self._moved >= LEAST_BYTES:
            self._moved = 0
            self._idle_since = self._home.now()

    def _cancel(self, fetch: _Fetch) -> None:
        if fetch.call is not None:
            fetch.call.cancel()

    def _over(self, result: Bodies | Failure, fetch: _Fetch) -> Bodies | Failure:
        fetch.source.fetches.remove(fetch)
        for wanted in fetch.wanted:
            wanted.asked = False
            self._window_bytes -= wanted.size
        return result

    def _came(self, bodies: Bodies, fetch: _Fetch) -> None:
        source, now = fetch.source, self._home.now()
        endpoint = source.peer.endpoint
        self._measure(source, bodies.size, now - max(fetch.began, source.last_answer))
        source.last_answer = now
        arrived = {block.header.hash: block for block in bodies.blocks}
        source.off_chain = not arrived
        # A large answer may have ended at its limit, so that what is missing after its last block says nothing.
        cut = bool(arrived) and bodies.size + self._home.params.max_block_bytes > MAX_REPLY_BYTES
        last = max((index for index, each in enumerate(fetch.wanted) if each.header.hash in arrived), default=-1)
        for index, wanted in enumerate(fetch.wanted):
            block = arrived.get(wanted.header.hash)
            if block is None:
                if index < last or not cut:
                    wanted.lacking[endpoint] = now + ABSENT_REST
            elif wanted.block is None and not wanted.gone:
                wanted.block = block
                self._window_bytes += wanted.size
        if not arrived:
            source.rests_until = now + ABSENT_REST
            return
        source.peer.failures = source.failures = 0
        source.peer.delivered = True
        self._progress.sent_by(endpoint)
        self.delivered = True
        self.last_block = self._idle_since = now
        transactions = sum(len(block.transfers) for block in bodies.blocks)
        if transactions:
            self._bytes_per_transaction += (bodies.size / transactions - self._bytes_per_transaction) / 4

    def _measure(self, source: _Source, size: int, seconds: float) -> None:
        rate = size / max(seconds, 1e-3)
        source.rate = rate if source.rate is None else (source.rate + rate) / 2

    def _failed(self, failure: Failure, fetch: _Fetch) -> None:
        if failure.check(CancelledError):  # type: ignore[no-untyped-call]
            return
        source, error = fetch.source, failure.value
        peer = source.peer
        source.failures += 1
        source.rests_until = self._home.now() + ABSENT_REST
        if not isinstance(error, CallFailed):
            self.log.failure("fetching blocks failed", failure)
        elif error.rest:
            source.rests_until = self._home.now() + error.rest
        elif error.status in (404, 405):
            peer.serves_headers = False
            source.rests_until = inf
        elif error.trouble is Trouble.FALSE and self._peers.get(peer.endpoint) is peer:
            source.rests_until = self._home.now() + SLOW_REST
            self._peers.punish(peer, seconds=INVALID_SECONDS, why=error.detail)
        else:
            self._peers.demote(peer)

    # Waiting

    def _look_for_stall(self) -> None:
        """Give up when the next block has not come, and nothing moved, for too long."""
        now = self._home.now()
        head = self._row[0] if self._row else None
        if head is None or head.block is not None or self._batches:
            self._idle_since = now
        elif now - self._idle_since >= STALL_SECONDS:
            self.stop(DownloadFailed(f"no peer has delivered block {head.header.height} for {STALL_SECONDS:g} s"))

    def _look_for_slow_peer(self) -> None:
        """Ask another peer for the block that everything waits for, if its sender takes far longer than the other."""
        head = next((wanted for wanted in self._row if wanted.block is None), None)
        fetch = None if head is None else self._fetch_of(head)
        if head is None or fetch is None or self._batches:
            return
        now = self._home.now()
        elapsed = now - fetch.began
        # More than was to be expected may go on for ever: it counts as half of the answer.
        rest = max(fetch.size - fetch.received, fetch.received if fetch.received > fetch.size else 0)
        left = rest / max(fetch.received / elapsed, 1.0) if elapsed else 0.0
        others = [source for source in self._sources.values() if self._could_deliver(source, head, fetch, now)]
        if elapsed < SLOW_SECONDS or not others:
            return
        other = max(others, key=lambda source: source.rate or 0.0)
        quicker = head.size / other.rate if other.rate else UNKNOWN_SECONDS
        if left > SLOW_SECONDS + 2 * quicker:
            fetch.source.rests_until = now + SLOW_REST
            self._cancel(fetch)

    def _fetch_of(self, wanted: _Wanted) -> _Fetch | None:
        fetches = (fetch for source in self._sources.values() for fetch in source.fetches)
        return next((fetch for fetch in fetches if wanted in fetch.wanted), None)

    def _could_deliver(self, source: _Source, wanted: _Wanted, fetch: _Fetch, now: float) -> bool:
        endpoint = source.peer.endpoint
        able = source is not fetch.source and source.rests_until <= now and wanted.lacking.get(endpoint, 0.0) <= now
        return able and (source.rate is not None or not source.fetches)

    # Connecting

    def _connect(self) -> None:
        while self._may_connect() and (blocks := self._next_batch()):
            self._submit(blocks)

    def _may_connect(self) -> bool:
        return self._batches < MAX_BATCHES and not self._returned and self._rests_until <= self._home.now()

    def _put_back(self) -> None:
        """Hand on later, and in order, what there was no room for."""
        for block in sorted(self._returned, key=lambda block: block.header.height, reverse=True):
            size = self._estimate(block.header)
            self._row.appendleft(_Wanted(block.header, size, block))
            self._window_bytes += size if block.transfers else 0
        self._returned.clear()
        self._rests_until = self._home.now() + BUSY_REST

    def _next_batch(self) -> list[Block]:
        """The blocks that come next and are here, as many as share a commit."""
        blocks: list[Block] = []
        size = 0
        while self._row and len(blocks) < BATCH_BLOCKS and size < BATCH_BYTES:
            block = self._row[0].block
            if block is None:
                break
            wanted = self._row.popleft()
            size += wanted.size
            if block.transfers:
                self._window_bytes -= wanted.size
            blocks.append(block)
        return blocks

    def _submit(self, blocks: list[Block]) -> None:
        self._batches += 1
        self._batch_number += 1
        number = self._batch_number
        work = self._home.ledger.submit_blocks(blocks, partial(self._progress.enters, number))
        work.addCallback(self._connected, blocks)
        work.addErrback(self._not_connected)
        work.addBoth(self._batch_over, number)

    def _batch_over(self, _: object, number: int) -> None:
        self._progress.leaves(number)
        self._batches -= 1
        if self._returned and not self._batches:
            self._put_back()
        self._idle_since = self._home.now()
        self._wakeup.set()

    def _connected(self, outcomes: Sequence[Outcome], blocks: Sequence[Block]) -> None:
        for index, (outcome, block) in enumerate(zip(outcomes, blocks, strict=True)):
            if isinstance(outcome, RuleViolation):
                self.stop(InvalidChain(f"block {block.header.height}: {outcome.detail}"))
                return
            if isinstance(outcome, NotYet):
                # What comes after a block that there was no room for has no parent.
                if outcome.code is Wait.BUSY or (outcome.code is Wait.ORPHAN and self._returned):
                    self._returned.extend(blocks[index:])
                    return
                early = outcome.code is Wait.EARLY
                self.stop(NodeBusy(outcome.detail) if early else DownloadFailed(outcome.detail))
                return
        fresh = sum(outcome is not Standing.KNOWN for outcome in outcomes)
        self._progress.connected(fresh, self._home.ledger.tip.height)

    def _not_connected(self, failure: Failure) -> None:
        self.log.failure("blocks could not be connected", failure)
        self.stop(NodeBusy("blocks could not be connected"))
