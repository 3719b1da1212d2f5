"""sd_notify against a real datagram socket."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, globalLogPublisher

from svcd.process.systemd import Notifier, StartTimeout, SystemdService

pytestmark = pytest.mark.socket

WELL = "STATUS=well"
STOPPING = "STOPPING=1\nSTATUS=stopping"


class Manager:
    """The service manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)

    def received(self) -> list[str]:
        """Everything sent so far: a datagram to a local socket is there when sendto returns."""
        self.socket.setblocking(False)
        notices = []
        while True:
            try:
                notices.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return notices


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.socket.close()


@pytest.fixture
def address(manager: Manager) -> str:
    return str(manager.socket.getsockname())


async def lives() -> None:
    pass


def test_a_notice_is_one_datagram_of_lines(manager: Manager, address: str) -> None:
    Notifier(address).send(READY="1", STATUS="catching up")
    assert manager.received() == ["READY=1\nSTATUS=catching up"]


def test_a_status_cannot_smuggle_in_a_line(manager: Manager, address: str) -> None:
    Notifier(address).send(STATUS="fine\nWATCHDOG=trigger")
    assert manager.received() == ["STATUS=fine WATCHDOG=trigger"]


def test_an_abstract_address_begins_with_at() -> None:
    name = f"svcd-test-{os.getpid()}"
    manager = Manager(f"\0{name}")
    try:
        Notifier(f"@{name}").send(READY="1")
        assert manager.received() == ["READY=1"]
    finally:
        manager.socket.close()


def test_without_a_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("a socket was opened"))
    Notifier.from_environment({}).send(READY="1")


def test_a_manager_that_does_not_listen_is_a_warning(tmp_path: Path) -> None:
    events: list[Any] = []
    globalLogPublisher.addObserver(events.append)
    try:
        Notifier(str(tmp_path / "nobody")).send(READY="1")
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert [(event["log_level"].name, event["error"]) for event in events] == [("warn", "No such file or directory")]


@pytest.mark.parametrize(
    ("environment", "notifier"),
    [
        ({}, Notifier("", 0)),
        ({"NOTIFY_SOCKET": "/run/n"}, Notifier("/run/n", 0)),
        ({"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "30000000"}, Notifier("/run/n", 30)),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, Notifier("", 0.5)),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, Notifier("", 0)),
    ],
)
def test_the_environment_says_where_and_how_often(environment: dict[str, str], notifier: Notifier) -> None:
    assert Notifier.from_environment(environment) == notifier


def test_ready_then_signs_of_life_then_stopping(manager: Manager, address: str) -> None:
    clock = Clock()
    service = SystemdService(Notifier(address, 30), clock, lives, lambda: "well")
    service.startService()
    clock.pump([14, 1, 15])
    service.stopService()
    clock.advance(60)
    assert manager.received() == ["READY=1", WELL, "WATCHDOG=1", "WATCHDOG=1", STOPPING]
    assert not clock.getDelayedCalls()


def test_without_a_watchdog_there_are_no_signs_of_life(manager: Manager, address: str) -> None:
    clock = Clock()
    service = SystemdService(Notifier(address, 0), clock, lives, lambda: "well")
    service.startService()
    clock.pump([5] * 20)
    assert manager.received() == ["READY=1", WELL]


def test_no_sign_of_life_while_something_hangs(manager: Manager, address: str) -> None:
    clock = Clock()
    answer: Deferred[None] = Deferred()

    async def alive() -> None:
        await answer

    service = SystemdService(Notifier(address, 30), clock, alive, lambda: "well")
    service.startService()
    clock.pump([15, 15, 15])
    assert manager.received() == ["READY=1", WELL]
    answer.callback(None)
    assert manager.received() == ["WATCHDOG=1"]
    service.stopService()


def test_no_sign_of_life_after_the_stop(manager: Manager, address: str) -> None:
    clock = Clock()
    answer: Deferred[None] = Deferred()

    async def alive() -> None:
        await answer

    service = SystemdService(Notifier(address, 30), clock, alive, lambda: "well")
    service.startService()
    clock.advance(15)
    service.stopService()
    answer.callback(None)
    assert manager.received() == ["READY=1", WELL, STOPPING]


def test_no_sign_of_life_when_the_question_fails(
    manager: Manager, address: str, expected_errors: Callable[..., Any]
) -> None:
    clock = Clock()

    async def alive() -> None:
        raise OSError

    SystemdService(Notifier(address, 30), clock, alive, lambda: "well").startService()
    clock.pump([15, 15])
    assert manager.received() == ["READY=1", WELL]
    expected_errors(OSError)


def test_a_changed_status_is_sent_to_systemd_after_five_seconds(manager: Manager, address: str) -> None:
    clock, line = Clock(), "height 1"
    service = SystemdService(Notifier(address, 0), clock, lives, lambda: line)
    service.startService()
    assert manager.received() == ["READY=1", "STATUS=height 1"]
    line = "height 2"
    clock.advance(4)
    line = "height 3"
    assert manager.received() == []
    clock.advance(1)
    assert manager.received() == ["STATUS=height 3"]
    clock.pump([5] * 10)
    assert manager.received() == []
    line = "height 1"
    clock.advance(5)
    assert manager.received() == ["STATUS=height 1"]
    service.stopService()
    line = "height 4"
    clock.advance(60)
    assert manager.received() == [STOPPING]
    assert not clock.getDelayedCalls()


def test_outside_systemd_nobody_asks_how_it_fares() -> None:
    clock = Clock()
    service = SystemdService(Notifier(), clock, lives, lambda: pytest.fail("nobody listens"))
    service.startService()
    assert not clock.getDelayedCalls()
    service.stopService()


def test_a_line_that_cannot_be_told_keeps_nothing_from_running(
    manager: Manager, address: str, expected_errors: Callable[..., Any]
) -> None:
    clock = Clock()

    def line() -> str:
        raise LookupError("the tip is not on disk")

    service = SystemdService(Notifier(address, 30), clock, lives, line)
    service.startService()
    clock.advance(15)
    assert manager.received() == ["READY=1", "WATCHDOG=1"]
    service.stopService()
    expected_errors(LookupError)


EXTENSION = "EXTEND_TIMEOUT_USEC=30000000"


def test_a_long_start_asks_for_time_until_everything_runs(manager: Manager, address: str) -> None:
    clock = Clock()
    starting = StartTimeout(Notifier(address, 0), clock)
    starting.startService()
    received = manager.received()
    for _ in range(60):
        clock.advance(10.0)
        received += manager.received()
    assert received == [EXTENSION] * 61
    SystemdService(Notifier(address, 0), clock, lives, lambda: "well", started=starting.stop_accepting).startService()
    clock.pump([10.0] * 60)
    assert manager.received() == ["READY=1", WELL]
    starting.stopService()


def test_a_start_that_hangs_is_left_to_systemd_after_an_hour(manager: Manager, address: str) -> None:
    """A thread that waits for a disk for ever blocks neither the reactor nor its timers."""
    clock = Clock()
    starting = StartTimeout(Notifier(address, 0), clock)
    starting.startService()
    received: list[str] = []
    with capturedLogs() as events:
        for _ in range(2 * 360):
            received += manager.received()
            clock.advance(10.0)
    assert received == [EXTENSION] * 360
    assert [event["log_format"] for event in events] == [
        "the start has not ended after {minutes} minutes; the node asks systemd for no more time, and systemd will end "
        "it soon"
    ]
    assert clock.getDelayedCalls() == []
    starting.stopService()


def test_a_stop_during_the_start_asks_for_no_more_time(manager: Manager, address: str) -> None:
    clock = Clock()
    starting = StartTimeout(Notifier(address, 0), clock)
    starting.startService()
    starting.stop_accepting()
    clock.pump([10.0] * 60)
    assert manager.received() == [EXTENSION]


def test_no_time_is_asked_for_outside_systemd() -> None:
    clock = Clock()
    starting = StartTimeout(Notifier(), clock)
    starting.startService()
    assert clock.getDelayedCalls() == []
    starting.stopService()
