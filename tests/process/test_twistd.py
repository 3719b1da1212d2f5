"""The parts of this package together under the real twistd: options, log, start, stop, exit status."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = [pytest.mark.socket, pytest.mark.slow]

TWISTD = str(Path(sys.executable).parent / "twistd")
DEADLINE = 120.0

PLUGIN = """
from twisted.application.service import ServiceMaker
trial_node = ServiceMaker("trial-node", "trial_node", "For tests", "trial-node")
"""

COMPOSITION = '''
import os
from twisted.application.service import Service
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svcd.process.datadir import DataDirectory
from svcd.process.listener import ListenerService
from svcd.process.logs import log_writer, make_observer
from svcd.tap import Options
from svcd.process.sequential import RootService
from svcd.process.shutdown import graceful_exit
from svcd.process.systemd import Notifier, SystemdService

class Slow(Service):
    """A database: slow to open, slow to close."""
    _log = Logger()

    @staticmethod
    async def alive():
        await deferLater(reactor, 0.05)

    async def startService(self):
        await deferLater(reactor, 0.05)
        if "BROKEN" in os.environ:
            raise KeyError("a bug")
        self._log.info("database open")

    async def stopService(self):
        await deferLater(reactor, 0.05)
        self._log.info("database closed")

class Quick(Service):
    _log = Logger()

    def startService(self):
        self._log.info("ready with {braces}", braces="{braces}")

    def stopService(self):
        self._log.info("stopping")

def makeService(options):
    config = options.config
    write = log_writer(options.parent)
    observer = write and make_observer(config.log.format, config.log.level, write)
    root = RootService(graceful_exit(reactor), observer=observer)
    endpoint = serverFromString(reactor, config.http.listen)
    listening = ListenerService(endpoint, Factory.forProtocol(Protocol), description=config.http.listen)
    notices = SystemdService(Notifier.from_environment(os.environ), reactor, Slow.alive, lambda: "well")
    for service in (DataDirectory(config.data_dir), Slow(), listening, Quick(), notices):
        service.setServiceParent(root)
    return root
'''


# The socket becomes file descriptor 3, and LISTEN_PID the process id of twistd itself.
AS_SYSTEMD = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""


class Node:
    """Runs `twistd … trial-node …` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pidfile = folder / "node.pid"
        (folder / "twisted" / "plugins").mkdir(parents=True)
        (folder / "twisted" / "plugins" / "trial_node_plugin.py").write_text(PLUGIN)
        (folder / "trial_node.py").write_text(COMPOSITION)
        self.processes: list[subprocess.Popen[str]] = []
        self.daemon = False

    def start(
        self,
        *options: str,
        twistd: tuple[str, ...] = ("-n",),
        under: tuple[str, ...] = (),
        keep: tuple[int, ...] = (),
        **environment: str,
    ) -> "subprocess.Popen[str]":
        """Start twistd under another program that executes its arguments, with file descriptors to keep open."""
        listen = () if any(option.startswith("--listen") for option in options) else ("--listen=tcp:0:127.0.0.1",)
        process = subprocess.Popen(
            [*under, TWISTD, *twistd, f"--pidfile={self.pidfile}", "trial-node", *listen, *options],
            pass_fds=keep,
            env={
                **os.environ,
                "PYTHONPATH": f"{self.folder}:{os.environ.get('PYTHONPATH', '')}",
                "PYTHONDONTWRITEBYTECODE": "1",
                **environment,
            },
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def run(self, *options: str, **environment: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error of a node that ends by itself."""
        process = self.start(*options, **environment)
        out, err = process.communicate(timeout=DEADLINE)
        return process.returncode, out, err

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        if self.daemon:
            with suppress(ProcessLookupError):
                os.kill(int(self.pidfile.read_text()), signal.SIGKILL)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.end()


@pytest.fixture
def taken() -> Iterator[str]:
    """The endpoint of a port that somebody else holds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp:{server.getsockname()[1]}:interface=127.0.0.1"


def read_until(process: "subprocess.Popen[str]", words: str) -> str:
    """Standard output up to the line with these words."""
    assert process.stdout is not None
    read = ""
    for line in process.stdout:
        read += line
        if words in line:
            return read
    raise AssertionError(read + (process.stderr.read() if process.stderr else ""))


def wait_for(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def messages(out: str) -> list[str]:
    return re.findall(r"^\S+Z \w+ +\[(?:trial_node|svcd)[^]]*\] (.*)$", out, re.M)


@pytest.mark.story
def test_it_runs_until_sigterm_and_stops_in_order(node: Node) -> None:
    process = node.start()
    out = read_until(process, "ready")
    process.send_signal(signal.SIGTERM)
    rest, err = process.communicate(timeout=DEADLINE)
    assert messages(out + rest) == [
        "database open",
        "listening on tcp:0:127.0.0.1",
        "ready with {braces}",
        "stopping",
        "database closed",
    ]
    assert (process.returncode, err) == (-signal.SIGTERM, "")
    assert not node.pidfile.exists()


def test_the_log_has_its_form_from_the_first_line_to_the_last(node: Node) -> None:
    process = node.start("--set", "log.format=json")
    out = read_until(process, "ready")
    process.terminate()
    out += process.communicate(timeout=DEADLINE)[0]
    events = [json.loads(line) for line in out.splitlines()]
    assert "starting up" in events[0]["message"]
    assert events[-1]["message"] == "Server Shut Down."
    assert any(event.get("braces") == "{braces}" for event in events)


def test_a_port_in_use_is_one_line_and_status_1(node: Node, taken: str) -> None:
    status, out, err = node.run(f"--listen={taken}", "--set=log.level=warn")
    lines = out.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith(f"] svcd: cannot listen on {taken}: address already in use")
    assert (status, err) == (1, "")
    assert not node.pidfile.exists()


def test_what_had_started_is_stopped_after_a_failure(node: Node, taken: str) -> None:
    out = node.run(f"--listen={taken}")[1]
    assert [message.split(":")[0] for message in messages(out)] == ["database open", "svcd", "database closed"]


def test_a_failure_before_the_reactor_runs_ends_the_same_way(node: Node) -> None:
    (node.folder / "data").touch()
    status, out, err = node.run("--set=log.level=warn")
    assert out.splitlines()[0].endswith(f"svcd: the data directory {node.folder}/data cannot be used: File exists")
    assert (status, len(out.splitlines()), err) == (1, 1, "")
    assert not node.pidfile.exists()


def test_a_bug_at_start_shows_its_traceback(node: Node) -> None:
    status, out, _ = node.run(BROKEN="1")
    assert "svcd: Slow cannot start" in out
    assert "KeyError: 'a bug'" in out
    assert status == 1


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--network=moon", 'svcd: --network: network = "moon": must be "mainnet" or "devnet"'),
        (
            "--set=p2p.outbound=many",
            'svcd: --set p2p.outbound: [p2p] outbound = "many": must be an integer from 0 to 64',
        ),
        ("--set=outbound", "svcd: --set outbound: must be written section.key=value"),
        ("--config=none.toml", "svcd: none.toml: the configuration file cannot be read: No such file or directory"),
    ],
)
def test_a_bad_setting_is_one_line_and_status_1(node: Node, option: str, sentence: str) -> None:
    status, out, err = node.run(option)
    assert (status, out) == (1, "")
    assert err.startswith(sentence)
    assert err.count("\n") == 1


def test_a_node_started_twice_on_one_directory_is_refused(node: Node) -> None:
    read_until(node.start(), "ready")
    node.pidfile.unlink()
    status, out, _ = node.run("--set=log.level=warn")
    assert "is in use by another node" in out
    assert status == 1


def test_a_log_file_gets_the_configured_form(node: Node) -> None:
    log = node.folder / "node.log"
    process = node.start("--set=log.format=json", twistd=("-n", f"--logfile={log}"))
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    process.terminate()
    assert process.communicate(timeout=DEADLINE)[0] == ""
    assert all(json.loads(line) for line in log.read_text().splitlines())


def test_a_daemon_writes_its_log_to_a_file(node: Node) -> None:
    process = node.start(twistd=())
    assert process.wait(DEADLINE) == 0
    node.daemon = True
    log = node.folder / "twistd.log"
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    os.kill(int(node.pidfile.read_text()), signal.SIGTERM)
    wait_for(lambda: "Server Shut Down." in log.read_text())
    node.daemon = False
    assert messages(log.read_text())[-1] == "database closed"


@pytest.mark.story
def test_under_systemd_it_takes_the_socket_and_tells_how_it_fares(node: Node, tmp_path: Path) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(DEADLINE)
    with manager, socket.create_server(("127.0.0.1", 0)) as public:
        process = node.start(
            "--listen=systemd:domain=INET:name=svcd",
            under=(sys.executable, "-c", AS_SYSTEMD, str(public.fileno())),
            keep=(public.fileno(),),
            LISTEN_FDS="1",
            LISTEN_FDNAMES="svcd",
            NOTIFY_SOCKET=str(tmp_path / "notify"),
            WATCHDOG_USEC="200000",
        )
        assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"STATUS=well"]
        with socket.create_connection(public.getsockname(), timeout=DEADLINE):
            assert manager.recv(100) == b"WATCHDOG=1"
        process.terminate()
        notices = []
        while b"STOPPING=1\nSTATUS=stopping" not in notices:
            notices.append(manager.recv(100))
        assert set(notices[:-1]) <= {b"WATCHDOG=1"}
        assert process.wait(DEADLINE) == -signal.SIGTERM
