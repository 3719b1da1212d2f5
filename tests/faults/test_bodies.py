"""Clients that begin large requests and never complete them: other clients are served meanwhile."""

import json
import socket
import time
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from svcd.p2p.routes import BODY_CAPS
from svcd.web.connections import LOG_SECONDS
from tests.faults.test_answers import resident_mib
from tests.process_level.conftest import Nodes
from tests.process_level.running import DEADLINE, RunningNode

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(120)]

CAP = BODY_CAPS[b"POST", b"/p2p/block"]
HALF_DONE = 32
"""Together they would hold all bytes that a site has for bodies, but for a few."""
PROXY = "127.0.0.1"


def begin(stack: ExitStack, node: RunningNode, source: str, forwarded_for: str | None = None) -> None:
    """Send all but the last byte of a block, of which nothing is read."""
    header = f"X-Forwarded-For: {forwarded_for}\r\n" if forwarded_for else ""
    head = f"POST /p2p/block HTTP/1.1\r\nHost: h\r\n{header}Content-Length: {CAP}\r\n\r\n".encode()
    attacker = socket.create_connection(("127.0.0.1", node.port), DEADLINE, source_address=(source, 0))
    stack.enter_context(attacker).sendall(head + bytes(CAP - 1))


def statuses(node: RunningNode, *, forwarded: bool) -> dict[str, int]:
    """What the routes that take bodies answer other clients, each at an address of its own."""
    recipient = node.operator("/operator/status").json["status"]["participation"]["address"]
    bodies = {
        "/p2p/hello": {"hello": {}},
        "/rpc/broadcast": {"transaction": {}},
        "/rpc/commerce/payment-request": {"recipient": recipient, "amount": "1"},
        "/p2p/block": {"block": "x" * (CAP - 12)},
    }
    found = {}
    for number, (path, body) in enumerate(bodies.items(), 1):
        client = f"127.6.0.{number}"
        source, headers = (PROXY, {"X-Forwarded-For": client}) if forwarded else (client, {})
        connection = HTTPConnection("127.0.0.1", node.port, timeout=DEADLINE, source_address=(source, 0))
        connection.request("POST", path, json.dumps(body, separators=(",", ":")).encode(), headers)
        found[path] = connection.getresponse().status
        connection.close()
    return found


SERVED = {"/p2p/hello": 400, "/rpc/broadcast": 400, "/rpc/commerce/payment-request": 200, "/p2p/block": 400}


@pytest.mark.parametrize("attackers", [1, HALF_DONE], ids=["of-one-address", "of-many"])
@pytest.mark.parametrize("forwarded", [False, True], ids=["direct", "through-a-proxy"])
def test_bodies_that_are_never_completed(nodes: Nodes, attackers: int, forwarded: bool) -> None:
    patient = [f"--set=limits.{name}Seconds=3600" for name in ("header", "request", "idle")]
    trusting = f'--set=http.trustedProxies=["{PROXY}/32"]'
    node = nodes.start("--network=devnet", "--set=participation.onDemand=true", trusting, *patient)
    began = time.monotonic()
    with ExitStack() as stack:
        for number in range(HALF_DONE):
            address = f"127.5.0.{number % attackers + 1}"
            begin(stack, node, PROXY if forwarded else address, address if forwarded else None)
        assert statuses(node, forwarded=forwarded) == SERVED
    assert node.measured("svcd_http_bodies_evicted_total", site="public") > 0
    lines = [event["message"] for event in node.logged("dropped to make room")]
    assert 1 <= len(lines) <= 1 + (time.monotonic() - began) / LOG_SECONDS
    assert "127.5.0." in lines[0]


NAME_BYTES = 15_000
NAMES = 2_000


def test_long_names_of_headers_do_not_stay_in_memory(nodes: Nodes) -> None:
    node = nodes.start()
    before = resident_mib(node)
    with socket.create_connection(("127.0.0.1", node.port), DEADLINE) as client:
        answers = client.makefile("rb")
        for number in range(NAMES):
            name = b"x%d-" % number + b"y" * NAME_BYTES
            client.sendall(b"GET /p2p/status HTTP/1.1\r\nHost: h\r\n%b: 1\r\n\r\n" % name)
            assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
            length = next(int(line.split(b":")[1]) for line in answers if line.startswith(b"Content-Length:"))
            while answers.readline() != b"\r\n":
                pass
            answers.read(length)
    # They have 30 MB, and Twisted would keep each of them twice.
    assert resident_mib(node) - before < 15
