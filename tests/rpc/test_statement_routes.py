"""The statement of an account over HTTP: pages, periods, and reorganisations between two pages."""

from typing import Any

import pytest

from tests.chains import COIN
from tests.rpc.node import PARAMS, Client, Node

CHAIN = """
genesis: b[1..4]
b1 pays 5000 from alice to bob for order-1
b2 is by bob
b3 pays 7 from bob to alice
"""


def target(node: Node, name: str = "bob", query: str = "") -> str:
    return f"/rpc/address/{node.address(name)}/statement{query}"


def every_page(node: Node, client: Client, query: str = "") -> list[Any]:
    """All entries of bob, page by page."""
    found, after = [], ""
    while True:
        page = client.ok(target(node, query=f"?limit=1{query}{after}"))
        found += page["entries"]
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


def test_statement(node: Node, client: Client) -> None:
    blocks = node.grow(CHAIN)
    answer = client.ok(target(node))
    balance = client.ok(f"/rpc/balance/{node.address('bob')}")["account"]["balance"]
    assert {name: answer[name] for name in ("address", "balance", "next", "tip")} == {
        "address": node.address("bob"),
        "balance": balance,
        "next": None,
        "tip": {"height": "4", "hash": blocks["b4"].header.hash.hex()},
    }
    assert answer["entries"][1] == {
        "type": "received",
        "time": str(PARAMS.slot_time(blocks["b1"].header.slot)),
        "height": "1",
        "index": 0,
        "txid": blocks["b1"].transfers[0].txid.hex(),
        "counterparty": node.address("alice"),
        "reference": "order-1",
        "amount": "5000",
        "amountSvc": "0.00005",
        "fee": "0",
        "feeSvc": "0",
        "confirmations": 4,
    }
    assert [(each["type"], each["amount"], each["fee"]) for each in answer["entries"]] == [
        ("allocation", str(1000 * COIN), "0"),
        ("received", "5000", "0"),
        ("reward", str(20 * COIN), "0"),
        ("sent", "7", "10000"),
    ]


def test_pages_and_periods(node: Node, client: Client) -> None:
    node.grow(CHAIN)
    whole = client.ok(target(node))["entries"]
    assert every_page(node, client) == whole
    second, fourth = whole[1]["time"], whole[3]["time"]
    assert every_page(node, client, f"&from={second}&to={fourth}") == whole[1:3]


def test_a_reorganisation_between_two_pages_is_told(node: Node, client: Client) -> None:
    blocks = node.grow(CHAIN)
    page = client.ok(target(node, query="?limit=2"))
    following = target(node, query=f"?after={page['next']}")
    assert len(client.ok(following)["entries"]) == 2
    node.take(node.builder.block(blocks["b4"]))
    assert len(client.ok(following)["entries"]) == 2, "new blocks do not matter"
    branch = [node.builder.block(None, producer="q")]
    for _ in range(5):
        branch.append(node.builder.block(branch[-1]))
    node.take(*branch)
    assert client.refusal(following, status=409) == (
        "a reorganisation has replaced blocks of the pages before; begin again without after"
    )


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("?limit=501", "limit: must be a whole number from 1 to 500"),
        ("?from=2026-01-01", 'from must be a decimal string without leading zeros, from "0" to "9007199254740991"'),
        ("?after=3-4", "after: must be the `next` of the page before"),
    ],
)
def test_questions_that_have_no_answer(still: Client, still_node: Node, query: str, sentence: str) -> None:
    assert still.refusal(target(still_node, query=query)) == sentence


def test_a_cursor_beyond_the_chain_is_of_another_chain(still: Client, still_node: Node) -> None:
    assert "begin again" in still.refusal(target(still_node, query=f"?after=9-0-{'ab' * 8}"), status=409)
