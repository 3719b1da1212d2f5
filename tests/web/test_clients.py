"""Who counts as one client, and whose word about it is believed."""

from ipaddress import IPv6Network, ip_address
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.task import Clock
from twisted.web.test.requesthelper import DummyRequest

from svcd.net.addresses import untranslated
from svcd.web.buckets import Buckets, Rate
from svcd.web.clients import Clients, ClientThrottle, Unlimited, client_group, parse_address, parse_networks

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


def test_text_that_is_no_address() -> None:
    assert parse_address("unknown") is None


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
        ([], PROXY),
        ([""], PROXY),
        (["10.0.0.3, 10.0.0.2"], PROXY),
        (["198.51.100.7, unknown"], PROXY),
        (["198.51.100.7, \xff"], PROXY),
    ],
)
def test_trusted_proxy_tells_the_last_address_that_nobody_can_forge(forwarded: list[str], group: str) -> None:
    assert Clients(["10.0.0.0/8"]).of_request(request(PROXY, *forwarded)) == group


def test_exempt_client_behind_a_proxy() -> None:
    clients = Clients(trusted_proxies=[f"{PROXY}/32"], exempt=["198.51.100.0/24"])

    assert clients.of_request(request(PROXY, "198.51.100.7")) is None


def test_connections_of_a_trusted_proxy_count_for_nobody() -> None:
    clients = Clients([f"{PROXY}/32"])

    assert clients.of_connection(tcp(PROXY)) is None
    assert clients.of_connection(tcp("203.0.113.9")) == "203.0.113.9"


def test_throttle_draws_from_the_bucket_of_the_group() -> None:
    clock = Clock()
    throttle = ClientThrottle(Clients(), Buckets({"read": Rate(1, 1)}), clock)

    assert throttle.wait(request("2001:db8::1"), "read", 1) == 0.0
    assert throttle.wait(request("2001:db8::2"), "read", 1) == pytest.approx(1.0)
    assert throttle.wait(request("203.0.113.9"), "read", 1) == 0.0
    clock.advance(1)
    assert throttle.wait(request("2001:db8::2"), "read", 1) == 0.0


def test_throttle_knows_its_rates() -> None:
    throttle = ClientThrottle(Clients(), Buckets({"read": Rate(1, 1)}), Clock())

    assert throttle.knows("read")
    assert not throttle.knows("raed")
    assert Unlimited().knows("raed")


def test_who_belongs_to_no_group_never_waits() -> None:
    throttle = ClientThrottle(Clients(), Buckets({"read": Rate(1, 1)}), Clock())

    assert [throttle.wait(request(UNIXAddress(b"/s")), "read", 1) for _ in range(5)] == [0.0] * 5
    assert Unlimited().wait(request("203.0.113.9"), "read", 1) == 0.0


# A header that is ignored


@pytest.mark.parametrize("peer", [PROXY, "203.0.113.9", "::ffff:203.0.113.9", "127.0.0.1"])
def test_several_clients_in_an_ignored_header_make_a_proxy(peer: str) -> None:
    clients = Clients(exempt=["127.0.0.1/32"])
    throttle = ClientThrottle(clients, Buckets({"read": Rate(0, 1)}), Clock())
    address = peer.removeprefix("::ffff:")
    for line, forwards in [("6.6.6.6, 198.51.100.7", False), ("198.51.100.7", False), ("198.51.100.8", True)]:
        throttle.wait(request(peer, line), "read", 1)
        assert clients.untrusted.forwards(address, 0.0) is forwards


@pytest.mark.parametrize("line", ["", "unknown", "198.51.100.7, unknown", "\xff"])
def test_what_names_no_client_makes_no_proxy(line: str) -> None:
    clients = Clients()
    throttle = ClientThrottle(clients, Buckets({"read": Rate(0, 1)}), Clock())
    for header in (line, "198.51.100.7", line):
        throttle.wait(request("203.0.113.9", header), "read", 1)
    assert not clients.untrusted.forwards("203.0.113.9", 0.0)


def test_a_trusted_proxy_and_a_unix_socket_are_none() -> None:
    clients = Clients(["10.0.0.0/8"])
    throttle = ClientThrottle(clients, Buckets({"read": Rate(0, 1)}), Clock())
    for peer in (PROXY, UNIXAddress(b"/run/svcd.sock")):
        for client in ("198.51.100.7", "198.51.100.8"):
            throttle.wait(request(peer, client), "read", 1)
    assert clients.untrusted.alarm(0.0) == ""
    assert clients.untrusted.ignored == 0
