"""Servers in processes of their own: the node under twistd, and the bare Klein route that it is compared with."""

import itertools
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

DATABASE: Final = "chain.sqlite"
"""Its name in a node's data directory."""
_ROOT: Final = Path(__file__).parent.parent
_TWISTD: Final = str(Path(sys.executable).parent / "twistd")
_START_SECONDS: Final = 300.0
"""Long enough for a node that computes the state tree of 10^7 accounts again."""
_STOP_SECONDS: Final = 120.0


@frozen
class Served:
    """A process that answers at ``url``, which has no slash at the end."""

    process: subprocess.Popen[bytes]
    port: int

    def begin(self) -> None:
        """Give the sign that a fed node waits for."""
        if self.process.stdin is not None:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"

    def peak_bytes(self) -> int:
        """The most that the process has ever had resident."""
        return self._bytes("VmHWM")

    def resident_bytes(self) -> int:
        """What the process has resident now."""
        return self._bytes("VmRSS")

    def _bytes(self, name: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        (kib,) = [line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:")]
        return int(kib) * 1024

    def processor_seconds(self) -> float:
        """The processor time that the process and its children have taken so far."""
        children = [
            file.read_text("ascii").split() for file in Path(f"/proc/{self.process.pid}/task").glob("*/children")
        ]
        ticks = 0
        for pid in (self.process.pid, *itertools.chain(*children)):
            fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(") ")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def node(folder: Path, *settings: str, port: int | None = None) -> Iterator[Served]:
    """``twistd svcd`` on devnet with ``folder`` as its data directory; clients on this machine are under no limit.

    ``settings`` are further ones in the form of ``--set``; peers find the node at the URL where it serves.
    """
    port = port or _free_port()
    command = [_TWISTD, "-n", "--pidfile=", "svcd", "--network=devnet", f"--data-dir={folder}"]
    command += [f"--listen=tcp:{port}:interface=127.0.0.1", "--set=participation.onDemand=true"]
    command += ['--set=limits.exempt=["127.0.0.0/8"]']
    command += [f"--set=http.publicUrl=http://127.0.0.1:{port}", *(f"--set={setting}" for setting in settings)]
    # Not in our own folder: conf/svcd.toml would be read there.
    with running(command, port, log=folder / "node.log", cwd=folder) as served:
        yield served


@contextmanager
def distant_node(folder: Path, *, round_trip: float = 0.0, mbits: float | None = None) -> Iterator[Served]:
    """The same node behind the line of :mod:`benchmarks.slow_link`, at whose end peers find it.

    ``round_trip`` in milliseconds; ``mbits`` in Mbit/s each way, or None for no limit.
    """
    port, target = _free_port(), _free_port()
    command = [sys.executable, "-m", "benchmarks.slow_link", str(port), str(target), f"--round-trip={round_trip}"]
    command += [] if mbits is None else [f"--mbits={mbits}"]
    with (
        running(command, port, log=folder / "line.log", cwd=_ROOT) as line,
        node(folder, f"http.publicUrl={line.url}", port=target),
    ):
        yield line


@contextmanager
def bare(folder: Path) -> Iterator[Served]:
    """The bare Klein route of :mod:`benchmarks.bare`; its output goes to ``folder``."""
    port = _free_port()
    command = [sys.executable, "-m", "benchmarks.bare", str(port)]
    with running(command, port, log=folder / "bare.log", cwd=_ROOT) as served:
        yield served


@contextmanager
def receiver(folder: Path, *, silent: bool = False) -> Iterator[Served]:
    """A merchant's receiver that takes every event, or, ``silent``, one that never answers."""
    port = _free_port()
    command = [sys.executable, "-m", "benchmarks.receiver", str(port), *(["silent"] if silent else [])]
    with running(command, port, log=folder / f"receiver-{port}.log", cwd=_ROOT) as served:
        yield served


@contextmanager
def fed_node(folder: Path, blocks: Path) -> Iterator[Served]:
    """The node of :mod:`benchmarks.fed_node` on the chain in ``folder``; at a sign it takes in the file ``blocks``."""
    port = _free_port()
    command = [sys.executable, "-m", "benchmarks.fed_node", str(folder), str(blocks), str(port)]
    with running(command, port, log=folder / "fed.log", cwd=_ROOT) as served:
        yield served
        # The end of its input ends it, so that its file is closed.
        served.process.communicate(timeout=_STOP_SECONDS)


def closed_port() -> int:
    """A port of this machine that refuses connections."""
    return _free_port()


def _free_port() -> int:
    # Below those that the system gives to outgoing connections, one of which could take it before it is listened on.
    while True:
        port = random.randrange(10_000, 20_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


@contextmanager
def running(command: Sequence[str], port: int, *, log: Path, cwd: Path) -> Iterator[Served]:
    """The process of ``command`` from when it listens on ``port``; its output goes to ``log``, and SIGTERM ends it."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_until_it_answers(process, port, log)
        yield Served(process, port)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > give_up_at:
                end = log.read_text("utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"{process.args!r} does not listen on port {port}; it said:\n{end}") from None
            time.sleep(0.01)
        else:
            return
