"""Catching up with a chain that has more work: find the fork, fetch ahead from several peers, connect in order.

The stages are joined by bounded queues, so that no one waits for another it does not need: ranges are asked for while
earlier ones are parsed, verified and connected, at most two batches at a time. All work is checked; a peer is believed
nothing but that asking it might be worth while.
"""

from collections.abc import Sequence
from typing import Final

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.node.changes import Outcome
from svcd.p2p.bans import INVALID_SECONDS
from svcd.p2p.caller import CallFailed
from svcd.p2p.download import Arrived, Download, Range
from svcd.p2p.fork import MalformedBlock, fork_height
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.p2p.progress import Progress
from svcd.ports import Timer

MAX_REQUESTS: Final = 2
"""Requests to one peer at a time."""
MAX_BATCHES: Final = 2
"""Batches in the ledger at a time: one is verified while the other is connected."""
BATCH_BLOCKS: Final = 64
BATCH_BYTES: Final = 4 * 1024 * 1024
MAX_RESTARTS: Final = 5
"""How often a chain is taken up anew because its blocks did not fit together."""
FIRST_STALL: Final = 2.0
LONGEST_STALL: Final = 64.0


class SyncFailed(Exception):
    """A peer's chain could not be had; the text says why."""


class ChainMoved(Exception):
    """Blocks came that do not fit together: a peer has changed its chain between two requests, or is on another."""


@define(eq=False)
class _Pull:
    """One pull towards the chain of one peer."""

    best: Peer
    began_with: int
    """Our own cumulative work at the beginning."""
    download: Download
    strangers: set[str]
    """Endpoints whose blocks do not fit: they are on another chain."""
    asked: dict[int, tuple[Range, Peer, float]] = field(factory=dict)
    """By first height: what was asked of whom, and when."""
    batches: int = 0
    failure: Exception | None = None
    stall: float = FIRST_STALL
    news: bool = False
    """Whether something has happened since the pump last looked."""
    wake: Deferred[None] | None = None
    timer: Timer | None = None


class Synchroniser:
    """Follows the greatest chain that a verified peer shows."""

    log = Logger()

    def __init__(self, peers: Peers, progress: Progress) -> None:
        self._peers = peers
        self._home = peers.home
        self._client = peers.client
        self._progress = progress
        self._running: Deferred[None] | None = None
        self._pull: _Pull | None = None
        self._stopping = False

    @property
    def running(self) -> bool:
        """Whether the node is catching up."""
        return self._running is not None

    def consider(self) -> None:
        """Begin to catch up if a peer shows more work; nothing if that is under way."""
        if self._running is None and not self._stopping and self._peers.ahead():
            self._running = Deferred.fromCoroutine(self._run())
            self._running.addErrback(lambda failure: self.log.failure("catching up failed", failure))

    async def stop(self) -> None:
        """Stop catching up; done when nothing is in the ledger any more."""
        self._stopping = True
        if self._pull is not None:
            self._pull.failure = SyncFailed("the node is stopping")
            self._wake(self._pull)
        if self._running is not None:
            await self._running

    async def _run(self) -> None:
        try:
            while not self._stopping and (ahead := self._peers.ahead()):
                await self._try_to_follow(ahead[0])
        finally:
            self._running = None

    async def _try_to_follow(self, best: Peer) -> None:
        strangers: set[str] = set()
        try:
            for _ in range(MAX_RESTARTS):
                try:
                    await self._follow(best, strangers)
                    return
                except ChainMoved:
                    strangers.discard(best.endpoint)
                    await self._peers.ask_status(best)
            raise SyncFailed("its chain does not fit together")
        except (SyncFailed, MalformedBlock, CallFailed) as failed:
            self.log.info("not following {endpoint}: {why}", endpoint=best.endpoint, why=str(failed))
            self._peers.doubt(best)

    async def _follow(self, best: Peer, strangers: set[str]) -> None:
        """Fetch and connect the chain of ``best``, asking no ``strangers``.

        Raises SyncFailed, MalformedBlock, ChainMoved or CallFailed.
        """
        if best.status is None:
            raise SyncFailed("it has not shown its chain")
        target, claimed = best.status.height, best.status.work
        fork = await fork_height(self._home, self._client, best.endpoint, target)
        pull = self._pull = _Pull(best, self._home.ledger.tip.work, Download(fork + 1, target), strangers)
        self._progress.begin(fork, target)
        try:
            await self._pump(pull)
        finally:
            self._pull = None
            self._quiet(pull)
            self._progress.end()
        if self._home.ledger.tip.work < claimed:
            # Everything came and fitted, and it is still less than was claimed.
            raise SyncFailed("its chain has less work than it showed")

    async def _pump(self, pull: _Pull) -> None:
        while pull.failure is None:
            self._ask_for_more(pull)
            self._hand_on(pull)
            if pull.download.finished and not pull.batches:
                return
            if not pull.asked and not pull.batches:
                raise SyncFailed("nobody delivers the blocks it claims")
            await self._woken(pull)
            self._look_for_stall(pull)
        while pull.batches:
            await self._woken(pull)
        raise pull.failure

    def _sources(self, pull: _Pull, height: int) -> list[Peer]:
        """Who may be asked for ``height``, the least busy first: those that showed more work than we began with.

        Others may well have a block of that height, but of the chain that is to be left.
        """
        load = {peer.endpoint: 0 for peer in self._peers.all()}
        for _, peer, _ in pull.asked.values():
            load[peer.endpoint] = load.get(peer.endpoint, 0) + 1
        able = [
            peer
            for peer in self._peers.all()
            if peer.status is not None
            and peer.status.height >= height
            and peer.status.work > pull.began_with
            and load[peer.endpoint] < MAX_REQUESTS
            and peer.endpoint not in pull.strangers
        ]
        return sorted(able, key=lambda peer: (load[peer.endpoint], peer.failures))

    def _ask_for_more(self, pull: _Pull) -> None:
        while True:
            sources = self._sources(pull, pull.download.next_height)
            wanted = pull.download.next_range() if sources else None
            if wanted is None:
                return
            able = [p for p in sources if p.status and p.status.height >= wanted.first] or [pull.best]
            peer = able[0]
            pull.asked[wanted.first] = (wanted, peer, self._home.now())
            work = Deferred.fromCoroutine(self._client.blocks(peer.endpoint, wanted.first, wanted.count))
            work.addCallbacks(
                self._came, self._missed, callbackArgs=(pull, wanted, peer), errbackArgs=(pull, wanted, peer)
            )
            work.addErrback(lambda failure: self.log.failure("taking in blocks failed", failure))

    def _came(self, blocks: list[bytes], pull: _Pull, wanted: Range, peer: Peer) -> None:
        self._settle_request(pull, wanted, peer)
        if blocks:
            peer.failures = 0
            pull.stall = FIRST_STALL
            pull.download.arrived(wanted, blocks, peer.endpoint)
        else:
            pull.strangers.add(peer.endpoint)
            pull.download.failed(wanted)
        self._wake(pull)

    def _missed(self, failure: Failure, pull: _Pull, wanted: Range, peer: Peer) -> None:
        failure.trap(CallFailed)  # type: ignore[no-untyped-call]
        self._settle_request(pull, wanted, peer)
        self._peers.demote(peer)
        pull.download.failed(wanted)
        self._wake(pull)

    def _settle_request(self, pull: _Pull, wanted: Range, peer: Peer) -> None:
        asked = pull.asked.get(wanted.first)
        if asked is not None and asked[1] is peer:
            del pull.asked[wanted.first]

    def _hand_on(self, pull: _Pull) -> None:
        while pull.batches < MAX_BATCHES:
            arrived = pull.download.take(max_blocks=BATCH_BLOCKS, max_bytes=BATCH_BYTES)
            if not arrived:
                return
            pull.batches += 1
            blocks = [block for part in arrived for block in part.blocks]
            work = self._home.ledger.submit_blocks(blocks)
            work.addCallback(self._connected, pull, arrived)
            work.addErrback(self._not_connected, pull)

    def _connected(self, outcomes: Sequence[Outcome], pull: _Pull, arrived: Sequence[Arrived]) -> None:
        pull.batches -= 1
        senders = [part.sender for part in arrived for _ in part.blocks]
        for outcome, sender in zip(outcomes, senders, strict=True):
            if isinstance(outcome, RuleViolation):
                self._broke_a_rule(pull, sender, outcome)
                break
            if isinstance(outcome, NotYet):
                orphan = outcome.code is Wait.ORPHAN
                if orphan:
                    pull.strangers.add(sender)
                pull.failure = pull.failure or (ChainMoved(outcome.detail) if orphan else SyncFailed(outcome.detail))
                break
        else:
            self._peers.progressed()
            self._progress.connected(len(outcomes), self._home.ledger.tip.height)
        self._wake(pull)

    def _broke_a_rule(self, pull: _Pull, sender: str, violation: RuleViolation) -> None:
        pull.failure = pull.failure or SyncFailed(violation.detail)
        peer = self._peers.get(sender)
        if peer is not None:
            self._peers.punish(peer, seconds=INVALID_SECONDS, why=violation.detail)

    def _not_connected(self, failure: Failure, pull: _Pull) -> None:
        self.log.failure("blocks could not be taken in", failure)
        pull.batches -= 1
        pull.failure = pull.failure or SyncFailed("blocks could not be taken in")
        self._wake(pull)

    def _look_for_stall(self, pull: _Pull) -> None:
        """Ask somebody else for the range that everything waits for, if it is late."""
        asked = pull.asked.get(pull.download.next_height)
        if asked is None or self._home.now() - asked[2] < pull.stall:
            return
        wanted, peer, _ = asked
        pull.stall = min(pull.stall * 2, LONGEST_STALL)
        self._peers.demote(peer)
        del pull.asked[wanted.first]
        pull.download.failed(wanted)

    async def _woken(self, pull: _Pull) -> None:
        """Wait until something has happened, or until it is time to look for a stall."""
        if not pull.news:
            pull.wake = Deferred()
            self._quiet(pull)
            pull.timer = self._home.clock.callLater(pull.stall, self._stall_over, pull)
            await pull.wake
        pull.news = False

    def _stall_over(self, pull: _Pull) -> None:
        pull.timer = None
        self._wake(pull)

    def _quiet(self, pull: _Pull) -> None:
        timer, pull.timer = pull.timer, None
        if timer is not None:
            timer.cancel()

    def _wake(self, pull: _Pull) -> None:
        pull.news = True
        wake, pull.wake = pull.wake, None
        if wake is not None:
            wake.callback(None)
