"""Errors of the node itself: how long the work that met one pauses."""

from collections.abc import Callable

import apsw
import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent
from twisted.python.failure import Failure

from svcd.p2p.own_errors import OwnErrors

ERROR = apsw.IOError("disk I/O error")


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.advance(1_800_000_000.0)
    return clock


@pytest.fixture
def pause(clock: Clock, expected_errors: Callable[..., list[LogEvent]]) -> Callable[[OwnErrors], float]:
    """``pause(errors)``: for how many seconds the work pauses after another error."""

    def note(errors: OwnErrors) -> float:
        errors.note(Failure(ERROR))
        expected_errors(apsw.Error)
        began = clock.seconds()
        while errors.pausing:
            clock.advance(1.0)
        return clock.seconds() - began

    return note


def test_work_without_an_error_does_not_pause(clock: Clock) -> None:
    assert not OwnErrors(clock, "work").pausing


def test_the_pause_doubles_up_to_half_a_minute(clock: Clock, pause: Callable[[OwnErrors], float]) -> None:
    errors = OwnErrors(clock, "work")
    assert [pause(errors) for _ in range(5)] == [5, 10, 20, 30, 30]


def test_half_a_minute_without_an_error_makes_the_next_pause_a_short_one(
    clock: Clock, pause: Callable[[OwnErrors], float]
) -> None:
    errors = OwnErrors(clock, "work")
    pause(errors)
    clock.advance(29.0)
    assert pause(errors) == 10
    clock.advance(30.0)
    assert pause(errors) == 5


def test_an_error_of_work_that_began_earlier_makes_no_pause_longer(
    clock: Clock, expected_errors: Callable[..., list[LogEvent]]
) -> None:
    errors = OwnErrors(clock, "synchronisation")
    for _ in range(3):
        errors.note(Failure(ERROR))
        clock.advance(2.0)
    assert [formatEvent(event) for event in expected_errors(apsw.Error)] == [
        f"synchronisation failed; it is tried again in {seconds} s" for seconds in (5, 3, 1)
    ]
    assert not errors.pausing
