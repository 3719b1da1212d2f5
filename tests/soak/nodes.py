"""The two busy nodes of a soak test: one makes the blocks, the other follows it, and both serve shops.

A request is repeated while a node is down: a payment is signed once, and sent until the node has it.
"""

import json
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, field

from svcd.store.database import connect
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.described import check
from tests.process_level.receiver import Receiver
from tests.process_level.running import DEADLINE, Answer, LocalConnection, RunningNode, free_port
from tests.rpc.description import Asked
from tests.soak.flat import Sample
from tests.web.wire import Response

T = TypeVar("T")

TOKEN = "the-management-token-of-this-test-long"
SECRET = "the signing secret of this test, longer"
PATIENCE = 240.0
"""Seconds after which something that should come is missing, whatever else the machine has to do."""


class Unanswered(Exception):
    """There was no answer, or one that asks for patience."""


def insist(what: Callable[[], T], told: str) -> T:
    """Do something until there is an answer."""
    give_up_at = time.monotonic() + PATIENCE
    while True:
        try:
            return what()
        except (OSError, HTTPException, Unanswered) as why:
            if time.monotonic() > give_up_at:
                raise AssertionError(f"{told}: no answer for {PATIENCE:.0f} s") from why
            time.sleep(0.1)


def await_that(condition: Callable[[], bool], told: Callable[[], str]) -> None:
    """Look again and again."""
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at, told()
        time.sleep(0.02)


@define(eq=False)
class ManagedNode:
    """A node that is ended and started again under the same name and port."""

    nodes: Nodes
    name: str
    port: int
    options: Sequence[str]
    node: RunningNode = field(init=False)

    def start(self) -> None:
        """Begin, or begin again."""
        self.node = self.nodes.start(*self.options, name=self.name, port=self.port)

    def end(self, *, kill: bool) -> None:
        """With `kill -9`, or as an operator does; what it has logged must be clean."""
        if not kill:
            self.node.stop()
            return
        self.node.process.send_signal(signal.SIGKILL)
        self.node.process.wait(DEADLINE)
        # The last line may have been cut off.
        lines = (self.nodes.folder / f"{self.name}.log").read_text().splitlines()[:-1]
        assert {json.loads(line)["level"] for line in lines} <= {"debug", "info", "warn"}, self.node.output

    def ask(self, method: str, target: str, body: object = None) -> Answer:
        """The answer on the public port, to the shop's owner."""
        return insist(
            lambda: self._asked(HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE), method, target, body), target
        )

    def order(self, target: str, body: object = None) -> Any:
        """What the operator's socket answers."""
        method = "GET" if body is None else "POST"
        socket = self.nodes.folder / self.name / "operator.sock"
        return self.ok(insist(lambda: self._asked(LocalConnection(socket), method, target, body), target))

    def ok(self, answer: Answer) -> Any:
        """The object of a success."""
        assert answer.status in (200, 201), answer
        return answer.json

    def get(self, target: str) -> Any:
        """The object at a path that is there."""
        return self.ok(self.ask("GET", target))

    def mine(self, blocks: int) -> None:
        """Make blocks."""
        self.order("/operator/mine", {"blocks": blocks})

    def tip(self) -> dict[str, str]:
        """The newest block, and the roots after it."""
        status = self.get("/rpc/status")["status"]
        return {name: status[name] for name in ("height", "hash", "stateRoot", "consensusRoot")}

    def sample(self) -> Sample:
        """What the process holds, as the kernel and its own metrics say."""
        values = {sample.name: sample.value for sample in insist(self.node.metrics, "/metrics")}
        status = Path(f"/proc/{self.node.process.pid}/status").read_text(encoding="ascii", errors="replace")
        (anonymous,) = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")]
        return {
            # Without the pages of files, which the kernel may take back.
            "memory": 1024.0 * int(anonymous),
            "databases": float(sum(map(self._size, ("chain.sqlite", "webhooks.sqlite")))),
            "descriptors": values["process_open_fds"],
            "threads": values["process_threads"],
            "delayed calls": values["svcd_reactor_delayed_calls"],
        }

    def _size(self, name: str) -> int:
        """How large a database is, with what is in its log only."""
        with closing(connect(self.nodes.folder / self.name / name, writable=False)) as connection:
            ((pages,), (page_size,)) = (
                connection.execute(f"PRAGMA {of}").fetchone() for of in ("page_count", "page_size")
            )
            return int(pages) * int(page_size)

    def _asked(self, connection: HTTPConnection, method: str, target: str, body: object) -> Answer:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        try:
            connection.request(method, target, data or None, {"Authorization": f"Bearer {TOKEN}"})
            response = connection.getresponse()
            read = response.read()
        finally:
            connection.close()
        headers = {name.lower(): value for name, value in response.getheaders()}
        check(Asked(method, target, data), Response(response.status, headers, read))
        if response.status == 503:
            raise Unanswered(read.decode())
        html = response.headers.get_content_type() != "application/json"
        return Answer(response.status, {}, None if html else json.loads(read))


class Shop(Receiver):
    """The receiver of both nodes' shops, which knows each watch's story and forgets it when it is over."""

    def __init__(self) -> None:
        super().__init__(SECRET)
        self.stories: dict[str, dict[str, str]] = {}
        """Of each watch, the names of its events by their ids, in order of arrival."""
        self.arrived = 0

    def take(self, headers: Any, body: bytes) -> None:
        """See Receiver."""
        super().take(headers, body)
        event = json.loads(body)
        with self._lock:
            story = self.stories.setdefault(event["subscriptionId"], {})
            self.arrived += event["id"] not in story
            story[event["id"]] = event["event"].removeprefix("payment.")

    def told(self, watch: str) -> list[str]:
        """The names of a watch's events so far."""
        return list(self.stories.get(watch, {}).values())

    def forget(self, watches: set[str]) -> None:
        """Keep nothing more of these."""
        self.check()
        with self._lock:
            gone = {identifier for watch in watches for identifier in self.stories.pop(watch, {})}
            self.events = [event for event in self.events if event["id"] not in gone]
            self.bodies = {identifier: seen for identifier, seen in self.bodies.items() if identifier not in gone}


def start_nodes(nodes: Nodes, authority: bytes) -> tuple[ManagedNode, ManagedNode]:
    """The node that makes the blocks and the one that follows it, both started."""
    (nodes.folder / "authority.pem").write_bytes(authority)
    common = (
        *DEVNET,
        "--set=commerce.webhooks.enabled=true",
        f"--set=commerce.webhooks.manageToken={TOKEN}",
        f"--set=commerce.webhooks.signingSecret={SECRET}",
        "--set=commerce.webhooks.allowPrivateCallbacks=true",
        f"--set=commerce.webhooks.extraCaFile={nodes.folder / 'authority.pem'}",
    )
    ports = free_port(), free_port()
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    maker = ManagedNode(nodes, "maker", ports[0], (*common, f"--set=http.publicUrl={urls[0]}"))
    joining = (f"--set=http.publicUrl={urls[1]}", "--set=participation.alone=false", f'--set=p2p.seeds=["{urls[0]}"]')
    follower = ManagedNode(nodes, "follower", ports[1], (*common, *joining))
    for member in (maker, follower):
        member.start()
    return maker, follower
