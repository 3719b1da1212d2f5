"""`svc node key …`: the block key in an encrypted keyfile."""

import json
import re
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from attrs import evolve

from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import DEVNET, MAINNET, NetworkParams
from svcd.chain.signature import public_key_of
from svcd.keyfile import parse, unseal
from svcd.node.chainstate import Chainstate
from svcd.seed_file import SeedKind, load_or_make, render_seed
from svcd.store.chain_store import ChainWriter
from svcd.store.database import open_writer
from tests.chains import FESTIVAL
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
    load_or_make(folder / "operator.key", SeedKind.BLOCK, lambda _: SEED)
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
    (terminal.folder / "data").mkdir()
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
    assert "data/operator.key must contain two lines, the block key of 64" in terminal.failure(*ENCRYPT)
    (data / "operator.key").write_text(f"{SEED.hex()}\n")
    assert "lacks the second line, the checksum of the key: svc node key import" in terminal.failure(*ENCRYPT)
    (data / "operator.key").write_bytes(render_seed(SEED, SeedKind.BLOCK).replace(b"1", b"2", 1))
    assert "does not have its checksum" in terminal.failure("node", "key", "address")
    (data / "operator.key").unlink()
    assert "data/operator.key cannot be read: no such file or directory" in terminal.failure(*ENCRYPT)


def test_a_new_key(terminal: Terminal, data: Path) -> None:
    assert "exists already and is never overwritten; choose another file with --key-file" in terminal.failure(*NEW)
    record = json.loads(terminal.ok(*NEW, "--key-file", "other.key", "--json").out)
    keyfile = parse((data / "other.key").read_bytes())
    assert record == {"address": keyfile.address, "network": "devnet", "keyFile": "other.key"}
    assert unseal(keyfile, PASSWORD) == bytes(range(32))
    assert keyfile.params == DEVNET


IMPORT = ("node", "key", "import", "--network", "devnet", "--password-file", "password")


@pytest.mark.parametrize("is_checked", [False, True])
def test_a_key_from_paper(terminal: Terminal, is_checked: bool) -> None:
    (terminal.folder / "data").mkdir()
    write_password(terminal)
    digits, checksum = render_seed(SEED, SeedKind.BLOCK).decode().split()
    told = terminal.ok(*IMPORT, typed=f"{digits.upper()} {checksum if is_checked else ''}\n")
    assert f"address   {ADDRESS}" in told.out
    assert digits not in (told.out + told.err).lower()
    assert ("There was no checksum: compare the address" in told.err) is not is_checked
    assert unseal(parse((terminal.folder / "data" / "operator.key").read_bytes()), PASSWORD) == SEED
    assert "exists already and is never overwritten" in terminal.failure(*IMPORT, typed=f"{digits}\n")


def test_a_key_from_a_file_of_digits(terminal: Terminal, data: Path) -> None:
    (data / "operator.key").rename(terminal.folder / "copy")
    words = (*IMPORT, "--from", "copy")
    assert terminal.ok(*words).out.startswith(f"address   {ADDRESS}")
    copy = terminal.folder / "copy"
    copy.write_bytes(copy.read_bytes().replace(b"1", b"2", 1))
    assert terminal.failure(*words, "--key-file", "other.key").startswith("copy has a wrong digit, or the checksum of")
    assert not (data / "other.key").exists()


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


@contextmanager
def running(data: Path, params: NetworkParams) -> Iterator[None]:
    """The chain of a node, which is stopped afterwards."""
    with closing(open_writer(data / "chain.sqlite")) as connection:
        Chainstate(params, ChainWriter(connection)).load()
        yield


@pytest.mark.parametrize("is_stopped", [False, True])
def test_the_network_is_that_of_the_chain(terminal: Terminal, data: Path, is_stopped: bool) -> None:
    with running(data, DEVNET):
        if not is_stopped:
            assert terminal.ok("node", "key", "address").out == f"{ADDRESS}\n"
            terminal.ok("node", "key", "encrypt", "--password-file", "password")
    if is_stopped:
        assert terminal.ok("node", "key", "address").out == f"{ADDRESS}\n"
        terminal.ok("node", "key", "encrypt", "--password-file", "password")
    assert parse((data / "operator.key").read_bytes()).params == DEVNET


@pytest.mark.parametrize("command", ["encrypt", "new"])
def test_another_network_than_that_of_the_chain_is_refused(terminal: Terminal, data: Path, command: str) -> None:
    """The node would refuse the keyfile at its next start."""
    before = (data / "operator.key").read_bytes()
    with running(data, MAINNET):
        words = ("--network", "devnet", "--key-file", "other.key" if command == "new" else "operator.key")
        refusal = terminal.failure("node", "key", command, *words, "--password-file", "password")
    assert "chain.sqlite is of the network mainnet; leave --network out, or name that one" in refusal
    assert (data / "operator.key").read_bytes() == before
    assert not (data / "other.key").exists()


def test_the_chain_of_a_network_that_was_not_named(terminal: Terminal, data: Path) -> None:
    with running(data, evolve(FESTIVAL, allocations=())):
        refusal = terminal.failure("node", "key", "encrypt", "--password-file", "password")
    assert "the network of the node cannot be read from" in refusal
    assert "not begin with the genesis of a known network (svc --network FILE)" in refusal


def test_a_chain_that_cannot_be_read(terminal: Terminal, data: Path) -> None:
    (data / "chain.sqlite").write_bytes(b"no database at all" * 100)
    refusal = terminal.failure("node", "key", "encrypt", "--password-file", "password")
    assert "the network of the node cannot be read from" in refusal
    assert "file is not a database" in refusal
