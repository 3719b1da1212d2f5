"""The block key in an encrypted keyfile: where its password comes from, and a sentence for all that is wrong."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import DEVNET, MAINNET, NetworkParams, ProducerChange
from svcd.chain.signature import public_key_of
from svcd.composition.block_key import KeyLocked, KeyPassword, unlock
from svcd.config.layers import from_assignment
from svcd.config.loader import load
from svcd.config.network_file import render_network_file
from svcd.config.schema import Config
from svcd.keyfile import render, seal
from svcd.seed_file import SeedKind, render_seed

SEED = bytes(range(32))
SEED_FILE = render_seed(SEED, SeedKind.BLOCK)
PASSWORD = "a long password of the node"
# Few iterations would be refused; sealing takes a quarter of a second.
SEALED = {params.name: render(seal(SEED, PASSWORD, params=params, random=os.urandom)) for params in (MAINNET, DEVNET)}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """An encrypted key for devnet, in the place where the node looks for it."""
    path = tmp_path / "operator.key"
    path.write_bytes(SEALED["devnet"])
    path.chmod(0o600)
    return path


def config(folder: Path, *assignments: str, params: NetworkParams = DEVNET) -> Config:
    given = [f"dataDir={folder}", f"network={params.name}", *assignments]
    return load(overrides=[from_assignment(each) for each in given])


def source(
    *, descriptor: int | None = None, prompt: Callable[[str], str] | None = None, credentials: Path | None = None
) -> KeyPassword:
    environment = {} if credentials is None else {"CREDENTIALS_DIRECTORY": str(credentials)}
    return KeyPassword(descriptor, environment, prompt)


def pipe_with(content: bytes) -> int:
    """A descriptor from which ``content`` can be read; to be closed by the reader."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return reading


def password_file(folder: Path, content: str = PASSWORD + "\n", mode: int = 0o600) -> Path:
    path = folder / "password"
    path.write_text(content)
    path.chmod(mode)
    return path


def refusal(config: Config, source: KeyPassword) -> str:
    with pytest.raises(KeyLocked) as locked:
        unlock(config, source)
    assert PASSWORD not in str(locked.value)
    # Of the exceptions before it, a log would show the text, too.
    assert locked.value.__suppress_context__ or locked.value.__context__ is None
    return str(locked.value)


def test_the_key_of_a_network_in_a_file(tmp_path: Path, key_file: Path) -> None:
    own = evolve(MAINNET, name="festival", network_id=4711, chain_id="FESTIVAL", address_prefix="fest")
    (tmp_path / "festival.toml").write_text(render_network_file(own))
    settings = config(tmp_path, f"network={tmp_path}/festival.toml")
    told = refusal(settings, source())
    assert (
        f"the key is for devnet and the node for festival: make a key with svc node key new --network {tmp_path}"
        in told
    )
    key_file.write_bytes(render(seal(SEED, PASSWORD, params=own, random=os.urandom)))
    assert unlock(settings, source(descriptor=pipe_with(PASSWORD.encode()))) == SEED
    assert refusal(config(tmp_path), source()) == (
        f"{key_file}: the key is for another network, whose genesis hash is {own.genesis_hash.hex()}, and the node for "
        "devnet: make a key with svc node key new --network devnet"
    )


@pytest.mark.parametrize("listed", ["from the beginning", "by a change"])
def test_a_producer_of_a_network_in_a_file_may_have_made_the_key_before_the_file(
    tmp_path: Path, key_file: Path, listed: str
) -> None:
    own = evolve(MAINNET, name="festival", network_id=4711, chain_id="FESTIVAL", address_prefix="fest")
    one, other = (encode_address(key_hash(public_key_of(seed)), "fest") for seed in (SEED, bytes(32)))
    changes = (ProducerChange(height=9, producers=(one,)),) if listed == "by a change" else ()
    own = evolve(own, producers=(other,) if changes else (one, other), changes=changes)
    (tmp_path / "festival.toml").write_text(render_network_file(own))
    settings = config(tmp_path, f"network={tmp_path}/festival.toml")
    assert unlock(settings, source(descriptor=pipe_with(PASSWORD.encode()))) == SEED
    (tmp_path / "festival.toml").write_text(render_network_file(evolve(own, producers=(other,), changes=())))
    assert "the key is for devnet and the node for festival" in refusal(
        config(tmp_path, f"network={tmp_path}/festival.toml"), source()
    )


def test_a_descriptor(tmp_path: Path, key_file: Path) -> None:
    descriptor = pipe_with(PASSWORD.encode() + b"\n")
    assert unlock(config(tmp_path), source(descriptor=descriptor)) == SEED
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_file(tmp_path: Path, key_file: Path) -> None:
    password_file(tmp_path)
    assert unlock(config(tmp_path, "participation.keyPasswordFile=password"), source()) == SEED


def test_a_credential_of_systemd_may_show_its_acl_as_group_bits(tmp_path: Path, key_file: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    path = password_file(folder, mode=0o440)
    settings = config(tmp_path, f"participation.keyPasswordFile={path}")
    assert unlock(settings, source(credentials=folder)) == SEED
    assert refusal(settings, source()).endswith(f"{path} is open to others (mode 0440); run: chmod 600 {path}")


def test_a_prompt(tmp_path: Path, key_file: Path) -> None:
    asked: list[str] = []

    def prompt(question: str) -> str:
        asked.append(question)
        return PASSWORD

    assert unlock(config(tmp_path), source(prompt=prompt)) == SEED
    assert asked == [f"Password of {key_file}: "]


def test_a_descriptor_comes_first_and_then_the_file(tmp_path: Path, key_file: Path) -> None:
    def never(_: str) -> str:
        raise AssertionError

    password_file(tmp_path)
    settings = config(tmp_path, "participation.keyPasswordFile=password")
    assert unlock(settings, source(prompt=never)) == SEED
    password_file(tmp_path, "another password")
    assert unlock(settings, source(prompt=never, descriptor=pipe_with(PASSWORD.encode()))) == SEED


def test_a_key_that_is_not_encrypted_needs_no_password(tmp_path: Path) -> None:
    assert unlock(config(tmp_path), source()) is None
    path = tmp_path / "operator.key"
    path.write_bytes(SEED_FILE)
    path.chmod(0o600)
    assert unlock(config(tmp_path), source()) is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            SEED_FILE.decode(),
            "which is not encrypted: run svc node key encrypt, or set no password",
        ),
        (None, "which is not a key file: run svc node key new, or set no password"),
    ],
)
def test_a_password_for_a_key_that_is_not_encrypted_is_refused(
    tmp_path: Path, content: str | None, sentence: str
) -> None:
    """The operator believes that the key is encrypted, and it is not."""
    if content is not None:
        (tmp_path / "operator.key").write_text(content)
        (tmp_path / "operator.key").chmod(0o600)
    told = refusal(config(tmp_path, "participation.keyPasswordFile=password"), source())
    assert told == f"a password is set for {tmp_path}/operator.key, {sentence}"


def test_a_wrong_password(tmp_path: Path, key_file: Path) -> None:
    told = refusal(config(tmp_path), source(prompt=lambda _: "a wrong password"))
    assert told.startswith(f"{key_file}: the password does not decrypt the keyfile")
    assert "a wrong password" not in told


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the file must have one line and contain only the password"),
        (b"\n", "the file must have one line and contain only the password"),
        (b"two\nlines\n", "the file must have one line and contain only the password"),
        (b"\xff\n", "the file must be UTF-8 text; the byte at offset 0 is not"),
        (b"x" * 4097, "more than 4096 bytes; give the password"),
    ],
)
def test_a_descriptor_without_a_password(tmp_path: Path, key_file: Path, content: bytes, sentence: str) -> None:
    descriptor = pipe_with(content)
    told = refusal(config(tmp_path), source(descriptor=descriptor))
    assert told == f"--key-password-fd {descriptor}: {sentence}"


def test_a_descriptor_that_is_not_open(tmp_path: Path, key_file: Path) -> None:
    assert refusal(config(tmp_path), source(descriptor=9_999)) == (
        "--key-password-fd 9999 cannot be read: Bad file descriptor; open it for the node, such as 9999<password-file "
        "in a shell"
    )


def test_a_file_that_is_missing(tmp_path: Path, key_file: Path) -> None:
    told = refusal(config(tmp_path, "participation.keyPasswordFile=none"), source())
    assert told == (
        f'[participation] keyPasswordFile = "none": {tmp_path}/none cannot be read: No such file or directory'
    )


def test_without_a_terminal(tmp_path: Path, key_file: Path) -> None:
    assert refusal(config(tmp_path), source()) == (
        f"{key_file} is encrypted, and there is no terminal to ask for its password: set [participation] "
        "keyPasswordFile, or give --key-password-fd"
    )


def test_no_answer(tmp_path: Path, key_file: Path) -> None:
    def prompt(_: str) -> str:
        raise EOFError

    assert refusal(config(tmp_path), source(prompt=prompt)) == f"{key_file} is encrypted, and no password was given"


def test_a_key_of_another_network(tmp_path: Path, key_file: Path) -> None:
    key_file.write_bytes(SEALED["mainnet"])
    assert refusal(config(tmp_path), source(prompt=lambda _: PASSWORD)) == (
        f"{key_file}: the key is for mainnet and the node for devnet: make a key with svc node key new --network devnet"
    )


def test_a_damaged_key(tmp_path: Path, key_file: Path) -> None:
    key_file.write_bytes(SEALED["devnet"][:-3])
    assert re.match(f"{key_file}: not a keyfile, or a damaged one: ", refusal(config(tmp_path), source()))


def test_a_key_that_others_can_read_is_left_to_the_start(tmp_path: Path, key_file: Path) -> None:
    """Which refuses it with its own sentence (tests/process_level/test_starting.py)."""
    key_file.chmod(0o644)
    assert unlock(config(tmp_path), source()) is None
