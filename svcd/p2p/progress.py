"""How far catching up has come: said in the log once a second at most, and asked for by the operator."""

from collections import Counter, deque
from collections.abc import Hashable
from enum import StrEnum
from typing import Final

from attrs import define, field, frozen
from twisted.logger import Logger

from svcd.node.changes import Change, Stage
from svcd.ports import Clock

_LOG_SECONDS: Final = 1.0
WINDOW_SECONDS: Final = 60
"""Rates, and the slowest stage, are those of the last minute."""


class Wait(StrEnum):
    """What may hold up catching up: no blocks to hand on, or a stage of the oldest batch on its way into the chain."""

    FETCH = "fetch"
    """Blocks are asked for, received, and cut out of the answer."""
    PARSE = Stage.PARSE
    VERIFY = Stage.VERIFY
    CONNECT = Stage.CONNECT


@frozen
class Snapshot:
    """The present state of catching up."""

    height: int
    target: int
    blocks_per_second: float
    transactions_per_second: float
    slowest_stage: Wait
    """The one that was waited for longest."""
    seconds_left: float | None
    """None while nothing has come by which to tell."""
    peers_used: int
    """How many peers have sent blocks since it began."""

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


@define
class _Second:
    """What happened within one second of the clock."""

    at: int
    blocks: int = 0
    transactions: int = 0
    waited: Counter[Wait] = field(factory=Counter)
    """Microseconds by stage."""


class Progress:
    """Counts what is connected while the node catches up, and times what it waits for; a listener of the chain.

    At each moment one stage is waited for: that of the oldest batch that is on its way into the chain, since nothing
    after it can become part of the chain before it does, or fetching where there is no batch.
    """

    log = Logger()

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.blocks = 0
        """Taken in while catching up, since the start of the node."""
        self.transactions = 0
        """Connected while catching up, since the start of the node."""
        self._waited: Counter[Wait] = Counter()
        self._began = 0.0
        self._since = 0.0
        self._said = 0.0
        self._height = 0
        self._target: int | None = None
        self._seconds: deque[_Second] = deque()
        self._batches: dict[Hashable, Stage] = {}
        self._senders: set[str] = set()

    def begin(self, height: int, target: int) -> None:
        """Catching up begins at ``height`` and aims at ``target``."""
        self._began = self._since = self._clock.seconds()
        self._height, self._target = height, target
        self._seconds.clear()
        self._senders.clear()

    def end(self) -> None:
        """Catching up is over, or has been given up."""
        self._charge()
        self._target = None

    def sent_by(self, endpoint: str) -> None:
        """Blocks came from a peer."""
        self._senders.add(endpoint)

    def enters(self, batch: Hashable, stage: Stage) -> None:
        """A batch enters a stage; it is older than those that come after it."""
        self._charge()
        self._batches[batch] = stage

    def leaves(self, batch: Hashable) -> None:
        """A batch is in the chain, or will not be."""
        self._charge()
        self._batches.pop(batch, None)

    def chain_changed(self, change: Change) -> None:
        """Count transfers that were connected."""
        if self._target is not None:
            count = sum(len(block.txids) for block in change.applied)
            self.transactions += count
            self._second().transactions += count

    def connected(self, blocks: int, height: int) -> None:
        """So many more blocks have been taken in, and the tip of the chain is at ``height``."""
        self._height = height
        if self._target is None:
            return
        self.blocks += blocks
        self._second().blocks += blocks
        now, state = self._clock.seconds(), self.snapshot()
        if state is not None and now - self._said >= _LOG_SECONDS:
            self._said = now
            self.log.info(
                "catching up: block {height} of {target}, {rate} blocks/s, {transactions} transactions/s, "
                "mostly waiting for {stage}, {left} s left",
                height=state.height,
                target=state.target,
                rate=round(state.blocks_per_second, 1),
                transactions=round(state.transactions_per_second, 1),
                stage=state.slowest_stage.value,
                left="?" if state.seconds_left is None else round(state.seconds_left),
            )

    def waited(self) -> dict[Wait, float]:
        """For how many seconds each stage has been waited for, since the start of the node."""
        self._charge()
        return {stage: self._waited[stage] / 1e6 for stage in Wait}

    def snapshot(self) -> Snapshot | None:
        """The present state; None while the node is not catching up."""
        if self._target is None:
            return None
        self._charge()
        waited: Counter[Wait] = Counter()
        for second in self._seconds:
            waited.update(second.waited)
        elapsed = max(min(self._clock.seconds() - self._began, WINDOW_SECONDS), 1e-3)
        rate = sum(second.blocks for second in self._seconds) / elapsed
        return Snapshot(
            height=self._height,
            target=self._target,
            blocks_per_second=rate,
            transactions_per_second=sum(second.transactions for second in self._seconds) / elapsed,
            slowest_stage=max(Wait, key=lambda stage: waited[stage]),
            seconds_left=max(self._target - self._height, 0) / rate if rate else None,
            peers_used=len(self._senders),
        )

    def _charge(self) -> None:
        """Note for what was waited since the last time."""
        if self._target is None:
            return
        now = self._clock.seconds()
        # Whole microseconds: sums of them do not drift apart from each other.
        passed = max(round((now - self._since) * 1e6), 0)
        waited_for = Wait(next(iter(self._batches.values()), Wait.FETCH))
        self._since = now
        self._waited[waited_for] += passed
        self._second().waited[waited_for] += passed

    def _second(self) -> _Second:
        """The present second; those out of the window are let go."""
        now = int(self._clock.seconds())
        if not self._seconds or self._seconds[-1].at != now:
            self._seconds.append(_Second(now))
        while now - self._seconds[0].at >= WINDOW_SECONDS:
            self._seconds.popleft()
        return self._seconds[-1]
