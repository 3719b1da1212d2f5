"""The computer's clock is set, and is trusted again when its time is confirmed."""

import pytest
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from svcd.node.clock_guard import JUMP_SECONDS, STEADY_SECONDS, ClockGuard
from tests.support import SettableClock

HOUR = 3600.0
TWO_DAYS = 48 * HOUR


class Told:
    """A guarded clock, and the peers that confirm its time."""

    def __init__(self, *, peers: int = 0) -> None:
        self.clock = SettableClock()
        self.clock.advance(1_000_000)
        self.guard = ClockGuard(self.clock)
        self.hellos = [self.clock.seconds()] * peers
        self.guard.agreeing = lambda since: sum(at >= since for at in self.hellos)

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.clock.advance(1)
            self.guard.check()

    def hear(self, count: int) -> None:
        """As many peers renew their hellos."""
        self.hellos[:count] = [self.clock.seconds()] * count


@pytest.mark.parametrize("jump", [TWO_DAYS, -TWO_DAYS, HOUR, -HOUR, JUMP_SECONDS])
def test_a_clock_that_jumps_is_not_trusted_from_that_moment_on(jump: float) -> None:
    told = Told(peers=8)
    told.wait(10)
    assert (told.guard.is_trusted(), told.guard.doubt()) == (True, "")
    told.clock.ahead = jump
    # No check has run in between.
    assert not told.guard.is_trusted()
    way = "forward" if jump > 0 else "back"
    assert told.guard.why_no_block() == (
        f"the computer's clock was set {way} by {abs(jump):.0f} s: the node makes no blocks until it is set back, or "
        "has been steady for 5 minutes"
    )
    assert told.guard.doubt().startswith(f"the computer's clock was set {way} by {abs(jump):.0f} s: no watch expires")


def test_a_clock_that_is_kept_right_is_trusted() -> None:
    told = Told(peers=8)
    for _ in range(20):
        told.clock.ahead += JUMP_SECONDS / 3 - 1
        told.wait(STEADY_SECONDS / 2)
        assert told.guard.is_trusted()
    assert told.guard.trusted_milliseconds() == int(told.clock.unix_seconds() * 1000)


@pytest.mark.parametrize(("step", "pause"), [(JUMP_SECONDS - 1, 1), (JUMP_SECONDS - 1, STEADY_SECONDS - 2), (-1, 9)])
def test_small_steps_bring_no_clock_far(step: float, pause: float) -> None:
    told = Told(peers=8)
    for _ in range(100):
        told.clock.ahead += step
        told.wait(pause)
    assert not told.guard.is_trusted()
    assert abs(told.guard.trusted_milliseconds() / 1000 - told.clock.seconds()) < JUMP_SECONDS
    told.wait(2 * STEADY_SECONDS)
    assert not told.guard.is_trusted()
    told.clock.ahead = 0
    told.wait(STEADY_SECONDS + 1)
    assert told.guard.is_trusted()


def test_one_wrong_second_costs_some_minutes_and_needs_no_peer() -> None:
    told = Told()
    told.clock.ahead = TWO_DAYS
    told.wait(1)
    told.clock.ahead = 0
    told.wait(1)
    assert told.guard.doubt() == (
        "the computer's clock was set, and set back: no watch expires until it has been steady for 5 minutes"
    )
    told.wait(STEADY_SECONDS - 1)
    assert not told.guard.is_trusted()
    told.wait(1)
    assert told.guard.is_trusted()


def test_a_clock_that_is_wrong_now_and_then_stops_no_block_while_it_is_right() -> None:
    told = Told()
    for _ in range(10):
        told.clock.ahead = TWO_DAYS
        told.wait(1)
        assert told.guard.why_no_block()
        told.clock.ahead = JUMP_SECONDS - 1
        assert told.guard.why_no_block() == ""
        told.wait(STEADY_SECONDS - 20)
        assert not told.guard.is_trusted()


def test_a_new_time_needs_more_than_half_of_the_peers_from_before() -> None:
    told = Told(peers=8)
    told.clock.ahead = TWO_DAYS
    told.wait(2 * STEADY_SECONDS)
    assert not told.guard.is_trusted()
    told.hear(4)
    told.wait(1)
    assert not told.guard.is_trusted()
    # A liar that repeats this node's own time does not help, however few peers are left.
    del told.hellos[4:]
    told.wait(1)
    assert not told.guard.is_trusted()
    told.hellos.append(told.clock.seconds())
    told.wait(1)
    assert told.guard.is_trusted()
    assert told.guard.trusted_milliseconds() == int(told.clock.unix_seconds() * 1000)


@pytest.mark.parametrize(("before", "after", "enough"), [(8, 4, 3), (40, 8, 5), (8, 2, 2), (8, 1, None)])
def test_after_an_hour_the_peers_that_are_left_confirm_the_time(before: int, after: int, enough: int | None) -> None:
    told = Told(peers=before)
    told.clock.ahead = TWO_DAYS
    told.wait(1)
    del told.hellos[after:]
    told.hear((enough or 2) - 1)
    told.wait(HOUR)
    assert not told.guard.is_trusted()
    told.hear(after)
    told.wait(1)
    assert told.guard.is_trusted() == (enough is not None)


def test_the_alarm_counts_the_peers_that_agree() -> None:
    told = Told(peers=8)
    told.clock.ahead = TWO_DAYS
    told.wait(1)
    told.hear(3)
    assert " and 5 peers agree with it (3 do so far); if it is right" in told.guard.doubt()


def test_peers_that_agreed_with_the_time_before_do_not_count() -> None:
    told = Told(peers=2)
    told.clock.ahead = HOUR
    told.wait(10)
    told.hear(2)
    told.clock.ahead = 2 * HOUR
    told.wait(STEADY_SECONDS + 10)
    assert not told.guard.is_trusted()
    told.hear(2)
    told.wait(1)
    assert told.guard.is_trusted()


def test_without_peers_the_operator_confirms_the_new_time() -> None:
    told = Told()
    told.clock.ahead = -TWO_DAYS
    told.wait(100 * STEADY_SECONDS)
    assert not told.guard.is_trusted()
    assert told.guard.why_no_block() == "", "blocks are made again"
    told.guard.confirm()
    assert told.guard.is_trusted()
    told.wait(1)
    assert told.guard.is_trusted()


def test_what_arrives_has_the_time_of_the_trusted_clock() -> None:
    told = Told()
    told.clock.ahead = 1
    told.wait(1)
    told.clock.ahead = TWO_DAYS
    assert told.guard.trusted_milliseconds() == int((told.clock.seconds() + 1) * 1000)


def test_the_doubt_of_a_second_clock_counts_as_well() -> None:
    told = Told()
    told.guard.second_doubt = lambda: "the clocks differ"
    assert (told.guard.is_trusted(), told.guard.doubt()) == (False, "the clocks differ")


@pytest.mark.parametrize(
    ("jump", "said"),
    [(HOUR, "forward by 3600 s"), (-HOUR, "back by 3600 s"), (1.0, None)],
)
def test_a_change_of_the_clock_is_logged_once(jump: float, said: str | None) -> None:
    told, lines = Told(), []

    def note(event: LogEvent) -> None:
        lines.append((event["log_level"].name, formatEvent(event)))

    globalLogPublisher.addObserver(note)
    try:
        told.wait(3)
        told.clock.ahead = jump
        told.wait(3)
    finally:
        globalLogPublisher.removeObserver(note)
    sentence = f"the computer's clock was set {said}; block times follow the new time; timeouts are not affected"
    assert lines == ([] if said is None else [("warn", sentence)])
