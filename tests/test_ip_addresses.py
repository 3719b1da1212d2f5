"""Parsing IP addresses, and the networks by which they are grouped."""

from ipaddress import ip_address

import pytest

from svcd.ip_addresses import parse_address, parse_literal, prefix


@pytest.mark.parametrize("text", ["", "unknown", "[::1]", "127.1", "010.0.0.1", "192.0.2.1:80", "192.0.2.0/24"])
def test_text_that_is_no_address(text: str) -> None:
    assert parse_literal(text) is None
    assert parse_address(text) is None


def test_a_mapped_address_is_an_ipv4_address_unless_it_is_read_literally() -> None:
    assert str(parse_address("::ffff:203.0.113.9")) == "203.0.113.9"
    assert parse_literal("::ffff:203.0.113.9") == ip_address("::ffff:cb00:7109")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.9", "203.0.0.0/16"),
        ("2001:db8:1:2ff:3::4", "2001:db8:1:200::/56"),
        ("::1", "::/56"),
        ("fe80::1%eth0", "fe80::/56"),
    ],
)
def test_the_network_of_an_address(address: str, network: str) -> None:
    assert prefix(ip_address(address), v4=16, v6=56) == network


@pytest.mark.parametrize("address", ["203.0.113.9", "2001:db8::1"])
def test_the_network_of_a_whole_address_is_written_as_the_address(address: str) -> None:
    assert prefix(ip_address(address), v4=32, v6=128) == address
