"""A node with an encrypted block key: unlocked at the start, in three ways; and one that earns and sweeps."""

import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest

from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import DEVNET as RULES
from svcd.chain.signature import public_key_of
from svcd.keyfile import parse, render, seal
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT, RunningNode, free_port, refused, wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]

PASSWORD = "tunnel-vehicle-marble-9"
SEED = bytes(range(7, 39))
ADDRESS = encode_address(key_hash(public_key_of(SEED)), RULES.address_prefix)
VAULT = encode_address(key_hash(public_key_of(bytes(range(8, 40)))), RULES.address_prefix)
SEALED = render(seal(SEED, PASSWORD, params=RULES, random=os.urandom))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with an encrypted key, and beside it a file with the password."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    write(folder / "operator.key", SEALED)
    write(tmp_path / "password", f"{PASSWORD}\n".encode())
    return folder


def write(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def check_secrecy(node: RunningNode) -> None:
    """The password is in no place that others may read."""
    process = Path(f"/proc/{node.process.pid}")
    for name in ("environ", "cmdline"):
        assert PASSWORD.encode() not in (process / name).read_bytes()
    status = node.ok(node.operator("/operator/status"))
    assert status["status"]["participation"]["address"] == ADDRESS
    assert PASSWORD not in node.output + str(status)


def test_a_file(nodes: Nodes, data: Path) -> None:
    node = nodes.start(*DEVNET, f"--set=participation.keyPasswordFile={data.parent}/password")
    check_secrecy(node)
    assert (data / "operator.key").read_bytes() == SEALED


def started(nodes: Nodes, data: Path, inside: tuple[str, ...], *options: str) -> RunningNode:
    """A node whose command begins with ``inside``; the caller stops it."""
    return RunningNode(data, free_port(), *DEVNET, *options, inside=inside).wait_ready()


def test_a_descriptor(nodes: Nodes, data: Path) -> None:
    shell = ("bash", "-c", 'exec "$0" "$@" 7<password')
    node = started(nodes, data, shell, "--key-password-fd=7")
    try:
        check_secrecy(node)
        # Nor can a program that the node starts read it.
        assert "password" not in {
            Path(os.readlink(each)).name for each in Path(f"/proc/{node.process.pid}/fd").iterdir()
        }
        node.stop()
    finally:
        node.kill()


def test_a_credential(nodes: Nodes, data: Path) -> None:
    """As systemd hands it over, with the bits of an ACL in its mode."""
    credentials = data.parent / "credentials"
    credentials.mkdir(mode=0o700)
    path = write(credentials / "svcd.key-password", PASSWORD.encode(), 0o440)
    environment = ("env", f"CREDENTIALS_DIRECTORY={credentials}")
    node = started(nodes, data, environment, f"--set=participation.keyPasswordFile={path}")
    try:
        check_secrecy(node)
        node.stop()
    finally:
        node.kill()


def test_a_terminal(data: Path) -> None:
    """The question appears once, and the answer is not shown."""
    command = [BIN / "twistd", "-n", "--pidfile=", "svcd", *DEVNET, f"--listen=tcp:{free_port()}:interface=127.0.0.1"]
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [*command, f"--data-dir={data}"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=data.parent,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        shown = read_until(master, b"operator.key: ")
        os.write(master, PASSWORD.encode() + b"\n")
        shown += read_until(master, b"listening on")
        assert shown.count(b"Password of ") == 1
        assert PASSWORD.encode() not in shown
    finally:
        process.kill()
        process.wait(DEADLINE)
        os.close(master)


def read_until(descriptor: int, text: bytes) -> bytes:
    shown, give_up_at = b"", time.monotonic() + DEADLINE
    while text not in shown:
        left = give_up_at - time.monotonic()
        assert left > 0, shown
        if select.select([descriptor], [], [], left)[0]:
            shown += os.read(descriptor, 65_536)
    return shown


@pytest.mark.parametrize(
    ("password", "options", "sentence"),
    [
        (
            b"another password",
            ("--set=participation.keyPasswordFile={folder}/password",),
            "svcd: {folder}/data/operator.key: the password does not decrypt the keyfile; if it is right, the file was "
            "changed: restore a copy",
        ),
        (
            None,
            ("--set=participation.keyPasswordFile={folder}/password",),
            '[participation] keyPasswordFile = "{folder}/password": {folder}/password cannot be read: No such file or '
            "directory",
        ),
        (
            None,
            (),
            "svcd: {folder}/data/operator.key is encrypted, and there is no terminal to ask for its password: set "
            "[participation] keyPasswordFile, or give --key-password-fd",
        ),
    ],
)
def test_a_key_that_stays_locked(data: Path, password: bytes | None, options: tuple[str, ...], sentence: str) -> None:
    """One line, and a status after which systemd does not try again; the data directory is as it was."""
    folder = data.parent
    (folder / "password").unlink()
    if password is not None:
        write(folder / "password", password)
    given = [each.format(folder=folder) for each in options]
    done = refused(folder, *DEVNET, f"--data-dir={data}", *given)
    assert done.status == 78
    assert len(done.lines) == 1
    assert sentence.format(folder=folder) in done.sentence
    assert b"another password" not in "".join(done.lines).encode()
    assert [each.name for each in data.iterdir()] == ["operator.key"]


def test_a_descriptor_that_is_no_number(tmp_path: Path) -> None:
    done = refused(tmp_path, *DEVNET, "--key-password-fd=x")
    assert done.sentence == "svcd: --key-password-fd x: must be the number of an open file descriptor, such as 3"
    assert done.status == 1


def test_rewards_are_not_paid_to_the_key_that_earns_them(data: Path) -> None:
    given = (f"--set=participation.keyPasswordFile={data.parent}/password", f"--set=participation.payTo={ADDRESS}")
    done = refused(data.parent, *DEVNET, f"--data-dir={data}", f"--listen=tcp:{free_port()}", *given)
    assert done.sentence == (
        f"svcd: [participation] payTo = {ADDRESS} is the address of this node's own block key: name an address whose "
        "key is not on this computer"
    )
    assert done.status == 1


def test_the_command_line_encrypts_the_key_of_a_node(nodes: Nodes, tmp_path: Path) -> None:
    """While it runs; the next start needs the password, and the address is the same."""
    node = nodes.start()
    address = node.operator("/operator/status").json["status"]["participation"]["address"]
    write(tmp_path / "password", PASSWORD.encode())
    subprocess.run(
        [BIN / "svc", "node", "key", "encrypt", "--network=devnet", "--password-file=password"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=DEADLINE,
    )
    assert parse((node.data_dir / "operator.key").read_bytes()).address == address
    assert (node.data_dir / "operator.key").stat().st_mode & 0o777 == 0o600
    node.mine(1)
    node.stop()
    again = nodes.start(*DEVNET, f"--set=participation.keyPasswordFile={tmp_path}/password")
    again.mine(1)
    assert again.account(address)["balance"] == str(2 * RULES.reward(1))


@pytest.mark.story
def test_a_node_earns_and_sweeps(nodes: Nodes, data: Path) -> None:
    """By the default of devnet: more than 100 coins above the minimum of 10, 60 blocks deep; through kill -9."""
    options = (
        *DEVNET,
        f"--set=participation.keyPasswordFile={data.parent}/password",
        f"--set=participation.payTo={VAULT}",
    )
    node = nodes.start(*options)
    node.mine(65)
    wait_until(lambda: sweep(node)["waitsFor"] is not None and "deep" in sweep(node)["waitsFor"], "a sweep that waits")
    node.mine(2)
    wait_until(lambda: node.measured("svcd_sweep_transfers_total") == 1, "a sweep")
    txid = sweep(node)["lastTxid"]
    (line,) = node.logged("sweeping ")
    assert txid in line["message"]
    node.kill()

    node = nodes.start(*options)
    assert node.measured("svcd_mempool_transactions") == 1
    node.mine(1)
    swept = int(node.account(VAULT)["balance"])
    # Seven rewards were 60 blocks deep.
    assert swept == 7 * RULES.reward(1) - RULES.holding_minimum - RULES.minimum_fee
    assert node.account(ADDRESS)["nonce"] == "1"
    assert node.get(f"/rpc/transaction/{txid}").status == 200
    node.ok(node.operator("/operator/reorganise", {"depth": 5}))
    assert (node.account(VAULT)["balance"], node.measured("svcd_mempool_transactions")) == ("0", 1)
    node.mine(59)
    assert (node.account(ADDRESS)["nonce"], node.account(VAULT)["balance"]) == ("1", str(swept))
    assert node.measured("svcd_sweep_transfers_total") == 0

    node.mine(2)
    wait_until(lambda: node.measured("svcd_sweep_transfers_total") == 1, "the next sweep")
    node.mine(1)
    assert node.account(ADDRESS)["nonce"] == "2"
    assert int(node.account(ADDRESS)["balance"]) >= RULES.holding_minimum


def sweep(node: RunningNode) -> dict[str, str]:
    """The state of the sweeps."""
    found: dict[str, str] = node.ok(node.operator("/operator/status"))["status"]["participation"]["sweep"]
    return found
