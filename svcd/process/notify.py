"""Telling systemd how the service fares (sd_notify(3)): ready, alive, how it is, stopping.

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

from svcd.ports import Clock
from svcd.process.timers import Periodic

STATUS_SECONDS: Final = 5.0
"""How often it is seen whether there is something new to show."""


@frozen
class Notifier:
    """Sends notices to a service manager, if there is one."""

    address: str = ""
    watchdog_seconds: float = 0.0
    """How long systemd waits for a sign of life before it kills the process; 0 = it does not wait for any."""

    _log = Logger()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Notifier":
        """The notifier that systemd describes in the environment of a service it started."""
        for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environment.get("WATCHDOG_USEC", "0") if for_us else "0"
        return cls(environment.get("NOTIFY_SOCKET", ""), int(microseconds) / 1e6)

    def send(self, **notice: str) -> None:
        """Send one notice, such as `READY="1"` or `STATUS="catching up"`; a failure is logged and no more."""
        if not self.address:
            return
        lines = [f"{name}={' '.join(value.split())}" for name, value in notice.items()]
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notices:
                notices.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            self._log.warn(
                "systemd cannot be told {notice}: {error}", notice=notice, error=error.strerror or str(error)
            )


class SystemdNotices(Service):
    """The last service to start and the first to stop: READY, a sign of life twice per watchdog period, STOPPING.

    A sign of life is sent only when `alive` answers, so that systemd restarts a node whose reactor or writer thread
    hangs. STATUS is the line that `systemctl status` shows, sent when it has changed.
    """

    def __init__(
        self, notifier: Notifier, clock: Clock, alive: Callable[[], Awaitable[object]], status: Callable[[], str]
    ) -> None:
        """Make the service.

        Args:
            notifier: where notices go.
            clock: tells the time and wakes us up.
            alive: returns when everything that must not hang has answered.
            status: how the service fares, in one line.
        """
        self._notifier = notifier
        self._alive = alive
        self._status = status
        self._shown = ""
        self._beats: list[Periodic] = []
        if notifier.watchdog_seconds > 0:
            self._beats.append(Periodic(clock, notifier.watchdog_seconds / 2, self._sign, what="the sign of life"))
        if notifier.address:
            self._beats.append(Periodic(clock, STATUS_SECONDS, self._show, what="telling systemd", at_once=True))

    def startService(self) -> None:
        """Say that the node is ready."""
        super().startService()  # type: ignore[no-untyped-call]
        self._notifier.send(READY="1")
        for beat in self._beats:
            beat.startService()

    def stopService(self) -> None:
        """Say that the node stops."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._notifier.send(STOPPING="1", STATUS="stopping")
        for beat in self._beats:
            beat.stopService()

    async def _sign(self) -> None:
        await self._alive()
        if self.running:
            self._notifier.send(WATCHDOG="1")

    def _show(self) -> None:
        status = self._status()
        if status != self._shown:
            self._shown = status
            self._notifier.send(STATUS=status)
