"""The Python client gives what the vectors say, without a node: keys, transfers, proofs, signatures of callbacks."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import svc_pay
from hypothesis import given
from hypothesis import strategies as st
from svc_pay import DEVNET, NETWORKS, Key, Order, Webhook
from svc_pay.light import ProvenPayment, check_payment_proof
from svc_pay.members import Members
from svc_pay.webhooks import parse_event

from svcd.chain import params
from svcd.commerce.payment_request import PaymentTerms, refund_reference
from svcd.commerce.signing import SigningKeys, signed_headers
from svcd.light.payment_proof import Unproved, check, check_depth, check_payment, proof_in
from tests.clients.vectors import ProofCase, changed_proofs, vectors

PROTOCOL = vectors("svc_protocol")["networks"]
WALLET = vectors("wallet")
PROOF = vectors("payment_proof")
SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"
TRANSFERS = [(network, vector) for network in NETWORKS for vector in PROTOCOL[network.name]["transactions"]]


def test_the_networks_are_those_of_the_node() -> None:
    assert [(each.network_id, each.chain_id, each.prefix, each.genesis_hash) for each in NETWORKS] == [
        (each.network_id, each.chain_id, each.address_prefix, each.genesis_hash.hex())
        for each in (params.MAINNET, params.DEVNET)
    ]
    assert params.MAINNET.minimum_fee == params.DEVNET.minimum_fee == svc_pay.MINIMUM_FEE


@pytest.mark.parametrize(("network", "vector"), TRANSFERS)
def test_a_transfer_is_that_of_the_vector(network: svc_pay.Network, vector: dict[str, Any]) -> None:
    wanted = vector["transaction"]
    (seed,) = [key["seed"] for key in PROTOCOL[network.name]["keys"] if key["publicKey"] == wanted["senderPublicKey"]]
    made = svc_pay.sign_transfer(
        Key(bytes.fromhex(seed)),
        network,
        recipient=wanted["payload"]["recipient"],
        amount=int(wanted["payload"]["amount"]),
        reference=wanted["payload"].get("paymentReference"),
        **{name: int(wanted[name]) for name in ("nonce", "fee", "timestamp")},
    )
    assert (made.transaction, made.txid) == (wanted, vector["txid"])
    assert svc_pay.SignedTransfer.from_text(made.text, network) == made


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_addresses_are_those_of_the_vectors(network: svc_pay.Network) -> None:
    for key in PROTOCOL[network.name]["keys"]:
        assert Key(bytes.fromhex(key["seed"])).address(network) == key["address"]
        assert svc_pay.network_of(key["address"]) is network


def test_words_give_the_keys_of_the_vectors() -> None:
    for wallet in WALLET["wallets"]:
        key = Key.from_words(wallet["words"])
        assert key.seed.hex() == wallet["seed"]
        assert {network.name: key.address(network) for network in NETWORKS} == wallet["address"]
        assert wallet["seed"] not in repr(key)
    for same in WALLET["sameWords"]:
        assert Key.from_words(same["typed"]) == Key.from_words(WALLET["wallets"][1]["words"])


@pytest.mark.parametrize("words", WALLET["invalidWords"], ids=lambda words: words["name"])
def test_words_that_are_no_wallet_are_refused(words: dict[str, str]) -> None:
    with pytest.raises(svc_pay.InvalidInput):
        Key.from_words(words["words"])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"amount": 0}, "amount must be an integer from 1 to 9007199254740991"),
        ({"amount": 2.5}, "amount must be an integer"),
        ({"amount": True}, "amount must be an integer"),
        ({"amount": 2**53}, "amount must be an integer"),
        ({"reference": "order 1"}, "a reference is 1 to 64"),
        ({"reference": ".."}, "a reference is 1 to 64"),
        ({"recipient": SHOP[:-1] + "q"}, "is not an address of devnet: it has a wrong checksum"),
        ({"recipient": SHOP.upper()}, "an address begins with svc1q"),
        ({"confirmations": 0}, "confirmations must be an integer from 1 to 1000"),
        ({"since_height": -1}, "since_height must be an integer"),
        ({"network": 5}, "network must be MAINNET, DEVNET or"),
    ],
)
def test_an_impossible_order_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(svc_pay.InvalidInput, match=sentence):
        Order(**{"reference": "order-1", "recipient": SHOP, "amount": 1} | changes)


def test_a_transfer_to_another_network_is_not_signed() -> None:
    with pytest.raises(svc_pay.InvalidInput, match="is not an address of mainnet"):
        svc_pay.sign_transfer(Key(bytes(32)), svc_pay.MAINNET, recipient=SHOP, amount=1, nonce=0)


def test_amounts_are_those_of_svcd_with_the_errors_of_the_client() -> None:
    assert [svc_pay.parse_amount(coins) for coins in ("25", "0.5")] == [2_500_000_000, 50_000_000]
    assert [svc_pay.format_amount(units) for units in (2_500_000_000, 1, -150_000_000)] == ["25", "0.00000001", "-1.5"]
    for coins in ("", "0", "1.", "1e3", "90071992.54740992", 2.5):
        with pytest.raises(svc_pay.InvalidInput, match="amount must be"):
            svc_pay.parse_amount(coins)  # type: ignore[arg-type]


@given(st.one_of(st.none(), st.from_regex(r"\A[A-Za-z0-9._:-]{1,64}\Z")))
def test_the_reference_of_a_refund_is_that_of_svc(reference: str | None) -> None:
    assert svc_pay.refund_reference(reference, "ab" * 32) == refund_reference(reference, bytes.fromhex("ab" * 32))


# Payment proofs


def order_of(given: dict[str, Any]) -> Order:
    return Order(
        given["reference"],
        given["recipient"],
        int(given["amount"]),
        given["confirmations"],
        int(given["sinceHeight"]),
    )


def client_verdict(case: ProofCase) -> ProvenPayment:
    return check_payment_proof(json.dumps(case.answer).encode(), order_of(case.order), tip=case.tip)


def node_verdict(case: ProofCase) -> None:
    order = order_of(case.order)
    proof = proof_in(json.dumps(case.answer).encode(), [params.MAINNET, params.DEVNET])
    terms = PaymentTerms(order.reference, order.recipient, order.amount, order.confirmations, order.since_height)
    check_payment(terms, proof)
    proven = check(proof)
    check_depth(terms.required, proven.confirmations)
    if proven.chain.tip.hash.hex() != case.tip:
        raise Unproved("svc verify --tip compares them")


UNCHANGED = ProofCase("", PROOF["order"], PROOF["tip"], PROOF["answer"])


def test_the_proof_of_the_vectors_is_good() -> None:
    node_verdict(UNCHANGED)
    proven, wanted = client_verdict(UNCHANGED), PROOF["proven"]
    assert (proven.txid, proven.sender) == (wanted["txid"], wanted["sender"])
    assert (proven.block_height, proven.confirmations) == (int(wanted["blockHeight"]), wanted["confirmations"])


@pytest.mark.parametrize("case", list(changed_proofs()), ids=lambda case: case.what)
def test_a_changed_proof_is_refused_as_svc_verify_does(case: ProofCase) -> None:
    with pytest.raises(svc_pay.InvalidProof):
        client_verdict(case)
    with pytest.raises(Unproved):
        node_verdict(case)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"[" * 100_000, b'{"proof":{}}', b"\xff", b'{"proof":{"chainId":"\\ud800"}}']
)
def test_invalid_proofs_are_refused(body: bytes) -> None:
    with pytest.raises(svc_pay.InvalidProof):
        check_payment_proof(body, order_of(PROOF["order"]))


# Callbacks

CASES = vectors("webhook_signature")["cases"]
EVENTS, SIGNED = (vectors("webhook_events")[name] for name in ("events", "signed"))
SECRET, OLD = SIGNED["secret"], "the-secret-before-it-of-thirty-two-characters"
NOW = int(SIGNED["webhook-timestamp"])


def headers_of(body: bytes, *secrets: str, at: int = NOW) -> dict[str, str]:
    """The headers with which the node signs a body under one secret, or under two."""
    event = json.loads(body)
    keys = SigningKeys(*secrets)
    return signed_headers(keys, event_id=event["id"], event=event["event"], body=body, timestamp=at)


def standard(secret: str) -> str:
    return "whsec_" + base64.b64encode(secret.encode()).decode()


def test_the_callback_of_the_vectors() -> None:
    body = SIGNED["body"].encode()
    event = Webhook(SECRET).verify(body, headers_of(body, SECRET), now=NOW)
    assert isinstance(event, svc_pay.WatchEvent)
    assert (event.name, event.place, event.synced) == ("payment.confirmed", (0, 4), True)
    assert event.genesis_hash == DEVNET.genesis_hash
    assert (event.payment.state, event.payment.reference) == (svc_pay.State.CONFIRMED, "order-17")
    assert event.payment.amount == 25 * svc_pay.COIN
    lower = {name.lower(): value for name, value in headers_of(body, SECRET).items()}
    assert Webhook(standard(SECRET)).verify(body, lower, now=NOW) == event


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["what"])
def test_signatures_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    """Their bodies are no events, so what is asked is whether the signature passed."""
    headers = {
        "webhook-id": case["eventId"],
        "webhook-timestamp": str(case["timestamp"]),
        "webhook-signature": case["webhookSignature"],
    }
    for secret in filter(None, (case["secret"], case["previousSecret"])):
        with pytest.raises(svc_pay.InvalidAnswer):
            Webhook(secret).verify(case["body"].encode(), headers, now=case["timestamp"])
    with pytest.raises(svc_pay.InvalidSignature):
        Webhook(case["secret"] + "x").verify(case["body"].encode(), headers, now=case["timestamp"])


@pytest.mark.parametrize(
    ("signed", "known", "good"),
    [
        ([SECRET], [SECRET], True),
        ([SECRET], [OLD, SECRET], True),
        ([SECRET, OLD], [OLD], True),
        ([SECRET, OLD], [SECRET], True),
        ([SECRET], [OLD], False),
        ([SECRET], [SECRET + "x", standard(OLD)], False),
    ],
)
def test_secrets_that_are_rotated(signed: list[str], known: list[str], good: bool) -> None:
    body = SIGNED["body"].encode()
    outcome: Callable[[], object] = lambda: Webhook(known).verify(body, headers_of(body, *signed), now=NOW)  # noqa: E731
    if good:
        outcome()
    else:
        with pytest.raises(svc_pay.InvalidSignature):
            outcome()


@pytest.mark.parametrize("secret", [f"{SECRET}\n", f" {SECRET}\r\n", standard(SECRET) + "\n"])
def test_whitespace_around_a_secret_does_not_count(secret: str) -> None:
    body = SIGNED["body"].encode()
    Webhook(secret).verify(body, headers_of(body, SECRET), now=NOW)


@pytest.mark.parametrize("secret", ["", "\n", "whsec_", "whsec_\n", "whsec_====", "whsec_a", "whsec_é"])
def test_an_empty_secret_is_refused(secret: str) -> None:
    with pytest.raises(svc_pay.InvalidInput):
        Webhook([SECRET, secret])


@pytest.mark.parametrize("secrets", [None, 5, [SECRET, None], [b"secret"]])
def test_a_secret_is_a_text(secrets: Any) -> None:
    with pytest.raises(svc_pay.InvalidInput, match="a signing secret is a text"):
        Webhook(secrets)


@pytest.mark.parametrize("text", [None, 5, b"{}"])
def test_a_description_of_a_network_is_a_text(text: Any) -> None:
    with pytest.raises(svc_pay.InvalidInput, match="give the text that svc network show --json prints"):
        svc_pay.parse_network(text)


@pytest.mark.parametrize("case", vectors("secret_lines")["cases"], ids=lambda case: case["name"])
def test_the_text_of_a_secrets_file(case: dict[str, str | None]) -> None:
    text, secret = str(case["text"]), case["secret"]
    if secret is None:
        with pytest.raises(svc_pay.InvalidInput):
            Webhook(text)
    else:
        body = SIGNED["body"].encode()
        Webhook(text).verify(body, headers_of(body, secret), now=NOW)


@pytest.mark.parametrize("away", [-300, 0, 300])
def test_a_callback_in_time(away: int) -> None:
    body = SIGNED["body"].encode()
    Webhook(SECRET).verify(body, headers_of(body, SECRET), now=NOW + away)


@pytest.mark.parametrize("away", [-301, 301, 10**9])
def test_an_old_callback_is_refused(away: int) -> None:
    body = SIGNED["body"].encode()
    with pytest.raises(svc_pay.InvalidSignature, match="within 300 s"):
        Webhook(SECRET).verify(body, headers_of(body, SECRET), now=NOW + away)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("value", ["", "x", "v1,", "1795170437", "v1,é", "\udcff"])
def test_a_changed_header_is_refused(name: str, value: str) -> None:
    body = SIGNED["body"].encode()
    with pytest.raises(svc_pay.InvalidSignature):
        Webhook(SECRET).verify(body, headers_of(body, SECRET) | {name: value}, now=NOW)


@given(st.integers(0, len(SIGNED["body"]) - 1), st.integers(1, 255))
def test_a_changed_body_is_refused(place: int, change: int) -> None:
    body = bytearray(SIGNED["body"].encode())
    body[place] ^= change
    with pytest.raises(svc_pay.InvalidSignature):
        Webhook(SECRET).verify(bytes(body), headers_of(SIGNED["body"].encode(), SECRET), now=NOW)


def test_a_body_that_was_parsed_is_no_raw_body() -> None:
    body = SIGNED["body"]
    with pytest.raises(svc_pay.InvalidInput, match="raw body as bytes"):
        Webhook(SECRET).verify(body, headers_of(body.encode(), SECRET), now=NOW)  # type: ignore[arg-type]


def test_events_of_no_watch() -> None:
    content = {
        name: json.loads(SIGNED["body"])[name] for name in ("id", "createdAt", "networkId", "chainId", "genesisHash")
    }
    for name in ("webhook.test", "payment.invented-later"):
        body = json.dumps({**content, "event": name}).encode()
        event = Webhook(SECRET).verify(body, headers_of(body, SECRET), now=NOW)
        assert (type(event), event.name) == (svc_pay.Event, name)


def test_every_event_of_the_vectors_is_read() -> None:
    events = [*EVENTS]
    assert len(events) >= 5
    mismatch = {
        "kind": "too-little",
        "txid": "ab" * 32,
        "sender": SHOP,
        "amount": "1",
        "amountSvc": "0.00000001",
        "more": True,
    }
    alarm = {"kind": "outage", "sentence": "…"}
    events.append({**events[0], "event": "payment.mismatched", "mismatch": mismatch})
    events.append({**events[0], "event": "node.alarm", "alarm": alarm})
    drop = {"reason": "replaced", "txid": "ab" * 32, "replacedBy": "cd" * 32}
    events.append({**events[0], "event": "payment.dropped", "dropped": drop})
    for each in events:
        body = json.dumps(each).encode()
        event = Webhook(SECRET).verify(body, headers_of(body, SECRET), now=NOW)
        assert isinstance(event, svc_pay.WatchEvent)
        assert (event.name, event.subscription_id) == (each["event"], each["subscriptionId"])
        assert event.mismatch is None or event.mismatch.more
        dropped = (
            None if event.dropped is None else (event.dropped.reason, event.dropped.txid, event.dropped.replaced_by)
        )
        assert dropped == (tuple(drop.values()) if event.name == "payment.dropped" else None)
        told = {
            "payment.mismatched": f"too-little: 0.00000001 SVC from {SHOP}; svc wallet refund {'ab' * 32}"
            "; list the payments, for further ones are not reported",
            "node.alarm": "…",
        }
        assert event.notice() == told.get(event.name)
        if event.mismatch is not None:
            late = replace(event, mismatch=replace(event.mismatch, kind="late", more=False)).notice()
            assert late == f"late: 0.00000001 SVC from {SHOP}; unless you accept it, svc wallet refund {'ab' * 32}"
    assert set(svc_pay.EVENT_NAMES) == {event["event"] for event in events}


ORDER_17 = Order("order-17", SHOP, 2500000000, 3)


def test_the_work_of_a_payment() -> None:
    told = {"hashesToUndo": "196560", "coreHoursToUndo": "0.3956", "workConfirmations": "12.00"}
    work = svc_pay.Work.parse(Members(told, "work"))
    assert work == svc_pay.Work(196_560, Decimal("0.3956"), Decimal(12))
    for name, wrong in (("coreHoursToUndo", "1e9"), ("workConfirmations", "12"), ("hashesToUndo", "-1")):
        with pytest.raises(svc_pay.InvalidAnswer):
            svc_pay.Work.parse(Members(told | {name: wrong}, "work"))


@pytest.mark.parametrize(
    ("order", "changes", "concerned", "settled"),
    [
        (ORDER_17, {}, True, True),
        (replace(ORDER_17, confirmations=4), {}, True, False),
        (replace(ORDER_17, reference="order-18"), {}, False, False),
        (replace(ORDER_17, amount=2500000001), {}, False, False),
        (replace(ORDER_17, recipient="svcd1qn5fh7d4g9cgv7j2enrscapqrvw8e85ye872pwt"), {}, False, False),
        (ORDER_17, {"genesisHash": svc_pay.MAINNET.genesis_hash}, False, False),
        (ORDER_17, {"payment": {"state": "confirming"}}, True, False),
    ],
)
def test_an_event_concerns_and_settles_only_the_order_that_it_pays(
    order: Order, changes: dict[str, Any], concerned: bool, settled: bool
) -> None:
    [event] = [event for event in EVENTS if event["event"] == "payment.confirmed"]
    payment = {**event["payment"], **changes.get("payment", {})}
    read = parse_event(json.dumps({**event, **changes, "payment": payment}).encode())
    assert isinstance(read, svc_pay.WatchEvent)
    assert (read.concerns(order), read.settles(order)) == (concerned, settled)


@pytest.mark.parametrize("changes", [{"canonical": False}, {"confirmations": 2}])
def test_a_confirmed_payment_is_as_deep_as_its_watch_requires(changes: dict[str, Any]) -> None:
    """An alarm and a mismatch may have the state of an earlier moment; they settle nothing."""
    [event] = [event for event in EVENTS if event["event"] == "payment.confirmed"]
    event = {**event, "payment": {**event["payment"], **changes}}
    with pytest.raises(svc_pay.InvalidAnswer, match="must be canonical"):
        parse_event(json.dumps(event).encode())
    read = parse_event(json.dumps({**event, "event": "node.alarm"}).encode())
    assert isinstance(read, svc_pay.WatchEvent)
    assert (read.concerns(ORDER_17), read.settles(ORDER_17)) == (True, False)


@pytest.mark.parametrize(
    "changes",
    [{"kind": "other"}, {"txid": "ab"}, {"sender": "shop"}, {"sender": "svc1qqr0t67zeqfa0ed44hudd8s2a88ysuh7ytvpxz4"}],
)
def test_a_mismatch_that_makes_no_sense_is_refused(changes: dict[str, str]) -> None:
    good = {"kind": "late", "txid": "ab" * 32, "sender": SHOP, "amount": "1"}
    svc_pay.Mismatch.parse(Members(good, "mismatch"), SHOP)
    with pytest.raises(svc_pay.InvalidAnswer):
        svc_pay.Mismatch.parse(Members(good | changes, "mismatch"), SHOP)


@pytest.mark.parametrize("changes", [{"txid": "ab"}, {"blockHash": "AB" * 32}, {"confirmations": -(2**53)}])
def test_a_delivery_that_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    tip = {"height": "1", "hash": "ab" * 32}
    payment = {"state": "confirmed", "confirmations": 1, "txid": "ab" * 32, "blockHash": "ab" * 32}
    svc_pay.DeliveryContent.parse(Members({"payment": payment, "tip": tip}, "content"))
    with pytest.raises(svc_pay.InvalidAnswer):
        svc_pay.DeliveryContent.parse(Members({"payment": payment | changes, "tip": tip}, "content"))


def test_invalid_stored_transfers_are_refused() -> None:
    for text in ("", "[]", "{}", "7"):
        with pytest.raises(svc_pay.InvalidInput):
            svc_pay.SignedTransfer.from_text(text, DEVNET)


@pytest.mark.parametrize("tip", ["ab", "z" * 64, 7])
def test_the_tip_of_a_proof_is_a_hash(tip: Any) -> None:
    with pytest.raises(svc_pay.InvalidInput, match="tip must be the hash of a block"):
        check_payment_proof(b"{}", ORDER_17, tip=tip)
