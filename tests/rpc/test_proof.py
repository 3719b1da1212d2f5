"""Proofs as a node gives them: what it answers is what a checker accepts (docs/payment-proof.md)."""

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.chain.work import check_work
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_proof import MAX_HEADERS, Proof, check, check_terms, check_tip, parse_proof
from svcd.commerce.payment_request import PaymentTerms
from svcd.rpc import proof_routes as proof_module
from svcd.rpc.proof_routes import ProofRoutes
from svcd.store.chain_store import ChainReader
from svcd.web.rate_limits import Rate
from svcd.web.responses import Response, tip_of
from tests.node.bench import Stepped
from tests.rpc.conftest import public_client
from tests.rpc.node import PARAMS, UNLIMITED, Client, Node
from tests.support import has_result, result_of

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


def proof_of(*bodies: bytes) -> Proof:
    """The proof in these answers, checked by itself."""
    proof = parse_proof(bodies, [PARAMS])
    check(proof)
    for header in proof.headers:
        check_work(header, PARAMS)
    return proof


def test_an_answer_proves_the_payment_as_it_stands(node: Node, client: Client, paid: dict[str, Block]) -> None:
    response = client.get(path(node))
    proof = proof_of(response.body)
    check_terms(PaymentTerms("order-1", node.address("bob"), 5000, 7), proof)
    check_tip(node.node_context.chain_manager.tip.hash, proof)
    assert response.json["next"] is None
    assert proof.block.hash == paid["b3"].header.hash
    assert proof.transfer.txid == paid["b3"].transfers[1].txid


def test_the_amount_in_coins_asks_the_same(node: Node, client: Client, paid: dict[str, Block]) -> None:
    coins = f"/rpc/commerce/payment/order-1/proof?recipient={node.address('bob')}&amount=0.00005"
    assert client.get(coins).body == client.get(path(node)).body


def test_another_amount_is_another_payment(node: Node, client: Client, paid: dict[str, Block]) -> None:
    assert proof_of(client.get(path(node, amount=5001)).body).transfer.wire == paid["b3"].transfers[2].wire


def test_the_first_payment_that_counts_is_proved(node: Node, client: Client, paid: dict[str, Block]) -> None:
    assert proof_of(client.get(path(node, more="&sinceHeight=4")).body).block.height == 5


def test_confirmations_that_are_missing_are_for_the_checker(node: Node, client: Client, paid: dict[str, Block]) -> None:
    assert client.get(path(node, more="&confirmations=1000")).body == client.get(path(node)).body
    assert "confirmations" in client.refusal(path(node, more="&confirmations=0"))


def test_a_payment_in_the_newest_block_has_no_headers_above(node: Node, client: Client) -> None:
    node.grow("genesis: b1\nb1 pays 5000 from alice to bob for order-1")
    answer = client.ok(path(node))
    assert (answer["proof"]["headers"], answer["next"]) == ([], None)


# Continuing


def test_an_answer_begins_where_it_is_asked_to(node: Node, client: Client, paid: dict[str, Block]) -> None:
    whole = client.ok(path(node))["proof"]
    rest = client.ok(path(node, more="&from=7"))
    assert rest["proof"] == {**whole, "headers": whole["headers"][3:]}
    assert rest["next"] is None


def test_above_the_tip_there_are_no_headers_yet(node: Node, client: Client, paid: dict[str, Block]) -> None:
    answer = client.ok(path(node, more="&from=10"))
    assert (answer["proof"]["headers"], answer["next"]) == ([], None)


def test_nothing_begins_below_the_payment(node: Node, client: Client, paid: dict[str, Block]) -> None:
    assert client.refusal(path(node, more="&from=3")) == (
        "from must be above 3, the height of the block that contains the payment"
    )
    assert client.refusal(path(node, more="&from=04")).startswith("from: must be a whole number")


def test_answers_that_are_too_long_for_one_continue_one_another(
    node: Node, client: Client, paid: dict[str, Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_module, "MAX_HEADERS", 4)
    first = client.get(path(node))
    assert first.json["next"] == "8"
    second = client.get(path(node, more="&from=8"))
    assert second.json["next"] is None
    proof = proof_of(first.body, second.body)
    assert [header.height for header in proof.headers] == list(range(3, 10))
    check_tip(paid["b9"].header.hash, proof)


def test_one_answer_has_a_thousand_headers(
    node: Node, client: Client, paid: dict[str, Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_HEADERS == 1_000
    asked: list[int] = []
    real = ChainReader.headers

    def headers(reader: ChainReader, first: int, *, limit: int) -> list[bytes]:
        asked.append(limit)
        return real(reader, first, limit=limit)

    monkeypatch.setattr(ChainReader, "headers", headers)
    client.ok(path(node))
    assert asked == [1_000]


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


def test_a_proof_costs_four_times(open_node: Callable[..., Node]) -> None:
    node = open_node(rates={**UNLIMITED, "read": Rate(8, 8)})
    node.grow("genesis: b1\nb1 pays 5000 from alice to bob for order-1")
    client = public_client(node)
    assert [client.get(path(node)).status for _ in range(3)] == [200, 200, 429]


def test_proofs_are_hashed_in_a_thread(node: Node, client: Client, paid: dict[str, Block]) -> None:
    """The reactor only reads; and what happens meanwhile does not show in the answer."""
    worker, chain_manager = Stepped(), node.node_context.chain_manager
    payments = PaymentLookup.subscribed(chain_manager, node.node_context.transaction_pool)
    routes = ProofRoutes(node.node_context, payments, worker)
    asked: dict[str, Any] = {"amount": 5000, "amount_base_units": None, "confirmations": 1, "since_height": None}
    asked |= {"recipient": node.address("bob"), "from_": None, "chain": 0}
    answered = Deferred.fromCoroutine(routes.proof("order-1", lambda _: None, **asked))
    before = client.get(path(node)).body
    tip = chain_manager.tip
    assert not has_result(answered)
    node.take(node.builder.block(paid["b9"]))
    assert len(worker) == 1
    worker.step()
    assert result_of(answered) == Response(before, tip=tip_of(tip.height, tip.hash))
    assert client.get(path(node)).body != before


def test_a_refusal_that_also_names_an_unknown_field_still_tells_the_tip(
    node: Node, client: Client, paid: dict[str, Block]
) -> None:
    plain = client.get(path(node, more="&from=1"))
    misspelt = client.get(path(node, more="&from=1&form=1"))
    assert (plain.status, misspelt.status) == (400, 400)
    assert misspelt.error == f"{plain.error}; 'form' in the query is unknown here"
    assert misspelt.headers["svc-tip"] == plain.headers["svc-tip"]
