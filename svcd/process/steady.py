"""A reactor whose time runs evenly, whatever is done to the computer's clock (docs/operations.md "Faults").

Twisted's reactor counts in Unix time: when the clock is set back by an hour, everything that is due later waits an hour
longer, deadlines and systemd's sign of life with it; when it is set forward, all deadlines pass at once.
"""

import time
from typing import Any, Final

from attrs import define, field
from twisted.logger import Logger

from svcd.ports import Clock, unix_seconds

LOOK_SECONDS: Final = 1.0
"""How often it is seen whether the clock was set."""
_NOTICED_SECONDS: Final = 2.0


def run_steadily(reactor: Any) -> None:
    """Let a reactor that does not run yet measure time evenly; ``reactor.unix_seconds`` tells the computer's clock."""
    offset = time.time() - time.monotonic()
    reactor.seconds = lambda: time.monotonic() + offset
    reactor.unix_seconds = time.time


@define
class ClockWatch:
    """Sees that the computer's clock was set, and says so: slots, timestamps and expiry follow it."""

    clock: Clock
    _ahead: float = field(init=False)

    _log = Logger()

    @_ahead.default
    def _at_first(self) -> float:
        return self._distance()

    def look(self) -> None:
        """Compare the clocks; to be called now and then."""
        before, self._ahead = self._ahead, self._distance()
        if abs(self._ahead - before) >= _NOTICED_SECONDS:
            self._log.warn(
                "the computer's clock was set {direction} by {seconds} s; the chain goes by it, deadlines do not",
                direction="forward" if self._ahead > before else "back",
                seconds=round(abs(self._ahead - before)),
            )

    def _distance(self) -> float:
        return unix_seconds(self.clock) - self.clock.seconds()
