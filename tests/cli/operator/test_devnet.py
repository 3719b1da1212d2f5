"""`svc devnet`: its folder, its secrets, and the arguments of twistd. tests/test_packaging.py runs an installed one."""

import stat
from itertools import count
from pathlib import Path

import pytest

from svcd.tap import Options
from tests.cli.terminal import Terminal


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def options_of(terminal: Terminal) -> Options:
    """What the node gets that the command has started."""
    [arguments] = terminal.twistd_calls
    assert arguments[:3] == ("-n", "--pidfile=", "svcd")
    options = Options()
    options.parseOptions(arguments[3:])
    return options


@pytest.fixture
def terminal(terminal: Terminal) -> Terminal:
    """A terminal with random bytes that differ from call to call."""
    calls = count()
    terminal.random = lambda size: next(calls).to_bytes(size, "big")
    return terminal


def test_the_first_run_makes_a_private_folder_with_two_secrets_and_lets_the_node_say_what_to_do(
    terminal: Terminal,
) -> None:
    assert terminal.ok("devnet", "--port", 18777).out == ""
    greeting = options_of(terminal)["greeting"]
    folder = terminal.folder / "devnet"
    secrets = [folder / "manage-token", folder / "signing-secret"]
    assert [permissions(path) for path in (folder, *secrets)] == [0o700, 0o600, 0o600]
    assert len({path.read_text() for path in secrets}) == 2
    assert all(len(path.read_text()) == 44 for path in secrets)
    assert "http://127.0.0.1:18777/ (Ctrl-C stops it)" in greeting
    assert greeting.endswith(f"export SVCD_URL=http://127.0.0.1:18777 SVCD_DATA_DIR={folder}")


def test_twistd_gets_a_configuration_that_listens_on_loopback_and_calls_nobody(terminal: Terminal) -> None:
    terminal.ok("devnet", "here")
    config = options_of(terminal).config
    assert (config.network, config.data_dir) == ("devnet", terminal.folder / "here")
    assert config.http.listen == "tcp:18645:interface=127.0.0.1"
    assert config.participation.alone
    assert config.participation.on_demand
    assert config.p2p.seeds == ()
    assert config.commerce.problem is None
    assert config.commerce.webhooks.enabled


def test_blocks_come_by_themselves_if_that_is_asked_for(terminal: Terminal) -> None:
    for words, every in (((), 0), (("--every", 10), 10)):
        terminal.ok("devnet", *words)
        options = Options()
        options.parseOptions(terminal.twistd_calls[-1][3:])
        assert options.config.participation.every == every
        assert options.config.participation.only_on_demand == (every == 0)
    assert "0 is not in the range 1<=x<=3600" in terminal.misuse("devnet", "--every", 0)


def test_a_later_run_keeps_the_secrets(terminal: Terminal) -> None:
    terminal.ok("devnet")
    first = (terminal.folder / "devnet" / "manage-token").read_text()
    terminal.ok("devnet")
    assert (terminal.folder / "devnet" / "manage-token").read_text() == first


@pytest.mark.parametrize("name", ["file", "file/devnet"])
def test_a_folder_that_cannot_be_made_is_one_sentence(terminal: Terminal, name: str) -> None:
    (terminal.folder / "file").touch()
    assert terminal.failure("devnet", name).startswith(f"{name} cannot be made: ")
    assert terminal.twistd_calls == []
