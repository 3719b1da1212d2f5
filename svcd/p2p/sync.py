"""Catching up with a chain that has more work: whom to follow, and when to give up.

All work is checked; a peer is believed nothing but that asking it might be worth while.
"""

from typing import Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.p2p.caller import CallFailed
from svcd.p2p.download import Range
from svcd.p2p.fork import BlockMissing, MalformedBlock, fork_height
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.p2p.progress import Progress
from svcd.p2p.pull import ChainMoved, LedgerBusy, Pull, SyncFailed

MAX_RESTARTS: Final = 5
"""How often a chain is taken up anew because its blocks did not fit together."""
CROWDED_STARTS: Final = 2
"""How often several peers are asked; after that the one that is followed must bring everything itself."""


class Synchroniser:
    """Follows the greatest chain that a verified peer shows."""

    log = Logger()

    def __init__(self, peers: Peers, progress: Progress) -> None:
        self._peers = peers
        self._home = peers.home
        self._progress = progress
        self._searching: Deferred[None] | None = None
        self._done: Deferred[None] | None = None
        self._pull: Pull | None = None
        self._stopping = False

    @property
    def running(self) -> bool:
        """Whether the node is catching up."""
        return self._done is not None

    def consider(self) -> None:
        """Begin to catch up if a peer shows more work; nothing if that is under way."""
        if self._done is None and not self._stopping and self._peers.ahead():
            self._done = Deferred()
            self._searching = Deferred.fromCoroutine(self._run())
            self._searching.addErrback(self._say_failed).addBoth(self._ended)

    def _say_failed(self, failure: Failure) -> None:
        if not (self._stopping and failure.check(CancelledError)):  # type: ignore[no-untyped-call]
            self.log.failure("catching up failed", failure)

    def _ended(self, _: object) -> None:
        done, self._done = self._done, None
        if done is not None:
            done.callback(None)

    async def stop(self) -> None:
        """Stop catching up; done when nothing is in the ledger any more."""
        self._stopping = True
        if self._pull is not None:
            self._pull.stop("the node is stopping")
        elif self._done is not None and self._searching is not None:
            self._searching.cancel()
        if self._done is not None:
            await self._done

    async def _run(self) -> None:
        while not self._stopping and (ahead := self._peers.ahead()):
            try:
                await self._follow(ahead[0])
            except LedgerBusy as busy:
                # The next beat tries again.
                self.log.info("catching up waits: {why}", why=str(busy))
                return
            except (SyncFailed, MalformedBlock, CallFailed) as failed:
                if not self._stopping:
                    self.log.info("not following {endpoint}: {why}", endpoint=ahead[0].endpoint, why=str(failed))
                    self._peers.doubt(ahead[0])

    async def _follow(self, best: Peer) -> None:
        """Fetch and connect the chain of ``best``; raises SyncFailed, LedgerBusy, MalformedBlock or CallFailed."""
        strangers: set[str] = set()
        why = ""
        for start in range(MAX_RESTARTS):
            before = best.status, len(strangers)
            try:
                await self._pull_from(best, strangers, crowd=start < CROWDED_STARTS)
                return
            except (ChainMoved, BlockMissing) as moved:
                why = str(moved)
            await self._peers.ask_status(best)
            if (best.status, len(strangers)) == before:
                # It still says the same, and nobody else can be to blame.
                break
        raise SyncFailed(why)

    async def _pull_from(self, best: Peer, strangers: set[str], *, crowd: bool) -> None:
        if best.status is None:
            raise SyncFailed("it has not shown its chain")
        target, claimed = best.status.height, best.status.work
        fork = await fork_height(self._home, self._peers.client, best.endpoint, target)
        blocks = Range(fork + 1, max(target - fork, 0))
        self._pull = Pull(self._peers, self._progress, best=best, blocks=blocks, strangers=strangers, crowd=crowd)
        self._progress.begin(fork, target)
        try:
            await self._pull.run()
        finally:
            self._pull = None
            self._progress.end()
        best.rival = False
        if self._home.ledger.tip.work < claimed:
            # Everything came and fitted, and it is still less than was claimed.
            raise SyncFailed("its chain has less work than it showed")
