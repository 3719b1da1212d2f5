"""Ports below 1024: open to a node with the capability for them, and refused to others in one line.

Root without capabilities has the rights of an ordinary user, who may be unable to read the Python of root's here.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.as_root import OWNER, directory_of_root, needs_root
from tests.process_level.conftest import DEVNET
from tests.process_level.running import RunningNode, refused

pytestmark = [pytest.mark.socket, pytest.mark.slow, needs_root]
PORT = 947  # of no service in /etc/services
LISTEN = f"tcp:{PORT}:interface=127.0.0.1"
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
WITH_ONE = [
    "setpriv",
    *(f"--{kind}=-all,+net_bind_service" for kind in ("bounding-set", "inh-caps", "ambient-caps")),
    "--",
]


@pytest.fixture
def folder() -> Iterator[Path]:
    with directory_of_root() as folder:
        yield folder


@pytest.fixture
def options(folder: Path) -> list[str]:
    return [f"--data-dir={folder}/data", f"--listen={LISTEN}", *DEVNET]


def test_the_capability_opens_the_port(folder: Path) -> None:
    node = RunningNode(folder / "data", PORT, *DEVNET, inside=WITH_ONE)
    try:
        status = Path(f"/proc/{node.wait_ready().process.pid}/status").read_text()
        assert "CapEff:\t0000000000000400\n" in status
    finally:
        node.stop()


def test_without_it_the_port_is_refused_in_one_line(folder: Path, options: list[str]) -> None:
    done = refused(folder, *options, inside=WITHOUT_CAPABILITIES)
    assert (done.status, done.sentence) == (1, f"svcd: cannot listen on {LISTEN}: permission denied")


def test_a_working_directory_that_the_user_cannot_read(folder: Path, options: list[str]) -> None:
    """There may be a configuration in it."""
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    os.chown(closed, *OWNER)
    done = refused(closed, *options, inside=WITHOUT_CAPABILITIES)
    assert (done.status, done.lines) == (
        1,
        [
            "svcd: conf/svcd.toml: permission denied; name another file with --config, or start the node in a "
            "directory that its user can read"
        ],
    )
