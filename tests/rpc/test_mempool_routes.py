"""The routes to the mempool: what waits for an address, and the fees."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.task import Clock

from svcd.chain.transaction import Transfer
from tests.rpc.conftest import public_client
from tests.rpc.node import PARAMS, Client, Node
from tests.submitting import submitted

FEE = PARAMS.minimum_fee


def waiting(client: Client, address: str, query: str = "") -> Any:
    return client.ok(f"/rpc/mempool/{address}{query}")


def hand_in(node: Node, *transfers: Transfer) -> list[str]:
    """Let transfers into the mempool; gives their txids."""
    for transfer in transfers:
        submitted(node.node_context.transaction_pool, transfer, node.clock)
    return [transfer.txid.hex() for transfer in transfers]


def txids(answer: Any) -> list[str]:
    return [each["txid"] for each in answer["transactions"]]


# GET /rpc/mempool/{address}


def test_nothing_waits_for_an_address_never_seen(still: Client, still_node: Node) -> None:
    address = still_node.address("zoe")
    assert waiting(still, address) == {"address": address, "transactions": [], "next": None}


def test_a_waiting_transfer_is_shown_to_both_sides(node: Node, client: Client) -> None:
    transfer = node.builder.transfer("alice", "bob", 5000, reference="order-1")
    (txid,) = hand_in(node, transfer)
    record = {**json.loads(transfer.wire), "txid": txid, "amountSvc": "0.00005", "feeSvc": "0.0001"}
    for name in ("alice", "bob"):
        assert waiting(client, node.address(name))["transactions"] == [record]
    assert txids(waiting(client, node.address("carol"))) == []


def test_a_transfer_to_oneself_waits_once(node: Node, client: Client) -> None:
    (txid,) = hand_in(node, node.builder.transfer("alice", "alice", 1))
    assert txids(waiting(client, node.address("alice"))) == [txid]


def test_the_newest_come_first_page_by_page(node: Node, client: Client) -> None:
    sent = hand_in(
        node,
        node.builder.transfer("alice", "bob", 1),
        node.builder.transfer("carol", "bob", 2),
        node.builder.transfer("bob", "alice", 3),
        node.builder.transfer("carol", "bob", 4, nonce=1),
    )
    bob = node.address("bob")
    assert txids(waiting(client, bob)) == sent[::-1]
    seen, query = [], "?limit=1"
    while query:
        page = waiting(client, bob, query)
        seen += txids(page)
        query = f"?limit=1&before={page['next']}" if page["next"] else ""
    assert seen == sent[::-1]


def test_a_transfer_in_a_block_is_not_listed(node: Node, client: Client, clock: Clock) -> None:
    transfer = node.builder.transfer("alice", "bob", 1)
    hand_in(node, transfer)
    node.take(node.builder.block(None, transfers=[transfer]))
    clock.advance(0)
    assert txids(waiting(client, node.address("bob"))) == []


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("?limit=0", "limit: must be a whole number from 1 to 100"),
        ("?before=3-4", 'before must be a decimal string without leading zeros, from "0" to "9007199254740991"'),
    ],
)
def test_pages_that_there_are_not(still: Client, still_node: Node, query: str, sentence: str) -> None:
    assert still.refusal(f"/rpc/mempool/{still_node.address('bob')}{query}") == sentence


# GET /rpc/fees


def test_the_fees_of_a_new_chain_are_the_minimum(still: Client) -> None:
    assert still.ok("/rpc/fees") == {
        "fees": {
            "minimumFee": str(FEE),
            "suggestedFee": str(FEE),
            "transferBytes": 600,
            "mempool": {"transactions": 0, "bytes": 0, "floor": str(FEE)},
        }
    }


def test_the_suggested_fee_of_a_full_mempool_gets_in(open_node: Callable[..., Node]) -> None:
    node = open_node(max_transactions=2)
    client = public_client(node)
    hand_in(node, *(node.builder.transfer(name, "zoe", 1, fee=fee) for name, fee in (("alice", FEE), ("bob", 2 * FEE))))
    fees = client.ok("/rpc/fees")["fees"]
    assert fees["mempool"]["transactions"] == 2
    assert int(fees["suggestedFee"]) >= int(fees["mempool"]["floor"]) > FEE
    for fee, status in ((FEE, 400), (int(fees["suggestedFee"]), 200)):
        transfer = node.builder.transfer("carol", "zoe", 1, nonce=0, fee=fee)
        assert client.post("/rpc/broadcast", {"transaction": json.loads(transfer.wire)}).status == status
