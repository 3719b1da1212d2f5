"""Watches on a running chain: the events as blocks come, are undone and return (docs/webhook-reference.md)."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import combinations
from pathlib import Path
from typing import Any, NoReturn

import apsw
import pytest
from attrs import define, evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from svcd.chain.address import encode_address
from svcd.chain.block import Block
from svcd.commerce import chain_follower, watch_operations
from svcd.commerce.chain_follower import (
    CURSOR_BLOCKS,
    ChainDelta,
    ChainFollower,
    StepContext,
    advance_cursor,
    read_delta,
)
from svcd.commerce.events import (
    DEFAULT_EVENTS,
    ChainIdentity,
    EventType,
    MismatchedTransfer,
    WebhookEvent,
    event_body,
)
from svcd.commerce.leadership import DatabaseClock
from svcd.commerce.payment import (
    MAX_MISMATCHES,
    ChainTip,
    Mismatch,
    Observation,
    PaymentLocation,
    PaymentState,
)
from svcd.commerce.payment_request import MAX_CONFIRMATIONS, PaymentTerms
from svcd.commerce.watch_operations import (
    MAX_CONFIRMED_FACTOR,
    MAX_WATCHES_OF_PAYMENT,
    TooManyWatches,
    WatchLimits,
    WatchOperations,
)
from svcd.commerce.watch_repository import watch_of
from svcd.commerce.webhook_service import MAX_PAUSES_SECONDS
from svcd.interfaces import Worker, milliseconds
from svcd.node.chain_alarms import ChainAlarm
from svcd.node.changes import BlockStatus, ChainChange
from svcd.node.clock_guard import STEADY_SECONDS
from svcd.store import webhook_store
from svcd.store.chain_store import ChainReader
from svcd.store.database import WEBHOOKS, DatabaseConnection, open_writer
from svcd.store.pruned import Pruned
from svcd.store.sql_connection import SqliteConnection
from svcd.store.webhook_events import WatchQueue
from svcd.store.webhook_store import FollowedBlock, WebhookStore
from tests.commerce.watched import Watched
from tests.rpc.conftest import present
from tests.rpc.node import Node, Settings
from tests.submitting import submitted
from tests.support import has_result, result_of

DAY = 86_400
FORK = """
genesis: b[1..6]
b2: c[3..7]
c7: c[8..12]
b3 pays 5000 from alice to bob for order-1
c8 pays 5000 from alice to bob for order-1
"""
"""The payment stands in b3; the heavier branch c lacks it until c8."""
FORK_MISMATCHES = """
b4 pays 4999 from carol to bob for order-1
c5 pays 5001 from carol to bob for order-1
c9 pays 5000 from carol to bob for order-1
"""


@pytest.fixture
def clock() -> Clock:
    return present()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def watched(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Watched]:
    uri = "" if request.param == "sqlite" else request.getfixturevalue("postgresql_server").new_schema()
    watched = Watched(tmp_path, clock, postgresql=uri)
    yield watched
    watched.close()


def run(watched: Watched, *blocks: Block) -> list[str]:
    """The events as these blocks are connected one after the other."""
    told: list[str] = []
    for block in blocks:
        watched.node.take(block)
        told += settle(watched)
    return told


def settle_only(watched: Watched) -> None:
    for _ in range(20):
        watched.clock.advance(0)


def settle(watched: Watched) -> list[str]:
    settle_only(watched)
    return watched.told()


def chain(watched: Watched, text: str = FORK) -> dict[str, Block]:
    return watched.node.builder.chain(text)


def some(blocks: dict[str, Block], letter: str, first: int, last: int) -> list[Block]:
    return [blocks[f"{letter}{number}"] for number in range(first, last + 1)]


def test_a_payment_from_the_mempool_to_its_confirmation(watched: Watched) -> None:
    identifier = watched.register()["id"]

    watched.pay("5000 from alice to bob for order-1")
    assert watched.told() == ["pending: pending 0"]
    waiting = [entry.transfer for entry in watched.node_context.transaction_pool.mempool.entries()]
    first = watched.node.builder.block(transfers=waiting)
    second = watched.node.builder.block(first)
    third = watched.node.builder.block(second)
    assert run(watched, first) == ["confirming: confirming 1"]
    assert run(watched, second, third) == ["confirming: confirming 2", "confirmed: confirmed 3"]
    shown = watched.show(identifier)
    assert (shown["lastState"], shown["active"], shown["payment"]["state"]) == ("confirmed", True, "confirmed")
    assert [event["event"] for event in shown["events"]] == [
        "payment.confirmed",
        "payment.confirming",
        "payment.confirming",
        "payment.pending",
    ]


def test_the_body_says_what_a_merchant_needs(watched: Watched) -> None:
    identifier = watched.register()["id"]
    blocks = chain(watched)
    watched.node.take(*some(blocks, "b", 1, 3))

    (body,) = watched.events()

    assert body["event"] == "payment.confirming"
    assert body["id"].startswith("svcevt_")
    assert body["subscriptionId"] == identifier
    assert (body["epoch"], body["sequence"], body["initial"], body["previousState"]) == (0, 1, False, "unpaid")
    assert body["tip"] == {"height": "3", "hash": blocks["b3"].header.hash.hex()}
    assert body["payment"]["blockHash"] == blocks["b3"].header.hash.hex()
    assert body["payment"]["blockHeight"] == "3"
    assert body["payment"]["amount"] == "5000"
    assert body["genesisHash"] == watched.node.params.genesis_hash.hex()


def test_a_payment_that_gets_deep_enough_while_the_node_catches_up_is_confirmed_once_the_node_is_in_step(
    watched: Watched,
) -> None:
    identifier = watched.register()["id"]
    watched.synced = False
    watched.node.take(*some(chain(watched), "b", 1, 5))

    (body,) = watched.events()
    assert (body["event"], body["payment"]["state"]) == ("payment.confirming", "confirming")
    assert body["node"] == body["tip"] | {"synced": False}
    watched.poll()
    assert watched.events() == []
    shown = watched.show(identifier)
    assert (shown["lastState"], shown["payment"]["state"]) == ("confirming", "confirmed")
    assert shown["payment"]["node"] == shown["payment"]["tip"] | {"synced": False}

    watched.synced = True
    watched.poll()
    (body,) = watched.events()
    assert (body["event"], body["payment"]["state"], body["previousState"]) == (
        "payment.confirmed",
        "confirmed",
        "confirming",
    )
    assert body["node"]["synced"] is True
    watched.poll()
    assert watched.events() == []


def test_an_alarm_is_told_once_to_one_watch_of_each_callback_that_asks(watched: Watched) -> None:
    wanted = {"payment.confirming", "node.alarm"}
    watched.register("order-0")
    first = watched.register("order-1", required=9, events=wanted)["id"]
    second = watched.register("order-2", events=wanted)["id"]
    other = watched.register("order-3", events=wanted, merchant="books")["id"]
    run(watched, *some(chain(watched), "b", 1, 2))
    watched.alarms = [ChainAlarm("outage", "7", "the chain stood still")]
    watched.poll()

    told = watched.events()
    assert {body["subscriptionId"] for body in told} == {second, other}
    assert {(body["event"], body["epoch"], body["sequence"]) for body in told} == {("node.alarm", 0, 1)}
    assert told[0]["alarm"] == {"kind": "outage", "sentence": "the chain stood still"}
    assert (told[0]["payment"]["state"], told[0]["previousState"]) == ("unpaid", "unpaid")
    watched.poll()
    watched.again()
    assert settle(watched) == []

    watched.alarms = []
    watched.poll()
    watched.cancel(second)
    watched.cancel(other)
    blocks = some(chain(watched), "b", 1, 3)
    watched.node.take(blocks[2])
    for _ in range(20):
        watched.clock.advance(0)
    watched.alarms = [ChainAlarm("outage", "7", "the chain stood still again")]
    watched.poll()
    # It supersedes nothing, and is superseded by nothing.
    watched.node.take(*some(chain(watched), "b", 4, 4))
    for _ in range(20):
        watched.clock.advance(0)
    assert [(body["subscriptionId"], body["event"]) for body in watched.events() if "order-1" in str(body)] == [
        (first, "node.alarm"),
        (first, "payment.confirming"),
    ]


DEEP_FORKS = """
genesis: b[1..14]
b1: c[2..15]
b1: d[2..16]
b1: e[2..17]
"""


def alarms(bodies: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Which heights the bodies of alarms name, and whether they are initial."""
    assert all(body["event"] == "node.alarm" for body in bodies)
    return [(body["alarm"]["sentence"].partition(":")[0].partition("height ")[2], body["initial"]) for body in bodies]


def test_each_deep_reorganisation_is_told_and_a_new_watch_is_told_the_last(watched: Watched) -> None:
    watched.register(ttl=9 * DAY, events=[EventType.ALARM])
    blocks = chain(watched, DEEP_FORKS)
    run(watched, *some(blocks, "b", 1, 14))
    # A node that was killed after the reorganisation tells it all the same, once.
    watched.close_webhooks()
    watched.node.take(*some(blocks, "c", 2, 15))
    watched.open_webhooks()
    settle_only(watched)
    assert alarms(watched.events()) == [("2 to 14", False)]
    watched.again()
    assert settle(watched) == []
    watched.clock.advance(DAY / 2)
    watched.node.take(*some(blocks, "d", 2, 16))
    settle_only(watched)
    assert alarms(watched.events()) == [("2 to 15", False)]
    watched.node.take(*some(blocks, "e", 2, 17))
    settle_only(watched)
    assert alarms(watched.events()) == [("2 to 16", False)]

    watched.alarms = [ChainAlarm("standstill", "ab", "height 17: it stands still")]
    watched.poll()
    assert alarms(watched.events()) == [("17", False)]
    watched.register("order-2", ttl=2 * DAY)
    watched.register("order-3", ttl=2 * DAY, events=[EventType.ALARM])
    settle_only(watched)
    assert alarms(watched.events()) == [("2 to 16", True), ("17", True)]
    watched.clock.advance(DAY)
    watched.alarms = [ChainAlarm("standstill", "cd", "height 18: it stands still")]
    watched.poll()
    assert alarms(watched.events()) == [("18", False)]
    watched.alarms = []
    watched.poll()
    watched.register("order-4", ttl=DAY, events=[EventType.ALARM])
    assert settle(watched) == []


QUIET = DEFAULT_EVENTS - {EventType.MISMATCHED}
WRONG = """
genesis: b[1..8]
b2 pays 4999 from alice to bob for order-1
b2 pays 5001 from carol to bob for order-1
b3 pays 5000 from alice to bob for order-1
b4 pays 5000 from carol to bob for order-1
b5 pays 1 from alice to bob for order-2
"""


def mismatches(bodies: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Kind and amount that the bodies of mismatches tell."""
    return [(body["mismatch"]["kind"], body["mismatch"]["amount"]) for body in bodies if "mismatch" in body]


@pytest.mark.parametrize("restarted", [False, True])
def test_wrong_and_double_payments_are_told_once_unless_a_watch_does_not_want_them(
    watched: Watched, restarted: bool
) -> None:
    silent = watched.register(events=QUIET)["id"]
    asking = watched.register(host="books.example.com")["id"]
    told: list[dict[str, Any]] = []
    for block in some(chain(watched, WRONG), "b", 1, 8):
        watched.node.take(block)
        settle_only(watched)
        if restarted:
            watched.again()
            settle_only(watched)
        told += watched.events()

    bodies = [body for body in told if body["subscriptionId"] == asking]
    assert mismatches(bodies) == [("too-little", "4999"), ("too-much", "5001"), ("duplicate", "5000")]
    assert [(body["sequence"], body["event"]) for body in bodies] == [
        (1, "payment.mismatched"),
        (2, "payment.mismatched"),
        (3, "payment.confirming"),
        (4, "payment.confirming"),
        (5, "payment.mismatched"),
        (6, "payment.confirmed"),
    ]
    first, _, third = (body for body in bodies if "mismatch" in body)
    assert first["mismatch"]["sender"] == watched.node.address("alice")
    assert first["mismatch"]["amountSvc"] == "0.00004999"
    assert (first["payment"]["state"], first["previousState"], first["initial"]) == ("unpaid", "unpaid", False)
    assert third["mismatch"]["txid"] != third["payment"]["txid"]
    assert (third["previousState"], third["epoch"]) == ("confirming", 0)
    assert not mismatches([body for body in told if body["subscriptionId"] == silent])


def test_mismatches_from_before_a_registration_are_initial(watched: Watched) -> None:
    run(watched, *some(chain(watched, WRONG), "b", 1, 5))
    watched.register(events=[EventType.MISMATCHED])
    told = watched.events()
    assert mismatches(told) == [("too-little", "4999"), ("too-much", "5001"), ("duplicate", "5000")]
    assert all(body["initial"] for body in told)


@pytest.mark.parametrize("ending", ["expired", "cancelled", "cancelled later", "watched again", "watched twice"])
def test_a_late_payment_is_told_unless_nobody_or_another_watch_waits_for_it(watched: Watched, ending: str) -> None:
    identifier = watched.register(ttl=60)["id"]
    second = watched.register(ttl=600, events=QUIET)["id"] if ending == "watched twice" else ""
    blocks = chain(watched, WRONG)
    run(watched, blocks["b1"], blocks["b2"])
    if ending == "cancelled":
        watched.cancel(identifier)
    watched.clock.advance(60)
    watched.poll()
    watched.events()
    if ending == "cancelled later":
        watched.cancel(identifier)
    if ending == "watched again":
        second = watched.register(ttl=600, events=QUIET)["id"]
        assert watched.show(identifier)["ending"] == "expired"
        assert (
            watched.database.operations.repository.watches.with_mismatches("order-1", watched.node.address("bob")) == []
        )
        watched.events()
    watched.node.take(blocks["b3"])
    settle_only(watched)
    watched.again()
    watched.node.take(*some(blocks, "b", 4, 8))
    settle_only(watched)

    told = watched.events()
    late = [("late", "5000"), ("duplicate", "5000")] if ending == "expired" else []
    assert mismatches(told) == late
    if ending == "expired":
        assert [body["sequence"] for body in told] == [4, 5]
        assert watched.show(identifier)["ending"] == "expired"
    if second:
        assert {body["subscriptionId"] for body in told} == {second}


def test_a_payment_that_is_not_confirmed_when_its_watch_expires_is_late(watched: Watched) -> None:
    """Otherwise nothing would ever tell of it again."""
    watched.register(ttl=60, required=9)
    blocks = chain(watched)
    run(watched, *some(blocks, "b", 1, 4))
    watched.clock.advance(60)
    watched.poll()
    told = watched.events()
    assert [body["event"] for body in told] == ["payment.expired", "payment.mismatched"]
    assert mismatches(told[1:]) == [("late", "5000")]
    assert run(watched, *some(blocks, "b", 5, 6), *some(blocks, "c", 3, 12)) == []


def test_the_last_of_the_watches_of_an_order_that_end_together_reports_the_late_payment(watched: Watched) -> None:
    """Each of them has another active watch beside it when its turn comes, but the last."""
    watched.register(ttl=60, required=9)
    last = watched.register(ttl=60, required=9, host="books.example.com")["id"]
    run(watched, *some(chain(watched), "b", 1, 4))
    watched.clock.advance(60)
    watched.poll()
    late = [body for body in watched.events() if "mismatch" in body]
    assert [(body["subscriptionId"], body["mismatch"]["kind"]) for body in late] == [(last, "late")]


def test_a_payment_in_the_last_minute_is_followed_until_it_is_confirmed(watched: Watched) -> None:
    watched.register(ttl=3600, pay_within=60)
    blocks = chain(watched)
    watched.node.take(blocks["b1"])
    watched.clock.advance(59)
    watched.poll()
    watched.pay("5000 from alice to bob for order-1")
    settle_only(watched)
    assert watched.told() == ["pending: pending 0"]
    watched.clock.advance(600)
    watched.poll()
    assert run(watched, *some(blocks, "b", 2, 5)) == [
        "confirming: confirming 1",
        "confirming: confirming 2",
        "confirmed: confirmed 3",
    ]


def test_a_payment_after_the_deadline_is_late(watched: Watched) -> None:
    identifier = watched.register(ttl=3600, pay_within=60)["id"]
    blocks = chain(watched)
    watched.clock.advance(120)
    watched.poll()
    assert watched.told() == ["expired: unpaid 0"]
    assert watched.show(identifier)["ending"] == "expired"
    for block in some(blocks, "b", 1, 6):
        watched.node.take(block)
        settle_only(watched)
    assert mismatches(watched.events()) == [("late", "5000")]


def test_a_payment_in_the_last_seconds_is_in_time_while_the_node_connects_blocks(watched: Watched) -> None:
    watched.register(ttl=3600, pay_within=60)
    watched.register("order-2", ttl=3600, pay_within=60)
    watched.clock.advance(55)
    watched.busy = True
    watched.pay("5000 from alice to bob for order-1")
    for _ in range(6):
        watched.clock.advance(1)
        watched.poll()
    watched.pay("5000 from carol to bob for order-2")
    watched.busy = False
    watched.clock.advance(1)
    assert settle(watched) == ["pending: pending 0"]
    watched.clock.advance(60)
    watched.poll()
    assert settle(watched) == ["expired: unpaid 0"]


def test_a_payment_that_waited_in_time_counts_in_a_later_block(watched: Watched) -> None:
    """The watches are evaluated for the first time when a block after the deadline has included it."""
    watched.register(ttl=3600, pay_within=60)
    watched.clock.advance(55)
    watched.busy = True
    watched.pay("5000 from alice to bob for order-1")
    watched.clock.advance(6)
    later = watched.node.params.slot_at(milliseconds(watched.clock))
    watched.node.take(
        chain(watched, f"genesis: b1\nb1 is at slot {later}\nb1 pays 5000 from alice to bob for order-1")["b1"]
    )
    watched.busy = False
    watched.clock.advance(1)
    assert settle(watched) == ["confirming: confirming 1"]


# A wrong clock


def wrong(watched: Watched, seconds: float) -> None:
    """Set the computer's clock; the node finds out when it looks at it."""
    clock: Any = watched.clock
    clock.ahead = seconds
    watched.poll()
    settle_only(watched)


def steady(watched: Watched) -> None:
    for _ in range(round(STEADY_SECONDS) + 1):
        watched.clock.advance(1)
        watched.node_context.guard.check()
    watched.poll()
    settle_only(watched)


@pytest.mark.parametrize("jump", [2 * DAY, -2 * DAY])
def test_a_clock_that_is_wrong_for_a_second_ends_no_watch(watched: Watched, jump: int) -> None:
    names = [f"order-{number}" for number in range(1, 21)]
    for name in names:
        watched.register(name, ttl=3600, pay_within=1800)
    settle_only(watched)
    wrong(watched, jump)
    during = watched.register("order-21", ttl=3600, pay_within=1800)
    watched.pay("5000 from carol to bob for order-2")
    settle_only(watched)
    assert watched.told() == ["pending: pending 0"]
    watched.clock.advance(1)
    wrong(watched, 0)
    assert watched.told() == []
    watched.pay("5000 from alice to bob for order-1")
    assert settle(watched) == ["pending: pending 0"], "a later payment is not late"
    steady(watched)
    assert watched.told() == []
    assert watched.show(during["id"])["active"], "one that was registered meanwhile has its time"
    watched.clock.advance(1800)
    watched.poll()
    settle_only(watched)
    ended = 18 if jump > 0 else 19
    assert watched.told() == ["expired: unpaid 0"] * ended


@pytest.mark.parametrize(("jump", "waited", "told"), [(-2 * DAY, 30, ["pending: pending 0"]), (2 * DAY, 61, [])])
def test_a_wrong_clock_moves_no_payment_where_the_time_is_that_of_a_database(
    watched: Watched, jump: int, waited: int, told: list[str]
) -> None:
    watched.database_clock = DatabaseClock(watched.clock)
    watched.database_clock.set_unix_time(milliseconds(watched.clock), watched.clock.seconds())
    watched.again()
    watched.register(ttl=3600, pay_within=60)
    settle_only(watched)
    wrong(watched, jump)
    watched.clock.advance(waited)
    watched.pay("5000 from alice to bob for order-1")
    assert settle(watched) == told


@pytest.mark.parametrize("jump", [2 * DAY, -2 * DAY])
def test_a_deadline_is_as_long_as_it_was_while_the_clock_is_in_doubt(watched: Watched, jump: int) -> None:
    """What counts is when the transfer came, by the clock as if nobody had set it."""
    for number in (1, 2):
        watched.register(f"order-{number}", ttl=3600, pay_within=60)
    settle_only(watched)
    wrong(watched, jump)
    watched.clock.advance(59)
    watched.pay("5000 from alice to bob for order-1")
    assert settle(watched) == ["pending: pending 0"]
    watched.clock.advance(1)
    watched.pay("5000 from carol to bob for order-2")
    watched.clock.advance(60)
    watched.poll()
    assert settle(watched) == [], "late, but nothing is over while the clock is in doubt"
    wrong(watched, 0)
    steady(watched)
    assert watched.told() == ["expired: unpaid 0"]


def test_a_deadline_that_begins_while_the_clock_is_in_doubt_is_that_of_the_later_time(watched: Watched) -> None:
    watched.register("order-1", ttl=3600, pay_within=60)
    settle_only(watched)
    wrong(watched, DAY)
    shown = watched.register("order-2", ttl=3600, pay_within=60)
    assert int(shown["payUntil"]) == milliseconds(watched.clock) + 60_000
    watched.clock.advance(61)
    watched.pay("5000 from alice to bob for order-1")
    watched.pay("5000 from carol to bob for order-2")
    assert settle(watched) == ["pending: pending 0"]
    watched.node_context.guard.confirm()
    watched.clock.advance(60)
    watched.poll()
    assert settle(watched) == ["expired: unpaid 0"], "of the first order; the second was decided for the buyer"


def test_nothing_expires_by_a_new_time_until_it_is_confirmed(watched: Watched) -> None:
    watched.register(ttl=3600, pay_within=60)
    settle_only(watched)
    wrong(watched, DAY)
    steady(watched)
    assert watched.told() == []
    watched.node_context.guard.confirm()
    watched.poll()
    assert settle(watched) == ["expired: unpaid 0"]


def test_a_payment_is_confirmed_while_the_clock_is_not_trusted(watched: Watched) -> None:
    """Its depth does not depend on the clock; nor does a watch close meanwhile."""
    identifier = watched.register(ttl=3600)["id"]
    blocks = chain(watched)
    watched.node.take(blocks["b1"])
    settle_only(watched)
    watched.synced = False
    assert run(watched, *some(blocks, "b", 2, 5))[-1] == "confirming: confirming 2"
    wrong(watched, DAY)
    watched.synced = True
    watched.poll()
    assert settle(watched) == ["confirmed: confirmed 3"]
    assert watched.show(identifier)["active"]


DROPS = ["payment.pending", "payment.dropped", "payment.confirming"]


def drops(watched: Watched) -> list[dict[str, Any]]:
    """What the undelivered events tell of payments that have left the mempool."""
    return [body["dropped"] for body in watched.events() if body["event"] == "payment.dropped"]


def test_a_pending_payment_that_another_transfer_replaces_is_dropped(watched: Watched) -> None:
    """What a point of sale must know that hands out goods while a payment is pending."""
    watched.register(events=DROPS)
    watched.node.take(*some(chain(watched), "b", 1, 2))
    txid = watched.pay("5000 from alice to bob for order-1")
    settle_only(watched)
    assert watched.told() == ["pending: pending 0"]
    other = watched.node.builder.transfer("alice", "alice", 1, nonce=0, fee=20_000)
    submitted(watched.node_context.transaction_pool, other, watched.clock)
    settle_only(watched)
    assert drops(watched) == [{"reason": "replaced", "txid": txid.hex(), "replacedBy": other.txid.hex()}]
    watched.poll()
    assert drops(watched) == []


def test_a_pending_payment_is_dropped_with_the_txid_of_the_transfer_that_a_block_has_in_its_place(
    watched: Watched,
) -> None:
    """No mempool has seen the double spend."""
    watched.register(events=DROPS)
    txid = watched.pay("5000 from alice to bob for order-1")
    builder = watched.node.builder
    first = builder.block(transfers=[builder.transfer("alice", "alice", 1, nonce=0, fee=20_000)])
    assert watched.told() == ["pending: pending 0"]
    watched.node.take(first, builder.block(first, transfers=[builder.transfer("alice", "carol", 1, nonce=1)]))
    settle_only(watched)
    [other] = first.transfers
    assert drops(watched) == [{"reason": "replaced", "txid": txid.hex(), "replacedBy": other.txid.hex()}]


def test_a_pending_payment_that_its_sender_cannot_pay_any_more_is_evicted(watched: Watched) -> None:
    """A block has spent the balance under an earlier nonce; no transfer has the nonce of the payment."""
    watched.register(events=DROPS)
    builder, minimum = watched.node.builder, watched.node.params.account_minimum
    payment = builder.transfer("alice", "bob", 5000, nonce=1, reference="order-1")
    for transfer in (builder.transfer("alice", "carol", 1, nonce=0), payment):
        submitted(watched.node_context.transaction_pool, transfer, watched.clock)
    settle_only(watched)
    assert watched.told() == ["pending: pending 0"]
    everything = builder.account_after(None, "alice").balance - minimum - 10_000
    watched.node.take(builder.block(transfers=[builder.transfer("alice", "carol", everything, nonce=0, fee=10_000)]))
    settle_only(watched)
    assert drops(watched) == [{"reason": "evicted", "txid": payment.txid.hex()}]


def test_a_pending_payment_whose_time_is_over_is_dropped(watched: Watched) -> None:
    watched.register(ttl=10 * DAY, events=DROPS)
    params = watched.node.params
    watched.node.take(*some(chain(watched), "b", 1, 2))
    now = params.slot_at(milliseconds(watched.clock))
    later = now + 2 * params.transaction_past_seconds // params.slot_seconds
    txid = watched.pay("5000 from alice to bob for order-1")
    settle_only(watched)
    assert watched.told() == ["pending: pending 0"]
    watched.clock.advance(2 * params.transaction_past_seconds)
    watched.node.take(chain(watched, f"genesis: b[1..3]\nb3 is at slot {later}")["b3"])
    watched.node_context.transaction_pool.expire()
    settle_only(watched)
    assert drops(watched) == [{"reason": "expired", "txid": txid.hex()}]


def test_a_pending_payment_for_which_the_mempool_has_no_room_is_dropped(tmp_path: Path, clock: Clock) -> None:
    watched = Watched(tmp_path, clock, max_transactions=1)
    try:
        watched.register(events=DROPS)
        txid = watched.pay("5000 from alice to bob for order-1")
        settle_only(watched)
        assert watched.told() == ["pending: pending 0"]
        other = watched.node.builder.transfer("carol", "carol", 1, nonce=0, fee=40_000)
        submitted(watched.node_context.transaction_pool, other, watched.clock)
        settle_only(watched)
        assert drops(watched) == [{"reason": "evicted", "txid": txid.hex()}]
    finally:
        watched.close()


def test_a_payment_that_a_block_takes_is_not_dropped(watched: Watched) -> None:
    watched.register(events=DROPS)
    blocks = chain(watched)
    watched.node.take(*some(blocks, "b", 1, 2))
    transfer = blocks["b3"].transfers[0]
    submitted(watched.node_context.transaction_pool, transfer, watched.clock)
    settle_only(watched)
    assert watched.told() == ["pending: pending 0"]
    assert run(watched, blocks["b3"]) == ["confirming: confirming 1"]


@pytest.mark.parametrize("at_once", [False, True])
def test_dust_does_not_use_up_what_a_watch_tells_of_wrong_payments(watched: Watched, at_once: bool) -> None:
    lines = [f"b2 pays {number} from alice to bob for order-1" for number in range(1, 10)]
    lines += [f"b3 pays {number} from carol to bob for order-1" for number in (*range(491, 500), *range(500, 510))]
    blocks = chain(watched, "\n".join(["genesis: b[1..4]", *lines, "b4 pays 5000 from alice to bob for order-1"]))
    identifier = "" if at_once else watched.register()["id"]
    for name in ("b1", "b2", "b3"):
        watched.node.take(blocks[name])
        settle_only(watched)
    identifier = identifier or watched.register()["id"]
    settle_only(watched)
    told = watched.events()
    # Of those that are there at once, the nearest are looked at.
    expected = [*range(493, 500), *range(500, 509)] if at_once else [*range(1, 9), *range(500, 508)]
    assert [int(amount) for _, amount in mismatches(told)] == expected
    assert [body["mismatch"].get("more") for body in told] == [*[None] * 15, True]
    assert watched.show(identifier)["moreMismatches"] is True
    assert run(watched, blocks["b4"]) == ["confirming: confirming 1"], "the payment is told all the same"
    watched.cancel(identifier)
    assert "moreMismatches" not in watched.show(identifier)


def test_a_merchant_has_a_limited_number_of_watches_that_tell_mismatches_of_one_reference(watched: Watched) -> None:
    for amount in range(1, MAX_WATCHES_OF_PAYMENT + 1):
        watched.register(amount=amount, ttl=60)
    with pytest.raises(TooManyWatches, match=r"32 active watches with the event payment\.mismatched"):
        watched.register(amount=99)
    watched.register(amount=99, events=QUIET)
    watched.register(amount=99, merchant="books")
    watched.clock.advance(60)
    watched.poll()
    watched.register(amount=98)


def test_the_longest_body_has_at_most_4096_bytes() -> None:
    recipient = encode_address(bytes(20), "svcd")
    terms = PaymentTerms("r" * 64, recipient, 10**18, MAX_CONFIRMATIONS, 10**9)
    location = PaymentLocation(bytes(32), bytes(32), 10**9, 2**31, 2**53)
    mismatches = tuple(Mismatch(bytes([number] * 32), 10**18 + number, 10**9) for number in range(MAX_MISMATCHES))
    tip = ChainTip(2 * 10**9, bytes(32))
    observation = Observation(tip, location=location, match_count=32, mismatches=mismatches, synced=False)
    event = WebhookEvent(
        type=EventType.MISMATCHED,
        epoch=2**40,
        sequence=2**40,
        state=PaymentState.CONFIRMING,
        previous_state=PaymentState.CONFIRMING,
        initial=False,
        observation=observation,
        mismatch=MismatchedTransfer(txid=bytes(32), sender=recipient, amount=10**18 - 1, kind="too-little", more=True),
    )
    identity = ChainIdentity(network_id=2**31, chain_id="SVC-MAINNET", genesis_hash=bytes(32))
    body = event_body(event, chain=identity, watch_id="svcwh_" + 32 * "f", terms=terms, now=2**53)
    assert len(body) <= 4096


def test_a_registration_waits_until_undone_transfers_are_back_in_the_mempool(watched: Watched) -> None:
    blocks = chain(watched)
    watched.register()
    run(watched, *some(blocks, "b", 1, 6))
    registering: list[Deferred[dict[str, object]]] = []

    class Hasty:
        def chain_changed(self, change: ChainChange) -> None:
            if change.undone:
                registering.append(Deferred.fromCoroutine(watched.webhooks.register(watched.request("order-2"))))

    watched.node_context.chain_manager.subscribe(Hasty())
    told = run(watched, *some(blocks, "c", 3, 7))

    assert len(registering) == 1
    assert has_result(registering[0])
    assert told == ["reorged: pending 0"]


@define
class Interrupted:
    """A worker before whose next job something else happens, as it may between two threads."""

    worker: Worker
    happens: Callable[[], object] | None

    def run(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return self.worker.run(function, *args)


@pytest.mark.parametrize("registers", [False, True])
def test_blocks_that_are_undone_at_the_begin_of_a_step_wait_for_the_mempool_too(
    watched: Watched, registers: bool
) -> None:
    blocks = chain(watched)
    watched.register()
    run(watched, *some(blocks, "b", 1, 6))
    worker = Interrupted(watched.database.worker, lambda: watched.node.take(*some(blocks, "c", 3, 7)))
    watched.webhooks._worker = worker
    if registers:
        registering = Deferred.fromCoroutine(watched.webhooks.register(watched.request("order-2")))
        settle_only(watched)
        watched.clock.advance(1)
        assert result_of(registering)["active"]
    else:
        watched.poll()
    assert worker.happens is None
    assert settle(watched) == ["reorged: pending 0"]


def test_a_heavier_but_shorter_chain_reduces_confirmations_below_the_fork(watched: Watched) -> None:
    slow = "\n".join(f"b{number} is at slot {6 + 40 * (number - 3)}" for number in range(4, 9))
    blocks = chain(watched, f"genesis: b[1..8]\nb3 pays 5000 from alice to bob for order-1\n{slow}\nb3: c[4..7]")
    watched.register(required=10)

    assert run(watched, *some(blocks, "b", 1, 8))[-1] == "confirming: confirming 6"
    assert run(watched, *some(blocks, "c", 4, 7)) == ["reorged: confirming 5"]


def test_epochs_and_sequences_grow(watched: Watched) -> None:
    watched.register()
    blocks = chain(watched)
    watched.node.take(*some(blocks, "b", 1, 6))
    first = watched.events()
    run(watched, *some(blocks, "c", 3, 6))
    watched.node.take(blocks["c7"])
    watched.clock.advance(0)
    watched.node.take(*some(blocks, "c", 8, 12))
    second = watched.events()

    assert [(body["event"], body["epoch"], body["sequence"]) for body in first + second] == [
        # Each confirmation supersedes what was not delivered before it, the second one also the reorganisation.
        ("payment.confirmed", 0, 3),
        ("payment.confirmed", 1, 7),
    ]


def test_a_confirmation_that_was_undone_before_it_was_delivered_is_never_told(watched: Watched) -> None:
    shop, narrow = watched.register(), watched.register(events={"payment.confirmed"})
    blocks = chain(watched)
    watched.node.take(*some(blocks, "b", 1, 6))
    watched.node.take(*some(blocks, "c", 3, 7))
    settle_only(watched)
    fates = [
        [event.get("superseded", False) for event in watched.show(watch["id"])["events"]] for watch in (shop, narrow)
    ]
    assert fates == [[False, True, True, True], [True]]
    assert settle(watched) == ["reorged: pending 0"]

    assert run(watched, *some(blocks, "c", 8, 12)) == [
        "confirming: confirming 1",
        "confirming: confirming 2",
        *["confirmed: confirmed 3"] * 2,
    ]


@pytest.mark.parametrize("stop", range(1, 17))
def test_a_restart_at_any_block_does_not_change_the_events(tmp_path: Path, clock: Clock, stop: int) -> None:
    watched = Watched(tmp_path, clock)
    try:
        watched.register()
        blocks = chain(watched)
        told: list[str] = []
        order = [*some(blocks, "b", 1, 6), *some(blocks, "c", 3, 12)]
        told += run(watched, *order[:stop])
        watched.again()
        told += settle(watched) + run(watched, *order[stop:])
    finally:
        watched.close()

    assert told == [
        "confirming: confirming 1",
        "confirming: confirming 2",
        "confirmed: confirmed 3",
        "reorged: pending 0",
        "confirming: confirming 1",
        "confirming: confirming 2",
        "confirmed: confirmed 3",
    ]


def test_blocks_from_while_the_webhooks_were_down_are_evaluated(watched: Watched) -> None:
    watched.register()
    blocks = chain(watched)
    watched.node.take(*some(blocks, "b", 1, 4))
    assert watched.told() == ["confirming: confirming 2"]
    watched.close_webhooks()
    watched.node.take(*some(blocks, "c", 3, 12))
    watched.clock.advance(0)

    watched.open_webhooks()

    assert watched.told() == ["reorged: confirmed 5", "confirmed: confirmed 5"]


def test_several_blocks_at_once_give_the_same_events_as_one_by_one(watched: Watched) -> None:
    identifier = watched.register()["id"]
    watched.node.take(*some(chain(watched), "b", 1, 6))

    events = watched.show(identifier)["events"]
    assert [(event["event"], event.get("superseded", False)) for event in events] == [
        ("payment.confirmed", False),
        ("payment.confirming", True),
        ("payment.confirming", True),
    ]
    assert watched.told() == ["confirmed: confirmed 3"]


def test_only_the_wanted_events_are_told(watched: Watched) -> None:
    identifier = watched.register(events={"payment.confirmed", "payment.reorged"})["id"]
    blocks = chain(watched)
    assert run(watched, *some(blocks, "b", 1, 6)) == ["confirmed: confirmed 3"]
    assert run(watched, *some(blocks, "c", 3, 12)) == ["reorged: pending 0", "confirmed: confirmed 3"]
    shown = watched.show(identifier)
    assert shown["wantedEvents"] == ["payment.confirmed", "payment.reorged"]
    assert [event["event"] for event in shown["events"]] == [
        "payment.confirmed",
        "payment.reorged",
        "payment.confirmed",
    ]


def test_the_wanted_events_are_known_after_a_restart(watched: Watched) -> None:
    first = watched.register(events={"payment.confirmed"})
    watched.again()
    assert watched.register(events={"payment.confirmed"})["id"] == first["id"]
    assert run(watched, *some(chain(watched), "b", 1, 5)) == ["confirmed: confirmed 3"]


def test_after_hundreds_of_blocks_only_the_final_state_is_an_event(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_follower, "_MAX_BLOCKS_READ", 5)
    watched.register()
    watched.node.take(*some(chain(watched), "b", 1, 6))

    assert watched.told() == ["confirmed: confirmed 4"]


def test_a_chain_that_lost_blocks_in_a_power_loss_undoes_no_payment(watched: Watched, tmp_path: Path) -> None:
    watched.register()
    blocks = chain(watched)
    watched.node.take(*some(blocks, "b", 1, 2))
    builder = watched.node.builder
    watched.close()
    shutil.copy(tmp_path / "chain.sqlite", tmp_path / "before.sqlite")
    watched.open()
    assert run(watched, *some(blocks, "b", 3, 5))[-1] == "confirmed: confirmed 3"
    watched.close()
    shutil.copy(tmp_path / "before.sqlite", tmp_path / "chain.sqlite")
    watched.open()
    watched.node.builder = builder

    assert settle(watched) == []
    # The watch is evaluated as soon as the blocks are back.
    assert watched.register("order-2")["active"]
    assert run(watched, *some(blocks, "b", 3, 6)) == []
    # Later reorganisations are reported as usual.
    assert run(watched, *some(blocks, "c", 3, 7)) == ["reorged: pending 0"]


def test_a_payment_made_while_the_chain_was_behind_is_reported_afterwards(watched: Watched, tmp_path: Path) -> None:
    watched.register()
    builder = watched.node.builder
    first = builder.block()
    watched.close()
    shutil.copy(tmp_path / "chain.sqlite", tmp_path / "before.sqlite")
    watched.open()
    run(watched, first)
    watched.close()
    shutil.copy(tmp_path / "before.sqlite", tmp_path / "chain.sqlite")
    watched.open()
    watched.node.builder = builder

    watched.pay("5000 from alice to bob for order-1")
    assert settle(watched) == []
    assert run(watched, first) == ["pending: pending 0"]


@pytest.mark.parametrize(
    "payment",
    [
        "4999 from alice to bob for order-1",
        "5001 from alice to bob for order-1",
        "5000 from alice to bob for Order-1",
        "5000 from alice to bob for order-10",
        "5000 from alice to carol for order-1",
        "5000 from alice to bob",
    ],
)
def test_a_transfer_that_differs_in_any_term_causes_no_event(watched: Watched, payment: str) -> None:
    """Except `payment.mismatched`, if the watch wants it."""
    watched.register(events=QUIET)

    watched.pay(payment)
    watched.node.grow(f"genesis: b[1..2]\nb2 pays {payment}")

    assert settle(watched) == []


def test_a_payment_from_before_the_order_does_not_count(watched: Watched) -> None:
    watched.node.grow("genesis: b[1..5]\nb2 pays 5000 from alice to bob for order-1")

    assert watched.register(since=3)["payment"]["state"] == "unpaid"
    assert watched.told() == []


@pytest.mark.parametrize(("required", "told"), [(3, "confirmed: confirmed 4"), (9, "confirming: confirming 4")])
def test_a_payment_already_on_the_chain_is_one_initial_event(watched: Watched, required: int, told: str) -> None:
    watched.node.grow("genesis: b[1..5]\nb2 pays 5000 from alice to bob for order-1")

    subscription = watched.register(required=required)

    assert subscription["lastState"] == "unpaid"
    assert subscription["payment"]["confirmations"] == 4
    (body,) = watched.events()
    assert body["initial"]
    assert f"{body['event'].removeprefix('payment.')}: {body['payment']['state']} 4" == told


def test_a_payment_already_in_the_mempool_is_an_event(watched: Watched) -> None:
    watched.pay("5000 from alice to bob for order-1")

    watched.register()

    assert watched.told() == ["pending: pending 0"]


def test_a_pending_payment_is_still_pending_after_a_restart(watched: Watched) -> None:
    watched.register()
    watched.pay("5000 from alice to bob for order-1")
    watched.again()

    assert settle(watched) == ["pending: pending 0"]
    watched.again()
    assert settle(watched) == []
    assert watched.node.node_context.transaction_pool.mempool.entries()


def test_a_payment_that_left_the_mempool_while_the_webhooks_were_down_is_unpaid(watched: Watched) -> None:
    identifier = watched.register()["id"]
    txid = watched.pay("5000 from alice to bob for order-1")
    assert watched.told() == ["pending: pending 0"]
    watched.close_webhooks()
    watched.node_context.transaction_pool.drop([txid])
    watched.open_webhooks()

    assert settle(watched) == []
    assert watched.show(identifier)["lastState"] == "unpaid"
    watched.clock.advance(1)
    watched.pay("5000 from alice to bob for order-1")
    assert watched.told() == ["pending: pending 0"]


def test_the_second_of_two_payments_replaces_the_first_when_it_is_undone(watched: Watched) -> None:
    watched.register()
    blocks = chain(
        watched,
        """
        genesis: b[1..6]
        b2: d[3..8]
        b3 pays 5000 from alice to bob for order-1
        b4 pays 5000 from carol to bob for order-1
        d4 pays 5000 from carol to bob for order-1
        """,
    )
    run(watched, *some(blocks, "b", 1, 5))
    watched.node.take(blocks["b6"])
    assert watched.told() == []
    shown = watched.show("svcwh_" + "1".rjust(32, "0"))
    assert (shown["payment"]["matchCount"], shown["payment"]["blockHeight"]) == (2, "3")

    assert run(watched, *some(blocks, "d", 3, 8)) == ["reorged: confirmed 4", "confirmed: confirmed 4"]


def test_an_order_that_nobody_pays_expires(watched: Watched) -> None:
    identifier = watched.register(ttl=60)["id"]

    watched.clock.advance(59)
    watched.poll()
    assert watched.told() == []
    watched.clock.advance(1)
    watched.poll()
    assert watched.told() == ["expired: unpaid 0"]
    shown = watched.show(identifier)
    assert (shown["active"], shown["lastState"], shown["ending"]) == (False, "expired", "expired")


def test_nothing_expires_while_the_node_catches_up(watched: Watched) -> None:
    watched.register(ttl=60)
    watched.synced = False
    watched.clock.advance(3600)
    watched.poll()
    assert watched.told() == []

    watched.synced = True
    watched.poll()
    assert watched.told() == ["expired: unpaid 0"]


def test_a_payment_confirmed_while_the_webhooks_were_down_has_not_expired(watched: Watched) -> None:
    """Earlier blocks are evaluated with the present time, but only at the tip may the watch expire."""
    watched.register(ttl=60)
    watched.close_webhooks()
    watched.clock.advance(3600)
    watched.node.take(*some(chain(watched), "b", 1, 5))
    watched.clock.advance(0)

    watched.open_webhooks()

    assert watched.told() == ["confirmed: confirmed 3"]


def test_the_same_order_again_is_the_same_watch(watched: Watched) -> None:
    first = watched.register()
    watched.pay("5000 from alice to bob for order-1")

    again = watched.register()

    assert (again["id"], again["existing"], again["lastState"]) == (first["id"], True, "pending")
    assert watched.told() == ["pending: pending 0"]
    different: list[dict[str, Any]] = [
        *({"required": 4}, {"ttl": 60}, {"host": "b.example.com"}, {"events": {"payment.confirmed"}})
    ]
    others = [watched.register(**other)["id"] for other in different]
    assert len({first["id"], *others}) == 5
    assert watched.register(events=set(DEFAULT_EVENTS))["id"] == first["id"]


def test_no_repr_contains_a_callback_path(watched: Watched) -> None:
    """Its path and query may contain a secret of the shop's, and tracebacks contain reprs."""
    identifier = watched.register()["id"]
    watched.pay("5000 from alice to bob for order-1")
    repository = watched.database.operations.repository
    row = repository.watches.watch(identifier)
    assert row is not None

    shown = repr([watched.request(), row, watch_of(row), repository.events.head(identifier)])

    assert row.callback_url.endswith("/paid")
    assert "/paid" not in shown


def test_a_cancelled_watch_has_no_more_events(watched: Watched) -> None:
    identifier = watched.register()["id"]
    watched.pay("5000 from alice to bob for order-1")

    cancelled = watched.cancel(identifier)

    assert (cancelled["active"], cancelled["lastState"]) == (False, "pending")
    assert cancelled["events"][0]["dropped"] is True
    assert watched.cancel(identifier) == cancelled
    watched.again()
    watched.node.grow("genesis: b[1..1]\nb1 pays 5000 from alice to bob for order-1")
    assert settle(watched) == []


def test_cancelling_an_ended_watch_drops_its_undelivered_events(watched: Watched) -> None:
    identifier = watched.register(ttl=60)["id"]
    watched.clock.advance(60)
    watched.poll()

    cancelled = watched.cancel(identifier)

    assert (cancelled["ending"], cancelled["lastState"]) == ("expired", "expired")
    assert cancelled["events"][0]["dropped"] is True
    watched.again()
    assert watched.told() == []


def limit(watched: Watched, total: int, per_host: int) -> None:
    watched.limits = WatchLimits(total, per_host)
    watched.again()


def test_the_limits_on_watches(watched: Watched) -> None:
    limit(watched, total=3, per_host=2)
    first = watched.register("order-1")["id"]
    watched.register("order-2")

    with pytest.raises(TooManyWatches, match=r"shop.example.com has 2 unconfirmed watches.* maxWatchesPerHost$"):
        watched.register("order-3")
    watched.register("order-3", host="other.example.com")
    with pytest.raises(TooManyWatches, match=r"this merchant has 3 unconfirmed watches.* maxWatches$"):
        watched.register("order-4", host="third.example.com")
    # A repeated request does not count.
    assert watched.register("order-1")["existing"]
    watched.cancel(first)
    watched.register("order-4")


def test_a_payment_has_few_watches_of_each_merchant_and_confirmed_ones_have_a_limit(watched: Watched) -> None:
    limit(watched, total=9, per_host=9)
    run(watched, *some(chain(watched), "b", 1, 6))
    for number in range(MAX_WATCHES_OF_PAYMENT):
        watched.register("order-1", 5000, required=1, ttl=3600 + number)
    with pytest.raises(TooManyWatches, match="this payment has 32 active watches, the most; cancel some"):
        watched.register("order-1", 5000, required=1, ttl=7200)
    assert watched.register("order-1", 5000, required=1, ttl=3600)["existing"]
    watched.register("order-1", 5000, required=1, merchant="other")
    for number in range(MAX_CONFIRMED_FACTOR * 9 - MAX_WATCHES_OF_PAYMENT):
        watched.register(f"order-2-{number}")
    with pytest.raises(TooManyWatches, match=r"this merchant has 36 active watches, the most; .* maxWatches$"):
        watched.register("order-3")


def test_a_confirmed_watch_counts_no_more_unless_it_is_undone(watched: Watched) -> None:
    limit(watched, total=1, per_host=1)
    watched.register()
    blocks = chain(watched)
    run(watched, *some(blocks, "b", 1, 4))
    with pytest.raises(TooManyWatches):
        watched.register("order-2")
    run(watched, blocks["b5"])
    second = watched.register("order-2")["id"]
    watched.cancel(second)
    run(watched, blocks["b6"], *some(blocks, "c", 3, 7))
    with pytest.raises(TooManyWatches):
        watched.register("order-3")


def test_more_watches_than_a_page_expire_in_several_steps(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_store, "PAGE", 2)
    for number in range(5):
        watched.register(f"order-{number}", ttl=60 + number)
    watched.clock.advance(100)
    told = []
    for _ in range(3):
        watched.poll()
        told.append(len(watched.told()))
    assert told == [2, 2, 1]


def test_no_merchant_takes_the_room_of_another(watched: Watched) -> None:
    limit(watched, total=2, per_host=1)
    watched.register("order-1")
    watched.register("order-2", host="other.example.com")
    with pytest.raises(TooManyWatches):
        watched.register("order-3", host="third.example.com")
    watched.register("order-1", merchant="books")
    with pytest.raises(TooManyWatches, match=r"shop.example.com has 1 unconfirmed watches"):
        watched.register("order-2", merchant="books")


def test_two_merchants_watch_one_order_and_neither_sees_the_other(watched: Watched) -> None:
    first = watched.register("order-1")["id"]
    second = watched.register("order-1", merchant="books")
    assert "existing" not in second
    assert watched.show(first, "books") is None
    assert watched.cancel(first, "books") is None
    assert watched.show(second["id"]) is None

    watched.pay("5000 from alice to bob for order-1")
    ids = {first: "default", second["id"]: "books"}
    assert {queue.watch: queue.merchant for queue in watched.queues.pending.values()} == ids
    heads = [result_of(watched.outbox.head(identifier)) for identifier in ids]
    assert [head.merchant for head in heads if head is not None] == ["default", "books"]
    assert len({head.event_id for head in heads if head is not None}) == 2
    assert watched.cancel(first)["active"] is False
    assert watched.show(second["id"], "books")["active"] is True

    watched.again()
    assert {queue.watch: queue.merchant for queue in watched.queues.pending.values()} == {second["id"]: "books"}


@pytest.mark.parametrize("refused", [False, True], ids=["known already", "no room"])
def test_mempool_changes_survive_a_registration_that_begins_no_watch(watched: Watched, refused: bool) -> None:
    limit(watched, total=1, per_host=1)
    watched.register()
    watched.busy = True
    watched.pay("5000 from alice to bob for order-1")

    if refused:
        with pytest.raises(TooManyWatches):
            watched.register("order-2")
    else:
        assert watched.register()["payment"]["state"] == "pending"

    watched.busy = False
    watched.clock.advance(0.1)
    assert watched.told() == ["pending: pending 0"]


def test_watches_that_ended_a_month_ago_are_deleted(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_operations, "_CLEANUP_BATCH", 2)
    over = [watched.register(f"order-{number}")["id"] for number in range(5)]
    for identifier in over:
        watched.cancel(identifier)
    node_context = watched.register("order-5", ttl=604_800)["id"]

    watched.clock.advance(30 * DAY)
    watched.clean_up()
    assert all(watched.show(identifier) for identifier in over)
    watched.clock.advance(0.001)
    watched.clean_up()
    assert [watched.show(identifier) for identifier in over] == [None] * 5
    assert watched.show(node_context)


def test_events_undelivered_for_a_week_are_abandoned_and_logged(watched: Watched) -> None:
    identifier = watched.register(ttl=604_800)["id"]
    watched.pay("5000 from alice to bob for order-1")
    watched.clock.advance(7 * DAY)
    watched.clean_up()
    assert "abandoned" not in watched.show(identifier)["events"][0]

    watched.clock.advance(0.001)
    with capturedLogs() as logs:
        watched.clean_up()
    assert watched.show(identifier)["events"][0]["abandoned"]
    assert [event["lost"] for event in logs if "lost" in event] == [1]


@pytest.mark.parametrize("ahead", [10 * DAY, -10 * DAY])
def test_setting_the_clock_by_more_than_a_week_abandons_no_event(watched: Watched, ahead: int) -> None:
    identifier = watched.register(ttl=604_800)["id"]
    watched.pay("5000 from alice to bob for order-1")
    watched.clock.unix_seconds = lambda: watched.clock.seconds() + ahead  # type: ignore[attr-defined]
    watched.clean_up()
    assert "abandoned" not in watched.show(identifier)["events"][0]


def test_queues_that_cannot_be_read_at_the_start_are_read_later(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.register()
    watched.pay("5000 from alice to bob for order-1")
    with monkeypatch.context() as broken, capturedLogs() as logs:
        broken.setattr(WatchOperations, "queues", _no_reading)
        watched.again()
    assert watched.told() == []
    assert [event["why"] for event in logs if "why" in event] == ["disk I/O error"]

    watched.poll()
    assert watched.told() == ["pending: pending 0"]


def _no_reading(_: WatchOperations, __: int) -> NoReturn:
    raise apsw.IOError("disk I/O error")


@pytest.mark.parametrize("watched", ["sqlite"], indirect=True)
def test_a_full_disk_loses_nothing(watched: Watched) -> None:
    watched.register()
    connection: DatabaseConnection = watched.database.operations.repository.watches._db
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(40):
        # Fills the space left in the pages, of events and of watches.
        with suppress(apsw.Error):
            connection.execute(
                "INSERT INTO event (watch, sequence, epoch, id, name, body, summary, created_at, fate) "
                "VALUES (99, ?, 0, '', '', zeroblob(500), '', 0, 'dropped')",
                (number,),
            )
        with suppress(apsw.Error):
            watched.register(f"filling-{number}")
    blocks = chain(watched)

    with capturedLogs() as logged:
        assert run(watched, *some(blocks, "b", 1, 4)) == []
    assert [event["log_level"].name for event in logged if "cannot be written" in event["log_format"]] == ["error"]
    connection.execute("PRAGMA max_page_count = 100000")
    watched.poll()

    assert settle(watched) == ["confirming: confirming 2"]


@given(data=st.data())
@settings(max_examples=settings().max_examples // 3 + 1)
def test_whatever_happens_the_last_event_agrees_with_verification(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Chain, receivers and node do what they like; two merchants watch one order, one of them its confirmation only."""
    watched = Watched(tmp_path_factory.mktemp("law"), present())
    answers = st.sampled_from(["take", "fail", "refuse"])

    def answer(body: dict[str, Any]) -> str:
        drawn: str = data.draw(answers, label=body["event"])
        return "take" if (drawn, body["event"]) == ("refuse", "payment.confirmed") else drawn

    try:
        identifier = watched.register()["id"]
        narrow = watched.register(events={"payment.confirmed"}, merchant="books")["id"]
        blocks = chain(watched, FORK + FORK_MISMATCHES)
        order = [*some(blocks, "b", 1, 6), *some(blocks, "c", 3, 12)]
        told: list[dict[str, Any]] = []
        while order:
            count = data.draw(st.integers(1, len(order)), label="blocks in this step")
            watched.node.take(*order[:count])
            del order[:count]
            watched.synced = data.draw(st.booleans(), label="in sync with the network")
            if data.draw(st.booleans(), label="settled"):
                watched.clock.advance(0)
            if data.draw(st.booleans(), label="received"):
                heard = watched.attempt(answer)
                for watch in (identifier, narrow):
                    check_newest_first([body for body in heard if body["subscriptionId"] == watch], told)
                told += heard
            if told and data.draw(st.booleans(), label="asked for again"):
                again = data.draw(st.sampled_from(told))
                merchant = "books" if again["subscriptionId"] == narrow else "default"
                watched.redeliver(again["subscriptionId"], again["id"], merchant)
            if data.draw(st.booleans(), label="restarted"):
                watched.again()
        watched.synced = True
        watched.poll()
        settle_only(watched)
        # What gave way to a payment keeps its pause, so it takes another round.
        while heard := watched.attempt(lambda _: "take"):
            told += heard
        payment = watched.show(identifier)["payment"]
        fates = {event["id"]: event for event in watched.show(identifier)["events"]}
        assert not watched.queues.pending
    finally:
        watched.close()

    contents = {body["id"]: body for body in told}
    assert all(contents[body["id"]] == body for body in told), "one id, one content"
    # What a merchant knows is the newest of what it has heard.
    for watch in (identifier, narrow):
        own = [body for body in contents.values() if body["subscriptionId"] == watch and "mismatch" not in body]
        places = [(body["epoch"], body["sequence"]) for body in own]
        assert places == sorted(set(places)), "in order, when heard for the first time"
        assert own[-1]["event"] == "payment.confirmed"
        # The chain has the required confirmations in the end.
        assert payment["state"] == "confirmed"
        assert own[-1]["payment"]["txid"] == payment["txid"]
        assert own[-1]["payment"]["blockHash"] == payment["blockHash"]
    heard_of = {body["id"] for body in told if body["subscriptionId"] == identifier}
    given_up = {event for event, fate in fates.items() if fate.get("superseded") or fate.get("refused")}
    assert fates.keys() <= heard_of | given_up, "nothing is lost"
    mismatched = [body for body in contents.values() if "mismatch" in body]
    kinds = mismatches(mismatched)
    assert len({body["mismatch"]["txid"] for body in mismatched}) == len(kinds)
    # What is on the chain in the end is told, unless it was refused, and nothing else but what has been on it.
    refused = sum(fate.get("refused", False) for fate in fates.values())
    assert len({("too-much", "5001"), ("duplicate", "5000")} - set(kinds)) <= refused
    assert set(kinds) <= {("too-much", "5001"), ("duplicate", "5000"), ("too-little", "4999")}


def check_newest_first(heard: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    """A merchant that has heard nothing for a while is not told a confirmation that was undone meanwhile."""
    new = [body for body in heard if body not in before]
    for body, later in combinations(new, 2):
        assert (body["event"], later["event"]) != ("payment.confirmed", "payment.reorged")


def held_steps(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Steps of two watches each, which only the returned function takes; it gives the merchants with new events."""
    monkeypatch.setattr(chain_follower, "_AT_ONCE", 2)
    monkeypatch.setattr(watched.webhooks, "poll", lambda: None)

    def step() -> list[str]:
        queues = watched.database.operations.follower.step(watched.webhooks._step_context())
        watched.queues.enqueue(queues)
        return sorted(queue.merchant for queue in queues)

    return step


def test_a_merchant_does_not_wait_for_the_many_watches_of_another(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        watched.register(required=4 + number, merchant="large")
    watched.register(required=4, merchant="small")
    blocks = some(chain(watched), "b", 1, 4)
    run(watched, *blocks[:2])
    step = held_steps(watched, monkeypatch)
    follower = watched.database.operations.follower

    watched.node.take(blocks[2])
    assert step() == ["large", "small"], "in the first share"
    assert follower.unfinished
    # Also the next block does not wait for the watches that are left.
    watched.node.take(blocks[3])
    assert "small" in step() + step()
    while follower.unfinished:
        step()
    assert [body["payment"]["confirmations"] for body in watched.events()] == [2] * 6
    assert step() == []


def test_a_block_is_evaluated_when_no_watch_is_left(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        watched.register(required=4 + number)
    blocks = some(chain(watched), "b", 1, 5)
    assert watched.webhooks.evaluated_height == 0
    run(watched, *blocks[:2])
    assert watched.webhooks.evaluated_height == 2
    step = held_steps(watched, monkeypatch)
    follower = watched.database.operations.follower
    watched.node.take(blocks[2])
    while step() or follower.unfinished:
        assert follower.evaluated_height == (2 if follower.unfinished else 3)
    assert follower.evaluated_height == 3
    # A kill between two shares: what was left is found again, and only then is the block evaluated.
    for block in blocks[3:]:
        watched.node.take(block)
    step()
    assert follower.unfinished
    watched.again()
    settle_only(watched)
    assert watched.webhooks.evaluated_height == 5


def test_a_payment_is_told_before_its_block_is_deleted(tmp_path: Path, clock: Clock) -> None:
    """The webhooks' database cannot be written for longer than blocks are kept."""
    watched = Watched(tmp_path, clock, keep_blocks=2)
    watched.node_context.start_pruning(lambda: watched.webhooks.evaluated_height)
    watched.register(required=2)
    blocks = watched.node.builder.chain("genesis: b[1..10]\nb3 pays 5000 from alice to bob for order-1")
    reader = watched.node_context.chain_manager.reader
    run(watched, *some(blocks, "b", 1, 2))
    connection = watched.database.operations.repository.watches._db.connection  # type: ignore[attr-defined]
    connection.execute("PRAGMA query_only = 1")
    assert run(watched, *some(blocks, "b", 3, 9)) == []
    assert reader.prune_height() == 3
    connection.execute("PRAGMA query_only = 0")
    watched.poll()
    assert settle(watched)[-1] == "confirmed: confirmed 2"
    run(watched, blocks["b10"])
    assert reader.prune_height() == 5, "a block deletes two"
    watched.close()


def test_a_payment_in_a_branch_that_wins_is_told_before_its_block_is_deleted(tmp_path: Path, clock: Clock) -> None:
    """The webhooks' database cannot be written while blocks are undone, nor when the new ones become old."""
    watched = Watched(tmp_path, clock, keep_blocks=5)
    watched.node_context.start_pruning(lambda: watched.webhooks.evaluated_height)
    watched.register()
    blocks = watched.node.builder.chain("genesis: b[1..6]\nb2: c[3..13]\nc4 pays 5000 from alice to bob for order-1")
    reader = watched.node_context.chain_manager.reader
    run(watched, *some(blocks, "b", 1, 6))
    assert watched.webhooks.evaluated_height == 6
    connection = watched.database.operations.repository.watches._db.connection  # type: ignore[attr-defined]
    connection.execute("PRAGMA query_only = 1")
    assert run(watched, *some(blocks, "c", 3, 12)) == []
    assert watched.node_context.chain_manager.tip.height == 12
    assert (watched.webhooks.evaluated_height, reader.prune_height()) == (2, 3)
    connection.execute("PRAGMA query_only = 0")
    watched.poll()
    assert settle(watched)[-1] == "confirmed: confirmed 9"
    run(watched, blocks["c13"])
    assert (watched.webhooks.evaluated_height, reader.prune_height()) == (13, 5)
    watched.close()


def test_blocks_undone_during_a_step_lower_the_height_that_it_has_reached(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.register()
    blocks = chain(watched)
    run(watched, *some(blocks, "b", 1, 5))
    follower = watched.database.operations.follower
    step, heights, new = follower.step, list[int](), some(blocks, "c", 3, 7)
    taken: list[Deferred[Any]] = []

    def stepping(context: StepContext) -> list[WatchQueue]:
        heights.append(watched.webhooks.evaluated_height)
        queues = step(context)
        if new:
            # It connects them when the listeners have heard of the block before.
            wires = [block.wire() for block in new]
            new.clear()
            taken.append(watched.node_context.chain_manager.submit_blocks(wires, proven_work=2**255))
        return queues

    monkeypatch.setattr(ChainFollower, "step", lambda _, context: stepping(context))
    watched.node.take(blocks["b6"])
    settle_only(watched)
    assert result_of(taken[0])[-1] is BlockStatus.CONNECTED
    assert heights[:2] == [5, 2]
    assert watched.webhooks.evaluated_height == 7


def test_the_blocks_of_a_new_watch_are_kept_until_it_is_evaluated(tmp_path: Path, clock: Clock) -> None:
    """The node has so many blocks to connect that the watches wait."""
    watched = Watched(tmp_path, clock, keep_blocks=5)
    watched.node_context.start_pruning(lambda: watched.webhooks.evaluated_height)
    watched.register("order-2")
    blocks = watched.node.builder.chain("genesis: b[1..13]\nb3 pays 5000 from alice to bob for order-1")
    run(watched, *some(blocks, "b", 1, 6))
    assert watched.webhooks.evaluated_height == 6
    watched.busy = True
    watched.register(since=3)
    assert run(watched, *some(blocks, "b", 7, 12)) == []
    reader = watched.node_context.chain_manager.reader
    assert reader.prune_height() == 3
    watched.busy = False
    watched.clock.advance(0.05)
    assert settle(watched)[-1] == "confirmed: confirmed 10"
    run(watched, blocks["b13"])
    assert reader.prune_height() == 5
    watched.close()


def test_a_watch_is_stored_when_no_block_that_it_names_can_be_deleted_any_more(watched: Watched) -> None:
    """A deletion that is under way may have read the evaluated height before the registration."""
    blocks = chain(watched)
    run(watched, *some(blocks, "b", 1, 5))
    deleted: Deferred[None] = Deferred()
    watched.webhooks._context = evolve(watched.webhooks._context, deletions_done=lambda: deleted)
    registering = Deferred.fromCoroutine(watched.webhooks.register(watched.request(since=3)))
    assert not has_result(registering)
    assert watched.webhooks.evaluated_height == 2
    run(watched, blocks["b6"])
    assert watched.webhooks.evaluated_height == 2, "a step that does not see the watch does not raise it"
    deleted.callback(None)
    assert result_of(registering)["sinceHeight"] == "3"
    settle(watched)
    assert watched.webhooks.evaluated_height == 6


def test_a_stored_watch_that_no_step_has_evaluated_holds_the_height(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(watched, *some(chain(watched), "b", 1, 6))
    step, follower = held_steps(watched, monkeypatch), watched.database.operations.follower
    for number in range(5):
        watched.register(required=4 + number, since=3 + number)
    heights = []
    while step() or follower.unfinished:
        heights.append(follower.evaluated_height)
    assert heights[0] == 4, "two of five were evaluated"
    assert follower.evaluated_height == 6
    assert heights == sorted(heights, key=lambda height: height or 0)


def test_a_watch_says_from_which_height_this_node_has_blocks(tmp_path: Path, clock: Clock) -> None:
    watched = Watched(tmp_path, clock, keep_blocks=2)
    watched.node_context.start_pruning(lambda: watched.webhooks.evaluated_height)
    run(watched, *some(chain(watched), "b", 1, 6))
    first = watched.node_context.chain_manager.reader.prune_height()
    assert first > 2
    with pytest.raises(Pruned, match=f"payments from block 1 on: this node has only blocks from height {first} on"):
        watched.register(since=1)
    assert watched.register()["pruneHeight"] == str(first)
    assert "pruneHeight" not in watched.register("order-2", since=first)
    watched.close()


@pytest.mark.parametrize("interrupted", ["", "restart", "failure"])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_shares_change_no_event_whatever_comes_between_them(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, interrupted: str, steps: int
) -> None:
    """Further blocks and a reorganisation arrive after some shares of the first block only."""
    watches = [watched.register(required=2 + number)["id"] for number in range(5)]
    # One more depth cannot be told twice, and a new watch is evaluated at once.
    text = "genesis: b[1..7]\nb5: c[6..8]\nb2 pays 5000 from alice to bob for order-1"
    blocks = watched.node.builder.chain(text)
    run(watched, blocks["b1"])
    step = held_steps(watched, monkeypatch)
    told: dict[str, list[tuple[str, str, int]]] = {}

    def hear() -> None:
        for body in sorted(watched.events(), key=lambda body: body["sequence"]):
            event = body["event"].removeprefix("payment."), body["tip"]["height"], body["payment"]["confirmations"]
            told.setdefault(body["subscriptionId"], []).append(event)

    for names in (("b2",), ("b3", "b4"), ("b5", "b6"), ("c6", "c7", "c8")):
        for name in names:
            watched.node.take(blocks[name])
            for _ in range(steps):
                step()
                hear()
            if interrupted == "restart":
                watched.again()
                settle_only(watched)
                hear()
                step = held_steps(watched, monkeypatch)
            elif interrupted == "failure":
                with monkeypatch.context() as patched:
                    patched.setattr(chain_follower, "advance_cursor", fail)
                    with suppress(apsw.Error):
                        step()
    while step() or watched.database.operations.follower.unfinished:
        hear()
    hear()
    for number, watch in enumerate(watches):
        required = 2 + number
        heard = told[watch]
        confirmed = [event for event in heard if event[0] == "confirmed"]
        depths = [event[2] for event in heard if event[0] == "confirming"]
        assert len(confirmed) == 1, heard
        assert confirmed[0][2] >= required
        assert depths == sorted(set(depths)), "no depth is told twice"
        assert max(depths, default=0) < required
        if steps:
            assert "reorged" not in [event[0] for event in heard], "its block stands"


def fail(*_arguments: object) -> NoReturn:
    raise apsw.FullError("database or disk is full")


def test_a_reorganisation_between_two_shares_is_told_to_all_that_heard_of_the_block(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        watched.register(required=3, host=f"shop-{_}.example.com")
    blocks = chain(watched)
    run(watched, *some(blocks, "b", 1, 2))
    step = held_steps(watched, monkeypatch)
    watched.node.take(blocks["b3"])
    step()
    heard = {body["subscriptionId"] for body in watched.events()}
    assert len(heard) == 2
    watched.node.take(*some(blocks, "c", 3, 5))
    settle_only(watched)
    step()
    told = watched.events()
    assert {body["subscriptionId"] for body in told if body["event"] == "payment.reorged"} == heard
    assert not watched.database.operations.follower.unfinished


def test_a_step_pauses_while_blocks_are_connected_but_not_for_ever(watched: Watched) -> None:
    watched.register()
    blocks = some(chain(watched), "b", 1, 3)
    run(watched, *blocks[:2])
    assert not watched.pauses
    watched.busy = True
    watched.node.take(blocks[2])
    for _ in range(300):
        watched.clock.advance(0.05)
    assert sum(watched.pauses) == pytest.approx(MAX_PAUSES_SECONDS)
    assert watched.told() == ["confirming: confirming 1"]


def test_all_shares_of_a_block_pause_together_no_longer_than_one(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        watched.register(required=3 + number)
    blocks = some(chain(watched), "b", 1, 3)
    run(watched, *blocks[:2])
    monkeypatch.setattr(chain_follower, "_AT_ONCE", 1)
    watched.busy = True
    watched.node.take(blocks[2])
    for _ in range(300):
        watched.clock.advance(0.05)
    assert sum(watched.pauses) == pytest.approx(MAX_PAUSES_SECONDS)
    assert watched.told() == ["confirming: confirming 1"] * 5


@pytest.fixture
def watches(tmp_path: Path) -> Iterator[WebhookStore]:
    with closing(open_writer(tmp_path / "webhooks.sqlite", WEBHOOKS)) as connection:
        yield WebhookStore(SqliteConnection(connection))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "chain.sqlite", present(), Settings())
    yield node
    node.close()


def tip_of(node: Node) -> ChainTip:
    point = node.node_context.chain_manager.tip
    return ChainTip(point.height, point.hash)


def follow(watches: WebhookStore, node: Node) -> ChainDelta:
    """Advance the cursor; returns the delta before."""
    reader = node.node_context.chain_manager.reader
    with reader.snapshot(), watches.commit():
        delta = read_delta(watches, reader)
        assert delta is not None
        advance_cursor(watches, reader, delta)
    return delta


def test_a_file_without_a_chain_has_no_delta(watches: WebhookStore, tmp_path: Path) -> None:
    with closing(open_writer(tmp_path / "empty.sqlite")) as connection:
        assert read_delta(watches, ChainReader(connection)) is None


def test_a_new_cursor_begins_at_the_tip(watches: WebhookStore, node: Node) -> None:
    node.grow("genesis: a[1..3]")
    delta = follow(watches, node)
    assert (delta.tip, delta.before, delta.fork, delta.moved) == (tip_of(node), 3, 3, False)
    assert [(step.height, step.hash) for step in watches.steps_down()] == [(3, delta.tip.hash)]


def test_new_and_undone_blocks(watches: WebhookStore, node: Node) -> None:
    node.grow("genesis: a[1..2]")
    follow(watches, node)
    blocks = node.builder.chain("genesis: a[1..4]\na3: b[4..6]")
    node.take(blocks["a3"], blocks["a4"])
    delta = follow(watches, node)
    assert (delta.before, delta.fork, list(delta.new_heights)) == (2, 2, [3, 4])
    node.take(blocks["b4"], blocks["b5"], blocks["b6"])
    delta = follow(watches, node)
    assert (delta.before, delta.fork, list(delta.new_heights)) == (4, 3, [4, 5, 6])
    assert [step.height for step in watches.steps_down()] == [6, 5, 4, 3, 2]
    assert not follow(watches, node).moved


def test_a_fork_below_all_blocks_of_the_cursor(watches: WebhookStore, node: Node) -> None:
    """No block of the cursor is canonical: all from its oldest one on count as undone."""
    node.grow("genesis: a[1..3]")
    watches.follow(0, [FollowedBlock(2, bytes(32), 2), FollowedBlock(3, bytes(31) + b"1", 3)], keep=CURSOR_BLOCKS)
    delta = follow(watches, node)
    assert (delta.before, delta.fork, list(delta.new_heights)) == (3, 1, [2, 3])
    assert next(watches.steps_down()).hash == tip_of(node).hash


def test_a_chain_that_lost_its_newest_blocks_has_undone_nothing(watches: WebhookStore, node: Node) -> None:
    node.grow("genesis: a[1..2]")
    tip = tip_of(node)
    watches.follow(0, [FollowedBlock(2, tip.hash, 2), FollowedBlock(3, bytes(32), 3)], keep=CURSOR_BLOCKS)
    reader = node.node_context.chain_manager.reader
    with reader.snapshot():
        assert read_delta(watches, reader) is None
