"""Metrics of the HTTP sites."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.metrics.distribution import SECONDS, Distribution
from svcd.web.site import Site

OTHER: Final = "other"
"""The label of every path that is no route, and of every method that nobody uses: clients choose no labels."""
_METHODS: Final[Mapping[bytes, str]] = {
    name.encode("ascii"): name for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
}


class WebMetrics(Collector):
    """Counts what sites answer, as their recorder, and reads their connections."""

    def __init__(self) -> None:
        self._sites: dict[str, Site] = {}
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, Distribution] = {}
        self._throttled: Counter[str] = Counter()

    def watch(self, name: str, site: Site) -> None:
        """Measure a site too; ``name`` is its label."""
        self._sites[name] = site
        site.recorder = self

    def answered(self, route: str, method: bytes, status: int, seconds: float | None) -> None:
        """Count an answer."""
        label = route or OTHER
        self._requests[label, _METHODS.get(method, OTHER), status] += 1
        if seconds is not None:
            if label not in self._seconds:
                self._seconds[label] = Distribution(SECONDS)
            self._seconds[label].observe(seconds)

    def throttled(self, bucket: str) -> None:
        """Count a refusal over a rate."""
        self._throttled[bucket] += 1

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        requests = CounterMetricFamily("svcd_http_requests", "Answers given.", labels=("route", "method", "status"))
        for (route, method, status), count in self._requests.items():
            requests.add_metric((route, method, str(status)), count)
        yield requests
        seconds = HistogramMetricFamily(
            "svcd_http_request_seconds", "From the last byte of a request to its answer.", labels=("route",)
        )
        for route, distribution in self._seconds.items():
            distribution.add_to(seconds, route)
        yield seconds
        throttled = CounterMetricFamily("svcd_http_throttled", "Requests refused over a rate.", labels=("bucket",))
        for bucket, count in self._throttled.items():
            throttled.add_metric((bucket,), count)
        yield throttled
        yield from self._connections()
        ignored = sum({id(site.clients): site.clients.untrusted.ignored for site in self._sites.values()}.values())
        yield CounterMetricFamily(
            "svcd_http_forwarded_ignored", "Requests with X-Forwarded-For of no trusted proxy.", value=ignored
        )

    def _connections(self) -> Iterator[Metric]:
        present = GaugeMetricFamily("svcd_http_connections", "Open connections.", labels=("site",))
        refused = CounterMetricFamily("svcd_http_connections_refused", "Connections not let in.", labels=("site",))
        gave_way = CounterMetricFamily(
            "svcd_http_connections_gave_way", "Connections closed to make room for others.", labels=("site",)
        )
        bodies = CounterMetricFamily(
            "svcd_http_bodies_gave_way",
            "Incomplete request bodies given up to make room for others.",
            labels=("site",),
        )
        for name, site in self._sites.items():
            present.add_metric((name,), len(site.connections))
            refused.add_metric((name,), site.connections.refused)
            gave_way.add_metric((name,), site.connections.gave_way)
            bodies.add_metric((name,), site.bodies.gave_way)
        yield present
        yield refused
        yield gave_way
        yield bodies
