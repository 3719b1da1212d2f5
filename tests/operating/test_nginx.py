"""`conf/nginx.conf` with Debian's nginx: TLS in front, and every limit still counts clients and not the proxy."""

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from ssl import SSLError

import pytest

from svcd.config.loader import load
from tests.operating.front import CONF, NAME, Front, answer_on, front_of
from tests.operating.test_log_secrecy import ROUTES
from tests.process_level.conftest import Nodes
from tests.process_level.running import DEADLINE, Answer, RunningNode, wait_until
from tests.programs import needs

pytestmark = [
    pytest.mark.socket,
    pytest.mark.slow,
    needs("nginx"),
]

LIMITS = {"requestsPerSecond": 1, "burstSeconds": 4, "requestSeconds": 10, "peerPostsPerSecond": 10}
SOON = 45.0
"""Seconds, for a busy machine: nginx itself would let a client take 60."""
MEBIBYTE = 1024 * 1024
MARK = "order-of-a-customer"
TEXT = CONF.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A devnet that believes nginx, with limits that a test can reach."""
    nodes = Nodes(tmp_path_factory.mktemp("behind"))
    settings = [f"--set=limits.{name}={value}" for name, value in LIMITS.items()]
    url, proxies = f"--set=http.publicUrl=https://{NAME}", '--set=http.trustedProxies=["127.0.0.1/32"]'
    yield nodes.start("--network=devnet", "--set=participation.onDemand=true", url, proxies, *settings)
    nodes.stop()


@pytest.fixture(scope="module")
def front(node: RunningNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """nginx in front of it."""
    with front_of(tmp_path_factory.mktemp("nginx"), node.port) as front:
        yield front


def directly(node: RunningNode, source: str, target: str, **headers: str) -> Answer:
    """What the node answers a client that goes around nginx."""
    connection = HTTPConnection("127.0.0.1", node.port, timeout=DEADLINE, source_address=(source, 0))
    return answer_on(connection, target, None, headers)


def statuses(front: Front, source: str, count: int) -> list[int]:
    """What so many questions in a row are answered."""
    return [front.ask(source, "/rpc/status").status for _ in range(count)]


def until_refused(ask: Callable[[int], Answer]) -> tuple[int, Answer]:
    """How many questions in a row are answered before one is refused, and its answer.

    A new question may be asked each second: on a slow machine more are answered, but never as many as these.
    """
    for number in range(40):
        answer = ask(number)
        if answer.status == 429:
            return number, answer
        assert answer.status == 200
    raise AssertionError("nobody refuses them")


@pytest.mark.story
def test_it_answers_over_tls(front: Front) -> None:
    answer = front.ask("127.0.1.1", "/rpc/status")
    assert (answer.status, answer.json["status"]["endpoint"]) == (200, f"https://{NAME}")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "max-age" in answer.headers["strict-transport-security"]


def test_without_tls_it_leads_there(front: Front) -> None:
    assert front.plainly("/rpc/status?a=b") == (308, f"https://{NAME}/rpc/status?a=b")
    assert front.plainly("/.well-known/acme-challenge/none") == (404, None), "a certificate authority asks without it"


def test_each_client_has_its_own_rate(front: Front) -> None:
    answered, _ = until_refused(lambda _: front.ask("127.0.2.1", "/rpc/status"))
    assert answered >= 4
    assert statuses(front, "127.0.2.2", 4) == [200] * 4


def test_a_throttled_answer_says_when_to_retry(front: Front) -> None:
    _, answer = until_refused(lambda _: front.ask("127.0.3.1", "/rpc/status"))
    assert answer.headers["retry-after"] == "1"
    assert answer.error.startswith("too many requests")


@pytest.mark.story
def test_a_client_cannot_claim_to_be_another(front: Front, node: RunningNode) -> None:
    # Neither through nginx …
    until_refused(lambda n: front.ask("127.0.4.1", "/rpc/status", X_Forwarded_For=f"127.0.5.{n}"))
    # … nor around it, whatever others have been told.
    until_refused(lambda n: directly(node, "127.0.4.2", "/rpc/status", X_Forwarded_For=f"127.0.5.{n}"))
    assert statuses(front, "127.0.5.1", 4) == [200] * 4, "in whose name they asked pays nothing"


def test_the_largest_block_passes_and_no_larger_one(front: Front) -> None:
    block = b'{"block":"' + b"a" * (2 * MEBIBYTE - 12) + b'"}'
    assert len(block) == 2 * MEBIBYTE
    passed = front.ask("127.0.6.1", "/p2p/block", block)
    assert passed.status == 400
    assert "block" in passed.error, "the node has read it to its end"
    cut = front.ask("127.0.6.2", "/p2p/block", block + b" ")
    assert (cut.status, cut.error) == (413, "the body is larger than 2 MiB")


def test_the_node_s_smaller_caps_hold_too(front: Front) -> None:
    answer = front.ask("127.0.7.1", "/rpc/broadcast", b"{" + b" " * 17 * 1024)
    assert answer.status == 413
    assert answer.error.startswith("the body")


def drip(client: socket.socket, piece: bytes, began: float) -> float:
    """Send a piece ten times a second until the other side answers or ends it; how long after ``began`` that was."""
    client.settimeout(0.1)
    with suppress(BrokenPipeError, ConnectionResetError, SSLError):
        while time.monotonic() - began < SOON:
            client.sendall(piece)
            with suppress(TimeoutError):
                client.recv(65536)
                break
    return time.monotonic() - began


def test_headers_that_drip_are_cut(front: Front) -> None:
    # nginx counts from the connection, at which a busy machine may look here later than nginx does.
    began = time.monotonic()
    with front.tls("127.0.8.1") as client:
        client.sendall(f"GET /rpc/status HTTP/1.1\r\nHost: {NAME}\r\nX-Long: ".encode())
        assert 2 < drip(client, b"a", began) < SOON


def test_a_body_that_drips_is_cut_by_the_node(front: Front) -> None:
    began = time.monotonic()
    with front.tls("127.0.9.1") as client:
        head = f"POST /rpc/broadcast HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 9999\r\n\r\n"
        client.sendall(head.encode())
        assert 9 < drip(client, b" ", began) < SOON


def too_many(front: Front, source: str, **headers: str) -> Answer:
    """The answer to somebody who has too many connections; the last ones may not have been looked at yet."""
    answers: list[Answer] = []

    def refused() -> bool:
        answers.append(front.ask(source, "/rpc/status", **headers))
        return answers[-1].status == 429 and answers[-1].error.startswith("too many connections")

    wait_until(refused, "a word about connections")
    assert answers[-1].error == "too many connections; close some, and try again in 1 s"
    return answers[-1]


def test_one_client_has_so_many_connections_and_another_its_own(front: Front) -> None:
    head = f"POST /rpc/broadcast HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 99\r\n\r\n{{"
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(front.tls("127.0.10.1")).sendall(head.encode())
        assert too_many(front, "127.0.10.1").headers["retry-after"] == "1"
        assert front.ask("127.0.10.2", "/rpc/status").status == 200


@pytest.mark.parametrize(
    ("places", "same", "other"),
    [
        (["2001:db8:1:ab01::{n}", "2001:db8:1:abf{n}:1::"], "2001:db8:1:abff::9", "2001:db8:1:ac01::1"),
        (["2001:db8:2::{n}", "2001:db8:2:1{n}::1"], "2001:db8:2:ff::", "2001:db8:2:100::1"),
        (["2001:db8::{n}"], "2001:db8::ffff", "2001:db8:0:100::1"),
    ],
)
def test_the_addresses_of_an_ipv6_subscriber_are_one_client(
    front: Front, places: list[str], same: str, other: str
) -> None:
    with ExitStack() as stack:
        for number in range(8):
            address = places[number % len(places)].format(n=number)
            head = f"POST /rpc/broadcast HTTP/1.1\r\nHost: {NAME}\r\nX-Test-Address: {address}\r\n"
            client = stack.enter_context(front.tls("127.0.12.1"))
            client.sendall(f"{head}Content-Length: 99\r\n\r\n{{".encode())
        too_many(front, "127.0.12.1", X_Test_Address=same)
        assert front.ask("127.0.12.1", "/rpc/status", X_Test_Address=other).status == 200


def test_a_node_that_is_away_is_told_in_json(tmp_path_factory: pytest.TempPathFactory) -> None:
    with front_of(tmp_path_factory.mktemp("alone"), 9) as front:
        answer = front.ask("127.0.0.1", "/rpc/status")
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert {"strict-transport-security", "access-control-allow-origin"} <= set(answer.headers)
    assert answer.error == "the node does not answer at present; try again in 5 s"


def test_it_waits_longer_than_the_node_takes_for_any_answer() -> None:
    (patience,) = re.findall(r"proxy_read_timeout (\d+)s;", TEXT)
    longest = max(route.seconds for route in ROUTES if route.bucket != "operator")
    assert int(patience) > max(longest, load().limits.answer_seconds)


def test_it_lets_go_of_an_idle_connection_before_the_node_does() -> None:
    (idle,) = re.findall(r"^    keepalive 32;.*?^    keepalive_timeout (\d+)s;", TEXT, re.MULTILINE | re.DOTALL)
    assert int(idle) < load().limits.idle_seconds


def test_no_query_string_is_in_a_log(tmp_path: Path) -> None:
    """Neither of a request that is answered, with TLS or without, nor of one that fails."""
    with front_of(tmp_path, 9) as front:
        assert front.plainly(f"/?reference={MARK}")[0] == 308
        assert front.ask("127.0.13.1", f"/rpc/commerce/payment?reference={MARK}").status == 503
        large = b" " * (2 * MEBIBYTE + 1)
        assert front.ask("127.0.13.1", f"/rpc/broadcast?reference={MARK}", large).status == 413
    assert MARK not in front.logs


def test_the_operator_s_routes_are_not_behind_it(front: Front) -> None:
    for target in ("/metrics", "/ready", "/operator/status"):
        answer = front.ask("127.0.11.1", target)
        assert answer.status == 404, json.dumps(answer.json)
