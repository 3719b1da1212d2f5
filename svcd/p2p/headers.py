"""Headers of other nodes' chains: locators, verified headers, and fetching them ahead of the blocks."""

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, cast

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from svcd.chain.block import Header
from svcd.chain.errors import NotYet, ProducerViolation, RuleViolation
from svcd.chain.transition import ChainHead, ChainPoint
from svcd.limits import ENDLESS_ANSWER, limit
from svcd.node.chain_manager import ChainManager
from svcd.node.changes import HeaderCheck
from svcd.node.pinned_block import UnexpectedBlock
from svcd.p2p.client import MAX_HEADERS, HeadersReply
from svcd.p2p.own_errors import OwnErrors
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.p2p.transport import FailureKind, PeerCallFailed
from svcd.store.chain_store import locator_heights

CLOSER_HASHES: Final = 100
"""Hashes in a locator between the last common block found so far and the tip."""
FIRST_HEADERS: Final = 128
"""Headers in the first request about a claim, which proves most claims."""
PROOF_HEADERS: Final = 500
"""Headers in further requests about a claim."""
WINDOW_HEADERS: Final = limit(8_192, "verified headers ahead of the blocks", "headers", ENDLESS_ANSWER)
"""Verified headers whose blocks have not come; the chain manager remembers more."""
REPLY_SECONDS: Final = 5.0
"""How long a reply with headers should take at most: after a slower one the next request is for fewer."""
TRIES: Final = 3
"""How often the source of a proven chain is asked for the same headers."""
_FULL_WINDOW_SECONDS: Final = 0.5
"""Between two checks whether a full window has room again."""


class FalseClaim(Exception):
    """A peer does not have the chain that it claims; the text says what it sent."""


class ChainChanged(Exception):
    """A peer has left the chain that was fetched from it, or this node has dropped the peer."""


def locator(chain_manager: ChainManager) -> list[bytes]:
    """Hashes of canonical blocks: the tip, 1, 2, 4, 8 … below it, and the genesis."""
    return chain_manager.reader.hashes_at(locator_heights(chain_manager.tip.height))


def closer_locator(chain_manager: ChainManager, low: int) -> list[bytes]:
    """Hashes of at most CLOSER_HASHES canonical blocks, spread evenly from the tip down to height ``low``."""
    high = chain_manager.tip.height
    step = max(-(-(high - low) // (CLOSER_HASHES - 1)), 1)
    return chain_manager.reader.hashes_at([*range(high, low, -step), low])


def check_count(reply: HeadersReply, limit: int) -> None:
    """Raise FalseClaim for fewer headers than the ``limit`` if the peer says that it has more.

    Otherwise a peer could keep a claim or a download open by one header at a time.
    """
    if len(reply.headers) < limit and not reply.is_last:
        raise FalseClaim("it sends fewer headers than requested and says that it has more")


def check_one_chain(reply: HeadersReply, limit: int) -> None:
    """Raise FalseClaim unless the headers are of one chain and :func:`check_count` accepts their number."""
    check_count(reply, limit)
    if any(header.parent_hash != before.hash for before, header in pairwise(reply.headers)):
        raise FalseClaim("its headers are not those of one chain")


class ChainEnd(StrEnum):
    """Why no headers follow the last verified one, if none do."""

    RUNNING = "running"
    """The source has more of them."""
    COMPLETE = "complete"
    """The last reply ended with the source's tip."""
    INVALID = "invalid"
    """The next header breaks a rule."""
    DISPUTED = "disputed"
    """The next header is of a producer that the list here does not let make it."""
    EARLY = "early"
    """The next header lies in a future slot, by this node's clock."""
    UNEXPECTED = "unexpected"
    """The next header is not that of the block which the operator expects there."""
    ABANDONED = "abandoned"
    """The source is asked for no further headers."""


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
    end: ChainEnd = ChainEnd.RUNNING
    fault: str = ""
    """Which rule the next header breaks, if the end is INVALID or DISPUTED, or what is expected, if UNEXPECTED."""

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
        ended = self.end is not ChainEnd.RUNNING and self.window_tip.hash == self.tip.hash
        return ended or self.end is ChainEnd.ABANDONED

    def take(self, limit: int) -> Sequence[Header]:
        """The next verified headers, at most ``limit``; each is given once."""
        return [self.window.popleft() for _ in range(min(limit, len(self.window)))]

    def append(self, reply: HeadersReply, check: HeaderCheck) -> None:
        """Add the valid headers of a reply, which follow on :attr:`tip` or :attr:`window_tip`."""
        for header, head in zip(reply.headers, check.heads, strict=False):
            if len(self.window) < WINDOW_HEADERS and self.window_tip.hash == header.parent_hash:
                self.window.append(header)
                self.window_head = head
        if check.heads and check.heads[-1].point.work > self.tip.work:
            self.head = check.heads[-1]
        self.claimed_height = reply.height
        match check.failure:
            case None:
                self.end = ChainEnd.COMPLETE if reply.is_last else ChainEnd.RUNNING
            case UnexpectedBlock() as refusal:
                self.end, self.fault = ChainEnd.UNEXPECTED, refusal.detail
            case NotYet():
                self.end = ChainEnd.EARLY
            case ProducerViolation() as violation:
                self.end, self.fault = ChainEnd.DISPUTED, violation.detail
            case RuleViolation() as violation:
                self.end, self.fault = ChainEnd.INVALID, violation.detail


class HeaderFeed:
    """Fetches and verifies the headers of one chain ahead of its blocks, until the chain has ended."""

    def __init__(self, peers: Peers, chain: HeaderChain, wake: Callable[[], None], own_errors: OwnErrors) -> None:
        """``wake`` is called when headers have come, and when the chain is abandoned."""
        self._peers = peers
        self._chain = chain
        self._wake = wake
        self._own_errors = own_errors
        self._asked_at: float | None = None
        """Since when (the node's seconds) the next headers are awaited; None while they are not."""
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
        waits = blocks_wait and self._asked_at is not None
        self.starved = max(self.starved + (passed if waits else -passed), 0.0)

    async def _run(self) -> None:
        """Request the next headers while the last ones are verified."""
        chain, node = self._chain, self._peers.node
        request: Deferred[HeadersReply] | None = None
        limit = PROOF_HEADERS
        try:
            while not chain.ended:
                while len(chain.window) > WINDOW_HEADERS - 2 * MAX_HEADERS:
                    await self._sleep(_FULL_WINDOW_SECONDS)
                self._asked_at = node.now()
                if request is None:
                    request = self._request(chain.window_tip.hash, limit)
                reply = await request
                request = None
                seconds = node.now() - self._asked_at
                self._asked_at = None
                if not reply.headers or reply.headers[0].parent_hash != chain.window_tip.hash:
                    raise ChainChanged
                check_count(reply, limit)
                limit = _next_limit(limit, seconds)
                if not reply.is_last:
                    request = self._request(reply.headers[-1].hash, limit)
                chain.append(reply, await node.chain_manager.check_headers(chain.window_head, reply.headers))
                self._wake()
        finally:
            if request is not None:
                request.addErrback(self._unused_request_failed)
                request.cancel()

    def _unused_request_failed(self, failure: Failure) -> None:
        """Ignore that a request was cancelled, or that the peer failed: its headers are not wanted any more."""
        if not failure.check(CancelledError, PeerCallFailed, FalseClaim):  # type: ignore[no-untyped-call]
            self._own_errors.note(failure)

    def _sleep(self, seconds: float) -> Deferred[None]:
        return deferLater(cast(IReactorTime, self._peers.node.clock), seconds, lambda: None)

    def _request(self, after: bytes, limit: int) -> Deferred[HeadersReply]:
        return Deferred.fromCoroutine(self._headers_after(after, limit))

    async def _headers_after(self, after: bytes, limit: int) -> HeadersReply:
        """The source's headers after a block; the source is asked again if it is overloaded or a reply is lost."""
        source = self._chain.source
        for tries_left in reversed(range(TRIES)):
            if not self._peers.has(source):
                break
            try:
                return await self._peers.client.headers(source.endpoint, [after], limit)
            except PeerCallFailed as failed:
                if not tries_left or not (failed.retry_after or failed.kind is FailureKind.TIMEOUT):
                    raise
                if failed.retry_after:
                    await self._sleep(failed.retry_after)
        raise ChainChanged

    def _failed(self, failure: Failure) -> None:
        """Abandon the source: blocks with verified headers are still fetched, and the next check continues there."""
        error, source = failure.value, self._chain.source
        if isinstance(error, PeerCallFailed):
            self._peers.count_failure(source, error)
        elif isinstance(error, FalseClaim):
            self._peers.reject_claim(source, str(error))
        elif not isinstance(error, ChainChanged | CancelledError):
            self._own_errors.note(failure)
        self._chain.end = ChainEnd.ABANDONED
        self._wake()


def _next_limit(limit: int, seconds: float) -> int:
    """How many headers to request next, if the reply to a request for ``limit`` headers took ``seconds``."""
    if seconds > REPLY_SECONDS:
        return max(limit // 2, FIRST_HEADERS)
    return min(limit * 2, MAX_HEADERS) if seconds < REPLY_SECONDS / 2 else limit
