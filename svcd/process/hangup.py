"""SIGHUP, which by default ends a process: the node reads its configuration again instead."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from attrs import define
from twisted.logger import Logger


class SignalReactor(Protocol):
    """The reactor's method that is needed here (twisted.internet.interfaces.IReactorFromThreads)."""

    def callFromThread(self, call: Callable[[], object], /) -> object:  # noqa: N802
        """Call in the reactor's thread as soon as the reactor runs; safe from signal handlers."""


@define
class HangUp:
    """Calls ``action`` in the reactor's thread for each SIGHUP; None while the node starts and stops."""

    reactor: SignalReactor
    action: Callable[[], object] | None = None

    _log = Logger()

    def install(self) -> None:
        """Handle SIGHUP from now on; to be called in the main thread."""
        signal.signal(signal.SIGHUP, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.reactor.callFromThread(self._act)

    def _act(self) -> None:
        if self.action is None:
            self._log.warn("SIGHUP: the node is starting or stopping, and reads no configuration now")
        else:
            self.action()
