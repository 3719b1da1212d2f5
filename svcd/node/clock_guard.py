"""Whether the computer's clock may be believed, after it was set (docs/monitoring.md "Clock").

One wrong second must not be final. So what has expired by the clock ends only while the clock is trusted.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from attrs import define, field
from twisted.logger import Logger

from svcd.interfaces import Clock, unix_seconds

CLOCK_CHECK_SECONDS: Final = 1.0
"""Seconds from one comparison of the clocks to the next."""
STEADY_SECONDS: Final = 300.0
"""How long a clock that was set must run evenly until it can be trusted again: a peer renews its hello in that time."""
PRESENT_PEERS_SECONDS: Final = 3600.0
"""How long a new time must be steady until the peers of that moment can confirm it, without those from before."""
JUMP_SECONDS: Final = 30.0
"""From how much on a change of the clock within STEADY_SECONDS, at once or in small steps, is a jump.

Peers accept hellos from clocks that differ by twice as much.
"""
_LOGGED_SECONDS: Final = 2.0
_EVER: Final = float("-inf")


def _no_peers(_since: float) -> int:
    return 0


def _no_doubt() -> str:
    return ""


@define(eq=False)
class ClockGuard:
    """Compares the computer's clock with one that runs evenly, and with those of the peers.

    After a jump it trusts the clock again once that has been steady for STEADY_SECONDS, and either shows the time from
    before the jump, or more than half of the peers from before it have confirmed the new time by signed hellos, whose
    times may differ by a minute. After an hour, more than half of the peers of that moment are enough, if they are two
    or more: those from before may be gone for good. The operator can confirm the new time at once.
    """

    clock: Clock
    """Both clocks: ``seconds`` runs evenly, and :func:`svcd.interfaces.unix_seconds` gives the computer's time."""
    agreeing: Callable[[float], int] = field(default=_no_peers, init=False)
    """How many peers have confirmed the computer's time since a moment, in seconds of the clock."""
    second_doubt: Callable[[], str] = field(default=_no_doubt, init=False)
    """Why another clock by which watches expire, that of a database, is not trusted; "" if it is, or there is none."""
    _lead: float = field(init=False)
    """By how many seconds the computer's clock is ahead of the even one."""
    _leads: deque[tuple[float, float]] = field(init=False)
    """The leads with their times: the last one that is STEADY_SECONDS old, or the first since a jump, and all later."""
    _trusted_lead: float = field(init=False)
    """The same while the clock was last trusted."""
    _since: float | None = field(default=None, init=False)
    """When the clock last jumped; None while it is trusted."""
    _needed: int = field(default=1, init=False)
    """How many peers must confirm the new time, by those that were there before."""

    _log = Logger()

    @_lead.default
    def _lead_at_start(self) -> float:
        return self._current_lead()

    @_leads.default
    def _leads_at_start(self) -> deque[tuple[float, float]]:
        return deque([(self.clock.seconds(), self._lead)])

    @_trusted_lead.default
    def _trusted_lead_at_start(self) -> float:
        return self._lead

    def check(self) -> None:
        """Compare the clocks; to be called every CLOCK_CHECK_SECONDS."""
        self._detect_jump()
        now = self.clock.seconds()
        self._leads.append((now, self._lead))
        while now - self._leads[1][0] >= STEADY_SECONDS:
            self._leads.popleft()
        if self._since is None:
            # Small steps are those of a clock that is kept right.
            self._trusted_lead = self._lead
        elif self._is_steady(self._since) and self._is_confirmed(self._since):
            self._trust()

    def confirm(self) -> None:
        """Trust the computer's clock as it is now, because the operator says that it is right."""
        self._detect_jump()
        if self._since is not None:
            self._trust()

    def is_trusted(self) -> bool:
        """Look at the clock, and return whether what is over by it may end for good."""
        self._detect_jump()
        return self._since is None and not self.second_doubt()

    def why_no_block(self) -> str:
        """Why the time of a block may not be taken from the clock; "" if it may.

        It may once the clock shows the time from before its jump again, or has not jumped for STEADY_SECONDS.
        """
        self._detect_jump()
        if self._since is None or self._came_back() or self._is_steady(self._since):
            return ""
        return (
            f"{self._was_set()}: the node makes no blocks until it is set back, or has been steady for "
            f"{STEADY_SECONDS / 60:.0f} minutes"
        )

    def doubt(self) -> str:
        """Why nothing expires by the clock at present; "" if it is trusted."""
        self._detect_jump()
        if self._since is None:
            return self.second_doubt()
        until = f"no watch expires until it has been steady for {STEADY_SECONDS / 60:.0f} minutes"
        if self._came_back():
            return f"the computer's clock was set, and set back: {until}"
        needed = self._still_needed(self._since)
        return (
            f"{self._was_set()}: {until} and {_peers(needed)} with it ({self.agreeing(self._since)} do so far); if it "
            "is right, `svc node reload --trust-clock` says so"
        )

    def trusted_milliseconds(self) -> int:
        """The Unix time by the even clock and what the computer's clock showed while it was last trusted."""
        return int((self.clock.seconds() + self._trusted_lead) * 1000)

    def _detect_jump(self) -> None:
        moved = self._current_lead() - self._lead
        if abs(moved) >= _LOGGED_SECONDS:
            self._log.warn(
                "the computer's clock was set {direction} by {seconds} s; block times follow the new time; "
                "timeouts are not affected",
                direction=_direction(moved),
                seconds=round(abs(moved)),
            )
        self._lead += moved
        if max(abs(moved), abs(self._lead - self._leads[0][1])) < JUMP_SECONDS:
            return
        # What follows is compared with the new time.
        self._leads = deque([(self.clock.seconds(), self._lead)])
        if self._since is None:
            # Those before the jump: a node with a wrong clock loses the peers whose clocks are right.
            self._needed = _majority(self.agreeing(_EVER))
        self._since = self.clock.seconds()

    def _was_set(self) -> str:
        ahead = self._lead - self._trusted_lead
        return f"the computer's clock was set {_direction(ahead)} by {abs(ahead):.0f} s"

    def _is_steady(self, since: float) -> bool:
        return self.clock.seconds() - since >= STEADY_SECONDS

    def _came_back(self) -> bool:
        return abs(self._lead - self._trusted_lead) < JUMP_SECONDS

    def _is_confirmed(self, since: float) -> bool:
        return self._came_back() or self.agreeing(since) >= self._still_needed(since)

    def _still_needed(self, since: float) -> int:
        if self.clock.seconds() - since < PRESENT_PEERS_SECONDS:
            return self._needed
        return min(self._needed, max(2, _majority(self.agreeing(_EVER))))

    def _trust(self) -> None:
        self._trusted_lead, self._since = self._lead, None
        self._log.info("the computer's clock is trusted again")

    def _current_lead(self) -> float:
        return unix_seconds(self.clock) - self.clock.seconds()


def _majority(peers: int) -> int:
    return peers // 2 + 1


def _peers(count: int) -> str:
    return "1 peer agrees" if count == 1 else f"{count} peers agree"


def _direction(seconds: float) -> str:
    return "forward" if seconds > 0 else "back"
