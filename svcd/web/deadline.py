"""A deadline that moves with every request and costs one timer, not one for each time it is set."""

from collections.abc import Callable
from math import inf

from attrs import define, field

from svcd.ports import Clock, Timer


@define
class Deadline:
    """Calls ``passed`` when the time that was set last is over.

    The timer never rings later than the deadline of the moment, and if it rings early it is set again.
    """

    clock: Clock
    passed: Callable[[], object]
    _at: float = field(default=0.0, init=False)
    _latest: float = field(default=inf, init=False)
    _timer: Timer | None = field(default=None, init=False)

    def set(self, seconds: float) -> None:
        """Let it be in so many seconds, at once if that is not positive, and no later than its bound."""
        now = self.clock.seconds()
        self._at = min(now + seconds, self._latest)
        left = max(self._at - now, 0.0)
        if self._timer is None:
            self._timer = self.clock.callLater(left, self._ring)
        elif self._timer.getTime() > self._at:
            self._timer.reset(left)

    def bound(self, seconds: float) -> None:
        """Let what is set, and whatever is set from now on, be no later than in so many seconds; the earliest holds."""
        now = self.clock.seconds()
        self._latest = min(self._latest, now + seconds)
        if self._timer is not None:
            self.set(self._at - now)

    def cancel(self) -> None:
        """Let it never pass; nothing happens if none is set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        left = self._at - self.clock.seconds()
        if left > 0:
            self._timer = self.clock.callLater(left, self._ring)
        else:
            self.passed()
