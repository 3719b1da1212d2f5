"""The open orders of the Python client: the cases of tests/vectors/order_events.json, and what stores and feeds do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from svc_pay import Order, WatchEvent
from svc_pay.order_store import OrderStore, SqliteOrders

from tests.clients.feed_model import SHOP, MemoryOrders, Node, Shop
from tests.clients.vectors import vectors
from tests.commerce.test_order_events import by_order

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
