"""A monotonic clock for the reactor, and a watch over the computer's clock (docs/operations.md "Faults").

Twisted's reactor counts in Unix time: when the clock is set back by an hour, every timer waits an hour longer,
deadlines and systemd's watchdog included; when it is set forward, all deadlines pass at once.
"""

import time
from typing import Any, Final

from attrs import define, field
from twisted.logger import Logger

from svcd.interfaces import Clock, unix_seconds

CHECK_SECONDS: Final = 1.0
"""From one comparison of the clocks to the next."""
_MIN_JUMP_SECONDS: Final = 2.0


def use_monotonic_clock(reactor: Any) -> None:
    """Make a reactor that has not started count monotonic time; ``reactor.unix_seconds`` is the computer's clock."""
    offset = time.time() - time.monotonic()
    reactor.seconds = lambda: time.monotonic() + offset
    reactor.unix_seconds = time.time


@define
class ClockWatch:
    """Logs when the computer's clock was set: slots, timestamps and expiry follow it."""

    clock: Clock
    _lead: float = field(init=False)
    """By how many seconds the computer's clock is ahead of the monotonic one."""

    _log = Logger()

    @_lead.default
    def _lead_at_start(self) -> float:
        return self._current_lead()

    def check(self) -> None:
        """Compare the clocks; to be called periodically."""
        before, self._lead = self._lead, self._current_lead()
        if abs(self._lead - before) >= _MIN_JUMP_SECONDS:
            self._log.warn(
                "the computer's clock was set {direction} by {seconds} s; block times follow the new time; "
                "timeouts are not affected",
                direction="forward" if self._lead > before else "back",
                seconds=round(abs(self._lead - before)),
            )

    def _current_lead(self) -> float:
        return unix_seconds(self.clock) - self.clock.seconds()
