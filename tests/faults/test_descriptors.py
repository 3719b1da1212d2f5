"""A shell that lets few files be open: clients who drip must not take all of them."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from tests.process_level.conftest import Nodes
from tests.process_level.running import DEADLINE

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(120)]

GRANTED = 200


def test_more_connections_than_the_shell_lets_be_open(instead_of_twistd: Callable[[str], None], nodes: Nodes) -> None:
    instead_of_twistd(f'ulimit -Sn {GRANTED}; exec $TWISTD "$@"')
    # None of those who drip ends by itself: the polite one is answered because they give way, or not at all.
    patient = [f"--set=limits.{name}Seconds=3600" for name in ("header", "request", "idle")]
    node = nodes.start("--network=devnet", "--set=participation.onDemand=true", *patient)
    with ExitStack() as open_ones:
        for number in range(2 * GRANTED):
            source = (f"127.5.0.{number % 100 + 1}", 0)
            drip = socket.create_connection(("127.0.0.1", node.port), DEADLINE, source_address=source)
            open_ones.enter_context(drip).send(b"GET /")
        polite = HTTPConnection("127.0.0.1", node.port, timeout=DEADLINE)
        polite.request("GET", "/rpc/status")
        assert polite.getresponse().status == 200
        polite.close()
