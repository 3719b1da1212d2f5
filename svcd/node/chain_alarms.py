"""Alarms of the chain, and what is remembered of its changes for them (docs/monitoring.md "Alarms")."""

from typing import Final

from attrs import frozen
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


@frozen
class ChainAlarm:
    """A condition of the chain or the node, for events to merchants."""

    kind: str
    """Such as ``outage``."""
    about: str
    """What the alarm is about, such as a height: two alarms of one kind differ in it."""
    sentence: str
    """For people."""


def what_was_undone(first: int, last: int) -> str:
    """A sentence about a deep reorganisation that undid the blocks from height ``first`` to ``last``."""
    return (
        f"a reorganisation undid {last - first + 1} blocks, from height {first} to {last}: "
        "look at payments that were settled in them"
    )


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
        old_tip, first = change.undone[0].point, change.undone[-1].point
        what = what_was_undone(first.height, old_tip.height)
        self._deep = (self._moved, what)
        # With both tips, which are recorded nowhere else.
        self.log.warn(
            "{alarm}; the tip was {old_tip} and is {tip} at height {height}; transfers that wait for a block again: "
            "{returned}",
            alarm=what,
            old_tip=old_tip.hash.hex(),
            tip=change.tip.hash.hex(),
            height=change.tip.height,
            returned=change.returned,
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
