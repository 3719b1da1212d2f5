"""A shell that lets few files be open: clients who drip must not take all of them."""

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from tests.process_level.conftest import Nodes

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(120)]

GRANTED = 200


def test_more_connections_than_the_shell_lets_be_open(instead_of_twistd: Callable[[str], None], nodes: Nodes) -> None:
    instead_of_twistd(f'ulimit -Sn {GRANTED}; exec $TWISTD "$@"')
    node = nodes.start("--network=devnet", "--set=participation.onDemand=true")
    with ExitStack() as open_ones:
        for number in range(2 * GRANTED):
            source = (f"127.5.0.{number % 100 + 1}", 0)
            drip = open_ones.enter_context(socket.create_connection(("127.0.0.1", node.port), 5, source_address=source))
            drip.send(b"GET /")
        began = time.monotonic()
        polite = HTTPConnection("127.0.0.1", node.port, timeout=5)
        polite.request("GET", "/rpc/status")
        assert polite.getresponse().status == 200
        assert time.monotonic() - began < 5
        polite.close()
