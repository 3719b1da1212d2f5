"""The circuit breaker of a receiver, the host and port of callbacks (docs/webhook-reference.md "Attempts").

Times are Unix milliseconds. A receiver that fails repeatedly gets one attempt at a time, a probe, with growing
delays between them.
"""

from enum import Enum
from typing import Final

from attrs import define, field, frozen

from svcd.commerce.retry_policy import HURRIED_PROBE_DELAY, RETRY_PERIOD, probe_delay
from svcd.limits import DEAD_RECEIVER, limit

FAILURES_TO_OPEN: Final = limit(5, "failures in a row that break a receiver", "failures", DEAD_RECEIVER)
"""Consecutive failed attempts at a receiver, for any of its watches."""


class DeliveryOutcome(Enum):
    """The result of an attempt, as far as it concerns the receiver."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    """The receiver works but does not accept this event: retrying depends on the event, not on the receiver."""
    ERROR = "error"
    """The receiver works but failed at this event; a later attempt may succeed."""
    FAILED = "failed"
    """The receiver cannot be reached, or answers that it is unavailable."""
    NOT_COUNTED = "not counted"
    """Says nothing about the receiver: nothing was sent, the attempt was cancelled, or this node failed."""


class BreakerChange(Enum):
    """The effect of an outcome on the breaker."""

    NONE = "none"
    OPENED = "opened"
    CLOSED = "closed"


@frozen
class OpenBreaker:
    """An open breaker, as stored for the next leader."""

    opened_at: int
    probe_at: int
    probes: int
    """Failed ones since it opened."""


@define
class CircuitBreaker:
    """Opens after consecutive failures of a receiver, and closes when it answers."""

    opened_at: int | None = field(default=None, init=False)
    """None while closed."""
    probe_at: int = field(default=0, init=False)
    """While open: when the next probe is due."""
    _failures: int = field(default=0, init=False)
    _probes: int = field(default=0, init=False)
    _hurried_at: int | None = field(default=None, init=False)
    """When the newest probe that was brought forward was due."""

    @property
    def is_open(self) -> bool:
        """Whether the receiver gets probes only."""
        return self.opened_at is not None

    @classmethod
    def restored(cls, kept: OpenBreaker | None) -> "CircuitBreaker":
        """The breaker as it was stored; a closed one if none was."""
        breaker = cls()
        if kept is not None:
            breaker.opened_at, breaker.probe_at, breaker._probes = kept.opened_at, kept.probe_at, kept.probes
        return breaker

    def kept(self) -> OpenBreaker | None:
        """The breaker as it is to be stored; None while it is closed."""
        return None if self.opened_at is None else OpenBreaker(self.opened_at, self.probe_at, self._probes)

    def gives_up_at(self, due: int) -> int:
        """While open: when to abandon an event due at ``due`` without an attempt.

        The time is a whole retry period after both, because an event may be overdue only since this node was down.
        """
        return max(self.opened_at or 0, due) + RETRY_PERIOD

    def has_outlasted_retries(self, now: int) -> bool:
        """Whether the breaker has been open for a whole retry period."""
        return self.opened_at is not None and self.opened_at + RETRY_PERIOD <= now

    def hurry(self, now: int) -> None:
        """If open, bring the next probe forward to ``now``, or to HURRIED_PROBE_DELAY after the last hurried one."""
        at = now if self._hurried_at is None else max(now, self._hurried_at + HURRIED_PROBE_DELAY)
        if self.is_open and at < self.probe_at:
            self.probe_at = self._hurried_at = at

    def record(self, outcome: DeliveryOutcome, now: int, *, probe: bool) -> BreakerChange:
        """Note the outcome of an attempt, which was a ``probe`` if the breaker was open when it began."""
        if outcome is DeliveryOutcome.NOT_COUNTED:
            return BreakerChange.NONE
        if outcome is not DeliveryOutcome.FAILED:
            was_open = self.is_open
            self._failures, self.opened_at = 0, None
            return BreakerChange.CLOSED if was_open else BreakerChange.NONE
        self._failures += 1
        if self.is_open:
            # Attempts that began before the breaker opened are no probes.
            if probe:
                self._probes += 1
                self.probe_at = now + probe_delay(self._probes)
            return BreakerChange.NONE
        if self._failures < FAILURES_TO_OPEN:
            return BreakerChange.NONE
        self.opened_at, self._probes, self.probe_at = now, 0, now + probe_delay(0)
        return BreakerChange.OPENED
