"""`svc node key …`: the block key in an encrypted keyfile."""

import json
import re
import stat
from pathlib import Path

import pytest

from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import DEVNET
from svcd.chain.signature import public_key_of
from svcd.keyfile import parse, unseal
from svcd.process.datadir import load_or_make
from tests.cli.terminal import Terminal

SEED = bytes(range(1, 33))
PASSWORD = "vehicle marble tunnel sphere"
ADDRESS = encode_address(key_hash(public_key_of(SEED)), "svcd")
ENCRYPT = ("node", "key", "encrypt", "--network", "devnet", "--password-file", "password")
NEW = ("node", "key", "new", "--network", "devnet", "--password-file", "password")


@pytest.fixture
def data(terminal: Terminal) -> Path:
    """The data directory of a node that has started once."""
    folder = terminal.folder / "data"
    folder.mkdir()
    load_or_make(folder / "operator.key", lambda _: SEED)
    write_password(terminal)
    return folder


def write_password(terminal: Terminal, password: str = PASSWORD) -> None:
    path = terminal.folder / "password"
    path.write_text(password)
    path.chmod(0o600)


def test_a_key_is_encrypted_in_its_place(terminal: Terminal, data: Path) -> None:
    told = terminal.ok(*ENCRYPT)
    path = data / "operator.key"
    assert unseal(parse(path.read_bytes()), PASSWORD) == SEED
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in data.iterdir()] == ["operator.key"]
    assert told.out.splitlines()[:3] == [f"address   {ADDRESS}", "network   devnet", "key file  operator.key"]
    assert PASSWORD not in told.out + told.err


def test_an_encrypted_key_is_left_as_it_is(terminal: Terminal, data: Path) -> None:
    terminal.ok(*ENCRYPT)
    before = (data / "operator.key").read_bytes()
    assert "data/operator.key is an encrypted keyfile already" in terminal.failure(*ENCRYPT)
    assert (data / "operator.key").read_bytes() == before


def test_a_password_that_is_refused_changes_nothing(terminal: Terminal, data: Path) -> None:
    before = (data / "operator.key").read_bytes()
    write_password(terminal, "short")
    terminal.failure(*ENCRYPT)
    assert (data / "operator.key").read_bytes() == before


@pytest.mark.parametrize("command", ["encrypt", "new"])
def test_a_password_that_is_guessed_first_is_refused_with_a_suggestion(terminal: Terminal, command: str) -> None:
    refusal = terminal.failure("node", "key", command, "--network", "devnet", typed="aaaaaaaaaaaa\naaaaaaaaaaaa\n")
    assert re.search(
        r"the password repeats the same characters; choose for example six random words:( [a-z]+){6}$", refusal
    ), refusal


def test_a_password_of_a_wallet_in_the_environment_is_not_taken(terminal: Terminal, data: Path) -> None:
    """A key that is encrypted with a password by mistake would be lost."""
    before = (data / "operator.key").read_bytes()
    result = terminal.invoke(*ENCRYPT[:5], env={"SVC_WALLET_PASSWORD": PASSWORD})
    assert result.exit_code == 1
    assert (data / "operator.key").read_bytes() == before


def test_invalid_keys_are_refused(terminal: Terminal, data: Path) -> None:
    (data / "operator.key").write_text("no key\n")
    assert "must contain only a node's key" in terminal.failure(*ENCRYPT)
    (data / "operator.key").unlink()
    assert "data/operator.key cannot be read: no such file or directory" in terminal.failure(*ENCRYPT)


def test_a_new_key(terminal: Terminal, data: Path) -> None:
    assert "exists already and is never overwritten; choose another file with --key-file" in terminal.failure(*NEW)
    record = json.loads(terminal.ok(*NEW, "--key-file", "other.key", "--json").out)
    keyfile = parse((data / "other.key").read_bytes())
    assert record == {"address": keyfile.address, "network": "devnet", "keyFile": "other.key"}
    assert unseal(keyfile, PASSWORD) == bytes(range(32))
    assert keyfile.params == DEVNET


def test_a_folder_that_is_missing(terminal: Terminal) -> None:
    write_password(terminal)
    for words in (NEW, ENCRYPT):
        assert "there is no folder data; give the data directory of a node" in terminal.failure(*words)


def test_the_address_is_shown_without_the_password(terminal: Terminal, data: Path) -> None:
    words = ("node", "key", "address", "--network", "devnet")
    assert terminal.ok(*words).out == f"{ADDRESS}\n"
    terminal.ok(*ENCRYPT)
    assert terminal.ok(*words).out == f"{ADDRESS}\n"
    assert json.loads(terminal.ok(*words, "--json").out) == {"address": ADDRESS, "keyFile": "operator.key"}


def test_a_wallet_opens_it(terminal: Terminal, data: Path) -> None:
    terminal.ok(*ENCRYPT)
    failed = terminal.failure("wallet", "import", "--operator-key", "data/operator.key", "--password-file", "password")
    assert "svc wallet import --from data/operator.key imports it" in failed
    terminal.ok("wallet", "import", "--from", "data/operator.key", "--password-file", "password")
    assert terminal.ok("wallet", "address").out == f"{ADDRESS}\n"
