"""`svc pay-request` and `svc verify` with a real node, and with one that lies."""

import json
from typing import Any

import pytest

from svcd.chain.params import DEVNET
from svcd.commerce.payment_request import PaymentRequest, PaymentTerms, request_record
from tests.cli.merchant.test_proof import BOB, WHOLE
from tests.cli.terminal import ADDRESS, OTHER, Fixed, Terminal, site_of
from tests.cli.test_chain_commands import rows
from tests.rpc.node import Node

ORDER = ("order-1", OTHER, "2.5")


@pytest.fixture
def paid(node: Node, terminal: Terminal, wallet: Any) -> str:
    """The txid of a pending transfer that pays the order."""
    terminal.ok("node", "faucet", ADDRESS, "10")
    terminal.ok("node", "mine", 1)
    words = ("wallet", "send", OTHER, "2.5", "--reference", "order-1", "--yes", "--json")
    told = terminal.ok(*words, env={"SVC_WALLET_PASSWORD": "Schlüssel für svc"})
    return str(json.loads(told.out)["txid"])


# svc pay-request


def test_a_request_is_printed_with_its_links(node: Node, terminal: Terminal) -> None:
    words = ("pay-request", OTHER, "2.5", "--reference", "order-1", "--label", "Tea & cake", "--confirmations", 3)
    told = rows(terminal.ok(*words).out)
    uri = f"svc:{OTHER}?amount=2.5&ref=order-1&confirmations=3&label=Tea%20%26%20cake"
    assert told == {
        "recipient": OTHER,
        "amount": "2.5 SVC",
        "reference": "order-1",
        "confirmations": "3 required",
        "since height": "0",
        "payment URI": uri,
        "checkout": f"http://127.0.0.1:8645/pay/?reference=order-1&recipient={OTHER}&amount=2.5&confirmations=3"
        "&sinceHeight=0&label=Tea%20%26%20cake",
        "wallet page": told["wallet page"],
        "status": "http://127.0.0.1:8645/rpc/commerce/payment/order-1"
        f"?recipient={OTHER}&amountBaseUnits=250000000&confirmations=3&sinceHeight=0",
    }
    assert told["wallet page"].startswith(f"http://127.0.0.1:8645/wallet/?pay=svc%3A{OTHER}%3Famount")


def test_a_request_as_json_is_the_payment_object(node: Node, terminal: Terminal) -> None:
    payment = json.loads(terminal.ok("pay-request", OTHER, "1", "--json").out)
    assert payment["reference"].startswith("pay_")
    assert (payment["amount"], payment["requiredConfirmations"]) == ("100000000", 12)
    assert "label" not in payment


def test_a_request_that_nobody_can_pay_warns(node: Node, terminal: Terminal) -> None:
    told = terminal.ok("pay-request", OTHER, "0.009", "--json")
    warning = (
        "nobody can pay this now: the recipient has 0 SVC and must have 0.01 SVC after a transfer; request at least"
        " 0.01 SVC, or send coins to the recipient first"
    )
    assert json.loads(told.out)["warning"] == warning
    assert told.err == f"Warning: {warning}.\n"
    terminal.ok("node", "faucet", OTHER, "0.01")
    terminal.ok("node", "mine", 1)
    assert terminal.ok("pay-request", OTHER, "0.009").err == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--reference", "a b"), "reference must be 1 to 64 of the characters"),
        (("--reference", ".."), "reference must not be . or .."),
        (("--label", "x" * 81), "label must be a string of at most 80 characters"),
        (("--label", "a\u202eb"), "label contains U+202E"),
        (("--confirmations", "0"), "must be an integer from 1 to 1000"),
        (("--confirmations", "1001"), "must be an integer from 1 to 1000"),
    ],
)
def test_values_are_validated_before_any_request(terminal: Terminal, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in terminal.misuse("pay-request", OTHER, "1", *words)


LIES = [
    (PaymentTerms("order-1", ADDRESS, 250_000_000), None, f"has '{ADDRESS}' for recipient instead of '{OTHER}'"),
    (PaymentTerms("order-1", OTHER, 250_000_001), None, "has '250000001' for amountBaseUnits instead of '250000000'"),
    (PaymentTerms("order-2", OTHER, 250_000_000), None, "has 'order-2' for reference instead of 'order-1'"),
    (PaymentTerms("order-1", OTHER, 250_000_000, 1), None, "has 1 for confirmations instead of 12"),
    (PaymentTerms("order-1", OTHER, 250_000_000), "Cake", "has 'Cake' for label instead of 'Tea'"),
]


@pytest.mark.parametrize(("terms", "label", "sentence"), LIES)
def test_a_request_with_another_uri_is_rejected(
    terminal: Terminal, terms: PaymentTerms, label: str | None, sentence: str
) -> None:
    record = request_record(DEVNET, PaymentRequest(terms, label or "Tea"), tip_height=0)
    answer = json.dumps({"ok": True, "payment": record}).encode()
    terminal.public.site = site_of(Fixed((200, answer)), terminal.clock)
    told = terminal.failure("pay-request", OTHER, "2.5", "--reference", "order-1", "--label", "Tea")
    assert told.startswith("the node does not answer as svcd does: its payment URI ")
    assert sentence in told


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"networkId": 9}, "payment is on network 9, which svc does not know"),
        ({"networkId": 1}, "its payment URI is invalid: recipient must be an address of this network"),
        ({"paymentUri": "svc:"}, "its payment URI is invalid"),
        ({"paymentUri": None}, "payment.paymentUri must be a string"),
        ({"checkoutPath": f"/pay/?reference=order-1&recipient={ADDRESS}&amount=2.5"}, "payment.checkoutPath is not "),
    ],
)
def test_an_invalid_request_is_rejected(terminal: Terminal, changes: dict[str, object], sentence: str) -> None:
    record = request_record(DEVNET, PaymentRequest(PaymentTerms("order-1", OTHER, 250_000_000)), tip_height=0)
    answer = json.dumps({"ok": True, "payment": record | changes}).encode()
    terminal.public.site = site_of(Fixed((200, answer)), terminal.clock)
    assert sentence in terminal.failure("pay-request", OTHER, "2.5", "--reference", "order-1")


# svc verify


def test_an_unpaid_order(node: Node, terminal: Terminal) -> None:
    assert rows(terminal.ok("verify", *ORDER).out) == {
        "state": "unpaid",
        "confirmations": "0 of 12",
        "recipient": OTHER,
        "amount": "2.5 SVC",
        "reference": "order-1",
        "matches": "0 transfers",
        "tip": f"0, {DEVNET.genesis_hash.hex()}",
    }


def test_a_payment_from_pending_to_confirmed(node: Node, terminal: Terminal, paid: str) -> None:
    told = rows(terminal.ok("verify", *ORDER).out)
    assert (told["state"], told["txid"], told["matches"]) == ("pending", paid, "1 transfer")
    assert "block" not in told

    terminal.ok("node", "mine", 2)
    told = rows(terminal.ok("verify", *ORDER).out)
    assert (told["state"], told["confirmations"], told["txid"]) == ("confirming", "2 of 12", paid)
    assert told["block"].startswith("2, ")
    assert told["block time"] == "2026-11-01 00:00:04 UTC"

    told = rows(terminal.ok("verify", *ORDER, "--confirmations", 2).out)
    assert (told["state"], told["confirmations"]) == ("confirmed", "2 of 2")


def test_waiting_ends_when_the_payment_has_its_confirmations(node: Node, terminal: Terminal, paid: str) -> None:
    began = terminal.clock.seconds()
    terminal.clock.callLater(45, terminal.ok, "node", "mine", 1)
    terminal.clock.callLater(50, terminal.ok, "node", "mine", 1)
    told = terminal.ok("verify", *ORDER, "--confirmations", 2, "--wait")
    assert rows(told.out)["confirmations"] == "2 of 2"
    assert [line.partition("UTC  ")[2] for line in told.err.splitlines()] == [
        "pending, confirmations 0 of 2",
        "confirming, confirmations 1 of 2",
    ]
    assert terminal.clock.seconds() - began < 55
    terminal.ok("node", "mine", 7)
    assert rows(terminal.ok("verify", *ORDER, "--confirmations", 2, "--wait").out)["confirmations"] == "9 (2 required)"


def test_waiting_ends_with_its_time(node: Node, terminal: Terminal, paid: str) -> None:
    began = terminal.clock.seconds()
    result = terminal.invoke("verify", *ORDER, "--wait", "--seconds", 65, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["state"] == "pending"
    assert result.stderr.splitlines()[-1] == "Error: the payment is not confirmed after 65 s: it is pending"
    assert 65 <= terminal.clock.seconds() - began < 70


@pytest.mark.parametrize(("status", "seconds"), [(404, 0), (503, 55)])
def test_waiting_asks_again_unless_the_node_refuses_for_good(
    node: Node, terminal: Terminal, paid: str, status: int, seconds: int
) -> None:
    def away() -> None:
        terminal.public.site = site_of(Fixed((status, b'{"ok":false,"error":"away"}')), terminal.clock)

    terminal.clock.callLater(1, away)
    began = terminal.clock.seconds()
    assert terminal.failure("verify", *ORDER, "--wait", "--seconds", 60) == "away"
    assert seconds <= terminal.clock.seconds() - began < seconds + 30


def test_an_old_payment_is_ignored_with_since_height(node: Node, terminal: Terminal, paid: str) -> None:
    terminal.ok("node", "mine", 1)
    told = rows(terminal.ok("verify", *ORDER, "--since-height", 3).out)
    assert (told["state"], told["since height"]) == ("unpaid", "3")
    assert rows(terminal.ok("verify", *ORDER, "--since-height", 2).out)["state"] == "confirming"


def test_payments_of_another_amount_are_shown(node: Node, terminal: Terminal, paid: str) -> None:
    terminal.ok("node", "mine", 1)
    text = terminal.ok("verify", "order-1", OTHER, "2.4").out
    assert text.splitlines()[-3:] == [
        "",
        "  another amount: 2.5 SVC, which does not pay this order",
        f"    {paid}, 1 confirmation",
    ]


def test_the_result_as_json_is_the_payment_object(node: Node, terminal: Terminal, paid: str) -> None:
    payment = json.loads(terminal.ok("verify", *ORDER, "--json").out)
    assert (payment["state"], payment["txid"], payment["hardFinality"]) == ("pending", paid, False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "REFERENCE, RECIPIENT and AMOUNT are needed to ask a node"),
        (("order-1", OTHER), "REFERENCE, RECIPIENT and AMOUNT are needed to ask a node"),
        ((*ORDER, "--tip", "ab" * 32), "--tip is for a proof; give it together with --proof"),
        ((*ORDER, "--wait", "--trustless"), "--wait asks a node that is trusted; leave out --trustless and --proof"),
        ((*ORDER, "--seconds", "5"), "--seconds is for --wait; give both"),
        (("order-1", "--proof", "proof.json"), "give REFERENCE, RECIPIENT and AMOUNT, or none of them"),
        (
            ("--proof", "proof.json", "--confirmations", "12"),
            "--confirmations and --since-height need REFERENCE, RECIPIENT and AMOUNT",
        ),
        (
            ("--proof", "proof.json", "--since-height", "0"),
            "--confirmations and --since-height need REFERENCE, RECIPIENT and AMOUNT",
        ),
        ((*ORDER, "--since-height", "-1"), "must be an integer from 0 to"),
        (("..", OTHER, "1"), "reference must not be . or .."),
    ],
)
def test_a_wrong_call(terminal: Terminal, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in terminal.misuse("verify", *words)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"reference": "order-2"}, "payment.reference is not 'order-1', which was requested"),
        ({"recipient": ADDRESS}, f"payment.recipient is not '{OTHER}', which was requested"),
        ({"amount": "1"}, "payment.amount is not '250000000', which was requested"),
        ({"requiredConfirmations": 1}, "payment.requiredConfirmations is not 12, which was requested"),
        ({"sinceHeight": None}, "payment.sinceHeight is not '5', which was requested"),
    ],
)
def test_a_response_for_other_terms_is_rejected(
    node: Node, terminal: Terminal, changes: dict[str, object], sentence: str
) -> None:
    words = ("verify", *ORDER, "--since-height", 5)
    honest = json.loads(terminal.ok(*words, "--json").out)
    answer = json.dumps({"ok": True, "payment": honest | changes}).encode()
    terminal.public.site = site_of(Fixed((200, answer)), terminal.clock)
    assert terminal.failure(*words) == f"the node does not answer as svcd does: {sentence}"


@pytest.mark.parametrize("terms", [("order-1", BOB, "0.05", "--confirmations", 4), ()], ids=["all", "none"])
def test_a_proof_is_checked_without_a_node(terminal: Terminal, terms: tuple[str, ...]) -> None:
    (terminal.folder / "proof.json").write_bytes(WHOLE)
    told = rows(terminal.ok("verify", *terms, "--proof", "proof.json").out)
    assert (told["reference"], told["confirmations"]) == ("order-1", "4")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("order-2", BOB, "0.05"), "the transfer in the proof has the reference order-1, not order-2"),
        (("order-1", BOB, "0.05"), "the proof shows 4 confirmations and 12 are required"),
        (("order-1", BOB, "0.05", "--since-height", 3), "only block 3 and later ones count"),
    ],
)
def test_a_proof_of_another_payment_fails(terminal: Terminal, words: tuple[Any, ...], sentence: str) -> None:
    (terminal.folder / "proof.json").write_bytes(WHOLE)
    assert sentence in terminal.failure("verify", *words, "--proof", "proof.json")


# svc confirmations


def test_confirmations_for_an_amount(node: Node, terminal: Terminal) -> None:
    terminal.ok("node", "faucet", ADDRESS, "10")
    terminal.ok("node", "mine", 3)
    told = rows(terminal.ok("confirmations", "250", "--coin-price", "0.5").out)
    assert told["confirmations"].startswith("1000 (the most")
    assert told["amount"] == "250 SVC, worth 125"
    assert told["core"] == "138 hashes a second"
    few = json.loads(terminal.ok("confirmations", "0.00000001", "--hash-price", "0.02", "--json").out)
    hashes = int(few["hashesPerBlock"])
    assert few == {
        "confirmations": 12,
        "capped": False,
        "amount": "1",
        "amountSvc": "0.00000001",
        "coinPrice": "1",
        "hashPrice": "0.02",
        "costToUndo": f"{12 * hashes * 2 * 10**6 // 496_800 / 10**8:.8f}".rstrip("0"),
        "hashesPerBlock": str(hashes),
        "hashesPerSecond": few["hashesPerSecond"],
        "hashesPerCoreSecond": 138,
        "blocks": 3,
    }


@pytest.mark.parametrize("words", [("0",), ("1", "--coin-price", "0"), ("1", "--hash-price", "cheap")])
def test_prices_and_amounts_must_be_more_than_nothing(terminal: Terminal, words: tuple[str, ...]) -> None:
    result = terminal.invoke("confirmations", *words)
    assert result.exit_code == 2
    assert "must be" in result.stderr


def test_a_price_that_is_too_high_is_answered_with_the_highest(terminal: Terminal) -> None:
    result = terminal.invoke("confirmations", "1", "--coin-price", "90071992.54740992")
    assert result.exit_code == 2
    assert "at most 90071992.54740991" in result.stderr


# A node that keeps only the newest blocks


def test_a_payment_below_the_blocks_of_the_node_is_not_called_unpaid(node: Node, terminal: Terminal, paid: str) -> None:
    terminal.ok("node", "mine", 5)
    node.keep_from(4)
    here = "this node has only blocks from height 4 on; "
    for words in ((), ("--json",), ("--since-height", 3), ("--trustless",)):
        told = terminal.failure("verify", *ORDER, *words)
        assert "order-1" in told
        assert here in told
    assert rows(terminal.ok("verify", *ORDER, "--since-height", 4).out)["state"] == "unpaid"
