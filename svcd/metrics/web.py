"""Metrics of the HTTP sites."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.metrics.process import DURATION_BUCKETS
from svcd.web.site import Site

OTHER: Final = "other"
"""The label of paths without a route and of unknown methods, so that clients cannot create labels."""
_METHODS: Final[Mapping[bytes, str]] = {
    name.encode("ascii"): name for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
}


class WebMetrics(Collector):
    """Counts the responses of sites, as their recorder, and reads their connections."""

    def __init__(self) -> None:
        self._sites: dict[str, Site] = {}
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds = Histogram(
            "svcd_http_request_seconds",
            "From the last byte of a request to its response.",
            ("route",),
            registry=None,
            buckets=DURATION_BUCKETS,
        )
        self._throttled: Counter[str] = Counter()

    def watch(self, name: str, site: Site) -> None:
        """Measure a site; ``name`` is its label."""
        self._sites[name] = site
        site.recorder = self

    def answered(self, route: str, method: bytes, status: int, seconds: float | None) -> None:
        """Count a response."""
        label = route or OTHER
        self._requests[label, _METHODS.get(method, OTHER), status] += 1
        if seconds is not None:
            self._seconds.labels(label).observe(seconds)

    def throttled(self, bucket: str) -> None:
        """Count a request refused by a rate limit."""
        self._throttled[bucket] += 1

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        requests = CounterMetricFamily("svcd_http_requests", "Responses.", labels=("route", "method", "status"))
        for (route, method, status), count in self._requests.items():
            requests.add_metric((route, method, str(status)), count)
        yield requests
        yield from self._seconds.collect()
        throttled = CounterMetricFamily("svcd_http_throttled", "Requests refused by a rate limit.", labels=("bucket",))
        for bucket, count in self._throttled.items():
            throttled.add_metric((bucket,), count)
        yield throttled
        yield from self._connections()
        ignored = sum({id(site.clients): site.clients.untrusted.ignored for site in self._sites.values()}.values())
        yield CounterMetricFamily(
            "svcd_http_forwarded_ignored",
            "Requests with X-Forwarded-For that came from no trusted proxy.",
            value=ignored,
        )

    def _connections(self) -> Iterator[Metric]:
        present = GaugeMetricFamily("svcd_http_connections", "Open connections.", labels=("site",))
        refused = CounterMetricFamily("svcd_http_connections_refused", "Connections refused.", labels=("site",))
        evicted = CounterMetricFamily(
            "svcd_http_connections_gave_way", "Connections evicted to make room for others.", labels=("site",)
        )
        bodies = CounterMetricFamily(
            "svcd_http_bodies_gave_way",
            "Incomplete request bodies dropped to make room for others.",
            labels=("site",),
        )
        for name, site in self._sites.items():
            present.add_metric((name,), len(site.connections))
            refused.add_metric((name,), site.connections.refused)
            evicted.add_metric((name,), site.connections.gave_way)
            bodies.add_metric((name,), site.bodies.gave_way)
        yield present
        yield refused
        yield evicted
        yield bodies
