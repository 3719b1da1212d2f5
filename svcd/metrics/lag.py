"""How late the reactor is, the time that everything waits which it has to do, and how many calls it is to make."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from twisted.application.service import Service

from svcd.metrics.distribution import Distribution
from svcd.ports import Clock, Timer

INTERVAL_SECONDS: Final = 0.1
_BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)


class ReactorLag(Service, Collector):
    """Asks to be called ten times a second while it runs, and notes how much later it is called."""

    name = "reactor lag"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._late = Distribution(_BOUNDS)
        self._due = 0.0
        self._timer: Timer | None = None

    def startService(self) -> None:
        """Begin."""
        super().startService()  # type: ignore[no-untyped-call]
        self._ask()

    def stopService(self) -> None:
        """End."""
        super().stopService()  # type: ignore[no-untyped-call]
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _ask(self) -> None:
        self._due = self._clock.seconds() + INTERVAL_SECONDS
        self._timer = self._clock.callLater(INTERVAL_SECONDS, self._called)

    def _called(self) -> None:
        # A clock that was set back makes nothing early.
        self._late.observe(max(self._clock.seconds() - self._due, 0.0))
        self._ask()

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        late = HistogramMetricFamily("svcd_reactor_lag_seconds", "How late the reactor made a call.", labels=())
        self._late.add_to(late)
        yield late
        waiting = len(self._clock.getDelayedCalls())
        yield GaugeMetricFamily("svcd_reactor_delayed_calls", "Calls that are due later.", value=waiting)
