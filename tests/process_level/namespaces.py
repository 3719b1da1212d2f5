"""Machines of their own on one link: network namespaces with a node in each. Only root can make them."""

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.process_level.running import DEADLINE, RunningNode

_CLONE_NEWNET = 0x40000000
_HOLD = 'mount --bind "$0" /etc/hosts && ip link set lo up && echo ready && exec cat'
"""Keeps a namespace until its standard input ends, which it does also when the tests are killed."""

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter"))),
    reason="only root can make network namespaces, with iproute2 and util-linux",
)


class Machine:
    """A network namespace, in which /etc/hosts is ``hosts``."""

    def __init__(self, hosts: Path) -> None:
        command = ["unshare", "--net", "--mount", "sh", "-c", _HOLD, hosts]
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"
        self.pid = self._holder.pid
        self.inside: Sequence[str] = ("nsenter", f"--target={self.pid}", "--net", "--mount", "--")
        """What a command begins with to be run there."""

    def run(self, *command: str) -> None:
        """Run a command there; it must succeed."""
        subprocess.run([*self.inside, *command], check=True, timeout=DEADLINE)

    def link(self, other: "Machine") -> None:
        """Connect the two by a cable, which both know as `cable`."""
        self.run("ip", "link", "add", "name", "cable", "type", "veth", "peer", "name", "cable", "netns", str(other.pid))
        for machine in (self, other):
            machine.run("ip", "link", "set", "cable", "up")

    def add_address(self, address: str) -> None:
        """Give it an address with the length of its network, at once usable."""
        nodad = ["nodad"] if ":" in address else []
        self.run("ip", "address", "add", address, "dev", "cable", *nodad)

    @contextmanager
    def sockets(self) -> Iterator[None]:
        """Sockets that this thread makes meanwhile are those of the machine."""
        with open("/proc/thread-self/ns/net") as ours, open(f"/proc/{self.pid}/ns/net") as theirs:
            _enter(theirs.fileno())
            try:
                yield
            finally:
                _enter(ours.fileno())

    def remove(self) -> None:
        """End the namespace, once nothing runs there any more."""
        assert self._holder.stdin is not None
        self._holder.communicate(timeout=DEADLINE)


def _enter(descriptor: int) -> None:
    # Python has os.setns from 3.12 on.
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class NodeOnMachine(RunningNode):
    """A node on a machine of its own, listening at all of its addresses."""

    def __init__(self, machine: Machine, data_dir: Path, port: int, *options: str) -> None:
        self._machine = machine
        super().__init__(data_dir, port, *options, inside=machine.inside, listen=f"tcp6:{port}:interface=\\:\\:")

    def connection(self) -> HTTPConnection:
        """A connection to the public port, by loopback."""
        return _ConnectionOnMachine(self._machine, self.port)


class _ConnectionOnMachine(HTTPConnection):
    def __init__(self, machine: Machine, port: int) -> None:
        super().__init__("::1", port, timeout=DEADLINE)
        self._machine = machine

    def connect(self) -> None:
        with self._machine.sockets():
            self.sock = socket.create_connection((self.host, self.port), DEADLINE)
