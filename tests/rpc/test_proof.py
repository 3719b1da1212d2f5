"""Proofs as a node gives them: what it answers is what a checker accepts (docs/payment-proof.md)."""

from collections.abc import Callable

import pytest

from svcd.chain.block import Block
from svcd.chain.work import check_work
from svcd.light.payment_proof import Proof, ProvenPayment, check, proof_in
from svcd.web.rate_limits import Rate
from tests.rpc.conftest import public_client
from tests.rpc.node import PARAMS, UNLIMITED, Client, Node

PAYMENTS = """
genesis: b[1..9]
b3 pays 7 from alice to bob
b3 pays 5000 from alice to bob for order-1
b3 pays 5001 from carol to bob for order-1
b5 pays 5000 from carol to bob for order-1
"""


@pytest.fixture
def paid(node: Node) -> dict[str, Block]:
    """Blocks with payments, taken in by the node."""
    return node.grow(PAYMENTS)


def path(node: Node, *, amount: int = 5000, more: str = "") -> str:
    """Where the proof for order-1 is."""
    recipient = node.address("bob")
    return f"/rpc/commerce/payment/order-1/proof?recipient={recipient}&amountBaseUnits={amount}{more}"


def proven_by(body: bytes) -> tuple[Proof, ProvenPayment]:
    """The proof in an answer, and what it proves."""
    proof = proof_in(body, [PARAMS])
    proven = check(proof)
    for header in proven.chain.headers.values():
        check_work(header, PARAMS)
    return proof, proven


def test_an_answer_proves_the_payment_as_it_stands(node: Node, client: Client, paid: dict[str, Block]) -> None:
    response = client.get(path(node))
    proof, proven = proven_by(response.body)
    assert (response.json["next"], proven.confirmations) == (None, 7)
    assert proven.chain.tip.hash == node.node_context.chain_manager.tip.hash
    assert proven.chain.headers[proof.height].hash == paid["b3"].header.hash
    assert proof.transfer.txid == paid["b3"].transfers[1].txid


def test_a_payment_below_many_blocks_is_proved_by_some_headers(node: Node, client: Client) -> None:
    node.grow("genesis: b[1..130]\nb3 pays 5000 from alice to bob for order-1\nb3 pays 7 from carol to bob")
    _, proven = proven_by(client.get(path(node)).body)
    assert proven.confirmations == 128
    assert 3 in proven.chain.headers


def test_the_chain_may_be_asked_for_and_cannot_be_left_out(node: Node, client: Client, paid: dict[str, Block]) -> None:
    assert client.get(path(node, more="&chain=1")).body == client.get(path(node)).body
    assert client.refusal(path(node, more="&chain=0")).startswith("chain: ")


def test_the_amount_in_coins_asks_the_same(node: Node, client: Client, paid: dict[str, Block]) -> None:
    coins = f"/rpc/commerce/payment/order-1/proof?recipient={node.address('bob')}&amount=0.00005"
    assert client.get(coins).body == client.get(path(node)).body


def test_another_amount_is_another_payment(node: Node, client: Client, paid: dict[str, Block]) -> None:
    proof, _ = proven_by(client.get(path(node, amount=5001)).body)
    assert proof.transfer.wire == paid["b3"].transfers[2].wire


def test_the_first_payment_that_counts_is_proved(node: Node, client: Client, paid: dict[str, Block]) -> None:
    assert proven_by(client.get(path(node, more="&sinceHeight=4")).body)[0].height == 5


def test_confirmations_that_are_missing_are_for_the_checker(node: Node, client: Client, paid: dict[str, Block]) -> None:
    assert client.get(path(node, more="&confirmations=1000")).body == client.get(path(node)).body
    assert "confirmations" in client.refusal(path(node, more="&confirmations=0"))


def test_a_payment_in_the_newest_block_has_one_confirmation(node: Node, client: Client) -> None:
    node.grow("genesis: b1\nb1 pays 5000 from alice to bob for order-1")
    assert proven_by(client.get(path(node)).body)[1].confirmations == 1


# Refusals


def test_a_payment_that_is_on_no_chain(node: Node, client: Client, paid: dict[str, Block]) -> None:
    refused = client.refusal(path(node, amount=4999), status=404)
    assert refused == "no block of the chain contains this payment of order-1; the mempool has none either"
    for since in (6, 2**46 + 1, 2**53 - 1):
        assert client.refusal(path(node, more=f"&sinceHeight={since}"), status=404) == refused


def test_a_payment_that_waits(node: Node, client: Client) -> None:
    transfer = node.builder.transfer("alice", "bob", 5000, reference="order-1", timestamp=PARAMS.slot_time(20_000))
    client.ok("/rpc/broadcast", b'{"transaction":' + transfer.wire + b"}")
    refused = client.refusal(path(node), status=404)
    assert refused == "no block of the chain contains this payment of order-1; one waits in the mempool"


def test_a_payment_that_fell_out_of_the_chain(node: Node, client: Client) -> None:
    blocks = node.builder.chain("genesis: b[1..2]\nb2 pays 5000 from alice to bob for order-1\nb1: c[2..3]\n")
    node.take(blocks["b1"], blocks["b2"])
    assert client.ok(path(node))["proof"]["index"] == 0
    node.take(blocks["c2"], blocks["c3"])
    node.clock.advance(0)
    assert client.refusal(path(node), status=404).endswith("; one waits in the mempool")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("amount=1", "recipient"),
        ("recipient={bob}", "give exactly one of amount and amountBaseUnits"),
        ("recipient={bob}&amount=1&amountBaseUnits=1", "give exactly one of amount and amountBaseUnits"),
        ("recipient=svcd1q&amount=1", "recipient"),
    ],
)
def test_the_query_is_that_of_verification(still_node: Node, still: Client, query: str, sentence: str) -> None:
    asked = query.format(bob=still_node.address("bob"))
    plain = still.refusal(f"/rpc/commerce/payment/order-1?{asked}")
    assert sentence in plain
    assert still.refusal(f"/rpc/commerce/payment/order-1/proof?{asked}") == plain


def test_a_proof_costs_much(open_node: Callable[..., Node]) -> None:
    node = open_node(rates={**UNLIMITED, "read": Rate(8, 8)})
    node.grow("genesis: b1\nb1 pays 5000 from alice to bob for order-1")
    client = public_client(node)
    assert [client.get(path(node)).status for _ in range(2)] == [200, 429]
