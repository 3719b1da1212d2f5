"""The URL of a node in the configuration: exactly what a hello may carry and a peer can be called at."""

import re
from pathlib import Path

import pytest

from svcd.config.urls import fault_of
from svcd.net.targets import BadTarget, Rules
from svcd.p2p.hello import is_endpoint

LABEL, LONG = "a" * 63, "a." * 123

HOSTS = [
    *["a", "A.Example", "node.example.org", "localhost", "a-b.c--d.e", "xn--bcher-kva.example", "1a", "a.b1"],
    *[LABEL, f"{LABEL}a", "-a", "a-", "a.-b", "a..b", "a.", ".a", "a_b", "", " ", "a b", "bücher.example", "a%20b"],
    *["onion", "x.onion", "x.ONION", "onion.example", "node.internal"],
    *["127.0.0.1", "10.0.0.1", "255.255.255.255", "256.1.1.1", "1.2.3", "1", "01.2.3.4", "1.2.3.4.", "1.2.3.4.5"],
    *["a.1", "a.0x", "0xa", "0XA", "a.0xg", "0x7f000001", "1.2.3.4a", "\uff11.2.3.4"],
    *["[::1]", "[::]", "[2001:db8::1]", "[2001:DB8::1]", "[2001:db8:0::1]", "[::ffff:1.2.3.4]", "[::ffff:102:304]"],
    *["[::1", "::1", "[]", "[1.2.3.4]", "[fe80::1%eth0]", "[fe80::1%25eth0]", "[v1.a]", "[:::]", "[::1]a", "[::g]"],
]
PORTS = ["", ":", ":0", ":1", ":08080", ":8080", ":80", ":443", ":22", ":6000", ":65535", ":65536", ":99999", ":123456"]
OTHERS = [
    *["", "a", "//a", "http:a", "http:/a", "HTTP://a", "hTTps://a", "ftp://a", "ws://a", " http://a", "http://a\n"],
    *["http://a/", "http://a/b", "http://a?", "http://a?b", "http://a#", "http://a#b", "http://a:80/", "http://a\\b"],
    *["http://u@a", "http://u:p@a", "http://@a", "http://a:b", "http://a:+80", "http://a:8 0", "http://a:80:80"],
    *["http://a:\uff18\uff10", "http://a:-1", "http://a:1e3", "http://a:8_0", "http://\u00e4", "http://a\x00"],
]
LENGTHS = [
    scheme + LONG[: length - len(scheme) - len(port) - 1] + "b" + port
    for scheme in ("http://", "https://")
    for port in ("", ":80", ":443", ":8645")
    for length in (252, 253, 254, 255, 256, 257, 258, 259, 260, 261)
]
URLS = [
    *[f"{scheme}://{host}{port}" for scheme in ("http", "https") for host in HOSTS for port in PORTS],
    *[f"http://a:{port}" for port in range(1, 65_536)],
    *OTHERS,
    *LENGTHS,
]


def can_be_dialled(url: str) -> bool:
    try:
        Rules.for_peers(allow_private=True).parse(url)
    except BadTarget:
        return False
    return True


def test_what_is_accepted_is_what_a_hello_may_carry_and_a_peer_can_be_called_at() -> None:
    accepted = {url for url in URLS if fault_of(url) is None}
    assert accepted == {url for url in URLS if is_endpoint(url) and can_be_dialled(url)}
    assert {"http://a", "https://[::1]:8080", "http://127.0.0.1:65535"} < accepted
    # Neither of the two rules would do alone.
    assert any(is_endpoint(url) and not can_be_dialled(url) for url in URLS)
    assert any(can_be_dialled(url) and not is_endpoint(url) for url in URLS)


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://a/", 'must be "http://host:port" or "https://host:port" without a user, path or slash at the end'),
        ("http://a:", 'must be "http://host:port" or "https://host:port" without a user, path or slash at the end'),
        ("http://[2001:DB8::1]:80", "must have its IPv6 address in the canonical form, [2001:db8::1]"),
        ("http://[:::]", "must have an IPv6 address in its brackets"),
        ("http://a:08080", "must have a port from 1 to 65535 without zeros in front, or none"),
        ("http://a:65536", "must have a port from 1 to 65535 without zeros in front, or none"),
        ("http://a:22", "must have another port, for 22 belongs to another protocol than HTTP"),
        ("http://1.2.3:80", "must have its IPv4 address as four decimal numbers, such as 192.0.2.1"),
        ("http://a.onion", "must have a host name that the DNS can know, such as node.example.org, or an IP address"),
        ("http://-a", "must have a host name that the DNS can know, such as node.example.org, or an IP address"),
        (f"https://{LONG}ab:8645", "must have at most 256 characters, with a slash at the end"),
    ],
)
def test_a_refusal_says_what_would_be_right(url: str, fault: str) -> None:
    assert fault_of(url) == fault


def test_the_urls_of_the_example_are_accepted() -> None:
    example = (Path(__file__).parent.parent / "conf" / "svcd.toml").read_text()
    shown = re.findall(r'"(https?://[^"]*)"', example)
    assert shown
    assert [url for url in shown if fault_of(url) is not None] == []
