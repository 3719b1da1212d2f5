"""Laws of open orders: in every story of chain and mempool a shop is told what the watches of svcd would tell it."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from attrs import define, evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from svc_pay import Order, StoreError, WatchEvent, order_book
from svc_pay.order_store import SqliteOrders, Update

from svcd.commerce.events import EventType, MismatchedTransfer, WebhookEvent
from svcd.commerce.payment import ChainTip, Mismatch, PaymentLocation, observe
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.watch import (
    EndReason,
    EvaluationContext,
    Watch,
    choose_mismatches,
    emit_mismatches,
    evaluate,
    mismatch_kind,
)
from tests.clients.feed_model import PAYER, SHOP, MemoryOrders, Node, Shop
from tests.clients.test_python_orders import CASES, order_of

ORDERS = [Order("order-1", SHOP, 5_000, 2), Order("order-2", SHOP, 100, 3, 3), Order("order-3", SHOP, 5_000, 1)]
DEADLINES = {"order-1": 20, "order-2": None, "order-3": 7}
AMOUNTS = [5_000, 100, 4_999, 5_001, 10]


def transfers_of(names: int) -> dict[str, dict[str, Any]]:
    """Transfers to three orders and to none, some of which replace others."""
    made: dict[str, dict[str, Any]] = {}
    for number in range(names):
        reference = ["order-1", "order-2", "order-3", None][number % 4]
        paid = {"amount": str(AMOUNTS[number * 7 % 5])}
        made[f"t{number}"] = paid if reference is None else {**paid, "reference": reference}
        if number % 3 == 0:
            made[f"x{number}"] = {"replaces": f"t{number}"}
    return made


TRANSFERS = transfers_of(24)


@define
class Oracle:
    """The watches of svcd over the same orders, which see the chain whenever they are asked."""

    node: Node
    watches: dict[str, Watch]
    tip_before: int = -1

    def see(self) -> dict[str, list[tuple[Any, ...]]]:
        """What they tell now, by order."""
        told = {}
        for reference, watch in self.watches.items():
            watch, events = self._evaluate(watch)
            # A watch that has told enough closes; an order stays until the shop removes it.
            self.watches[reference] = evolve(watch, ending=None) if watch.ending is EndReason.CLOSED else watch
            if events:
                told[reference] = [_content(event) for event in events]
        self.tip_before = len(self.node.blocks) - 1
        return told

    def _evaluate(self, watch: Watch) -> tuple[Watch, list[WebhookEvent]]:
        node, terms = self.node, watch.terms
        tip = ChainTip(len(node.blocks) - 1, bytes.fromhex(node.blocks[-1].hash))
        mine = [
            (
                PaymentLocation(self._id(name), bytes.fromhex(block.hash), height, position, block.time),
                self._amount(name),
            )
            for height, block in enumerate(node.blocks)
            for position, name in enumerate(block.names)
            if self._is_under(name, terms.reference) and height >= (terms.since_height or 0)
        ]
        waiting = [name for name in node.mempool if self._is_under(name, terms.reference)]
        pending = [name for name in waiting if self._amount(name) == terms.amount]
        wrong = [Mismatch(place.txid, amount, place.height) for place, amount in mine if amount != terms.amount]
        wrong += [Mismatch(self._id(name), self._amount(name), None) for name in waiting if name not in pending]
        exact = [place for place, amount in mine if amount == terms.amount]
        seen = observe(terms, tip, locations=exact, pending=[*map(self._id, pending)], mismatches=wrong)
        if seen.pending is not None:
            seen = seen._replace(arrival=node.mempool[pending[0]])
        context = EvaluationContext(now=node.now, tip_before=self.tip_before, may_end=True)
        watch, events = evaluate(watch, seen, context)
        if watch.ending is EndReason.CLOSED:
            watch = evolve(watch, ending=None)
        reported = watch.reported_mismatches
        if reported is None:
            return watch, list(events)
        found = []
        for place, amount in mine:
            transfer = _transfer(place.txid, amount)
            kind = mismatch_kind(watch, transfer, None if seen.location is None else seen.location.txid)
            if kind is not None and place.txid not in reported:
                found.append(MismatchedTransfer(txid=place.txid, sender=PAYER, amount=amount, kind=kind))
        watch, more = emit_mismatches(watch, seen, choose_mismatches(watch, found), initial=False)
        return watch, [*events, *more]

    def _is_under(self, name: str, reference: str) -> bool:
        return self.node.pays(name) and self.node.transfers[name].get("reference") == reference

    def _id(self, name: str) -> bytes:
        return bytes.fromhex(self.node.txid(name))

    def _amount(self, name: str) -> int:
        return int(self.node.transfers[name]["amount"])


def _transfer(txid: bytes, amount: int) -> Any:
    class Paid:
        pass

    paid: Any = Paid()
    paid.txid, paid.amount = txid, amount
    return paid


def _content(event: WebhookEvent) -> tuple[Any, ...]:
    seen, wrong = event.observation, event.mismatch
    return (
        *(event.type.value, event.epoch, event.sequence, event.state.value, event.previous_state.value),
        *(seen.confirmations, None if seen.txid is None else seen.txid.hex(), seen.match_count),
        sorted((each.txid.hex(), each.amount) for each in seen.mismatches),
        None if seen.location is None else (seen.location.height, seen.location.block_hash.hex()),
        None if wrong is None else (wrong.kind, wrong.txid.hex(), wrong.amount, wrong.more),
    )


def content(event: WatchEvent) -> tuple[Any, ...]:
    """The same of an event that a shop is told."""
    paid, wrong = event.payment, event.mismatch
    return (
        *(event.name, event.epoch, event.sequence, paid.state.value, event.previous_state),
        *(paid.confirmations, paid.txid, paid.match_count),
        sorted((each.txid, each.amount) for each in paid.mismatches),
        None if paid.block_hash is None else (paid.block_height, paid.block_hash),
        None if wrong is None else (wrong.kind, wrong.txid, wrong.amount, wrong.more),
    )


def watch_of(order: Order, pay_until: int | None) -> Watch:
    terms = PaymentTerms(order.reference, order.recipient, order.amount, order.confirmations, order.since_height)
    return Watch(
        id=order.reference,
        merchant="default",
        terms=terms,
        callback_url="",
        host="",
        created_at=0,
        expires_at=2**60,
        pay_until=pay_until,
        events=frozenset(EventType),
        reported_mismatches=(),
    )


def grouped(events: Sequence[WatchEvent]) -> dict[str, list[tuple[Any, ...]]]:
    told: dict[str, list[tuple[Any, ...]]] = {}
    for event in events:
        told.setdefault(event.subscription_id, []).append(content(event))
    return told


@st.composite
def stories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Steps of a node, in which no transfer is in two blocks of a chain, nor two with one nonce."""
    steps: list[dict[str, Any]] = []
    node = Node(TRANSFERS)

    def some(most: int) -> list[str]:
        used = {node.nonce(name) for block in node.blocks for name in block.names}
        free = [name for name in TRANSFERS if node.nonce(name) not in used]
        chosen: list[str] = draw(st.lists(st.sampled_from(free), max_size=most, unique_by=node.nonce)) if free else []
        return chosen

    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["mempool", "block", "block", "empty", "reorganisation", "seconds"]))
        step: dict[str, Any] = {"seconds": draw(st.integers(1, 12))}
        if kind == "mempool" and (names := some(1)):
            step = {"mempool": names[0]}
        elif kind == "block":
            step = {"blocks": [some(4)]}
        elif kind == "empty":
            step = {"blocks": [[]] * draw(st.integers(1, 40 if draw(st.integers(0, 9)) == 0 else 3))}
        elif kind == "reorganisation":
            step = _reorganisation(draw, node, some)
        for part in node.do(step):
            part()
        steps.append(step | ({"asleep": True} if draw(st.integers(0, 4)) == 0 else {}))
    return steps


def _reorganisation(draw: st.DrawFn, node: Node, some: Any) -> dict[str, Any]:
    undone = draw(st.integers(1, min(len(node.blocks) - 1, 5)))
    kept = node.blocks
    node.blocks = kept[:-undone]
    blocks: list[list[str]] = []
    for _ in range(undone + draw(st.integers(1, 2))):
        names = some(3)
        back = [name for block in kept[-undone:] for name in block.names]
        used = {node.nonce(name) for block in node.blocks for name in block.names} | {*map(node.nonce, names)}
        if back and draw(st.booleans()) and node.nonce(back[0]) not in used:
            names.append(back[0])
        blocks.append(names)
        node.add(names, node.blocks[-1].time + 1_000)
    node.blocks = kept
    return {"undone": undone, "blocks": blocks}


@settings(max_examples=150, deadline=None)
@given(
    story=stories(),
    page=st.sampled_from([1, 2, 3, 1_000]),
    rows=st.sampled_from([1, 2, 5, 10**6]),
    kills=st.lists(st.integers(0, 200), max_size=4),
)
def test_in_every_story_orders_tell_what_watches_tell(
    story: list[dict[str, Any]], page: int, rows: int, kills: list[int]
) -> None:
    """However small the pages are, wherever the shop is killed, and although it sleeps at times."""
    node = Node(TRANSFERS, rows=rows)
    store = MemoryOrders()
    shop = Shop(node, store)
    shop.killed_at = {*kills}
    with patch.object(order_book, "PAGE", page + 1), patch("svc_pay.orders._AT_ONCE", page):
        shop.tell()
        oracle = Oracle(node, {})
        for order in ORDERS:
            seconds = DEADLINES[order.reference]
            until = None if seconds is None else node.now + 1_000 * seconds
            shop.add(order, until)
            oracle.watches[order.reference] = watch_of(order, until)
        oracle.see()
        seen = set[str]()
        for step in story:
            for part in node.do(step):
                part()
                if "asleep" not in step:
                    events = [event for event in shop.tell() if event.id not in seen]
                    unique = list({event.id: event for event in events}.values())
                    seen |= {event.id for event in unique}
                    assert grouped(unique) == oracle.see()


class Killed(BaseException):
    """The shop's program ends, and its computer goes on."""


class KillingConnection(sqlite3.Connection):
    """Before the statement number ``left``, a copy of the files is made as a killed program leaves them."""

    left = 0
    file: Path

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        cls = KillingConnection
        cls.left -= 1
        if cls.left == 0:
            for each in cls.file.parent.glob(f"{cls.file.name}*"):
                shutil.copy(each, each.with_name(each.name.replace("orders", "killed", 1)))
            raise Killed
        return super().execute("PRAGMA synchronous = OFF" if "synchronous" in sql else sql, *given)

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        for row in rows:
            self.execute(sql, row)
        return self.cursor()


STORY = next(case for case in CASES if case["what"] == "a reorganisation that makes the second transfer the payment")


def in_story(node: Node, make: Any) -> Iterator[Shop]:
    """The shop of the story after each step; after a kill another one goes on."""
    shop = Shop(node, make())
    for order in map(order_of, STORY["orders"]):
        shop.add(order)
    told: list[WatchEvent] = []
    for step in [{"seconds": 1}, *STORY["steps"]]:
        for part in node.do(step):
            part()
            while True:
                try:
                    shop.tell()
                except Killed:
                    told += shop.told
                    shop = Shop(node, make())
                    continue
                break
        yield shop
    shop.told = told + shop.told


def test_after_a_kill_at_any_statement_of_the_store_every_event_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, undisturbed = in_story(Node(STORY["transfers"]), MemoryOrders)
    expected = [event.id for event in undisturbed.told]
    assert len(expected) == 6
    connect = sqlite3.connect

    def connected(*args: Any, **more: Any) -> sqlite3.Connection:
        connection = connect(*args, factory=KillingConnection, **more)
        sqlite3.Connection.execute(connection, "PRAGMA synchronous = OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connected)
    repeated = kills = 0
    for number in range(1, 10_000):
        folder = tmp_path / str(number)
        folder.mkdir()
        made: list[SqliteOrders] = []

        def make(folder: Path = folder, made: list[SqliteOrders] = made) -> SqliteOrders:
            if made:
                KillingConnection.left = 0
            made.append(SqliteOrders(folder / ("killed.sqlite" if made else "orders.sqlite")))
            return made[-1]

        KillingConnection.left, KillingConnection.file = 0, folder / "orders.sqlite"
        shops = in_story(Node(STORY["transfers"]), make)
        first = next(shops)
        # From here on: nobody can have been told anything before.
        KillingConnection.left = number
        *_, last = [first, *shops]
        told = [event.id for event in last.told]
        assert list(dict.fromkeys(told)) == expected
        assert all(told.index(each) >= at - 1 for at, each in enumerate(told)), "only the last one comes again"
        repeated += len(told) - len(expected)
        for store in made:
            store.close()
        shutil.rmtree(folder)
        if len(made) == 1:
            break
        kills += 1
    assert kills > 60
    assert repeated >= len(expected)


def test_a_second_program_that_reads_the_feed_for_a_store_is_told_so(tmp_path: Path) -> None:
    node = Node(STORY["transfers"])
    first, second = (Shop(node, SqliteOrders(tmp_path / "orders.sqlite")) for _ in range(2))
    first.add(order_of(STORY["orders"][0]))
    first.tell()
    second.tell()
    node.connect([["a"]])
    assert [event.name for event in first.tell()] == ["payment.confirming"]
    with pytest.raises(StoreError, match="another program reads the feed"):
        second.tell()


def test_a_removed_order_stays_removed_while_an_answer_is_evaluated() -> None:
    store = MemoryOrders()
    shop = Shop(Node(STORY["transfers"]), store)
    shop.add(order_of(STORY["orders"][0]))
    (row,) = store.rows.values()
    shop.remove(row.reference)
    assert store.write(Update(changed=[row]))
    assert store.rows == {}
