"""SIGHUP and SIGUSR1, which by default end a process: the node reads its configuration again, and rotates its log.

A node in the foreground still ends when its terminal is closed, which sends the same signal.
"""

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from attrs import define, field
from twisted.logger import Logger


class SignalReactor(Protocol):
    """The reactor's methods that are needed here (twisted.internet.interfaces)."""

    def callFromThread(self, call: Callable[[], object], /) -> object:  # noqa: N802
        """Call in the reactor's thread as soon as the reactor runs; safe from signal handlers."""

    def stop(self) -> object:
        """Stop the services and end the process."""


def at_terminal() -> bool:
    """Whether standard input is a terminal that is still there."""
    return os.isatty(0)


@define
class HangUp:
    """Calls ``action`` in the reactor's thread for each SIGHUP; None while the node starts and stops."""

    reactor: SignalReactor
    terminal: Callable[[], bool] = at_terminal
    action: Callable[[], object] | None = field(init=False, default=None)
    _began_at_terminal: bool = field(init=False, default=False)

    _log = Logger()

    def install(self) -> None:
        """Handle SIGHUP from now on; to be called in the main thread."""
        signal.signal(signal.SIGHUP, self._handle)

    def begin(self, action: Callable[[], object]) -> None:
        """Call ``action`` from now on; after the process has left its terminal, if it runs in the background."""
        self._began_at_terminal = self.terminal()
        self.action = action

    def end(self) -> None:
        """Call nothing from now on."""
        self.action = None

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.reactor.callFromThread(self._act)

    def _act(self) -> None:
        if self._began_at_terminal and not self.terminal():
            self._log.info("the terminal was closed: the node stops")
            self.reactor.stop()
        elif self.action is None:
            self._log.warn("SIGHUP: the node is starting or stopping, and reads no configuration now")
        else:
            self.action()


def rotate_on_signal(reactor: SignalReactor, rotate: Callable[[], object] | None) -> None:
    """Call ``rotate`` in the reactor's thread for each SIGUSR1; to be called in the main thread.

    None where twistd writes the log: it handles the signal itself for a file, and another log needs no rotation.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        if rotate is not None:
            reactor.callFromThread(rotate)

    signal.signal(signal.SIGUSR1, handle)
