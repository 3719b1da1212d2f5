"""GET /metrics: who may read it, that Prometheus can, what it costs, and that it tells no secrets."""

import subprocess
import time
from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from svcd.chain.block import Block
from tests.chains import key_of
from tests.metrics.conftest import Measured
from tests.node.bench import Stepped
from tests.p2p.bench import Node
from tests.programs import needs
from tests.web.wire import Response, Wire

TOKEN = "a token of 32 characters or more."
TYPE = "text/plain; version=0.0.4; charset=utf-8"
Measure = Callable[..., Measured]
Grow = Callable[..., list[Block]]


def asked(measured: Measured, *, method: str = "GET", token: str | None = None) -> Response:
    lines = [f"{method} /metrics HTTP/1.1", "Host: h"] + [f"Authorization: Bearer {token}"] * bool(token)
    wire = Wire(measured.operator).send("\r\n".join([*lines, "", ""]).encode())
    return wire.response(head=method == "HEAD")


def busy(measured: Measured) -> Measured:
    """Every route asked for, with the answers that it may give."""
    routes = [f"/rpc/commerce/some/thing/{{number}}/{number}" for number in range(45)]
    for route in ["", *routes]:
        for method, status in ((b"GET", 200), (b"GET", 400), (b"GET", 429), (b"HEAD", 200)):
            measured.node.site.recorder.answered(route, method, status, 0.01)
    return measured


def test_prometheus_can_read_it(measured: Measured) -> None:
    response = asked(measured)
    assert (response.status, response.headers["content-type"]) == (200, TYPE)
    families = list(text_string_to_metric_families(response.body.decode()))
    assert len(families) > 30
    assert all(family.documentation and family.type != "unknown" for family in families)
    assert len({family.name for family in families}) == len(families)


def test_head_gets_the_header_fields_only(measured: Measured) -> None:
    response = asked(measured, method="HEAD")
    assert (response.status, response.headers["content-type"], response.body) == (200, TYPE, b"")


@needs("promtool")
def test_promtool_has_nothing_to_say(measured: Measured) -> None:
    page = asked(busy(measured)).body
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_open_files_are_listed_in_a_thread(node: Node, measure: Measure) -> None:
    worker = Stepped()
    measured = measure(node, worker=worker)
    wire = Wire(measured.operator).send(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (len(worker), wire.responses()) == (1, [])
    worker.step()
    assert "\nprocess_open_fds " in wire.response().body.decode()


def test_over_tcp_it_asks_for_the_token(node: Node, measure: Measure) -> None:
    measured = measure(node, token=TOKEN)
    assert asked(measured).status == 401
    assert asked(measured, token="another token").status == 401
    assert asked(measured, token=TOKEN).status == 200


def test_it_is_not_on_the_public_site(measured: Measured) -> None:
    for path in ("/metrics", "/rpc/metrics", "/p2p/metrics"):
        response = Wire(measured.node.site).send(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode()).response()
        assert response.status == 404


def test_it_tells_no_secrets(node: Node, measure: Measure) -> None:
    measured = measure(node, token=TOKEN)
    Wire(node.site).send(b"GET /rpc/balance/of-somebody?secret=1 HTTP/1.1\r\nHost: h\r\n\r\n")
    page = asked(measured, token=TOKEN).body.decode()
    for secret in (TOKEN, key_of("ourselves").seed.hex(), "somebody", "secret", str(node.key.endpoint)):
        assert secret not in page


def test_each_node_has_a_registry_of_its_own(make_node: Callable[..., Node], measure: Measure, grow: Grow) -> None:
    one, other = (measure(make_node(name, name=name)) for name in ("one", "other"))
    one.node.take(*grow(2))
    assert (one.value("svcd_chain_height"), other.value("svcd_chain_height")) == (2, 0)
    assert not [metric.name for metric in REGISTRY.collect() if metric.name.startswith("svcd")]


@pytest.mark.timed
def test_reading_it_takes_less_than_the_reactor_may_be_held_up(measured: Measured) -> None:
    """About 5 ms on a machine that does nothing else, with more routes and statuses than a node has.

    What that is on another machine, or beside other work, is told by plain work that is done by turns with it.
    """
    busy(measured)
    took, plain = [], []
    for _ in range(20):
        began = time.thread_time()
        response = asked(measured)
        took.append(time.thread_time() - began)
        began = time.thread_time()
        "\n".join(f'svcd_plain_total{{route="/{number}",status="200"}} {float(number)}' for number in range(1_000))
        plain.append(time.thread_time() - began)
    assert response.body.count(b"\n") > 700
    assert min(took) < 40 * min(plain), (took, plain)
