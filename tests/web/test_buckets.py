"""Token buckets: what passes, what waits, and that nobody can make them grow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.web.buckets import PERSISTENT_SECONDS, Bucket, Buckets, Persistence, Rate


def test_burst_passes_at_once_and_the_next_waits_for_its_token() -> None:
    bucket = Bucket(Rate(per_second=2, burst=3))

    waits = [bucket.take("a", 1, now=100.0) for _ in range(4)]

    assert waits == [0.0, 0.0, 0.0, pytest.approx(0.5)]


def test_refused_request_costs_nothing() -> None:
    bucket = Bucket(Rate(per_second=1, burst=1))
    bucket.take("a", 1, now=0.0)

    for _ in range(10):
        assert bucket.take("a", 1, now=0.5) == pytest.approx(0.5)

    assert bucket.take("a", 1, now=1.0) == 0.0


def test_each_client_has_a_bucket_of_its_own() -> None:
    bucket = Bucket(Rate(per_second=1, burst=1))
    bucket.take("a", 1, now=0.0)

    assert bucket.take("a", 1, now=0.0) > 0
    assert bucket.take("b", 1, now=0.0) == 0.0


def test_cost_is_drawn_in_full() -> None:
    bucket = Bucket(Rate(per_second=1, burst=10))

    assert bucket.take("a", 8, now=0.0) == 0.0
    assert bucket.take("a", 8, now=0.0) == pytest.approx(6.0)


def test_cost_above_the_burst_can_be_paid_from_a_full_bucket() -> None:
    bucket = Bucket(Rate(per_second=1, burst=2))

    assert bucket.take("a", 5, now=0.0) == 0.0
    assert bucket.take("a", 5, now=1.0) == pytest.approx(1.0)


def test_rate_of_zero_sets_no_limit_and_remembers_nobody() -> None:
    bucket = Bucket(Rate(per_second=0, burst=1))

    assert [bucket.take("a", 1, now=0.0) for _ in range(1000)] == [0.0] * 1000
    assert len(bucket) == 0


def test_clock_set_back_shuts_nobody_out() -> None:
    bucket = Bucket(Rate(per_second=1, burst=5))
    for _ in range(5):
        bucket.take("a", 1, now=10_000.0)

    assert bucket.take("a", 1, now=100.0) == pytest.approx(1.0)
    assert bucket.take("a", 1, now=101.1) == 0.0


def test_many_addresses_do_not_make_it_grow() -> None:
    bucket = Bucket(Rate(per_second=0.001, burst=1), max_clients=100)

    for n in range(10_000):
        assert bucket.take(str(n), 1, now=float(n) / 1000) == 0.0
        assert len(bucket) <= 100


def test_forgetting_keeps_those_who_owe_most() -> None:
    bucket = Bucket(Rate(per_second=0.001, burst=10), max_clients=100)
    for _ in range(10):
        bucket.take("greedy", 1, now=0.0)

    for n in range(1_000):
        bucket.take(str(n), 1, now=1.0)

    assert bucket.take("greedy", 1, now=2.0) > 0


@given(
    rate=st.floats(0.1, 50),
    burst=st.integers(1, 20),
    steps=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 5)), min_size=1, max_size=60),
)
def test_never_more_than_burst_and_inflow(rate: float, burst: int, steps: list[tuple[float, int]]) -> None:
    bucket = Bucket(Rate(rate, burst))
    now = passed = 0.0
    for pause, cost in steps:
        now += pause
        wait = bucket.take("a", cost, now)
        if wait == 0.0:
            passed += min(cost, burst)
        else:
            now += wait
            assert bucket.take("a", cost, now + 1e-6) == 0.0, "the wait that was told was too short"
            passed += min(cost, burst)
        assert passed <= burst + rate * now + 1e-3


def test_buckets_go_by_name() -> None:
    buckets = Buckets({"read": Rate(1, 1), "broadcast": Rate(1, 1)})
    buckets.take("read", "a", 1, now=0.0)

    assert buckets.take("read", "a", 1, now=0.0) > 0
    assert buckets.take("broadcast", "a", 1, now=0.0) == 0.0
    with pytest.raises(KeyError):
        buckets.take("unheard-of", "a", 1, now=0.0)


@pytest.mark.parametrize(("per_second", "burst"), [(-1, 1), (1, 0)])
def test_rates_that_make_no_sense_are_refused(per_second: float, burst: float) -> None:
    with pytest.raises(ValueError, match="must be >="):
        Rate(per_second, burst)


def test_waiting_takes_nothing() -> None:
    bucket = Bucket(Rate(per_second=2, burst=4))
    bucket.take("a", 3, now=0.0)

    assert [bucket.wait("a", 2, now=0.0) for _ in range(5)] == [pytest.approx(0.5)] * 5
    assert bucket.wait("b", 4, now=0.0) == 0.0
    assert bucket.take("a", 1, now=0.0) == 0.0


def test_what_is_owed_is_paid_before_anything_is_taken() -> None:
    bucket = Bucket(Rate(per_second=2, burst=10))
    bucket.take("a", 4, now=0.0)
    bucket.owe("a", 12, now=0.0)

    assert bucket.take("a", 1, now=0.0) == pytest.approx(3.5)
    assert bucket.take("a", 1, now=3.0) == pytest.approx(0.5)
    assert bucket.take("a", 1, now=3.5) == 0.0


def test_nobody_owes_more_than_a_burst() -> None:
    bucket = Bucket(Rate(per_second=2, burst=10), max_clients=2)
    for client in ("a", "b", "c"):
        bucket.owe(client, 1_000_000, now=0.0)

    assert len(bucket) == 2
    assert bucket.take("c", 1, now=0.0) == pytest.approx(5.5)


def test_nobody_owes_anything_where_there_is_no_limit() -> None:
    bucket = Bucket(Rate(per_second=0, burst=1))
    bucket.owe("a", 100, now=0.0)

    assert bucket.take("a", 1, now=0.0) == 0.0
    assert len(bucket) == 0


# Refusals that go on


def test_refusals_that_keep_the_bucket_empty_for_a_minute_are_persistent() -> None:
    persistence = Persistence(Rate(per_second=10, burst=100))
    noted = {now: persistence.note("a", 21, now) for now in [0.0] * 5 + [float(second) for second in range(1, 70)]}
    assert [now for now, persistent in noted.items() if persistent] == [float(second) for second in range(60, 70)]
    assert PERSISTENT_SECONDS == 60


def test_a_pause_begins_the_minute_anew() -> None:
    persistence = Persistence(Rate(per_second=10, burst=100))
    for now in range(59):
        persistence.note("a", 100, now)
    assert not persistence.note("a", 100, 58 + 12.0)
    assert not persistence.note("a", 100, 58 + 12.0 + 59)
    assert not persistence.note("b", 100, 60)


def test_few_refusals_are_never_persistent() -> None:
    persistence = Persistence(Rate(per_second=10, burst=100))
    assert not any(persistence.note("a", 21, now * 3.0) for now in range(1_000))


def test_where_there_is_no_rate_nothing_is_persistent() -> None:
    persistence = Persistence(Rate(per_second=0, burst=1))
    assert not any(persistence.note("a", 21, now) for now in range(1_000))
    assert len(persistence) == 0


def test_the_clients_that_are_remembered_for_it_are_bounded() -> None:
    persistence = Persistence(Rate(per_second=1, burst=10), max_clients=100)
    persistence.note("a", 20, 0.0)
    for number in range(1_000):
        persistence.note(f"{number}", 1, 0.0)
        assert len(persistence) <= 100
    for now in range(60):
        persistence.note("a", 20, now)
    assert persistence.note("a", 20, 60.0)


def test_a_penalty_is_drawn_and_counted_with_what_was_paid() -> None:
    buckets = Buckets({"p2p": Rate(10, 100)})
    assert buckets.take("p2p", "a", 1, 0.0) == 0.0
    assert not buckets.penalise("p2p", "a", 20, 0.0, paid=1)
    assert buckets.wait("p2p", "a", 100, 0.0) == pytest.approx(2.1)
    assert not buckets.penalise("p2p", "a", float("inf"), 0.0, paid=1)
    assert buckets.wait("p2p", "a", 1, 0.0) == pytest.approx(10.1)
