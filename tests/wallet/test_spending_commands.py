"""Payment URIs, lost answers and the history, against a real node: whatever is repeated, nothing is paid twice."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from attrs import define
from twisted.internet.error import ConnectError

from svcd.chain.params import DEVNET, MAINNET
from svcd.commerce.payment import Terms
from svcd.commerce.uri import PaymentRequest, print_uri
from svcd.wallet.client import Node as Asked
from svcd.wallet.earlier import settle
from svcd.wallet.outbox import Outbox
from svcd.wallet.places import public_place
from svcd.wallet.sending import View
from tests.chains import COIN, address_of
from tests.rpc.node import Node
from tests.wallet.terminal import ADDRESS, OTHER, PASSWORD, Fixed, Terminal, site_of

pytestmark = pytest.mark.usefixtures("stretched_once")

KNOWN = {"SVC_WALLET_PASSWORD": PASSWORD}
URI = print_uri(PaymentRequest(Terms("order-17", OTHER, 2 * COIN, 12), "Tea & cake"))
PAY = ("wallet", "pay", URI)
SEND = ("wallet", "send", OTHER, 1, "--reference", "order-18")


def waiting(node: Node) -> list[str]:
    return [entry.transfer.txid.hex() for entry in node.living.transfers.mempool.entries()]


def outbox(terminal: Terminal) -> Outbox:
    return Outbox(terminal.folder / "wallet.json", DEVNET)


# pay


def test_pay_shows_what_the_link_says_and_signs_exactly_that(rich: Node, terminal: Terminal) -> None:
    told = terminal.ok(*PAY, typed=f"y\n{PASSWORD}\n")
    shown = dict(line.split(maxsplit=1) for line in told.err.splitlines() if "  " in line)
    assert shown["recipient"] == OTHER
    assert shown["amount"] == "2 coins"
    assert shown["reference"] == "order-17"
    assert shown["label"] == "Tea & cake (unverified, from the link)"
    assert shown["fee"] == "0.0001 coins"
    assert shown["total"] == "2.0001 coins"
    assert shown["balance"] == "after  7.9999 coins"
    assert shown["network"] == "SVC-DEVNET (devnet)"
    (entry,) = rich.living.transfers.mempool.entries()
    transfer = entry.transfer
    assert (transfer.amount, transfer.reference, transfer.txid.hex()) == (2 * COIN, "order-17", told.out.split()[1])


def test_pay_takes_the_link_to_a_checkout_and_asks_nobody_but_the_node(rich: Node, terminal: Terminal) -> None:
    link = f"https://shop.example/pay/?reference=order-17&recipient={OTHER}&amount=2&label=Tea"
    told = terminal.ok("wallet", "pay", link, typed="y\n", env=KNOWN)
    assert "label          Tea (unverified, from the link)" in told.err
    (entry,) = rich.living.transfers.mempool.entries()
    assert (entry.transfer.amount, entry.transfer.reference) == (2 * COIN, "order-17")
    assert "this order is paid already" in terminal.failure(*PAY, "--yes", env=KNOWN), "both are one order"


def test_what_nobody_sees_in_a_label_is_written_out(rich: Node, terminal: Terminal) -> None:
    uri = print_uri(PaymentRequest(Terms("order-17", OTHER, 2 * COIN, 12), "Tea\u200b\u2060 for\u3164 two"))
    told = terminal.invoke("wallet", "pay", uri, typed="n\n", env=KNOWN)
    assert r"label          Tea\u200b\u2060 for\u3164 two (unverified, from the link)" in told.stderr.splitlines()
    assert waiting(rich) == []


def test_an_order_that_is_paid_is_warned_of(rich: Node, terminal: Terminal) -> None:
    terminal.ok(*PAY, "--yes", env=KNOWN)
    for state in ("pending", "confirming"):
        result = terminal.invoke(*PAY, typed="n\n")
        assert f"Warning: this order is paid already ({state}, " in result.stderr
        assert result.exit_code == 1
        terminal.ok("node", "mine", 1)
    (height, places) = (rich.living.ledger.tip.height, waiting(rich))
    assert terminal.failure(*PAY, "--yes", env=KNOWN).endswith("leave --yes out to pay it once more")
    assert (rich.living.ledger.tip.height, waiting(rich)) == (height, places) == (height, [])
    terminal.ok(*PAY, typed="y\n", env=KNOWN)
    assert len(waiting(rich)) == 1


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        (URI.replace("amount=2", "amount=1e3"), "amount must be a decimal"),
        (URI + "&amount=3", "'amount' stands more than once in the payment URI"),
        (URI + "&req-memo=1", "asks for 'req-memo', which is not known here; do not pay"),
        ("bitcoin:x", "a payment URI begins with svc: in lower case"),
        (URI.replace(OTHER, OTHER[:-1] + "q"), "wrong checksum"),
    ],
)
def test_a_link_that_is_not_plain_is_refused(rich: Node, terminal: Terminal, uri: str, sentence: str) -> None:
    assert sentence in terminal.failure("wallet", "pay", uri, env=KNOWN)


def test_a_link_for_another_network_is_refused(rich: Node, terminal: Terminal) -> None:
    terms = Terms("order-17", address_of("shop", MAINNET.address_prefix), COIN, 12)
    assert terminal.failure("wallet", "pay", print_uri(PaymentRequest(terms)), env=KNOWN) == (
        "the payment URI is for mainnet and the wallet is of devnet; choose another wallet with --keyfile"
    )


@pytest.mark.parametrize("words", [SEND, PAY], ids=["send", "pay"])
def test_two_do_not_pay_from_one_keyfile_at_once(rich: Node, terminal: Terminal, words: tuple[Any, ...]) -> None:
    with outbox(terminal).alone():
        assert terminal.failure(*words, "--yes", env=KNOWN) == (
            "another svc is paying from wallet.json; wait until it has ended, and repeat"
        )
        assert not waiting(rich)
    terminal.ok(*words, "--yes", env=KNOWN)
    assert len(waiting(rich)) == 1


# Lost answers


@pytest.fixture
def lost(rich: Node, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """While this list is empty, what is posted to the node has no answer: an error comes instead of it."""
    answers: list[int] = []
    real = rich.living.transfers.submit

    async def submit(transfer: Any) -> Any:
        state = await real(transfer)
        if not answers:
            raise OSError("the answer is lost")
        return state

    monkeypatch.setattr(rich.living.transfers, "submit", submit)
    return answers


@pytest.mark.parametrize("words", [SEND, PAY], ids=["send", "pay"])
def test_a_transfer_that_got_no_answer_is_sent_again_as_it_is(
    rich: Node, terminal: Terminal, lost: list[int], words: tuple[Any, ...], expected_errors: Any
) -> None:
    for _ in range(2):
        assert "may have been sent all the same: repeat the command" in terminal.failure(*words, "--yes", env=KNOWN)
        (first,) = waiting(rich)
        terminal.clock.advance(60)
    lost.append(1)
    result = terminal.ok(*words, "--json", typed="y\n")
    assert "It is sent again as it is: it can be paid once only." in result.err
    assert (json.loads(result.out)["txid"], json.loads(result.out)["state"]) == (first, "known")
    assert waiting(rich) == [first]
    (kept,) = outbox(terminal).load()
    assert kept.answered
    expected_errors(OSError)


BUSY = b'{"ok":false,"error":"too many requests; try again in 3 s"}'


@define
class _Closed:
    """Where nothing listens."""

    def buildProtocol(self, _address: Any) -> Any:  # noqa: N802
        raise ConnectError


@pytest.mark.parametrize("status", [400, 429, None])
def test_an_attempt_that_is_turned_away_does_not_make_the_lost_one_forgotten(
    rich: Node, terminal: Terminal, lost: list[int], status: int | None, expected_errors: Any
) -> None:
    terminal.failure(*SEND, "--yes", env=KNOWN)
    first = waiting(rich)
    real = terminal.public.site
    turned = _Closed() if status is None else site_of(Fixed((status, BUSY)), terminal.clock)
    terminal.public.site = _Between(real, turned)
    assert "may have been sent all the same: repeat the command" in terminal.failure(*SEND, "--yes", env=KNOWN)
    terminal.public.site = real
    lost.append(1)
    assert json.loads(terminal.ok(*SEND, "--yes", "--json").out)["state"] == "known"
    assert waiting(rich) == first
    expected_errors(OSError)


def test_an_attempt_that_was_paid_meanwhile_is_not_paid_again(
    rich: Node, terminal: Terminal, lost: list[int], expected_errors: Any
) -> None:
    terminal.failure(*SEND, "--yes", env=KNOWN)
    (first,) = waiting(rich)
    terminal.ok("node", "mine", 1)
    lost.append(1)
    told = terminal.ok(*SEND, "--json")
    assert (json.loads(told.out)["txid"], json.loads(told.out)["state"]) == (first, "in a block")
    assert "nothing is signed or sent" in told.err
    assert (waiting(rich), outbox(terminal).load()) == ([], [])
    terminal.ok(*SEND, "--yes", env=KNOWN)
    assert len(waiting(rich)) == 1
    expected_errors(OSError)


def test_another_payment_does_not_take_the_place_of_one_without_an_answer_unseen(
    terminal: Terminal, rich: Node
) -> None:
    silent = Fixed((200, b"<html>"))
    real, terminal.public.site = terminal.public.site, None
    terminal.public.site = _Between(real, site_of(silent, terminal.clock))
    terminal.failure(*SEND, "--yes", env=KNOWN)
    terminal.public.site = real
    (kept,) = outbox(terminal).load()
    sentence = terminal.failure("wallet", "send", OTHER, 3, "--yes", env=KNOWN)
    assert sentence == (
        f"no node answered to the transfer of 1 coin to {OTHER} that was sent before ({kept.transfer.txid.hex()}):"
        " repeat that command first, and it is sent again; or let this transfer take its place with --nonce 0"
    )
    terminal.ok("wallet", "send", OTHER, 3, "--nonce", 0, "--yes", env=KNOWN)
    terminal.ok("node", "mine", 1)
    told = terminal.ok("wallet", "send", OTHER, 4, "--yes", "--json", env=KNOWN)
    assert json.loads(told.out)["nonce"] == "1"
    assert [kept.transfer.amount for kept in outbox(terminal).load()] == [4 * COIN]


@define
class _Between:
    """A site that answers like `node`, but to the fourth request like `other`."""

    node: Any
    other: Any
    count: int = 0

    def buildProtocol(self, address: Any) -> Any:  # noqa: N802
        self.count += 1
        return (self.other if self.count == 4 else self.node).buildProtocol(address)


def test_what_the_node_refuses_is_not_kept(rich: Node, terminal: Terminal) -> None:
    terminal.failure("wallet", "send", OTHER, 1, "--nonce", 17, "--yes", env=KNOWN)
    assert outbox(terminal).load() == []


@pytest.mark.parametrize(("hours", "left"), [(24, 1), (25, 0)])
def test_what_is_too_old_for_any_block_is_let_go(terminal: Terminal, rich: Node, hours: int, left: int) -> None:
    real = terminal.public.site
    terminal.public.site = _Between(real, site_of(Fixed((200, b"<html>")), terminal.clock))
    terminal.failure(*SEND, "--yes", env=KNOWN)
    (kept,) = outbox(terminal).load()
    tip_time = kept.transfer.timestamp + hours * 3_600_000
    view = View(params=DEVNET, minimum_fee=1, balance=0, nonce=0, pending_nonce=0, tip_time=tip_time, catching_up=False)
    terminal.public.site = site_of(Fixed((404, b'{"ok":false,"error":"none"}')), terminal.clock)

    async def look(reactor: Any) -> Any:
        place = public_place("http://127.0.0.1:8645")
        node = Asked(terminal.public.agent(reactor), place, clock=terminal.clock)
        return await settle(node, outbox(terminal), kept.transfer.sender, view)

    assert len(terminal.run(look).waiting) == len(outbox(terminal).load()) == left


def test_a_node_that_cannot_say_what_became_of_a_transfer_decides_nothing(terminal: Terminal, rich: Node) -> None:
    real = terminal.public.site
    terminal.public.site = _Between(real, site_of(Fixed((200, b"<html>")), terminal.clock))
    terminal.failure(*SEND, "--yes", env=KNOWN)
    (kept,) = outbox(terminal).load()
    terminal.public.site = real
    rival = terminal.ok("wallet", "send", OTHER, 3, "--nonce", 0, "--yes", "--json", env=KNOWN)
    assert json.loads(rival.out)["state"] == "accepted"
    terminal.ok("node", "mine", 1)
    busy = site_of(Fixed((503, BUSY)), terminal.clock)
    terminal.public.site = _Between(real, busy)
    assert terminal.failure(*SEND, "--yes", env=KNOWN) == "too many requests; try again in 3 s"
    assert kept.transfer.txid in [each.transfer.txid for each in outbox(terminal).load()]


def test_the_outbox_is_the_owner_s_alone_and_damage_is_named(rich: Node, terminal: Terminal) -> None:
    terminal.ok(*SEND, "--yes", env=KNOWN)
    path = outbox(terminal).path
    assert path == terminal.folder / "wallet.json.outbox"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(path.read_bytes()[:50])
    sentence = terminal.failure(*SEND, "--yes", env=KNOWN)
    assert sentence.startswith(f"{path.name} is damaged: not JSON")
    path.write_text('{"format":"svc-outbox-v9","transfers":[]}')
    assert "is no outbox of this svc" in terminal.failure(*SEND, "--yes", env=KNOWN)
    assert len(waiting(rich)) == 1


def test_a_wallet_takes_no_notice_of_another_one_s_transfers(rich: Node, terminal: Terminal, wallet: Path) -> None:
    terminal.ok(*SEND, "--yes", env=KNOWN)
    wallet.unlink()
    terminal.ok("wallet", "new", "--network", "devnet", env=KNOWN)
    assert "no transfer from or to svcd1q" in terminal.ok("wallet", "history").out


# history


def test_history_shows_what_came_in_went_out_and_waits(rich: Node, terminal: Terminal) -> None:
    terminal.ok(*SEND, "--yes", env=KNOWN)
    terminal.ok("wallet", "send", ADDRESS, 1, "--yes", env=KNOWN)
    terminal.ok("node", "mine", 1)
    terminal.ok(*PAY, "--yes", env=KNOWN)
    lines = terminal.ok("wallet", "history").out.splitlines()
    assert lines[0].split() == ["time", "(UTC)", "coins", "from", "or", "to", "reference", "fee", "depth", "txid"]
    cells = [line.split()[2:-1] for line in lines[1:]]
    assert cells[0] == ["-2", OTHER, "order-17", "0.0001", "waits"]
    assert cells[1] == ["0", "itself", "0.0001", "1"]
    assert cells[2] == ["-1", OTHER, "order-18", "0.0001", "1"]
    assert cells[3][0] == "10"
    assert cells[3][-1] == "2"


def test_history_fits_the_terminal(rich: Node, terminal: Terminal) -> None:
    terminal.ok(*SEND, "--yes", env=KNOWN)
    terminal.ok("node", "mine", 1)
    for columns in (100, 80, 40):
        terminal.columns = columns
        lines = terminal.ok("wallet", "history").out.splitlines()
        assert all(len(line) <= max(columns, 76) for line in lines), lines


def test_history_goes_on_where_the_page_before_ended(rich: Node, terminal: Terminal) -> None:
    for _ in range(3):
        terminal.ok("wallet", "send", OTHER, 1, "--yes", env=KNOWN)
    terminal.ok("node", "mine", 1)
    first = json.loads(terminal.ok("wallet", "history", "--limit", 2, "--json").out)
    assert (len(first["transactions"]), first["waiting"], first["otherWaiting"]) == (2, [], 0)
    assert (
        f"older ones: svc wallet history --before {first['next']}" in terminal.ok("wallet", "history", "--limit", 2).out
    )
    rest = json.loads(terminal.ok("wallet", "history", "--before", first["next"], "--json").out)
    assert (len(rest["transactions"]), rest["next"]) == (2, None)
    assert "such as 120-3" in terminal.misuse("wallet", "history", "--before", "x")
    assert "from 1 to 100" in terminal.misuse("wallet", "history", "--limit", "101")


def test_history_names_what_waits_from_elsewhere_and_what_got_no_answer(
    rich: Node, terminal: Terminal, lost: list[int], expected_errors: Any
) -> None:
    lost.append(1)
    terminal.ok("wallet", "send", OTHER, 2, "--yes", env=KNOWN)
    outbox(terminal).path.unlink()
    lost.clear()
    terminal.failure(*SEND, "--yes", env=KNOWN)
    told = terminal.ok("wallet", "history").out
    assert "no answer: repeat the command that sent it" in told
    assert "1 transfer of this address, sent from elsewhere, in no block yet" in told
    (kept,) = json.loads(terminal.ok("wallet", "history", "--json").out)["waiting"]
    assert (kept["state"], kept["amount"], kept["nonce"]) == ("unanswered", str(COIN), "1")
    expected_errors(OSError)


def test_what_the_node_has_lost_is_sent_again(rich: Node, terminal: Terminal) -> None:
    """A power cut may cost a node what it had accepted, and the wallet has it still."""
    sent = json.loads(terminal.ok(*SEND, "--yes", "--json", env=KNOWN).out)
    rich.living.transfers.drop([bytes.fromhex(sent["txid"])])
    (kept,) = json.loads(terminal.ok("wallet", "history", "--json").out)["waiting"]
    assert kept["state"] == "unanswered"
    again = json.loads(terminal.ok(*SEND, "--yes", "--json", env=KNOWN).out)
    assert again["txid"] == sent["txid"], "it is never signed anew"
    assert bytes.fromhex(sent["txid"]) in rich.living.transfers.mempool
    (kept,) = json.loads(terminal.ok("wallet", "history", "--json").out)["waiting"]
    assert kept["state"] == "waiting"
