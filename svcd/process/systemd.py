"""Notifying systemd of the state of the service (sd_notify(3)): ready, alive, status line, stopping.

The protocol is one datagram of `NAME=value` lines to the socket that NOTIFY_SOCKET names; an `@` stands for the zero
byte that begins an abstract address. Outside systemd the variable is not set and nothing is sent.
"""

import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from attrs import frozen
from twisted.application.service import Service
from twisted.logger import Logger

from svcd.interfaces import Clock
from svcd.process.timers import Periodic

EXTENSION_SECONDS: Final = 30.0
"""How much more time each notification of a start in progress requests."""
START_SECONDS: Final = 3_600.0
"""How long a start may take: far longer than the check of a large chain, which takes minutes."""
STATUS_SECONDS: Final = 5.0
"""Seconds from one check for a changed status line to the next."""


@frozen
class Notifier:
    """Sends notifications to systemd; does nothing in a process that systemd did not start."""

    address: str = ""
    watchdog_seconds: float = 0.0
    """systemd kills the process after this long without WATCHDOG=1; 0 = no watchdog."""

    _log = Logger()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Notifier":
        """Return the notifier that systemd describes in the environment of a service it started."""
        for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environment.get("WATCHDOG_USEC", "0") if for_us else "0"
        return cls(environment.get("NOTIFY_SOCKET", ""), int(microseconds) / 1e6)

    def send(self, **notice: str) -> None:
        """Send one notification, such as `READY="1"` or `STATUS="catching up"`; a failure is logged only."""
        if not self.address:
            return
        lines = [f"{name}={' '.join(value.split())}" for name, value in notice.items()]
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel:
                channel.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            self._log.warn(
                "systemd cannot be notified of {notice}: {error}", notice=notice, error=error.strerror or str(error)
            )


class StartTimeout(Service):
    """The first service to start: asks systemd for more time until the last one has started.

    Checking a large chain after a crash takes minutes, after which systemd would end the start. If the reactor hangs,
    no further time is requested, and systemd ends the start as it should. A thread that hangs, in a disk that does not
    respond, leaves the reactor running: so no time is requested after START_SECONDS either.
    """

    _log = Logger()

    def __init__(self, notifier: Notifier, clock: Clock) -> None:
        self.notifier = notifier
        self._clock = clock
        self._until = 0.0
        self._timer = Periodic(clock, EXTENSION_SECONDS / 3, self._extend, what="asking systemd for time", at_once=True)

    def startService(self) -> None:
        """Ask for time from now on."""
        super().startService()  # type: ignore[no-untyped-call]
        self._until = self._clock.seconds() + START_SECONDS
        if self.notifier.address:
            self._timer.startService()

    def stop_accepting(self) -> None:
        """Ask for no more time: the start has ended, or a stop begins."""
        self._timer.stopService()

    def stopService(self) -> None:
        """See :meth:`stop_accepting`."""
        super().stopService()  # type: ignore[no-untyped-call]
        self.stop_accepting()

    def _extend(self) -> None:
        if self._clock.seconds() >= self._until:
            self.stop_accepting()
            self._log.error(
                "the start has not ended after {minutes} minutes; the node asks systemd for no more time, and "
                "systemd will end it soon",
                minutes=round(START_SECONDS / 60),
            )
            return
        self.notifier.send(EXTEND_TIMEOUT_USEC=str(int(EXTENSION_SECONDS * 1e6)))


class SystemdService(Service):
    """The last service to start and the first to stop: sends READY, WATCHDOG twice per watchdog period, STOPPING.

    WATCHDOG is sent only when `alive` returns, so that systemd restarts a node whose reactor or writer thread hangs.
    STATUS is the line that `systemctl status` shows; it is sent when it has changed.
    """

    def __init__(
        self,
        notifier: Notifier,
        clock: Clock,
        alive: Callable[[], Awaitable[object]],
        status: Callable[[], str],
        *,
        started: Callable[[], object] = lambda: None,
    ) -> None:
        """Make the service.

        Args:
            notifier: sends the notifications.
            clock: for the timers.
            alive: returns when every thread that must not hang has answered.
            status: returns the status line.
            started: called when everything has started, before READY.
        """
        self._started = started
        self._notifier = notifier
        self._alive = alive
        self._status = status
        self._sent_status = ""
        self._timers: list[Periodic] = []
        if notifier.watchdog_seconds > 0:
            half = notifier.watchdog_seconds / 2
            self._timers.append(Periodic(clock, half, self._send_watchdog, what="notifying the watchdog"))
        if notifier.address:
            sending = "sending systemd the status"
            self._timers.append(Periodic(clock, STATUS_SECONDS, self._send_status, what=sending, at_once=True))

    def startService(self) -> None:
        """Send READY."""
        super().startService()  # type: ignore[no-untyped-call]
        self._started()
        self._notifier.send(READY="1")
        for timer in self._timers:
            timer.startService()

    def stopService(self) -> None:
        """Send STOPPING."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._notifier.send(STOPPING="1", STATUS="stopping")
        for timer in self._timers:
            timer.stopService()

    async def _send_watchdog(self) -> None:
        await self._alive()
        if self.running:
            self._notifier.send(WATCHDOG="1")

    def _send_status(self) -> None:
        status = self._status()
        if status != self._sent_status:
            self._sent_status = status
            self._notifier.send(STATUS=status)
