"""Making a wallet and paying with it, against a real node; a file that stands in the way; a person who says no."""

import json
import stat
from pathlib import Path

import pytest

from svcd.chain.params import DEVNET
from svcd.chain.transaction import parse_transfer
from svcd.node.seedfile import load_or_make
from svcd.wallet.derivation import new_words, seed_of_words
from svcd.wallet.keyfile import parse, unseal
from tests.chains import address_of
from tests.rpc.node import Node, Settings
from tests.wallet.conftest import START_SLOT
from tests.wallet.terminal import ADDRESS, KEYFILE, OTHER, PASSWORD, Fixed, Terminal, site_of

KNOWN = {"SVC_WALLET_PASSWORD": PASSWORD}
WORDS = new_words(lambda size: bytes(range(size)))
"""Those that the terminal's randomness gives."""


pytestmark = pytest.mark.usefixtures("stretched_once")


# new


def test_new_writes_a_keyfile_for_the_owner_alone(terminal: Terminal) -> None:
    told = terminal.ok("wallet", "new", "--network", "devnet", typed="ten letters\nten letters\n")
    path = terminal.folder / "wallet.json"
    keyfile = parse(path.read_bytes())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert unseal(keyfile, "ten letters") == seed_of_words(WORDS)
    assert keyfile.address in told.out
    assert "Keep a copy" in told.out


def test_new_shows_no_words_where_nobody_sits(terminal: Terminal) -> None:
    told = terminal.ok("wallet", "new", env=KNOWN)
    assert "the 24 words were shown to nobody, since this is no terminal (--words-to writes them to a file)" in told.out
    assert " ".join(WORDS[:2]) not in told.out + told.err
    assert f"1 {WORDS[0]}" not in told.err


def test_new_shows_the_words_once_and_asks_for_two_of_them(terminal: Terminal) -> None:
    terminal.attended = True
    told = terminal.ok("wallet", "new", env=KNOWN, typed=f"wrong\n{WORDS[0]}\n {WORDS[2].upper()} \n")
    assert all(f"{place:>2} {word}" in told.err for place, word in enumerate(WORDS, 1))
    assert "They are shown this once" in told.err
    assert "That is not word 1; look at what you wrote down" in told.err
    assert "Type word 3 from your paper" in told.err
    assert not any(f"{place:>2} {word}" in told.out for place, word in enumerate(WORDS, 1))
    assert "Keep the words, or a copy of the keyfile and the password" in told.out
    keyfile = parse((terminal.folder / "wallet.json").read_bytes())
    assert unseal(keyfile, PASSWORD) == seed_of_words(WORDS)


def test_no_keyfile_is_written_before_the_words_are_on_paper(terminal: Terminal) -> None:
    terminal.attended = True
    result = terminal.invoke("wallet", "new", env=KNOWN, typed=f"{WORDS[0]}\nwrong\n")
    assert result.exit_code == 1
    assert result.stderr.endswith("Aborted!\n")
    assert list(terminal.folder.iterdir()) == []


def test_new_writes_the_words_to_a_file_of_the_owner_s_alone(terminal: Terminal) -> None:
    terminal.attended = True
    told = terminal.ok("wallet", "new", "--words-to", "words", env=KNOWN)
    path = terminal.folder / "words"
    assert path.read_text() == " ".join(WORDS) + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "The 24 words are in words: move it to a safe place" in told.out
    (terminal.folder / "wallet.json").unlink()
    sentence = "words exists already and is never written over; choose another file with --words-to"
    assert terminal.failure("wallet", "new", "--words-to", "words", env=KNOWN) == sentence
    assert not (terminal.folder / "wallet.json").exists()


# import


def test_import_by_words_that_are_typed(terminal: Terminal) -> None:
    typed = f"{' '.join(WORDS)}\nten letters\nten letters\n"
    told = json.loads(terminal.ok("wallet", "import", "--words", "--network", "devnet", "--json", typed=typed).out)
    keyfile = parse((terminal.folder / "wallet.json").read_bytes())
    assert told == {"address": keyfile.address, "network": "devnet", "keyfile": "wallet.json"}
    assert unseal(keyfile, "ten letters") == seed_of_words(WORDS)


def test_import_by_words_in_a_file_gives_the_wallet_that_new_made(terminal: Terminal) -> None:
    made = terminal.ok("wallet", "new", "--words-to", "words", "--json", env=KNOWN).out
    again = terminal.ok("wallet", "import", "--words-from", "words", "--keyfile", "again.json", "--json", env=KNOWN).out
    assert json.loads(again)["address"] == json.loads(made)["address"]


def test_import_refuses_words_that_are_wrong_or_open_to_others(terminal: Terminal) -> None:
    path = terminal.folder / "words"
    path.write_text(" ".join(WORDS[:23]))
    assert terminal.failure("wallet", "import", "--words-from", "words", env=KNOWN).startswith(
        "words is open to others"
    )
    path.chmod(0o600)
    sentence = terminal.failure("wallet", "import", "--words-from", "words", env=KNOWN)
    assert sentence == "a wallet has 24 words, and here are 23; write them with blanks between them"
    path.write_bytes("ä".encode())
    assert "in ASCII, alone" in terminal.failure("wallet", "import", "--words-from", "words", env=KNOWN)
    assert [path.name for path in terminal.folder.iterdir()] == ["words"]


def test_import_takes_a_keyfile_that_the_password_opens(terminal: Terminal, wallet: Path) -> None:
    wallet.rename(terminal.folder / "browser.json")
    words = ("wallet", "import", "--from", "browser.json")
    assert terminal.failure(*words, typed="another password\n").startswith("the password does not open")
    assert terminal.failure(*words, "--network", "mainnet", env=KNOWN) == (
        "browser.json is a keyfile of devnet; for mainnet, import its words"
    )
    assert not wallet.exists()
    terminal.ok(*words, env=KNOWN)
    assert wallet.read_bytes() == KEYFILE


def test_import_takes_the_key_that_a_node_is_paid_with(terminal: Terminal) -> None:
    seed = bytes(range(32))
    load_or_make(terminal.folder / "operator.key", lambda _: seed)
    words = ("wallet", "import", "--operator-key", "operator.key", "--network", "devnet")
    terminal.ok(*words, typed="ten letters\nten letters\n")
    keyfile = parse((terminal.folder / "wallet.json").read_bytes())
    assert (unseal(keyfile, "ten letters"), keyfile.params) == (seed, DEVNET)


@pytest.mark.parametrize("content", ["", "ab" * 31, "AB" * 32, "ab" * 32 + "\nab", " " + "ab" * 32])
def test_import_refuses_what_is_no_key_of_a_node(terminal: Terminal, content: str) -> None:
    path = terminal.folder / "operator.key"
    path.write_text(content)
    words = ("wallet", "import", "--operator-key", "operator.key")
    assert terminal.failure(*words, env=KNOWN).startswith("operator.key is open to others")
    path.chmod(0o600)
    assert "a key of a node" in terminal.failure(*words, env=KNOWN)
    assert [each.name for each in terminal.folder.iterdir()] == ["operator.key"]


def test_import_wants_one_source_and_a_free_place(terminal: Terminal, wallet: Path) -> None:
    sentence = "give one of --words, --words-from FILE, --from FILE and --operator-key FILE"
    assert terminal.misuse("wallet", "import") == sentence
    assert terminal.misuse("wallet", "import", "--words", "--from", "x") == sentence
    assert "wallet.json exists already" in terminal.failure("wallet", "import", "--words")


# export


def test_export_prints_or_copies_the_keyfile(terminal: Terminal, wallet: Path) -> None:
    told = terminal.ok("wallet", "export")
    assert told.out.encode() == KEYFILE
    assert "The 24 words cannot be shown again" in told.err
    described = {"address": ADDRESS, "network": "devnet", "keyfile": "copy.json"}
    assert json.loads(terminal.ok("wallet", "export", "--to", "copy.json", "--json").out) == described
    copy = terminal.folder / "copy.json"
    assert (copy.read_bytes(), stat.S_IMODE(copy.stat().st_mode)) == (KEYFILE, 0o600)
    sentence = "copy.json exists already and is never written over; choose another file with --to"
    assert terminal.failure("wallet", "export", "--to", "copy.json") == sentence


def test_new_makes_mainnet_keys_unless_told(terminal: Terminal) -> None:
    told = json.loads(terminal.ok("wallet", "new", "--keyfile", "mine.json", "--json", env=KNOWN).out)
    assert told["network"] == "mainnet"
    assert told["address"].startswith("svc1q")
    assert told["keyfile"] == "mine.json"
    assert parse((terminal.folder / "mine.json").read_bytes()).address == told["address"]


def test_new_never_writes_over_a_file(terminal: Terminal, wallet: Path) -> None:
    sentence = "wallet.json exists already and is never written over; choose another file with --keyfile"
    assert terminal.failure("wallet", "new", env=KNOWN) == sentence
    assert wallet.read_bytes() == KEYFILE


def test_new_asks_for_a_longer_password(terminal: Terminal) -> None:
    sentence = "the password has 5 characters; choose one of at least 10"
    assert terminal.failure("wallet", "new", env={"SVC_WALLET_PASSWORD": "short"}) == sentence
    assert terminal.failure("wallet", "new", typed="short\nshort\n") == sentence
    assert list(terminal.folder.iterdir()) == []


def test_new_asks_again_when_the_two_passwords_differ(terminal: Terminal) -> None:
    typed = "ten letters\nother letters\nten letters\nten letters\n"
    assert "do not match" in terminal.ok("wallet", "new", typed=typed).err
    unseal(parse((terminal.folder / "wallet.json").read_bytes()), "ten letters")


def test_new_knows_the_networks(terminal: Terminal) -> None:
    assert "'mainnet', 'devnet'" in terminal.misuse("wallet", "new", "--network", "testnet")


# address


def test_address_needs_no_password(terminal: Terminal, wallet: Path) -> None:
    assert terminal.ok("wallet", "address").out == f"{ADDRESS}\n"
    described = {"address": ADDRESS, "network": "devnet", "keyfile": "wallet.json"}
    assert json.loads(terminal.ok("wallet", "address", "--json").out) == described


def test_the_keyfile_may_come_from_the_environment(terminal: Terminal, wallet: Path) -> None:
    wallet.rename(terminal.folder / "other.json")
    assert terminal.ok("wallet", "address", env={"SVC_WALLET": "other.json"}).out == f"{ADDRESS}\n"


def test_a_missing_or_damaged_keyfile_is_named(terminal: Terminal, wallet: Path) -> None:
    wallet.write_bytes(KEYFILE[:100])
    assert terminal.failure("wallet", "address").startswith("wallet.json: not a keyfile, or a damaged one: not JSON")
    sentence = "gone.json cannot be read: no such file or directory"
    assert terminal.failure("wallet", "address", "--keyfile", "gone.json") == sentence


# send


def test_send_shows_asks_signs_and_sends(rich: Node, terminal: Terminal) -> None:
    told = terminal.ok("wallet", "send", OTHER, "2.5", "--reference", "order-17", typed=f"y\n{PASSWORD}\n")
    shown = [line.split(maxsplit=1) for line in told.err.splitlines()]
    for row in (
        ["from", ADDRESS],
        ["recipient", OTHER],
        ["amount", "2.5 coins"],
        ["reference", "order-17"],
        ["fee", "0.0001 coins"],
        ["total", "2.5001 coins"],
        ["balance", "after  7.4999 coins"],
    ):
        assert row in shown
    txid = told.out.split()[1]
    terminal.ok("node", "mine", 1)
    record = json.loads(terminal.ok("tx", txid, "--json").out)
    assert record["payload"] == {"amount": "250000000", "paymentReference": "order-17", "recipient": OTHER}
    assert record["timestamp"] == str(int(terminal.clock.seconds() * 1000))


def test_send_as_json(rich: Node, terminal: Terminal) -> None:
    sent = json.loads(terminal.ok("wallet", "send", OTHER, 1, "--yes", "--json", env=KNOWN).out)
    assert sent.pop("txid") in {entry.transfer.txid.hex() for entry in rich.living.transfers.mempool.entries()}
    assert sent == {
        "state": "accepted",
        "sender": ADDRESS,
        "recipient": OTHER,
        "amount": "100000000",
        "fee": "10000",
        "nonce": "0",
    }


def test_a_second_transfer_takes_the_next_nonce(rich: Node, terminal: Terminal) -> None:
    for nonce in ("0", "1"):
        sent = json.loads(terminal.ok("wallet", "send", OTHER, 1, "--yes", "--json", env=KNOWN).out)
        assert sent["nonce"] == nonce


def test_fee_and_nonce_are_the_user_s_to_say(rich: Node, terminal: Terminal) -> None:
    words = ("wallet", "send", OTHER, 1, "--fee", "0.5", "--nonce", 3, "--yes", "--json")
    sent = json.loads(terminal.ok(*words, env=KNOWN).out)
    assert (sent["fee"], sent["nonce"]) == ("50000000", "3")


@pytest.mark.parametrize("typed", ["n\n", "\n"])
def test_nothing_is_signed_without_a_yes(rich: Node, terminal: Terminal, typed: str) -> None:
    sentence = terminal.failure("wallet", "send", OTHER, 1, typed=typed, env=KNOWN)
    assert sentence == "nothing was signed and nothing was sent, as you wish"
    assert len(rich.living.transfers.mempool) == 0


def test_no_answer_at_all_is_no_yes(rich: Node, terminal: Terminal) -> None:
    result = terminal.invoke("wallet", "send", OTHER, 1, env=KNOWN)
    assert result.exit_code == 1
    assert result.stderr.endswith("Aborted!\n")
    assert len(rich.living.transfers.mempool) == 0


def test_a_wrong_password_sends_nothing(rich: Node, terminal: Terminal) -> None:
    sentence = terminal.failure("wallet", "send", OTHER, 1, typed="y\nanother password\n")
    assert sentence.startswith("the password does not open the keyfile")
    assert len(rich.living.transfers.mempool) == 0


def test_the_password_may_come_from_a_file(rich: Node, terminal: Terminal) -> None:
    secret = terminal.folder / "password"
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    terminal.ok("wallet", "send", OTHER, 1, "--yes", "--password-file", "password")
    assert len(rich.living.transfers.mempool) == 1


def test_too_little_money_is_told_before_the_question(rich: Node, terminal: Terminal) -> None:
    assert terminal.failure("wallet", "send", OTHER, 10) == (
        "the balance of 10 coins is short by 0.0001 coins: the amount is 10 coins, the fee 0.0001 coins"
    )


def test_what_the_node_refuses_is_told_in_its_words(rich: Node, terminal: Terminal) -> None:
    sentence = terminal.failure("wallet", "send", OTHER, 1, "--nonce", 17, "--yes", env=KNOWN)
    assert "nonce" in sentence
    assert "may have been sent" not in sentence


def test_a_recipient_of_another_network_is_refused(rich: Node, terminal: Terminal) -> None:
    sentence = terminal.failure("wallet", "send", address_of("alice", "svc"), 1)
    assert sentence == "recipient must be an address of this network: 44 characters that begin with svcd1q"


def test_a_wallet_of_another_network_is_refused(node: Node, terminal: Terminal) -> None:
    terminal.ok("wallet", "new", env=KNOWN)
    assert terminal.failure("wallet", "send", OTHER, 1).startswith(
        "the wallet is of mainnet and the node is on devnet; choose another with --keyfile"
    )


def test_a_node_that_catches_up_makes_a_warning(tmp_path: Path, terminal: Terminal, wallet: Path) -> None:
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
    assert unread.endswith("may not know that this order is paid; wait, or leave --yes out")


def test_arguments_are_judged_before_anything_is_asked(terminal: Terminal, wallet: Path) -> None:
    assert "wrong checksum" in terminal.misuse("wallet", "send", OTHER[:-1] + "q", 1)
    assert "decimal such as" in terminal.misuse("wallet", "send", OTHER, "1,5")
    assert "paymentReference must be 1 to 64" in terminal.misuse("wallet", "send", OTHER, 1, "--reference", "a b")
    assert "'--fee'" in terminal.misuse("wallet", "send", OTHER, 1, "--fee", "0")
    assert "'--nonce'" in terminal.misuse("wallet", "send", OTHER, 1, "--nonce", "first")


# What happens on the way


def canned(**changed: object) -> Fixed:
    """A devnet node on which the wallet has 10 coins, with some answers or members of the status changed."""
    present = str(DEVNET.slot_time(START_SLOT))
    account = {"address": ADDRESS, "balance": "1000000000", "nonce": "0", "pendingNonce": "0", "heldSince": None}
    named = {"chainId": DEVNET.chain_id, "networkId": 2, "genesisHash": DEVNET.genesis_hash.hex()}
    members: dict[str, object] = {
        "status": {**named, "syncState": "synced", "time": present, "slot": str(START_SLOT)},
        "consensus": {**named, "minimumFee": "10000"},
        ADDRESS: account,
        **changed,
    }
    wrapped = {name: {"ok": True, "account" if name == ADDRESS else name: value} for name, value in members.items()}
    return Fixed(**{name: (200, json.dumps(value).encode()) for name, value in wrapped.items()})


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((500, b'{"ok":false,"error":"it failed"}'), "it failed."),
        ((200, b"<html>"), "http://127.0.0.1:8645 does not answer as an svcd node does (HTTP status 200)."),
        ((200, None), "http://127.0.0.1:8645 did not answer within 30 s."),
        ((200, b'{"ok":true,"txid":"abc","state":"accepted"}'), "the node gives another txid, abc."),
        (
            (200, b'{"ok":true}'),
            "the node does not answer as svcd does: the answer lacks the field txid.",
        ),
    ],
)
def test_a_transfer_that_may_have_arrived_is_named(
    terminal: Terminal, wallet: Path, answer: tuple[int, bytes | None], sentence: str
) -> None:
    resource = canned()
    resource.by_path["broadcast"] = answer
    terminal.public.site = site_of(resource, terminal.clock)
    told = terminal.failure("wallet", "send", OTHER, 1, "--yes", env=KNOWN)
    path, body = resource.seen[-1]
    sent = parse_transfer(json.loads(body)["transaction"], DEVNET)
    assert path == b"/rpc/broadcast"
    assert told == (
        f"{sentence} The transfer {sent.txid.hex()} may have been sent all the same: repeat the command, and the"
        " same signed transfer is sent again, which can be paid once only"
    )


def test_a_transfer_that_the_node_refuses_was_not_sent(terminal: Terminal, wallet: Path) -> None:
    resource = canned()
    resource.by_path["broadcast"] = (400, b'{"ok":false,"error":"the pool is full"}')
    terminal.public.site = site_of(resource, terminal.clock)
    assert terminal.failure("wallet", "send", OTHER, 1, "--yes", env=KNOWN) == "the pool is full"


@pytest.mark.parametrize("seconds", [301, -301])
def test_clocks_that_differ_are_told_before_the_question(terminal: Terminal, wallet: Path, seconds: int) -> None:
    status = json.loads(canned().by_path["status"][1] or b"")["status"]
    status["time"] = str(DEVNET.slot_time(START_SLOT) + 1000 * seconds)
    terminal.public.site = site_of(canned(status=status), terminal.clock)
    assert terminal.failure("wallet", "send", OTHER, 1) == (
        "this computer's clock and the node's are 301 s apart; set the clock that is wrong: up to 300 s are accepted"
    )


def test_an_answer_without_what_is_needed_is_told(terminal: Terminal, wallet: Path) -> None:
    terminal.public.site = site_of(canned(consensus={}), terminal.clock)
    assert terminal.failure("wallet", "send", OTHER, 1) == (
        "the node does not answer as svcd does: consensus lacks the field genesisHash"
    )
