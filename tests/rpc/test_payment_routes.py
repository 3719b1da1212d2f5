"""The routes for merchants: requests, verification and every near miss (docs/payments.md)."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlencode

import pytest
from attrs import evolve

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.params import MAINNET
from svcd.chain.transaction import Transfer
from svcd.commerce.payment_request import parse_uri
from svcd.rpc.sites import PublicSite
from svcd.web.rate_limits import Clients, RateLimiter
from svcd.web.routes import Guard, Route
from tests.chains import COIN, address_of
from tests.rpc.conftest import public_client, published
from tests.rpc.node import COMMON, PARAMS, UNLIMITED, Client, Node
from tests.submitting import submitted

BOB = address_of("bob", "svcd")
REQUEST = "/rpc/commerce/payment-request"


def target(reference: str = "order-1", **query: object) -> str:
    """Where to ask about 5000 base units for bob, or what else the query says."""
    values = {"recipient": BOB, "amountBaseUnits": 5000, **query}
    pairs = {name: value for name, value in values.items() if value is not None}
    return f"/rpc/commerce/payment/{reference}?{urlencode(pairs)}"


def verify(client: Client, reference: str = "order-1", **query: object) -> Any:
    """What the node says of that payment."""
    return client.ok(target(reference, **query))["payment"]


def send(node: Node, transfer: Transfer) -> str:
    """Let a transfer wait; gives its txid."""
    submitted(node.node_context.transaction_pool, transfer, node.clock)
    return transfer.txid.hex()


def pay(node: Node, amount: int = 5000, reference: str | None = "order-1", recipient: str = "bob") -> str:
    """Let a transfer of alice wait; gives its txid."""
    return send(node, node.builder.transfer("alice", recipient, amount, reference=reference))


# GET /rpc/commerce/info and /rpc/commerce/catalog


def test_info(still: Client) -> None:
    assert still.ok("/rpc/commerce/info") == {
        "commerce": {
            "protocol": "SVC-PAY",
            "version": 1,
            "networkId": 3,
            "chainId": "SVC-TEST",
            "genesisHash": PARAMS.genesis_hash.hex(),
            "description": "Experimental, no hard finality: a reorganisation can undo any payment, "
            "even one that is confirmed.",
            "defaultConfirmations": 12,
            "highValueConfirmations": 30,
            "hardFinality": False,
            "settlementModel": "canonical-chain-depth",
            "webhooksEnabled": False,
        }
    }


def test_catalog_has_every_route_for_merchants_as_it_is_described(still: Client) -> None:
    described = json.loads(still.get("/rpc/openapi.json").body)["paths"]
    catalog = still.ok("/rpc/commerce/catalog")["catalog"]
    assert {(each["method"], each["path"]) for each in catalog} == {
        (method.upper(), path)
        for path, methods in described.items()
        for method in methods.keys() & {"get", "post"}
        if path.startswith("/rpc/commerce/")
    }
    for each in catalog:
        operation = described[each["path"]][each["method"].lower()]
        assert each["description"] == operation["summary"]
        assert (each["authentication"] == "bearer") == bool(operation["security"])


class Guarded:
    """A route for merchants with a token, and one that is for nobody in particular."""

    @Route(
        "POST",
        "/rpc/commerce/guarded",
        "Guarded",
        bucket="read",
        answers={200: {"type": "object"}},
        guards=(Guard(401, "No token.", lambda owner, request: None, scheme="bearer"),),
    )
    def guarded(self) -> dict[str, object]:
        return {}

    @Route("GET", "/rpc/other", "Another", bucket="read", answers={200: {"type": "object"}})
    def other(self) -> dict[str, object]:
        return {}


def test_catalog_says_what_needs_a_token(node: Node) -> None:
    public = PublicSite(COMMON, RateLimiter(Clients(), UNLIMITED, node.clock))
    site = node.sites.public([Guarded()], public)
    catalog = Client(site, published(site), node.clock, "203.0.113.9").ok("/rpc/commerce/catalog")["catalog"]
    assert [tuple(each.values()) for each in catalog] == [
        ("POST", "/rpc/commerce/guarded", "Guarded", "bearer"),
        ("GET", "/rpc/commerce/catalog", "This list of the routes for merchants", "none"),
    ]


# POST /rpc/commerce/payment-request


def test_request_with_everything(still: Client) -> None:
    body = {"recipient": BOB, "amount": "25", "reference": "order-1042", "label": "Tea & cake", "confirmations": 30}
    payment = still.ok(REQUEST, body)["payment"]
    uri = f"svc:{BOB}?amount=25&ref=order-1042&confirmations=30&label=Tea%20%26%20cake"
    assert payment == {
        "protocol": "SVC-PAY",
        "version": 1,
        "networkId": 3,
        "recipient": BOB,
        "amount": "2500000000",
        "amountSvc": "25",
        "reference": "order-1042",
        "label": "Tea & cake",
        "requiredConfirmations": 30,
        "paymentUri": uri,
        "walletPath": payment["walletPath"],
        "checkoutPath": f"/pay/?reference=order-1042&recipient={BOB}&amount=25&confirmations=30&sinceHeight=0"
        "&label=Tea%20%26%20cake",
        "statusPath": f"/rpc/commerce/payment/order-1042?recipient={BOB}&amountBaseUnits=2500000000&confirmations=30"
        "&sinceHeight=0",
        "sinceHeight": "0",
    }
    assert payment["walletPath"].startswith("/wallet/?pay=svc%3A")
    assert unquote(payment["walletPath"].removeprefix("/wallet/?pay=")) == uri
    assert parse_uri(uri, PARAMS).label == "Tea & cake"


def test_request_with_the_least(still: Client) -> None:
    payment = still.ok(REQUEST, {"recipient": BOB, "amountBaseUnits": "007"})["payment"]
    assert (payment["amount"], payment["amountSvc"], payment["requiredConfirmations"]) == ("7", "0.00000007", 12)
    assert payment["reference"] == "pay_" + "a" * 26
    assert "label" not in payment
    assert payment["paymentUri"].endswith(f"&ref=pay_{'a' * 26}&confirmations=12")


def test_a_request_that_nobody_can_pay_warns(open_node: Callable[..., Node]) -> None:
    client = public_client(open_node(params=evolve(PARAMS, account_minimum=1_000_000)))
    new = {"recipient": address_of("zoe", "svcd"), "amount": "0.009"}
    assert client.ok(REQUEST, new)["payment"]["warning"] == (
        "nobody can pay this now: the recipient has 0 SVC and must have 0.01 SVC after a transfer; request at least"
        " 0.01 SVC, or send coins to the recipient first"
    )
    for payable in ({**new, "amount": "0.01"}, {**new, "recipient": BOB}):
        assert "warning" not in client.ok(REQUEST, payable)["payment"]


def test_status_path_of_a_request_leads_to_its_payment(still: Client) -> None:
    body = {"recipient": BOB, "amount": "0.5", "reference": "a:b_c.d-e", "confirmations": 2}
    payment = still.ok(REQUEST, body)["payment"]
    status = still.ok(payment["statusPath"])["payment"]
    for name in ("recipient", "amount", "amountSvc", "reference", "requiredConfirmations"):
        assert status[name] == payment[name]
    assert status["state"] == "unpaid"


def test_an_empty_label_is_none(still: Client) -> None:
    assert "label" not in still.ok(REQUEST, {"recipient": BOB, "amount": "1", "label": ""})["payment"]


def test_height_from_which_a_new_order_is_paid(node: Node, client: Client) -> None:
    node.grow("genesis: b[1..103]")
    payment = client.ok(REQUEST, {"recipient": BOB, "amount": "1"})["payment"]
    assert payment["sinceHeight"] == "3"
    for path in ("checkoutPath", "statusPath"):
        assert payment[path].endswith("&sinceHeight=3")


NO_REFERENCE = "reference must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -, such as order-1042"
NO_DEPTH = "confirmations: must be a whole number from 1 to 1000"
NO_DECIMAL = 'amount must be a decimal such as "25" or "0.5", at most 8 decimal places'
NO_ADDRESS = "recipient must be an address of this network: 44 characters that begin with svcd1q"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"amount": None}, "give exactly one of amount and amountBaseUnits"),
        ({"amountBaseUnits": "100"}, "give exactly one of amount and amountBaseUnits"),
        ({"amount": "1e3"}, NO_DECIMAL),
        ({"amount": "0.123456789"}, NO_DECIMAL),
        ({"amount": 25}, 'amount must be a string: put it in quotes, as in "25" or "0.5"'),
        ({"amount": "0"}, f"amount must be more than 0 and at most {MAX_INTEGER} base units"),
        ({"amount": "90071992.54740992"}, f"amount must be more than 0 and at most {MAX_INTEGER} base units"),
        (
            {"amount": None, "amountBaseUnits": 5},
            'amountBaseUnits must be a string of digits such as "2500000000"',
        ),
        ({"recipient": None}, "recipient is missing: The address to be paid."),
        ({"recipient": address_of("bob", "svc")}, NO_ADDRESS),
        ({"recipient": BOB.upper()}, "recipient must be in lower case: it begins with svcd1q"),
        ({"recipient": BOB[:-1] + "q"}, "recipient has a wrong checksum; copy the address again"),
        ({"reference": ""}, NO_REFERENCE),
        ({"reference": "a b"}, NO_REFERENCE),
        ({"reference": "x" * 65}, NO_REFERENCE),
        ({"reference": ".."}, "reference must not be . or .., which URLs drop; add a letter"),
        ({"confirmations": 0}, NO_DEPTH),
        ({"confirmations": 1001}, NO_DEPTH),
        ({"confirmations": "12"}, NO_DEPTH),
        ({"confirmations": True}, NO_DEPTH),
        ({"label": "x" * 81}, "label must be a string of at most 80 characters"),
        (
            {"label": "a\u202eb"},
            "label contains U+202E; control characters and those that change the direction of text are not allowed",
        ),
        (
            {"confirmation": 30},
            "unknown field 'confirmation' in the body; the known ones are "
            "recipient, amount, amountBaseUnits, reference, label, confirmations",
        ),
    ],
)
def test_request_that_is_refused(still: Client, changes: dict[str, Any], sentence: str) -> None:
    body = {"recipient": BOB, "amount": "25", "reference": "order-1"} | changes
    assert still.refusal(REQUEST, {name: value for name, value in body.items() if value is not None}) == sentence


# GET /rpc/commerce/payment/{reference}: the states


def test_unpaid(still: Client, still_node: Node) -> None:
    assert verify(still) == {
        "state": "unpaid",
        "canonical": False,
        "recipient": BOB,
        "amount": "5000",
        "amountSvc": "0.00005",
        "reference": "order-1",
        "confirmations": 0,
        "requiredConfirmations": 12,
        "hardFinality": False,
        "settlementModel": "canonical-chain-depth",
        "matchCount": 0,
        "mismatches": [],
        "tip": {"height": "0", "hash": still_node.params.genesis_hash.hex()},
        "node": {"height": "0", "hash": still_node.params.genesis_hash.hex(), "synced": True},
    }


def test_a_payment_from_pending_to_confirmed(node: Node, client: Client) -> None:
    (b1,) = node.grow("genesis: b1").values()
    transfer = node.builder.transfer("alice", "bob", 5000, reference="order-1")
    txid = send(node, transfer)
    waiting = verify(client, confirmations=2)
    assert (waiting["state"], waiting["canonical"], waiting["confirmations"]) == ("pending", False, 0)
    assert (waiting["txid"], waiting["matchCount"]) == (txid, 1)
    assert waiting.keys().isdisjoint({"blockHash", "blockHeight", "blockTime", "sinceHeight"})

    b2 = node.builder.block(b1, transfers=[transfer])
    node.take(b2)
    seen = verify(client, confirmations=2)
    assert (seen["state"], seen["canonical"], seen["confirmations"]) == ("confirming", True, 1)
    assert (seen["txid"], seen["matchCount"]) == (txid, 1)
    assert (seen["blockHash"], seen["blockHeight"]) == (b2.header.hash.hex(), "2")
    assert seen["blockTime"] == str(PARAMS.slot_time(b2.header.slot))
    assert seen["tip"] == {"height": "2", "hash": b2.header.hash.hex()}

    b3 = node.builder.block(b2)
    node.take(b3)
    settled = verify(client, confirmations=2)
    assert seen.pop("work")["workConfirmations"] == "1.00"
    assert int(settled.pop("work")["hashesToUndo"]) > 0
    assert settled == seen | {
        "state": "confirmed",
        "confirmations": 2,
        "tip": {"height": "3", "hash": b3.header.hash.hex()},
        "node": {"height": "3", "hash": b3.header.hash.hex(), "synced": True},
    }
    assert verify(client, confirmations=3)["state"] == "confirming"
    assert verify(client, confirmations=1)["state"] == "confirmed"
    assert verify(client)["requiredConfirmations"] == 12


def test_amount_may_be_given_in_coins(node: Node, client: Client) -> None:
    node.grow(f"genesis: b1\nb1 pays {COIN // 2} from alice to bob for order-1")
    by_coins = verify(client, amountBaseUnits=None, amount="0.50")
    assert by_coins == verify(client, amountBaseUnits="0050000000")
    assert (by_coins["canonical"], by_coins["amount"], by_coins["amountSvc"]) == (True, "50000000", "0.5")


# Near misses


@pytest.mark.parametrize(
    "asked",
    [
        {"recipient": address_of("carol", "svcd")},
        {"reference": "Order-1"},
        {"reference": "order-10"},
        {"reference": "order-"},
    ],
)
@pytest.mark.parametrize("confirmed", [False, True])
def test_another_recipient_or_reference_is_another_order(
    node: Node, client: Client, asked: dict[str, str], *, confirmed: bool
) -> None:
    transfer = node.builder.transfer("alice", "bob", 5000, reference="order-1")
    if confirmed:
        node.take(node.builder.block(None, transfers=[transfer]))
    else:
        send(node, transfer)
    payment = verify(client, **asked)
    assert (payment["state"], payment["matchCount"], payment["mismatches"]) == ("unpaid", 0, [])
    assert verify(client)["state"] == ("confirming" if confirmed else "pending")


@pytest.mark.parametrize("paid", [4999, 5001])
def test_one_base_unit_more_or_less_is_no_payment_but_is_shown(node: Node, client: Client, paid: int) -> None:
    transfer = node.builder.transfer("alice", "bob", paid, reference="order-1")
    txid = send(node, transfer)
    shown = {"txid": txid, "amount": str(paid), "amountSvc": f"0.0000{paid}", "confirmations": 0}
    waiting = verify(client)
    assert (waiting["state"], waiting["matchCount"], waiting["mismatches"]) == ("unpaid", 0, [shown])

    node.take(node.builder.block(None, transfers=[transfer]))
    settled = verify(client, confirmations=1)
    assert (settled["state"], settled["canonical"]) == ("unpaid", False)
    assert settled["mismatches"] == [shown | {"confirmations": 1}]


def test_a_transfer_without_a_reference_pays_no_order(node: Node, client: Client) -> None:
    node.grow("genesis: b1\nb1 pays 5000 from alice to bob")
    pay(node, reference=None)
    payment = verify(client)
    assert (payment["state"], payment["mismatches"]) == ("unpaid", [])


# Several payments, and old ones


TWICE = """
genesis: b[1..4]
b2 pays 5000 from alice to bob for order-1
b4 pays 5000 from carol to bob for order-1
"""


def test_a_reused_reference_passes_no_old_payment_off_as_new(node: Node, client: Client) -> None:
    blocks = node.grow(TWICE)
    new = blocks["b4"].transfers[0].txid.hex()
    for since in (3, 4):
        payment = verify(client, sinceHeight=since)
        assert (payment["txid"], payment["matchCount"], payment["sinceHeight"]) == (new, 1, str(since))
    assert verify(client, sinceHeight=2)["matchCount"] == 2
    nothing = verify(client, sinceHeight=5)
    assert (nothing["state"], nothing["matchCount"]) == ("unpaid", 0)

    send(node, node.builder.transfer("bob", "bob", 5000, reference="order-1"))
    assert verify(client, sinceHeight=5)["state"] == "pending"


def test_an_old_wrong_amount_is_not_shown_either(node: Node, client: Client) -> None:
    node.grow(TWICE)
    assert len(verify(client, amountBaseUnits=4999)["mismatches"]) == 2
    assert len(verify(client, amountBaseUnits=4999, sinceHeight=3)["mismatches"]) == 1


# Branches


FORK = """
genesis: b[1..3]
b2 pays 5000 from alice to bob for order-1
b1: c[2..5]
"""


def test_a_payment_that_a_reorganisation_puts_out_is_pending_again(node: Node, client: Client) -> None:
    blocks = node.builder.chain(FORK)
    node.take(*(blocks[name] for name in ("b1", "b2", "b3")))
    before = verify(client, confirmations=2)
    assert before["state"] == "confirmed"

    node.take(*(blocks[name] for name in ("c2", "c3", "c4", "c5")))
    for _ in range(10):
        node.clock.advance(0)
    after = verify(client, confirmations=2)
    assert (after["state"], after["canonical"], after["confirmations"]) == ("pending", False, 0)
    assert after["txid"] == before["txid"]
    assert after["tip"]["hash"] == blocks["c5"].header.hash.hex()


def test_a_payment_that_moves_to_another_block_is_reported_there(node: Node, client: Client) -> None:
    blocks = node.builder.chain(f"{FORK}\nc4 pays 5000 from alice to bob for order-1")
    node.take(*(blocks[name] for name in ("b1", "b2", "b3")))
    assert verify(client)["blockHeight"] == "2"
    node.take(*(blocks[name] for name in ("c2", "c3", "c4", "c5")))
    payment = verify(client)
    assert (payment["blockHeight"], payment["confirmations"], payment["matchCount"]) == ("4", 2, 1)
    assert payment["blockHash"] == blocks["c4"].header.hash.hex()


# What the question may look like


def test_reference_in_the_path_is_decoded_once(node: Node, client: Client) -> None:
    node.grow("genesis: b1\nb1 pays 5000 from alice to bob for a:b")
    assert verify(client, "a:b")["canonical"] is True
    assert verify(client, "a%3Ab")["canonical"] is True
    assert client.refusal(target("a%253Ab")) == NO_REFERENCE


@pytest.mark.parametrize("reference", ["a%20b", "a+b", "%C3%A9", "x" * 65, "a%00", "%25"])
def test_reference_that_no_transfer_can_have(still: Client, reference: str) -> None:
    assert still.refusal(target(reference)) == NO_REFERENCE


@pytest.mark.parametrize("reference", [".", "..", "%2E", "%2e%2E"])
def test_reference_that_urls_swallow(still: Client, reference: str) -> None:
    assert still.refusal(target(reference)) == "reference must not be . or .., which URLs drop; add a letter"


def test_a_path_without_a_reference_is_none(still: Client) -> None:
    assert still.get("/rpc/commerce/payment/?x=1").status == 404
    assert still.get("/rpc/commerce/payment").status == 404


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"amountBaseUnits": None}, "give exactly one of amount and amountBaseUnits"),
        (
            {"amountBaseUnits": None, "amuont": 5, "more": 1},
            "give exactly one of amount and amountBaseUnits; 'amuont' in the query is unknown here",
        ),
        ({"amount": "0.00005"}, "give exactly one of amount and amountBaseUnits"),
        ({"amountBaseUnits": None, "amount": "5,0"}, NO_DECIMAL),
        ({"amountBaseUnits": "-1"}, 'amountBaseUnits must be a string of digits such as "2500000000"'),
        ({"amountBaseUnits": "0"}, f"amountBaseUnits must be more than 0 and at most {MAX_INTEGER} base units"),
        ({"recipient": None}, "recipient is missing: The address to be paid."),
        (
            {"recipient": None, "recipent": BOB},
            "recipient is missing: The address to be paid; 'recipent' in the query is unknown here",
        ),
        ({"recipient": address_of("bob", "svc")}, NO_ADDRESS),
        ({"confirmations": 0}, NO_DEPTH),
        ({"confirmations": "012"}, NO_DEPTH),
        ({"confirmations": ""}, NO_DEPTH),
        (
            {"sinceHeight": "-1"},
            f'sinceHeight must be a decimal string without leading zeros, from "0" to "{MAX_INTEGER}"',
        ),
    ],
)
def test_question_that_is_refused(still: Client, query: dict[str, object], sentence: str) -> None:
    assert still.refusal(target(**query)) == sentence


def test_a_name_that_is_given_twice_is_refused(still: Client) -> None:
    assert still.refusal(target() + "&amountBaseUnits=1") == (
        "amountBaseUnits occurs more than once in the query; give it once"
    )


def test_addresses_are_those_of_the_network(open_node: Callable[..., Node]) -> None:
    client = public_client(open_node(params=MAINNET))
    mine = address_of("bob", "svc")
    assert verify(client, recipient=mine)["recipient"] == mine
    uri = client.ok(REQUEST, {"recipient": mine, "amount": "25", "reference": "A"})["payment"]["paymentUri"]
    assert uri == f"svc:{mine}?amount=25&ref=A&confirmations=12"
    assert client.refusal(target()).startswith("recipient must be an address of this network: 43 characters")
