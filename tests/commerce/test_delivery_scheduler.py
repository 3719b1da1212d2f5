"""Which event is sent next: the rules one by one, a model of them all, and the cost of a dead host."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from svcd.commerce.circuit_breaker import BreakerChange, DeliveryOutcome, OpenBreaker
from svcd.commerce.delivery_scheduler import (
    MAX_IN_FLIGHT,
    Delivery,
    DeliveryKind,
    DeliveryScheduler,
    in_flight_share,
    max_deliveries_in_flight,
)
from svcd.commerce.retry_policy import RETRY_PERIOD
from svcd.store.webhook_events import WatchQueue
from tests.commerce.naive_scheduler import NaiveScheduler

NOW = 1_000_000_000
SECOND = 1000
HOUR = 3_600_000


def put(scheduler: DeliveryScheduler, *names: str, due: int = NOW, now: int = NOW) -> None:
    """Schedule queues by names such as "shop/1": the host, and what tells its watches apart."""
    for name in names:
        scheduler.schedule(queue(name, due), now)


def queue(name: str, due: int = NOW) -> WatchQueue:
    return WatchQueue(name, name.partition("/")[0], due)


def drain(scheduler: DeliveryScheduler, now: int = NOW) -> list[Delivery]:
    deliveries = []
    while (delivery := scheduler.begin(now)) is not None:
        deliveries.append(delivery)
    return deliveries


def names(deliveries: list[Delivery]) -> list[str]:
    return [delivery.queue.watch for delivery in deliveries]


def end(
    scheduler: DeliveryScheduler,
    delivery: Delivery,
    outcome: DeliveryOutcome,
    *,
    due: int | None = None,
    now: int = NOW,
) -> BreakerChange:
    return scheduler.end(delivery, outcome, None if due is None else queue(delivery.queue.watch, due), now)


def fail(
    scheduler: DeliveryScheduler, deliveries: list[Delivery], *, due: int = NOW + HOUR, now: int = NOW
) -> list[BreakerChange]:
    return [end(scheduler, delivery, DeliveryOutcome.FAILED, due=due, now=now) for delivery in deliveries]


def break_host(scheduler: DeliveryScheduler, host: str = "shop", *, due: int = NOW + HOUR, now: int = NOW) -> None:
    put(scheduler, *(f"{host}/{number}" for number in range(5)), due=now, now=now)
    fail(scheduler, drain(scheduler, now), due=due, now=now)
    assert fail(scheduler, drain(scheduler, now), due=due, now=now) == [BreakerChange.OPENED]


def test_a_new_scheduler_has_no_delivery() -> None:
    scheduler = DeliveryScheduler()
    assert scheduler.begin(NOW) is None
    assert scheduler.next_at(NOW) is None


def test_four_events_of_a_host_and_thirty_two_in_all_are_in_flight() -> None:
    scheduler = DeliveryScheduler()
    put(scheduler, *(f"host{host}/{number}" for host in range(10) for number in range(10)))
    deliveries = drain(scheduler)
    assert len(deliveries) == scheduler.in_flight == 32
    assert scheduler.next_at(NOW) is None
    end(scheduler, deliveries[0], DeliveryOutcome.ACCEPTED)
    assert len(drain(scheduler)) == 1

    alone = DeliveryScheduler()
    put(alone, *(f"shop/{number}" for number in range(10)))
    first = drain(alone)
    assert names(first) == ["shop/0", "shop/1", "shop/2", "shop/3"]
    end(alone, first[2], DeliveryOutcome.ACCEPTED)
    assert names(drain(alone)) == ["shop/4"]


def test_probe_delays_grow() -> None:
    scheduler = DeliveryScheduler()
    put(scheduler, *(f"shop/{number}" for number in range(100)))
    fail(scheduler, drain(scheduler), due=NOW + 90 * HOUR)
    fail(scheduler, drain(scheduler), due=NOW + 90 * HOUR)
    now, pauses = NOW, []
    for _ in range(10):
        at = scheduler.next_at(now)
        assert at is not None
        pauses.append((at - now) // SECOND)
        now = at
        [probe] = drain(scheduler, now)
        fail(scheduler, [probe], due=now + 90 * HOUR, now=now)
    assert pauses == [1, 2, 4, 8, 30, 120, 300, 300, 300, 300]


def test_an_urgent_event_brings_the_probe_forward_and_is_tried_first() -> None:
    scheduler = DeliveryScheduler()
    break_host(scheduler)
    put(scheduler, *(f"shop/old{number}" for number in range(3)))
    now = NOW
    for _ in range(7):
        now = scheduler.next_at(now) or pytest.fail("nothing is due any more")
        fail(scheduler, drain(scheduler, now), due=now + HOUR, now=now)
        put(scheduler, "shop/old3", due=now, now=now)
    assert drain(scheduler, now + 10 * SECOND) == []
    # One every 15 s, however many events ask for it.
    for wait in (20, 25, 30):
        scheduler.schedule(evolve(queue(f"shop/paid{wait}", now + wait * SECOND), urgent=True), now + wait * SECOND)
        deliveries = drain(scheduler, now + wait * SECOND)
        assert names(deliveries) == (["shop/paid20"] if wait == 20 else [])
        fail(scheduler, deliveries, due=now + HOUR, now=now + wait * SECOND)
    assert scheduler.next_at(now) == now + 35 * SECOND
    [probe] = drain(scheduler, now + 35 * SECOND)
    assert probe.queue.watch == "shop/paid25"
    end(scheduler, probe, DeliveryOutcome.ACCEPTED, now=now + 35 * SECOND)
    assert len(drain(scheduler, now + 35 * SECOND)) == 4


def test_an_urgent_event_during_a_probe_is_probed_next() -> None:
    scheduler = DeliveryScheduler()
    break_host(scheduler)
    put(scheduler, "shop/1")
    [probe] = drain(scheduler, NOW + SECOND)
    assert probe.queue.watch == "shop/1"
    scheduler.schedule(evolve(queue("shop/1", NOW + SECOND), urgent=True), NOW + SECOND)
    end(scheduler, probe, DeliveryOutcome.FAILED, due=NOW + SECOND, now=NOW + SECOND)
    assert names(drain(scheduler, NOW + SECOND)) == ["shop/1"]


def test_a_queue_woken_in_vain_waits_for_its_due_time() -> None:
    """Where one path of a host works and another fails, successes of the one must not use up attempts of the other."""
    scheduler = DeliveryScheduler()
    put(scheduler, "shop/bad")
    fail(scheduler, drain(scheduler), due=NOW + HOUR)
    for expected in (["shop/bad"], [], []):
        put(scheduler, "shop/good")
        [good] = drain(scheduler)
        end(scheduler, good, DeliveryOutcome.ACCEPTED)
        woken = drain(scheduler)
        assert names(woken) == expected
        fail(scheduler, woken, due=NOW + 2 * HOUR)
    assert names(drain(scheduler, NOW + 2 * HOUR)) == ["shop/bad"]


def test_a_refused_queue_is_not_woken() -> None:
    scheduler = DeliveryScheduler()
    put(scheduler, "shop/refused", "shop/good")
    refused, good = drain(scheduler)
    end(scheduler, refused, DeliveryOutcome.REJECTED, due=NOW + HOUR)
    end(scheduler, good, DeliveryOutcome.ACCEPTED)
    assert drain(scheduler) == []


def test_queues_of_a_host_that_fails_for_the_retry_period_are_given_up() -> None:
    scheduler = DeliveryScheduler()
    break_host(scheduler, due=NOW + 1000 * HOUR)
    put(scheduler, *(f"shop/late{number}" for number in range(1_500)))
    now = NOW
    while now < NOW + RETRY_PERIOD - HOUR:
        now = scheduler.next_at(now) or pytest.fail("nothing is due any more")
        [probe] = drain(scheduler, now)
        assert probe.kind is DeliveryKind.PROBE
        fail(scheduler, [probe], due=NOW + 1000 * HOUR, now=now)
    put(scheduler, "shop/new", due=now, now=now)
    given_up = []
    while now < NOW + RETRY_PERIOD + HOUR:
        now = scheduler.next_at(now) or pytest.fail("nothing is due any more")
        for delivery in drain(scheduler, now):
            if delivery.kind is DeliveryKind.GIVE_UP:
                given_up.append(delivery.queue.watch)
                end(scheduler, delivery, DeliveryOutcome.NOT_COUNTED, now=now)
            else:
                fail(scheduler, [delivery], due=NOW + 1000 * HOUR, now=now)
    assert len(given_up) > 10
    assert "shop/new" not in given_up


def test_a_queue_that_is_overdue_because_the_node_was_down_is_tried() -> None:
    scheduler = DeliveryScheduler()
    put(scheduler, *(f"shop/{number}" for number in range(50)), due=NOW - 2 * RETRY_PERIOD)
    fail(scheduler, drain(scheduler))
    fail(scheduler, drain(scheduler))
    assert drain(scheduler, NOW + SECOND - 1) == []
    [probe] = drain(scheduler, NOW + SECOND)
    assert probe.kind is DeliveryKind.PROBE


def test_hosts_without_queues_are_forgotten() -> None:
    scheduler = DeliveryScheduler()
    for number in range(10_000):
        put(scheduler, f"host{number}/1", due=NOW + number % 2)
        scheduler.cancel(f"host{number}/1", NOW)
    assert size_of(scheduler) < 1_000
    break_host(scheduler)
    for number in range(5):
        scheduler.cancel(f"shop/{number}", NOW)
    assert (scheduler.receivers, scheduler.waiting, scheduler.in_flight, scheduler.open_breakers) == (0, 0, 0, 0)
    assert size_of(scheduler) < 1_000


def test_scheduling_a_queue_repeatedly_takes_no_memory() -> None:
    scheduler = DeliveryScheduler()
    for number in range(10_000):
        put(scheduler, "shop/1", due=NOW + 10_000 - number)
    assert size_of(scheduler) < 1_000
    assert scheduler.next_at(NOW) == NOW + 1


def test_removing_stale_entries_keeps_the_order_of_others() -> None:
    scheduler = DeliveryScheduler()
    dues = [(number * 7919) % 1_009 for number in range(400)]
    for number, due in enumerate(dues):
        put(scheduler, f"shop/{number}", due=NOW - 2_000 + due)
    for number in range(400):
        if number % 4:
            scheduler.cancel(f"shop/{number}", NOW)
    seen = []
    while (delivery := scheduler.begin(NOW)) is not None:
        seen.append(delivery.queue.due - NOW + 2_000)
        end(scheduler, delivery, DeliveryOutcome.NOT_COUNTED)
    assert seen == sorted(dues[::4])


def size_of(scheduler: DeliveryScheduler) -> int:
    """Everything that is kept, counted."""
    hosts = list(scheduler._receivers.values())
    return (
        len(scheduler._timers)
        + sum(len(merchant.line) for merchant in scheduler._merchants.values())
        + len(scheduler._waiting)
        + sum(len(host._woken) + len(host._scheduled) + len(host._not_woken) for host in hosts)
    )


class Counted(int):
    """A due time that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) > int(other)

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_a_dead_host_with_twenty_five_thousand_queues_costs_others_nothing() -> None:
    scheduler = DeliveryScheduler()
    for number in range(25_000):
        put(scheduler, f"dead/{number}", due=Counted(NOW - number % 1000))
    fail(scheduler, drain(scheduler))
    fail(scheduler, drain(scheduler))
    assert scheduler.open_breakers == 1
    Counted.comparisons = 0
    now = NOW
    for number in range(1_000):
        now += SECOND
        put(scheduler, f"shop{number % 50}/{number}", due=now, now=now)
        for delivery in drain(scheduler, now):
            if delivery.queue.receiver == "dead":
                fail(scheduler, [delivery], due=Counted(now + HOUR), now=now)
            else:
                assert delivery.queue.watch == f"shop{number % 50}/{number}"
                end(scheduler, delivery, DeliveryOutcome.ACCEPTED, now=now)
    # In 1,000 s the dead host has five probes, each a few comparisons deep into its heap.
    assert 0 < Counted.comparisons < 1_000


def test_waking_twenty_five_thousand_queues_visits_none_of_them() -> None:
    scheduler = DeliveryScheduler()
    for number in range(25_000):
        put(scheduler, f"shop/{number}", due=Counted(NOW + HOUR + number))
    put(scheduler, "shop/new")
    [new] = drain(scheduler)
    Counted.comparisons = 0
    end(scheduler, new, DeliveryOutcome.ACCEPTED)
    for _ in range(5):
        deliveries = drain(scheduler)
        assert len(deliveries) == 4
        for delivery in deliveries:
            end(scheduler, delivery, DeliveryOutcome.ACCEPTED)
    assert Counted.comparisons < 5_000


# Several merchants

SHARE = in_flight_share(2)


def put_of(scheduler: DeliveryScheduler, merchant: str, *hosts: str, due: int = NOW) -> None:
    for host in hosts:
        scheduler.schedule(WatchQueue(f"{merchant}/{host}", host, due, merchant), NOW)


@pytest.mark.parametrize(
    ("merchants", "share", "most"),
    [
        (0, 32, 0),
        (1, 32, 32),
        (2, 16, 32),
        (3, 10, 30),
        (4, 8, 32),
        (32, 8, 256),
        (33, 7, 231),
        (128, 2, 256),
        (999, 2, 1998),
    ],
)
def test_the_deliveries_in_flight_are_shared(merchants: int, share: int, most: int) -> None:
    assert (in_flight_share(merchants), max_deliveries_in_flight(merchants)) == (share, most)


@pytest.mark.parametrize("merchants", [33, 100, 300])
def test_however_many_merchants_stall_the_others_deliver_at_once(merchants: int) -> None:
    scheduler = DeliveryScheduler(in_flight_share(merchants))
    for number in range(merchants - 1):
        put_of(scheduler, f"shop{number}", *(f"host{host}" for host in range(9)))
    stalling = drain(scheduler)
    assert len(stalling) == scheduler.in_flight == (merchants - 1) * in_flight_share(merchants)
    assert scheduler.next_at(NOW) is None

    for number in range(20):
        put_of(scheduler, "books", f"shop{number}.example.com")
        (delivery,) = drain(scheduler)
        assert delivery.queue.merchant == "books"
        scheduler.end(delivery, DeliveryOutcome.ACCEPTED, None, NOW)


@pytest.mark.parametrize("merchants", [1, 2, 32, 33, 100, 300])
def test_a_host_that_stalls_leaves_half_of_the_share_to_other_hosts(merchants: int) -> None:
    share = in_flight_share(merchants)
    scheduler = DeliveryScheduler(share)
    for number in range(9):
        scheduler.schedule(WatchQueue(f"slow/{number}", "slow.example.com", NOW, "books"), NOW)
    assert len(drain(scheduler)) == min(4, share // 2)
    put_of(scheduler, "books", "fast.example.com")
    assert [delivery.queue.receiver for delivery in drain(scheduler)] == ["fast.example.com"]


def test_stalling_callbacks_leave_the_share_of_others_free() -> None:
    scheduler = DeliveryScheduler(SHARE)
    put_of(scheduler, "slow", *(f"host{number}" for number in range(2 * MAX_IN_FLIGHT)))
    stalling = drain(scheduler)
    assert {delivery.queue.merchant for delivery in stalling} == {"slow"}
    assert len(stalling) == scheduler.in_flight == SHARE
    assert scheduler.next_at(NOW) is None

    put_of(scheduler, "books", "shop.example.com")
    (delivery,) = drain(scheduler)
    assert delivery.queue.merchant == "books"
    assert scheduler.waiting == 2 * MAX_IN_FLIGHT - SHARE


def test_failures_of_one_merchant_at_a_host_do_not_hold_the_events_of_its_owner() -> None:
    scheduler = DeliveryScheduler(SHARE)
    evil = [WatchQueue(f"evil/{number}", "shop.example.com", NOW, "evil") for number in range(9)]
    for queue in evil:
        scheduler.schedule(queue, NOW)
    changes = []
    while not scheduler.open_breakers:
        delivery = scheduler.begin(NOW)
        assert delivery is not None
        changes.append(scheduler.end(delivery, DeliveryOutcome.FAILED, None, NOW))
    assert changes[-1] is BreakerChange.OPENED
    assert scheduler.begin(NOW) is None

    put_of(scheduler, "books", "shop.example.com")
    assert [delivery.queue.merchant for delivery in drain(scheduler)] == ["books"]


def test_a_cancelled_queue_is_gone_whosever_it_was() -> None:
    scheduler = DeliveryScheduler(SHARE)
    put_of(scheduler, "books", "a", "b", due=NOW + 5)
    put_of(scheduler, "music", "c", due=NOW + 3)
    assert scheduler.next_at(NOW) == NOW + 3
    scheduler.cancel("music/c", NOW)
    scheduler.cancel("books/a", NOW)
    assert scheduler.next_at(NOW) == NOW + 5
    (delivery,) = drain(scheduler, NOW + 5)
    assert delivery.queue.watch == "books/b"
    again = WatchQueue("books/b", "b", NOW + 9, "books")
    scheduler.end(delivery, DeliveryOutcome.FAILED, again, NOW + 5)
    assert (scheduler.waiting, scheduler.in_flight, scheduler.next_at(NOW + 5)) == (1, 0, NOW + 9)


# Beside a naive scheduler

HOSTS = [f"host{number}" for number in range(12)]


class SchedulerModel(RuleBasedStateMachine):
    """The scheduler beside a naive one, with the same operations on both."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = DeliveryScheduler()
        self.naive = NaiveScheduler()
        self.now = NOW
        self.deliveries: dict[str, Delivery] = {}
        self.passed_over: dict[str, set[str]] = {}

    @rule(host=st.sampled_from(HOSTS[:4]), number=st.integers(0, 9), wait=st.integers(-2, 20), urgent=st.booleans())
    def put(self, host: str, number: int, wait: int, urgent: bool) -> None:
        self._put(WatchQueue(f"{host}/{number}", host, self.now + wait * SECOND, urgent=urgent))

    @rule(hosts=st.integers(1, 12), wait=st.integers(-2, 3))
    def put_many(self, hosts: int, wait: int) -> None:
        for host in HOSTS[:hosts]:
            for number in range(5):
                self._put(WatchQueue(f"{host}/{number}", host, self.now + wait * SECOND))

    def _put(self, queue: WatchQueue) -> None:
        self.scheduler.schedule(queue, self.now)
        self.naive.put(queue, self.now)
        self._look()

    @rule(host=st.sampled_from(HOSTS))
    def hurry(self, host: str) -> None:
        """As after a test that the receiver has accepted."""
        self.scheduler.hurry("default", host, self.now)
        self.naive.hurry(host, self.now)
        self._look()

    @rule(host=st.sampled_from(HOSTS), open_for=st.integers(0, 40), wait=st.integers(-2, 300), probes=st.integers(0, 9))
    def restore(self, host: str, open_for: int, wait: int, probes: int) -> None:
        """As by a new leader, or for a merchant that is configured again."""
        breaker = OpenBreaker(self.now - open_for * SECOND, self.now + wait * SECOND, probes)
        self.scheduler.restore("default", host, breaker)
        self.naive.restore(host, breaker)

    @rule(most=st.sampled_from([2, 3, 8, 32]))
    def resize(self, most: int) -> None:
        """As when merchants are added or removed."""
        self.scheduler.resize(most, self.now)
        self.naive.max_in_flight = most
        self._look()

    @rule(host=st.sampled_from(HOSTS[:4]), number=st.integers(0, 9))
    def cancel(self, host: str, number: int) -> None:
        self.scheduler.cancel(f"{host}/{number}", self.now)
        self.naive.cancel(f"{host}/{number}")

    @rule()
    def take(self) -> None:
        self._take()

    @rule()
    def take_all(self) -> None:
        while self._take():
            pass

    def _take(self) -> bool:
        possible = self.naive.deliveries(self.now)
        delivery = self.scheduler.begin(self.now)
        # No host gets two deliveries while another waits for one.
        self.passed_over = {host: self.passed_over.get(host, set()) for host in possible}
        if delivery is None:
            assert not possible
            return False
        host = delivery.queue.receiver
        assert possible[host] == (delivery.queue, delivery.kind, delivery.early)
        assert possible[host][0].urgent == delivery.queue.urgent
        assert all(host not in seen for other, seen in self.passed_over.items() if other != host)
        for seen in self.passed_over.values():
            seen.add(host)
        del self.passed_over[host]
        self.naive.take(delivery.queue.watch, possible[host])
        self.deliveries[delivery.queue.watch] = delivery
        return True

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), outcome=st.sampled_from(DeliveryOutcome), wait=st.one_of(st.none(), st.integers(0, 40)))
    def end(self, data: Any, outcome: DeliveryOutcome, wait: int | None) -> None:
        self._end(data.draw(st.sampled_from(sorted(self.deliveries))), outcome, wait)

    @precondition(lambda self: self.deliveries)
    @rule(
        outcome=st.sampled_from([DeliveryOutcome.FAILED, DeliveryOutcome.FAILED, DeliveryOutcome.ACCEPTED]),
        wait=st.integers(0, 40),
    )
    def end_all(self, outcome: DeliveryOutcome, wait: int) -> None:
        for watch in sorted(self.deliveries):
            self._end(watch, outcome, wait)

    def _end(self, watch: str, outcome: DeliveryOutcome, wait: int | None) -> None:
        delivery = self.deliveries.pop(watch)
        again = None if wait is None else WatchQueue(watch, delivery.queue.receiver, self.now + wait * SECOND)
        before = self.naive.breakers.get(delivery.queue.receiver)
        was_broken = before is not None and before.broken_since is not None
        failures = before.failures if before is not None else 0
        change = self.scheduler.end(delivery, outcome, again, self.now)
        opens = outcome is DeliveryOutcome.FAILED and not was_broken and failures == 4
        answered = outcome not in (DeliveryOutcome.FAILED, DeliveryOutcome.NOT_COUNTED)
        closes = answered and was_broken
        assert change is (BreakerChange.OPENED if opens else BreakerChange.CLOSED if closes else BreakerChange.NONE)
        self.naive.end(watch, outcome, again, self.now)

    @rule(seconds=st.one_of(st.integers(0, 40), st.sampled_from([600, 1800, RETRY_PERIOD // SECOND])))
    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND
        if seconds:
            self._look()

    @rule()
    def wait_for_the_next(self) -> None:
        at = self.scheduler.next_at(self.now)
        if at is not None and at > self.now:
            assert not self.naive.deliveries(at - 1)
            self.now = at
            self._look()

    def _look(self) -> None:
        """Hosts that have become ready line up behind those that were."""
        possible = self.naive.deliveries(self.now)
        self.passed_over = {host: self.passed_over.get(host, set()) for host in possible}

    @invariant()
    def nothing_is_forgotten(self) -> None:
        assert self.scheduler.waiting == len(self.naive.waiting)
        assert self.scheduler.in_flight == len(self.naive.in_flight)
        assert self.scheduler.receivers == len(self.naive.hosts())
        assert self.scheduler.open_breakers == self.naive.broken()
        for host, breaker in self.naive.breakers.items():
            since = breaker.broken_since
            expected = None if since is None else OpenBreaker(since, breaker.probe_at, breaker.probes)
            assert self.scheduler.breaker("default", host) == expected
        if self.naive.deliveries(self.now):
            at = self.scheduler.next_at(self.now)
            assert at is not None
            assert at <= self.now


TestModel = SchedulerModel.TestCase
TestModel.settings = settings(settings.default, stateful_step_count=60)
