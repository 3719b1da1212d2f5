"""Batches run one at a time; items that arrive meanwhile form the next one."""

import pytest
from twisted.internet.defer import Deferred

from svcd.commerce import batches
from svcd.commerce.batches import Batches
from tests.support import has_result, result_of


class Work:
    """Batches that end when the test lets them."""

    def __init__(self) -> None:
        self.begun: list[tuple[list[int], Deferred[list[str | Exception]]]] = []

    def do(self, items: list[int]) -> "Deferred[list[str | Exception]]":
        done: Deferred[list[str | Exception]] = Deferred()
        self.begun.append((items, done))
        return done


def test_items_wait_for_the_batch_before_and_then_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_BATCH", 2)
    work = Work()
    together = Batches[int, str](work.do)
    results = [together.add(number) for number in range(4)]
    assert [items for items, _ in work.begun] == [[0]]
    work.begun[0][1].callback(["zero"])
    assert result_of(results[0]) == "zero"
    assert [items for items, _ in work.begun] == [[0], [1, 2]]
    work.begun[1][1].callback(["one", ValueError("two")])
    assert result_of(results[1]) == "one"
    with pytest.raises(ValueError, match="two"):
        result_of(results[2])
    assert not has_result(results[3])
    late = together.add(4)
    work.begun[2][1].errback(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        result_of(results[3])
    work.begun[3][1].callback(["four"])
    assert result_of(late) == "four"
    assert len(work.begun) == 4


def test_a_batch_that_cannot_begin_fails_and_the_next_one_is_done() -> None:
    def refuse(items: list[int]) -> "Deferred[list[str | Exception]]":
        raise KeyError(items[0])

    together = Batches[int, str](refuse)
    for number in range(2):
        with pytest.raises(KeyError):
            result_of(together.add(number))


def test_a_batch_with_too_few_results_fails_for_all_items() -> None:
    work = Work()
    together = Batches[int, str](work.do)
    results = [together.add(number) for number in range(3)]
    work.begun[0][1].callback(["zero"])
    assert result_of(results[0]) == "zero"
    work.begun[1][1].callback(["one"])
    for result in results[1:]:
        with pytest.raises(RuntimeError, match="2 items has 1"):
            result_of(result)
