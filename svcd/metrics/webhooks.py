"""Metrics of what merchants are told."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.commerce.service import Merchants
from svcd.ports import Clock, milliseconds


class WebhookMetrics(Collector):
    """Reads the outbox: what is being sent as it is now, what lies on disk as it was some seconds ago."""

    def __init__(self, merchants: Merchants, clock: Clock) -> None:
        self._merchants = merchants
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        counts, standing = self._merchants.deliveries.counts(), self._merchants.webhooks.standing
        since = standing.waiting_since
        age = 0 if since is None else max(milliseconds(self._clock) - since, 0) / 1000
        yield GaugeMetricFamily("svcd_webhooks_watches", "Watches that are active.", value=standing.watches)
        yield GaugeMetricFamily("svcd_webhooks_waiting_watches", "Those with something to send.", value=counts.waiting)
        yield GaugeMetricFamily("svcd_webhooks_in_flight", "Deliveries under way.", value=counts.in_flight)
        yield GaugeMetricFamily("svcd_webhooks_oldest_seconds", "Age of the oldest event not delivered.", value=age)
        yield GaugeMetricFamily("svcd_webhooks_broken_hosts", "Hosts that keep failing.", value=counts.broken_hosts)
        yield CounterMetricFamily("svcd_webhooks_delivered", "Events that were taken.", value=counts.delivered)
        yield CounterMetricFamily("svcd_webhooks_failed", "Attempts that failed.", value=counts.failed)
        yield CounterMetricFamily("svcd_webhooks_abandoned", "Events that were given up.", value=counts.abandoned)
