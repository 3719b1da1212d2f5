"""Waiting for news, but not for ever."""

from twisted.internet.defer import Deferred

from svcd.ports import Clock, Timer


class Bell:
    """Wakes whoever waits: one at a time. A ring that nobody waits for is heard by the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = False
        self._waiting: Deferred[None] | None = None
        self._timer: Timer | None = None

    async def wait(self, seconds: float) -> None:
        """Wait until it rings, at most so many seconds."""
        if not self._rung:
            self._waiting = Deferred()
            self._timer = self._clock.callLater(seconds, self._time_is_up)
            await self._waiting
        self._rung = False

    def ring(self) -> None:
        """Wake whoever waits."""
        self._rung = True
        self.silence()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def _time_is_up(self) -> None:
        self._timer = None
        self.ring()

    def silence(self) -> None:
        """Stop the clock: nobody waits any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
