"""Tasks run to their end without their client, and batches run one at a time (svcd/node/tasks.py)."""

from collections.abc import Callable

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogEvent

from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.node import tasks
from svcd.node.tasks import Batches, TaskGroup
from tests.support import has_result, result_of

ExpectedErrors = Callable[..., list[LogEvent]]


async def waiting_for(deferred: Deferred[int]) -> int:
    return await deferred


def test_a_task_gives_its_result() -> None:
    source: Deferred[int] = Deferred()
    result = TaskGroup().start(waiting_for(source))
    assert not has_result(result)
    source.callback(42)
    assert result_of(result) == 42


def test_a_task_gives_its_failure() -> None:
    source: Deferred[int] = Deferred()
    result = TaskGroup().start(waiting_for(source))
    source.errback(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        result_of(result)


def cancelled() -> Deferred[int]:
    """What a task awaits after its own caller has cancelled."""
    source: Deferred[int] = Deferred()
    result = TaskGroup().start(waiting_for(source))
    result.cancel()
    with pytest.raises(CancelledError):
        result_of(result)
    assert not source.called
    return source


def test_cancelling_the_result_leaves_the_task_alone() -> None:
    done: list[int] = []
    source: Deferred[int] = Deferred()

    async def work() -> None:
        done.append(await source)

    result = TaskGroup().start(work())
    result.cancel()
    with pytest.raises(CancelledError):
        result_of(result)
    source.callback(7)
    assert done == [7]


def test_an_error_of_ours_is_logged_when_nobody_waits(expected_errors: ExpectedErrors) -> None:
    cancelled().errback(ZeroDivisionError())
    assert len(expected_errors(ZeroDivisionError)) == 1


@pytest.mark.parametrize("reason", [RuleViolation(Refusal.NONCE, "late"), NotYet(Wait.BUSY, "busy")])
def test_a_refusal_is_no_news_when_nobody_waits(reason: Exception) -> None:
    """The fixture that looks for logged errors is the test."""
    cancelled().errback(reason)


def test_no_task_is_running_at_first() -> None:
    assert has_result(TaskGroup().drained())


def test_a_task_runs_until_it_ends() -> None:
    tasks, source = TaskGroup(), Deferred[int]()
    work = tasks.start(waiting_for(source))
    drained = [tasks.drained(), tasks.drained()]
    assert not any(map(has_result, drained))
    source.callback(7)
    assert result_of(work) == 7
    assert all(map(has_result, drained))
    assert has_result(tasks.drained())


def test_every_task_is_waited_for() -> None:
    tasks, first, second = TaskGroup(), Deferred[int](), Deferred[int]()
    tasks.start(waiting_for(first))
    drained = tasks.drained()
    tasks.start(waiting_for(second))
    first.callback(1)
    assert not has_result(drained)
    second.callback(2)
    assert has_result(drained)


def test_a_task_that_fails_has_ended() -> None:
    tasks, source = TaskGroup(), Deferred[int]()
    work = tasks.start(waiting_for(source))
    drained = tasks.drained()
    source.errback(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        result_of(work)
    assert has_result(drained)


def test_a_cancelled_task_is_still_running() -> None:
    tasks, source = TaskGroup(), Deferred[int]()
    work = tasks.start(waiting_for(source))
    drained = tasks.drained()
    work.cancel()
    with pytest.raises(CancelledError):
        result_of(work)
    assert not has_result(drained)
    source.callback(7)
    assert has_result(drained)


def test_new_work_may_begin_when_all_has_ended() -> None:
    tasks, first, second = TaskGroup(), Deferred[int](), Deferred[int]()
    tasks.start(waiting_for(first))
    again: list[Deferred[int]] = []
    tasks.drained().addCallback(lambda _: again.append(tasks.start(waiting_for(second))))
    first.callback(1)
    drained = tasks.drained()
    assert not has_result(drained)
    second.callback(2)
    assert has_result(drained)
    assert result_of(again[0]) == 2


class Work:
    """Batches that end when the test lets them."""

    def __init__(self) -> None:
        self.begun: list[tuple[list[int], Deferred[list[str | Exception]]]] = []

    def do(self, items: list[int]) -> "Deferred[list[str | Exception]]":
        done: Deferred[list[str | Exception]] = Deferred()
        self.begun.append((items, done))
        return done


def test_items_wait_for_the_batch_before_and_then_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_BATCH", 2)
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
