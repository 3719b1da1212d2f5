"""Histograms: every value is counted once, in the right place, from however many threads."""

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import HistogramMetricFamily

from svcd.metrics.distribution import SECONDS, Distribution

BOUNDS = (1.0, 2.0, 5.0)


def numbers(distribution: Distribution) -> dict[str, float]:
    """The samples by bound, and the sum."""
    family = HistogramMetricFamily("m", "", labels=("who",))
    distribution.add_to(family, "me")
    assert all(sample.labels["who"] == "me" for sample in family.samples)
    return {sample.labels.get("le", sample.name): sample.value for sample in family.samples}


def test_nothing_yet() -> None:
    assert numbers(Distribution(BOUNDS)) == {"1.0": 0, "2.0": 0, "5.0": 0, "+Inf": 0, "m_count": 0, "m_sum": 0}


@given(st.lists(st.integers(min_value=0, max_value=8)))
def test_each_bound_counts_what_does_not_exceed_it(values: list[int]) -> None:
    distribution = Distribution(BOUNDS)
    for value in values:
        distribution.observe(value)
    counts = {str(bound): sum(value <= bound for value in values) for bound in BOUNDS}
    whole = {"+Inf": len(values), "m_count": len(values), "m_sum": sum(values)}
    assert numbers(distribution) == {**counts, **whole}


def test_threads_lose_nothing() -> None:
    distribution = Distribution(SECONDS)

    def feed(_: int) -> None:
        for _ in range(5_000):
            distribution.observe(1.0)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(feed, range(4)))
    assert numbers(distribution)["m_count"] == numbers(distribution)["m_sum"] == 20_000


def test_bounds_ascend() -> None:
    assert list(SECONDS) == sorted(set(SECONDS))
