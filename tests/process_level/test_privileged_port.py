"""Ports that only root may open: bound before `twistd --uid` gives up root's rights, and refused to others in one line.

That a node answers there with the rights of another user is part of tests/debian/daemon.py: here that user may be
unable to read the Python of root's. Root without capabilities can, and has the rights of an ordinary user otherwise.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.as_root import OWNER, directory_of_root, needs_root
from tests.process_level.conftest import DEVNET
from tests.process_level.running import ENVIRONMENT, refused

pytestmark = [pytest.mark.socket, pytest.mark.slow, needs_root]
PORT = 947  # of no service in /etc/services
LISTEN = f"tcp:{PORT}:interface=127.0.0.1"
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
BEFORE_THE_START = f"""
import socket, sys
from svcd.tap import Options, makeService
options = Options()
options.parseOptions(sys.argv[1:])
service = makeService(options)
service.privilegedStartService()
try:
    socket.socket().bind(("127.0.0.1", {PORT}))
except OSError as error:
    print(error.strerror)
try:
    socket.create_connection(("127.0.0.1", {PORT}))
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with directory_of_root() as folder:
        yield folder


@pytest.fixture
def options(folder: Path) -> list[str]:
    return [f"--data-dir={folder}/data", f"--listen={LISTEN}", *DEVNET]


def test_the_port_is_bound_before_the_services_start(folder: Path, options: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_THE_START, *options],
        capture_output=True, text=True, timeout=120, check=False, cwd=folder, env=ENVIRONMENT,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "Address already in use\nConnection refused\n"), done.stderr


def test_without_root_the_port_is_refused_in_one_line(folder: Path, options: list[str]) -> None:
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
