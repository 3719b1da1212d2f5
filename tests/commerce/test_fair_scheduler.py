"""No merchant delays the events of another, whatever its callbacks do."""

import pytest

from svcd.commerce.circuit_breaker import BreakerChange, DeliveryOutcome
from svcd.commerce.delivery_scheduler import MAX_IN_FLIGHT, Delivery
from svcd.commerce.fair_scheduler import FairScheduler, in_flight_share, most_in_flight
from svcd.store.webhook_events import WatchQueue

NOW = 1_000_000_000
SHARE = in_flight_share(2)


def put(scheduler: FairScheduler, merchant: str, *hosts: str, due: int = NOW) -> None:
    for host in hosts:
        scheduler.schedule(WatchQueue(f"{merchant}/{host}", host, due, merchant), NOW)


def drain(scheduler: FairScheduler, now: int = NOW) -> list[Delivery]:
    deliveries = []
    while (delivery := scheduler.begin(now)) is not None:
        deliveries.append(delivery)
    return deliveries


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
    assert (in_flight_share(merchants), most_in_flight(merchants)) == (share, most)


@pytest.mark.parametrize("merchants", [33, 100, 300])
def test_however_many_merchants_stall_the_others_deliver_at_once(merchants: int) -> None:
    scheduler = FairScheduler(in_flight_share(merchants))
    for number in range(merchants - 1):
        put(scheduler, f"shop{number}", *(f"host{host}" for host in range(9)))
    stalling = drain(scheduler)
    assert len(stalling) == scheduler.in_flight == (merchants - 1) * in_flight_share(merchants)
    assert scheduler.next_at(NOW) is None

    for number in range(20):
        put(scheduler, "books", f"shop{number}.example.com")
        (delivery,) = drain(scheduler)
        assert delivery.queue.merchant == "books"
        scheduler.end(delivery, DeliveryOutcome.ACCEPTED, None, NOW)


@pytest.mark.parametrize("merchants", [1, 2, 32, 33, 100, 300])
def test_a_host_that_stalls_leaves_half_of_the_share_to_other_hosts(merchants: int) -> None:
    share = in_flight_share(merchants)
    scheduler = FairScheduler(share)
    for number in range(9):
        scheduler.schedule(WatchQueue(f"slow/{number}", "slow.example.com", NOW, "books"), NOW)
    assert len(drain(scheduler)) == min(4, share // 2)
    put(scheduler, "books", "fast.example.com")
    assert [delivery.queue.receiver for delivery in drain(scheduler)] == ["fast.example.com"]


def test_stalling_callbacks_leave_the_share_of_others_free() -> None:
    scheduler = FairScheduler(SHARE)
    put(scheduler, "slow", *(f"host{number}" for number in range(2 * MAX_IN_FLIGHT)))
    stalling = drain(scheduler)
    assert {delivery.queue.merchant for delivery in stalling} == {"slow"}
    assert len(stalling) == scheduler.in_flight == SHARE
    assert scheduler.next_at(NOW) is None

    put(scheduler, "books", "shop.example.com")
    (delivery,) = drain(scheduler)
    assert delivery.queue.merchant == "books"
    assert scheduler.waiting == 2 * MAX_IN_FLIGHT - SHARE


def test_failures_of_one_merchant_at_a_host_do_not_hold_the_events_of_its_owner() -> None:
    scheduler = FairScheduler(SHARE)
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

    put(scheduler, "books", "shop.example.com")
    assert [delivery.queue.merchant for delivery in drain(scheduler)] == ["books"]


def test_a_cancelled_queue_is_gone_whosever_it_was() -> None:
    scheduler = FairScheduler(SHARE)
    put(scheduler, "books", "a", "b", due=NOW + 5)
    put(scheduler, "music", "c", due=NOW + 3)
    assert scheduler.next_at(NOW) == NOW + 3
    scheduler.cancel("music/c", NOW)
    scheduler.cancel("books/a", NOW)
    assert scheduler.next_at(NOW) == NOW + 5
    (delivery,) = drain(scheduler, NOW + 5)
    assert delivery.queue.watch == "books/b"
    again = WatchQueue("books/b", "b", NOW + 9, "books")
    scheduler.end(delivery, DeliveryOutcome.FAILED, again, NOW + 5)
    assert (scheduler.waiting, scheduler.in_flight, scheduler.next_at(NOW + 5)) == (1, 0, NOW + 9)
