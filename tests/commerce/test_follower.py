"""Watches on a living chain: what is told while blocks come, go and come back (docs/webhooks.md "Events")."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from svcd.chain.block import Block
from svcd.commerce import follower, subscriptions
from svcd.commerce.courtesy import LONGEST_SECONDS
from svcd.commerce.follower import Behind
from svcd.commerce.register import watch_of
from svcd.commerce.subscriptions import Subscriptions, TooManyWatches
from svcd.node.changes import Change
from tests.commerce.watched import Watched
from tests.rpc.conftest import present
from tests.support import has_result

DAY = 86_400
FORK = """
genesis: b[1..6]
b2: c[3..7]
c7: c[8..12]
b3 pays 5000 from alice to bob for order-1
c8 pays 5000 from alice to bob for order-1
"""
"""The payment stands in b3; the heavier branch c lacks it until c8."""


@pytest.fixture
def clock() -> Clock:
    return present()


@pytest.fixture
def watched(tmp_path: Path, clock: Clock) -> Iterator[Watched]:
    watched = Watched(tmp_path, clock)
    yield watched
    watched.close()


def run(watched: Watched, *blocks: Block) -> list[str]:
    """What is told when these blocks come one after the other."""
    told: list[str] = []
    for block in blocks:
        watched.node.take(block)
        told += settle(watched)
    return told


def settle(watched: Watched) -> list[str]:
    for _ in range(20):
        watched.clock.advance(0)
    return watched.told()


def chain(watched: Watched, text: str = FORK) -> dict[str, Block]:
    return watched.node.builder.chain(text)


def some(blocks: dict[str, Block], letter: str, first: int, last: int) -> list[Block]:
    return [blocks[f"{letter}{number}"] for number in range(first, last + 1)]


def test_a_payment_from_the_mempool_to_its_confirmation(watched: Watched) -> None:
    identifier = watched.register()["id"]

    watched.pay("5000 from alice to bob for order-1")
    assert watched.told() == ["pending: pending 0"]
    waiting = [entry.transfer for entry in watched.living.transfers.mempool.entries()]
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


def test_a_reorganisation_takes_the_payment_back_and_another_brings_it(watched: Watched) -> None:
    watched.register()
    blocks = chain(watched)
    assert run(watched, *some(blocks, "b", 1, 6)) == [
        "confirming: confirming 1",
        "confirming: confirming 2",
        "confirmed: confirmed 3",
    ]

    # It waits in the mempool again before anything is said of it.
    assert run(watched, *some(blocks, "c", 3, 7)) == ["reorged: pending 0"]
    assert run(watched, *some(blocks, "c", 8, 12)) == [
        "confirming: confirming 1",
        "confirming: confirming 2",
        "confirmed: confirmed 3",
    ]


def test_a_registration_does_not_look_before_the_mempool_has_taken_the_payment_back(watched: Watched) -> None:
    blocks = chain(watched)
    watched.register()
    run(watched, *some(blocks, "b", 1, 6))
    registering: list[Deferred[dict[str, object]]] = []

    class Hasty:
        def chain_changed(self, change: Change) -> None:
            if change.undone:
                registering.append(Deferred.fromCoroutine(watched.webhooks.register(watched.order("order-2"))))

    watched.living.ledger.subscribe(Hasty())
    told = run(watched, *some(blocks, "c", 3, 7))

    assert len(registering) == 1
    assert has_result(registering[0])
    assert told == ["reorged: pending 0"]


def test_a_heavier_chain_that_is_shorter_takes_depth_away_below_the_fork(watched: Watched) -> None:
    slow = "\n".join(f"b{number} is at slot {6 + 40 * (number - 3)}" for number in range(4, 9))
    blocks = chain(watched, f"genesis: b[1..8]\nb3 pays 5000 from alice to bob for order-1\n{slow}\nb3: c[4..7]")
    watched.register(required=10)

    assert run(watched, *some(blocks, "b", 1, 8))[-1] == "confirming: confirming 6"
    assert run(watched, *some(blocks, "c", 4, 7)) == ["reorged: confirming 5"]


def test_epochs_and_sequences_go_on(watched: Watched) -> None:
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
        # Of a depth that nobody has been told of yet only the newest is told.
        ("payment.confirming", 0, 2),
        ("payment.confirmed", 0, 3),
        ("payment.reorged", 1, 4),
        ("payment.confirming", 1, 6),
        ("payment.confirmed", 1, 7),
    ]


@pytest.mark.parametrize("stop", range(1, 17))
def test_a_stop_at_any_block_changes_nothing_of_what_is_told_in_the_end(
    tmp_path: Path, clock: Clock, stop: int
) -> None:
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


def test_blocks_that_came_while_the_webhooks_were_off_are_caught_up_with(watched: Watched) -> None:
    watched.register()
    blocks = chain(watched)
    watched.node.take(*some(blocks, "b", 1, 4))
    assert watched.told() == ["confirming: confirming 2"]
    watched.close_webhooks()
    watched.node.take(*some(blocks, "c", 3, 12))
    watched.clock.advance(0)

    watched.open_webhooks()

    assert watched.told() == ["reorged: confirmed 5", "confirmed: confirmed 5"]


def test_blocks_that_come_together_are_told_as_if_they_came_one_by_one(watched: Watched) -> None:
    watched.register()
    watched.node.take(*some(chain(watched), "b", 1, 6))

    assert watched.told() == ["confirming: confirming 2", "confirmed: confirmed 3"]


def test_after_hundreds_of_blocks_only_what_stands_is_told(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_BLOCKS_LOOKED_INTO", 5)
    watched.register()
    watched.node.take(*some(chain(watched), "b", 1, 6))

    assert watched.told() == ["confirmed: confirmed 4"]


def test_a_chain_that_a_power_loss_set_back_takes_nothing_back(watched: Watched, tmp_path: Path) -> None:
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
    with pytest.raises(Behind):
        watched.register("order-2")
    assert run(watched, *some(blocks, "b", 3, 6)) == []
    # What happened afterwards is told as ever.
    assert run(watched, *some(blocks, "c", 3, 7)) == ["reorged: pending 0"]


def test_what_was_paid_while_the_chain_was_set_back_is_seen_afterwards(watched: Watched, tmp_path: Path) -> None:
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
def test_what_differs_in_anything_is_not_told(watched: Watched, payment: str) -> None:
    watched.register()

    watched.pay(payment)
    watched.node.grow(f"genesis: b[1..2]\nb2 pays {payment}")

    assert settle(watched) == []


def test_a_payment_from_before_the_order_does_not_count(watched: Watched) -> None:
    watched.node.grow("genesis: b[1..5]\nb2 pays 5000 from alice to bob for order-1")

    assert watched.register(since=3)["payment"]["state"] == "unpaid"
    assert watched.told() == []


@pytest.mark.parametrize(("required", "told"), [(3, "confirmed: confirmed 4"), (9, "confirming: confirming 4")])
def test_what_is_there_already_is_one_first_event(watched: Watched, required: int, told: str) -> None:
    watched.node.grow("genesis: b[1..5]\nb2 pays 5000 from alice to bob for order-1")

    subscription = watched.register(required=required)

    assert subscription["lastState"] == "unpaid"
    assert subscription["payment"]["confirmations"] == 4
    (body,) = watched.events()
    assert body["initial"]
    assert f"{body['event'].removeprefix('payment.')}: {body['payment']['state']} 4" == told


def test_what_waits_already_is_told_too(watched: Watched) -> None:
    watched.pay("5000 from alice to bob for order-1")

    watched.register()

    assert watched.told() == ["pending: pending 0"]


def test_what_waited_before_a_restart_waits_after_it(watched: Watched) -> None:
    watched.register()
    watched.pay("5000 from alice to bob for order-1")
    watched.again()

    assert settle(watched) == ["pending: pending 0"]
    watched.again()
    assert settle(watched) == []
    assert watched.node.living.transfers.mempool.entries()


def test_what_left_the_mempool_while_the_webhooks_were_off_waits_no_more(watched: Watched) -> None:
    identifier = watched.register()["id"]
    txid = watched.pay("5000 from alice to bob for order-1")
    assert watched.told() == ["pending: pending 0"]
    watched.close_webhooks()
    watched.living.transfers.drop([txid])
    watched.open_webhooks()

    assert settle(watched) == []
    assert watched.show(identifier)["lastState"] == "unpaid"
    watched.clock.advance(1)
    watched.pay("5000 from alice to bob for order-1")
    assert watched.told() == ["pending: pending 0"]


def test_the_first_of_two_payments_counts_and_the_second_takes_its_place(watched: Watched) -> None:
    watched.register()
    blocks = chain(
        watched,
        """
        genesis: b[1..6]
        b2: c[3..8]
        b3 pays 5000 from alice to bob for order-1
        b4 pays 5000 from carol to bob for order-1
        c4 pays 5000 from carol to bob for order-1
        """,
    )
    run(watched, *some(blocks, "b", 1, 5))
    watched.node.take(blocks["b6"])
    assert watched.told() == []
    shown = watched.show("svcwh_" + "1".rjust(32, "0"))
    assert (shown["payment"]["matchCount"], shown["payment"]["blockHeight"]) == (2, "3")

    assert run(watched, *some(blocks, "c", 3, 8)) == ["reorged: confirmed 4", "confirmed: confirmed 4"]


def test_an_order_that_nobody_pays_expires(watched: Watched) -> None:
    identifier = watched.register(ttl=60)["id"]

    watched.clock.advance(59)
    watched.look()
    assert watched.told() == []
    watched.clock.advance(1)
    watched.look()
    assert watched.told() == ["expired: unpaid 0"]
    shown = watched.show(identifier)
    assert (shown["active"], shown["lastState"], shown["ending"]) == (False, "expired", "expired")


def test_nothing_expires_while_the_node_catches_up(watched: Watched) -> None:
    watched.register(ttl=60)
    watched.synced = False
    watched.clock.advance(3600)
    watched.look()
    assert watched.told() == []

    watched.synced = True
    watched.look()
    assert watched.told() == ["expired: unpaid 0"]


def test_what_was_confirmed_while_the_webhooks_were_off_has_not_expired(watched: Watched) -> None:
    """Depths on the way to the newest block are told as of now, but whether time is up is for that block to say."""
    watched.register(ttl=60)
    watched.close_webhooks()
    watched.clock.advance(3600)
    watched.node.take(*some(chain(watched), "b", 1, 5))
    watched.clock.advance(0)

    watched.open_webhooks()

    assert watched.told() == ["confirming: confirming 2", "confirmed: confirmed 3"]


def test_the_same_order_again_is_the_same_watch(watched: Watched) -> None:
    first = watched.register()
    watched.pay("5000 from alice to bob for order-1")

    again = watched.register()

    assert (again["id"], again["existing"], again["lastState"]) == (first["id"], True, "pending")
    assert watched.told() == ["pending: pending 0"]
    others = [watched.register(**other)["id"] for other in ({"required": 4}, {"ttl": 60}, {"host": "b.example.com"})]
    assert len({first["id"], *others}) == 4


def test_no_repr_shows_a_callback(watched: Watched) -> None:
    """Its path and query may hold a secret of the shop's, and a traceback may show anything."""
    identifier = watched.register()["id"]
    watched.pay("5000 from alice to bob for order-1")
    register = watched.desk.subscriptions.follower.register
    row = register.watches.watch(identifier)
    assert row is not None

    shown = repr([watched.order(), row, watch_of(row), register.events.head(identifier)])

    assert row.callback_url.endswith("/paid")
    assert "/paid" not in shown


def test_a_cancelled_watch_says_no_more(watched: Watched) -> None:
    identifier = watched.register()["id"]
    watched.pay("5000 from alice to bob for order-1")

    cancelled = watched.cancel(identifier)

    assert (cancelled["active"], cancelled["lastState"]) == (False, "pending")
    assert cancelled["events"][0]["dropped"] is True
    assert watched.cancel(identifier) == cancelled
    watched.again()
    watched.node.grow("genesis: b[1..1]\nb1 pays 5000 from alice to bob for order-1")
    assert settle(watched) == []


def test_a_watch_that_is_over_can_be_cancelled_for_what_it_has_not_sent(watched: Watched) -> None:
    identifier = watched.register(ttl=60)["id"]
    watched.clock.advance(60)
    watched.look()

    cancelled = watched.cancel(identifier)

    assert (cancelled["ending"], cancelled["lastState"]) == ("expired", "expired")
    assert cancelled["events"][0]["dropped"] is True
    watched.again()
    assert watched.told() == []


def test_there_is_room_for_so_many_watches(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_WATCHES", 3)
    monkeypatch.setattr(subscriptions, "MAX_AT_HOST", 2)
    first = watched.register("order-1")["id"]
    watched.register("order-2")

    with pytest.raises(TooManyWatches, match=r"shop.example.com has 2 watches"):
        watched.register("order-3")
    watched.register("order-3", host="other.example.com")
    with pytest.raises(TooManyWatches, match="at most 3 watches"):
        watched.register("order-4", host="third.example.com")
    # Who asks again for what there is asks for no more room.
    assert watched.register("order-1")["existing"]
    watched.cancel(first)
    watched.register("order-4")


@pytest.mark.parametrize("refused", [False, True], ids=["known already", "no room"])
def test_what_the_mempool_told_meanwhile_outlasts_a_registration_that_begins_nothing(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    watched.register()
    monkeypatch.setattr(subscriptions, "MAX_WATCHES", 1)
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


def test_all_watches_that_have_been_over_for_a_month_are_forgotten(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "_AT_ONCE", 2)
    over = [watched.register(f"order-{number}")["id"] for number in range(5)]
    for identifier in over:
        watched.cancel(identifier)
    living = watched.register("order-5", ttl=604_800)["id"]

    watched.clock.advance(30 * DAY)
    watched.tidy()
    assert all(watched.show(identifier) for identifier in over)
    watched.clock.advance(0.001)
    watched.tidy()
    assert [watched.show(identifier) for identifier in over] == [None] * 5
    assert watched.show(living)


def test_what_has_waited_for_a_week_is_given_up_and_said(watched: Watched) -> None:
    identifier = watched.register(ttl=604_800)["id"]
    watched.pay("5000 from alice to bob for order-1")
    watched.clock.advance(7 * DAY)
    watched.tidy()
    assert "abandoned" not in watched.show(identifier)["events"][0]

    watched.clock.advance(0.001)
    with capturedLogs() as logs:
        watched.tidy()
    assert watched.show(identifier)["events"][0]["abandoned"]
    assert [event["lost"] for event in logs if "lost" in event] == [1]


@pytest.mark.parametrize("ahead", [10 * DAY, -10 * DAY])
def test_a_week_that_passes_only_on_a_clock_that_is_set_makes_nobody_give_up(watched: Watched, ahead: int) -> None:
    identifier = watched.register(ttl=604_800)["id"]
    watched.pay("5000 from alice to bob for order-1")
    watched.clock.unix_seconds = lambda: watched.clock.seconds() + ahead  # type: ignore[attr-defined]
    watched.tidy()
    assert "abandoned" not in watched.show(identifier)["events"][0]


def test_what_waits_at_the_start_is_sent_even_if_it_cannot_be_read_at_first(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.register()
    watched.pay("5000 from alice to bob for order-1")
    with monkeypatch.context() as broken, capturedLogs() as logs:
        broken.setattr(Subscriptions, "lanes", _no_reading)
        watched.again()
    assert watched.told() == []
    assert [event["why"] for event in logs if "why" in event] == ["disk I/O error"]

    watched.look()
    assert watched.told() == ["pending: pending 0"]


def _no_reading(_: Subscriptions, __: int) -> NoReturn:
    raise sqlite3.OperationalError("disk I/O error")


def test_a_full_disk_loses_nothing(watched: Watched) -> None:
    watched.register()
    connection: sqlite3.Connection = watched.desk.subscriptions.follower.register.watches._db
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(40):
        # Fills what room the pages still have.
        try:
            watched.register(f"filling-{number}")
        except sqlite3.OperationalError:
            break
    blocks = chain(watched)

    with capturedLogs() as logged:
        assert run(watched, *some(blocks, "b", 1, 4)) == []
    assert [event["log_level"].name for event in logged if "cannot be written" in event["log_format"]] == ["error"]
    connection.execute("PRAGMA max_page_count = 100000")
    watched.look()

    assert settle(watched) == ["confirming: confirming 2"]


@given(data=st.data())
@settings(max_examples=settings().max_examples // 3 + 1)
def test_whatever_happens_the_last_event_is_what_verification_says(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    watched = Watched(tmp_path_factory.mktemp("law"), present())
    try:
        identifier = watched.register()["id"]
        blocks = chain(watched)
        order = [*some(blocks, "b", 1, 6), *some(blocks, "c", 3, 12)]
        told: list[dict[str, Any]] = []
        while order:
            count = data.draw(st.integers(1, len(order)), label="blocks in this step")
            watched.node.take(*order[:count])
            del order[:count]
            if data.draw(st.booleans(), label="settled"):
                watched.clock.advance(0)
            if data.draw(st.booleans(), label="received"):
                told += watched.events()
            if data.draw(st.booleans(), label="restarted"):
                watched.again()
        watched.clock.advance(0)
        told += watched.events()
        payment = watched.show(identifier)["payment"]
    finally:
        watched.close()

    sequences = [body["sequence"] for body in told]
    assert sequences == sorted(set(sequences))
    # Six blocks of depth are needed, and the chain gave them: the merchant knows.
    assert payment["state"] == "confirmed"
    assert told[-1]["event"] == "payment.confirmed"
    assert told[-1]["payment"]["txid"] == payment["txid"]
    assert told[-1]["payment"]["blockHash"] == payment["blockHash"]


def test_the_chain_goes_first_also_within_a_step_but_not_for_ever(watched: Watched) -> None:
    watched.register()
    blocks = some(chain(watched), "b", 1, 3)
    run(watched, *blocks[:2])
    assert not watched.naps
    watched.busy = True
    watched.node.take(blocks[2])
    for _ in range(300):
        watched.clock.advance(0.05)
    assert sum(watched.naps) == pytest.approx(LONGEST_SECONDS)
    assert watched.told() == ["confirming: confirming 1"]
