"""Progress of synchronisation, for the log, a terminal and the operator."""

from collections import Counter, deque
from collections.abc import Callable, Hashable
from enum import StrEnum
from typing import Final

from attrs import frozen
from twisted.logger import Logger

from svcd.interfaces import Clock
from svcd.node.changes import BlockStage, ChainChange
from svcd.quantities import duration

LOG_SECONDS: Final = 10.0
"""The time between two lines about progress."""
_LONG_SECONDS: Final = 1.0
"""Whose catching up took less does not log its end."""
WINDOW_SECONDS: Final = 60
"""Rates, and the slowest stage, are those of the last minute."""


class SyncStage(StrEnum):
    """The stage that catching up waits for: fetching blocks, or a stage of the oldest batch that is being connected."""

    FETCH = "fetch"
    """Blocks are requested, received, and cut out of the reply."""
    PARSE = BlockStage.PARSE
    VERIFY = BlockStage.VERIFY
    CONNECT = BlockStage.CONNECT

    @property
    def words(self) -> str:
        """What is done in this stage, for people."""
        return _WORDS[self]


_WORDS: Final = {
    SyncStage.FETCH: "blocks to arrive",
    SyncStage.PARSE: "blocks to be parsed",
    SyncStage.VERIFY: "work and signatures to be checked",
    SyncStage.CONNECT: "the state to be computed and written",
}


@frozen
class SyncStatus:
    """The state of catching up at one moment."""

    height: int
    target: int
    """The height to be reached, by what is known of the chain at this moment; never less than ``height``."""
    blocks_per_second: float
    transactions_per_second: float
    slowest_stage: SyncStage
    """The stage with the longest wait in the last minute."""
    seconds_left: float | None
    """None while no block has come to estimate it by."""
    peers_used: int
    """How many peers have sent blocks since it began."""

    @property
    def bar(self) -> tuple[float, str]:
        """For a terminal: how much of the chain is here, from 0 to 1, and a few words."""
        left = "?" if self.seconds_left is None else duration(self.seconds_left)
        words = f"{self.height} of {self.target} blocks, {self.blocks_per_second:.1f}/s, {left} left"
        return self.height / max(self.target, 1), words

    def record(self) -> dict[str, object]:
        """The JSON object of the operator's status."""
        left = self.seconds_left
        return {
            "height": str(self.height),
            "target": str(self.target),
            "blocksPerSecond": round(self.blocks_per_second, 1),
            "transactionsPerSecond": round(self.transactions_per_second, 1),
            "slowestStage": self.slowest_stage,
            "secondsLeft": None if left is None else round(left),
            "peersUsed": self.peers_used,
        }


@frozen
class _Totals:
    """The totals before the first event of one second."""

    second: int
    blocks: int
    transactions: int
    waited: Counter[SyncStage]
    """Microseconds by stage."""


class SyncProgress:
    """Counts blocks and transfers while the node catches up, and times each stage; a listener of the chain.

    At each moment one stage is waited for: that of the oldest batch that is being connected, since no later one can be
    connected before it, or fetching while there is no batch.
    """

    log = Logger()

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.blocks = 0
        """Accepted while catching up, since the start of the node."""
        self.transactions = 0
        """Connected while catching up, since the start of the node."""
        self._waited: Counter[SyncStage] = Counter()
        """Microseconds by stage, since the start of the node."""
        self._began = 0.0
        self._since = 0.0
        self._said = 0.0
        """When a line was last logged, or when catching up began."""
        self._height = 0
        self._target: Callable[[], int] | None = None
        self._earlier: deque[_Totals] = deque()
        """The totals before each second of the last minute in which something happened."""
        self._batches: dict[Hashable, BlockStage] = {}
        self._senders: set[str] = set()

    def begin(self, height: int, target: Callable[[], int]) -> None:
        """Catching up begins at ``height``; ``target`` returns the height to be reached, which changes with claims."""
        self._began = self._since = self._said = self._clock.seconds()
        self._height, self._target = height, target
        self._earlier.clear()
        self._senders.clear()

    def end(self) -> None:
        """Catching up has ended, or has been abandoned."""
        self._charge()
        if self._target is not None and self._clock.seconds() - self._began >= _LONG_SECONDS:
            self.log.info("catching up ended at block {height}", height=self._height)
        self._target = None

    def sent_by(self, endpoint: str) -> None:
        """Note a peer that blocks came from."""
        self._senders.add(endpoint)

    def enters(self, batch: Hashable, stage: BlockStage) -> None:
        """A batch enters a stage; batches become known in the order of their blocks."""
        self._charge()
        self._batches[batch] = stage

    def leaves(self, batch: Hashable) -> None:
        """A batch is connected, or has been dropped."""
        self._charge()
        self._batches.pop(batch, None)

    def chain_changed(self, change: ChainChange) -> None:
        """Count transfers that were connected."""
        if self._target is not None:
            self._keep_totals()
            self.transactions += sum(block.transfer_count for block in change.applied)

    def connected(self, blocks: int, height: int) -> None:
        """Count accepted blocks; the tip of the chain is at ``height``."""
        self._height = height
        if self._target is None:
            return
        self._keep_totals()
        self.blocks += blocks
        now = self._clock.seconds()
        if now - self._said >= LOG_SECONDS and (state := self.snapshot()) is not None:
            self._said = now
            left = state.seconds_left
            self.log.info(
                "catching up: block {height} of {target}, {_left} left; {rate} blocks/s, {transactions} transfers/s; "
                "most of the time waits for {_stage}",
                height=state.height,
                target=state.target,
                rate=round(state.blocks_per_second, 1),
                transactions=round(state.transactions_per_second, 1),
                stage=state.slowest_stage.value,
                left=None if left is None else round(left),
                _left="?" if left is None else duration(left),
                _stage=state.slowest_stage.words,
                _on_status_line=True,
            )

    @property
    def target(self) -> int:
        """The height to be reached; 0 while the node is not catching up."""
        return 0 if self._target is None else self._target()

    def waited(self) -> dict[SyncStage, float]:
        """Seconds spent waiting for each stage, since the start of the node."""
        self._charge()
        return {stage: self._waited[stage] / 1e6 for stage in SyncStage}

    def snapshot(self) -> SyncStatus | None:
        """The present state; None while the node is not catching up."""
        if self._target is None:
            return None
        self._charge()
        earlier = self._earlier[0]
        waited = self._waited - earlier.waited
        elapsed = max(min(self._clock.seconds() - self._began, WINDOW_SECONDS), 1e-3)
        rate = (self.blocks - earlier.blocks) / elapsed
        target = max(self._target(), self._height)
        return SyncStatus(
            height=self._height,
            target=target,
            blocks_per_second=rate,
            transactions_per_second=(self.transactions - earlier.transactions) / elapsed,
            slowest_stage=max(SyncStage, key=lambda stage: waited[stage]),
            seconds_left=(target - self._height) / rate if rate else None,
            peers_used=len(self._senders),
        )

    def _charge(self) -> None:
        """Add the time since the last call to the stage that was waited for."""
        if self._target is None:
            return
        now = self._clock.seconds()
        # Whole microseconds: sums of them do not drift apart from each other.
        passed = round((now - self._since) * 1e6)
        waited_for = SyncStage(next(iter(self._batches.values()), SyncStage.FETCH))
        self._since = now
        self._keep_totals()
        self._waited[waited_for] += passed

    def _keep_totals(self) -> None:
        """Keep the totals before the present second, and drop those from before the last minute."""
        now = int(self._clock.seconds())
        if not self._earlier or self._earlier[-1].second != now:
            self._earlier.append(_Totals(now, self.blocks, self.transactions, self._waited.copy()))
        while now - self._earlier[0].second >= WINDOW_SECONDS:
            self._earlier.popleft()
