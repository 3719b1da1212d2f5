"""What of the chain's past an operator must know of: a deep reorganisation, and since when the tip has not moved."""

from collections.abc import Callable, Mapping
from typing import Final

from attrs import define, field
from twisted.logger import Logger

from svcd.node.changes import Change
from svcd.node.ledger import Ledger
from svcd.ports import Clock

DEEP: Final = "deep-reorganisation"
"""The kind of that alarm."""
DEEP_BLOCKS: Final = 12
"""From so many undone blocks on a reorganisation is deep: payments with the usual confirmations may be undone."""
DEEP_SECONDS: Final = 86_400.0
"""How long the alarm of a deep reorganisation lasts."""
STILL_SECONDS: Final = 600.0
"""How long the tip may stay the same while other nodes have moved on."""
LOOK_SECONDS: Final = 10.0
"""How often it is seen whether there is something to say."""


class ChainAlarms:
    """Hears of every change of the chain; what it remembers ends with the process, the log keeps it."""

    log = Logger()

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._clock = clock
        self._moved = clock.seconds()
        self._deep: tuple[float, str] | None = None
        self.deep_reorganisations = 0
        """How many there have been since the start."""
        ledger.subscribe(self)

    def chain_changed(self, change: Change) -> None:
        """Note that the chain has moved, and how deep a change to another branch went."""
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
        # Both branches by name: whoever looks into it needs them, and the node has no other note of it.
        self.log.warn(
            "{alarm}; the tip was {left} and is {tip} at height {height}",
            alarm=what,
            left=left.hash.hex(),
            tip=change.tip.hash.hex(),
            height=change.tip.height,
        )

    def deep_reorganisation(self) -> str:
        """What the last deep reorganisation undid, for a day; "" if there was none."""
        if self._deep is None or not 0 <= self._clock.seconds() - self._deep[0] < DEEP_SECONDS:
            return ""
        return self._deep[1]

    @property
    def still_seconds(self) -> float:
        """For how long the tip has been the same, as far as this process knows."""
        return self._clock.seconds() - self._moved


@define
class AlarmLog:
    """Says in the log when an alarm begins and ends, and when the node falls out of step with the network.

    ``behind`` tells why the tip may not be the network's, ``alarms`` are sentences by kind; "" where all is well.
    """

    behind: Callable[[], str]
    alarms: Callable[[], Mapping[str, str]]
    _in_step: bool | None = field(default=None, init=False)
    _was_behind: bool = field(default=False, init=False)
    _standing: set[str] = field(factory=set, init=False)

    log = Logger()

    def look(self) -> None:
        """Compare with what has been said; to be called now and then."""
        self._look_behind(self.behind())
        for kind, alarm in self.alarms().items():
            if alarm and kind not in self._standing:
                self._standing.add(kind)
                if kind != DEEP:  # Which was said when it happened.
                    self.log.warn("alarm {kind}: {alarm}", kind=kind, alarm=alarm)
            elif not alarm and kind in self._standing:
                self._standing.remove(kind)
                self.log.info("the alarm {kind} is over", kind=kind)

    def _look_behind(self, why: str) -> None:
        # A block that is on its way puts every node behind for a moment: what lasts is said, and how it begins.
        lasts = bool(why) and (self._was_behind or self._in_step is None)
        self._was_behind = bool(why)
        if lasts and self._in_step is not False:
            self._in_step = False
            self.log.info("not in step with the network: {why}", why=why)
        elif not why and not self._in_step:
            self._in_step = True
            self.log.info("in step with the network")
