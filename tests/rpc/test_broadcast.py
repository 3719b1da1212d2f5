"""POST /rpc/broadcast: what is taken in, and the sentence of every refusal."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from svcd.chain.signature import public_key_of
from svcd.chain.transaction import Transfer
from svcd.store.mempool_journal import read_journal
from svcd.web.rate_limits import Rate
from tests.chains import ChainBuilder, key_of
from tests.rpc.conftest import CLIENT, START_SLOT, public_client
from tests.rpc.node import PARAMS, UNLIMITED, Client, Node
from tests.web.wire import Wire

ROUTE = "/rpc/broadcast"
PAID = 1_000_000
"""Base units; no network lets a transfer create an account with less."""
NOW = PARAMS.slot_time(START_SLOT)
DAY = 86_400_000


def body(transfer: Transfer, **changes: object) -> dict[str, Any]:
    """What a wallet sends; `changes` are made after it has signed."""
    return {"transaction": json.loads(transfer.wire) | changes}


@pytest.fixture
def pay() -> Callable[..., Transfer]:
    """``pay(amount, **details)``: a transfer from alice to bob, with the next nonce unless one is given."""
    builder = ChainBuilder(PARAMS)
    return lambda amount=1, **details: builder.transfer("alice", "bob", amount, **details)


Pay = Callable[..., Transfer]
OpenNode = Callable[..., Node]


# Taken in


def test_transfer_is_accepted_once_and_known_afterwards(client: Client, pay: Pay) -> None:
    transfer = pay(reference="order-1")
    txid = transfer.txid.hex()
    assert client.ok(ROUTE, body(transfer)) == {"txid": txid, "state": "accepted"}
    assert client.ok(ROUTE, body(transfer)) == {"txid": txid, "state": "known"}


def test_transfer_is_known_when_a_block_holds_it(node: Node, client: Client, pay: Pay) -> None:
    transfer = pay()
    node.take(node.builder.block(transfers=[transfer]))
    assert client.ok(ROUTE, body(transfer)) == {"txid": transfer.txid.hex(), "state": "known"}
    assert len(node.node_context.transaction_pool.mempool) == 0


def test_used_nonce_costs_five_broadcasts(open_node: OpenNode, pay: Pay) -> None:
    node = open_node(rates={**UNLIMITED, "broadcast": Rate(1, 14)})
    client = public_client(node)
    confirmed, other = pay(PAID, nonce=0), pay(2 * PAID, nonce=0)
    node.take(node.builder.block(transfers=[confirmed]))
    assert client.ok(ROUTE, body(confirmed))["state"] == "known"
    assert client.refusal(ROUTE, body(other)) == "nonce 0 is already used; the next one is 1"
    assert client.post(ROUTE, body(confirmed, signature="00" * 64)).status == 400
    assert [client.post(ROUTE, body(pay(PAID, nonce=nonce))).status for nonce in (1, 2, 3, 4)] == [200] * 3 + [429]


def test_client_that_goes_away_pays_for_a_used_nonce_too(open_node: OpenNode, pay: Pay) -> None:
    node = open_node(rates={**UNLIMITED, "broadcast": Rate(0.01, 5)})
    confirmed = pay(PAID, nonce=0)
    node.take(node.builder.block(transfers=[confirmed]))
    data = json.dumps(body(confirmed)).encode()
    head = f"POST {ROUTE} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(data)}\r\n\r\n"
    Wire(node.public, CLIENT).send(head.encode() + data).close()
    node.clock.advance(0)
    assert public_client(node).post(ROUTE, body(pay(PAID, nonce=1))).status == 429


def test_order_and_blanks_of_the_json_do_not_matter(client: Client, pay: Pay) -> None:
    transfer = pay()
    fields = dict(reversed(json.loads(transfer.wire).items()))
    text = json.dumps({"transaction": fields}, indent=4).encode()
    assert client.ok(ROUTE, text) == {"txid": transfer.txid.hex(), "state": "accepted"}


def test_key_and_signature_in_upper_case_are_stored_in_lower_case(node: Node, client: Client, pay: Pay) -> None:
    transfer = pay()
    fields = json.loads(transfer.wire)
    upper = {name: fields[name].upper() for name in ("senderPublicKey", "signature")}
    assert client.ok(ROUTE, body(transfer, **upper)) == {"txid": transfer.txid.hex(), "state": "accepted"}
    entry = node.node_context.transaction_pool.mempool.get(transfer.txid)
    assert entry is not None
    assert entry.transfer.wire == transfer.wire
    node.take(node.builder.block(transfers=[entry.transfer]))
    record = client.ok(f"/rpc/transaction/{transfer.txid.hex().upper()}")["transaction"]
    assert {name: record[name] for name in fields} == fields


# Refused by the state of the chain or by what waits already


# Refused for what the transfer says


def test_fee_below_the_minimum(still: Client, pay: Pay) -> None:
    assert still.refusal(ROUTE, body(pay(), fee="9999")) == "fee must be at least 10000 base units, not 9999"


@pytest.mark.parametrize("confirmed", [False, True])
def test_signature_of_somebody_else_under_a_known_transfer(
    node: Node, client: Client, pay: Pay, confirmed: bool
) -> None:
    transfer, other = pay(nonce=0), pay(2, nonce=1)
    client.ok(ROUTE, body(transfer))
    if confirmed:
        node.take(node.builder.block(transfers=[transfer]))
    assert client.refusal(ROUTE, body(transfer, signature=other.signature.hex())) == (
        f"the signature of transaction {transfer.txid.hex()} is not its sender's"
    )
    assert client.ok(ROUTE, body(transfer))["state"] == "known"


def test_a_transfer_for_another_genesis_is_refused(still: Client) -> None:
    """It differs from ours in one rule only, and so in its genesis; every field of the transfer is as here."""
    builder = ChainBuilder(evolve(PARAMS, halving_blocks=PARAMS.halving_blocks + 1))
    assert still.refusal(ROUTE, body(builder.transfer("alice", "bob", 1))).endswith("is not its sender's")


def test_key_that_is_not_the_address_s(still: Client, pay: Pay) -> None:
    key = public_key_of(key_of("mallory").seed).hex()
    assert still.refusal(ROUTE, body(pay(), senderPublicKey=key)) == (
        "senderAddress must be the address of senderPublicKey on this network"
    )


DECIMAL = 'must be a decimal string without leading zeros, from "0" to "9007199254740991"'
CHANGES = [
    ({"version": True}, "version must be a whole JSON number from 0 to 9007199254740991"),
    ({"networkId": 1}, "networkId must be 3, the id of SVC-TEST"),
    ({"senderPublicKey": "ab"}, "senderPublicKey must be 64 lower-case hex characters"),
    ({"senderAddress": []}, "senderAddress must be the address of senderPublicKey on this network"),
    ({"nonce": "00"}, f"nonce {DECIMAL}"),
    ({"payload": {}}, "payload lacks the field amount"),
    ({"memo": "hello"}, 'transaction has an unknown field "memo"'),
]


@pytest.mark.parametrize(("change", "sentence"), CHANGES)
def test_field_that_is_wrong(still: Client, pay: Pay, change: dict[str, object], sentence: str) -> None:
    assert still.refusal(ROUTE, body(pay(), **change)) == sentence


REFERENCE = "paymentReference must be 1 to 64 of the characters A-Z a-z 0-9 . _ : - (or be absent)"
RECIPIENT = "recipient must be an address of this network: 44 characters that begin with svcd1q"
PAYLOADS = [
    ({"amount": "0.5"}, f"amount {DECIMAL}"),
    ({"paymentReference": ""}, REFERENCE),
    ({"paymentRefrence": "order-1"}, 'payload has an unknown field "paymentRefrence"'),
    ({"recipient": "svc1qqr0t67zeqfa0ed44hudd8s2a88ysuh7ytvpxz4"}, RECIPIENT),
]


@pytest.mark.parametrize(("change", "sentence"), PAYLOADS)
def test_payload_that_is_wrong(still: Client, pay: Pay, change: dict[str, object], sentence: str) -> None:
    sent = body(pay())
    sent["transaction"]["payload"] |= change
    assert still.refusal(ROUTE, sent) == sentence


# Refused for what the body is


def test_body_without_a_transaction(still: Client) -> None:
    for empty in (b"", b"{}", b" {} "):
        assert still.refusal(ROUTE, empty) == "transaction is missing: The signed transfer to broadcast."


def test_unknown_field_of_the_body_is_named(still: Client, pay: Pay) -> None:
    assert still.refusal(ROUTE, body(pay()) | {"confirmations": 1}) == (
        "unknown field 'confirmations' in the body; the known ones are transaction"
    )


@pytest.mark.parametrize("text", [b"[]", b"null", b"5", b'"x"', b"true"])
def test_body_that_is_no_object(still: Client, text: bytes) -> None:
    assert still.refusal(ROUTE, text) == "the body must be a JSON object"


# Kept


def test_an_accepted_transfer_is_on_disk_before_the_answer(node: Node, client: Client, pay: Pay) -> None:
    journal = node.node_context.transaction_pool.journal.path
    transfers = [pay(amount) for amount in (1, 2, 3)]
    for transfer in transfers:
        client.ok(ROUTE, body(transfer))
        assert list(read_journal(journal).transfers.values())[-1].wire == transfer.wire
