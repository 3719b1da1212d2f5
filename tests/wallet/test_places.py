"""Where a node may be, and what is no such place."""

import pytest

from svcd.wallet import backup_commands, node_commands
from svcd.wallet.failed import Failed
from svcd.wallet.places import operator_place, public_place
from tests.operating.test_log_secrecy import ROUTES


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8645", "http://127.0.0.1:8645"),
        ("https://node.example.org/", "https://node.example.org"),
        ("http://[::1]:8645", "http://[::1]:8645"),
        ("http://localhost:65535", "http://localhost:65535"),
    ],
)
def test_a_url_names_scheme_host_and_port(url: str, base: str) -> None:
    place = public_place(url)
    assert (place.base, place.name) == (base, base)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8645",
        "ftp://localhost",
        "http://",
        "http://user@host",
        "http://host:0",
        "http://host:65536",
        "http://host/rpc",
        "http://host?x",
        "http://host#x",
        "http://ho st",
        "http://::1",
        "http://h\u00f6st",
        "http://host\n",
    ],
)
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="a node's URL is http:// or https://, a host and perhaps a port"):
        public_place(url)


def test_a_socket_s_path_fits_the_kernel() -> None:
    assert operator_place("d" * 107).name == "d" * 107
    for path in ("d" * 108, "ü" * 54):
        with pytest.raises(Failed, match="is too long for a Unix socket; give --data-dir relative to where you are"):
            operator_place(path)


def test_the_operator_has_more_patience() -> None:
    assert operator_place("s").seconds > public_place("http://h").seconds


def test_the_node_s_own_refusal_comes_before_the_wallet_gives_up() -> None:
    patience = {"/operator/backup": backup_commands.SECONDS} | dict.fromkeys(
        ("/operator/mine", "/operator/reorganise"), node_commands.DEVNET_SECONDS
    )
    for route in ROUTES:
        place = operator_place("s") if route.bucket == "operator" else public_place("http://h")
        if not route.path.startswith("/p2p/"):
            assert patience.get(route.path, place.seconds) > route.seconds, route.path
