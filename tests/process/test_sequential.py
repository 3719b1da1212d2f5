"""Services that start and stop one at a time."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.application.service import Application, IServiceCollection, Service
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher

from svcd.process.sequential import CannotStart, RootService, ScopedServices, Sequential
from svcd.process.shutdown import CLOSE_SECONDS, StopDeadline
from tests.support import has_result, result_of


class Child(Service):
    """Notes what happens to it; `start` and `stop` say how."""

    def __init__(self, name: str, events: list[str], start: Any = None, stop: Any = None) -> None:
        self.name = name
        self.events = events
        self.start = start
        self.stop = stop

    def startService(self) -> Any:
        self.events.append(f"start {self.name}")
        return self.start() if callable(self.start) else self.start

    def stopService(self) -> Any:
        self.events.append(f"stop {self.name}")
        return self.stop() if callable(self.stop) else self.stop


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def statuses() -> list[int]:
    return []


@pytest.fixture
def logged() -> Iterator[Callable[[], list[str]]]:
    """The lines of the log so far."""
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    yield lambda: [formatEvent(event) for event in events]
    globalLogPublisher.removeObserver(events.append)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def deadline(clock: Clock) -> StopDeadline:
    return StopDeadline(clock, 10)


@pytest.fixture
def group(statuses: list[int], deadline: StopDeadline) -> Sequential:
    return Sequential(statuses.append, deadline)


def test_each_waits_for_the_one_before(group: Sequential, events: list[str]) -> None:
    opened: Deferred[None] = Deferred()
    group.addService(Child("database", events, start=opened))
    group.addService(Child("site", events))
    started = group.startService()
    assert events == ["start database"]
    assert not has_result(started)
    opened.callback(None)
    assert events == ["start database", "start site"]
    assert has_result(started)


def test_stops_one_by_one_in_reverse(group: Sequential, events: list[str]) -> None:
    drained: Deferred[None] = Deferred()
    for child in (Child("database", events), Child("chain_manager", events), Child("site", events, stop=drained)):
        group.addService(child)
    group.startService()
    del events[:]
    stopped = group.stopService()
    assert events == ["stop site"]
    assert not has_result(stopped)
    drained.callback(None)
    assert events == ["stop site", "stop chain_manager", "stop database"]
    assert has_result(stopped)


def test_children_may_be_coroutines(group: Sequential, events: list[str]) -> None:
    async def nothing() -> None:
        await succeed(None)

    group.addService(Child("a", events, start=nothing, stop=nothing))
    result_of(group.startService())
    result_of(group.stopService())
    assert events == ["start a", "stop a"]


def test_a_failure_stops_what_had_started_and_ends_the_process(
    group: Sequential, events: list[str], statuses: list[int], expected_errors: Callable[..., Any]
) -> None:
    closed: Deferred[None] = Deferred()
    taken = fail(CannotStart("cannot listen on tcp:80: address already in use"))
    group.addService(Child("a", events))
    group.addService(Child("database", events, stop=closed))
    group.addService(Child("site", events, start=taken))
    group.addService(Child("never", events))
    started = group.startService()
    assert events == ["start a", "start database", "start site", "stop database"]
    assert statuses == []
    closed.callback(None)
    assert events[-1] == "stop a"
    assert statuses == [1]
    assert has_result(started)
    [event] = expected_errors()
    assert event["problem"] == "cannot listen on tcp:80: address already in use"
    assert "log_failure" not in event


def test_after_a_failure_nothing_is_stopped_twice(
    group: Sequential, events: list[str], expected_errors: Callable[..., Any]
) -> None:
    group.addService(Child("a", events))
    group.addService(Child("b", events, start=fail(CannotStart("no"))))
    group.startService()
    result_of(group.stopService())
    assert events.count("stop a") == 1
    expected_errors()


def test_an_unexpected_failure_is_logged_with_its_traceback(
    group: Sequential, events: list[str], statuses: list[int], expected_errors: Callable[..., Any]
) -> None:
    group.addService(Child("a", events, start=lambda: 1 / 0))
    group.startService()
    [event] = expected_errors(ZeroDivisionError)
    assert event["service"] == "a"
    assert statuses == [1]


def test_other_errors_may_speak_for_themselves(
    statuses: list[int], events: list[str], expected_errors: Callable[..., Any]
) -> None:
    group = Sequential(statuses.append, StopDeadline(Clock(), 10), operator_errors=(KeyError,))
    group.addService(Child("a", events, start=fail(KeyError("the schema is newer"))))
    group.startService()
    [event] = expected_errors()
    assert "log_failure" not in event


def test_stopping_during_the_start_waits_for_the_present_child_and_starts_no_other(
    group: Sequential, events: list[str], statuses: list[int]
) -> None:
    opened: Deferred[None] = Deferred()
    group.addService(Child("database", events, start=opened))
    group.addService(Child("site", events))
    group.startService()
    stopped = group.stopService()
    assert events == ["start database"]
    assert not has_result(stopped)
    opened.callback(None)
    assert events == ["start database", "stop database"]
    assert has_result(stopped)
    assert statuses == []


def test_a_child_that_cannot_stop_keeps_no_other_from_stopping(
    group: Sequential, events: list[str], expected_errors: Callable[..., Any]
) -> None:
    group.addService(Child("a", events))
    group.addService(Child("b", events, stop=lambda: 1 / 0))
    group.startService()
    result_of(group.stopService())
    assert events[-2:] == ["stop b", "stop a"]
    expected_errors(ZeroDivisionError)


# The deadline


class Busy(Child):
    """Has work from outside, which ends when `finished` fires."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.finished: Deferred[None] = Deferred()
        super().__init__(name, events, stop=self.finished)

    def stop_accepting(self) -> None:
        self.events.append(f"{self.name} accepts no more")


def test_all_refuse_new_work_before_the_first_stops(group: Sequential, events: list[str]) -> None:
    operator, public = Busy("operator", events), Busy("public", events)
    for child in (Child("database", events), operator, public, Child("peers", events)):
        group.addService(child)
    result_of(group.startService())
    del events[:]
    stopped = group.stopService()
    assert events == ["public accepts no more", "operator accepts no more", "stop peers", "stop public"]
    for busy in (operator, public):
        busy.finished.callback(None)
    assert events[4:] == ["stop operator", "stop database"]
    assert has_result(stopped)


def test_a_child_that_cannot_refuse_new_work_stops_all_the_same(
    group: Sequential, events: list[str], expected_errors: Callable[..., Any]
) -> None:
    busy = Busy("public", events)
    busy.stop_accepting = lambda: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    busy.finished.callback(None)
    group.addService(busy)
    result_of(group.startService())
    result_of(group.stopService())
    assert events[-1] == "stop public"
    expected_errors(ZeroDivisionError)


def stubborn(events: list[str]) -> Callable[[], Any]:
    """What begins something else whenever it is cancelled, and never ends."""

    async def stop() -> None:
        while True:
            try:
                await Deferred()
            except CancelledError:
                events.append("cancelled")

    return stop


def test_children_that_do_not_stop_share_one_deadline_and_are_named(
    group: Sequential, events: list[str], clock: Clock, logged: Callable[[], list[str]]
) -> None:
    for child in (
        Child("database", events),
        Child("a", events, stop=Deferred),
        Child("b", events, stop=stubborn(events)),
    ):
        group.addService(child)
    result_of(group.startService())
    del events[:]
    stopped = group.stopService()
    clock.advance(9)
    assert events == ["stop b"]
    clock.advance(1)
    # No time is left for the others; each is asked to stop all the same.
    clock.pump([0, 0])
    assert events == ["stop b", "cancelled", "stop a", "stop database"]
    assert has_result(stopped)
    assert [line for line in logged() if "cut off" in line] == [
        "b had not stopped after 10 s and is cut off",
        "a had not stopped after 10 s and is cut off",
    ]


def test_a_start_that_takes_longer_than_the_deadline_is_left_behind(
    group: Sequential, events: list[str], clock: Clock, logged: Callable[[], list[str]]
) -> None:
    opened: Deferred[None] = Deferred()
    group.addService(Child("pool", events))
    group.addService(Child("database", events, start=opened))
    group.startService()
    stopped = group.stopService()
    clock.advance(10)
    assert has_result(stopped)
    assert events[-1] == "stop pool"
    assert "the start had not stopped after 10 s and is cut off" in logged()
    # It is not cancelled: what a thread has opened would otherwise be lost to it.
    assert not opened.called
    opened.callback(None)


def test_opened_resources_are_closed_after_the_deadline(
    clock: Clock, deadline: StopDeadline, events: list[str]
) -> None:
    closed: Deferred[None] = Deferred()

    async def opening() -> str:
        return "database"

    async def closing(it: str) -> None:
        events.append(f"close {it}")
        await closed

    inner = Sequential(lambda _: None, deadline)
    scoped = ScopedServices(
        inner, acquire=opening, services=lambda _: [Child("site", events, stop=Deferred)], release=closing
    )
    root = RootService(lambda _: None, deadline, observer=None)
    for service in (Child("pool", events), scoped):
        root.addService(service)
    result_of(root.startService())
    stopped = root.stopService()
    clock.advance(10)
    assert events[-1] == "close database"
    clock.advance(CLOSE_SECONDS - 1)
    assert not has_result(stopped)
    clock.advance(1)
    assert (events[-1], has_result(stopped)) == ("stop pool", True)


def test_stopping_what_never_started_is_nothing(group: Sequential, events: list[str]) -> None:
    group.addService(Child("a", events))
    result_of(group.stopService())
    assert events == []


def test_a_stopped_group_of_services_starts_again(group: Sequential, events: list[str]) -> None:
    group.addService(Child("a", events))
    for _ in range(2):
        result_of(group.startService())
        result_of(group.stopService())
    assert events == ["start a", "stop a"] * 2


def test_no_service_joins_a_group_that_runs(group: Sequential, events: list[str]) -> None:
    group.startService()
    with pytest.raises(RuntimeError, match="before the group starts"):
        group.addService(Child("late", events))


# What stands on something opened starts after it and stops before it


class Noting(Service):
    def __init__(self, notes: list[str], *, fails: bool = False) -> None:
        self._notes = notes
        self._fails = fails

    def startService(self) -> None:
        self._notes.append("start")
        if self._fails:
            raise RuntimeError("cannot")

    def stopService(self) -> None:
        self._notes.append("stop")


def opened(notes: list[str], service: Service, *, opening_fails: bool = False) -> ScopedServices[str]:
    async def opening() -> str:
        if opening_fails:
            raise LookupError("no file")
        notes.append("open")
        return "it"

    async def closing(it: str) -> None:
        notes.append(f"close {it}")

    group = Sequential(lambda status: notes.append(f"leave {status}"), StopDeadline(Clock(), 10))
    return ScopedServices(group, acquire=opening, services=lambda it: [service], release=closing)


def start(service: ScopedServices[str]) -> Deferred[None]:
    return service.startService()


def test_it_is_open_from_before_the_first_start_to_after_the_last_stop() -> None:
    notes: list[str] = []
    service = opened(notes, Noting(notes))
    result_of(start(service))
    result_of(service.stopService())
    assert notes == ["open", "start", "stop", "close it"]


def test_a_failure_to_open_is_raised_and_nothing_is_started() -> None:
    notes: list[str] = []
    service = opened(notes, Noting(notes), opening_fails=True)
    with pytest.raises(LookupError, match="no file"):
        result_of(start(service))
    assert notes == []


def test_services_that_cannot_be_made_leave_nothing_open() -> None:
    notes: list[str] = []

    async def opening() -> str:
        return "it"

    async def closing(it: str) -> None:
        notes.append(f"close {it}")

    def services(it: str) -> list[Service]:
        raise ValueError("no key")

    group = Sequential(lambda status: notes.append(f"leave {status}"), StopDeadline(Clock(), 10))
    with pytest.raises(ValueError, match="no key"):
        result_of(start(ScopedServices(group, acquire=opening, services=services, release=closing)))
    assert notes == ["close it"]


# The group that twistd runs


def test_a_group_without_an_observer_leaves_the_log_to_twistd() -> None:
    application: Any = Application("a node")
    observer: Any = object()
    deadline = StopDeadline(Clock(), 10)
    with_none = RootService(lambda _: None, deadline, observer=None)
    with_one = RootService(lambda _: None, deadline, observer=observer)
    with_none.setServiceParent(application)
    assert application.getComponent(ILogObserver, None) is None
    with_one.setServiceParent(application)
    assert application.getComponent(ILogObserver) is observer
    assert list(IServiceCollection(application)) == [with_none, with_one]
