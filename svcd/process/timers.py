"""Periodic work, and a monotonic clock for its timers."""

import time
from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from svcd.interfaces import Clock


class Periodic(Service):
    """Calls a function at a fixed interval while it runs.

    Calls never overlap: one that takes longer than the interval skips those that fall due meanwhile. An exception is
    logged and the next call comes all the same, where Twisted's LoopingCall would stop for ever.
    """

    _log = Logger()

    def __init__(
        self, clock: Clock, seconds: float, work: Callable[[], object], *, what: str, at_once: bool = False
    ) -> None:
        """Make the service.

        Args:
            clock: for the timer.
            seconds: the interval.
            work: the function to call; it may be a coroutine function or return a Deferred.
            what: its name in the log, such as "saving the peer store".
            at_once: whether the first call comes with the start, not one interval later.
        """
        self._seconds = seconds
        self._work = work
        self._what = what
        self._at_once = at_once
        self._loop = LoopingCall(self._call)
        self._loop.clock = clock  # type: ignore[assignment]
        self._ended: Deferred[LoopingCall] | None = None

    def startService(self) -> None:
        """Start the timer."""
        super().startService()  # type: ignore[no-untyped-call]
        self._ended = self._loop.start(self._seconds, now=self._at_once)

    def stopService(self) -> Deferred[LoopingCall] | None:
        """Stop the timer; the Deferred fires when a call under way has ended."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._loop.running:
            self._loop.stop()
        return self._ended

    async def _call(self) -> None:
        try:
            await maybeDeferred(self._work)
        except Exception:
            self._log.failure("{what} failed; it is tried again in {seconds} s", what=self._what, seconds=self._seconds)


def use_monotonic_clock(reactor: Any) -> None:
    """Make a reactor that has not started count monotonic time; ``reactor.unix_seconds`` is the computer's clock.

    Twisted's reactor counts in Unix time: when the clock is set back by an hour, every timer waits an hour longer,
    deadlines and systemd's watchdog included; when it is set forward, all deadlines pass at once
    (docs/troubleshooting.md "Faults"). twistd has installed the reactor by now, so that a subclass cannot be;
    ReactorBase of Twisted 26.10.0 takes the time of all its timers from `self.seconds`.
    """
    offset = time.time() - time.monotonic()
    reactor.seconds = lambda: time.monotonic() + offset
    reactor.unix_seconds = time.time
