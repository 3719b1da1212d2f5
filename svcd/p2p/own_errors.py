"""Errors of this node itself in its work for and with peers (docs/peers.md "Catching up")."""

from typing import Final

from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.interfaces import Clock
from svcd.p2p.peer import Backoff

FIRST_PAUSE: Final = 5.0
MAX_PAUSE: Final = 30.0
"""How long work pauses after an error, the first time and at most."""


class OwnErrors:
    """Logs errors of this node itself, such as those of a failing disk, and says how long the work that met one pauses.

    No peer is at fault, and with any peer the same work would fail again at once. The pause doubles with each error,
    until there was none for MAX_PAUSE.
    """

    log = Logger()

    def __init__(self, clock: Clock, what: str) -> None:
        """``what`` is the name of the work in the log, such as "synchronisation"."""
        self._clock = clock
        self._what = what
        self._backoff = Backoff(clock)

    @property
    def pausing(self) -> bool:
        """Whether the work must not begin again yet."""
        return self._backoff.seconds_left > 0

    def note(self, failure: Failure) -> None:
        """Log an error, and pause from now on. During a pause an error of work that began earlier changes nothing."""
        if not self.pausing:
            if self._clock.seconds() - self._backoff.until >= MAX_PAUSE:
                self._backoff = Backoff(self._clock)
            self._backoff.fail(first=FIRST_PAUSE, longest=MAX_PAUSE)
        self.log.failure(
            "{what} failed; it is tried again in {seconds} s",
            failure,
            what=self._what,
            seconds=round(self._backoff.seconds_left),
        )
