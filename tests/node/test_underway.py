"""Work that is counted from its beginning to its end."""

import pytest
from twisted.internet.defer import CancelledError, Deferred

from svcd.node.underway import Underway
from tests.support import has_result, result_of


async def waiting_for(deferred: Deferred[int]) -> int:
    return await deferred


def test_nothing_is_under_way_at_first() -> None:
    assert has_result(Underway().finished())


def test_work_is_under_way_until_it_ends() -> None:
    underway, source = Underway(), Deferred[int]()
    work = underway.keep(waiting_for(source))
    finished = [underway.finished(), underway.finished()]
    assert not any(map(has_result, finished))
    source.callback(7)
    assert result_of(work) == 7
    assert all(map(has_result, finished))
    assert has_result(underway.finished())


def test_every_piece_of_work_is_waited_for() -> None:
    underway, first, second = Underway(), Deferred[int](), Deferred[int]()
    underway.keep(waiting_for(first))
    finished = underway.finished()
    underway.keep(waiting_for(second))
    first.callback(1)
    assert not has_result(finished)
    second.callback(2)
    assert has_result(finished)


def test_work_that_fails_has_ended() -> None:
    underway, source = Underway(), Deferred[int]()
    work = underway.keep(waiting_for(source))
    finished = underway.finished()
    source.errback(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        result_of(work)
    assert has_result(finished)


def test_work_that_nobody_waits_for_is_still_under_way() -> None:
    underway, source = Underway(), Deferred[int]()
    work = underway.keep(waiting_for(source))
    finished = underway.finished()
    work.cancel()
    with pytest.raises(CancelledError):
        result_of(work)
    assert not has_result(finished)
    source.callback(7)
    assert has_result(finished)


def test_new_work_may_begin_when_all_has_ended() -> None:
    underway, first, second = Underway(), Deferred[int](), Deferred[int]()
    underway.keep(waiting_for(first))
    again: list[Deferred[int]] = []
    underway.finished().addCallback(lambda _: again.append(underway.keep(waiting_for(second))))
    first.callback(1)
    finished = underway.finished()
    assert not has_result(finished)
    second.callback(2)
    assert has_result(finished)
    assert result_of(again[0]) == 2
