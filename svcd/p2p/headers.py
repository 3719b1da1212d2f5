"""Headers of other nodes' chains: the one stream in which they are fetched and verified, and what is kept of them."""

from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, Protocol, cast

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.block import Header
from svcd.chain.errors import NotYet, ProducerViolation, RuleViolation
from svcd.chain.transition import ChainHead, ChainPoint
from svcd.limits import ENDLESS_ANSWER, limit
from svcd.node.chain_manager import ChainManager
from svcd.node.pinned_block import UnexpectedBlock
from svcd.p2p.client import MAX_HEADERS, HeadersReply
from svcd.p2p.own_errors import OwnErrors
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.p2p.transport import FailureKind, PeerCallFailed
from svcd.store.chain_store import locator_heights

FALSE_CLAIM: Final = "Claiming a chain of maximal work and delivering nothing, or one header at a time"
CLOSER_HASHES: Final = 100
"""Hashes in a locator between the last common block found so far and the tip."""
FIRST_HEADERS: Final = 128
"""Headers in the first request to a peer, which proves most claims; a slow peer is asked for no more later on."""
PROOF_HEADERS: Final = 500
"""Headers in further requests to a peer whose chain is compared, at most, and in the first one for a proven chain."""
WINDOW_HEADERS: Final = limit(8_192, "verified headers ahead of the blocks", "headers", ENDLESS_ANSWER)
"""Verified headers whose blocks have not come; the chain manager remembers more."""
REPLY_SECONDS: Final = 5.0
"""How long a reply with headers should take at most: after a slower one the next request is for half as many."""
PROOF_SECONDS: Final = limit(10.0, "time for a reply about a claim", "seconds", FALSE_CLAIM)
"""For each reply of a peer whose chain is not proven, whatever its progress."""
MAX_SEARCHES: Final = limit(6, "requests to find the last common block of a claim", "requests", FALSE_CLAIM)
"""Requests to find the last common block in the chain here; three find it in a chain of 500,000 blocks."""
MAX_RESTARTS: Final = 5
"""How often the search for the last common block begins again because the peer's chain changed."""
TRIES: Final = 3
"""How often the source of a proven chain is asked for the same headers."""
_FULL_WINDOW_SECONDS: Final = 0.5
"""Between two checks whether a full window has room again."""


class FalseClaim(Exception):
    """A peer does not have the chain that it claims; the text says what it sent."""


class StreamEnded(Exception):
    """No further headers come, through no fault of the peer: it was dropped, or has left the chain that was proven."""


# What is here already


class KnownHeaders(Protocol):
    """The headers that are here already, with which those of a peer are compared."""

    async def height(self) -> int:
        """The height of the newest header of the chain here."""

    async def hashes_at(self, heights: Sequence[int]) -> list[bytes]:
        """The hashes of the chain here at ``heights``, in this order, without the heights that have none."""

    async def count(self, headers: Sequence[Header]) -> int:
        """How many of the first of ``headers``, which are of one chain, are here."""

    async def head(self, parent_of: Header) -> ChainHead | None:
        """The parent of a header as the block to build on; None if it is not here."""


def count_first(headers: Sequence[Header], is_here: Callable[[Header], bool]) -> int:
    """How many of the first headers are here: of one chain, those before a header that is here are here as well."""
    return bisect(headers, False, key=lambda header: not is_here(header))


@frozen
class StoredBlockHeaders:
    """The headers of all blocks that are stored here, side blocks too."""

    _chain_manager: ChainManager

    async def height(self) -> int:
        """See :class:`KnownHeaders`."""
        return self._chain_manager.tip.height

    async def hashes_at(self, heights: Sequence[int]) -> list[bytes]:
        """See :class:`KnownHeaders`."""
        return self._chain_manager.reader.hashes_at(heights)

    async def count(self, headers: Sequence[Header]) -> int:
        """See :class:`KnownHeaders`."""
        reader = self._chain_manager.reader
        return count_first(headers, lambda header: reader.point(header.hash) is not None)

    async def head(self, parent_of: Header) -> ChainHead | None:
        """See :class:`KnownHeaders`."""
        return await self._chain_manager.head(parent_of.parent_hash)


class CanonicalHeaders(StoredBlockHeaders):
    """The headers of the canonical blocks."""

    async def count(self, headers: Sequence[Header]) -> int:
        """See :class:`KnownHeaders`."""
        reader = self._chain_manager.reader
        return count_first(headers, lambda header: reader.hashes_at([header.height]) == [header.hash])


def closer_heights(low: int, high: int) -> list[int]:
    """At most CLOSER_HASHES heights, spread evenly from ``high`` down to ``low``."""
    step = max(-(-(high - low) // (CLOSER_HASHES - 1)), 1)
    return [*range(high, low, -step), low]


# The stream


@frozen
class HeaderBatch:
    """Headers of one reply that are not here, each the child of the one before."""

    parent: ChainHead
    """The block before the first one."""
    headers: Sequence[Header]
    """At least one."""
    heads: Sequence[ChainHead]
    """The valid ones, which are the first ones, as the blocks to build on."""
    failure: RuleViolation | NotYet | None
    """Why the first header after these is not valid; None if all are."""
    is_last: bool
    """Whether they end with the tip of the peer."""
    claimed_height: int
    """The height of the peer's tip, as it claims."""


class HeaderStream:
    """Fetches the headers of one peer's chain above the last block that is known here, and verifies them.

    Each reply must have the requested number of headers, of one chain, or end with the peer's tip: otherwise a peer
    could keep a claim or a download open by one header at a time. How many are requested follows the peer's line.
    """

    log = Logger()

    def __init__(
        self,
        peers: Peers,
        peer: Peer,
        known: KnownHeaders | None,
        *,
        head: ChainHead | None = None,
        proven: bool = False,
        ahead: bool = False,
        seconds: float = inf,
    ) -> None:
        """The headers above ``head``, or else above the last block that both have; raises StreamEnded if that changes.

        Without a ``head`` the last common block is searched for in the chain ``known``, again and again if the peer's
        chain changes. A reply about a ``proven`` chain must make progress and is asked for again if it is lost;
        otherwise it must arrive within PROOF_SECONDS, and the headers within ``seconds`` together. With ``ahead`` the
        replies are as large as the line allows, and the next one is requested while the last one is verified.
        """
        self._peers = peers
        self._node = peers.node
        self._peer = peer
        self._known = known
        self._head = head
        """The last verified header; None while the last common block is not known."""
        self._proven, self._ahead = proven, ahead
        self._seconds, self._began = seconds, peers.node.now()
        self._limit = FIRST_HEADERS if head is None else PROOF_HEADERS
        """How many headers to request next."""
        self._asked = 0
        """How many were requested last."""
        self._took = 0.0
        """How many seconds the peer took for the last answer, also while other headers were verified."""
        self._restarts = 0
        self._call: Deferred[HeadersReply] | None = None
        """The request that is under way."""
        self._ended = False
        self.asked_at: float | None = None
        """Since when (the node's seconds) a reply is waited for; None while none is."""

    def end(self) -> None:
        """Make no further request: who waits for the next headers, and may be the caller itself, gets CancelledError.

        The verification of headers that have come goes on.
        """
        self._ended = True
        if (call := self._call) is not None:
            # Of a request that was made ahead nobody hears.
            call.addErrback(self._unused)
            call.cancel()

    def _unused(self, failure: Failure) -> None:
        if not failure.check(CancelledError, FalseClaim, PeerCallFailed, StreamEnded):  # type: ignore[no-untyped-call]
            self.log.failure("requesting headers failed", failure)

    async def next(self) -> HeaderBatch | None:
        """The next headers; None if all that the peer has are known here.

        Where its parent is not the last header of the batch before, the peer's chain has changed. Raises FalseClaim,
        StreamEnded or PeerCallFailed.
        """
        reply, known = await self._next_reply()
        headers = reply.headers[known:]
        if not headers:
            return None
        if self._head is None and self._known is not None:
            self._head = await self._known.head(headers[0])
        if (parent := self._head) is None:
            raise FalseClaim("its headers do not begin at a block that both have")
        if self._ahead and not reply.is_last:
            self._call = self._request([headers[-1].hash])
        check = await self._node.chain_manager.check_headers(parent, headers)
        if check.heads:
            self._head = check.heads[-1]
        return HeaderBatch(parent, headers, check.heads, check.failure, reply.is_last, reply.height)

    async def _next_reply(self) -> tuple[HeadersReply, int]:
        """The next reply whose headers are not all known here, unless it is the last, and how many of them are."""
        if self._head is None:
            return await self.search()
        reply = await self._reply([self._head.point.hash])
        if reply.headers and reply.headers[0].parent_hash == self._head.point.hash:
            return reply, 0
        if self._known is None:
            raise StreamEnded("the peer's chain has changed")
        if self._restarts >= MAX_RESTARTS:
            raise FalseClaim("its chain changed while its headers were fetched, again and again")
        self._restarts += 1
        self._head = None
        return await self.search()

    async def search(self) -> tuple[HeadersReply, int]:
        """The reply in which the peer's chain leaves what is known here, or ends, and how many of its headers are.

        Raises FalseClaim, StreamEnded or PeerCallFailed.
        """
        known, searches, low = self._known, 0, -1
        if known is None:
            raise StreamEnded("the peer's chain is compared with none")
        hashes = await known.hashes_at(locator_heights(await known.height()))
        while searches <= MAX_SEARCHES:
            reply = await self._reply(hashes)
            count = await known.count(reply.headers)
            if count < len(reply.headers) or reply.is_last:
                return reply, count
            last = reply.headers[-1]
            if last.height <= low:
                break
            low, hashes = last.height, [last.hash]
            if await known.hashes_at([low]) == hashes:
                # The last common block lies between two hashes of the locator. Otherwise a branch is here in part.
                searches += 1
                hashes = await known.hashes_at(closer_heights(low, await known.height()))
        raise FalseClaim("its headers do not continue the chain")

    async def _reply(self, hashes: Sequence[bytes]) -> HeadersReply:
        """The reply that was requested ahead, or else one to a request for the headers above one of ``hashes``."""
        if self._ended:
            raise CancelledError
        self.asked_at = self._node.now()
        self._call = self._call or self._request(hashes)
        try:
            reply = await self._call
        finally:
            self._call = self.asked_at = None
        if len(reply.headers) < self._asked and not reply.is_last:
            raise FalseClaim("it sends fewer headers than requested and says that it has more")
        if not reply.is_one_chain:
            raise FalseClaim("its headers are not those of one chain")
        most = MAX_HEADERS if self._ahead else PROOF_HEADERS
        self._limit = _next_limit(self._asked, self._took, most)
        return reply

    def _request(self, hashes: Sequence[bytes]) -> Deferred[HeadersReply]:
        self._asked = self._limit
        return Deferred.fromCoroutine(self._answer(hashes))

    async def _answer(self, hashes: Sequence[bytes]) -> HeadersReply:
        """The peer's answer; it is asked again about a proven chain if it is overloaded or an answer is lost."""
        for tries_left in reversed(range(TRIES if self._proven else 1)):
            if self._ended:
                raise CancelledError
            if not self._peers.has(self._peer):
                break
            late = FalseClaim(f"its headers did not come within {self._seconds:g} s")
            left = self._began + self._seconds - self._node.now()
            if left <= 0:
                raise late
            within, began = None if self._proven else min(PROOF_SECONDS, left), self._node.now()
            try:
                reply = await self._peers.client.headers(self._peer.endpoint, hashes, self._asked, within=within)
            except PeerCallFailed as failed:
                if failed.kind is FailureKind.TIMEOUT and within == left:
                    raise late from failed
                if not tries_left or not (failed.retry_after or failed.kind is FailureKind.TIMEOUT):
                    raise
                if failed.retry_after:
                    await sleep(self._peers, failed.retry_after)
            else:
                self._took = self._node.now() - began
                return reply
        raise StreamEnded("the peer has been dropped")


def _next_limit(asked: int, seconds: float, most: int) -> int:
    """How many headers to request next, at most ``most``, after the reply to a request took ``seconds``."""
    if seconds > REPLY_SECONDS:
        return min(max(asked // 2, FIRST_HEADERS), most)
    return min(asked * 4, most) if seconds < REPLY_SECONDS / 4 else asked


def sleep(peers: Peers, seconds: float) -> Deferred[None]:
    """Fires after so many of the node's seconds."""
    return deferLater(cast(IReactorTime, peers.node.clock), seconds, lambda: None)


def judge(peers: Peers, peer: Peer, failure: RuleViolation | NotYet) -> None:
    """Let a peer bear that a header of its chain is not valid, for the reason ``failure`` (docs/peers.md)."""
    match failure:
        case ProducerViolation():
            peers.dispute_chain(peer, failure.detail)
        case RuleViolation():
            peers.refuse_chain(peer, failure.detail)
        case UnexpectedBlock():
            peers.reject_claim(peer, failure.detail)
        case NotYet():
            peers.wait_for_slot(peer)


# A chain to follow


@define(eq=False)
class HeaderChain:
    """Verified headers of a peer's chain above the last block that is stored here."""

    source: Peer
    first: bytes
    """The hash of the first block that is not stored here."""
    head: ChainHead
    """The last verified header; at the beginning the last block that is stored here."""
    claimed_height: int
    fork: ChainPoint = field()
    """The last block that is stored here."""
    window: deque[Header] = field(factory=deque)
    """Headers that have not been taken; of a long chain only the first ones, the others are fetched again."""
    window_head: ChainHead = field()
    """The last header that is in the window, or was."""
    complete: bool = False
    """Whether the last reply ended with the source's tip."""
    failure: RuleViolation | NotYet | None = None
    """Why the header after the last verified one is not valid, if so."""
    abandoned: bool = False
    """Whether the source is asked for no further headers."""

    @fork.default
    def _at_the_head(self) -> ChainPoint:
        return self.head.point

    @window_head.default
    def _at_the_fork(self) -> ChainHead:
        return self.head

    @property
    def tip(self) -> ChainPoint:
        """The chain variables after the last verified header."""
        return self.head.point

    @property
    def window_tip(self) -> ChainPoint:
        """The chain variables after the last header that is in the window, or was."""
        return self.window_head.point

    @property
    def ended(self) -> bool:
        """Whether no headers follow those in the window."""
        ended = self.complete or self.failure is not None
        return self.abandoned or (ended and self.window_tip.hash == self.tip.hash)

    def take(self, limit: int) -> Sequence[Header]:
        """The next verified headers, at most ``limit``; each is given once."""
        return [self.window.popleft() for _ in range(min(limit, len(self.window)))]

    def append(self, batch: HeaderBatch) -> None:
        """Add the valid headers of a batch, which follow on :attr:`tip` or :attr:`window_tip`."""
        for header, head in zip(batch.headers, batch.heads, strict=False):
            if len(self.window) < WINDOW_HEADERS and self.window_tip.hash == header.parent_hash:
                self.window.append(header)
                self.window_head = head
        if batch.heads and batch.heads[-1].point.work > self.tip.work:
            self.head = batch.heads[-1]
        self.claimed_height = batch.claimed_height
        self.failure, self.complete = batch.failure, batch.failure is None and batch.is_last


class HeaderFeed:
    """Keeps the headers of a proven chain ahead of its blocks, until the chain has ended."""

    def __init__(self, peers: Peers, chain: HeaderChain, wake: Callable[[], None], own_errors: OwnErrors) -> None:
        """``wake`` is called when headers have come, and when the chain is abandoned."""
        self._peers = peers
        self._chain = chain
        self._wake = wake
        self._own_errors = own_errors
        self._stream = HeaderStream(peers, chain.source, None, head=chain.window_head, proven=True, ahead=True)
        self._checked_at: float | None = None
        self.starved = 0.0
        """The seconds in which blocks waited for headers, minus those since in which they did not; never negative."""
        self._running = Deferred.fromCoroutine(self._run())
        self._running.addErrback(self._failed)

    def stop(self) -> None:
        """Abandon the source, unless the chain has ended."""
        self._running.cancel()

    def note_wait(self, now: float, *, blocks_wait: bool) -> None:
        """Note whether the blocks wait for headers at ``now``, in the node's seconds; to be called every second."""
        passed = 0.0 if self._checked_at is None else now - self._checked_at
        self._checked_at = now
        waits = blocks_wait and self._stream.asked_at is not None
        self.starved = max(self.starved + (passed if waits else -passed), 0.0)

    async def _run(self) -> None:
        chain = self._chain
        try:
            while not chain.ended:
                while len(chain.window) > WINDOW_HEADERS - 2 * MAX_HEADERS:
                    await sleep(self._peers, _FULL_WINDOW_SECONDS)
                batch = await self._stream.next()
                if batch is not None:
                    chain.append(batch)
                    self._wake()
                    if batch.failure is not None and not chain.ended:
                        # The source has left the chain that was verified, part of which is fetched again.
                        raise StreamEnded("the peer's chain has changed")
        finally:
            self._stream.end()

    def _failed(self, failure: Failure) -> None:
        """Abandon the source: blocks with verified headers are still fetched, and the next check continues there."""
        error, source = failure.value, self._chain.source
        if isinstance(error, PeerCallFailed):
            self._peers.count_failure(source, error)
        elif isinstance(error, FalseClaim):
            self._peers.reject_claim(source, str(error))
        elif not isinstance(error, StreamEnded | CancelledError):
            self._own_errors.note(failure)
        self._chain.abandoned = True
        self._wake()
