"""The time by which deliveries wait for their next attempt."""

from attrs import define, field

from svcd.ports import Clock, unix_seconds


@define
class ForwardTime:
    """Unix milliseconds that follow the computer's clock when it is set forward, and go on evenly when it is set back.

    Else an attempt that is due in a minute would wait an hour longer when the clock is set back by one.
    """

    _clock: Clock
    _ahead: float = field(init=False)

    @_ahead.default
    def _at_first(self) -> float:
        return self._distance()

    def now(self) -> int:
        """The time in milliseconds."""
        self._ahead = max(self._ahead, self._distance())
        return int((self._clock.seconds() + self._ahead) * 1000)

    def _distance(self) -> float:
        return unix_seconds(self._clock) - self._clock.seconds()
