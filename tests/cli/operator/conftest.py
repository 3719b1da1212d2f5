"""Fixtures: a devnet chain in a database."""

import shutil
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from svcd.chain.params import DEVNET
from tests.cli.conftest import START_SLOT
from tests.cli.terminal import OTHER, Terminal
from tests.rpc.node import FAUCET, Node, Settings

KNOWN = {"SVC_WALLET_PASSWORD": "twenty-one letters"}


def present() -> Clock:
    """A clock far enough after the genesis for the chain."""
    clock = Clock()
    clock.advance(DEVNET.slot_time(START_SLOT) // 1000)
    return clock


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with 70 blocks, transfers, replaced blocks and two pending transfers."""
    folder = tmp_path_factory.mktemp("made")
    terminal = Terminal(folder, present())
    node = Node(folder / "chain.sqlite", terminal.clock, Settings(params=DEVNET))
    terminal.operator.site, terminal.public.site = node.operator, node.public
    for amount in ("1", "2.5"):
        terminal.ok("node", "faucet", OTHER, amount)
        terminal.ok("node", "mine", 1)
    terminal.ok("node", "mine", 60)
    terminal.ok("node", "reorganise", 3)
    terminal.ok("node", "mine", 5)
    keyfile = ("--keyfile", folder / "wallet.json")
    address = terminal.ok("wallet", "new", "--network", "devnet", *keyfile, env=KNOWN).out.split()[1]
    terminal.ok("node", "faucet", address, "10")
    terminal.ok("node", "mine", 1)
    terminal.ok("wallet", "send", OTHER, 1, "--reference", "order-17", "--yes", *keyfile, env=KNOWN)
    terminal.ok("node", "mine", 1)
    terminal.ok("node", "faucet", OTHER, "4")
    terminal.ok("node", "faucet", FAUCET, "5")
    node.close()
    return folder / "chain.sqlite"


@pytest.fixture
def chain(made: Path, terminal: Terminal) -> Path:
    """A copy of the database, in `data/` of the terminal's folder."""
    folder = terminal.folder / "data"
    folder.mkdir()
    return Path(shutil.copy(made, folder))
