"""Headers-first synchronisation: which claims to check, when a claim counts, and which chain to follow.

A peer's claim of more work counts when verified headers prove that work; until then the node stays
synced and makes blocks. The chain that is proven to have more work is followed: its blocks are fetched from every peer
that has them, and no peer is penalised for what another one sent (docs/peers.md "Catching up").
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.bounded_dict import BoundedDict
from svcd.chain.difficulty import next_target
from svcd.chain.forkchoice import prefers
from svcd.chain.transition import ChainPoint
from svcd.chain.work import block_work
from svcd.limits import STALLING_PEER, limit
from svcd.p2p.block_download import BlockDownload, DownloadFailed, InvalidChain, NodeBusy
from svcd.p2p.client import PeerStatus
from svcd.p2p.headers import (
    FALSE_CLAIM,
    PROOF_SECONDS,
    FalseClaim,
    HeaderChain,
    HeaderFeed,
    HeaderStream,
    StoredBlockHeaders,
    StreamEnded,
    judge,
)
from svcd.p2p.own_errors import OwnErrors
from svcd.p2p.peer import Backoff, Peer
from svcd.p2p.peers import ASK_AGAIN_SECONDS, Peers
from svcd.p2p.progress import SyncProgress
from svcd.p2p.snapshot_start import SnapshotStart, StageProgress, StartSettings
from svcd.p2p.transport import PeerCallFailed

MAX_CLAIMS: Final = limit(2, "claims checked at a time", "claims", FALSE_CLAIM)
"""Claims that are checked at a time, for at most PROOF_SECONDS each."""
MAX_LONG_CLAIMS: Final = limit(4, "claims whose check takes longer, at a time", "claims", FALSE_CLAIM)
"""Claims whose check takes longer and continues beside these: those with the most verified work."""
CLAIM_APART_SECONDS: Final = 2.0
"""Between the beginnings of two checks: most peers have the same chain, and its headers are fetched once."""
MAX_PROOF_SECONDS: Final = limit(600.0, "time to prove one claim", "seconds", "Endless headers of little work")
"""How long one claim may be checked, however many headers come."""
HOLD_SECONDS: Final = limit(90.0, "time that a proven chain counts without its blocks", "seconds", FALSE_CLAIM)
"""A proven chain of which no block has come for so long no longer counts as catching up."""
FAR_BLOCKS: Final = limit(6, "lead of a proven chain that makes the node wait for it", "blocks", FALSE_CLAIM)
"""How many blocks' work a proven chain must be ahead to keep the node in catching-up: a miner that publishes the
headers of its newest blocks and withholds the blocks must not stop other miners."""
FEED_SECONDS: Final = limit(30.0, "time that blocks wait for further headers", "seconds", STALLING_PEER)
"""The source of headers is replaced when blocks have waited for so long and another peer claims more work.

Time in which blocks do not wait is subtracted.
"""
ASKING_SECONDS: Final = limit(10.0, "wait for the check of claims before the tip counts", "seconds", FALSE_CLAIM)
"""How long after its first peer a started node waits, at most, for claims to be checked, and for the blocks that they
prove, before it counts as synced; so does a node that has caught up."""
FIRST_BACKOFF: Final = 60.0
MAX_BACKOFF: Final = 3_600.0
"""How long a chain whose blocks are not available is not followed again, the first time and at most."""
BUSY_SECONDS: Final = 1.0
"""How long no claim of a peer is checked whose blocks this node had no room for."""
_REMEMBERED: Final = 1_024


class _Asking(Enum):
    """Why claims are checked, and their blocks fetched, before the tip counts; the values are shown to operators."""

    FIRST_PEERS = "the first peers since the start are being asked for their chains"
    NEWEST_BLOCKS = "the node has caught up, and asks the peers that delivered for the blocks since"


@define(eq=False)
class _ClaimCheck:
    """The check of one peer's claim."""

    peer: Peer
    claim: PeerStatus
    began: float
    """The node's seconds."""
    stream: HeaderStream | None = None
    """The headers of its chain; None before the check has begun."""
    chain: HeaderChain | None = None
    """The headers that are verified so far."""
    work: Deferred[None] | None = None
    ended: bool = False
    """Whether no further request is made."""

    @property
    def proven_work(self) -> int:
        """The work of the verified headers."""
        return 0 if self.chain is None else self.chain.tip.work - self.chain.fork.work

    def end(self) -> None:
        """Make no further request: the check, which may be the caller itself, ends at its next one."""
        self.ended = True
        if self.stream is not None:
            self.stream.end()


@define(eq=False)
class _Following:
    """A proven chain that is being fetched."""

    chain: HeaderChain
    download: BlockDownload
    feed: HeaderFeed
    retried: bool
    """Whether its blocks were not available before."""
    blocks_before: int
    """How many blocks had been fetched when it was begun."""
    done: Deferred[None] | None = None


@define
class _Unavailable:
    """A chain whose blocks were not available."""

    backoff: Backoff
    """Until when it is not followed again from one of the same peers."""
    tried: frozenset[str] = frozenset()
    """Endpoints of the peers that did not deliver."""


class ChainSync:
    """Checks claims of more work, and follows the chain that is proven to have it."""

    log = Logger()

    def __init__(
        self,
        peers: Peers,
        progress: SyncProgress,
        *,
        is_coming: Callable[[bytes], bool],
        start: StartSettings | None = None,
    ) -> None:
        """``is_coming`` says whether a new block, by its hash, is being fetched already.

        ``start`` says how a node without a chain begins; None for with all blocks.
        """
        self._peers = peers
        self._node = peers.node
        self._progress = progress
        self._is_coming = is_coming
        self._own_errors = OwnErrors(peers.node.clock, "synchronisation")
        self._checks: dict[str, _ClaimCheck] = {}
        """By endpoint, the claims that are being checked."""
        self._last_check = 0.0
        self._following: _Following | None = None
        self._next_chain: HeaderChain | None = None
        """The chain to follow next: it has more work than the current one, which is being given up."""
        self._unavailable: BoundedDict[bytes, _Unavailable] = BoundedDict(_REMEMBERED)
        """By the hash of the first missing block."""
        self._asking: _Asking | None = _Asking.FIRST_PEERS
        """None if the tip counts."""
        self._asking_since: float | None = None
        """Since when (the node's seconds); None before the first peer."""
        self._stopping = False
        self._start = None if start is None else SnapshotStart(peers, start, ended=self._start_ended)
        self._adopted_at: float | None = None
        """When a snapshot was adopted whose chain goes on (the node's seconds); None if none was."""

    # State

    @property
    def running(self) -> bool:
        """Whether the node is fetching a chain that is proven to have more work."""
        return self._following is not None

    @property
    def starting(self) -> StageProgress | None:
        """The progress of a start from a snapshot; None if none is under way."""
        return None if self._start is None else self._start.progress()

    def behind(self) -> str:
        """Why the tip may not be the network's; "" if there is no reason to doubt it."""
        if self._start is not None and (start := self._start.describe()):
            return start
        adopted = self._adopted_at
        if adopted is not None and self._node.now() - adopted < HOLD_SECONDS and self._lacks_proven_blocks():
            return "the node has started from a snapshot, and lacks blocks that headers have proven"
        following = self._following
        if following is not None and self._is_progressing(following) and self._is_far_ahead(following.chain):
            chain = following.chain
            return (
                f"a chain with more work than the one here, proven by its headers up to height {chain.tip.height}, is "
                f"being fetched, first from {chain.source.endpoint}"
            )
        return self._asking.value if self._asking and self._peers.ever_verified else ""

    def _lacks_proven_blocks(self) -> bool:
        chain_manager = self._node.chain_manager
        return chain_manager.proven_work > chain_manager.tip.work

    def _start_ended(self) -> None:
        """Count as behind until the blocks after the snapshot come, whose headers have been proven."""
        if self._lacks_proven_blocks():
            self._adopted_at = self._node.now()
        self.check_claims()

    def _is_progressing(self, following: _Following) -> bool:
        """Whether blocks arrive; if they were not available before, there is no progress until the first one."""
        download = following.download
        return self._node.now() - download.last_block < HOLD_SECONDS and (download.delivered or not following.retried)

    def _is_far_ahead(self, chain: HeaderChain) -> bool:
        params, tip = self._node.params, self._node.chain_manager.tip
        usual = block_work(next_target(params, height=tip.height + 1, clock=tip.difficulty_clock))
        return chain.tip.work - tip.work >= FAR_BLOCKS * usual

    def best_height(self) -> int:
        """The height of the chain that is followed; 0 if none is.

        Above the verified headers it is the source's claim, bounded by the highest claim of the other peers, if any.
        """
        if self._following is None:
            return 0
        chain = self._following.chain
        others = [peer.status.height for peer in self._peers.all() if peer.status and peer is not chain.source]
        return max(chain.tip.height, min(chain.claimed_height, max(others, default=chain.claimed_height)))

    async def stop(self) -> None:
        """Stop; done when no block of a peer's chain is being connected any more."""
        self._stopping = True
        if self._start is not None:
            await self._start.stop()
        for check in tuple(self._checks.values()):
            if check.work is not None:
                check.work.cancel()
        following = self._following
        if following is not None and following.done is not None:
            following.download.stop(DownloadFailed("the node is stopping"))
            done: Deferred[None] = Deferred()
            following.done.addBoth(lambda _: done.callback(None))
            await done

    # Choosing claims

    def check_claims(self) -> None:
        """Check as many claims as there is room for; to be called after every poll and every second."""
        if self._stopping:
            return
        now = self._node.now()
        self._ask_no_longer(now)
        self._replace_slow_source(now)
        self._end_checks(now)
        if self._own_errors.pausing:
            return
        if self._start is not None and not (self._checks or self._following) and self._start.begin():
            return
        try:
            candidates = self._candidates(now)
        except Exception:
            self._own_errors.note(Failure())  # type: ignore[no-untyped-call]
            return
        if self._asking and self._peers.ever_verified and not self._waits_for_claims(candidates):
            self._asking = None
        for candidate in candidates:
            short = sum(now - check.began < PROOF_SECONDS for check in self._checks.values())
            if short >= MAX_CLAIMS or (self._checks and now - self._last_check < CLAIM_APART_SECONDS):
                return
            self._last_check = now
            self._start_check(candidate)

    def _waits_for_claims(self, candidates: Sequence[_ClaimCheck]) -> bool:
        """Whether claims are checked, or blocks fetched, that count before the tip does.

        After the node has caught up these are the claims of peers that have delivered: a claim of anyone else, which
        costs nothing, must not stop it again.
        """
        claims, peers = [*self._checks.values(), *candidates], self._peers.all()
        if self._following is not None:
            return True
        if self._asking is _Asking.FIRST_PEERS:
            return bool(claims) or any(peer.status is None for peer in peers)
        since = (self._asking_since or 0.0) - ASK_AGAIN_SECONDS
        unasked = any(peer.delivered and peer.last_seen < since for peer in peers)
        return unasked or any(check.peer.delivered for check in claims)

    def _ask_no_longer(self, now: float) -> None:
        """Let the tip count after ASKING_SECONDS: claims that nobody has proven must not keep it from that."""
        if self._asking and self._peers.ever_verified:
            self._asking_since = now if self._asking_since is None else self._asking_since
            if now - self._asking_since >= ASKING_SECONDS:
                self._asking = None

    def _end_checks(self, now: float) -> None:
        """End the checks of peers that have left, and all checks that take long but the best few."""
        for check in tuple(self._checks.values()):
            if not self._peers.has(check.peer):
                check.end()
        long = [check for check in self._checks.values() if now - check.began >= PROOF_SECONDS]
        for check in sorted(long, key=lambda check: check.proven_work, reverse=True)[MAX_LONG_CLAIMS:]:
            if not check.ended:
                self._peers.reject_claim(check.peer, "others have proven more in the time")
                check.end()

    def _candidates(self, now: float) -> list[_ClaimCheck]:
        """The claims to check: those of peers that delivered before first, then those of outbound peers."""
        random, tip = self._peers.book.random, self._node.chain_manager.tip
        # Nearly all peers have this node's tip, and all are looked at each second, and after each poll.
        found = [
            _ClaimCheck(peer, status, now)
            for peer in self._peers.all()
            if (status := peer.status) is not None
            and status.work >= tip.work
            and (status.work > tip.work or status.hash != tip.hash)
            and self._is_candidate(peer, status, tip, now)
        ]

        def rank(check: _ClaimCheck) -> tuple[bool, int, bool, float]:
            peer = check.peer
            return not peer.delivered, peer.unproven_claims, not peer.outbound, random()

        return sorted(found, key=rank)

    def _is_candidate(self, peer: Peer, status: PeerStatus, tip: ChainPoint, now: float) -> bool:
        if peer.is_paused or peer.claims_are_paused or peer.endpoint in self._checks:
            return False
        if self._following is not None and not self._may_have_another_chain(peer, status.work, self._following):
            return False
        if self._is_coming(status.hash) or status.work < self._least_work:
            return False
        # A tip with equal work may win, so it is checked once.
        return status.work > tip.work or (
            status.hash != peer.checked_tip and self._node.chain_manager.reader.point(status.hash) is None
        )

    @property
    def _least_work(self) -> int:
        """The least cumulative work of a chain that is followed."""
        return 0 if self._start is None else self._start.proven_work

    def _may_have_another_chain(self, peer: Peer, work: int, following: _Following) -> bool:
        """Whether a peer claims more than the chain that is followed has, and may not be on that chain."""
        chain, download, feed = following.chain, following.download, following.feed
        if work <= chain.tip.work:
            return False
        idle = feed.starved >= PROOF_SECONDS or self._node.now() - download.last_block >= PROOF_SECONDS
        return download.lacks_chain(peer) or (idle and peer is not chain.source)

    # Checking a claim

    def _start_check(self, check: _ClaimCheck) -> None:
        self._checks[check.peer.endpoint] = check
        known = StoredBlockHeaders(self._node.chain_manager)
        check.stream = HeaderStream(self._peers, check.peer, known, seconds=MAX_PROOF_SECONDS)
        check.work = Deferred.fromCoroutine(self._check(check, check.stream))
        check.work.addErrback(self._failed).addBoth(lambda _: self._check_ended(check)).addErrback(self._failed)

    def _check_ended(self, check: _ClaimCheck) -> None:
        del self._checks[check.peer.endpoint]
        if not self._stopping:
            self.check_claims()

    def _failed(self, failure: Failure) -> None:
        # A check is cancelled when its peer leaves, when it gives way and when the node stops.
        if not failure.check(CancelledError):  # type: ignore[no-untyped-call]
            self._own_errors.note(failure)

    async def _check(self, check: _ClaimCheck, stream: HeaderStream) -> None:
        peer = check.peer
        try:
            await self._prove(check, stream)
        except StreamEnded:
            pass
        except FalseClaim as why:
            self._peers.reject_claim(peer, str(why))
        except PeerCallFailed as failed:
            self._peers.reject_unanswered(peer, failed)

    async def _prove(self, check: _ClaimCheck, stream: HeaderStream) -> None:
        """Fetch and verify headers until they prove the claim of the peer, and follow their chain.

        Raises FalseClaim, StreamEnded or PeerCallFailed.
        """
        peer, claim = check.peer, check.claim
        chain: HeaderChain | None = None
        while chain is None or not chain.complete:
            batch = await stream.next()
            if batch is None:
                chain = check.chain = None
                break
            if chain is None or batch.parent.point.hash != chain.tip.hash:
                # The first headers, or the peer's chain has changed.
                chain = HeaderChain(peer, batch.headers[0].hash, batch.parent, batch.claimed_height)
                check.chain = chain
            chain.append(batch)
            if self._is_followed(chain):
                peer.pause_claims(PROOF_SECONDS)
                return
            if chain.window and self._is_better(chain):
                self._follow_unless_unavailable(chain)
                return
            if chain.failure is not None:
                judge(self._peers, peer, chain.failure)
                return
        peer.checked_tip = claim.hash
        stored = self._node.chain_manager.reader.point(claim.hash)
        shown = self._node.chain_manager.tip.work if chain is None else chain.tip.work
        if max(shown, stored.work if stored else 0) < claim.work:
            raise FalseClaim("its headers have less work than it claims")

    def _is_followed(self, chain: HeaderChain) -> bool:
        """Whether the first headers are those of the chain whose blocks are being fetched."""
        pending = set() if self._following is None else self._following.download.pending()
        return any(header.hash in pending for header in chain.window)

    def _is_better(self, chain: HeaderChain) -> bool:
        """Whether the verified headers prove more than the chain here and the one that is followed."""
        if not prefers(chain.tip, self._node.chain_manager.tip) or chain.tip.work < self._least_work:
            return False
        return self._following is None or chain.tip.work > self._following.chain.tip.work

    # Following a proven chain

    def _follow_unless_unavailable(self, chain: HeaderChain) -> None:
        peer, found = chain.source, self._unavailable.get(chain.first)
        if found is not None and found.backoff.seconds_left and peer.endpoint in found.tried:
            peer.pause_claims(found.backoff.seconds_left)
            return
        peer.accept_claim(chain.tip.work)
        self._follow(chain)

    def _follow(self, chain: HeaderChain) -> None:
        if self._following is not None:
            self._following.download.stop(DownloadFailed(f"{chain.source.endpoint} proves a chain with more work"))
            self._next_chain = chain
            return
        download = BlockDownload(self._peers, self._progress, chain)
        feed = HeaderFeed(self._peers, chain, download.wake, self._own_errors)
        retried = chain.first in self._unavailable
        following = _Following(chain, download, feed, retried=retried, blocks_before=self._progress.blocks)
        self._following = following
        self._progress.begin(chain.fork.height, self.best_height)
        following.done = Deferred.fromCoroutine(self._fetch(following))
        following.done.addErrback(self._failed).addBoth(self._followed).addErrback(self._failed)

    def _followed(self, _: object) -> None:
        following, self._following = self._following, None
        self._progress.end()
        chain, self._next_chain = self._next_chain, None
        if following is not None and self._progress.blocks - following.blocks_before >= FAR_BLOCKS:
            # The network has made blocks meanwhile, and what is decided by the clock must not overlook them.
            self._asking = _Asking.NEWEST_BLOCKS
            self._asking_since = self._node.now()
            self._peers.poll_all()
        if self._stopping:
            return
        if chain is not None and self._is_better(chain):
            self._follow(chain)
        else:
            self.check_claims()

    async def _fetch(self, following: _Following) -> None:
        chain, download, source = following.chain, following.download, following.chain.source
        self._progress.sent_by(source.endpoint)
        try:
            await download.run()
            self._unavailable.pop(chain.first, None)
            source.credit_delivery()
            if chain.failure is not None:
                judge(self._peers, source, chain.failure)
        except InvalidChain as invalid:
            self.log.warn("the chain of {endpoint} is invalid: {why}", endpoint=source.endpoint, why=str(invalid))
            self._peers.refuse_chain(source, str(invalid))
        except DownloadFailed as failed:
            if not self._stopping:
                self.log.info("not following {endpoint}: {why}", endpoint=source.endpoint, why=str(failed))
                if self._next_chain is None:
                    self._note_unavailable(chain)
        except NodeBusy as busy:
            self.log.info("catching up is paused: {why}", why=str(busy))
            source.pause_claims(BUSY_SECONDS)
        finally:
            following.feed.stop()

    def _note_unavailable(self, chain: HeaderChain) -> None:
        found = self._unavailable.get(chain.first) or _Unavailable(Backoff(self._node.clock))
        found.backoff.fail(first=FIRST_BACKOFF, longest=MAX_BACKOFF)
        found.tried |= {peer.endpoint for peer in self._peers.all()}
        self._unavailable[chain.first] = found
        chain.source.pause_claims(found.backoff.seconds_left)

    def _replace_slow_source(self, now: float) -> None:
        """Take the headers from another peer if the blocks wait for them for too long."""
        following = self._following
        if following is None:
            return
        chain, feed = following.chain, following.feed
        feed.note_wait(now, blocks_wait=following.download.waits_for_headers)
        others = [peer for peer in self._peers.all() if peer is not chain.source]
        able = any(peer.status and peer.status.work > chain.tip.work and not peer.claims_are_paused for peer in others)
        if able and not chain.abandoned and feed.starved >= FEED_SECONDS:
            self._peers.reject_claim(chain.source, "its headers come too slowly")
            feed.stop()
