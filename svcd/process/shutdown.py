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
from typing import Final, Protocol, TypeVar, cast

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.interfaces import Clock

T = TypeVar("T")

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
CLOSE_SECONDS: Final = 3.0
"""What a stop keeps of its time for closing the databases."""


class Reactor(Protocol):
    """The reactor's methods that are needed here (twisted.internet.interfaces.IReactorCore, IReactorFromThreads)."""

    def callWhenRunning(self, call: Callable[[], object], /) -> object:  # noqa: N802
        """Call now if the reactor runs, else once it does."""

    def addSystemEventTrigger(  # noqa: N802
        self, phase: str, event: str, call: Callable[[], object], /
    ) -> object:
        """Call in a phase of start or shutdown."""

    def callFromThread(self, call: Callable[..., object], /, *args: object) -> object:  # noqa: N802
        """Call in the reactor's thread as soon as the reactor runs; safe from any thread and from signal handlers."""

    def stop(self) -> None:
        """Stop: services first, then the reactor."""


class CutOff(Exception):
    """A part of the node had not stopped by the deadline of the stop."""


@define
class StopDeadline:
    """The one deadline of a stop, which all parts of the node share."""

    clock: Clock
    seconds: float
    """From the beginning of the stop until requests, deliveries and other work in progress are cut off."""
    _began: float | None = field(default=None, init=False)

    _log = Logger()

    def begin(self) -> None:
        """The stop begins now, unless it has begun already."""
        if self._began is None:
            self._began = self.clock.seconds()

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning of the stop."""
        return 0.0 if self._began is None else self.clock.seconds() - self._began

    def bound(self, work: Deferred[T], *, more: float = 0.0, cancel: bool = True) -> Deferred[T]:
        """A Deferred of the result of ``work``; it fails with CutOff ``more`` seconds after the deadline.

        ``work`` is cancelled then, and if the Deferred is cancelled, unless ``cancel`` is false; nothing waits for what
        it does after that.
        """

        def give_up(_: object) -> None:
            if timer.active():
                timer.cancel()
            if cancel:
                work.cancel()

        bounded: Deferred[T] = Deferred(give_up)

        def cut_off() -> None:
            give_up(None)
            bounded.errback(CutOff())

        def ended(result: T | Failure) -> None:
            if timer.active():
                timer.cancel()
                bounded.callback(cast(T, result))
            elif isinstance(result, Failure) and not result.check(CancelledError):  # type: ignore[no-untyped-call]
                self._log.failure("a part of the node that was cut off failed afterwards", result)

        timer = self.clock.callLater(max(self.seconds + more - self.elapsed, 0.0), cut_off)
        work.addBoth(ended)
        return bounded


@define
class StopSignals:
    """Stops the reactor on the first SIGTERM or SIGINT, and answers later ones with a line in the log.

    Twisted's own handlers would stop the reactor a second time and log a traceback, and end the process by the signal
    after a stop without errors, where operators and containers expect status 0 (docs/troubleshooting.md).
    """

    reactor: Reactor
    _stopping: bool = False

    _log = Logger()

    def install(self) -> None:
        """Replace Twisted's signal handlers as soon as the reactor has installed them."""
        self.reactor.callWhenRunning(self._replace_handlers)
        # A node that stops because of a failure may get a signal as well.
        self.reactor.addSystemEventTrigger("before", "shutdown", self._shutdown_began)

    def _shutdown_began(self) -> None:
        self._stopping = True

    def _replace_handlers(self) -> None:
        for number in STOP_SIGNALS:
            # A signal that the parent process ignores, as of a background job of a shell, has no handler.
            if callable(signal.getsignal(number)):
                signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        first, self._stopping = not self._stopping, True
        self.reactor.callFromThread(self._stop if first else self._log_repeated, signal.Signals(number).name)

    def _stop(self, name: str) -> None:
        self._log.info("{signal}: the node stops", signal=name)
        self.reactor.stop()

    def _log_repeated(self, name: str) -> None:
        self._log.info(
            "{signal}: stopping already; SIGKILL ends the process at once, and committed data is safe", signal=name
        )


def graceful_exit(reactor: Reactor, flush: Callable[[], object]) -> Callable[[int], None]:
    """Return a function that stops the reactor and ends the process with an exit status; it may run in any thread.

    ``flush`` writes what is left of the log.

    twistd always exits with 0 when a service fails after the reactor has started (Twisted's issue 11335). So an
    ``atexit`` hook sets the status, after twistd has cleaned up.
    """

    def stop() -> None:
        with suppress(ReactorNotRunning):  # Stopping already.
            reactor.stop()

    def exit_process(status: int) -> None:
        atexit.register(exit_now, status, flush)
        reactor.callFromThread(stop)

    return exit_process


def exit_now(status: int, flush: Callable[[], object]) -> None:
    """End the process at once: only the log, by ``flush``, standard output and standard error are flushed."""
    flush()
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(status)
