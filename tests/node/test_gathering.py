"""What comes in while work is being done is done together next."""

from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred

from svcd.node.gathering import Gathering
from tests.support import has_result, result_of


class Slow:
    """Work that is done when the test says so."""

    def __init__(self) -> None:
        self.items: list[Sequence[int]] = []
        self.results: list[Deferred[list[int]]] = []

    def __call__(self, items: Sequence[int]) -> Deferred[list[int]]:
        self.items.append(items)
        self.results.append(Deferred())
        return self.results[-1]


def test_the_first_item_does_not_wait_and_the_others_go_together() -> None:
    work = Slow()
    gathering = Gathering(work)
    results = [gathering.add(number) for number in (1, 2, 3)]
    assert work.items == [[1]]
    work.results[0].callback([10])
    assert work.items == [[1], [2, 3]]
    assert [has_result(result) for result in results] == [True, False, False]
    work.results[1].callback([20, 30])
    assert [result_of(result) for result in results] == [10, 20, 30]


def test_work_that_is_done_at_once_gathers_nothing() -> None:
    def tenfold(items: Sequence[int]) -> Deferred[list[int]]:
        done: Deferred[list[int]] = Deferred()
        done.callback([10 * item for item in items])
        return done

    gathering = Gathering(tenfold)
    assert [result_of(gathering.add(number)) for number in (1, 2)] == [10, 20]


def test_a_failure_is_told_to_those_it_concerns_and_the_work_goes_on() -> None:
    work = Slow()
    gathering = Gathering(work)
    results = [gathering.add(number) for number in (1, 2, 3)]
    work.results[0].callback([10])
    last = gathering.add(4)
    work.results[1].errback(OSError("no disk"))
    for result in results[1:]:
        with pytest.raises(OSError, match="no disk"):
            result_of(result)
    work.results[2].callback([40])
    assert result_of(last) == 40
