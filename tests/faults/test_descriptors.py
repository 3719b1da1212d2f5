"""A shell that lets few files be open: clients who drip must not take all of them."""

import json
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from tests.faults.conftest import TWISTD
from tests.process_level.conftest import Nodes
from tests.process_level.running import DEADLINE

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(120)]

GRANTED = 200
FEW, IDLE = 256, 400


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


def test_idle_connections_and_few_descriptors_leave_the_operator_s_socket_open(
    instead_of_twistd: Callable[[str], None], nodes: Nodes
) -> None:
    instead_of_twistd(f'ulimit -n {FEW}; exec $TWISTD "$@"')
    patient = [f"--set=limits.{name}Seconds=3600" for name in ("header", "request", "idle")]
    node = nodes.start("--network=devnet", "--set=participation.onDemand=true", *patient)
    with ExitStack() as open_ones:
        for number in range(IDLE):
            source = (f"127.5.0.{number % 100 + 1}", 0)
            open_ones.enter_context(socket.create_connection(("127.0.0.1", node.port), DEADLINE, source_address=source))
        # The operator's tool, and what it shows.
        done = subprocess.run(
            [TWISTD.with_name("svc"), "node", "status", "--json", f"--data-dir={node.data_dir}"],
            capture_output=True,
            timeout=DEADLINE,
            check=True,
        )
        assert json.loads(done.stdout)["height"] == "0"
        assert node.measured("process_max_fds") == FEW
        assert node.measured("process_open_fds") < FEW
        assert node.measured("svcd_http_connections_evicted_total", site="public") >= IDLE - FEW
        assert node.get("/rpc/status").status == 200
        (limit,) = [
            limit for limit in node.operator("/operator/limits").json["limits"] if limit["name"] == "connections"
        ]
        assert limit["value"] == FEW // 4
    assert "EMFILE" not in node.output
    (told,) = node.logged(f"clients get {FEW // 4} connections at once, not the 1000 of [limits] connections")
    assert [event for event in node.events if event["level"] == "warn"] == [told]
