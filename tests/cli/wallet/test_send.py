"""`svc wallet send` and `pay` with a real node: whatever is repeated, nothing is paid twice."""

import json
import stat
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from svcd.chain.params import DEVNET, FAUCET_SEED, MAINNET
from svcd.chain.transaction import Draft, parse_transfer, sign_transfer
from svcd.chain.units import format_coins
from svcd.cli.wallet.pending import NodeAnswer, PendingFile, reconcile
from svcd.cli.wallet.preflight import AccountView
from svcd.commerce.payment_request import PaymentRequest, PaymentTerms, format_uri
from tests.chains import COIN, address_of
from tests.cli.conftest import START_SLOT
from tests.cli.terminal import ADDRESS, OTHER, PASSWORD, SEED, Fixed, Terminal, site_of
from tests.rpc.node import Node, Settings
from tests.submitting import submitted

KNOWN = {"SVC_WALLET_PASSWORD": PASSWORD}
URI = format_uri(PaymentRequest(PaymentTerms("order-17", OTHER, 2 * COIN, 12), "Tea & cake"))
PAY = ("wallet", "pay", URI)
SEND = ("wallet", "send", OTHER, 1, "--reference", "order-18")


def waiting(node: Node) -> list[str]:
    return [entry.transfer.txid.hex() for entry in node.node_context.transaction_pool.mempool.entries()]


def outbox(terminal: Terminal) -> PendingFile:
    return PendingFile(terminal.folder / "wallet.json", DEVNET)


# send


def test_send_shows_confirms_signs_and_broadcasts(rich: Node, terminal: Terminal) -> None:
    told = terminal.ok("wallet", "send", OTHER, "2.5", "--reference", "order-17", typed=f"y\n{PASSWORD}\n")
    shown = [line.split(maxsplit=1) for line in told.err.splitlines()]
    for row in (
        ["from", ADDRESS],
        ["recipient", OTHER],
        ["amount", "2.5 SVC"],
        ["reference", "order-17"],
        ["fee", "0.0001 SVC"],
        ["total", "2.5001 SVC"],
        ["balance", "after  7.4999 SVC"],
    ):
        assert row in shown
    txid = told.out.split()[1]
    terminal.ok("node", "mine", 1)
    record = json.loads(terminal.ok("tx", txid, "--json").out)
    assert record["payload"] == {"amount": "250000000", "paymentReference": "order-17", "recipient": OTHER}
    assert record["timestamp"] == str(int(terminal.clock.seconds() * 1000))


def test_send_as_json(rich: Node, terminal: Terminal) -> None:
    sent = json.loads(terminal.ok("wallet", "send", OTHER, 1, "--yes", "--json", env=KNOWN).out)
    assert sent.pop("txid") in {
        entry.transfer.txid.hex() for entry in rich.node_context.transaction_pool.mempool.entries()
    }
    assert sent == {
        "state": "accepted",
        "sender": ADDRESS,
        "recipient": OTHER,
        "amount": "100000000",
        "fee": "10000",
        "nonce": "0",
    }


def test_a_second_transfer_takes_the_next_nonce(rich: Node, terminal: Terminal) -> None:
    for amount, nonce in ((1, "0"), (2, "1")):
        sent = json.loads(terminal.ok("wallet", "send", OTHER, amount, "--yes", "--json", env=KNOWN).out)
        assert sent["nonce"] == nonce


def test_fee_and_nonce_can_be_given(rich: Node, terminal: Terminal) -> None:
    words = ("wallet", "send", OTHER, 1, "--fee", "0.5", "--nonce", 3, "--yes", "--json")
    sent = json.loads(terminal.ok(*words, env=KNOWN).out)
    assert (sent["fee"], sent["nonce"]) == ("50000000", "3")


def test_the_most_that_a_replacement_is_said_to_send_is_what_the_node_takes(rich: Node, terminal: Terminal) -> None:
    for amount in (1, 2):
        terminal.ok("wallet", "send", OTHER, amount, "--yes", env=KNOWN)
    replacing = ("--fee", "0.5", "--nonce", 0, "--yes")
    refused = terminal.failure("wallet", "send", OTHER, 1_000_000, *replacing, env=KNOWN)
    most = refused.rpartition("you can send at most ")[2].removesuffix(" SVC").replace(",", "")
    terminal.ok("wallet", "send", OTHER, most, *replacing, env=KNOWN)
    more = str(Decimal(most) + Decimal("0.00000001"))
    assert "you can send at most" in terminal.failure("wallet", "send", OTHER, more, *replacing, env=KNOWN)


def test_a_full_mempool_raises_the_fee_that_is_not_given(rich: Node, terminal: Terminal) -> None:
    pool = rich.node_context.transaction_pool
    crowd = {"fee": 30_000, "nonce": 1, "timestamp": int(terminal.clock.seconds() * 1000)}
    draft = Draft(recipient=OTHER, amount=DEVNET.account_minimum, **crowd)
    submitted(pool, sign_transfer(draft, seed=FAUCET_SEED, params=DEVNET), terminal.clock)
    pool.mempool.max_transactions = 1
    told = terminal.ok("wallet", "send", OTHER, 1, "--json", typed="y\n", env=KNOWN)
    fee = int(json.loads(told.out)["fee"])
    assert 30_000 < fee < 60_000
    assert f"fee            {format_coins(fee, 'SVC')}" in told.err
    assert "Warning: the node suggests this fee, which is above the minimum of 0.0001 SVC." in told.err
    assert len(pool.mempool) == 1


def test_a_given_fee_is_not_changed_and_not_asked_for(terminal: Terminal, wallet: Path) -> None:
    resource = canned(fees={"suggestedFee": "20000"})
    terminal.public.site = site_of(resource, terminal.clock)
    terminal.invoke("wallet", "send", OTHER, 1, "--fee", "0.00015", "--yes", env=KNOWN)
    assert json.loads(resource.seen[-1][1])["transaction"]["fee"] == "15000"
    assert b"/rpc/fees" not in [path for path, _ in resource.seen]


@pytest.mark.parametrize(("suggested", "paid"), [("9999", "10000"), ("1000000", "1000000")])
def test_the_suggested_fee_is_paid_within_bounds(terminal: Terminal, wallet: Path, suggested: str, paid: str) -> None:
    resource = canned(fees={"suggestedFee": suggested})
    terminal.public.site = site_of(resource, terminal.clock)
    terminal.invoke("wallet", "send", OTHER, 1, "--yes", env=KNOWN)
    assert json.loads(resource.seen[-1][1])["transaction"]["fee"] == paid


def test_an_unreasonable_suggestion_is_refused(terminal: Terminal, wallet: Path) -> None:
    terminal.public.site = site_of(canned(fees={"suggestedFee": "1000001"}), terminal.clock)
    assert terminal.failure("wallet", "send", OTHER, 1, "--yes", env=KNOWN) == (
        "the node suggests a fee of 0.01000001 SVC, more than the 0.01 SVC that svc pays without asking; give the"
        " fee with --fee"
    )


@pytest.mark.parametrize(
    ("rule", "value", "says"),
    [
        ("accountMinimum", 1, "account minimum is 0.00000001 SVC and not 0.01 SVC"),
        # With a greater minimum a greater fee could be suggested.
        ("minimumFee", 3 * COIN, "minimum fee is 3 SVC and not 0.0001 SVC"),
    ],
)
def test_a_node_with_other_minimums_is_not_trusted(
    terminal: Terminal, wallet: Path, rule: str, value: int, says: str
) -> None:
    resource = canned(fees={"suggestedFee": str(8 * COIN)})
    named = json.loads(resource.by_path["consensus"][1])["consensus"]
    other = {"ok": True, "consensus": {**named, rule: str(value)}}
    resource.by_path["consensus"] = (200, json.dumps(other).encode())
    terminal.public.site = site_of(resource, terminal.clock)
    assert terminal.failure("wallet", "send", OTHER, 1, "--yes", env=KNOWN) == (
        f"the node claims to be on SVC-DEVNET, but its {says}: do not trust it"
    )
    assert all(path != b"/rpc/broadcast" for path, _ in resource.seen)


@pytest.mark.parametrize("typed", ["n\n", "\n"])
def test_nothing_is_signed_without_confirmation(rich: Node, terminal: Terminal, typed: str) -> None:
    sentence = terminal.failure("wallet", "send", OTHER, 1, typed=typed, env=KNOWN)
    assert sentence == "cancelled: nothing was signed and nothing was sent"
    assert len(rich.node_context.transaction_pool.mempool) == 0


def test_end_of_input_is_not_a_confirmation(rich: Node, terminal: Terminal) -> None:
    result = terminal.invoke("wallet", "send", OTHER, 1, env=KNOWN)
    assert result.exit_code == 1
    assert result.stderr.endswith("Aborted!\n")
    assert len(rich.node_context.transaction_pool.mempool) == 0


def test_a_wrong_password_sends_nothing(rich: Node, terminal: Terminal) -> None:
    sentence = terminal.failure("wallet", "send", OTHER, 1, typed="y\nanother password\n")
    assert sentence.startswith("the password does not decrypt the keyfile")
    assert len(rich.node_context.transaction_pool.mempool) == 0


def test_the_password_may_come_from_a_file(rich: Node, terminal: Terminal) -> None:
    secret = terminal.folder / "password"
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    terminal.ok("wallet", "send", OTHER, 1, "--yes", "--password-file", "password")
    assert len(rich.node_context.transaction_pool.mempool) == 1


def test_an_insufficient_balance_is_reported_before_the_confirmation(rich: Node, terminal: Terminal) -> None:
    assert terminal.failure("wallet", "send", OTHER, 10) == (
        "the balance of 10 SVC is 0.0101 SVC too low: the amount is 10 SVC, the fee 0.0001 SVC, and 0.01 SVC"
        " must remain; you can send at most 9.9899 SVC"
    )


def test_all_but_the_account_minimum_can_be_sent(rich: Node, terminal: Terminal) -> None:
    sent = json.loads(terminal.ok("wallet", "send", OTHER, "9.9899", "--yes", "--json", env=KNOWN).out)
    assert (sent["state"], sent["amount"]) == ("accepted", "998990000")


def test_a_new_recipient_must_get_the_account_minimum(rich: Node, terminal: Terminal) -> None:
    new = address_of("zoe", "svcd")
    assert terminal.failure("wallet", "send", new, "0.00999999") == (
        "the recipient has 0 SVC and must have 0.01 SVC after the transfer: send at least 0.01 SVC"
    )
    terminal.ok("wallet", "send", new, "0.01", "--yes", env=KNOWN)
    terminal.ok("node", "mine", 1)
    sent = json.loads(terminal.ok("wallet", "send", new, "0.00000001", "--yes", "--json", env=KNOWN).out)
    assert (sent["state"], sent["amount"]) == ("accepted", "1")


def test_a_rejected_transfer_is_reported_verbatim(rich: Node, terminal: Terminal) -> None:
    sentence = terminal.failure("wallet", "send", OTHER, 1, "--nonce", 17, "--yes", env=KNOWN)
    (kept,) = outbox(terminal).load()
    assert kept.answer is NodeAnswer.REFUSED
    assert sentence == (
        f"nonce 17 is too far ahead; the highest nonce accepted now is 15. The transfer {kept.transfer.txid.hex()} is"
        " kept, because the node may have relayed it anyway: repeat the command to send it again; another payment"
        " gets its nonce, so only one of them can be paid"
    )


def test_a_recipient_of_another_network_is_refused(rich: Node, terminal: Terminal) -> None:
    sentence = terminal.failure("wallet", "send", address_of("alice", "svc"), 1)
    assert sentence == "recipient must be an address of this network: 44 characters that begin with svcd1q"


def test_a_wallet_of_another_network_is_refused(node: Node, terminal: Terminal) -> None:
    terminal.ok("wallet", "new", env=KNOWN)
    assert terminal.failure("wallet", "send", OTHER, 1).startswith(
        "the wallet is for mainnet and the node is on devnet; choose another wallet with --keyfile"
    )


def test_a_node_that_is_catching_up_causes_a_warning(tmp_path: Path, terminal: Terminal, wallet: Path) -> None:
    node = Node(tmp_path / "behind.sqlite", terminal.clock, Settings(params=DEVNET, alone=False))
    terminal.public.site, terminal.operator.site = node.public, node.operator
    terminal.ok("node", "faucet", ADDRESS, 10)
    terminal.ok("node", "mine", 1)
    told = terminal.ok("wallet", "send", OTHER, 1, "--yes", env=KNOWN)
    order = ("wallet", "pay", f"svc:{OTHER}?amount=1&ref=order-17")
    unread = terminal.failure(*order, "--yes", env=KNOWN)
    read = terminal.ok(*order, typed="y\n", env=KNOWN)
    node.close()
    assert "Warning: the node is still catching up" in told.err
    assert "Warning: the node is still catching up" in read.err
    assert unread.endswith("may not know that this order is paid; wait, or omit --yes")


def test_arguments_are_validated_before_any_request(terminal: Terminal, wallet: Path) -> None:
    assert "wrong checksum" in terminal.misuse("wallet", "send", OTHER[:-1] + "q", 1)
    assert "decimal such as" in terminal.misuse("wallet", "send", OTHER, "1,5")
    assert "paymentReference must be 1 to 64" in terminal.misuse("wallet", "send", OTHER, 1, "--reference", "a b")
    assert "'--fee'" in terminal.misuse("wallet", "send", OTHER, 1, "--fee", "0")
    assert "'--nonce'" in terminal.misuse("wallet", "send", OTHER, 1, "--nonce", "first")


# Failures on the way


def canned(**changed: object) -> Fixed:
    """A devnet node on which the wallet has 10 coins, with some responses or status fields replaced."""
    present = str(DEVNET.slot_time(START_SLOT))
    account = {
        "address": ADDRESS,
        "balance": "1000000000",
        "nonce": "0",
        "pendingNonce": "0",
        "pendingBalance": "1000000000",
        "heldSince": None,
    }
    named = {"chainId": DEVNET.chain_id, "networkId": 2, "genesisHash": DEVNET.genesis_hash.hex()}
    members: dict[str, object] = {
        "status": {**named, "syncState": "synced", "time": present, "slot": str(START_SLOT)},
        "consensus": {**named, "minimumFee": "10000", "accountMinimum": "1000000"},
        "fees": {"suggestedFee": "10000"},
        ADDRESS: account,
        **changed,
    }
    wrapped = {name: {"ok": True, "account" if name == ADDRESS else name: value} for name, value in members.items()}
    return Fixed(**{name: (200, json.dumps(value).encode()) for name, value in wrapped.items()})


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((500, b'{"ok":false,"error":"it failed"}'), "it failed."),
        (
            (200, b"<html>"),
            "http://127.0.0.1:8645 does not answer as an svcd node does (HTTP status 200): not JSON: expecting value at"
            " character 0.",
        ),
        ((200, None), "http://127.0.0.1:8645 did not answer within 30 s."),
        ((200, b'{"ok":true,"txid":"abc","state":"accepted"}'), "the response.txid is not"),
        (
            (200, b'{"ok":true}'),
            "the response.txid is not",
        ),
    ],
)
def test_a_transfer_of_unknown_outcome_is_named(
    terminal: Terminal, wallet: Path, answer: tuple[int, bytes | None], sentence: str
) -> None:
    resource = canned()
    resource.by_path["broadcast"] = answer
    terminal.public.site = site_of(resource, terminal.clock)
    told = terminal.failure("wallet", "send", OTHER, 1, "--yes", env=KNOWN)
    path, body = resource.seen[-1]
    sent = parse_transfer(json.loads(body)["transaction"], DEVNET)
    assert path == b"/rpc/broadcast"
    if sentence.endswith("is not"):
        sentence = f"the node does not answer as svcd does: {sentence} '{sent.txid.hex()}', which was requested."
    assert told == (
        f"{sentence} The transfer {sent.txid.hex()} may still have been sent: repeat the command to send"
        " the same signed transfer again, which can be paid only once"
    )


@pytest.mark.parametrize("seconds", [301, -301])
def test_a_clock_difference_is_reported_before_the_confirmation(terminal: Terminal, wallet: Path, seconds: int) -> None:
    status = json.loads(canned().by_path["status"][1] or b"")["status"]
    status["time"] = str(DEVNET.slot_time(START_SLOT) + 1000 * seconds)
    terminal.public.site = site_of(canned(status=status), terminal.clock)
    assert terminal.failure("wallet", "send", OTHER, 1) == (
        "the clocks of this computer and of the node differ by 301 s; correct the wrong one: up to 300 s are accepted"
    )


def test_incomplete_responses_are_reported(terminal: Terminal, wallet: Path) -> None:
    terminal.public.site = site_of(canned(consensus={}), terminal.clock)
    assert terminal.failure("wallet", "send", OTHER, 1) == (
        "the node does not answer as svcd does: consensus lacks the field genesisHash"
    )


# pay


def test_pay_shows_and_signs_the_order_in_the_link(rich: Node, terminal: Terminal) -> None:
    told = terminal.ok(*PAY, typed=f"y\n{PASSWORD}\n")
    shown = dict(line.split(maxsplit=1) for line in told.err.splitlines() if "  " in line)
    assert shown["recipient"] == OTHER
    assert shown["amount"] == "2 SVC"
    assert shown["reference"] == "order-17"
    assert shown["label"] == "Tea & cake (unverified, from the link)"
    assert shown["fee"] == "0.0001 SVC"
    assert shown["total"] == "2.0001 SVC"
    assert shown["balance"] == "after  7.9999 SVC"
    assert shown["network"] == "SVC-DEVNET (devnet)"
    (entry,) = rich.node_context.transaction_pool.mempool.entries()
    transfer = entry.transfer
    assert (transfer.amount, transfer.reference, transfer.txid.hex()) == (2 * COIN, "order-17", told.out.split()[1])


def test_pay_accepts_a_checkout_link_and_contacts_only_the_node(rich: Node, terminal: Terminal) -> None:
    link = f"https://shop.example/pay/?reference=order-17&recipient={OTHER}&amount=2&label=Tea"
    told = terminal.ok("wallet", "pay", link, typed="y\n", env=KNOWN)
    assert "label          Tea (unverified, from the link)" in told.err
    (entry,) = rich.node_context.transaction_pool.mempool.entries()
    assert (entry.transfer.amount, entry.transfer.reference) == (2 * COIN, "order-17")
    again = json.loads(terminal.ok(*PAY, "--yes", "--json", env=KNOWN).out)
    assert (again["txid"], again["state"]) == (entry.transfer.txid.hex(), "known"), "both are one order"


def test_pay_refuses_an_order_that_has_expired(rich: Node, terminal: Terminal) -> None:
    now = int(rich.clock.seconds() * 1000)
    link = f"https://shop.example/pay/?reference=order-17&recipient={OTHER}&amount=2&until={now + 90_000}"
    told = terminal.invoke("wallet", "pay", link, typed="n\n", env=KNOWN)
    assert "pay before     2" in told.stderr
    rich.clock.advance(90)
    for more in ((), ("--yes",)):
        assert "this order expired at 2" in terminal.failure("wallet", "pay", link, *more, env=KNOWN)
    assert waiting(rich) == []


def test_invisible_characters_in_a_label_are_escaped(rich: Node, terminal: Terminal) -> None:
    uri = format_uri(PaymentRequest(PaymentTerms("order-17", OTHER, 2 * COIN, 12), "Tea\u200b\u2060 for\u3164 two"))
    told = terminal.invoke("wallet", "pay", uri, typed="n\n", env=KNOWN)
    label = r"Tea\u{200b}\u{2060} for\u{3164} two"
    assert f"label          {label} (unverified, from the link)" in told.stderr.splitlines()
    assert waiting(rich) == []


def test_pay_warns_if_the_order_is_already_paid(rich: Node, terminal: Terminal) -> None:
    terminal.ok(*PAY, "--yes", env=KNOWN)
    outbox(terminal).path.unlink()  # As if another wallet had paid it.
    for state in ("pending", "confirming"):
        result = terminal.invoke(*PAY, typed="n\n")
        assert f"Warning: this order is already paid ({state}, " in result.stderr
        assert result.exit_code == 1
        terminal.ok("node", "mine", 1)
    (height, places) = (rich.node_context.chain_manager.tip.height, waiting(rich))
    assert terminal.failure(*PAY, "--yes", env=KNOWN).endswith("omit --yes to pay it again")
    assert (rich.node_context.chain_manager.tip.height, waiting(rich)) == (height, places) == (height, [])
    terminal.ok(*PAY, typed="y\n", env=KNOWN)
    assert len(waiting(rich)) == 1


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        (URI.replace("amount=2", "amount=1e3"), "amount must be a decimal"),
        (URI + "&amount=3", "'amount' appears more than once in the payment URI"),
        (URI + "&req-memo=1", "requires 'req-memo', which is unknown here; do not pay"),
        ("bitcoin:x", "a payment URI begins with svc: in lower case"),
        (URI.replace(OTHER, OTHER[:-1] + "q"), "wrong checksum"),
    ],
)
def test_pay_rejects_invalid_links(rich: Node, terminal: Terminal, uri: str, sentence: str) -> None:
    assert sentence in terminal.failure("wallet", "pay", uri, env=KNOWN)


def test_pay_rejects_links_for_another_network(rich: Node, terminal: Terminal) -> None:
    terms = PaymentTerms("order-17", address_of("shop", MAINNET.address_prefix), COIN, 12)
    assert terminal.failure("wallet", "pay", format_uri(PaymentRequest(terms)), env=KNOWN) == (
        "the payment URI is for mainnet and the wallet is for devnet; choose another wallet with --keyfile"
    )


@pytest.mark.parametrize("words", [SEND, PAY], ids=["send", "pay"])
def test_two_processes_cannot_pay_from_one_keyfile_at_once(
    rich: Node, terminal: Terminal, words: tuple[Any, ...]
) -> None:
    with outbox(terminal).lock():
        assert terminal.failure(*words, "--yes", env=KNOWN) == (
            "another svc is paying from wallet.json; wait for it to end, and repeat"
        )
        assert not waiting(rich)
    terminal.ok(*words, "--yes", env=KNOWN)
    assert len(waiting(rich)) == 1


# Lost responses


@pytest.fixture
def lost(rich: Node, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """While this list is empty, the node accepts transfers but responds with an error."""
    answers: list[int] = []
    real = rich.node_context.transaction_pool.submit

    async def submit(transfer: Any, **how: Any) -> Any:
        state = await real(transfer, **how)
        if not answers:
            raise OSError("the answer is lost")
        return state

    monkeypatch.setattr(rich.node_context.transaction_pool, "submit", submit)
    return answers


@pytest.mark.parametrize("words", [SEND, PAY], ids=["send", "pay"])
def test_a_transfer_without_a_response_is_resent_unchanged(
    rich: Node, terminal: Terminal, lost: list[int], words: tuple[Any, ...], expected_errors: Any
) -> None:
    for _ in range(2):
        assert "may still have been sent: repeat the command" in terminal.failure(*words, "--yes", env=KNOWN)
        (first,) = waiting(rich)
        terminal.clock.advance(60)
    lost.append(1)
    result = terminal.ok(*words, "--json", typed="y\n")
    assert "It is sent again unchanged, so it can be paid only once." in result.err
    assert (json.loads(result.out)["txid"], json.loads(result.out)["state"]) == (first, "known")
    assert waiting(rich) == [first]
    (kept,) = outbox(terminal).load()
    assert kept.acknowledged
    expected_errors(OSError)


BUSY = b'{"ok":false,"error":"too many requests; try again in 3 s"}'


@define
class _Closed:
    """A port without a listener."""

    def buildProtocol(self, _address: Any) -> Any:  # noqa: N802
        raise ConnectionRefusedError


@pytest.mark.parametrize("status", [400, 429, None])
def test_a_rejected_attempt_does_not_remove_an_unacknowledged_one(
    rich: Node, terminal: Terminal, lost: list[int], status: int | None, expected_errors: Any
) -> None:
    terminal.failure(*SEND, "--yes", env=KNOWN)
    first = waiting(rich)
    real = terminal.public.site
    turned = _Closed() if status is None else site_of(Fixed((status, BUSY)), terminal.clock)
    terminal.public.site = _Between(real, turned)
    assert "may still have been sent: repeat the command" in terminal.failure(*SEND, "--yes", env=KNOWN)
    terminal.public.site = real
    lost.append(1)
    assert json.loads(terminal.ok(*SEND, "--yes", "--json").out)["state"] == "known"
    assert waiting(rich) == first
    expected_errors(OSError)


def test_an_attempt_that_is_confirmed_meanwhile_is_not_paid_again(
    rich: Node, terminal: Terminal, lost: list[int], expected_errors: Any
) -> None:
    terminal.failure(*SEND, "--yes", env=KNOWN)
    (first,) = waiting(rich)
    terminal.ok("node", "mine", 1)
    lost.append(1)
    for words in (SEND, (*SEND, "--yes")):
        told = terminal.ok(*words, "--json")
        assert (json.loads(told.out)["txid"], json.loads(told.out)["state"]) == (first, "in a block")
        assert "is in a block, with 1 confirmation: nothing is signed or sent. Add --again" in told.err
        assert waiting(rich) == []
    assert terminal.ok(*SEND).out.splitlines()[-1] == f"state  in a block; see: svc tx {first}"
    assert json.loads(terminal.ok(*SEND, "--again", "--yes", "--json", env=KNOWN).out)["nonce"] == "1"
    expected_errors(OSError)


def test_another_payment_does_not_silently_replace_an_unacknowledged_one(terminal: Terminal, rich: Node) -> None:
    silent = Fixed((200, b"<html>"))
    real, terminal.public.site = terminal.public.site, None
    terminal.public.site = _Between(real, site_of(silent, terminal.clock))
    terminal.failure(*SEND, "--yes", env=KNOWN)
    terminal.public.site = real
    (kept,) = outbox(terminal).load()
    sentence = terminal.failure("wallet", "send", OTHER, 3, "--yes", env=KNOWN)
    assert sentence == (
        f"no node acknowledged the earlier transfer of 1 SVC to {OTHER} ({kept.transfer.txid.hex()}): repeat that"
        " command first to send it again; or replace it with this transfer by --nonce 0"
    )
    terminal.ok("wallet", "send", OTHER, 3, "--nonce", 0, "--yes", env=KNOWN)
    terminal.ok("node", "mine", 1)
    told = terminal.ok("wallet", "send", OTHER, 4, "--yes", "--json", env=KNOWN)
    assert json.loads(told.out)["nonce"] == "1"
    assert [kept.transfer.amount for kept in outbox(terminal).load()] == [COIN, 3 * COIN, 4 * COIN]


@define
class _Between:
    """A site that responds like `node`, but to one request like `other`: by default to the first transfer's."""

    node: Any
    other: Any
    number: int = 5
    count: int = 0

    def buildProtocol(self, address: Any) -> Any:  # noqa: N802
        self.count += 1
        return (self.other if self.count == self.number else self.node).buildProtocol(address)


def view_of(**changed: Any) -> AccountView:
    """A node's view of an account that has sent nothing."""
    amounts = {"balance": 0, "nonce": 0, "pending_nonce": 0, "pending_balance": 0}
    return AccountView(**{"params": DEVNET, "tip_time": 0, "catching_up": False, **amounts, **changed})


HOUR = 3_600_000


@pytest.mark.parametrize(("own", "tip", "left"), [(25, 30, 1), (26, 23, 1), (26, 26, 0)])
def test_a_transfer_waits_until_its_day_is_over_by_both_clocks(
    terminal: Terminal, rich: Node, own: int, tip: int, left: int
) -> None:
    terminal.ok(*SEND, "--yes", env=KNOWN)
    (kept,) = outbox(terminal).load()
    signed = kept.transfer.timestamp
    view = view_of(tip_time=signed + tip * HOUR)
    found = reconcile(outbox(terminal), kept.transfer.sender, view, signed + own * HOUR)
    assert len(found.pending) == left
    assert len(found.stored) == len(outbox(terminal).load()) == 1


def test_only_the_oldest_void_transfers_are_dropped(terminal: Terminal, wallet: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("svcd.cli.wallet.pending.MAX_VOID", 2)
    file, start = outbox(terminal), int(terminal.clock.seconds() * 1000)

    def save(nonce: int, now: int) -> None:
        draft = Draft(recipient=OTHER, amount=COIN, fee=10_000, nonce=nonce, timestamp=start + nonce)
        file.save(sign_transfer(draft, seed=SEED, params=DEVNET), NodeAnswer.ACCEPTED, now=now)

    for nonce in range(5):
        save(nonce, start)
    save(4, start + 25 * HOUR + 4)
    assert [each.transfer.nonce for each in file.load()] == [2, 3, 4], "4 is not void yet"
    save(2, start + 25 * HOUR + 4)
    assert [each.transfer.nonce for each in file.load()] == [2, 3, 4], "in the order of the signatures"


def test_a_file_that_would_not_be_read_again_is_not_written(terminal: Terminal, rich: Node, monkeypatch: Any) -> None:
    monkeypatch.setattr("svcd.cli.wallet.pending.MAX_BYTES", 1000)
    terminal.ok(*SEND, "--yes", env=KNOWN)
    assert terminal.failure("wallet", "send", OTHER, 2, "--yes", env=KNOWN) == (
        "wallet.json.outbox is full: it has 2 transfers of the last day; pay from another wallet, or wait until"
        " tomorrow"
    )
    assert len(waiting(rich)) == len(outbox(terminal).load()) == 1


def test_an_error_while_reconciling_removes_nothing(terminal: Terminal, rich: Node) -> None:
    real = terminal.public.site
    terminal.public.site = _Between(real, site_of(Fixed((200, b"<html>")), terminal.clock))
    terminal.failure(*SEND, "--yes", env=KNOWN)
    (kept,) = outbox(terminal).load()
    terminal.public.site = real
    rival = terminal.ok("wallet", "send", OTHER, 3, "--nonce", 0, "--yes", "--json", env=KNOWN)
    assert json.loads(rival.out)["state"] == "accepted"
    terminal.ok("node", "mine", 1)
    busy = site_of(Fixed((503, BUSY)), terminal.clock)
    terminal.public.site = _Between(real, busy, number=4)
    assert terminal.failure(*SEND, "--yes", env=KNOWN) == "too many requests; try again in 3 s"
    assert kept.transfer.txid in [each.transfer.txid for each in outbox(terminal).load()]


def test_the_pending_file_is_private_and_damage_is_reported(rich: Node, terminal: Terminal) -> None:
    terminal.ok(*SEND, "--yes", env=KNOWN)
    path = outbox(terminal).path
    assert path == terminal.folder / "wallet.json.outbox"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    whole = path.read_bytes()
    assert whole.count(b'"nonce":"0"') == 1
    path.write_bytes(whole.replace(b'"nonce":"0"', b'"nonce":"1"'))
    sentence = terminal.failure(*SEND, "--yes", env=KNOWN)
    assert sentence.startswith(f"{path.name} is damaged: the signature of transaction")
    path.write_bytes(whole[:50])
    sentence = terminal.failure(*SEND, "--yes", env=KNOWN)
    assert sentence.startswith(f"{path.name} is damaged: not JSON")
    path.write_text('{"format":"svc-outbox-v9","transfers":[]}')
    assert "was not written by this version of svc" in terminal.failure(*SEND, "--yes", env=KNOWN)
    assert len(waiting(rich)) == 1


def test_transfers_of_another_wallet_are_ignored(rich: Node, terminal: Terminal, wallet: Path) -> None:
    terminal.ok(*SEND, "--yes", env=KNOWN)
    wallet.unlink()
    terminal.ok("wallet", "new", "--network", "devnet", env=KNOWN)
    assert "no transfer from or to svcd1q" in terminal.ok("wallet", "history").out


def test_history_shows_other_pending_and_unacknowledged_transfers(
    rich: Node, terminal: Terminal, lost: list[int], expected_errors: Any
) -> None:
    lost.append(1)
    terminal.ok("wallet", "send", OTHER, 2, "--yes", env=KNOWN)
    outbox(terminal).path.unlink()
    lost.clear()
    terminal.failure(*SEND, "--yes", env=KNOWN)
    told = terminal.ok("wallet", "history").out
    assert "no response: repeat the command that sent it" in told
    assert "1 pending transfer of this address sent from elsewhere" in told
    (kept,) = json.loads(terminal.ok("wallet", "history", "--json").out)["waiting"]
    assert (kept["state"], kept["amount"], kept["nonce"]) == ("unanswered", str(COIN), "1")
    expected_errors(OSError)


def test_a_transfer_that_the_node_lost_is_resent(rich: Node, terminal: Terminal) -> None:
    """A power failure may lose a transfer that the node has accepted, but the wallet still has it."""
    sent = json.loads(terminal.ok(*SEND, "--yes", "--json", env=KNOWN).out)
    rich.node_context.transaction_pool.drop([bytes.fromhex(sent["txid"])])
    (kept,) = json.loads(terminal.ok("wallet", "history", "--json").out)["waiting"]
    assert kept["state"] == "unanswered"
    again = json.loads(terminal.ok(*SEND, "--yes", "--json", env=KNOWN).out)
    assert again["txid"] == sent["txid"], "it is never signed anew"
    assert bytes.fromhex(sent["txid"]) in rich.node_context.transaction_pool.mempool
    (kept,) = json.loads(terminal.ok("wallet", "history", "--json").out)["waiting"]
    assert kept["state"] == "waiting"


def test_an_order_that_may_be_paid_below_the_blocks_of_the_node_is_paid_only_by_a_person(
    rich: Node, terminal: Terminal
) -> None:
    """The node cannot know, and a program would pay twice."""
    terminal.ok("node", "mine", 5)
    rich.keep_from(4)
    unknown = (
        "this order may be paid in a block that the node does not have any more (whether an earlier block has the "
    )
    here = "payment of order-17: this node has only blocks from height 4 on"
    told = terminal.failure(*PAY, "--yes", env=KNOWN)
    assert told.startswith(unknown + here)
    assert told.endswith("; ask a node that has all blocks, or omit --yes")
    assert waiting(rich) == []
    declined = terminal.invoke(*PAY, typed="n\n", env=KNOWN)
    assert f"Warning: {unknown}{here}" in declined.stderr
    assert (declined.exit_code, waiting(rich)) == (1, [])
    terminal.ok(*PAY, typed="y\n", env=KNOWN)
    assert len(waiting(rich)) == 1
