"""A node as systemd runs it: the unit's command, a passed port, a notify socket, credentials, a read-only system."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.net.certificates import make_authority
from tests.process_level.pages import ROOT
from tests.process_level.running import BIN, DEADLINE, LocalConnection, exchange

UNIT = (ROOT / "systemd" / "svcd.service").read_text(encoding="utf-8")
SOCKET = (ROOT / "systemd" / "svcd.socket").read_text(encoding="utf-8")
TOKEN, SECRET = "token-of-the-manager-0123456789abcd", "secret-that-signs-callbacks-0123456"
WATCHDOG_SECONDS = 0.5

_ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execvp(sys.argv[2], sys.argv[2:])
"""
# ProcSubset=pid, and what ProtectSystem=strict leaves writable: the state directory.
_CONFINE = (
    "mount --make-rprivate / && mount -t proc -o subset=pid proc /proc && "
    'mount --bind "$0" "$0" && mount -o bind,remount,ro / && exec "$@"'
)


def setting(text: str, name: str) -> list[str]:
    """The values of a key of a unit."""
    return re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)


def can_confine() -> bool:
    """Whether this machine lets a test make the system read-only for one process."""
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", _CONFINE, tempfile.gettempdir(), "true"], capture_output=True, check=False
    )
    return tried.returncode == 0


class Service:
    """What systemd holds for a service over its restarts: the port, the notify socket, the directories."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self._credentials = folder / "credentials"
        self._config = folder / "svcd.toml"
        for made in (self.state, self._credentials):
            made.mkdir(mode=0o700)
        self.log = folder / "journal"
        self.port = socket.create_server(("127.0.0.1", 0), backlog=int(setting(SOCKET, "Backlog")[0]))
        self._notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notices.bind(str(folder / "notify"))
        self.received: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self._configure()

    def _configure(self) -> None:
        for name, text in zip(setting(UNIT, "LoadCredential"), (TOKEN, SECRET), strict=True):
            file = self._credentials / name
            file.write_text(f"{text}\n")
            file.chmod(0o400)
        authority = self._config.with_name("ca.pem")
        authority.write_bytes(make_authority("A merchant's own authority").pem)
        # The lines that the unit's comment tells the operator to write.
        files = re.findall(r"^#   (\w+File = .*)$", UNIT, re.MULTILINE)
        lines = ['network = "devnet"', "[participation]", "onDemand = true", "[commerce.webhooks]", "enabled = true"]
        lines += [*files, f'extraCaFile = "{authority}"']
        text = "\n".join(lines).replace("/run/credentials/svcd.service", str(self._credentials))
        self._config.write_text(text + "\n")

    def command(self) -> list[str]:
        """The unit's command with this machine's places."""
        (line,) = setting(UNIT, "ExecStart")
        environment = dict(value.split("=", 1) for value in setting(UNIT, "Environment"))
        environment["STATE_DIRECTORY"] = str(self.state)
        program, *rest = shlex.split(re.sub(r"\$\{(\w+)\}", lambda name: environment[name[1]], line))
        assert program == "/opt/svcd/bin/twistd"
        return [str(BIN / "twistd"), *(each.replace("/etc/svcd/svcd.toml", str(self._config)) for each in rest)]

    def start(self) -> "subprocess.Popen[bytes]":
        """Start it, and return at once."""
        environment = {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "STATE_DIRECTORY": str(self.state),
            "CREDENTIALS_DIRECTORY": str(self._credentials),
            "NOTIFY_SOCKET": self._notices.getsockname(),
            "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1_000_000)),
            "LISTEN_FDS": "1",
            "LISTEN_FDNAMES": setting(SOCKET, "FileDescriptorName")[0],
        }
        confined = ["unshare", "-m", "sh", "-c", _CONFINE, str(self.state)] if can_confine() else []
        descriptor = self.port.fileno()
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _ACTIVATE, str(descriptor), *confined, *self.command()],
                env=environment,
                pass_fds=[descriptor],
                stdout=log,
                stderr=log,
                cwd="/",
            )
        self.processes.append(process)
        return process

    def notice(self, wanted: str, *, seconds: float = DEADLINE) -> bool:
        """Whether a notice with this line comes within a time; the lines before it are noted."""
        give_up_at = time.monotonic() + seconds
        while (left := give_up_at - time.monotonic()) > 0:
            self._notices.settimeout(left)
            try:
                lines = self._notices.recv(4096).decode().split("\n")
            except TimeoutError:
                return False
            self.received += lines
            if wanted in lines:
                return True
        return False

    def client(self) -> socket.socket:
        """A connection to the port, whether anybody serves it or not."""
        return socket.create_connection(self.port.getsockname(), timeout=DEADLINE)

    def operator(self, target: str, body: object = None) -> int:
        """The status of the operator's answer."""
        method = "GET" if body is None else "POST"
        return exchange(LocalConnection(self.state / "operator.sock"), method, target, body).status

    def stop(self, process: "subprocess.Popen[bytes]") -> int:
        """What systemd does: SIGTERM, and wait."""
        process.send_signal(signal.SIGTERM)
        return process.wait(DEADLINE)

    def close(self) -> None:
        """Let go of everything."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait(DEADLINE)
        self.port.close()
        self._notices.close()


@contextmanager
def service_in(folder: Path) -> Iterator[Service]:
    """A service whose directories are below a folder."""
    service = Service(folder)
    try:
        yield service
    finally:
        service.close()


def answered(client: socket.socket) -> str:
    """The first line of what a node answers on a connection that was opened before."""
    client.sendall(b"GET /rpc/status HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    received = b""
    while piece := client.recv(65536):
        received += piece
    return received.split(b"\r\n", 1)[0].decode()
