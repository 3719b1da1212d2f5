"""What of the chain's past an operator must know of: a deep reorganisation, and since when the tip has not moved."""

from typing import Final

from twisted.logger import Logger

from svcd.node.changes import Change
from svcd.node.ledger import Ledger
from svcd.ports import Clock

DEEP_BLOCKS: Final = 12
"""From so many undone blocks on a reorganisation is deep: payments with the usual confirmations may be undone."""
DEEP_SECONDS: Final = 86_400.0
"""How long the alarm of a deep reorganisation lasts."""
STILL_SECONDS: Final = 600.0
"""How long the tip may stay the same while other nodes have moved on."""


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
