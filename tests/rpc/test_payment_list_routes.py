"""The list of what an address has received: every transfer once, however it is asked for."""

from typing import Any
from urllib.parse import urlencode

import pytest
from twisted.internet.task import Clock

from svcd.commerce import payment_list
from svcd.rpc import payment_routes
from svcd.store import chain_store
from tests.chains import address_of
from tests.rpc.node import Client, Node
from tests.submitting import submitted

BOB = address_of("bob", "svcd")
CHAIN = """
genesis: b[1..4]
b1 pays 5000 from alice to bob for order-1
b1 pays 7 from alice to carol for order-1
b2 pays 4999 from alice to bob for order-1
b2 pays 8 from bob to carol
b2 pays 9 from alice to bob
b3 pays 5001 from carol to bob for order-1
b3 pays 5000 from carol to bob for order-1
b3 pays 3 from bob to bob for order-2
b4 pays 5000 from alice to bob for Order-1
"""
ON_CHAIN = [5000, 4999, 9, 5001, 5000, 3, 5000]


def target(**query: object) -> str:
    return f"/rpc/commerce/payments?{urlencode({'recipient': BOB, **query})}"


def listed(client: Client, **query: object) -> Any:
    return client.ok(target(**query))["payments"]


def amounts(payments: Any) -> list[int]:
    return [int(each["amount"]) for each in payments]


def every_page(client: Client, **query: object) -> list[Any]:
    """All transfers, page by page."""
    found, after = [], {}
    while True:
        page = client.ok(target(**query, **after))
        assert len(page["payments"]) <= int(str(query.get("limit", 25)))
        found += page["payments"]
        if page["next"] is None:
            return found
        after = {"after": page["next"]}


@pytest.fixture
def paid(node: Node) -> Node:
    """A node on the chain of this page, with two transfers that wait for bob and one that he sends."""
    node.grow(CHAIN)
    pool, builder = node.node_context.transaction_pool, node.builder
    submitted(pool, builder.transfer("alice", "bob", 5000, reference="order-1"), node.clock)
    submitted(pool, builder.transfer("carol", "bob", 6, reference=None), node.clock)
    submitted(pool, builder.transfer("bob", "alice", 1), node.clock)
    return node


def test_nothing_was_received(still: Client, still_node: Node) -> None:
    tip = still.ok("/rpc/status")["status"]
    assert still.ok(target()) == {
        "payments": [],
        "next": None,
        "tip": {"height": "0", "hash": tip["hash"]},
    }


def test_a_transfer_on_the_chain_and_one_that_waits(paid: Node, client: Client) -> None:
    first, *_, last = listed(client, reference="order-1")
    block = client.ok("/rpc/block/1")["block"]
    assert first == {
        "txid": first["txid"],
        "sender": paid.address("alice"),
        "reference": "order-1",
        "amount": "5000",
        "amountSvc": "0.00005",
        "canonical": True,
        "confirmations": 4,
        "blockHash": block["hash"],
        "blockHeight": "1",
        "blockTime": client.ok(f"/rpc/transaction/{first['txid']}")["transaction"]["blockTime"],
    }
    assert last == {
        "txid": last["txid"],
        "sender": paid.address("alice"),
        "reference": "order-1",
        "amount": "5000",
        "amountSvc": "0.00005",
        "canonical": False,
        "confirmations": 0,
    }


def test_everything_received_in_the_order_of_the_chain(paid: Node, client: Client) -> None:
    assert amounts(listed(client)) == [*ON_CHAIN, 5000, 6]
    assert amounts(listed(client, reference="order-1")) == [5000, 4999, 5001, 5000, 5000]
    assert amounts(listed(client, reference="Order-1")) == [5000]
    assert amounts(listed(client, reference="order-3")) == []
    assert [each["reference"] for each in listed(client, sinceHeight=4)] == ["Order-1", "order-1", None]
    assert amounts(listed(client, sinceHeight=3, reference="order-1")) == [5001, 5000, 5000]


@pytest.mark.parametrize("looked_at", [1, 2, 3, 1000])
@pytest.mark.parametrize("limit", [1, 2, 5, 100])
@pytest.mark.parametrize("reference", [{}, {"reference": "order-1"}])
def test_pages_have_every_transfer_once(
    paid: Node, client: Client, monkeypatch: pytest.MonkeyPatch, looked_at: int, limit: int, reference: dict[str, str]
) -> None:
    whole = listed(client, **reference)
    for module in (chain_store, payment_list, payment_routes):
        monkeypatch.setattr(module, "MAX_SCANNED", looked_at)
    assert every_page(client, limit=limit, **reference) == whole


def test_each_transfer_of_a_reference_is_listed_with_its_mismatch(paid: Node, client: Client) -> None:
    for amount in ({"amount": "0.00005"}, {"amountBaseUnits": 5000}):
        found = listed(client, reference="order-1", **amount)
        assert [each["mismatch"] for each in found] == [None, "too-little", "too-much", "duplicate", "duplicate"]


def test_the_payment_of_a_page_before_makes_a_duplicate_of_the_next(paid: Node, client: Client) -> None:
    found = every_page(client, reference="order-1", amountBaseUnits=5000, limit=1)
    assert [each["mismatch"] for each in found] == [None, "too-little", "too-much", "duplicate", "duplicate"]


def test_without_a_payment_on_the_chain_the_first_to_arrive_is_it(node: Node, client: Client) -> None:
    pool = node.node_context.transaction_pool
    for sender in ("alice", "carol"):
        submitted(pool, node.builder.transfer(sender, "bob", 5000, reference="order-1"), node.clock)
    found = listed(client, reference="order-1", amountBaseUnits=5000)
    assert [each["mismatch"] for each in found] == [None, "duplicate"]


def test_transfers_before_the_height_are_no_payments_of_the_order(paid: Node, client: Client) -> None:
    found = listed(client, reference="order-1", amountBaseUnits=5000, sinceHeight=2)
    assert [each["mismatch"] for each in found] == ["too-little", "too-much", None, "duplicate"]


def test_a_transfer_that_leaves_the_mempool_for_a_block_is_listed_once(node: Node, client: Client) -> None:
    transfer = node.builder.transfer("alice", "bob", 1)
    submitted(node.node_context.transaction_pool, transfer, node.clock)
    assert [each["canonical"] for each in listed(client)] == [False]
    node.take(node.builder.block(None, transfers=[transfer]))
    assert [each["canonical"] for each in listed(client)] == [True]


@pytest.mark.parametrize("page_of_block", range(5))
@pytest.mark.parametrize("reference", [{}, {"reference": "order-1"}])
def test_a_block_between_two_pages_hides_no_transfer(
    node: Node, client: Client, page_of_block: int, reference: dict[str, str]
) -> None:
    blocks = node.builder.chain(
        "genesis: b[1..2]\n"
        + "b1 pays 1 from alice to bob for order-1\n"
        + "".join(f"b2 pays {amount} from alice to bob for order-1\n" for amount in (2, 3, 4, 5))
    )
    node.take(blocks["b1"])
    *waiting, direct = blocks["b2"].transfers
    for transfer in waiting:
        submitted(node.node_context.transaction_pool, transfer, node.clock)
    seen: list[int] = []
    after: dict[str, str] = {}
    for number in range(12):
        if number == page_of_block:
            node.take(blocks["b2"])
            node.clock.pump([0] * 5)
        page = client.ok(target(limit=1, **reference, **after))
        seen += amounts(page["payments"])
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert page["next"] is None
    assert set(seen) >= {1, 2, 3, 4} | ({direct.amount} if page_of_block < 4 else set())
    assert [amount for amount in seen if seen.count(amount) > 1] in ([], [2] * 2, [2, 3] * 2, [2, 3, 4] * 2)


def test_a_reorganisation_between_two_pages_shows_in_the_tip(node: Node, client: Client) -> None:
    node.grow("genesis: b[1..2]\nb1 pays 1 from alice to bob\nb2 pays 2 from alice to bob")
    first = client.ok(target(limit=1))
    branch = [node.builder.block(None, producer="c")]
    while len(branch) < 3:
        branch.append(node.builder.block(branch[-1]))
    node.take(*branch)
    node.clock.pump([0] * 5)
    assert client.ok(target(limit=1, after=first["next"]))["tip"] != first["tip"]


def test_a_reorganisation_takes_a_payment_off_the_list_and_brings_it_back(
    node: Node, client: Client, clock: Clock
) -> None:
    blocks = node.grow("genesis: b[1..2]\nb2 pays 5 from alice to bob")
    assert [each["canonical"] for each in listed(client)] == [True]
    branch = [node.builder.block(blocks["b1"], producer="c")]
    branch.append(node.builder.block(branch[0]))
    node.take(*branch)
    clock.pump([0] * 5)
    assert [each["canonical"] for each in listed(client)] == [False]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"amount": "1"}, "an amount belongs to one order: give its reference too"),
        (
            {"reference": "r", "amount": "1", "amountBaseUnits": "1"},
            "amount and amountBaseUnits are both given; give one of them",
        ),
        ({"after": "3-0"}, "after: must be the `next` of the page before, such as 120-3-0"),
        ({"limit": "101"}, "limit: must be a whole number from 1 to 100"),
        ({"recipient": "svcd1q"}, "recipient"),
        ({"reference": "a b"}, "paymentReference must be 1 to 64"),
    ],
)
def test_questions_that_have_no_answer(still: Client, query: dict[str, str], sentence: str) -> None:
    assert still.refusal(target(**query)).startswith(sentence)
