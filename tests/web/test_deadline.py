"""A deadline passes once, when the time that was set last is over, and has one timer at most."""

from twisted.internet.task import Clock

from svcd.web.channel import Deadline


def deadline_of(clock: Clock, passed: list[float]) -> Deadline:
    return Deadline(clock, lambda: passed.append(clock.seconds()))


def test_the_last_deadline_counts() -> None:
    for times in ((5.0, 20.0), (20.0, 5.0), (5.0, 30.0, 20.0), (5.0,)):
        clock, passed = Clock(), list[float]()
        deadline = deadline_of(clock, passed)
        for seconds in times:
            deadline.set(seconds)
            assert len(clock.getDelayedCalls()) == 1
        clock.pump([1.0] * 40)
        assert passed == [times[-1]]


def test_a_time_that_is_over_passes_at_once() -> None:
    clock, passed = Clock(), list[float]()
    deadline = deadline_of(clock, passed)
    deadline.set(10)
    deadline.set(-1)
    assert passed == [], "but not before whoever sets it has ended"
    clock.advance(0)
    assert passed == [0.0]


def test_no_deadline_is_later_than_the_bound() -> None:
    clock, passed = Clock(), list[float]()
    deadline = deadline_of(clock, passed)
    deadline.set(1)
    deadline.bound(5)
    deadline.bound(50)
    deadline.set(10)
    clock.pump([1.0] * 20)
    assert passed == [5.0]
    deadline.set(10)
    clock.advance(0)
    assert passed == [5.0, 20.0]


def test_an_earlier_deadline_is_bounded_too() -> None:
    clock, passed = Clock(), list[float]()
    deadline = deadline_of(clock, passed)
    deadline.set(60)
    clock.advance(1)
    deadline.bound(5)
    clock.pump([1.0] * 10)
    assert passed == [6.0]


def test_bounding_sets_none() -> None:
    clock, passed = Clock(), list[float]()
    deadline = deadline_of(clock, passed)
    deadline.bound(5)
    assert clock.getDelayedCalls() == []


def test_a_cancelled_one_never_passes_and_may_be_set_again() -> None:
    clock, passed = Clock(), list[float]()
    deadline = deadline_of(clock, passed)
    deadline.cancel()
    deadline.set(1)
    deadline.cancel()
    assert clock.getDelayedCalls() == []
    clock.advance(2)
    deadline.set(1)
    clock.advance(1)
    assert passed == [3.0]
