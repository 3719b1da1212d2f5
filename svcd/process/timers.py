"""Work that is done again and again."""

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from svcd.ports import Clock


class Periodic(Service):
    """Does something every so many seconds while it runs, whatever happens.

    Beats never overlap: one that takes longer than the interval skips those it covers. An exception is logged and the
    next beat comes all the same, where Twisted's LoopingCall would stop for ever.
    """

    _log = Logger()

    def __init__(
        self, clock: Clock, seconds: float, work: Callable[[], object], *, what: str, at_once: bool = False
    ) -> None:
        """Make the service.

        Args:
            clock: tells the time and wakes us up.
            seconds: from one beat to the next.
            work: what to do; it may be a coroutine function or return a Deferred.
            what: its name in the log, such as "saving the book of peers".
            at_once: whether the first beat comes with the start, not one interval later.
        """
        self._seconds = seconds
        self._work = work
        self._what = what
        self._at_once = at_once
        self._loop = LoopingCall(self._beat)
        self._loop.clock = clock  # type: ignore[assignment]
        self._ended: Deferred[LoopingCall] | None = None

    def startService(self) -> None:
        """Begin."""
        super().startService()  # type: ignore[no-untyped-call]
        self._ended = self._loop.start(self._seconds, now=self._at_once)

    def stopService(self) -> Deferred[LoopingCall] | None:
        """End; the Deferred fires when the beat under way, if there is one, is over."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._loop.running:
            self._loop.stop()
        return self._ended

    async def _beat(self) -> None:
        try:
            await maybeDeferred(self._work)
        except Exception:
            self._log.failure("{what} failed; it is tried again in {seconds} s", what=self._what, seconds=self._seconds)
