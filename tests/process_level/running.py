"""Nodes as their operators run them: `twistd -n svcd` in a process of its own, asked over real sockets."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from http.client import HTTPConnection
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from attrs import frozen
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from svcd.net.targets import BadTarget, Endpoint
from tests.process_level.described import check
from tests.rpc.description import Asked
from tests.web.wire import Response

BIN = Path(sys.executable).parent
DEADLINE = 120.0
"""Seconds after which something that a test waits for will not come any more, on a machine that is busy, too."""
FIRST_PORT, PORTS = 10_000, 100
"""Where the ports for tests begin, and how many each process of tests has for itself."""
USUAL_END = 32_768
"""Where the ports begin that Linux gives out, unless it was told otherwise."""

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("SVC_", "SVCD_"))} | {
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    "no_proxy": "*",
}


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = DEADLINE) -> None:
    """Ask again and again, up to the deadline."""
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, f"{what}: not within {seconds} s"
        time.sleep(0.02)


@cache
def _own_ports() -> tuple[Iterator[int], socket.socket]:
    """Ports for this process of tests alone, again and again, and what keeps other such processes off them.

    They lie below those that the system gives to outgoing connections and to whoever listens on port 0 (ip(7)): between
    the time that one is given out and the time that a node listens on it nobody comes by it.
    """
    end = USUAL_END
    with suppress(OSError):
        end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if end < FIRST_PORT + PORTS:
        # Where the system gives out all of them, these are at least not those of another process of tests.
        end = USUAL_END
    for first in range(FIRST_PORT, end - PORTS + 1, PORTS):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0ports-of-svcd-tests-{first}")
        except OSError:
            claim.close()
            continue
        return cycle(range(first, first + PORTS)), claim
    raise AssertionError(f"no ports are left from {FIRST_PORT} to {end}")


def free_port() -> int:
    """A port that nobody listens on, nor will before it is used, and that the endpoint of a node may have."""
    for port in islice(_own_ports()[0], PORTS):
        try:
            Endpoint(f"http://127.0.0.1:{port}")
            socket.create_server(("127.0.0.1", port)).close()
        except (BadTarget, OSError):
            continue
        return port
    raise AssertionError(f"all {PORTS} ports of this process are in use")


@frozen
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    json: Any

    @property
    def error(self) -> str:
        """The sentence of an error."""
        assert self.json["ok"] is False, self.json
        return str(self.json["error"])


class LocalConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=DEADLINE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE)
        self.sock.connect(str(self._path))


def exchange(connection: HTTPConnection, method: str, target: str, body: object = None, **given: str) -> Answer:
    """One request with the headers ``given``, on a connection that is closed afterwards; what is no bytes becomes JSON.

    Fails unless the answer of a public route is as the node says that it will be.
    """
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    try:
        connection.request(method, target, data or None, given)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        text = response.read()
        check(Asked(method, target, data), Response(response.status, headers, text))
        return Answer(response.status, headers, json.loads(text or b"null"))
    finally:
        connection.close()


class RunningNode:
    """`twistd -n svcd` with a data directory; the log is JSON, one event a line.

    ``inside`` is what the command begins with, ``listen`` the endpoint of the public port. ``output`` is a descriptor
    for the log, which then does not go to a file.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *options: str,
        inside: Sequence[str] = (),
        listen: str | None = None,
        output: int | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.socket = data_dir / "operator.sock"
        self._log = data_dir.with_name(f"{data_dir.name}.log")
        self._errors = data_dir.with_name(f"{data_dir.name}.err")
        command = [*inside, BIN / "twistd", "-n", "--pidfile=", "svcd", f"--data-dir={data_dir}"]
        listen = f"--listen={listen or f'tcp:{port}:interface=127.0.0.1'}"
        with self._log.open("wb") as log, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, listen, "--set=log.format=json", *options],
                stdout=log if output is None else output,
                stderr=errors,
                cwd=data_dir.parent,
                env=ENVIRONMENT,
            )

    def wait_ready(self) -> "RunningNode":
        """Wait until the public port, which opens last, answers."""

        def answers() -> bool:
            assert self.process.poll() is None, self.output
            try:
                return self.get("/rpc/status").status == 200
            except OSError:
                return False

        wait_until(answers, "an answer of the node")
        return self

    @property
    def output(self) -> str:
        """What the process has written."""
        return self._log.read_text() + self._errors.read_text()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log's events; every line of it must be one, but for the last while it is being written."""
        return [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def logged(self, part: str) -> list[dict[str, Any]]:
        """Wait for an event whose message has ``part``, and return all of them.

        A thread writes the log: an answer of the node may come before the line about what was asked for.
        """

        def found() -> list[dict[str, Any]]:
            return [event for event in self.events if part in event["message"]]

        wait_until(lambda: bool(found()), f"a line with {part!r} in the log")
        return found()

    # Asking

    def connection(self) -> HTTPConnection:
        """A connection to the public port."""
        return HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)

    def get(self, target: str) -> Answer:
        """The answer to GET on the public port."""
        return exchange(self.connection(), "GET", target)

    def post(self, target: str, body: object) -> Answer:
        """The answer to POST on the public port."""
        return exchange(self.connection(), "POST", target, body)

    def operator(self, target: str, body: object = None) -> Answer:
        """The operator's answer: to POST where there is a body, else to GET."""
        return exchange(LocalConnection(self.socket), "GET" if body is None else "POST", target, body)

    def metrics(self) -> list[Sample]:
        """What the node measures, as Prometheus reads it."""
        connection = LocalConnection(self.socket)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def measured(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels, whatever others they have; 0.0 if there is none."""
        wanted = labels.items()
        return sum(sample.value for sample in self.metrics() if sample.name == name and wanted <= sample.labels.items())

    def ok(self, answer: Answer) -> Any:
        """The object of a success."""
        assert (answer.status, answer.json["ok"]) == (200, True), answer
        return answer.json

    def status(self) -> Any:
        """The node's status."""
        return self.ok(self.get("/rpc/status"))["status"]

    def mine(self, blocks: int) -> list[str]:
        """Make blocks."""
        return list(self.ok(self.operator("/operator/mine", {"blocks": blocks}))["hashes"])

    def account(self, address: str) -> Any:
        """The account of an address."""
        return self.ok(self.get(f"/rpc/balance/{address}"))["account"]

    # Ending

    def terminate(self) -> None:
        """Ask the process to end."""
        self.process.send_signal(signal.SIGTERM)

    def wait_ended(self) -> int:
        """The exit status of the process, which ends by itself."""
        return self.process.wait(DEADLINE)

    def stop(self) -> None:
        """End the process as an operator does; it must go at once, with status 0, and log no error."""
        self.terminate()
        assert self.wait_ended() == 0, self.output
        self.check_log()

    def check_log(self) -> None:
        """Fail if the log has an error."""
        assert self._errors.read_text() == ""
        assert "Traceback" not in self._log.read_text(), self.output
        levels = {event["level"] for event in self.events}
        assert levels <= {"debug", "info", "warn"}, self.output

    def kill(self) -> None:
        """End the process without its knowing."""
        self.process.kill()
        self.process.wait(DEADLINE)


@frozen
class Refused:
    """How a node that cannot start has ended."""

    status: int
    lines: list[str]

    @property
    def sentence(self) -> str:
        """The only line, without time, level and place."""
        (line,) = self.lines
        return re.sub(r"^\S+Z critical \[[^]]*\] ", "", line)


def refused(folder: Path, *options: str, inside: Sequence[str] = ()) -> Refused:
    """Run a node that ends by itself, and see how; ``inside`` is what the command begins with."""
    done = subprocess.run(
        [*inside, BIN / "twistd", "-n", "--pidfile=", "svcd", "--set=log.level=warn", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=ENVIRONMENT,
        timeout=DEADLINE,
        check=False,
    )
    return Refused(done.returncode, done.stdout.splitlines())
