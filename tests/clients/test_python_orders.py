"""The open orders of the Python client: the cases of tests/vectors/order_events.json, and what stores and feeds do."""

import asyncio
import inspect
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from svc_pay import (
    AsyncClient,
    AsyncOrders,
    Client,
    InvalidAnswer,
    InvalidInput,
    Order,
    Orders,
    StoreError,
    WatchEvent,
)
from svc_pay.calls import Answer, Call
from svc_pay.order_book import Place, new_order
from svc_pay.order_store import OrderStore, SqliteOrders, Update
from svc_pay.orders import OrderSteps

from tests.clients.feed_model import PAYER, SHOP, MemoryOrders, Node, Shop
from tests.clients.vectors import vectors
from tests.commerce.test_order_events import by_order, check_members

CASES = vectors("order_events")["cases"]
STORES: dict[str, Callable[[Path], OrderStore]] = {
    "memory": lambda _: MemoryOrders(),
    "sqlite": lambda folder: SqliteOrders(folder / "orders.sqlite"),
}


def order_of(given: dict[str, Any]) -> Order:
    since = int(given["sinceHeight"]) if "sinceHeight" in given else None
    return Order(given["reference"], SHOP, int(given["amount"]), given["confirmations"], since)


def told(event: WatchEvent, names: dict[str, str]) -> dict[str, Any]:
    payment = event.payment
    content: dict[str, Any] = {
        "event": event.name,
        "reference": payment.reference,
        "state": payment.state.value,
        "confirmations": payment.confirmations,
    }
    if payment.txid is not None:
        content["transfer"] = names[payment.txid]
    if event.mismatch is not None:
        content["mismatch"] = {"kind": event.mismatch.kind, "transfer": names[event.mismatch.txid]}
        if event.mismatch.more:
            content["mismatch"]["more"] = True
    return content


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("case", CASES, ids=[case["what"] for case in CASES])
def test_orders_tell_what_the_cases_say(case: dict[str, Any], kind: str, tmp_path: Path) -> None:
    """With the store in a file, the shop restarts after every part of a step."""
    node = Node(case["transfers"])
    names = {node.txid(name): name for name in case["transfers"]}
    make = STORES[kind]
    shop = Shop(node, make(tmp_path))
    shop.tell()
    for given in case["orders"]:
        seconds = given.get("payWithinSeconds")
        shop.add(order_of(given), None if seconds is None else node.now + 1000 * seconds)
    places: dict[str, tuple[int, int]] = {}
    ids: list[str] = []
    for number, step in enumerate(case["steps"], 1):
        events: list[WatchEvent] = []
        for part in node.do(step):
            part()
            events += shop.tell()
            if kind == "sqlite" or step.get("restart") == "shop":
                shop = Shop(node, shop.store if kind == "memory" else make(tmp_path))
        for event in events:
            reference = event.payment.reference
            epoch, sequence = places.get(reference, (0, 0))
            assert event.place == (epoch + (event.name == "payment.reorged"), sequence + 1)
            places[reference] = event.place
            ids.append(event.id)
        found = by_order([told(event, names) for event in events])
        assert found == by_order(step.get("events", [])), f"step {number}: {json.dumps(step)}"
    assert len(set(ids)) == len(ids)
    if isinstance(shop.store, MemoryOrders):
        assert [json.loads(body)["id"] for body in shop.store.written] == ids
        for body in shop.store.written:
            check_members(json.loads(body))


# Answers


def paid_shop() -> Shop:
    """A shop that has been told of the payment in the newest block but one; another one is in the newest."""
    node = Node({"a": {"reference": "order-1", "amount": "5000"}, "b": {"reference": "order-1", "amount": "5"}})
    shop = Shop(node, MemoryOrders())
    shop.add(Order("order-1", SHOP, 5_000, 3))
    shop.tell()
    node.connect([[], ["a"]])
    assert [event.name for event in shop.tell()] == ["payment.confirming"]
    node.connect([["b"]])
    return shop


def changed_answer(shop: Shop, change: Callable[[dict[str, Any]], object]) -> Callable[[Call], Answer]:
    def answer(call: Call) -> Answer:
        content = shop.node.feed(call.query)
        change(content["feed"])
        return Answer(200, None, json.dumps(content).encode())

    return answer


def entry(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda feed: feed["entries"][0].update(changes)


def append(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda feed: feed["entries"].append({**feed["entries"][0], "txid": HASH, "position": 1, **changes})


def rewind(height: int) -> dict[str, Any]:
    return {"type": "rewind", "height": str(height), "hash": HASH}


def pending(**changes: Any) -> Callable[[dict[str, Any]], object]:
    given = {"txid": HASH, "reference": "order-1", "amount": "5000", "sender": PAYER, "arrivalTime": "5"}
    return lambda feed: feed["pending"].append({**given, **changes})


HASH = "ab" * 32
HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "no entries": lambda feed: feed.pop("entries"),
    "an unknown entry": entry(type="refund"),
    "an amount of nothing": entry(amount="0", amountSvc="0"),
    "two amounts": entry(amountSvc="1"),
    "an amount that is a number": entry(amount=5),
    "a sender of another network": entry(sender="svc1qdcchhntg885gwuu4gyd50v4cn546ulxt8l45rt"),
    "another recipient": entry(recipient=PAYER),
    "an impossible reference": entry(reference="order 1"),
    "no txid": entry(txid=None),
    "a known transfer": entry(txid=Node({}).txid("a")),
    "a transfer twice": append(txid=Node({}).txid("b")),
    "a transfer before the last one": append(position=0),
    "a block that was told": entry(height="3"),
    "a block above the tip": entry(height="5"),
    "the height of the tip in another block": entry(hash=HASH),
    "a place behind every block": entry(position=65_536),
    "two blocks of one height": append(hash=HASH),
    "two times of one block": append(time="5"),
    "a rewind to the tip": lambda feed: feed["entries"].insert(0, rewind(3)),
    "a rewind above the tip": lambda feed: feed["entries"].insert(0, rewind(9)),
    "a second rewind": lambda feed: feed["entries"].extend([rewind(1), rewind(1)]),
    "a rewind at the end": lambda feed: feed["entries"].append(rewind(1)),
    "a rewind that brings a transfer again": lambda feed: feed["entries"].insert(0, rewind(3)),
    "a shorter chain": lambda feed: feed["tip"].update(height="2"),
    "no tip": lambda feed: feed.pop("tip"),
    "no word whether it is synced": lambda feed: feed["node"].pop("synced"),
    "no cursor": lambda feed: feed.pop("next"),
    "an empty cursor": lambda feed: feed.update(next=""),
    "a long cursor": lambda feed: feed.update(next="A" * 5_000),
    "a cursor that is a number": lambda feed: feed.update(next=5),
    "too many entries": lambda feed: feed["entries"].extend(feed["entries"] * 1_000),
    "too many that wait": lambda feed: feed["pending"].extend([{}] * 1_001),
    "one that waits twice": lambda feed: (pending()(feed), pending()(feed)),
    "one that waits without an amount": pending(amount=None),
    "one that waits and never came": pending(arrivalTime=None),
    "one that waits for another": pending(recipient=PAYER),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_an_answer_that_no_node_gives_changes_nothing(what: str) -> None:
    shop = paid_shop()
    store: Any = shop.store
    # Asking for the next event removes the last one.
    before = (store.stored, dict(store.rows), {})
    with pytest.raises(InvalidAnswer):
        shop.tell(changed_answer(shop, HOSTILE[what]))
    assert (store.stored, store.rows, store.bodies) == before
    shop.restart()
    assert [event.name for event in shop.tell()] == ["payment.confirming", "payment.mismatched"]


def test_an_answer_that_begins_again_is_none() -> None:
    shop = paid_shop()
    place = Place.of(str(shop.store.place()))
    with pytest.raises(InvalidAnswer, match="begins again"):
        shop.tell(changed_answer(shop, lambda feed: feed.update(next=place.after)))


def test_a_node_that_is_not_in_step_changes_nothing() -> None:
    shop = paid_shop()
    store: Any = shop.store
    before, asked = store.stored, len(shop.calls)
    shop.node.synced = False
    assert shop.tell() == []
    assert (store.stored, shop.pauses[-1]) == (before, 2)
    assert len(shop.calls) == asked
    shop.node.synced = True
    shop.restart()
    assert [event.name for event in shop.tell()] == ["payment.confirming", "payment.mismatched"]


# Questions


def test_a_shop_waits_shortly_while_something_is_to_come() -> None:
    node = Node({"a": {"reference": "order-1", "amount": "5000"}})
    shop = Shop(node, MemoryOrders())
    shop.tell()
    assert shop.calls[-1].query["wait"] == "30"
    shop.add(Order("order-1", SHOP, 5_000, 2), node.now + 60_000)
    shop.tell()
    assert shop.calls[-1].query["wait"] == "30"
    node.pass_time(100)
    shop.tell()
    assert shop.calls[-1].query["wait"] == "5"
    node.connect([["a"]], 50)
    shop.tell()
    assert shop.calls[-1].query["wait"] == "5"
    assert shop.calls[-1].query["minHeight"] == "2"
    assert shop.calls[-1].seconds == 5
    node.connect([[]])
    assert [event.name for event in shop.tell()] == ["payment.confirmed"]
    assert shop.calls[-1].query["wait"] == "30"


def test_a_payment_that_came_in_time_while_nobody_asked_is_in_time() -> None:
    transfers = {name: {"reference": f"order-{name}", "amount": "5000"} for name in "ab"}
    node = Node(transfers)
    shop = Shop(node, MemoryOrders())
    for name in "ab":
        shop.add(Order(f"order-{name}", SHOP, 5_000, 2), node.now + 60_000)
    shop.tell()
    node.pass_time(59)
    node.submit("a")
    node.pass_time(1)
    node.submit("b")
    node.pass_time(600)
    assert {event.payment.reference: event.name for event in shop.tell()} == {
        "order-a": "payment.pending",
        "order-b": "payment.expired",
    }


@pytest.mark.parametrize("ahead", [2 * 86_400_000, -2 * 86_400_000])
def test_a_clock_that_is_wrong_for_a_moment_ends_no_order(ahead: int) -> None:
    node = Node({"a": {"reference": "order-1", "amount": "5000"}})
    shop = Shop(node, MemoryOrders())
    for number in range(1, 21):
        shop.add(Order(f"order-{number}", SHOP, 5_000), node.now + 600_000)
    shop.tell()
    node.ahead = ahead
    assert shop.tell() == []
    assert shop.calls[-1].query["wait"] == "30", "nothing is soon"
    node.pass_time(30)
    node.ahead = 0
    assert shop.tell() == []
    node.submit("a")
    assert [event.name for event in shop.tell()] == ["payment.pending"], "not late"
    node.pass_time(629)
    assert shop.tell() == []
    node.pass_time(1)
    assert [event.name for event in shop.tell()] == ["payment.expired"] * 19


def test_a_clock_that_was_set_is_believed_when_it_has_been_steady() -> None:
    node = Node({})
    shop = Shop(node, MemoryOrders())
    shop.add(Order("order-1", SHOP, 5_000), node.now + 600_000)
    shop.tell()
    node.ahead = 86_400_000
    shop.tell()
    node.pass_time(299)
    assert shop.tell() == []
    node.pass_time(1)
    assert [event.name for event in shop.tell()] == ["payment.expired"]


def test_a_mempool_that_is_too_long_to_list_ends_nothing() -> None:
    """A payment that was there may still be, behind those that are listed."""
    names = [f"t{number}" for number in range(1_001)]
    transfers = {
        name: {"reference": "order-1" if name == "t1000" else f"other-{name}", "amount": "5"} for name in names
    }
    node = Node(transfers)
    shop = Shop(node, MemoryOrders())
    shop.add(Order("order-1", SHOP, 5), node.now + 60_000)
    shop.add(Order("order-2", SHOP, 5), node.now + 60_000)
    node.submit("t1000")
    assert [event.name for event in shop.tell()] == ["payment.pending"]
    node.pass_time(120)
    node.mempool = dict.fromkeys(names[:1000], node.now)
    assert shop.tell() == []
    node.mempool = {}
    assert sorted(event.name for event in shop.tell()) == ["payment.dropped", "payment.expired", "payment.expired"]


def test_ten_times_as_many_orders_make_no_answer_slower(tmp_path: Path) -> None:
    """Nothing walks all orders: the store is asked for those that an answer affects."""
    steps = []
    for count in (100, 1_000):
        node = Node({"a": {"reference": "order-1", "amount": "5000"}})
        store = SqliteOrders(tmp_path / f"{count}.sqlite")
        shop = Shop(node, store)
        shop.tell()
        later = node.now + 10**9
        rows = [new_order(Order(f"order-{number}", SHOP, 5_000), later, 0).stored for number in range(count)]
        store.write(Update(added=rows))
        node.connect([["a"]])
        with store._connection() as connection:
            done: list[int] = []
            connection.set_progress_handler(lambda done=done: done.append(1), 50)
        assert [event.name for event in shop.tell()] == ["payment.confirming"]
        steps.append(len(done))
    assert steps[1] <= steps[0] + 3


def test_orders_of_another_recipient_are_refused() -> None:
    shop = paid_shop()
    with pytest.raises(InvalidInput, match="none of them"):
        shop.add(Order("order-2", PAYER, 5))
    with pytest.raises(InvalidInput, match="another open order"):
        shop.add(Order("order-1", SHOP, 5))
    shop.add(Order("order-1", SHOP, 5_000, 3))
    client: Any = type("Client", (), {"network": None})()
    other = OrderSteps(client, PAYER, shop.store, since_height=0, clock=lambda: 0, even_clock=lambda: 0)
    with pytest.raises(StoreError, match="not those of"):
        shop.run(other.place())
    with pytest.raises(StoreError, match="not those of"):
        shop.run(other.add(Order("order-2", PAYER, 5), None))
    assert shop.store.orders(["order-2"]) == []


def test_a_removed_order_is_told_nothing() -> None:
    shop = paid_shop()
    shop.remove("order-1")
    assert shop.tell() == []


@pytest.mark.parametrize("damage", ["UPDATE open_order SET content = '{}'", "UPDATE feed_place SET place = '[]'"])
def test_a_damaged_store_says_so(damage: str, tmp_path: Path) -> None:
    store = SqliteOrders(tmp_path / "orders.sqlite")
    node = Node({"a": {"reference": "order-1", "amount": "5000"}})
    shop = Shop(node, store)
    shop.add(Order("order-1", SHOP, 5_000))
    shop.tell()
    with store._connection() as connection:
        connection.execute(damage)
    node.connect([["a"]])
    shop.restart()
    with pytest.raises(StoreError, match="damaged"):
        shop.tell()


def test_the_file_is_for_its_owner_only_and_errors_name_it(tmp_path: Path) -> None:
    path = tmp_path / "orders.sqlite"
    SqliteOrders(path).write(Update(events=["{}"]))
    assert {each.stat().st_mode & 0o777 for each in tmp_path.glob("orders.sqlite*")} == {0o600}
    with pytest.raises(StoreError, match="no/such"):
        SqliteOrders(tmp_path / "no" / "such")
    (tmp_path / "other").write_bytes(b"no database" * 1_000)
    with pytest.raises(StoreError, match="other cannot be read or written"):
        SqliteOrders(tmp_path / "other")


def test_both_clients_tell_the_same() -> None:
    """Each with a transport that answers as the node does."""
    told: list[list[str]] = []

    def fresh() -> tuple[Node, Callable[[httpx.Request], httpx.Response]]:
        node = Node({"a": {"reference": "order-1", "amount": "5000"}})

        def respond(request: httpx.Request) -> httpx.Response:
            if "wait" in request.url.params:
                node.connect([["a"]] if len(node.blocks) == 2 else [[]])
            return httpx.Response(200, json=node.feed(dict(request.url.params)))

        return node, respond

    node, respond = fresh()
    with Client("http://node", transport=httpx.MockTransport(respond)) as client:
        orders = Orders(client, SHOP, MemoryOrders(), clock=lambda: node.now / 1000)
        orders.add(Order("order-1", SHOP, 5_000, 3))
        told.append([event.id for event in islice(orders.changes(), 3)])
        orders.remove("order-1")

    async def asynchronous() -> list[str]:
        node, respond = fresh()
        async with AsyncClient("http://node", transport=httpx.MockTransport(respond)) as client:
            orders = AsyncOrders(client, SHOP, MemoryOrders(), clock=lambda: node.now / 1000)
            await orders.add(Order("order-1", SHOP, 5_000, 3))
            ids = []
            async for event in orders.changes():
                ids.append(event.id)
                if event.settles(Order("order-1", SHOP, 5_000, 3)):
                    await orders.remove("order-1")
                    return ids
        raise AssertionError

    told.append(asyncio.run(asynchronous()))
    assert told[0] == told[1]
    assert len(told[0]) == 3


def test_both_kinds_of_orders_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(each).parameters) for name, each in found}

    assert methods(Orders) == methods(AsyncOrders)
