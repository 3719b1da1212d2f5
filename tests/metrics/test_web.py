"""Metrics of HTTP: routes, not paths, so that clients cannot make labels."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from svcd.metrics.web import WebMetrics
from svcd.web.connections import SiteLimits
from tests.metrics.conftest import Measured
from tests.p2p.conftest import MakeNode
from tests.web.wire import Wire

Measure = Callable[..., Measured]


def ask(measured: Measured, target: str, method: str = "GET") -> None:
    Wire(measured.node.site).send(f"{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode()).close()


def requests(measured: Measured, route: str, status: int, method: str = "GET") -> float:
    return measured.value("svcd_http_requests_total", route=route, method=method, status=str(status))


def test_requests_are_counted_by_route_method_and_status(measured: Measured) -> None:
    for target in ("/rpc/status", "/rpc/block/0", "/rpc/block/0", "/rpc/block/7", "/rpc/block/x"):
        ask(measured, target)
    ask(measured, "/rpc/status", "HEAD")
    assert requests(measured, "/rpc/status", 200) == requests(measured, "/rpc/status", 200, "HEAD") == 1
    assert requests(measured, "/rpc/block/{height}", 200) == 2
    assert requests(measured, "/rpc/block/{height}", 404) == requests(measured, "/rpc/block/{height}", 400) == 1
    assert measured.value("svcd_http_request_seconds_count", route="/rpc/block/{height}") == 4


def test_what_is_no_route_is_one_label(measured: Measured) -> None:
    for number in range(50):
        ask(measured, f"/{number}")
        ask(measured, f"/rpc/{number}", f"X{number}")
    Wire(measured.node.site).send(b"NONSENSE\r\n")
    assert requests(measured, "other", 404) == 50
    text = {
        (sample.labels["route"], sample.labels["method"])
        for metric in measured.metrics.registry.collect()
        if metric.name == "svcd_http_requests"
        for sample in metric.samples
    }
    assert text == {("other", "GET"), ("other", "other")}


@given(st.lists(st.binary(max_size=8)))
def test_methods_that_clients_make_up_are_one_label(methods: list[bytes]) -> None:
    metrics = WebMetrics()
    for method in methods:
        metrics.answered("", method, 405, 0.0)
    known = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"}
    labels = {
        sample.labels["method"]
        for metric in metrics.collect()
        for sample in metric.samples
        if "method" in sample.labels
    }
    assert labels <= known | {"other"}


def test_open_and_refused_connections(make_node: MakeNode, measure: Measure) -> None:
    measured = measure(make_node(limits=SiteLimits(connections_per_client=2)))
    wires = [Wire(measured.node.site) for _ in range(5)]
    assert measured.value("svcd_http_connections", site="public") == 2
    assert measured.value("svcd_http_connections_refused_total", site="public") == 3
    assert measured.value("svcd_http_connections", site="operator") == 0
    wires[0].close()
    assert measured.value("svcd_http_connections", site="public") == 1


def test_connections_that_gave_way(make_node: MakeNode, measure: Measure) -> None:
    measured = measure(make_node(limits=SiteLimits(connections=2)))
    for _ in range(5):
        Wire(measured.node.site)
    assert measured.value("svcd_http_connections", site="public") == 2
    assert measured.value("svcd_http_connections_gave_way_total", site="public") == 3
    assert measured.value("svcd_http_connections_gave_way_total", site="operator") == 0


def test_bodies_that_gave_way(make_node: MakeNode, measure: Measure) -> None:
    measured = measure(make_node(limits=SiteLimits(bodies_bytes_per_client=100)))
    for _ in range(3):
        head = b"POST /rpc/broadcast HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n"
        Wire(measured.node.site).send(head + b"x" * 99)
    assert measured.value("svcd_http_bodies_gave_way_total", site="public") == 2
    assert measured.value("svcd_http_bodies_gave_way_total", site="operator") == 0


def test_requests_over_a_rate_are_counted(make_node: MakeNode, measure: Measure) -> None:
    measured = measure(make_node(rates={"read": 0.1, "broadcast": 0, "p2p": 0}))
    for _ in range(3):
        ask(measured, "/rpc/status")
    assert measured.value("svcd_http_throttled_total", bucket="read") == 2
    assert requests(measured, "/rpc/status", 429) == 2


def test_headers_of_untrusted_proxies_are_counted(measured: Measured) -> None:
    for client in ("198.51.100.7", "198.51.100.8"):
        head = f"GET /rpc/status HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: {client}\r\n\r\n"
        Wire(measured.node.site).send(head.encode()).close()
    ask(measured, "/rpc/status")
    assert measured.value("svcd_http_forwarded_ignored_total") == 2
    assert measured.value("svcd_chain_alarm", alarm="untrusted-proxy") == 1
