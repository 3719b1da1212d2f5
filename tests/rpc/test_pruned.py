"""A node that has blocks only from a height on says so: 410 below it, and never "not found", "corrupt" or "unpaid"."""

import json
from typing import Any

import pytest

from tests.rpc.node import PARAMS, Client, Node

CHAIN = """
genesis: b[1..6]
b1 pays 5000 from alice to bob for order-1
b3 pays 6000 from alice to bob for order-2
b4 pays 5000 from alice to bob for order-3
b5 pays 7 from bob to alice
"""
FIRST = 4


@pytest.fixture
def pruned(node: Node) -> dict[str, Any]:
    """The blocks of a chain of which the node has only those from height FIRST on."""
    blocks = node.grow(CHAIN)
    node.keep_from(FIRST)
    return dict(blocks)


def order(node: Node, reference: str, amount: int = 5000, more: str = "") -> str:
    query = f"recipient={node.address('bob')}&amountBaseUnits={amount}{more}"
    return f"/rpc/commerce/payment/{reference}{{}}?{query}"


def targets(node: Node, more: str) -> list[str]:
    """Reads that begin below FIRST, where ``more`` does not say otherwise."""
    bob = node.address("bob")
    return [
        order(node, "order-1", more=more).format(""),
        order(node, "order-1", more=more).format("/proof"),
        order(node, "order-1", more=f"{more}&chain=1").format("/proof"),
        order(node, "order-1", more=f"{more}&wait=5&state=unpaid").format(""),
        f"/rpc/commerce/payments?recipient={bob}{more}",
        f"/rpc/commerce/feed/{bob}?limit=1{more}",
        f"/rpc/commerce/feed/{bob}?wait=5{more}",
    ]


@pytest.mark.parametrize("since", ["", "&sinceHeight=0", f"&sinceHeight={FIRST - 1}"])
def test_a_read_below_the_prune_height_is_410(node: Node, client: Client, pruned: dict[str, Any], since: str) -> None:
    bob = node.address("bob")
    below = [f"/rpc/block/{height}" for height in range(FIRST)]
    below += [f"/rpc/address/{bob}/transactions?before={before}" for before in (f"{FIRST}-0", "3-0", "0-0")]
    below += [f"/rpc/address/{bob}/statement", f"/rpc/address/{bob}/statement?from=0", *targets(node, since)]
    for target in below:
        response = client.get(target)
        assert response.status == 410, (target, response.json)
        assert response.json["pruneHeight"] == str(FIRST)
        assert f"this node has only blocks from height {FIRST} on" in response.json["error"]


def test_reads_at_the_prune_height_and_above_are_answered(node: Node, client: Client, pruned: dict[str, Any]) -> None:
    bob = node.address("bob")
    for height in range(FIRST, 7):
        assert client.ok(f"/rpc/block/{height}")["block"]["hash"] == pruned[f"b{height}"].header.hash.hex()
    listed = client.ok(f"/rpc/address/{bob}/transactions")
    assert [(each["blockHeight"], each["index"]) for each in listed["transactions"]] == [("5", 0), ("4", 0)]
    assert (listed["next"], listed["pruneHeight"]) == (None, str(FIRST))
    began = PARAMS.slot_time(pruned[f"b{FIRST}"].header.slot)
    refused = client.get(f"/rpc/address/{bob}/statement").json["error"]
    assert f"give its time, {began}, as from" in refused
    statement = client.ok(f"/rpc/address/{bob}/statement?from={began}")
    assert [entry["height"] for entry in statement["entries"] if entry["type"] != "reward"] == ["4", "5"]
    payments = client.ok(f"/rpc/commerce/payments?recipient={bob}&sinceHeight={FIRST}")
    assert [each["reference"] for each in payments["payments"]] == ["order-3"]
    assert client.ok("/rpc/status")["status"]["pruneHeight"] == str(FIRST)


def test_a_payment_is_unpaid_only_where_all_of_its_blocks_are_here(
    node: Node, client: Client, pruned: dict[str, Any]
) -> None:
    for since in ("", f"&sinceHeight={FIRST}"):
        assert client.ok(order(node, "order-3", more=since).format(""))["payment"]["state"] == "confirming"
        assert client.ok(order(node, "order-3", more=since).format("/proof"))["proof"]["index"] == 0
    assert client.ok(order(node, "order-9", more=f"&sinceHeight={FIRST}").format(""))["payment"]["state"] == "unpaid"
    assert client.get(order(node, "order-9", more=f"&sinceHeight={FIRST}").format("/proof")).status == 404
    waiting = node.builder.transfer("alice", "bob", 8000, reference="order-9")
    client.ok("/rpc/broadcast", {"transaction": json.loads(waiting.wire)})
    assert client.ok(order(node, "order-9", 8000).format(""))["payment"]["state"] == "pending"


def test_an_unknown_transfer_may_be_in_an_earlier_block(node: Node, client: Client, pruned: dict[str, Any]) -> None:
    response = client.get(f"/rpc/transaction/{pruned['b1'].transfers[0].txid.hex()}")
    assert (response.status, response.json["pruneHeight"], response.json["mempool"]) == (404, str(FIRST), False)
    assert f"no block from height {FIRST} on, the first that this node has," in response.json["error"]
    found = client.ok(f"/rpc/transaction/{pruned['b4'].transfers[0].txid.hex()}")["transaction"]
    assert found["blockHeight"] == "4"


def test_proofs_of_chain_and_account_need_no_deleted_block(node: Node, client: Client, pruned: dict[str, Any]) -> None:
    assert client.ok("/rpc/proof/chain")["proof"]["tip"] == pruned["b6"].header.hash.hex()
    assert client.ok(f"/rpc/proof/account/{node.address('bob')}")["proof"]["height"] == "6"
    assert client.ok(order(node, "order-3", more="&chain=1").format("/proof"))["proof"]["height"] == "4"


def test_reorganisation_costs_fees_and_confirmations_are_answered(
    node: Node, client: Client, pruned: dict[str, Any]
) -> None:
    assert int(client.ok("/rpc/fees")["fees"]["suggestedFee"]) > 0
    assert client.ok("/rpc/commerce/confirmations?amount=25")["confirmations"]["blocks"] > 0
    assert "work" in client.ok(order(node, "order-3").format(""))["payment"]
