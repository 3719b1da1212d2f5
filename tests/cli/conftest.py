"""Fixtures: a terminal with `svc`, and a devnet node behind it."""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from svcd import keyfile as keyfiles
from svcd.chain.params import DEVNET
from tests.cli.terminal import ADDRESS, KEYFILE, Terminal
from tests.rpc.node import Node, Settings

START_SLOT = 20_000


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SVCD_URL", "SVCD_DATA_DIR", "SVC_NETWORK", "SVC_WALLET", "SVC_WALLET_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


stretch = cache(hashlib.pbkdf2_hmac)
fill = cache(keyfiles.hash_secret_raw)


@pytest.fixture(autouse=True)
def _stretched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache PBKDF2 and Argon2id, which are slow on purpose, for the passwords of the tests."""
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", stretch)
    monkeypatch.setattr(keyfiles, "hash_secret_raw", fill)


@pytest.fixture
def clock() -> Clock:
    """A clock far enough after the genesis for every chain of the tests."""
    clock = Clock()
    clock.advance(DEVNET.slot_time(START_SLOT) // 1000)
    return clock


@pytest.fixture
def terminal(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in an empty folder, without a node."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Terminal(folder, clock)


@pytest.fixture
def node(tmp_path: Path, clock: Clock, terminal: Terminal) -> Iterator[Node]:
    """A devnet node behind both interfaces of the terminal."""
    node = Node(tmp_path / "chain.sqlite", clock, Settings(params=DEVNET))
    terminal.public.site = node.public
    terminal.operator.site = node.operator
    yield node
    node.close()


@pytest.fixture
def wallet(terminal: Terminal) -> Path:
    """A devnet keyfile at the default path."""
    path = terminal.folder / "wallet.json"
    path.touch(0o600)
    path.write_bytes(KEYFILE)
    path.chmod(0o600)
    return path


@pytest.fixture
def rich(node: Node, terminal: Terminal, wallet: Path) -> Node:
    """A node on whose chain the wallet has 10 coins."""
    terminal.ok("node", "faucet", ADDRESS, 10)
    terminal.ok("node", "mine", 1)
    return node
