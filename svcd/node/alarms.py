"""Alarms for the operator: deep reorganisations, a tip that stands still, and their log lines (docs/operations.md)."""

from collections.abc import Callable, Mapping
from typing import Final

from attrs import define, field
from twisted.logger import Logger

from svcd.interfaces import Clock
from svcd.node.chain_manager import ChainManager
from svcd.node.changes import ChainChange

DEEP: Final = "deep-reorganisation"
"""The kind of that alarm."""
DEEP_BLOCKS: Final = 12
"""The least number of undone blocks of a deep reorganisation, which may undo payments with the usual confirmations."""
DEEP_SECONDS: Final = 86_400.0
"""How long the alarm lasts."""
STILL_SECONDS: Final = 600.0
"""How long the tip may stay the same while other nodes have later blocks."""
CHECK_SECONDS: Final = 10.0
"""How often the alarms are checked."""


class ChainAlarms:
    """Watches the changes of the chain; what it remembers ends with the process."""

    log = Logger()

    def __init__(self, chain_manager: ChainManager, clock: Clock) -> None:
        self._clock = clock
        self._moved = clock.seconds()
        self._deep: tuple[float, str] | None = None
        self.deep_reorganisations = 0
        """How many there have been since the start."""
        chain_manager.subscribe(self)

    def chain_changed(self, change: ChainChange) -> None:
        """Note the time, and the depth of a reorganisation."""
        self._moved = self._clock.seconds()
        depth = len(change.undone)
        if depth < DEEP_BLOCKS:
            return
        self.deep_reorganisations += 1
        left, first = change.undone[0].point, change.undone[-1].point
        what = (
            f"a reorganisation undid {depth} blocks, from height {first.height} to {left.height}: "
            "look at payments that were settled in them"
        )
        self._deep = (self._moved, what)
        # With both tips, which are recorded nowhere else.
        self.log.warn(
            "{alarm}; the tip was {left} and is {tip} at height {height}",
            alarm=what,
            left=left.hash.hex(),
            tip=change.tip.hash.hex(),
            height=change.tip.height,
        )

    def deep_reorganisation(self) -> str:
        """A sentence about the last deep reorganisation, for a day; "" if there was none."""
        if self._deep is None or not 0 <= self._clock.seconds() - self._deep[0] < DEEP_SECONDS:
            return ""
        return self._deep[1]

    @property
    def still_seconds(self) -> float:
        """How long the tip has been the same while this process ran."""
        return self._clock.seconds() - self._moved


@define
class AlarmLog:
    """Logs the begin and end of each alarm, and whether the node is in step with the network.

    ``behind`` gives the reason why the tip may not be the network's, ``alarms`` a sentence for each kind; "" for none.
    """

    behind: Callable[[], str]
    alarms: Callable[[], Mapping[str, str]]
    _in_step: bool | None = field(default=None, init=False)
    _was_behind: bool = field(default=False, init=False)
    _standing: set[str] = field(factory=set, init=False)

    log = Logger()

    def check(self) -> None:
        """Log what has changed; called now and then."""
        self._look_behind(self.behind())
        for kind, alarm in self.alarms().items():
            if alarm and kind not in self._standing:
                self._standing.add(kind)
                if kind != DEEP:  # That was logged when it happened.
                    self.log.warn("alarm {kind}: {alarm}", kind=kind, alarm=alarm)
            elif not alarm and kind in self._standing:
                self._standing.remove(kind)
                self.log.info("the alarm {kind} is over", kind=kind)

    def _look_behind(self, why: str) -> None:
        # A new block puts every node behind for a moment, which is not logged.
        lasts = bool(why) and (self._was_behind or self._in_step is None)
        self._was_behind = bool(why)
        if lasts and self._in_step is not False:
            self._in_step = False
            self.log.info("not in step with the network: {why}", why=why)
        elif not why and not self._in_step:
            self._in_step = True
            self.log.info("in step with the network")
