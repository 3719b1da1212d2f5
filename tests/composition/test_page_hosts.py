"""The hosts that the pages of a configured node answer to."""

from pathlib import Path

import pytest

from svcd.composition.services import page_hosts
from svcd.config.schema import Config, Http
from svcd.pages.resource import PageHosts

LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}


@pytest.mark.parametrize(
    ("http", "names", "addresses"),
    [
        (Http(), LOOPBACK, True),
        (Http(public_url="https://Node.example.org:8443"), {*LOOPBACK, "node.example.org"}, True),
        (Http(public_url="http://[2001:db8::1]:8645"), {*LOOPBACK, "[2001:db8::1]"}, True),
        (Http(public_url="http://a.example", allowed_hosts=("b.example", "::1")), {"b.example", "[::1]"}, False),
    ],
)
def test_allowed_hosts_of_pages(tmp_path: Path, http: Http, names: set[str], addresses: bool) -> None:
    assert page_hosts(Config(data_dir=tmp_path, http=http)) == PageHosts(frozenset(names), addresses=addresses)
