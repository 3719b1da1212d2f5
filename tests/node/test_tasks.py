"""Tasks run to their end without their client."""

from collections.abc import Callable

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogEvent
from twisted.python.failure import Failure

from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.node.tasks import CancellableTasks, TaskGroup
from tests.support import has_result, result_of

ExpectedErrors = Callable[..., list[LogEvent]]


async def waiting_for(deferred: Deferred[int]) -> int:
    return await deferred


def cancelled() -> Deferred[int]:
    """What a task awaits after its own caller has cancelled."""
    source: Deferred[int] = Deferred()
    result = TaskGroup().start(waiting_for(source))
    result.cancel()
    with pytest.raises(CancelledError):
        result_of(result)
    assert not source.called
    return source


def test_an_error_of_ours_is_logged_when_nobody_waits(expected_errors: ExpectedErrors) -> None:
    cancelled().errback(ZeroDivisionError())
    assert len(expected_errors(ZeroDivisionError)) == 1


@pytest.mark.parametrize("reason", [RuleViolation(Refusal.NONCE, "late"), NotYet(Wait.BUSY, "busy")])
def test_a_refusal_is_no_news_when_nobody_waits(reason: Exception) -> None:
    """The fixture that looks for logged errors is the test."""
    cancelled().errback(reason)


def test_a_task_runs_until_it_ends() -> None:
    tasks, source = TaskGroup(), Deferred[int]()
    assert has_result(tasks.drained())
    work = tasks.start(waiting_for(source))
    assert not has_result(work)
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


def test_a_stop_cancels_what_runs_and_begins_nothing() -> None:
    failures: list[Failure] = []
    cancelled: list[Deferred[int]] = []
    tasks = CancellableTasks(failures.append)
    tasks.start(waiting_for(Deferred(cancelled.append)))
    tasks.stop()
    assert len(cancelled) == 1
    tasks.start(waiting_for(Deferred(cancelled.append)))
    tasks.stop()
    assert (len(cancelled), failures) == (1, [])


def test_failures_are_logged_and_finished_tasks_forgotten() -> None:
    failures: list[Failure] = []
    tasks, awaited, ended = CancellableTasks(failures.append), Deferred[int](), Deferred[int]()
    tasks.start(waiting_for(awaited))
    tasks.start(waiting_for(ended))
    ended.callback(1)
    awaited.errback(ZeroDivisionError())
    assert [failure.type for failure in failures] == [ZeroDivisionError]
    tasks.stop()
