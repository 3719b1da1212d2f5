"""`svc wallet refund` with a real node: a payment goes back to its sender, and not twice by accident."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.transaction import Draft, sign_transfer
from svcd.cli.answers import ResponseObject
from svcd.cli.errors import CommandError
from svcd.cli.wallet.pending import NodeAnswer, PendingFile
from svcd.cli.wallet.refund import sent_under_reference
from svcd.commerce.payment_request import refund_reference
from tests.chains import COIN
from tests.cli.terminal import ADDRESS, OTHER, PASSWORD, SEED, Terminal, site_of
from tests.cli.wallet.test_send import KNOWN, canned, waiting
from tests.rpc.node import FAUCET, Node
from tests.submitting import submitted


def pay(node: Node, terminal: Terminal, amount: int, reference: str | None, recipient: str = ADDRESS) -> str:
    """Let the faucet pay, into the next block; gives the txid."""
    nonce = json.loads(terminal.ok("balance", FAUCET, "--json").out)["pendingNonce"]
    draft = Draft(
        recipient=recipient,
        amount=amount,
        fee=10_000,
        nonce=int(nonce),
        timestamp=int(terminal.clock.seconds() * 1000),
        reference=reference,
    )
    transfer = sign_transfer(draft, seed=FAUCET_SEED, params=DEVNET)
    submitted(node.node_context.transaction_pool, transfer, terminal.clock)
    terminal.ok("node", "mine", 1)
    return transfer.txid.hex()


@pytest.fixture
def paid(rich: Node, terminal: Terminal) -> str:
    """The txid of a payment of 2 coins for order-17 with 12 confirmations."""
    txid = pay(rich, terminal, 2 * COIN, "order-17")
    terminal.ok("node", "mine", 11)
    return txid


def test_payment_and_refund_are_shown_before_the_refund_is_signed(rich: Node, terminal: Terminal, paid: str) -> None:
    told = terminal.ok("wallet", "refund", paid, typed=f"y\n{PASSWORD}\n")
    shown = [line.split(maxsplit=1) for line in told.err.splitlines()]
    for row in (
        ["payment", paid],
        ["from", FAUCET],
        ["amount", "2 SVC"],
        ["reference", "order-17"],
        ["confirmations", "12"],
        ["refunded", "so far  0 SVC"],
        ["from", ADDRESS],
        ["recipient", FAUCET],
        ["reference", "refund:order-17"],
    ):
        assert row in shown
    assert shown.index(["payment", paid]) < shown.index(["The", "refund:"]) < shown.index(["recipient", FAUCET])
    assert "Warning" not in told.err
    (entry,) = rich.node_context.transaction_pool.mempool.entries()
    assert (entry.transfer.amount, entry.transfer.reference) == (2 * COIN, "refund:order-17")


def refund_at_once(terminal: Terminal, txid: str, *words: str) -> dict[str, str]:
    """The refund that the command sends with --yes."""
    sent: dict[str, str] = json.loads(terminal.ok("wallet", "refund", txid, *words, "--yes", "--json", env=KNOWN).out)
    return sent


def refusal(terminal: Terminal, txid: str, *words: str) -> str:
    """What the command says instead of a refund with --yes."""
    told = terminal.invoke("wallet", "refund", txid, *words, "--yes", env=KNOWN)
    assert told.exit_code == 1
    return told.stderr.splitlines()[-1]


def test_a_part_can_be_refunded_and_then_the_rest(rich: Node, terminal: Terminal, paid: str) -> None:
    for amount, already in (("0.5", "0"), ("0.5", "0.5"), ("1", "1")):
        sent = refund_at_once(terminal, paid, "--amount", amount, "--already", already)
        assert (sent["recipient"], sent["reference"]) == (FAUCET, "refund:order-17")
    assert len(waiting(rich)) == 3
    assert "2 SVC of the 2 SVC" in refusal(terminal, paid, "--amount", "0.5", "--already", "2")


@pytest.mark.parametrize("mined", [0, 1])
def test_a_refund_is_not_repeated_by_accident(rich: Node, terminal: Terminal, paid: str, mined: int) -> None:
    refund_at_once(terminal, paid, "--amount", "0.5")
    if mined:
        terminal.ok("node", "mine", mined)
    told = "0.5 SVC of the 2 SVC that this sender has paid under the reference have been refunded already"
    assert terminal.failure("wallet", "refund", paid, "--amount", "0.5", "--yes", env=KNOWN) == (
        f"{told}: a further refund needs --already 0.5; omit --yes to decide yourself"
    )
    assert "--already says 1 SVC, and 0.5 SVC have been refunded so far;" in refusal(terminal, paid, "--already", "1")
    asked = terminal.invoke("wallet", "refund", paid, "--amount", "0.5", typed="n\n").stderr
    assert "refunded so far  0.5 SVC" in asked
    assert f"Warning: {told}." in asked
    assert len(waiting(rich)) == 1 - mined


def test_an_order_paid_twice_is_refunded_once_by_a_repeated_command(rich: Node, terminal: Terminal, paid: str) -> None:
    again = pay(rich, terminal, 2 * COIN, "order-17")
    terminal.ok("node", "mine", 11)
    refund_at_once(terminal, again)
    assert "2 SVC of the 4 SVC" in refusal(terminal, again)
    refund_at_once(terminal, paid, "--already", "2")
    assert "4 SVC of the 4 SVC" in refusal(terminal, paid, "--already", "4")
    assert len(waiting(rich)) == 2


def test_a_refund_that_only_the_wallet_knows_counts(rich: Node, terminal: Terminal, paid: str, wallet: Path) -> None:
    draft = Draft(
        recipient=FAUCET,
        amount=COIN // 2,
        fee=10_000,
        nonce=0,
        timestamp=int(terminal.clock.seconds() * 1000),
        reference="refund:order-17",
    )
    file = PendingFile(wallet, DEVNET)
    for fee in (10_000, 20_000):
        transfer = sign_transfer(evolve(draft, fee=fee), seed=SEED, params=DEVNET)
        file.save(transfer, NodeAnswer.ACCEPTED, now=draft.timestamp)
    assert "0.5 SVC of the 2 SVC" in refusal(terminal, paid, "--nonce", "1")
    assert waiting(rich) == []


def test_a_refund_that_is_too_old_counts_unless_the_new_one_excludes_it(
    rich: Node, terminal: Terminal, paid: str, wallet: Path
) -> None:
    """A node may deny that it is in a block; with its nonce only one of the two can be."""
    now = int(terminal.clock.seconds() * 1000)
    old = Draft(
        recipient=FAUCET,
        amount=COIN // 2,
        fee=10_000,
        nonce=0,
        timestamp=now - 2 * 24 * 3_600_000,
        reference="refund:order-17",
    )
    PendingFile(wallet, DEVNET).save(sign_transfer(old, seed=SEED, params=DEVNET), NodeAnswer.ACCEPTED, now=now)
    assert "0.5 SVC of the 2 SVC" in refusal(terminal, paid, "--nonce", "1")
    assert refund_at_once(terminal, paid, "--amount", "0.5")["nonce"] == "0"


def test_a_node_cannot_make_an_own_refund_smaller(
    rich: Node, terminal: Terminal, paid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node lists the refund, so that it is no unknown one, and says that it was of nothing."""
    refund_at_once(terminal, paid)

    def belittled(*asked: Any) -> dict[str, ResponseObject]:
        listed = sent_under_reference(*asked)
        return {txid: each.with_members({"amount": "0"}) for txid, each in listed.items()}

    monkeypatch.setattr("svcd.cli.wallet.refund.sent_under_reference", belittled)
    assert "2 SVC of the 0 SVC" in refusal(terminal, paid)
    assert len(waiting(rich)) == 1


def test_a_payment_without_reference_is_refunded_under_its_txid(rich: Node, terminal: Terminal) -> None:
    txid = pay(rich, terminal, COIN, None)
    terminal.ok("node", "mine", 11)
    sent = json.loads(terminal.ok("wallet", "refund", txid, "--yes", "--json", env=KNOWN).out)
    assert (sent["amount"], sent["reference"]) == (str(COIN), f"refund:{txid[:32]}")
    assert "1 SVC of the 1 SVC" in refusal(terminal, txid)


def test_a_young_payment_is_refunded_only_by_decision(rich: Node, terminal: Terminal) -> None:
    txid = pay(rich, terminal, COIN, "order-1")
    sentence = terminal.failure("wallet", "refund", txid, "--yes", env=KNOWN)
    assert sentence.startswith("the payment has 1 of 12 confirmations: a reorganisation could undo it, and not the ref")
    assert "Warning: the payment has 1 of 12" in terminal.ok("wallet", "refund", txid, typed="y\n", env=KNOWN).err
    assert len(waiting(rich)) == 1


def test_the_shop_decides_how_many_confirmations_a_refund_needs(rich: Node, terminal: Terminal) -> None:
    txid = pay(rich, terminal, COIN, "order-1")
    assert "has 1 of 2 conf" in terminal.failure("wallet", "refund", txid, "--confirmations", "2", "--yes", env=KNOWN)
    refund_at_once(terminal, txid, "--confirmations", "1")
    assert len(waiting(rich)) == 1


def test_payments_that_cannot_be_refunded(rich: Node, terminal: Terminal, paid: str) -> None:
    assert terminal.failure("wallet", "refund", paid, "--amount", "2.00000001", env=KNOWN) == (
        "a refund cannot exceed the payment of 2 SVC; give --amount 2 or less"
    )
    foreign = pay(rich, terminal, COIN, "order-1", OTHER)
    assert terminal.failure("wallet", "refund", foreign, env=KNOWN) == (
        f"{foreign} is a payment to {OTHER}, not to this wallet, {ADDRESS}"
    )
    own = json.loads(terminal.ok("wallet", "send", ADDRESS, 1, "--yes", "--json", env=KNOWN).out)["txid"]
    assert terminal.failure("wallet", "refund", own).endswith("is in no block but waits in the mempool")
    terminal.ok("node", "mine", 1)
    assert terminal.failure("wallet", "refund", own).startswith(f"{own} is a transfer from this wallet to itself")
    assert terminal.failure("wallet", "refund", "ab" * 32).endswith("is in no block and not in the mempool")
    assert "64 hex digits" in terminal.misuse("wallet", "refund", "ab")
    assert waiting(rich) == []


def test_a_node_cannot_name_another_sender(rich: Node, terminal: Terminal, paid: str) -> None:
    forged = pay(rich, terminal, COIN, "order-1")
    record = json.loads(terminal.ok("tx", forged, "--json").out)
    site = canned(transaction={**record, "txid": paid})
    site.by_path[paid] = site.by_path["transaction"]
    terminal.public.site = site_of(site, terminal.clock)
    assert terminal.failure("wallet", "refund", paid, "--yes", env=KNOWN) == (
        f"the node does not answer as svcd does: it returns the transfer {forged} for {paid}"
    )


class Pages:
    """A node whose list of payments has two pages, at the tips given."""

    def __init__(self, *tips: str) -> None:
        self.tips = list(tips)

    def pages(self, _path: str) -> Iterator[ResponseObject]:
        """Both pages."""
        for number in "01":
            sent = {"txid": 64 * number, "sender": ADDRESS, "reference": "refund:order-17", "amount": "5"}
            yield ResponseObject("page", {"payments": [sent], "tip": {"height": "3", "hash": 64 * self.tips.pop(0)}})


def test_payments_are_read_again_if_the_chain_changes_between_two_pages() -> None:
    def read(node: Any) -> Any:
        return sent_under_reference(node, FAUCET, "refund:order-17", ADDRESS)

    changing = Pages("a", "b", "b", "b")
    assert list(read(changing)) == [64 * "0", 64 * "1"]
    assert changing.tips == []
    with pytest.raises(CommandError, match="changed again and again while its payments were read"):
        read(Pages(*"0123456789"))


@pytest.mark.parametrize(
    ("reference", "refunded"),
    [
        ("order-17", "refund:order-17"),
        ("r" * 57, "refund:" + "r" * 57),
        ("r" * 58, "refund:" + "r" * 40 + ".95f6cf763b780763"),
        (None, "refund:" + "ab" * 16),
    ],
)
def test_the_reference_of_a_refund(reference: str | None, refunded: str) -> None:
    assert refund_reference(reference, b"\xab" * 32) == refunded
    assert len(refunded) <= 64
