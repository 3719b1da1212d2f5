"""Metrics of webhooks."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.commerce.webhook_service import WebhookService
from svcd.interfaces import Clock, milliseconds


class WebhookMetrics(Collector):
    """Reads the deliveries under way, and the figures on the outbox, which are counted every few seconds."""

    def __init__(self, webhooks: WebhookService, clock: Clock) -> None:
        self._webhooks = webhooks
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        counts, backlog = self._webhooks.counts(), self._webhooks.backlog
        oldest = backlog.oldest_undelivered
        age = 0 if oldest is None else max(milliseconds(self._clock) - oldest, 0) / 1000
        yield GaugeMetricFamily("svcd_webhooks_watches", "Active watches.", value=backlog.watches)
        yield GaugeMetricFamily(
            "svcd_webhooks_waiting_watches", "Active watches with an event to send.", value=counts.waiting
        )
        yield GaugeMetricFamily("svcd_webhooks_in_flight", "Deliveries under way.", value=counts.in_flight)
        yield GaugeMetricFamily("svcd_webhooks_oldest_seconds", "Age of the oldest undelivered event.", value=age)
        yield GaugeMetricFamily(
            "svcd_webhooks_broken_hosts", "Hosts whose deliveries keep failing.", value=counts.broken_hosts
        )
        yield CounterMetricFamily("svcd_webhooks_delivered", "Events delivered.", value=counts.delivered)
        yield CounterMetricFamily("svcd_webhooks_failed", "Failed attempts to deliver.", value=counts.failed)
        yield CounterMetricFamily("svcd_webhooks_abandoned", "Events given up.", value=counts.abandoned)
        yield CounterMetricFamily("svcd_webhooks_refused", "Events that receivers refuse.", value=counts.refused)
