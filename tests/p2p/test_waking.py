"""Waiting for news, but not for ever."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.p2p.waking import Bell
from tests.support import has_result


def waiting(bell: Bell, seconds: float = 10.0) -> "Deferred[None]":
    return Deferred.fromCoroutine(bell.wait(seconds))


def test_a_ring_wakes() -> None:
    clock = Clock()
    bell = Bell(clock)
    done = waiting(bell)
    assert not has_result(done)
    bell.ring()
    assert has_result(done)
    assert clock.getDelayedCalls() == []


def test_time_wakes_too() -> None:
    clock = Clock()
    done = waiting(Bell(clock))
    clock.advance(9.9)
    assert not has_result(done)
    clock.advance(0.1)
    assert has_result(done)
    assert clock.getDelayedCalls() == []


def test_a_ring_that_nobody_waits_for_is_heard_once() -> None:
    clock = Clock()
    bell = Bell(clock)
    bell.ring()
    bell.ring()
    assert has_result(waiting(bell))
    assert not has_result(waiting(bell))
    bell.silence()
    assert clock.getDelayedCalls() == []
