"""One pull towards the chain of one peer: ranges from several peers at once, connected in order (docs/peers.md).

The stages are joined by bounded queues, so that no one waits for another it does not need: ranges are asked for while
earlier ones are parsed, verified and connected, at most two batches at a time.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.node.changes import Outcome, Standing
from svcd.p2p.bans import INVALID_SECONDS
from svcd.p2p.caller import CallFailed
from svcd.p2p.download import Arrived, Download, Range
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.p2p.progress import Progress
from svcd.p2p.waking import Bell

MAX_REQUESTS: Final = 2
"""Requests to one peer at a time."""
MAX_BATCHES: Final = 2
"""Batches in the ledger at a time: one is verified while the other is connected."""
BATCH_BLOCKS: Final = 64
BATCH_BYTES: Final = 4 * 1024 * 1024
FIRST_STALL: Final = 2.0
LONGEST_STALL: Final = 64.0
PATIENCE_SECONDS: Final = 60.0
"""How long a chain is followed that brings too few new blocks."""
PACE: Final = 4
"""How many times as many blocks as come by themselves in that time are enough: whoever hands on what everybody has, or
makes a branch while we watch, is not to hold us for ever."""
BRANCH_SECONDS: Final = 300.0
"""How long a branch is followed without overtaking our chain."""
_LOOK_SECONDS: Final = 10.0


class SyncFailed(Exception):
    """A peer's chain could not be had; the text says why."""


class ChainMoved(Exception):
    """Blocks came that do not fit together: a peer has changed its chain between two requests, or is on another."""


class LedgerBusy(Exception):
    """Our own ledger takes no more at present, which is no fault of anybody's."""


@frozen
class _Asked:
    """A range that has been asked for, of whom, and since when (Unix seconds)."""

    wanted: Range
    peer: Peer
    since: float


class Pull:
    """Fetches what the chain of ``best`` has above height ``fork``, asking no ``strangers``.

    Whoever turns out to be on another chain is added to ``strangers``. With ``crowd`` unset only ``best`` is asked.
    """

    log = Logger()

    def __init__(
        self, peers: Peers, progress: Progress, *, best: Peer, blocks: Range, strangers: set[str], crowd: bool
    ) -> None:
        self._peers = peers
        self._home = peers.home
        self._progress = progress
        self._best = best
        self._strangers = strangers
        self._crowd = crowd
        self._download = Download(blocks.first, blocks.first + blocks.count - 1)
        self._bell = Bell(peers.home.clock)
        self._began_with = self._home.ledger.tip.work
        self._progressed = self._gained = self._home.now()
        self._fresh: list[str] = []
        self._asked: dict[int, _Asked] = {}
        self._load: Counter[str] = Counter()
        self._missed_by: dict[int, set[str]] = {}
        self._resting: dict[str, float] = {}
        """By endpoint until when (Unix seconds) to ask it nothing: it has had enough for now."""
        self._last_sender = best.endpoint
        self._batches = 0
        self._stall = FIRST_STALL
        self._failure: Exception | None = None

    def stop(self, why: str) -> None:
        """Give up; :meth:`run` ends when nothing is in the ledger any more."""
        self._fail(SyncFailed(why))
        self._bell.ring()

    async def run(self) -> None:
        """Fetch and connect until everything is here; raises SyncFailed, ChainMoved or LedgerBusy."""
        try:
            while self._failure is None:
                self._ask_for_more()
                self._hand_on()
                if self._download.finished and not self._batches:
                    return
                if not (self._asked or self._batches or self._rest()):
                    raise SyncFailed("nobody delivers the blocks it claims")
                await self._bell.wait(min(self._stall, _LOOK_SECONDS, self._rest() or _LOOK_SECONDS))
                self._look_for_stall()
            while self._batches:
                await self._bell.wait(_LOOK_SECONDS)
            raise self._failure
        finally:
            self._bell.silence()

    def _fail(self, failure: Exception) -> None:
        self._failure = self._failure or failure

    def _blame(self, sender: str, why: str) -> None:
        """What ``sender`` sent cannot be used: if it is the best, its chain cannot; else the others are asked."""
        if sender == self._best.endpoint:
            self._fail(SyncFailed(why))
        else:
            self._strangers.add(sender)
            self._fail(ChainMoved(why))

    # Asking

    def _rest(self) -> float:
        """Seconds until the first of those who have had enough may be asked again; 0.0 if nobody has."""
        now = self._home.now()
        self._resting = {endpoint: until for endpoint, until in self._resting.items() if until > now}
        return min(self._resting.values(), default=now) - now

    def _ask_for_more(self) -> None:
        while (wanted := self._download.peek()) is not None:
            sources = self._sources(wanted.first)
            if not sources:
                return
            self._download.next_range()
            self._ask(sources[0], wanted)

    def _sources(self, height: int) -> list[Peer]:
        """Who may be asked for ``height``, the best suited first: those that showed more work than we began with.

        Others may well have a block of that height, but of the chain that is to be left.
        """
        missed, now = self._missed_by.get(height, ()), self._home.now()
        able = [
            peer
            for peer in (self._peers.all() if self._crowd else [self._best])
            if peer.status is not None
            and peer.status.height >= height
            and (peer.status.work > self._began_with or peer is self._best)
            and peer.doubted_until <= now
            and self._load[peer.endpoint] < MAX_REQUESTS
            and peer.endpoint not in self._strangers
            and self._resting.get(peer.endpoint, 0.0) <= now
        ]
        return sorted(able, key=lambda peer: (peer.endpoint in missed, self._load[peer.endpoint], peer.failures))

    def _ask(self, peer: Peer, wanted: Range) -> None:
        self._asked[wanted.first] = _Asked(wanted, peer, self._home.now())
        self._load[peer.endpoint] += 1
        call = self._peers.client.blocks(peer.endpoint, wanted.first, wanted.count)
        work = Deferred.fromCoroutine(call).addBoth(self._answered, wanted, peer)
        work.addCallbacks(self._came, self._missed, callbackArgs=(wanted, peer), errbackArgs=(wanted, peer))
        work.addErrback(lambda failure: self.log.failure("taking in blocks failed", failure))
        work.addBoth(lambda _: self._bell.ring())

    def _answered(self, result: list[bytes] | Failure, wanted: Range, peer: Peer) -> list[bytes] | Failure:
        self._load[peer.endpoint] -= 1
        asked = self._asked.get(wanted.first)
        if asked is not None and asked.peer is peer:
            del self._asked[wanted.first]
        return result

    def _came(self, blocks: list[bytes], wanted: Range, peer: Peer) -> None:
        if blocks:
            peer.failures = 0
            self._progress.sent_by(peer.endpoint)
            self._stall = FIRST_STALL
            self._download.arrived(wanted, blocks, peer.endpoint)
        elif peer is self._best:
            self._fail(ChainMoved("it does not show the blocks it claims"))
        else:
            self._strangers.add(peer.endpoint)
            self._download.failed(wanted)

    def _missed(self, failure: Failure, wanted: Range, peer: Peer) -> None:
        if not isinstance(failure.value, CallFailed):
            failure.raiseException()
        elif failure.value.rest:
            self._resting[peer.endpoint] = self._home.now() + failure.value.rest
            self._download.failed(wanted)
        else:
            self._give_up(wanted, peer)

    def _give_up(self, wanted: Range, peer: Peer) -> None:
        self._peers.demote(peer)
        self._missed_by.setdefault(wanted.first, set()).add(peer.endpoint)
        self._download.failed(wanted)

    def _look_for_stall(self) -> None:
        """Ask somebody else for the range that everything waits for, if it is late and there is anybody else."""
        now, asked = self._home.now(), self._asked.get(self._download.next_height)
        if not self._batches and now - self._progressed >= PATIENCE_SECONDS:
            self._fail(SyncFailed(f"it brought nothing new, or too little, for {PATIENCE_SECONDS:g} s"))
        if not self._batches and now - self._gained >= BRANCH_SECONDS:
            self._fail(SyncFailed(f"it did not overtake the chain here within {BRANCH_SECONDS:g} s"))
        if asked is None or now - asked.since < self._stall:
            return
        self._stall = min(self._stall * 2, LONGEST_STALL)
        if any(peer is not asked.peer for peer in self._sources(asked.wanted.first)):
            del self._asked[asked.wanted.first]
            self._give_up(asked.wanted, asked.peer)

    # Handing on

    def _hand_on(self) -> None:
        while self._batches < MAX_BATCHES:
            arrived = self._download.take(max_blocks=BATCH_BLOCKS, max_bytes=BATCH_BYTES)
            if not arrived:
                return
            self._batches += 1
            blocks = [block for part in arrived for block in part.blocks]
            batch = arrived[0].first
            work = self._home.ledger.submit_blocks(blocks, partial(self._progress.enters, batch))
            work.addCallback(self._connected, arrived, self._last_sender)
            work.addErrback(self._not_connected)
            work.addBoth(self._over, batch)
            self._last_sender = arrived[-1].sender

    def _over(self, _: object, batch: int) -> None:
        self._progress.leaves(batch)
        self._batches -= 1
        self._bell.ring()

    def _connected(self, outcomes: Sequence[Outcome], arrived: Sequence[Arrived], before: str) -> None:
        """Look at what became of a batch; ``before`` sent the block before it."""
        senders = [part.sender for part in arrived for _ in part.blocks]
        for outcome, sender in zip(outcomes, senders, strict=True):
            if isinstance(outcome, RuleViolation):
                self._broke_a_rule(sender, outcome)
                return
            if isinstance(outcome, NotYet):
                self._not_yet(outcome, sender, before)
                return
            before = sender
        self._progress.connected(len(outcomes), self._home.ledger.tip.height)
        # New work, ours or not yet: a heavier branch brings us nothing until it has overtaken our chain.
        fresh = [sender for outcome, sender in zip(outcomes, senders, strict=True) if outcome is not Standing.KNOWN]
        self._note_fresh(fresh, gained=Standing.CONNECTED in outcomes)

    def _note_fresh(self, senders: list[str], *, gained: bool) -> None:
        """New blocks came from ``senders``; ``gained``: our tip moved."""
        self._fresh += senders
        params, now = self._home.params, self._home.now()
        if gained:
            self._gained = now
        if len(self._fresh) * params.slot_seconds * params.slots_per_block >= PACE * PATIENCE_SECONDS:
            self._peers.progressed(self._fresh, gained=gained)
            self._progressed, self._fresh = now, []

    def _broke_a_rule(self, sender: str, violation: RuleViolation) -> None:
        self._blame(sender, violation.detail)
        peer = self._peers.get(sender)
        if peer is not None:
            self._peers.punish(peer, seconds=INVALID_SECONDS, why=violation.detail)

    def _not_yet(self, reason: NotYet, sender: str, before: str) -> None:
        if reason.code is Wait.BUSY:
            self._fail(LedgerBusy(reason.detail))
        elif reason.code is Wait.ORPHAN:
            # One of the two is on another chain, and nobody can say which: the best is asked for both.
            self._strangers |= {sender, before} - {self._best.endpoint}
            self._fail(ChainMoved(reason.detail))
        else:
            self._blame(sender, reason.detail)

    def _not_connected(self, failure: Failure) -> None:
        self.log.failure("blocks could not be taken in", failure)
        self._fail(LedgerBusy("blocks could not be taken in"))
