"""Ending the process with an exit status."""

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from twisted.internet.error import ReactorNotRunning


class Reactor(Protocol):
    """What ending the process asks of the reactor (twisted.internet.interfaces.IReactorCore)."""

    def callFromThread(self, call: Callable[[], object], /) -> object:  # noqa: N802
        """Call in the reactor's thread as soon as the reactor runs; for any thread."""

    def stop(self) -> None:
        """Stop: services first, then the reactor."""


def leaving_with(reactor: Reactor) -> Callable[[int], None]:
    """A function that stops the reactor and makes the process end with the status it is given; for any thread.

    twistd has no exit status of its own for a service that fails after the reactor has started (Twisted's issue 11335):
    it always returns 0. So the status is set by the last thing that runs, when twistd has cleaned up behind itself.
    """

    def stop() -> None:
        with suppress(ReactorNotRunning):  # Stopping already.
            reactor.stop()

    def leave(status: int) -> None:
        atexit.register(end_at_once, status)
        reactor.callFromThread(stop)

    return leave


def end_at_once(status: int) -> None:
    """End the process now, with nothing put to rest but what has been written to the log."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(status)
