"""Giving way: as long as somebody is in a hurry, and no longer than is allowed."""

from svcd.commerce.courtesy import LONGEST_SECONDS, NAP_SECONDS, Courtesy


def test_a_step_goes_on_as_soon_as_nobody_is_in_a_hurry() -> None:
    answers, naps = [False, True, True, False, True, False], list[float]()
    courtesy = Courtesy(lambda: answers.pop(0), naps.append)
    courtesy.give_way()
    assert not naps
    courtesy.give_way()
    assert naps == [NAP_SECONDS] * 2
    courtesy.give_way()
    assert naps == [NAP_SECONDS] * 3
    assert not answers


def test_one_step_waits_two_seconds_in_all() -> None:
    naps: list[float] = []
    courtesy = Courtesy(lambda: True, naps.append)
    for _ in range(3):
        courtesy.give_way()
        assert abs(sum(naps) - LONGEST_SECONDS) < NAP_SECONDS
