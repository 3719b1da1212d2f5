"""Token buckets: what passes, what waits, and that nobody can make them grow."""

from ipaddress import IPv6Network, ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.task import Clock
from twisted.web.test.requesthelper import DummyRequest

from svcd.net.addresses import untranslated
from svcd.web.rate_limits import (
    FLOOD_SECONDS,
    Clients,
    FloodDetector,
    Rate,
    RateLimiter,
    TokenBucket,
    client_group,
    parse_networks,
)


def test_burst_passes_at_once_and_the_next_waits_for_its_token() -> None:
    bucket = TokenBucket(Rate(per_second=2, burst=3))

    waits = [bucket.take("a", 1, now=100.0) for _ in range(4)]

    assert waits == [0.0, 0.0, 0.0, pytest.approx(0.5)]


def test_each_client_has_a_bucket_of_its_own() -> None:
    bucket = TokenBucket(Rate(per_second=1, burst=1))
    bucket.take("a", 1, now=0.0)

    assert bucket.take("a", 1, now=0.0) > 0
    assert bucket.take("b", 1, now=0.0) == 0.0


def test_cost_above_the_burst_can_be_paid_from_a_full_bucket() -> None:
    bucket = TokenBucket(Rate(per_second=1, burst=2))

    assert bucket.take("a", 5, now=0.0) == 0.0
    assert bucket.take("a", 5, now=1.0) == pytest.approx(1.0)


def test_rate_of_zero_sets_no_limit_and_remembers_nobody() -> None:
    bucket = TokenBucket(Rate(per_second=0, burst=1))

    assert [bucket.take("a", 1, now=0.0) for _ in range(1000)] == [0.0] * 1000
    assert len(bucket) == 0


def test_clock_set_back_shuts_nobody_out() -> None:
    bucket = TokenBucket(Rate(per_second=1, burst=5))
    for _ in range(5):
        bucket.take("a", 1, now=10_000.0)

    assert bucket.take("a", 1, now=100.0) == pytest.approx(1.0)
    assert bucket.take("a", 1, now=101.1) == 0.0


def test_many_addresses_do_not_make_it_grow() -> None:
    bucket = TokenBucket(Rate(per_second=0.001, burst=1), max_clients=100)

    for n in range(10_000):
        assert bucket.take(str(n), 1, now=float(n) / 1000) == 0.0
        assert len(bucket) <= 100


def test_forgetting_keeps_those_who_owe_most() -> None:
    bucket = TokenBucket(Rate(per_second=0.001, burst=10), max_clients=100)
    for _ in range(10):
        bucket.take("greedy", 1, now=0.0)

    for n in range(1_000):
        bucket.take(str(n), 1, now=1.0)

    assert bucket.take("greedy", 1, now=2.0) > 0


def test_of_clients_that_owe_alike_a_quarter_is_forgotten() -> None:
    bucket = TokenBucket(Rate(per_second=1, burst=10), max_clients=100)
    for number in range(101):
        bucket.take(str(number), 1, 0.0)
    assert len(bucket) == 75


@given(
    rate=st.floats(0.1, 50),
    burst=st.integers(1, 20),
    steps=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 5)), min_size=1, max_size=60),
)
def test_never_more_than_burst_and_inflow(rate: float, burst: int, steps: list[tuple[float, int]]) -> None:
    bucket = TokenBucket(Rate(rate, burst))
    now = passed = 0.0
    for pause, cost in steps:
        now += pause
        wait = bucket.take("a", cost, now)
        if wait == 0.0:
            passed += min(cost, burst)
        else:
            now += wait
            assert bucket.take("a", cost, now + 1e-6) == 0.0, "the wait that was told was too short"
            passed += min(cost, burst)
        assert passed <= burst + rate * now + 1e-3


@pytest.mark.parametrize(("per_second", "burst"), [(-1, 1), (1, 0)])
def test_rates_that_make_no_sense_are_refused(per_second: float, burst: float) -> None:
    with pytest.raises(ValueError, match="must be >="):
        Rate(per_second, burst)


def test_waiting_takes_nothing() -> None:
    bucket = TokenBucket(Rate(per_second=2, burst=4))
    bucket.take("a", 3, now=0.0)

    assert [bucket.wait("a", 2, now=0.0) for _ in range(5)] == [pytest.approx(0.5)] * 5
    assert bucket.wait("b", 4, now=0.0) == 0.0
    assert bucket.take("a", 1, now=0.0) == 0.0


def test_a_debt_is_paid_before_anything_is_taken() -> None:
    bucket = TokenBucket(Rate(per_second=2, burst=10))
    bucket.take("a", 4, now=0.0)
    bucket.owe("a", 12, now=0.0)

    assert bucket.take("a", 1, now=0.0) == pytest.approx(3.5)
    assert bucket.take("a", 1, now=3.0) == pytest.approx(0.5)
    assert bucket.take("a", 1, now=3.5) == 0.0


def test_nobody_owes_more_than_a_burst() -> None:
    bucket = TokenBucket(Rate(per_second=2, burst=10), max_clients=2)
    for client in ("a", "b", "c"):
        bucket.owe(client, 1_000_000, now=0.0)

    assert len(bucket) == 2
    assert bucket.take("c", 1, now=0.0) == pytest.approx(5.5)


def test_nobody_owes_anything_where_there_is_no_limit() -> None:
    bucket = TokenBucket(Rate(per_second=0, burst=1))
    bucket.owe("a", 100, now=0.0)

    assert bucket.take("a", 1, now=0.0) == 0.0
    assert len(bucket) == 0


# Refusals that go on


def test_refusals_that_keep_the_bucket_empty_for_a_minute_are_a_flood() -> None:
    floods = FloodDetector(Rate(per_second=10, burst=100))
    noted = {now: floods.note("a", 21, now) for now in [0.0] * 5 + [float(second) for second in range(1, 70)]}
    assert [now for now, flood in noted.items() if flood] == [float(second) for second in range(60, 70)]
    assert FLOOD_SECONDS == 60


def test_a_pause_begins_the_minute_anew() -> None:
    floods = FloodDetector(Rate(per_second=10, burst=100))
    for now in range(59):
        floods.note("a", 100, now)
    assert not floods.note("a", 100, 58 + 12.0)
    assert not floods.note("a", 100, 58 + 12.0 + 59)
    assert not floods.note("b", 100, 60)


def test_few_refusals_are_never_a_flood() -> None:
    floods = FloodDetector(Rate(per_second=10, burst=100))
    assert not any(floods.note("a", 21, now * 3.0) for now in range(1_000))


def test_without_a_rate_nothing_is_a_flood() -> None:
    floods = FloodDetector(Rate(per_second=0, burst=1))
    assert not any(floods.note("a", 21, now) for now in range(1_000))
    assert len(floods) == 0


def test_the_clients_that_are_remembered_for_it_are_bounded() -> None:
    floods = FloodDetector(Rate(per_second=1, burst=10), max_clients=100)
    floods.note("a", 20, 0.0)
    for number in range(1_000):
        floods.note(f"{number}", 1, 0.0)
        assert len(floods) <= 100
    for now in range(60):
        floods.note("a", 20, now)
    assert floods.note("a", 20, 60.0)


# Who counts as one client, and whose word about it is believed

PROXY = "10.0.0.1"


def tcp(host: str) -> IPv4Address | IPv6Address:
    return IPv6Address("TCP", host, 1) if ":" in host else IPv4Address("TCP", host, 1)


def request(peer: Any, *forwarded: str) -> Any:
    made: Any = DummyRequest([b""])
    made.client = tcp(peer) if isinstance(peer, str) else peer
    made.requestHeaders.setRawHeaders(b"X-Forwarded-For", [line.encode() for line in forwarded])
    return made


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2ff:3::4", "2001:db8:1:200::/56"),
        ("2001:db8:1:300::1", "2001:db8:1:300::/56"),
        ("fe80::1%eth0", "fe80::/56"),
    ],
)
def test_group_of_an_address(address: str, group: str) -> None:
    assert client_group(ip_address(address)) == group


def test_ipv4_mapped_address_is_the_ipv4_address() -> None:
    assert Clients().of_connection(tcp("::ffff:203.0.113.9")) == "203.0.113.9"


def test_ipv4_clients_behind_a_translator_are_told_apart() -> None:
    clients, translated = Clients(), request("2a02:898:146:64::808:808")
    assert clients.address_of_request(translated) == "2a02:898:146:64::808:808"
    clients.counted = lambda address: untranslated(address, [IPv6Network("2a02:898:146:64::/96")])
    assert clients.address_of_request(translated) == "8.8.8.8"
    assert clients.address_of_request(request("2a02:898:146:65::1")) == "2a02:898:146:65::1"


@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.1"])
def test_a_translator_s_address_is_neither_exempt_nor_trusted_for_what_is_inside(inside: str) -> None:
    clients = Clients([f"{inside}/32"], [f"{inside}/32"])
    clients.counted = untranslated
    asking = request(str(ip_address(f"64:ff9b::{inside}")), "8.8.8.8")
    assert clients.of_request(asking) == "64:ff9b::/56"
    assert clients.address_of_request(asking) == str(ip_address(f"64:ff9b::{inside}"))


def test_network_with_host_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="has host bits set"):
        parse_networks(["10.0.0.1/8"])


def test_unix_socket_belongs_to_nobody() -> None:
    clients = Clients()

    assert clients.of_connection(UNIXAddress(b"/run/svcd.sock")) is None
    assert clients.of_request(request(UNIXAddress(b"/run/svcd.sock"))) is None


def test_exempt_client_is_under_no_limit() -> None:
    clients = Clients(exempt=["127.0.0.0/8", "::1/128"])

    assert clients.of_connection(tcp("127.0.0.1")) is None
    assert clients.of_request(request("::1")) is None
    assert clients.of_request(request("203.0.113.9")) == "203.0.113.9"


def test_header_is_ignored_without_trusted_proxies() -> None:
    assert Clients().of_request(request("203.0.113.9", "198.51.100.7")) == "203.0.113.9"


def test_header_of_a_stranger_is_ignored() -> None:
    assert Clients([f"{PROXY}/32"]).of_request(request("203.0.113.9", "198.51.100.7")) == "203.0.113.9"


@pytest.mark.parametrize(
    ("forwarded", "group"),
    [
        (["198.51.100.7"], "198.51.100.7"),
        (["6.6.6.6, 198.51.100.7"], "198.51.100.7"),
        (["6.6.6.6", "198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        (["2001:db8::1"], "2001:db8::/56"),
        (["::ffff:198.51.100.7"], "198.51.100.7"),
        # As Azure's application gateway and some others write it.
        (["198.51.100.8:50123"], "198.51.100.8"),
        (["[2001:db8::1]:443"], "2001:db8::/56"),
        (["[2001:db8::1]"], "2001:db8::/56"),
        (["6.6.6.6:1, 198.51.100.8:50123, 10.0.0.2:443"], "198.51.100.8"),
        (["198.51.100.8:"], PROXY),
        (["198.51.100.8:123456"], PROXY),
        (["[198.51.100.8"], PROXY),
        (["198.51.100.300:1"], PROXY),
        ([], PROXY),
        ([""], PROXY),
        (["10.0.0.3, 10.0.0.2"], PROXY),
        (["198.51.100.7, unknown"], PROXY),
        (["198.51.100.7, \xff"], PROXY),
    ],
)
def test_trusted_proxy_tells_the_last_address_that_nobody_can_forge(forwarded: list[str], group: str) -> None:
    assert Clients(["10.0.0.0/8"]).of_request(request(PROXY, *forwarded)) == group


@pytest.mark.parametrize("peer", ["203.0.113.9", PROXY, "127.0.0.1", UNIXAddress(b"/run/svcd.sock"), "::1"])
@pytest.mark.parametrize("forwarded", [[], ["198.51.100.7"], ["127.0.0.1"], ["unknown"]])
def test_a_request_that_is_noted_draws_from_the_same_buckets(peer: Any, forwarded: list[str]) -> None:
    clients, asking = Clients([f"{PROXY}/32"], exempt=["127.0.0.0/8", "::1"]), request(peer, *forwarded)
    assert clients.note_request(asking, 0.0) == clients.of_request(asking)


@pytest.mark.parametrize("forwarded", ["unknown", "_gateway:80", "198.51.100.7, 198.51.100.8:", "\x1b[31m" + "x" * 900])
def test_what_a_trusted_proxy_sends_and_nobody_can_read_is_an_alarm_for_an_hour(forwarded: str) -> None:
    clients = Clients([f"{PROXY}/32"])
    clients.note_request(request(PROXY, "198.51.100.7"), 0.0)
    assert clients.proxies.alarm(0.0) == ""
    clients.note_request(request(PROXY, forwarded), 10.0)
    alarm = clients.proxies.alarm(3_600.0)
    assert PROXY in alarm
    assert ascii(forwarded.rpartition(", ")[2])[:20] in alarm
    assert alarm.isprintable()
    assert len(alarm) < 400
    assert clients.proxies.alarm(3_610.0) == ""


def test_what_strangers_write_where_a_trusted_proxy_has_named_its_client_is_no_alarm() -> None:
    clients = Clients([f"{PROXY}/32"])
    clients.note_request(request(PROXY, "unknown, 198.51.100.7"), 0.0)
    clients.note_request(request("203.0.113.9", "unknown"), 0.0)
    assert clients.proxies.alarm(0.0) == ""


def test_a_stranger_is_under_its_limit_whatever_it_forwards() -> None:
    assert Clients().note_request(request("203.0.113.9", "198.51.100.7"), 0.0) == "203.0.113.9"


def test_exempt_client_behind_a_proxy() -> None:
    clients = Clients(trusted_proxies=[f"{PROXY}/32"], exempt=["198.51.100.0/24"])

    assert clients.of_request(request(PROXY, "198.51.100.7")) is None


def test_connections_of_a_trusted_proxy_count_for_nobody() -> None:
    clients = Clients([f"{PROXY}/32"])

    assert clients.of_connection(tcp(PROXY)) is None
    assert clients.of_connection(tcp("203.0.113.9")) == "203.0.113.9"


def test_cost_is_drawn_from_the_bucket_of_the_group() -> None:
    clock = Clock()
    limiter = RateLimiter(Clients(), {"read": Rate(1, 1), "broadcast": Rate(1, 1)}, clock)

    assert limiter.take(request("2001:db8::1"), "read", 1) == 0.0
    assert limiter.take(request("2001:db8::2"), "read", 1) == pytest.approx(1.0)
    assert limiter.take(request("203.0.113.9"), "read", 1) == 0.0
    assert limiter.take(request("2001:db8::2"), "broadcast", 1) == 0.0
    clock.advance(1)
    assert limiter.take(request("2001:db8::2"), "read", 1) == 0.0


def test_buckets_have_names() -> None:
    limiter = RateLimiter(Clients(), {"read": Rate(1, 1)}, Clock())

    assert "read" in limiter
    assert "raed" not in limiter


def test_a_client_without_a_group_never_waits() -> None:
    limiter = RateLimiter(Clients(), {"read": Rate(1, 1)}, Clock())

    assert [limiter.take(request(UNIXAddress(b"/s")), "read", 1) for _ in range(5)] == [0.0] * 5


def test_a_penalty_is_drawn_and_counted_with_what_was_paid() -> None:
    limiter, asking = RateLimiter(Clients(), {"p2p": Rate(10, 100)}, Clock()), request("203.0.113.9")
    bucket = limiter.buckets["p2p"]
    assert limiter.take(asking, "p2p", 1) == 0.0
    assert not limiter.penalise(asking, "p2p", 20, paid=1)
    assert bucket.wait("203.0.113.9", 100, 0.0) == pytest.approx(2.1)
    assert not limiter.penalise(asking, "p2p", float("inf"), paid=1)
    assert bucket.wait("203.0.113.9", 1, 0.0) == pytest.approx(10.1)


# A header that is ignored


@pytest.mark.parametrize("peer", [PROXY, "203.0.113.9", "::ffff:203.0.113.9", "127.0.0.1"])
def test_several_clients_in_an_ignored_header_make_a_proxy(peer: str) -> None:
    clients = Clients(exempt=["127.0.0.1/32"])
    limiter = RateLimiter(clients, {"read": Rate(0, 1)}, Clock())
    address = peer.removeprefix("::ffff:")
    for line, forwards in [("6.6.6.6, 198.51.100.7", False), ("198.51.100.7", False), ("198.51.100.8", True)]:
        limiter.take(request(peer, line), "read", 1)
        assert clients.proxies.forwards(address, 0.0) is forwards


@pytest.mark.parametrize("line", ["", "unknown", "198.51.100.7, unknown", "\xff"])
def test_a_header_without_a_client_makes_no_proxy(line: str) -> None:
    clients = Clients()
    limiter = RateLimiter(clients, {"read": Rate(0, 1)}, Clock())
    for header in (line, "198.51.100.7", line):
        limiter.take(request("203.0.113.9", header), "read", 1)
    assert not clients.proxies.forwards("203.0.113.9", 0.0)


def test_a_trusted_proxy_and_a_unix_socket_are_none() -> None:
    clients = Clients(["10.0.0.0/8"])
    limiter = RateLimiter(clients, {"read": Rate(0, 1)}, Clock())
    for peer in (PROXY, UNIXAddress(b"/run/svcd.sock")):
        for client in ("198.51.100.7", "198.51.100.8"):
            limiter.take(request(peer, client), "read", 1)
    assert clients.proxies.alarm(0.0) == ""
    assert clients.proxies.ignored == 0
