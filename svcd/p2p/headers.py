"""Synchronisation by headers first: whose claim to look into, when it counts, and which chain to follow.

A peer's claim of more work is a hint. It counts when headers with so much checked work stand behind it; until then the
node stays synced and makes blocks. The chain that is proven to have more work is followed: its blocks are fetched from
every peer that has them (svcd.p2p.blocks), and no peer is blamed for what another sent (docs/peers.md "Catching up").
"""

from collections import deque
from collections.abc import Coroutine, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar, cast

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.block import Header
from svcd.chain.difficulty import next_target
from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.chain.forkchoice import prefers
from svcd.chain.transition import ChainPoint
from svcd.chain.work import block_work
from svcd.node.changes import HeaderCheck, Standing
from svcd.node.ledger import Ledger
from svcd.node.recent import Recent
from svcd.p2p.bans import INVALID_SECONDS
from svcd.p2p.block_server import MAX_HEADERS
from svcd.p2p.blocks import BlockDownload, DownloadFailed, InvalidChain, NodeBusy, Wakeup
from svcd.p2p.client import HeadersReply, PeerStatus
from svcd.p2p.fields import MAX_BLOCKS
from svcd.p2p.peers import Peer, Peers
from svcd.p2p.progress import Progress
from svcd.p2p.transport import CallFailed, Trouble

T = TypeVar("T")

MAX_CLAIMS: Final = 2
"""Claims that are looked into at a time, for at most PROOF_SECONDS each."""
MAX_LONG_CLAIMS: Final = 4
"""Claims that are looked into beside these for longer: those with the most verified work."""
CLAIM_APART_SECONDS: Final = 2.0
"""Between the beginnings of two looks: most peers have the same chain, and its headers are fetched once."""
PROOF_SECONDS: Final = 10.0
"""For each answer about a claim that is not proven yet."""
LONGEST_PROOF: Final = 600.0
"""How long one claim may be looked into, however many headers come."""
MAX_SEARCHES: Final = 6
"""Questions for the last common block within the canonical chain; three find it in a chain of 500,000 blocks."""
FIRST_HEADERS: Final = 128
"""Headers in the first question, which proves most claims."""
PROOF_HEADERS: Final = 500
"""Headers in further questions about a claim that is not proven yet."""
WINDOW_HEADERS: Final = 8_192
"""Verified headers whose blocks have not come; the chain manager remembers more."""
HOLD_SECONDS: Final = 90.0
"""How long a proven chain holds the node in catching-up without another block of it."""
FAR_BLOCKS: Final = 6
"""How many blocks' work a proven chain must be ahead to hold the node in catching-up: a miner that publishes headers of
its newest blocks and withholds the blocks must not stop the others."""
MAX_RESTARTS: Final = 5
"""How often the proof of one claim begins anew because the peer's chain changed."""
BRANCH_SECONDS: Final = 300.0
"""How long a peer that serves no headers is followed without more work here than before."""
FEED_SECONDS: Final = 30.0
"""How much longer blocks may have waited for headers than not while another peer claims to have the headers."""
GAIN_SECONDS: Final = 60.0
"""A node that gained more blocks in this time than the network makes is catching up while a peer claims more."""
ANSWER_SECONDS: Final = 5.0
"""How long an answer with headers should take at most: the next one is made shorter after a slower one."""
SETTLE_SECONDS: Final = 10.0
"""How long after its first peer a node that started waits for claims to be looked into before it counts as synced."""
FIRST_REST: Final = 60.0
LONGEST_REST: Final = 3_600.0
"""How long a chain whose blocks cannot be had is not followed again, the first time and at most."""
FIRST_RETRY: Final = 5.0
LONGEST_RETRY: Final = 300.0
"""The same for a peer that did not answer."""
TRIES: Final = 3
"""How often a question for headers of a proven chain is asked of its source."""
_REMEMBERED: Final = 1_024


class FalseClaim(Exception):
    """A peer does not have the chain that it claims; the text says what it showed."""


class ChainChanged(Exception):
    """A peer that is followed has left its chain for another, or this node has left the peer."""


def locator(ledger: Ledger) -> list[bytes]:
    """Hashes of canonical blocks: the tip, 1, 2, 4, 8 … below it, and the genesis."""
    heights, step = [ledger.tip.height], 1
    while heights[-1] > 0:
        heights.append(max(ledger.tip.height - step, 0))
        step *= 2
    return _hashes_at(ledger, heights)


def closer_locator(ledger: Ledger, low: int, high: int, count: int = 100) -> list[bytes]:
    """Hashes of at most ``count`` canonical blocks, spread evenly from height ``high`` down to ``low``."""
    step = max(-(-(high - low) // (count - 1)), 1)
    return _hashes_at(ledger, [*range(high, low, -step), low])


def _hashes_at(ledger: Ledger, heights: Sequence[int]) -> list[bytes]:
    found = [ledger.reader.canonical(height) for height in heights]
    return [stored.point.hash for stored in found if stored is not None]


@define(eq=False)
class HeaderChain:
    """Verified headers of a peer's chain above the last block that is stored here."""

    source: Peer
    fork: ChainPoint
    """That last block."""
    tip: ChainPoint
    """The chain variables after the last verified header."""
    claimed_height: int
    window: deque[Header] = field(factory=deque)
    """Those that have not been taken; only the first ones of a long chain, the others are fetched again."""
    window_tip: ChainPoint = field()
    """The chain variables after the last header that is in the window, or was."""
    complete: bool = False
    """Whether the last answer ended with the source's tip, or at a header that cannot be accepted."""
    abandoned: bool = False
    """Whether no further headers are asked of the source."""
    failure: RuleViolation | None = None
    """Why the next header of the chain cannot be accepted."""
    early: bool = False
    """Whether the next header lies in a slot to come, by this node's clock."""
    asked_since: float | None = None
    """Since when (Unix seconds) the next headers are waited for; None while they are not."""
    starved: float = 0.0
    """How many seconds longer the blocks have waited for headers than they have not."""
    looked_at: float | None = None
    """When (Unix seconds) that was noted last."""

    @window_tip.default
    def _at_the_fork(self) -> ChainPoint:
        return self.fork

    @property
    def ended(self) -> bool:
        """Whether nothing comes after the headers in the window."""
        return self.abandoned or (self.complete and self.window_tip.hash == self.tip.hash)

    def take(self, limit: int) -> Sequence[Header]:
        """The next verified headers, at most ``limit``; each is given once."""
        return [self.window.popleft() for _ in range(min(limit, len(self.window)))]

    def note_wait(self, now: float, waits: bool) -> None:
        """Note whether the blocks wait for headers at ``now``, in Unix seconds."""
        passed = 0.0 if self.looked_at is None else now - self.looked_at
        self.looked_at = now
        self.starved = max(self.starved + (passed if waits else -passed), 0.0)

    def append(self, reply: HeadersReply, check: HeaderCheck) -> None:
        """Add the headers of an answer that follow on :attr:`tip` or :attr:`window_tip`, as far as they are good."""
        for header, point in zip(reply.headers, check.points, strict=False):
            if len(self.window) < WINDOW_HEADERS and self.window_tip.hash == header.parent_hash:
                self.window.append(header)
                self.window_tip = point
        if check.points and check.points[-1].work > self.tip.work:
            self.tip = check.points[-1]
        self.claimed_height = reply.height
        self.complete = check.failure is not None or _is_last(reply)
        self.failure = check.failure if isinstance(check.failure, RuleViolation) else None
        self.early = isinstance(check.failure, NotYet)


@define(eq=False)
class _Look:
    """A claim that is being looked into."""

    peer: Peer
    began: float
    """Unix seconds."""
    chain: HeaderChain | None = None
    """The headers that are verified so far."""
    by_ranges: bool = False
    """Whether the peer serves no headers and its blocks are fetched."""
    work: Deferred[None] | None = None
    call: Deferred[Any] | None = None
    """The question that is waited for."""
    ended: bool = False
    """Whether nothing more is asked."""

    @property
    def proven(self) -> int:
        """The work of the verified headers."""
        return 0 if self.chain is None else self.chain.tip.work - self.chain.fork.work

    def end(self) -> None:
        """Ask nothing more; it may be this look itself that led here, so it goes on to its next question."""
        self.ended = True
        if self.call is not None:
            self.call.cancel()

    async def answer(self, question: Coroutine[Any, Any, T]) -> T:
        """The answer to a question. Raises CancelledError if the look has ended."""
        if self.ended:
            question.close()
            raise CancelledError
        self.call = call = Deferred.fromCoroutine(question)
        try:
            return await call
        finally:
            self.call = None


@define
class _Unavailable:
    """A chain whose blocks could not be had."""

    until: float
    """When (Unix seconds) it may be followed again from one of the same peers."""
    times: int
    tried: frozenset[str]
    """Endpoints of the peers that did not deliver."""


class Synchroniser:
    """Looks into claims of more work, and follows the chain that is proven to have it."""

    log = Logger()

    def __init__(self, peers: Peers, progress: Progress) -> None:
        self._peers = peers
        self._home = peers.home
        self._progress = progress
        self._looks: dict[str, _Look] = {}
        """By endpoint, the claims that are being looked into."""
        self._last_look = 0.0
        self._chain: HeaderChain | None = None
        self._download: BlockDownload | None = None
        self._following: Deferred[None] | None = None
        self._waiting_chain: HeaderChain | None = None
        """A chain with more work than the one that is being given up for it."""
        self._feeding: Deferred[None] | None = None
        self._retried = False
        """Whether the blocks of the chain that is followed could not be had before."""
        self._heights: deque[tuple[float, int]] = deque()
        """The height of the tip second by second (Unix seconds), for GAIN_SECONDS."""
        self._unavailable: Recent[bytes, _Unavailable] = Recent(_REMEMBERED)
        """By the hash of the first missing block."""
        self._first_met: float | None = None
        self._settled = False
        self._stopping = False

    @property
    def running(self) -> bool:
        """Whether the node is fetching a chain that is proven to have more work."""
        return self._chain is not None

    def behind(self) -> str:
        """Why the tip may not be the network's; "" if nothing speaks against it."""
        chain, download = self._chain, self._download
        if chain is not None and download is not None and self._holds(download) and self._is_far_ahead(chain):
            return (
                f"a chain with more work than the one here, proven by its headers up to height {chain.tip.height}, is "
                f"being fetched, first from {chain.source.endpoint}"
            )
        if (gained := self._gained()) and self._is_claimed_more():
            return f"{gained} blocks came within {GAIN_SECONDS:g} s, and a peer claims to have more"
        if self._peers.met and not self._settled:
            return "the first peers since the start are being asked for their chains"
        return ""

    def _holds(self, download: BlockDownload) -> bool:
        """Whether blocks of the chain that is followed come; one whose blocks could not be had must deliver first."""
        return self._home.now() - download.last_block < HOLD_SECONDS and (download.delivered or not self._retried)

    def _gained(self) -> int:
        """By how many blocks the chain has grown in the last minute if the network makes fewer; else 0."""
        if not self._heights:
            return 0
        gained = self._home.ledger.tip.height - self._heights[0][1]
        return gained if gained >= FAR_BLOCKS + GAIN_SECONDS / self._home.params.slot_seconds else 0

    def _is_claimed_more(self) -> bool:
        work = self._home.ledger.tip.work
        return any(peer.status is not None and peer.status.work > work for peer in self._peers.all())

    def _note_height(self, now: float) -> None:
        while self._heights and now - self._heights[0][0] > GAIN_SECONDS:
            self._heights.popleft()
        if not self._heights or now - self._heights[-1][0] >= 1.0:
            self._heights.append((now, self._home.ledger.tip.height))

    def _is_far_ahead(self, chain: HeaderChain) -> bool:
        params, tip = self._home.params, self._home.ledger.tip
        usual = block_work(next_target(params, height=tip.height + 1, clock=tip.clock))
        return chain.tip.work - tip.work >= FAR_BLOCKS * usual

    def best_height(self) -> int:
        """The height of the chain that is followed; 0 if none is.

        Beyond the verified headers it is what the source claims, and no more than another peer claims, if there is one.
        """
        chain = self._chain
        if chain is None:
            return 0
        others = [peer.status.height for peer in self._peers.all() if peer.status and peer is not chain.source]
        return max(chain.tip.height, min(chain.claimed_height, max(others, default=chain.claimed_height)))

    def consider(self) -> None:
        """Look into what peers claim, as far as there is room; to be called with every claim and every second."""
        if self._stopping:
            return
        now = self._home.now()
        self._note_height(now)
        self._look_for_slow_source(now)
        self._end_looks(now)
        candidates = self._candidates(now)
        if self._peers.met and not self._settled:
            self._first_met = now if self._first_met is None else self._first_met
            asked = all(peer.status is not None for peer in self._peers.all()) and not (self._looks or candidates)
            self._settled = asked or now - self._first_met >= SETTLE_SECONDS
        for peer in candidates:
            short = sum(now - look.began < PROOF_SECONDS and not look.by_ranges for look in self._looks.values())
            if short >= MAX_CLAIMS or (self._looks and now - self._last_look < CLAIM_APART_SECONDS):
                return
            self._last_look = now
            self._begin_look(peer, now)

    def _end_looks(self, now: float) -> None:
        """Look no longer into claims of peers that have left, and of those that take long into the best few only."""
        for look in tuple(self._looks.values()):
            if self._peers.get(look.peer.endpoint) is not look.peer:
                look.end()
        long = [look for look in self._looks.values() if now - look.began >= PROOF_SECONDS and not look.by_ranges]
        for look in sorted(long, key=lambda look: look.proven, reverse=True)[MAX_LONG_CLAIMS:]:
            if not look.ended:
                self._doubt(look.peer, "others have proven more in the time")
                look.end()

    def _candidates(self, now: float) -> list[Peer]:
        """Peers whose claims are worth a look: those that delivered before first, then peers of our choice."""
        tip, reader = self._home.ledger.tip, self._home.ledger.reader
        found = []
        for peer in self._peers.all():
            status = peer.status
            if status is None or peer.look_after > now or peer.endpoint in self._looks:
                continue
            if self._chain is not None and not self._is_elsewhere(peer, status.work):
                continue
            if self._peers.is_coming(status.hash):
                continue
            if peer.serves_headers is False and (self._has_ranges() or self._chain is not None):
                continue
            rival = (
                status.work == tip.work
                and status.hash not in (tip.hash, peer.settled)
                and reader.point(status.hash) is None
            )
            if status.work > tip.work or rival:
                found.append(peer)
        random = self._peers.book.random
        return sorted(found, key=lambda peer: (not peer.delivered, peer.doubts, not peer.outbound, random()))

    def _has_ranges(self) -> bool:
        """Whether the blocks of a peer without headers are being fetched: one such peer at a time."""
        return any(look.by_ranges for look in self._looks.values())

    def _is_elsewhere(self, peer: Peer, work: int) -> bool:
        """Whether a peer claims more than the chain that is followed has, and may not be on that chain."""
        chain, download = self._chain, self._download
        if chain is None or download is None or work <= chain.tip.work:
            return False
        idle = chain.starved >= PROOF_SECONDS or self._home.now() - download.last_block >= PROOF_SECONDS
        return download.lacks_chain(peer) or (idle and peer is not chain.source)

    def _begin_look(self, peer: Peer, now: float) -> None:
        look = self._looks[peer.endpoint] = _Look(peer, now)
        look.work = Deferred.fromCoroutine(self._look(look))
        look.work.addErrback(self._look_failed, look).addBoth(lambda _: self._look_over(look))

    def _look_over(self, look: _Look) -> None:
        del self._looks[look.peer.endpoint]
        if not self._stopping:
            self.consider()

    def _look_failed(self, failure: Failure, look: _Look) -> None:
        # Whatever went wrong here would go wrong again at once.
        look.peer.look_after = max(look.peer.look_after, self._home.now() + FIRST_RETRY)
        self._say_failed(failure)

    def _say_failed(self, failure: Failure) -> None:
        # A look is ended when its peer leaves, when it gives way and when the node stops.
        if not failure.check(CancelledError):  # type: ignore[no-untyped-call]
            self.log.failure("synchronisation failed", failure)

    async def stop(self) -> None:
        """Stop; done when no block of a peer's chain is being connected any more."""
        self._stopping = True
        for look in tuple(self._looks.values()):
            if look.work is not None:
                look.work.cancel()
        if self._download is not None:
            self._download.stop(DownloadFailed("the node is stopping"))
        if self._following is not None:
            done: Deferred[None] = Deferred()
            self._following.addBoth(lambda _: done.callback(None))
            await done

    # Looking into a claim

    async def _look(self, look: _Look) -> None:
        peer = look.peer
        try:
            if peer.serves_headers is not False:
                await self._prove(look)
            if peer.serves_headers is False and not self._has_ranges() and self._chain is None:
                look.by_ranges = True
                await self._follow_by_ranges(look)
        except FalseClaim as why:
            self._doubt(peer, str(why))
        except CallFailed as failed:
            if failed.rest:
                peer.look_after = self._home.now() + failed.rest
            else:
                # The line may be bad: one lost answer in three must not keep a node from a chain for long.
                self._doubt(peer, failed.detail, first=FIRST_RETRY, longest=LONGEST_RETRY)

    def _doubt(self, peer: Peer, why: str, **rest: float) -> None:
        self.log.info("the claim of {endpoint} does not count: {why}", endpoint=peer.endpoint, why=why)
        peer.doubt(self._home.now(), **rest)

    async def _prove(self, look: _Look) -> None:
        """Fetch and verify headers until they prove the claim of the peer, and follow their chain.

        Raises FalseClaim or CallFailed.
        """
        peer, restarts = look.peer, 0
        claim = peer.status
        chain = look.chain = await self._first_headers(look)
        while chain is not None:
            if self._is_followed(chain):
                peer.look_after = self._home.now() + PROOF_SECONDS
                return
            if chain.window and self._is_better(chain):
                self._prove_done(peer, chain)
                return
            if chain.failure is not None:
                self._refuse(chain)
                return
            if chain.early:
                # No lie: one of the two clocks may be wrong by a little, and the header is due soon.
                peer.look_after = self._home.now() + self._home.params.slot_seconds
                return
            if chain.complete:
                break
            reply = await self._ask_headers(look, [chain.tip.hash], PROOF_HEADERS)
            if reply.headers and reply.headers[0].parent_hash == chain.tip.hash:
                await self._verify(chain, reply)
            elif restarts < MAX_RESTARTS:
                restarts += 1
                chain = look.chain = await self._first_headers(look)
            else:
                raise FalseClaim("its chain changed while its headers were fetched, again and again")
        if claim is not None and peer.serves_headers is not False:
            peer.settled = claim.hash
            stored = self._home.ledger.reader.point(claim.hash)
            shown = max(self._home.ledger.tip.work if chain is None else chain.tip.work, stored.work if stored else 0)
            if shown < claim.work:
                raise FalseClaim("its headers have less work than it claims")

    async def _first_headers(self, look: _Look) -> HeaderChain | None:
        """The first headers of a peer's chain that are not stored here; None if it has none, or no headers at all."""
        ledger, peer = self._home.ledger, look.peer
        hashes, limit = locator(ledger), FIRST_HEADERS
        for search in range(MAX_SEARCHES + 1):
            try:
                reply = await self._ask_headers(look, hashes, limit)
            except CallFailed as failed:
                if search or failed.status not in (404, 405):
                    raise
                peer.serves_headers = False
                return None
            peer.serves_headers = True
            known = self._known(reply)
            while known and known == len(reply.headers) and not self._is_canonical(reply.headers[-1]):
                # A branch that is stored here in part.
                if _is_last(reply):
                    return None
                reply = await self._ask_headers(look, [reply.headers[-1].hash], PROOF_HEADERS)
                known = self._known(reply)
            if known < len(reply.headers):
                break
            if _is_last(reply):
                return None
            # The last common block lies between two hashes of the locator.
            hashes, limit = closer_locator(ledger, reply.headers[-1].height, ledger.tip.height), PROOF_HEADERS
        else:
            raise FalseClaim("its headers do not go on")
        headers = reply.headers[known:]
        fork = ledger.reader.point(headers[0].parent_hash)
        if fork is None:
            raise FalseClaim("its headers do not begin at a block that both have")
        chain = HeaderChain(peer, fork, fork, reply.height)
        await self._verify(chain, HeadersReply(headers, reply.first + known, reply.height))
        return chain

    def _is_canonical(self, header: Header) -> bool:
        canonical = self._home.ledger.reader.canonical(header.height)
        return canonical is not None and canonical.point.hash == header.hash

    def _known(self, reply: HeadersReply) -> int:
        """How many of the first headers are of blocks that are stored here."""
        reader = self._home.ledger.reader
        return next(
            (index for index, header in enumerate(reply.headers) if reader.point(header.hash) is None),
            len(reply.headers),
        )

    def _is_followed(self, chain: HeaderChain) -> bool:
        """Whether the first headers are those of the chain whose blocks are being fetched."""
        pending = set() if self._download is None else self._download.pending()
        return any(header.hash in pending for header in chain.window)

    async def _ask_headers(self, look: _Look, hashes: Sequence[bytes], limit: int) -> HeadersReply:
        """Headers for a proof: the answer must be there in time, however slowly it makes progress.

        Raises FalseClaim, also where they are not headers of one chain.
        """
        if self._home.now() - look.began > LONGEST_PROOF:
            raise FalseClaim(f"its headers did not prove it within {LONGEST_PROOF:g} s")
        client = self._peers.client
        reply = await look.answer(client.headers(look.peer.endpoint, hashes, limit, within=PROOF_SECONDS))
        _check_count(reply, limit)
        if any(header.parent_hash != before.hash for before, header in pairwise(reply.headers)):
            raise FalseClaim("its headers are not those of one chain")
        return reply

    async def _verify(self, chain: HeaderChain, reply: HeadersReply) -> None:
        chain.append(reply, await self._home.ledger.check_headers(chain.tip, reply.headers))

    def _refuse(self, chain: HeaderChain) -> None:
        """The source of a chain serves a header that breaks a rule: ban it."""
        if chain.failure is not None:
            self._punish(chain.source, chain.failure.detail)

    def _punish(self, peer: Peer, why: str) -> None:
        # Where it is not banned, since too many would be, its claims rest all the same.
        peer.doubt(self._home.now())
        if self._peers.get(peer.endpoint) is peer:
            self._peers.punish(peer, seconds=INVALID_SECONDS, why=why)

    def _is_better(self, chain: HeaderChain) -> bool:
        """Whether the verified headers prove more than the chain here and the one that is followed."""
        followed = self._chain
        if not prefers(chain.tip, self._home.ledger.tip):
            return False
        return followed is None or chain.tip.work > followed.tip.work

    def _prove_done(self, peer: Peer, chain: HeaderChain) -> None:
        found = self._unavailable.get(chain.window[0].hash)
        if found is not None and found.until > self._home.now() and peer.endpoint in found.tried:
            peer.look_after = found.until
            return
        peer.doubts = 0
        self._follow(chain)

    # Following a proven chain

    def _follow(self, chain: HeaderChain) -> None:
        if self._download is not None:
            self._download.stop(DownloadFailed(f"{chain.source.endpoint} proves a chain with more work"))
            self._waiting_chain = chain
            return
        self._settled = True
        self._chain = chain
        self._retried = chain.window[0].hash in self._unavailable
        self._download = BlockDownload(self._peers, self._progress, chain)
        self._progress.begin(chain.fork.height, self.best_height())
        self._following = Deferred.fromCoroutine(self._fetch_chain(chain, self._download))
        self._following.addErrback(self._say_failed).addBoth(self._followed)

    def _followed(self, _: object) -> None:
        self._following = self._chain = self._download = None
        self._progress.end()
        chain, self._waiting_chain = self._waiting_chain, None
        if self._stopping:
            return
        if chain is not None and self._is_better(chain):
            self._follow(chain)
        else:
            self.consider()

    async def _fetch_chain(self, chain: HeaderChain, download: BlockDownload) -> None:
        first = chain.window[0].hash
        feeding = self._feeding = Deferred.fromCoroutine(self._feed(chain, download))
        feeding.addErrback(self._feed_failed, chain, download)
        self._progress.sent_by(chain.source.endpoint)
        try:
            await download.run()
            self._unavailable.pop(first, None)
            chain.source.delivered = True
            self._refuse(chain)
        except InvalidChain as invalid:
            self.log.warn("the chain of {endpoint} is invalid: {why}", endpoint=chain.source.endpoint, why=str(invalid))
            self._punish(chain.source, str(invalid))
        except DownloadFailed as failed:
            if not self._stopping:
                self.log.info("not following {endpoint}: {why}", endpoint=chain.source.endpoint, why=str(failed))
            if not self._stopping and self._waiting_chain is None:
                self._note_unavailable(first, chain.source)
        except NodeBusy as busy:
            self.log.info("catching up waits: {why}", why=str(busy))
            chain.source.look_after = self._home.now() + 1.0
        finally:
            feeding.cancel()
            self._feeding = None

    def _note_unavailable(self, first: bytes, source: Peer) -> None:
        before = self._unavailable.get(first)
        times = 0 if before is None else before.times
        until = self._home.now() + min(FIRST_REST * 2**times, LONGEST_REST)
        tried = frozenset(peer.endpoint for peer in self._peers.all()) | (before.tried if before else frozenset())
        self._unavailable[first] = _Unavailable(until, min(times + 1, 32), tried)
        source.look_after = until

    async def _feed(self, chain: HeaderChain, download: BlockDownload) -> None:
        """Fetch and verify headers ahead of the download, the next ones while the last ones are verified."""
        pause = Wakeup(self._home.clock)
        asked: Deferred[HeadersReply] | None = None
        limit = PROOF_HEADERS
        try:
            while not chain.ended:
                while len(chain.window) > WINDOW_HEADERS - 2 * MAX_HEADERS:
                    await pause.wait(0.5)
                chain.asked_since = self._home.now()
                if asked is None:
                    asked = self._next_headers(chain, chain.window_tip.hash, limit)
                reply = await asked
                asked = None
                seconds = self._home.now() - chain.asked_since
                chain.asked_since = None
                if not reply.headers or reply.headers[0].parent_hash != chain.window_tip.hash:
                    raise ChainChanged
                _check_count(reply, limit)
                limit = _next_limit(limit, seconds)
                if not _is_last(reply):
                    asked = self._next_headers(chain, reply.headers[-1].hash, limit)
                chain.append(reply, await self._home.ledger.check_headers(chain.window_tip, reply.headers))
                download.wake()
        finally:
            pause.cancel_timer()
            if asked is not None:
                asked.addErrback(lambda _: None)
                asked.cancel()

    def _next_headers(self, chain: HeaderChain, after: bytes, limit: int) -> Deferred[HeadersReply]:
        return Deferred.fromCoroutine(self._headers_after(chain.source, after, limit))

    async def _headers_after(self, source: Peer, after: bytes, limit: int) -> HeadersReply:
        """The answer of ``source``, which is asked again where one is lost or it has had enough for now."""
        pause = Wakeup(self._home.clock)
        try:
            for last in (*[False] * (TRIES - 1), True):
                if self._peers.get(source.endpoint) is not source:
                    break
                try:
                    return await self._peers.client.headers(source.endpoint, [after], limit)
                except CallFailed as failed:
                    if last or not (failed.rest or failed.trouble is Trouble.TIMEOUT):
                        raise
                    if failed.rest:
                        await pause.wait(failed.rest)
        finally:
            pause.cancel_timer()
        raise ChainChanged

    def _feed_failed(self, failure: Failure, chain: HeaderChain, download: BlockDownload) -> None:
        """Headers do not come any more: what is verified is fetched still, and the next look goes on from there."""
        if failure.check(CancelledError):  # type: ignore[no-untyped-call]
            return
        error = failure.value
        if isinstance(error, CallFailed):
            if error.rest:
                chain.source.look_after = self._home.now() + error.rest
            else:
                self._peers.demote(chain.source)
        elif isinstance(error, FalseClaim):
            self._doubt(chain.source, str(error))
        elif not isinstance(error, ChainChanged):
            self.log.failure("fetching headers failed", failure)
        chain.abandoned = True
        download.wake()

    def _look_for_slow_source(self, now: float) -> None:
        """Take the headers from another peer where the blocks wait for them for too long."""
        chain, download, feeding = self._chain, self._download, self._feeding
        if chain is None or download is None or feeding is None:
            return
        chain.note_wait(now, chain.asked_since is not None and not download.pending())
        others = [peer for peer in self._peers.all() if peer is not chain.source and peer.serves_headers is not False]
        able = any(peer.status and peer.status.work > chain.tip.work and peer.look_after <= now for peer in others)
        if able and not chain.abandoned and chain.starved >= FEED_SECONDS:
            self._doubt(chain.source, "its headers come too slowly")
            chain.abandoned = True
            feeding.cancel()
            download.wake()

    # Peers that serve no headers

    async def _follow_by_ranges(self, look: _Look) -> None:
        """Follow a peer that serves no headers: from it alone, one range of blocks after the other.

        Raises FalseClaim or CallFailed.
        """
        ledger, peer = self._home.ledger, look.peer
        claim = peer.status
        self._progress.begin(ledger.tip.height, claim.height if claim else 0)
        try:
            await self._fetch_ranges(look, claim)
        finally:
            if self._chain is None:
                self._progress.end()
        peer.settled = claim.hash if claim else b""
        if claim is not None and ledger.tip.work < claim.work and peer.look_after <= self._home.now():
            raise FalseClaim("its blocks have less work than it claims")

    async def _fetch_ranges(self, look: _Look, claim: PeerStatus | None) -> None:
        ledger, peer = self._home.ledger, look.peer
        height = min(ledger.tip.height, claim.height if claim else 0)
        step, fetched = MAX_BLOCKS, False
        work, grown = ledger.tip.work, self._home.now()
        while claim is not None and not self._stopping:
            if ledger.tip.work > work:
                work, grown = ledger.tip.work, self._home.now()
            left = grown + BRANCH_SECONDS - self._home.now()
            answer = Deferred.fromCoroutine(look.answer(self._peers.client.blocks(peer.endpoint, height + 1)))
            try:
                blocks = await answer.addTimeout(max(left, 0.0), cast(IReactorTime, self._home.clock))
            except DeferredTimeout as late:
                raise FalseClaim(f"its blocks did not make it good within {BRANCH_SECONDS:g} s") from late
            outcomes = await ledger.submit_blocks(blocks)
            failure = next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)
            if isinstance(failure, RuleViolation):
                self._punish(peer, failure.detail)
                return
            if isinstance(failure, NotYet) and failure.code is not Wait.ORPHAN:
                peer.look_after = self._home.now() + 1.0
                return
            if failure is not None or not (blocks or fetched):
                if height == 0:
                    raise FalseClaim("it does not show the blocks that it claims")
                # The last common block lies further down.
                height, step = max(height - step, 0), step * 2
                continue
            fetched = True
            peer.delivered = peer.delivered or Standing.CONNECTED in outcomes
            self._progress.connected(sum(outcome is not Standing.KNOWN for outcome in outcomes), ledger.tip.height)
            height += len(blocks)
            if not blocks:
                return


def _next_limit(limit: int, seconds: float) -> int:
    """How many headers to ask for after an answer of ``limit`` that took so long."""
    if seconds > ANSWER_SECONDS:
        return max(limit // 2, FIRST_HEADERS)
    return min(limit * 2, MAX_HEADERS) if seconds < ANSWER_SECONDS / 2 else limit


def _check_count(reply: HeadersReply, limit: int) -> None:
    """Raise FalseClaim for fewer headers than the ``limit`` though the peer says that it has more.

    A claim, or a download, could be kept open by one header at a time.
    """
    if len(reply.headers) < limit and not _is_last(reply):
        raise FalseClaim("it sends fewer headers than it is asked for and says that it has more")


def _is_last(reply: HeadersReply) -> bool:
    """Whether an answer ends with the tip of the peer."""
    return not reply.headers or reply.headers[-1].height >= reply.height
