"""What stops a node from starting is told in one line, and the exit status is 1; and where a node that starts logs."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from svcd.store.database import connect
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import (
    BIN,
    DEADLINE,
    ENVIRONMENT,
    Refused,
    RunningNode,
    exchange,
    free_port,
    refused,
    wait_until,
)

pytestmark = [pytest.mark.socket, pytest.mark.slow]


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else holds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


@pytest.fixture(scope="module")
def used(make_devnet: Callable[[], RunningNode]) -> Path:
    """The data directory of a devnet that has been stopped, with a chain of 100 blocks."""
    node = make_devnet()
    node.mine(100)
    node.stop()
    return node.data_dir


@pytest.fixture
def copied(used: Path, tmp_path: Path) -> Path:
    """A copy of that directory, to be damaged."""
    target = tmp_path / "data"
    target.mkdir(mode=0o700)
    for file in used.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
        (target / file.name).chmod(0o600)
    return target


def start(data_dir: Path, *options: str) -> Refused:
    """Try to start a devnet on a directory."""
    listen = f"--listen=tcp:{free_port()}:interface=127.0.0.1"
    return refused(data_dir.parent, *DEVNET, f"--data-dir={data_dir}", listen, *options)


def test_the_operator_s_port_in_use(tmp_path: Path, taken: int) -> None:
    done = start(tmp_path / "data", f"--operator-listen=tcp:{taken}:interface=127.0.0.1")
    assert done.sentence == f"svcd: cannot listen on tcp:{taken}:interface=127.0.0.1: address already in use"
    assert done.status == 1


def test_a_bad_configuration(tmp_path: Path) -> None:
    (tmp_path / "svcd.toml").write_text("[participation]\nonDemand = true\n")
    done = refused(tmp_path, "--config=svcd.toml")
    assert (done.status, done.sentence) == (
        1,
        'svcd: svcd.toml: [participation] onDemand = true: works with network = "devnet" only',
    )
    assert [path.name for path in tmp_path.iterdir()] == ["svcd.toml"]


def test_a_node_with_wrong_secrets_of_webhooks_runs_and_is_not_ready(nodes: Nodes) -> None:
    """So a load balancer sends no merchant to it."""
    port = free_port()
    listen = f"--set=operator.healthListen=tcp:{port}:interface=127.0.0.1"
    node = nodes.start(*DEVNET, listen, "--set=commerce.webhooks.enabled=true")
    sentence = "webhooks answer 503: [commerce.webhooks] manageToken must have at least 32 characters and has 0"
    checked = exchange(HTTPConnection("127.0.0.1", port, timeout=DEADLINE), "GET", "/ready")
    for answer in (checked, node.operator("/ready")):
        assert (answer.status, answer.error) == (503, f"not ready: {sentence}")
    assert node.operator("/operator/status").json["status"]["alarms"]["webhooks"] == sentence
    assert node.get("/rpc/status").status == 200


def test_a_second_node_on_the_same_directory(nodes: Nodes) -> None:
    first = nodes.start()
    done = start(first.data_dir)
    assert done.sentence.startswith(f"svcd: the data directory {first.data_dir} is in use by another node")
    assert done.status == 1
    assert first.mine(1)


def spoil_the_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"not a database at all" * 10)


def spoil_the_pages(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(2 * 4096)
        file.write(b"\x00" * (size - 3 * 4096))


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 // 4096 * 4096)


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [spoil_the_header, spoil_the_pages, cut])
def test_a_damaged_database(copied: Path, damage: Callable[[Path], None]) -> None:
    damage(copied / "chain.sqlite")
    done = start(copied)
    assert done.sentence.startswith(f"svcd: {copied}/chain.sqlite cannot be opened as a database: ")
    assert done.sentence.endswith(
        "; try `svc db rebuild`, restore it from a backup, or move it away and the node fetches the chain again"
    )
    assert done.status == 1


def test_a_database_that_cannot_be_opened_is_not_called_damaged(copied: Path) -> None:
    """Its remedy would lose a sound one."""
    make_a_folder(copied / "chain.sqlite")
    done = start(copied)
    assert (done.status, done.sentence) == (
        1,
        f"svcd: {copied}/chain.sqlite cannot be used: unable to open database file; the disk must work and have room, "
        "and the file and its folder must belong to the user that runs the node",
    )


def test_a_database_of_a_newer_program(copied: Path) -> None:
    with connect(copied / "chain.sqlite") as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    done = start(copied)
    assert done.sentence.startswith(f"svcd: {copied}/chain.sqlite was written by a newer svcd (schema 999, ")
    assert done.status == 1


def test_a_database_of_another_network(copied: Path) -> None:
    done = refused(copied.parent, "--network=mainnet", f"--data-dir={copied}", f"--listen=tcp:{free_port()}")
    assert done.sentence == "svcd: the database does not have the chain of SVC-MAINNET: use another data directory"
    assert done.status == 1


@pytest.mark.parametrize("name", ["node.key", "operator.key"])
def test_a_secret_that_others_can_read(copied: Path, name: str) -> None:
    (copied / name).chmod(0o640)
    done = start(copied)
    assert done.sentence == (
        f"svcd: {copied}/{name} can be read by others than its owner: run chmod 600 {copied}/{name}"
    )
    assert done.status == 1


@pytest.mark.parametrize(("name", "kind"), [("node.key", "node key"), ("operator.key", "block key")])
def test_a_key_with_a_changed_digit(copied: Path, name: str, kind: str) -> None:
    """It would be another identity, or another account for the rewards."""
    content = bytearray((copied / name).read_bytes())
    content[20] = ord("0" if content[20] != ord("0") else "1")
    (copied / name).write_bytes(content)
    done = start(copied)
    assert done.sentence == (
        f"svcd: {copied}/{name} is damaged, because the {kind} in it does not have its checksum: restore it, or move "
        "it away for a new key"
    )
    assert done.status == 1


def test_secrets_are_made_for_their_owner_only(nodes: Nodes) -> None:
    node = nodes.start(*DEVNET, f"--operator-listen=tcp:{free_port()}:interface=127.0.0.1")
    modes = {path.name: path.stat().st_mode & 0o777 for path in node.data_dir.iterdir()}
    for name, size in (("node.key", 89), ("operator.key", 89), ("operator.token", 65)):
        assert modes[name] == 0o600
        assert len((node.data_dir / name).read_text()) == size
    assert node.data_dir.stat().st_mode & 0o777 == 0o700


def test_a_socket_is_made_for_its_owner_only(nodes: Nodes) -> None:
    assert nodes.start().socket.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("words", [("-n", "--logfile=twistd.log"), ()], ids=["in the foreground", "as a daemon"])
def test_a_log_file_has_the_configured_form(tmp_path: Path, words: tuple[str, ...]) -> None:
    log, pidfile = tmp_path / "twistd.log", tmp_path / "node.pid"
    endpoint = f"tcp:{free_port()}:interface=127.0.0.1"
    node = [BIN / "twistd", *words, f"--pidfile={pidfile}", "svcd", *DEVNET, "--data-dir=data", f"--listen={endpoint}"]
    with subprocess.Popen([*node, "--set=log.format=json"], cwd=tmp_path, env=ENVIRONMENT) as process:
        try:
            wait_until(lambda: log.exists() and f"listening on {endpoint}" in log.read_text(), "a node that listens")
            os.kill(int(pidfile.read_text()), signal.SIGTERM)
            wait_until(lambda: re.search(r"Server Shut Down\..*\n", log.read_text()) is not None, "the last line")
        finally:
            process.kill()
            if pidfile.exists():
                os.kill(int(pidfile.read_text()), signal.SIGKILL)
    assert not pidfile.exists()
    messages = [json.loads(line)["message"] for line in log.read_text().splitlines()]
    assert "starting up" in messages[0]
    assert messages[-1] == "Server Shut Down."
