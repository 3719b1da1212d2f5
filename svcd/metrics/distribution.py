"""How values spread: the numbers of a histogram, without a name yet."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from threading import Lock
from typing import Final

from prometheus_client.core import HistogramMetricFamily

SECONDS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 5.0)
"""Upper bounds for times, of answers as of jobs: few, since each is a line on the page for every route."""


class Distribution:
    """Counts values by the least of ``bounds`` that they do not exceed; safe to be fed from several threads."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._lock = Lock()

    def observe(self, value: float) -> None:
        """Count a value."""
        index = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[index] += 1
            self._sum += value

    def add_to(self, family: HistogramMetricFamily, *labels: str) -> None:
        """Put the numbers of this moment into ``family`` under the values of its labels."""
        with self._lock:
            counts, total = tuple(self._counts), self._sum
        bounds = [*map(str, self._bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), sum_value=total)
