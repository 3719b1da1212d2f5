"""Turns among connections: few in each turn of the reactor, and none for whoever is gone."""

from collections.abc import Callable

from attrs import frozen
from twisted.internet.task import Clock

from svcd.web.connections import AT_ONCE, Turns


@frozen(eq=False)
class Waiting:
    """Does what the test says when it is its turn."""

    go_on: Callable[[], object]


def test_the_first_to_wait_go_on_first_and_few_at_once() -> None:
    clock = Clock()
    turns, gone_on = Turns(clock), list[int]()
    for number in range(2 * AT_ONCE):
        turns.wait(Waiting(lambda number=number: gone_on.append(number)))  # type: ignore[misc]

    due = clock.getDelayedCalls()
    due[0].func()
    assert gone_on == list(range(AT_ONCE))
    clock.advance(0)

    assert gone_on == list(range(2 * AT_ONCE))
    assert clock.getDelayedCalls() == []


def test_who_is_ended_by_the_turn_of_another_does_not_go_on() -> None:
    clock = Clock()
    turns, gone_on = Turns(clock), list[str]()
    second = Waiting(lambda: gone_on.append("second"))
    turns.wait(Waiting(lambda: turns.forget(second)))
    turns.wait(second)
    turns.wait(Waiting(lambda: gone_on.append("third")))

    clock.advance(0)

    assert gone_on == ["third"]


def test_who_waits_again_has_a_turn_later() -> None:
    clock = Clock()
    turns, gone_on = Turns(clock), list[str]()
    greedy = Waiting(lambda: (gone_on.append("greedy"), len(gone_on) < 3 and turns.wait(greedy)))
    turns.wait(greedy)
    turns.wait(Waiting(lambda: gone_on.append("other")))

    clock.advance(0)

    assert gone_on == ["greedy", "other", "greedy"]
