"""Signals that ask the process to stop: the first one does, others are told that it stops already.

Twisted would try to stop its reactor once more and log a traceback (docs/operations.md "Stopping").
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Protocol

from attrs import define
from twisted.logger import Logger

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

Hear = Callable[[int, FrameType | None], object]


class Reactor(Protocol):
    """What hearing signals asks of the reactor (twisted.internet.interfaces.IReactorCore, IReactorFromThreads)."""

    def callWhenRunning(self, call: Callable[[], object], /) -> object:  # noqa: N802
        """Call now if the reactor runs, else once it does."""

    def addSystemEventTrigger(  # noqa: N802
        self, phase: str, event: str, call: Callable[[], object], /
    ) -> object:
        """Call in a phase of the start or the stop."""

    def callFromThread(self, call: Callable[[], object], /) -> object:  # noqa: N802
        """Call as soon as the reactor has its turn."""


@define
class FirstSignal:
    """Lets Twisted hear one signal of those that stop the process."""

    reactor: Reactor
    _stopping: bool = False

    _log = Logger()

    def install(self) -> None:
        """Stand in front of Twisted once it hears signals itself."""
        self.reactor.callWhenRunning(self._stand_in_front)
        # A node that ends by itself, since something failed, may be asked to stop as well.
        self.reactor.addSystemEventTrigger("before", "shutdown", self._stops)

    def _stops(self) -> None:
        self._stopping = True

    def _stand_in_front(self) -> None:
        for number in STOPPING:
            before: Any = signal.getsignal(number)
            if callable(before):
                signal.signal(number, self._hearing(before))

    def _hearing(self, before: Hear) -> Hear:
        def hear(number: int, frame: FrameType | None) -> None:
            if self._stopping:
                self.reactor.callFromThread(self._say)
                return
            self._stopping = True
            before(number, frame)

        return hear

    def _say(self) -> None:
        self._log.info("stopping already; SIGKILL ends the process at once, and what was committed stays")
