"""Ending the process: the first SIGTERM or SIGINT stops the reactor, and a failure ends it with an exit status.

The order in which the services then stop: svcd/composition/lifecycle.py.
"""

import atexit
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Protocol

from attrs import define
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

SignalHandler = Callable[[int, FrameType | None], object]


class Reactor(Protocol):
    """The reactor's methods that are needed here (twisted.internet.interfaces.IReactorCore, IReactorFromThreads)."""

    def callWhenRunning(self, call: Callable[[], object], /) -> object:  # noqa: N802
        """Call now if the reactor runs, else once it does."""

    def addSystemEventTrigger(  # noqa: N802
        self, phase: str, event: str, call: Callable[[], object], /
    ) -> object:
        """Call in a phase of start or shutdown."""

    def callFromThread(self, call: Callable[[], object], /) -> object:  # noqa: N802
        """Call in the reactor's thread as soon as the reactor runs; safe from any thread and from signal handlers."""

    def stop(self) -> None:
        """Stop: services first, then the reactor."""


@define
class StopSignals:
    """Passes the first SIGTERM or SIGINT on to Twisted, and answers later ones with a line in the log.

    Twisted's own handler would stop the reactor a second time and log a traceback (docs/operations.md "Stopping").
    """

    reactor: Reactor
    _stopping: bool = False

    _log = Logger()

    def install(self) -> None:
        """Wrap Twisted's signal handlers as soon as the reactor has installed them."""
        self.reactor.callWhenRunning(self._wrap_handlers)
        # A node that stops because of a failure may get a signal as well.
        self.reactor.addSystemEventTrigger("before", "shutdown", self._shutdown_began)

    def _shutdown_began(self) -> None:
        self._stopping = True

    def _wrap_handlers(self) -> None:
        for number in STOP_SIGNALS:
            handler: Any = signal.getsignal(number)
            if callable(handler):
                signal.signal(number, self._only_first(handler))

    def _only_first(self, handler: SignalHandler) -> SignalHandler:
        def handle(number: int, frame: FrameType | None) -> None:
            if self._stopping:
                self.reactor.callFromThread(self._log_repeated)
                return
            self._stopping = True
            handler(number, frame)

        return handle

    def _log_repeated(self) -> None:
        self._log.info("stopping already; SIGKILL ends the process at once, and committed data is safe")


def graceful_exit(reactor: Reactor) -> Callable[[int], None]:
    """Return a function that stops the reactor and ends the process with an exit status; it may run in any thread.

    twistd always exits with 0 when a service fails after the reactor has started (Twisted's issue 11335). So an
    ``atexit`` hook sets the status, after twistd has cleaned up.
    """

    def stop() -> None:
        with suppress(ReactorNotRunning):  # Stopping already.
            reactor.stop()

    def exit_process(status: int) -> None:
        atexit.register(exit_now, status)
        reactor.callFromThread(stop)

    return exit_process


def exit_now(status: int) -> None:
    """End the process at once: only standard output and standard error are flushed."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(status)
