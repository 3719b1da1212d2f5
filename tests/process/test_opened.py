"""What stands on something opened starts after it and stops before it."""

import pytest
from twisted.application.service import Service
from twisted.internet.defer import Deferred

from svcd.process.opened import Opened
from svcd.process.sequential import Sequential
from tests.support import result_of


class Noting(Service):
    def __init__(self, notes: list[str], *, fails: bool = False) -> None:
        self._notes = notes
        self._fails = fails

    def startService(self) -> None:
        self._notes.append("start")
        if self._fails:
            raise RuntimeError("cannot")

    def stopService(self) -> None:
        self._notes.append("stop")


def opened(notes: list[str], service: Service, *, opening_fails: bool = False) -> Opened[str]:
    async def opening() -> str:
        if opening_fails:
            raise LookupError("no file")
        notes.append("open")
        return "it"

    async def closing(it: str) -> None:
        notes.append(f"close {it}")

    group = Sequential(lambda status: notes.append(f"leave {status}"))
    return Opened(group, opening=opening, services=lambda it: [service], closing=closing)


def start(service: Opened[str]) -> Deferred[None]:
    return service.startService()


def test_it_is_open_from_before_the_first_start_to_after_the_last_stop() -> None:
    notes: list[str] = []
    service = opened(notes, Noting(notes))
    result_of(start(service))
    result_of(service.stopService())
    assert notes == ["open", "start", "stop", "close it"]


def test_what_cannot_be_opened_is_raised_and_nothing_is_started() -> None:
    notes: list[str] = []
    service = opened(notes, Noting(notes), opening_fails=True)
    with pytest.raises(LookupError, match="no file"):
        result_of(start(service))
    assert notes == []


def test_services_that_cannot_be_made_leave_nothing_open() -> None:
    notes: list[str] = []

    async def opening() -> str:
        return "it"

    async def closing(it: str) -> None:
        notes.append(f"close {it}")

    def services(it: str) -> list[Service]:
        raise ValueError("no key")

    group = Sequential(lambda status: notes.append(f"leave {status}"))
    with pytest.raises(ValueError, match="no key"):
        result_of(start(Opened(group, opening=opening, services=services, closing=closing)))
    assert notes == ["close it"]
