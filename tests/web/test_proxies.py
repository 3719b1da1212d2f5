"""Proxies that nobody has named: seen by what they forward, bounded, and an alarm."""

import pytest
from twisted.logger import capturedLogs, formatEvent

from svcd.web.proxies import DOUBT_SECONDS, FORWARDING_SECONDS, LOG_SECONDS, MAX_PROXIES, Proxies

PROXY = "203.0.113.80"


@pytest.fixture
def proxies() -> Proxies:
    """One that has forwarded for two clients at 0 s."""
    proxies = Proxies()
    for client in ("192.0.2.1", "192.0.2.2"):
        proxies.note(PROXY, client, 0.0)
    return proxies


def test_an_address_that_names_several_clients_is_a_proxy(proxies: Proxies) -> None:
    assert proxies.forwards(PROXY, 0.0)
    assert not proxies.forwards("203.0.113.81", 0.0)
    assert proxies.ignored == 2


def test_an_address_that_names_one_client_is_no_proxy() -> None:
    proxies = Proxies()
    for now in range(100):
        proxies.note(PROXY, "192.0.2.1", now)
    assert not proxies.forwards(PROXY, 100)
    assert proxies.alarm(100) == ""
    assert proxies.ignored == 100


def test_it_ends_an_hour_after_the_last(proxies: Proxies) -> None:
    proxies.note(PROXY, "192.0.2.1", 100.0)
    assert proxies.forwards(PROXY, 100 + FORWARDING_SECONDS - 1)
    assert not proxies.forwards(PROXY, 100 + FORWARDING_SECONDS)
    assert proxies.alarm(100 + FORWARDING_SECONDS) == ""


def test_the_alarm_names_the_address_and_the_key(proxies: Proxies) -> None:
    assert proxies.alarm(1.0) == (
        f"requests from {PROXY} carry X-Forwarded-For of several clients, which is ignored, so that limits take all of "
        "these for one client: if that is your proxy, name it in [http] trustedProxies"
    )


def forward(proxies: Proxies, address: str, now: float) -> None:
    for client in ("192.0.2.1", "192.0.2.2"):
        proxies.note(address, client, now)


def test_of_ipv6_a_proxy_is_its_64(proxies: Proxies) -> None:
    proxies.note("2a02:898:1:2::1", "192.0.2.1", 0.0)
    proxies.note("2a02:898:1:2::2", "192.0.2.2", 0.0)
    assert proxies.forwards("2a02:898:1:2::3", 1.0)
    assert not proxies.forwards("2a02:898:1:3::1", 1.0)


# A proxy with a public address


def test_a_proxy_with_a_public_address_is_an_alarm_once_it_has_stayed_the_only_way() -> None:
    """The operator's own proxy may be on another machine, or a service: then everybody comes through it."""
    proxies = Proxies()
    for now in range(0, 1_200, 10):
        forward(proxies, "8.8.8.8", now)
        for scanner in ("1.1.1.1", "1.2.1.1", "1.1.7.7", "1.3.1.1"):
            proxies.note_direct(scanner, now)
        proxies.note_direct("8.8.8.8", now)
        proxies.note_direct("127.0.0.1", now)
        assert bool(proxies.alarm(now)) is (now >= DOUBT_SECONDS)
    assert "requests from 8.8.8.8 carry" in proxies.alarm(1_200)


def test_a_stranger_who_writes_the_header_is_no_alarm_where_others_come_without_a_proxy() -> None:
    proxies = Proxies()
    for now in range(0, 7_200, 60):
        if now % 300 == 0:
            for part in range(4):
                proxies.note_direct(f"60.{part}.1.1", now)
        for machine in range(100):
            address = f"2a02:898:1:{now + machine:x}::1"
            proxies.note_direct(address, now)
            forward(proxies, address, now)
        forward(proxies, "8.8.8.8", now)
        assert proxies.alarm(now) == ""
    assert proxies.forwards("8.8.8.8", now), "nor is it banned"


def test_a_proxy_nearby_is_an_alarm_whoever_else_comes() -> None:
    proxies = Proxies()
    for part in range(9):
        proxies.note_direct(f"60.{part}.1.1", 0.0)
    forward(proxies, "8.8.8.8", 0.0)
    forward(proxies, "10.0.0.5", 0.0)
    assert "requests from 10.0.0.5 carry" in proxies.alarm(DOUBT_SECONDS)


def test_clients_of_an_hour_ago_do_not_count() -> None:
    proxies = Proxies()
    for part in range(9):
        proxies.note_direct(f"60.{part}.1.1", 0.0)
    forward(proxies, "8.8.8.8", 1_000.0)
    forward(proxies, "8.8.8.8", 3_000.0)
    assert proxies.alarm(FORWARDING_SECONDS - 1) == ""
    assert "8.8.8.8" in proxies.alarm(FORWARDING_SECONDS)


def test_it_is_logged_at_once_and_one_an_hour_at_most() -> None:
    proxies = Proxies()
    with capturedLogs() as logged:
        forward(proxies, "10.0.0.5", 0.0)
        for number in range(100):
            forward(proxies, f"8.8.{number}.8", number)
        forward(proxies, "9.9.9.9", LOG_SECONDS)
    assert [formatEvent(event) for event in logged] == [
        f"requests from {address} carry X-Forwarded-For of several clients, which is ignored: if that is your proxy, "
        "name it in [http] trustedProxies"
        for address in ("8.8.0.8", "9.9.9.9")
    ]


def test_the_alarm_names_three_and_those_nearby_first(proxies: Proxies) -> None:
    for address in ("8.8.8.8", "9.9.9.9", "10.0.0.5", "127.0.0.1"):
        forward(proxies, address, 1.0)
    told = proxies.alarm(1.0 + DOUBT_SECONDS)
    assert "127.0.0.1" in told
    assert "10.0.0.5" in told
    assert " and 2 others carry" in told


# Floods


@pytest.mark.parametrize("proxy", ["8.8.8.8", "10.0.0.5", "2a02:898:1:ffff::1"])
@pytest.mark.parametrize("clients", [1, 2])
def test_a_flood_of_addresses_makes_no_proxy_forgotten(proxy: str, clients: int) -> None:
    proxies = Proxies()
    forward(proxies, proxy, 0.0)
    for number in range(3 * MAX_PROXIES):
        for client in range(clients):
            proxies.note(f"2a02:898:1:{number:x}::1", f"192.0.2.{client}", 1.0)
    assert len(proxies) == MAX_PROXIES
    assert proxies.forwards(proxy, 2.0)


@pytest.mark.parametrize("clients", [1, 2])
def test_nor_does_it_keep_one_from_being_noticed(clients: int) -> None:
    proxies = Proxies()
    for number in range(3 * MAX_PROXIES):
        for client in range(clients):
            proxies.note(f"2a02:898:1:{number:x}::1", f"192.0.2.{client}", 1.0)
    proxies.note("8.8.8.8", "192.0.2.1", 2.0)
    for number in range(MAX_PROXIES):
        proxies.note(f"2a02:898:2:{number:x}::1", "192.0.2.1", 3.0)
    proxies.note("8.8.8.8", "192.0.2.2", 4.0)
    assert len(proxies) == MAX_PROXIES
    assert proxies.forwards("8.8.8.8", 5.0)


def test_no_proxy_is_forgotten_for_one_more_where_each_is_in_another_part_of_the_network() -> None:
    proxies = Proxies()
    for number in range(MAX_PROXIES):
        forward(proxies, f"{60 + number // 256}.{number % 256}.1.1", 1.0)
    proxies.note("8.8.8.8", "192.0.2.1", 2.0)
    assert len(proxies) == MAX_PROXIES
    assert all(proxies.forwards(f"{60 + n // 256}.{n % 256}.1.1", 2.0) for n in range(MAX_PROXIES))
    assert not proxies.forwards("8.8.8.8", 2.0)
