"""Which URLs may be called, and how each of them is written."""

import json
import re
from copy import copy
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.web.client import URI

from svcd.net.targets import BadTarget, Endpoint, Rules, Target

CALLBACK = Rules.for_callbacks()
LENIENT = Rules.for_callbacks(allow_http=True, allow_private=True)
PEER = Rules.for_peers()
DEVNET_PEER = Rules.for_peers(allow_private=True)

REFUSED = [
    # What other programs read in another way.
    ("https://shop.example.com\\@evil.example.net/", "characters"),
    ("https:\\\\shop.example.com/", "characters"),
    ("https://shop.example.com/\n", "characters"),
    ("https://shop.example.com/\tx", "characters"),
    (" https://shop.example.com/", "characters"),
    ("https://shop.example.com/a b", "characters"),
    ("https://shop.example.com/\x7f", "characters"),
    ("https://shop.example.com/\0", "characters"),
    ("https://１２７.0.0.1/", "characters"),  # full-width digits
    ("https://127。0。0。1/", "characters"),  # U+3002
    ("https://bücher.example/", "characters"),
    ("https://shop.example.com/\ud800", "characters"),
    ("https://shop.example.com/#", "fragment"),
    ("https://shop.example.com/#x", "fragment"),
    ("https://shop.example.com#@evil.example.net/", "fragment"),
    ("https://user@shop.example.com/", "credentials"),
    ("https://user:secret@shop.example.com/", "credentials"),
    ("https://@shop.example.com/", "credentials"),
    ("https://shop.example.com:80@evil.example.net/", "credentials"),
    # Schemes.
    ("", "scheme"),
    ("shop.example.com", "scheme"),
    ("//shop.example.com/", "scheme"),
    ("https:shop.example.com/", "scheme"),
    ("https:/shop.example.com/", "scheme"),
    ("http://shop.example.com/", "scheme"),
    ("ftp://shop.example.com/", "scheme"),
    ("file:///etc/passwd", "scheme"),
    ("javascript://shop.example.com/", "scheme"),
    ("https+unix://shop.example.com/", "scheme"),
    # Ports.
    ("https://shop.example.com:/", "port"),
    ("https://shop.example.com:0/", "port"),
    ("https://shop.example.com:+443/", "port"),
    ("https://shop.example.com:-1/", "port"),
    ("https://shop.example.com:0443/", "port"),
    ("https://shop.example.com:4_43/", "port"),
    ("https://shop.example.com:65536/", "port"),
    ("https://shop.example.com:443443/", "port"),
    ("https://shop.example.com:https/", "port"),
    ("https://shop.example.com:443:443/", "port"),
    ("https://shop.example.com:25/", "port"),
    ("https://shop.example.com:6667/", "port"),
    ("https://shop.example.com:10080/", "port"),
    # Names.
    ("https:///x", "host"),
    ("https://", "host"),
    ("https://:443/", "host"),
    ("https://shop/", "host"),
    ("https://shop..example.com/", "host"),
    ("https://.example.com/", "host"),
    ("https://shop.example.com./", "host"),
    ("https://-shop.example.com/", "host"),
    ("https://shop-.example.com/", "host"),
    ("https://sh_op.example.com/", "host"),
    ("https://sh%6fp.example.com/", "host"),
    ("https://shop.example.com,evil.example.net/", "host"),
    ("https://*.example.com/", "host"),
    (f"https://{'a' * 64}.example.com/", "host"),
    (f"https://{'a.' * 127}example.com/", "host"),
    ("https://localhost/", "host"),
    ("https://LOCALHOST/", "host"),
    ("https://shop.localhost/", "host"),
    ("https://printer.local/", "host"),
    ("https://metadata.google.internal/", "host"),
    ("https://router.home.arpa/", "host"),
    ("https://abcdefghijklmnop.onion/", "host"),
    # What ends in a number is an IPv4 address or nothing.
    ("https://2130706433/", "host"),
    ("https://0x7f000001/", "host"),
    ("https://0177.0.0.1/", "host"),
    ("https://127.1/", "host"),
    ("https://127.0.0.0x1/", "host"),
    ("https://127.0.0.1./", "host"),
    ("https://127.0.0.01/", "host"),
    ("https://1.2.3.4.5/", "host"),
    ("https://256.0.0.1/", "host"),
    ("https://shop.example.0x/", "host"),
    ("https://shop.example.42/", "host"),
    # IPv6.
    ("https://[::1/", "host"),
    ("https://::1/", "host"),
    ("https://[]/", "host"),
    ("https://[127.0.0.1]/", "host"),
    ("https://[v1.x]/", "host"),
    ("https://[fe80::1%25eth0]/", "host"),
    ("https://[fe80::1%eth0]/", "host"),
    ("https://[0:0:0:0:0:0:0:1]/", "host"),
    ("https://[2606:4700:0:0::1]/", "host"),
    ("https://[2606:4700::0001]/", "host"),
    ("https://[2606:4700::1]x/", "host"),
    ("https://x[2606:4700::1]/", "host"),
    ("https://[[2606:4700::1]]/", "host"),
    # Paths.
    ("https://shop.example.com/%", "path"),
    ("https://shop.example.com/%zz", "path"),
    ("https://shop.example.com/%4", "path"),
    ("https://shop.example.com/x?", "path"),
    ("https://shop.example.com?", "path"),
    ("https://shop.example.com/x;", "path"),
    ("https://shop.example.com/x;?a=b", "path"),
    # Lengths.
    ("https://shop.example.com/" + "a" * 2024, "length"),
    ("https://shop.example.com/" + "|" * 1000, "length"),
]

ACCEPTED = [
    ("https://shop.example.com/", "https://shop.example.com/"),
    ("https://shop.example.com", "https://shop.example.com/"),
    ("https://shop.example.com?order=7", "https://shop.example.com/?order=7"),
    ("HTTPS://Shop.Example.COM/Hook", "https://shop.example.com/Hook"),
    ("https://shop.example.com:443/", "https://shop.example.com/"),
    ("https://shop.example.com:8443/", "https://shop.example.com:8443/"),
    ("https://shop.example.com:1024/", "https://shop.example.com:1024/"),
    ("https://shop.example.com:65535/", "https://shop.example.com:65535/"),
    ("https://shop.example.com:80/", "https://shop.example.com:80/"),
    ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
    ("https://0xshop.example.com/", "https://0xshop.example.com/"),
    ("https://1.example.com/", "https://1.example.com/"),
    ("https://shop.0xyz/", "https://shop.0xyz/"),
    ("https://notlocal.example/", "https://notlocal.example/"),
    ("https://localhost.example.com/", "https://localhost.example.com/"),
    ("https://198.41.0.4/", "https://198.41.0.4/"),
    ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
    ("https://[2606:4700::ABCD]:8443/", "https://[2606:4700::abcd]:8443/"),
    ("https://shop.example.com/a/../b//c;d?x=%2F&y=a@b:c?", "https://shop.example.com/a/../b//c;d?x=%2F&y=a@b:c?"),
    ("https://shop.example.com//evil.example.net/", "https://shop.example.com//evil.example.net/"),
    ("https://shop.example.com/?ids[]=1|2", "https://shop.example.com/?ids%5B%5D=1%7C2"),
    ("https://shop.example.com/" + "a" * 2023, "https://shop.example.com/" + "a" * 2023),
    (f"https://{'a' * 63}.example.com/", f"https://{'a' * 63}.example.com/"),
]


@pytest.mark.parametrize(("text", "category"), REFUSED)
def test_a_bad_callback_is_refused_with_one_sentence(text: str, category: str) -> None:
    with pytest.raises(BadTarget) as refused:
        CALLBACK.parse(text)
    assert refused.value.category == category
    assert str(refused.value).startswith("callbackUrl must ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("text", "url"), ACCEPTED)
def test_a_good_callback_has_one_canonical_form(text: str, url: str) -> None:
    target = CALLBACK.parse(text)
    assert target.url == url
    assert CALLBACK.parse(url) == target


@pytest.mark.parametrize("port", [1, 7, 20, 25, 69, 161, 427, 548, 989, 1719, 4190, 5061, 6000, 6566, 6697, 10080])
def test_a_port_of_another_protocol_is_refused(port: int) -> None:
    with pytest.raises(BadTarget, match=f"{port} belongs to another protocol"):
        LENIENT.parse(f"http://shop.example.com:{port}/")


def test_the_bad_ports_are_those_of_the_fetch_standard() -> None:
    """Their number and sum as in the table of the standard, which has 82 of them beside port 0."""
    refused = []
    for port in range(1, 65536):
        try:
            LENIENT.parse(f"http://shop.example.com:{port}/")
        except BadTarget:
            refused.append(port)
    assert (len(refused), sum(refused)) == (82, 115_595)


@pytest.mark.parametrize(
    "text",
    [
        "http://shop.example.com/",
        "https://localhost:8443/hook",
        "https://shop/",
        "https://printer.local/",
        "https://metadata.google.internal/",
        "https://router.home.arpa/",
    ],
)
def test_the_operator_can_admit_http_and_private_names(text: str) -> None:
    assert LENIENT.parse(text).url == text
    with pytest.raises(BadTarget):
        CALLBACK.parse(text)


def test_nobody_can_admit_a_name_outside_the_dns() -> None:
    with pytest.raises(BadTarget):
        LENIENT.parse("https://abcdefghijklmnop.onion/")


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("http://node.example.com:8645", "http://node.example.com:8645"),
        ("https://node.example.com", "https://node.example.com"),
        ("http://198.41.0.4:8645", "http://198.41.0.4:8645"),
        ("http://[2606:4700::1111]:8645", "http://[2606:4700::1111]:8645"),
        ("HTTP://Node.Example.com:80", "http://node.example.com"),
    ],
)
def test_a_good_endpoint_has_one_canonical_form(text: str, origin: str) -> None:
    target = PEER.parse(text)
    assert target.origin == origin
    assert PEER.parse(origin) == target


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("http://node.example.com:8645/", "path"),
        ("http://node.example.com:8645/p2p", "path"),
        ("http://node.example.com:8645?x", "path"),
        ("http://node.example.com:8645#x", "fragment"),
        ("http://me@node.example.com:8645", "credentials"),
        ("node.example.com:8645", "scheme"),
        ("http://localhost:8645", "host"),
        ("http://node:8645", "host"),
        ("http://" + "a" * 60 + ".example." * 27 + "com", "length"),
    ],
)
def test_a_bad_endpoint_is_refused(text: str, category: str) -> None:
    with pytest.raises(BadTarget) as refused:
        PEER.parse(text)
    assert refused.value.category == category
    assert str(refused.value).startswith("endpoint must ")


def test_a_devnet_admits_endpoints_on_this_machine() -> None:
    assert DEVNET_PEER.parse("http://localhost:18645").host == "localhost"


def test_a_host_that_is_a_literal_has_an_address() -> None:
    assert str(PEER.parse("http://[2606:4700::1111]").address) == "2606:4700::1111"
    assert str(PEER.parse("http://198.41.0.4").address) == "198.41.0.4"
    assert PEER.parse("http://node.example.com").address is None


def test_a_target_can_be_asked_for_another_path() -> None:
    target = PEER.parse("http://node.example.com:8645").at("/p2p/blocks?from=7&limit=16")
    assert target.url == "http://node.example.com:8645/p2p/blocks?from=7&limit=16"


@pytest.mark.parametrize(
    "path", ["", "p2p", "/a b", "/a#b", "/%", "/x?", "/x;", "/\r\nHost: evil", "@evil.example.net/"]
)
def test_an_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="a path begins with /"):
        PEER.parse("http://node.example.com:8645").at(path)


labels = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9-]{0,20}[A-Za-z0-9])?", fullmatch=True)
hosts = st.one_of(
    st.lists(labels, min_size=1, max_size=3).map(lambda parts: ".".join([*parts, "example"])),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
)
paths = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=60)


@given(
    st.sampled_from(["http", "https"]),
    hosts,
    st.one_of(st.just(""), st.integers(1, 65535).map(lambda port: f":{port}")),
    paths,
)
def test_reading_what_was_written_gives_the_same(scheme: str, host: str, port: str, path: str) -> None:
    try:
        target = LENIENT.parse(f"{scheme}://{host}{port}/{path}")
    except BadTarget:
        return
    assert LENIENT.parse(target.url) == target
    assert DEVNET_PEER.parse(target.origin) == Target(target.scheme, target.host, target.port)
    # The HTTP client of Twisted must read the same origin: it sends the request.
    uri = URI.fromBytes(f"{target.origin}/".encode("ascii"))
    assert (uri.scheme, uri.host, uri.port) == (target.scheme.encode(), target.host.encode(), target.port)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for candidate in (text, f"https://{text}", f"https://shop.example.com{text}"):
        try:
            target = CALLBACK.parse(candidate)
        except BadTarget:
            continue
        assert CALLBACK.parse(target.url) == target


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("::ffff:127.0.0.1", "::ffff:7f00:1"),
        ("::127.0.0.1", "::7f00:1"),
        ("64:ff9b::8.8.8.8", "64:ff9b::808:808"),
        ("2001:0DB8:0:0:1:0:0:1", "2001:db8::1:0:0:1"),
        ("2001:db8::1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
        ("0::0", "::"),
    ],
)
def test_an_ipv6_address_has_one_form_whatever_python_prints(text: str, canonical: str) -> None:
    """Since Python 3.13 ``str`` gives the first of these as ::ffff:127.0.0.1."""
    assert LENIENT.parse(f"https://[{canonical}]/").host == canonical
    with pytest.raises(BadTarget) as refused:
        LENIENT.parse(f"https://[{text}]/")
    assert str(refused.value) == f"callbackUrl must have its IPv6 address in the canonical form, [{canonical}]"


def test_the_form_does_not_come_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IPv6Address, "__str__", lambda _address: "as another version prints it")
    assert LENIENT.parse("https://[::ffff:7f00:1]/").url == "https://[::ffff:7f00:1]/"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("http://node.example", "http://node.example"),
        ("HTTP://Node.EXAMPLE:80", "http://node.example"),
        ("https://node.example:443", "https://node.example"),
        ("https://node.example:80", "https://node.example:80"),
        ("http://LOCALHOST:8645", "http://localhost:8645"),
        ("http://192.0.2.1:80", "http://192.0.2.1"),
        ("http://[2001:DB8::1]:8645", "http://[2001:db8::1]:8645"),
    ],
)
def test_all_spellings_of_one_place_are_one_value(text: str, canonical: str) -> None:
    assert Endpoint(text) == Endpoint(canonical) == canonical
    assert hash(Endpoint(text)) == hash(canonical)
    assert f"{Endpoint(text)}" == canonical
    assert json.dumps([Endpoint(text)]) == json.dumps([canonical])


def test_scheme_port_and_host_tell_places_apart() -> None:
    texts = ["http://a", "https://a", "http://a:8080", "http://b", "http://a.b", "http://192.0.2.1", "http://[::1]"]
    assert len({Endpoint(text) for text in texts}) == len(texts)


def test_an_endpoint_has_its_host_and_its_address() -> None:
    assert Endpoint("http://Node.example:1234").host == "node.example"
    assert Endpoint("http://Node.example").address is None
    assert Endpoint("http://[2001:DB8::1]").host == "2001:db8::1"
    assert Endpoint("http://[2001:DB8::1]").address == ip_address("2001:db8::1")


def test_a_copy_is_the_same_value() -> None:
    endpoint = Endpoint("http://Node.example:80")
    assert Endpoint(endpoint) is endpoint
    assert (type(copy(endpoint)), copy(endpoint)) == (Endpoint, endpoint)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "endpoint must begin with http:// or https://"),
        ("node.example", "endpoint must begin with http:// or https://"),
        ("ftp://a", "endpoint must begin with http:// or https://"),
        ("http://a/", "endpoint must end after the host or port, without a slash, path or query"),
        ("http://u@a", "endpoint must not have a user or a password before an @"),
        ("http://a:22", "endpoint must have another port: 22 belongs to another protocol than HTTP"),
        ("http://a:080", "endpoint must have a port from 1 to 65535, in digits, or none"),
        ("http://1.2.3", "endpoint must have its IPv4 address as four decimal numbers, 192.0.2.1"),
        ("http://[2001:db8:0::1]", "endpoint must have its IPv6 address in the canonical form, [2001:db8::1]"),
        ("http://a.onion", "endpoint must have a host name that the DNS knows"),
        ("http://" + "a." * 124 + "ab", "endpoint must have at most 256 characters"),
    ],
)
def test_invalid_targets(text: str, sentence: str) -> None:
    with pytest.raises(BadTarget) as refused:
        Endpoint(text)
    assert str(refused.value) == sentence


@given(st.text(st.sampled_from("hHtTpPsS:/[]@.?#%0189aAfFxX"), max_size=32).map(lambda rest: "http://" + rest))
def test_a_parsed_target_is_canonical_and_can_be_dialled(text: str) -> None:
    try:
        endpoint = Endpoint(text)
    except BadTarget:
        return
    assert Endpoint(str(endpoint)) == endpoint
    assert endpoint == endpoint.lower()
    assert Rules.for_peers(allow_private=True).parse(endpoint).origin == endpoint


def test_the_urls_of_the_example_configuration_are_endpoints() -> None:
    example = (Path(__file__).parent.parent.parent / "conf" / "svcd.toml").read_text()
    shown = re.findall(r'"(https?://[^"]*)"', example)
    assert shown
    assert [Endpoint(url) for url in shown] == shown
