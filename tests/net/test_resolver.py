"""The system's resolver, with the system's function replaced, and once with the real one."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, execute
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from svcd.net.resolver import MAX_ANSWERS, SystemResolver
from tests.support import result_of


class AtOnce:
    """A worker without threads."""

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "Deferred[Any]":
        return execute(function, *args, **kwargs)


class Threads:
    def __init__(self, pool: ThreadPool) -> None:
        self._pool = pool

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "Deferred[Any]":
        return deferToThreadPool(reactor, self._pool, function, *args, **kwargs)


class System:
    """getaddrinfo, with prepared answers."""

    def __init__(self, *addresses: str) -> None:
        self.asked: list[Any] = []
        self._addresses = addresses

    def __call__(self, host: Any, port: Any, *, type: int) -> list[Any]:  # noqa: A002
        self.asked.append((host, port, type))
        return [
            (socket.AF_INET6, type, 6, "", (address, 0, 0, 0))
            if ":" in address
            else (socket.AF_INET, type, 6, "", (address, 0))
            for address in self._addresses
        ]


def resolve(name: str) -> list[str]:
    return [str(address) for address in result_of(SystemResolver(AtOnce()).resolve(name))]


class Stuck:
    """A worker whose jobs end when the test says so."""

    def __init__(self) -> None:
        self.jobs: dict[str, Deferred[Any]] = {}

    def run(self, _function: Callable[..., Any], *args: Any, **_kwargs: Any) -> "Deferred[Any]":
        return self.jobs.setdefault(args[0], Deferred())


def test_names_that_are_never_answered_take_no_more_than_their_share_of_the_threads() -> None:
    worker = Stuck()
    resolver = SystemResolver(worker, 2)
    first, second, third = (resolver.resolve(f"{name}.example.com") for name in ("a", "b", "c"))
    assert list(worker.jobs) == ["a.example.com", "b.example.com"]

    # Who gives up leaves the thread busy, and the next one waits on.
    first.addErrback(lambda failure: failure.trap(CancelledError))
    first.cancel()
    assert len(worker.jobs) == 2
    worker.jobs["a.example.com"].errback(OSError("late"))
    assert list(worker.jobs)[2:] == ["c.example.com"]
    worker.jobs["b.example.com"].callback(("198.41.0.4",))
    worker.jobs["c.example.com"].errback(OSError(8, "no such name"))
    assert result_of(second) == ("198.41.0.4",)
    with pytest.raises(OSError, match="no such name"):
        result_of(third)

    # What waits for a thread and is cancelled takes none.
    for name in ("d", "e"):
        resolver.resolve(f"{name}.example.com")
    waiting = resolver.resolve("f.example.com")
    waiting.addErrback(lambda failure: failure.trap(CancelledError))
    waiting.cancel()
    worker.jobs["d.example.com"].callback(())
    assert "f.example.com" not in worker.jobs


def test_a_name_is_looked_up_as_an_absolute_one(monkeypatch: pytest.MonkeyPatch) -> None:
    system = System("198.41.0.4", "2606:4700::1111")
    monkeypatch.setattr(socket, "getaddrinfo", system)
    assert resolve("shop.example.com") == ["198.41.0.4", "2606:4700::1111"]
    assert system.asked == [(b"shop.example.com.", None, socket.SOCK_STREAM)]


def test_an_address_counts_once_and_more_than_eight_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [f"198.41.0.{last}" for last in range(20)]
    monkeypatch.setattr(socket, "getaddrinfo", System(*addresses[:2], *addresses))
    assert resolve("shop.example.com") == addresses[:MAX_ANSWERS]


def test_families_take_turns_so_that_neither_fills_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    ipv6 = [f"2606:4700::{last}" for last in range(1, 10)]
    monkeypatch.setattr(socket, "getaddrinfo", System(*ipv6, "198.41.0.4", "198.41.0.5"))
    assert resolve("shop.example.com") == [ipv6[0], "198.41.0.4", ipv6[1], "198.41.0.5", *ipv6[2:6]]


def test_a_scope_id_is_kept_for_the_policy_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", System("fe80::1%lo"))
    assert resolve("shop.example.com") == ["fe80::1%lo"]


@pytest.mark.parametrize("name", ["localhost", "node.localhost"])
def test_this_machine_is_not_looked_up(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    system = System("198.41.0.4")
    monkeypatch.setattr(socket, "getaddrinfo", system)
    assert resolve(name) == ["127.0.0.1", "::1"]
    assert system.asked == []


def test_a_name_that_only_begins_alike_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", System("198.41.0.4"))
    assert resolve("notlocalhost") == ["198.41.0.4"]


@pytest.mark.socket
async def test_the_real_system_says_that_there_is_no_such_name() -> None:
    pool = ThreadPool(minthreads=1, maxthreads=1)
    pool.start()
    try:
        with pytest.raises(OSError):  # noqa: PT011
            await SystemResolver(Threads(pool)).resolve("shop.invalid")
    finally:
        pool.stop()
