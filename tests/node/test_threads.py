"""Work in threads, and work that goes on when nobody waits for it."""

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from twisted.internet import reactor
from twisted.internet.defer import gatherResults
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent

from svcd.node.threads import PoolLoad, PoolStopped, ThreadPoolService, check_threads, tune_interpreter

ExpectedErrors = Callable[..., list[LogEvent]]


@pytest.mark.socket
async def test_one_thread_does_its_work_in_order_and_off_the_reactor() -> None:
    service = ThreadPoolService(reactor, size=1, name="test")
    service.startService()
    try:
        done: list[tuple[int, str]] = []
        await gatherResults(
            [service.run(lambda n=n: done.append((n, threading.current_thread().name))) for n in range(20)]  # type: ignore[misc]
        )
    finally:
        await service.stopService()
    assert [number for number, _ in done] == list(range(20))
    assert len({name for _, name in done}) == 1
    assert threading.current_thread().name not in {name for _, name in done}


@pytest.mark.socket
async def test_stopping_waits_for_the_work_that_was_taken_on() -> None:
    service = ThreadPoolService(reactor, size=1, name="test")
    service.startService()
    done: list[int] = []

    def slow(number: int) -> None:
        time.sleep(0.01)
        done.append(number)

    results = [service.run(slow, number) for number in range(5)]
    stopped = service.stopService()
    assert not stopped.called, "the reactor does not wait for the threads"
    await stopped
    assert done == [0, 1, 2, 3, 4]
    assert all(result.called for result in results)


@pytest.mark.socket
async def test_a_job_after_the_stop_fails_at_once() -> None:
    service = ThreadPoolService(reactor, size=1, name="writer")
    service.startService()
    stopped = service.stopService()
    with pytest.raises(PoolStopped, match="the threads of the pool writer have stopped"):
        await service.run(int)
    await stopped


@pytest.mark.socket
async def test_a_pool_can_grow_before_and_after_its_start() -> None:
    service, met = ThreadPoolService(reactor, size=1, name="test"), threading.Barrier(3)
    service.grow(2)
    service.startService()
    service.grow(3)
    service.grow(1)
    try:
        # Each waits for the two others, each in a thread of its own.
        await gatherResults([service.run(met.wait, 60) for _ in range(3)])
    finally:
        await service.stopService()
    assert service.size == 3


@pytest.mark.socket
async def test_an_exception_in_a_thread_comes_back() -> None:
    service = ThreadPoolService(reactor, size=1, name="test")
    service.startService()
    try:
        with pytest.raises(ZeroDivisionError):
            await service.run(lambda: 1 // 0)
    finally:
        await service.stopService()


def test_a_job_waits_until_a_thread_begins_it() -> None:
    clock = Clock()
    load = PoolLoad(clock)
    times: list[tuple[float, float]] = []
    load.on_done = lambda waited, worked: times.append((waited, worked))

    def work(seconds: float, *, more: float) -> int:
        assert load.waiting == 1
        clock.advance(seconds + more)
        return 7

    first, second = load.job(work), load.job(lambda: 1 // 0)
    assert load.waiting == 2
    clock.advance(3)
    assert first(1, more=1) == 7
    with pytest.raises(ZeroDivisionError):
        second()
    assert load.waiting == 0
    assert times == [(3, 2), (5, 0)]


@pytest.mark.socket
async def test_the_load_of_a_pool_is_known() -> None:
    service = ThreadPoolService(reactor, size=1, name="test")
    load, begun, go_on = service.load, threading.Event(), threading.Event()
    times: list[tuple[float, float]] = []
    load.on_done = lambda waited, worked: times.append((waited, worked))

    def blocked() -> None:
        begun.set()
        go_on.wait(60)

    results = [service.run(blocked), *[service.run(int) for _ in range(3)]]
    assert load.waiting == 4, "no thread has been started"
    service.startService()
    try:
        assert begun.wait(60)
        assert load.waiting == 3
        go_on.set()
        await gatherResults(results)
    finally:
        go_on.set()
        await service.stopService()
    assert load.waiting == 0
    assert len(times) == 4
    assert all(waited >= 0 and worked >= 0 for waited, worked in times)


@pytest.fixture
def switch_interval() -> Iterator[None]:
    before, collections = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(before)
    gc.set_threshold(*collections)


@pytest.mark.usefixtures("switch_interval")
def test_threads_share_the_interpreter_fairly() -> None:
    tune_interpreter()
    assert sys.getswitchinterval() == pytest.approx(0.0005)


@pytest.mark.usefixtures("switch_interval")
def test_the_collector_does_not_walk_over_what_was_there_at_the_start() -> None:
    there: list[object] = []
    assert any(each is there for each in gc.get_objects())
    tune_interpreter()
    assert not any(each is there for each in gc.get_objects())


@pytest.mark.usefixtures("switch_interval")
def test_the_collector_leaves_requests_that_are_under_way_alone() -> None:
    tune_interpreter()
    collections: list[str] = []
    gc.callbacks.append(note := lambda phase, _: collections.append(phase))
    try:
        under_way: list[list[object]] = [[] for _ in range(4_000)]
    finally:
        gc.callbacks.remove(note)
    assert (len(under_way), collections) == (4_000, [])


class Ended:
    """A thread that has ended."""

    def is_alive(self) -> bool:
        return False


@pytest.mark.socket
async def test_a_thread_that_has_died_is_reported_and_ends_the_node(
    expected_errors: Callable[..., list[LogEvent]],
) -> None:
    ended: list[str] = []
    service = ThreadPoolService(reactor, size=2, name="writer")
    check = partial(check_threads, [service], lambda: ended.append("at once"))
    service.startService()
    try:
        check()
        assert (service.dead, ended) == (0, [])
        service._threads.append(Ended())  # type: ignore[arg-type]
        check()
        service._threads.pop()
    finally:
        await service.stopService()
    check()
    assert ended == ["at once"]
    (event,) = expected_errors()
    assert formatEvent(event).startswith("a thread of the pool writer has died, so its jobs cannot finish. ")


def test_system_exit_in_a_thread_is_an_ordinary_error() -> None:
    def work() -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match=r"work in a thread raised SystemExit\(3\)"):
        PoolLoad(Clock()).job(work)()


@pytest.mark.socket
async def test_a_pool_waits_no_longer_than_its_patience() -> None:
    asked, answered = threading.Event(), threading.Event()

    def ask() -> None:
        asked.set()
        answered.wait(30)

    service = ThreadPoolService(reactor, size=1, name="resolver", patience=0.01)
    service.startService()
    result = service.run(ask)
    assert asked.wait(30)
    (thread,) = [thread for thread in threading.enumerate() if "resolver" in thread.name]
    await service.stopService()
    try:
        assert thread.is_alive()
        assert thread.daemon
    finally:
        answered.set()
        await result
        thread.join(30)
