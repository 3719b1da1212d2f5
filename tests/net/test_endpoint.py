"""The endpoint of a node: one value for all spellings of one place."""

import json
import re
from copy import copy
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.net.endpoint import Endpoint
from svcd.net.targets import BadTarget, Rules


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


def test_its_parts() -> None:
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
def test_what_is_none(text: str, sentence: str) -> None:
    with pytest.raises(BadTarget) as refused:
        Endpoint(text)
    assert str(refused.value) == sentence


@given(st.text(st.sampled_from("hHtTpPsS:/[]@.?#%0189aAfFxX"), max_size=32).map(lambda rest: "http://" + rest))
def test_what_is_read_is_canonical_and_can_be_dialled(text: str) -> None:
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
