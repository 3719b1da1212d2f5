"""docs/monitoring.md "Metrics" names every metric with its type and labels, and no other."""

import re
from collections.abc import Iterable
from http.client import HTTPConnection

import pytest
from attrs import frozen
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.metrics.conftest import Measured
from tests.process_level.conftest import DEVNET, Nodes, nodes
from tests.process_level.pages import ROOT
from tests.process_level.running import DEADLINE, LocalConnection

__all__ = ["nodes"]

TEXT = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8").split("\n## Metrics\n")[1].split("\n## ")[0]
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*?) ?\| ([^|]+) \|$", re.MULTILINE)
SUFFIX = {"counter": "_total", "info": "_info"}


@frozen
class Described:
    """What the page says of a metric, or a metric of itself."""

    type: str
    labels: frozenset[str]


DOCUMENTED = {
    name: Described(kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in ROW.findall(TEXT)
}


def described(metrics: Iterable[Metric]) -> dict[str, Described]:
    """Metrics by the name under which Prometheus knows them."""
    return {
        metric.name + SUFFIX.get(metric.type, ""): Described(
            {"info": "gauge"}.get(metric.type, metric.type),
            frozenset(label for sample in metric.samples for label in sample.labels if label != "le"),
        )
        for metric in metrics
    }


def test_the_page_has_a_row_for_each() -> None:
    assert len(ROW.findall(TEXT)) == len(DOCUMENTED) == len(re.findall(r"^\| `", TEXT, re.MULTILINE))


def test_every_metric_is_on_the_page_with_its_type_and_labels(measured: Measured) -> None:
    measured.node.site.recorder.answered("/rpc/status", b"GET", 429, 0.1)
    measured.node.site.recorder.throttled("read")
    metrics = measured.metrics
    assert described([*metrics.registry.collect(), *metrics.process.collect()]) == DOCUMENTED


def test_the_page_names_every_reason_of_a_refusal(measured: Measured) -> None:
    (reasons,) = re.findall(r"^\| `svcd_mempool_refused_total` .*", TEXT, re.MULTILINE)
    for metric in measured.metrics.registry.collect():
        if metric.name == "svcd_mempool_refused":
            assert all(f"`{sample.labels['reason']}`" in reasons for sample in metric.samples)
            return
    raise AssertionError("it is not measured")


def asked(connection: HTTPConnection, token: str = "") -> tuple[int, str]:
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.socket
@pytest.mark.slow
def test_a_running_node_measures_what_the_page_says(nodes: Nodes) -> None:
    secrets = {"manageToken": "m" * 32, "signingSecret": "s" * 32}
    webhooks = [f"--set=commerce.webhooks.{key}={value}" for key, value in {"enabled": "true", **secrets}.items()]
    sweeps = "--set=participation.payTo=svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"
    node = nodes.start(*DEVNET, *webhooks, sweeps)
    status, page = asked(LocalConnection(node.socket))
    assert status == 200
    shown = {metric.name + SUFFIX.get(metric.type, ""): metric.type for metric in text_string_to_metric_families(page)}
    assert shown == {name: each.type for name, each in DOCUMENTED.items()}
    assert 'svcd_http_requests_total{method="GET",route="/rpc/status",status="200"}' in page
    for threads in ("writer", "verifier", "producer", "resolver", "webhooks", "callbacks"):
        assert f'svcd_threads_queue_jobs{{threads="{threads}"}}' in page
    assert asked(HTTPConnection("127.0.0.1", node.port, timeout=DEADLINE))[0] == 404
