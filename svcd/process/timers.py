"""Periodic work."""

from collections.abc import Callable

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
