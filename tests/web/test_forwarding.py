"""Proxies that nobody has named: seen by what they forward, bounded, and an alarm."""

import pytest

from svcd.web.forwarding import FORWARDING_SECONDS, MAX_PROXIES, UntrustedProxies

PROXY = "203.0.113.80"


@pytest.fixture
def proxies() -> UntrustedProxies:
    """One that has forwarded for two clients at 0 s."""
    proxies = UntrustedProxies()
    for client in ("192.0.2.1", "192.0.2.2"):
        proxies.note(PROXY, client, 0.0)
    return proxies


def test_one_that_names_several_clients_forwards(proxies: UntrustedProxies) -> None:
    assert proxies.forwards(PROXY, 0.0)
    assert not proxies.forwards("203.0.113.81", 0.0)
    assert proxies.ignored == 2


def test_one_that_always_names_the_same_does_not() -> None:
    proxies = UntrustedProxies()
    for now in range(100):
        proxies.note(PROXY, "192.0.2.1", now)
    assert not proxies.forwards(PROXY, 100)
    assert proxies.alarm(100) == ""
    assert proxies.ignored == 100


def test_it_ends_an_hour_after_the_last(proxies: UntrustedProxies) -> None:
    proxies.note(PROXY, "192.0.2.1", 100.0)
    assert proxies.forwards(PROXY, 100 + FORWARDING_SECONDS - 1)
    assert not proxies.forwards(PROXY, 100 + FORWARDING_SECONDS)
    assert proxies.alarm(100 + FORWARDING_SECONDS) == ""


def test_the_alarm_names_the_address_and_the_key(proxies: UntrustedProxies) -> None:
    assert proxies.alarm(1.0) == (
        f"requests from {PROXY} carry X-Forwarded-For of several clients, which is ignored, so that limits take all of "
        "these for one client: if that is your proxy, name it in [http] trustedProxies"
    )


def test_the_alarm_names_three_and_those_nearby_first(proxies: UntrustedProxies) -> None:
    for address in ("8.8.8.8", "9.9.9.9", "10.0.0.5", "127.0.0.1"):
        for client in ("192.0.2.1", "192.0.2.2"):
            proxies.note(address, client, 1.0)
    told = proxies.alarm(2.0)
    assert "127.0.0.1" in told
    assert "10.0.0.5" in told
    assert " and 2 others carry" in told


def test_the_addresses_that_are_remembered_are_bounded(proxies: UntrustedProxies) -> None:
    for number in range(3 * MAX_PROXIES):
        proxies.note(f"2001:db8::{number:x}", "192.0.2.1", 1.0)
        if number % 100 == 0:
            proxies.note(PROXY, "192.0.2.1", 1.0)
    assert len(proxies._of) == MAX_PROXIES
    assert proxies.forwards(PROXY, 2.0), "one that is in use is not forgotten"
