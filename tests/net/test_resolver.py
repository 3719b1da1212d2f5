"""The system's resolver, with the system's function replaced, and once with the real one."""

import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv6Network, ip_address
from typing import Any

import pytest
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.testing import MemoryReactorClock
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from svcd.net.addresses import Address, AddressPolicy
from svcd.net.calls import CallFailed
from svcd.net.http_client import PinnedClient, PinnedConnections
from svcd.net.resolver import FAILED_SECONDS, FOUND_SECONDS, MAX_ANSWERS, Nat64Discovery, SystemResolver, prefixes_of
from svcd.net.targets import Rules
from svcd.net.trust import load_trust
from svcd.node.threads import InlineWorker
from svcd.p2p.call_budget import CallBudget
from svcd.p2p.transport import PeerCallFailed, PeerRequest, PinnedTransport
from tests.support import has_result, result_of


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
    return [str(address) for address in result_of(SystemResolver(InlineWorker()).resolve(name))]


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


def test_a_name_is_looked_up_once_at_a_time_for_all_who_ask() -> None:
    """Asking again and again for one slow name, each time with a new call, must not fill the threads."""
    worker = Stuck()
    resolver = SystemResolver(worker, 2)
    asked = [resolver.resolve("a.example.com") for _ in range(5)]
    assert not resolver.is_full
    asked[0].addErrback(lambda failure: failure.trap(CancelledError))
    asked[0].cancel()
    asked.append(resolver.resolve("a.example.com"))
    worker.jobs.pop("a.example.com").callback(("198.41.0.4",))
    assert [result_of(each) for each in asked[1:]] == [("198.41.0.4",)] * 5
    resolver.resolve("a.example.com")
    assert list(worker.jobs) == ["a.example.com"], "nothing is remembered"
    resolver.resolve("b.example.com")
    assert resolver.is_full


def test_an_error_of_ours_is_logged_although_nobody_waits(expected_errors: Callable[..., object]) -> None:
    worker = Stuck()
    given_up = SystemResolver(worker, 1).resolve("a.example.com")
    given_up.addErrback(lambda failure: failure.trap(CancelledError))
    given_up.cancel()
    worker.jobs["a.example.com"].errback(KeyError("a"))

    expected_errors(KeyError)


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


PLAIN = ("192.0.0.170", "192.0.0.171")
PREFIX = IPv6Network("2a02:898:146:64::/96")
TRANSLATED = ("2a02:898:146:64::c000:aa", "2a02:898:146:64::c000:ab", *PLAIN)
NO_NAME = OSError(-2, "Name or service not known")


def addresses(*texts: str) -> list[Address]:
    return [ip_address(text) for text in texts]


@pytest.mark.parametrize(
    ("answers", "prefixes"),
    [
        ([], []),
        (PLAIN, []),
        (["2606:4700::1111"], []),
        (TRANSLATED, [str(PREFIX)]),
        (["64:ff9b::c000:aa"], ["64:ff9b::/96"]),
        (["2a02:898:c000:aa::"], ["2a02:898::/32"]),
        (["2a02:898:1c0:0:aa::"], ["2a02:898:100::/40"]),
        (["2a02:898:146:c000:0:aa00::"], ["2a02:898:146::/48"]),
        (["2a02:898:146:1c0:0:aa::"], ["2a02:898:146:100::/56"]),
        (["2a02:898:146:64:c0:0:aa00::"], ["2a02:898:146:64::/64"]),
        (["64:ff9b:1:2::c000:ab", "2a02:898:c000:ab::"], ["64:ff9b:1:2::/96", "2a02:898::/32"]),
        (["fe80::c000:aa%eth0"], []),
    ],
)
def test_a_prefix_of_every_length_is_found(answers: Sequence[str], prefixes: Sequence[str]) -> None:
    assert prefixes_of(addresses(*answers)) == tuple(map(IPv6Network, prefixes))


class Dns:
    """A resolver that knows what the test has told it; what it was not told is answered later, or never."""

    def __init__(self, **known: Sequence[str]) -> None:
        self.known: dict[str, Sequence[str] | OSError] = dict(known)
        self.asked: list[str] = []
        self.late: list[Deferred[Sequence[Address]]] = []

    def resolve(self, name: str) -> Deferred[Sequence[Address]]:
        self.asked.append(name)
        answer = self.known.get(name)
        if isinstance(answer, OSError):
            return fail(answer)
        if answer is not None:
            return succeed(addresses(*answer))
        self.late.append(Deferred())
        return self.late[-1]


class Bench:
    def __init__(self) -> None:
        self.reactor = MemoryReactorClock()
        self.dns = Dns()
        self.discovery = Nat64Discovery(self.dns, self.reactor)
        self.caller = PinnedClient(self.reactor, resolver=self.dns, policy=AddressPolicy(), trust=load_trust())

    def pin(self, host: str) -> "Deferred[PinnedConnections]":
        target = Rules.for_peers().parse(f"http://{host}:8645")
        return Deferred.fromCoroutine(self.caller.pin(target, seconds=10))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_one_look_up_serves_all_who_wait_and_all_who_come_soon(bench: Bench) -> None:
    first, second = bench.discovery.prefixes(), bench.discovery.prefixes()
    assert not has_result(first)
    bench.dns.late[0].callback(addresses(*TRANSLATED))
    assert (result_of(first), result_of(second)) == ((PREFIX,), (PREFIX,))
    bench.reactor.advance(FOUND_SECONDS - 1)
    assert result_of(bench.discovery.prefixes()) == (PREFIX,)
    assert bench.dns.asked == ["ipv4only.arpa"]


def test_a_later_look_up_is_not_waited_for(bench: Bench) -> None:
    bench.discovery.prefixes()
    bench.dns.late[0].callback(addresses(*TRANSLATED))
    bench.reactor.advance(FOUND_SECONDS)
    assert result_of(bench.discovery.prefixes()) == (PREFIX,)
    assert result_of(bench.discovery.prefixes()) == (PREFIX,)
    assert len(bench.dns.asked) == 2
    bench.dns.late[1].callback(addresses(*PLAIN))
    assert result_of(bench.discovery.prefixes()) == ()


def test_a_failed_look_up_changes_nothing_and_is_soon_made_again(bench: Bench) -> None:
    first = bench.discovery.prefixes()
    bench.dns.late[0].errback(NO_NAME)
    assert result_of(first) == ()
    bench.reactor.advance(FAILED_SECONDS - 1)
    bench.discovery.prefixes()
    assert len(bench.dns.asked) == 1
    bench.reactor.advance(1)
    bench.discovery.prefixes()
    bench.dns.late[1].callback(addresses(*TRANSLATED))
    bench.reactor.advance(FOUND_SECONDS)
    bench.discovery.prefixes()
    bench.dns.late[2].errback(NO_NAME)
    assert result_of(bench.discovery.prefixes()) == (PREFIX,)


def test_a_look_up_that_fails_for_another_reason_ends_as_well_and_is_logged(
    bench: Bench, expected_errors: Callable[..., object]
) -> None:
    first, second = bench.discovery.prefixes(), bench.discovery.prefixes()
    bench.dns.late[0].errback(RuntimeError("work in a thread raised SystemExit()"))
    assert (result_of(first), result_of(second)) == ((), ())
    expected_errors(RuntimeError)
    bench.reactor.advance(FAILED_SECONDS)
    bench.discovery.prefixes()
    bench.dns.late[1].callback(addresses(*TRANSLATED))
    assert result_of(bench.discovery.prefixes()) == (PREFIX,)


def test_a_call_that_no_longer_waits_leaves_the_others_alone(bench: Bench) -> None:
    first, second = bench.discovery.prefixes(), bench.discovery.prefixes()
    first.cancel()
    with pytest.raises(CancelledError):
        result_of(first)
    bench.dns.late[0].callback(addresses(*TRANSLATED))
    assert result_of(second) == (PREFIX,)


def test_a_call_that_cancels_another_one_leaves_the_rest_alone(bench: Bench) -> None:
    first, second, third = (bench.discovery.prefixes() for _ in range(3))
    first.addCallback(lambda _: second.cancel())
    bench.dns.late[0].callback(addresses(*TRANSLATED))
    with pytest.raises(CancelledError):
        result_of(second)
    assert result_of(third) == (PREFIX,)


# Calls


@pytest.mark.parametrize(
    ("ipv4", "category"),
    [("8.8.8.8", None), ("10.0.0.1", "private"), ("127.0.0.1", "loopback"), ("169.254.169.254", "metadata")],
)
def test_a_call_is_judged_by_the_discovered_prefix(bench: Bench, ipv4: str, category: str | None) -> None:
    bench.dns.known = {"node.example.com": [f"2a02:898:146:64::{ipv4}"], "ipv4only.arpa": TRANSLATED}
    pinned = bench.pin("node.example.com")
    if category is None:
        assert result_of(pinned).address == ip_address("2a02:898:146:64::808:808")
        return
    with pytest.raises(CallFailed) as failed:
        result_of(pinned)
    assert failed.value.category == "refused-address"
    assert str(failed.value) == f"node.example.com has an address that may not be called ({category})"


def test_behind_a_discovered_translator_a_peer_is_at_its_ipv4_address(bench: Bench) -> None:
    network = PinnedTransport(bench.caller, Rules.for_peers(), CallBudget(bench.reactor))
    bench.dns.known = {"node.example.com": ["2a02:898:146:64::8.8.8.8"], "ipv4only.arpa": TRANSLATED}
    endpoint = "http://node.example.com"
    call = network.call(endpoint, PeerRequest(path="/p2p/status", max_bytes=1, seconds=5.0))
    assert network.address_of(endpoint) == "8.8.8.8"
    assert network.untranslated(ip_address("2a02:898:146:64::808:404")) == ip_address("8.8.4.4")
    call.cancel()
    with pytest.raises((CancelledError, PeerCallFailed)):
        result_of(call)
    network.forget(endpoint)


def test_a_literal_is_judged_by_it_too(bench: Bench) -> None:
    bench.dns.known = {"ipv4only.arpa": TRANSLATED}
    with pytest.raises(CallFailed):
        result_of(bench.pin("[2a02:898:146:64::a00:1]"))
    result_of(bench.pin("[2a02:898:146:64::808:808]"))
    result_of(bench.pin("[2a02:898:146:65::a00:1]"))
    assert bench.dns.asked == ["ipv4only.arpa"]


def test_addresses_that_need_no_nat64_prefix_look_up_none(bench: Bench) -> None:
    result_of(bench.pin("8.8.8.8"))
    result_of(bench.pin("[64:ff9b::808:808]"))
    for host in ("[64:ff9b::a00:1]", "[fd00:ec2::254]", "[::1]", "[::ffff:7f00:1]"):
        with pytest.raises(CallFailed):
            result_of(bench.pin(host))
    assert bench.dns.asked == []


def test_until_the_prefixes_are_known_nothing_is_called(bench: Bench) -> None:
    """A slow name server must not be a way around them; the wait is part of the call's time."""
    pinned = bench.pin("[2a02:898:146:64::a00:1]")
    assert not has_result(pinned)
    bench.reactor.advance(10)
    with pytest.raises(CallFailed) as failed:
        result_of(pinned)
    assert failed.value.category == "timeout"


def test_without_an_answer_an_ipv6_address_is_called_as_it_is(bench: Bench) -> None:
    bench.dns.known = {"ipv4only.arpa": NO_NAME}
    assert result_of(bench.pin("[2606:4700::1111]")).address == ip_address("2606:4700::1111")
