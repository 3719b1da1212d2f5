"""The proxies of `conf/` for several nodes, in front of three nodes of which one is killed under load."""

import re
import time
from collections import Counter
from collections.abc import Sequence
from http.client import HTTPSConnection, RemoteDisconnected
from pathlib import Path
from threading import Event, Thread

import pytest
from attrs import define, field

from svcd.config.loader import load
from tests.operating.front import CLUSTER, NAME, Front, front_of_several, haproxy_of
from tests.operating.test_log_secrecy import ROUTES
from tests.process_level.conftest import Nodes, nodes
from tests.process_level.running import DEADLINE, RunningNode, free_port, wait_until
from tests.programs import needs

__all__ = ["nodes"]

pytestmark = [pytest.mark.socket, pytest.mark.slow]

TEXT = CLUSTER.read_text(encoding="utf-8")
SOURCES = [f"127.0.30.{number}" for number in range(1, 10)]
"""So many clients that each node has some of them."""


def started(nodes: Nodes, count: int, health: Sequence[int] = ()) -> list[RunningNode]:
    """Nodes of one devnet that have met; the first makes blocks on demand. ``health`` are ports for health checks."""
    ports = [free_port() for _ in range(count)]
    found = []
    for number, port in enumerate(ports):
        options = ["--network=devnet", "--set=participation.onDemand=true", '--set=limits.exempt=["127.0.0.0/8"]']
        options += [f"--set=http.publicUrl=http://127.0.0.1:{port}", '--set=http.trustedProxies=["127.0.0.1/32"]']
        if number:
            options += ["--set=participation.alone=false", f'--set=p2p.seeds=["http://127.0.0.1:{ports[0]}"]']
        options += [f"--set=operator.healthListen=tcp:{each}:interface=127.0.0.1" for each in health[number:][:1]]
        found.append(nodes.start(*options, name=f"node{number}", port=port))
    wait_until(lambda: all(node.operator("/ready").status == 200 for node in found), "nodes that have met")
    return found


@define
class Reader:
    """A client that reads the chain on one connection, and never an older chain than it has seen."""

    front: Front
    source: str
    end: Event
    height: int = 0
    statuses: Counter[int] = field(factory=Counter)
    wrong: list[str] = field(factory=list)

    def run(self) -> None:
        """Read until the end; what is wrong is in ``wrong``."""
        while not self.end.is_set():
            connection = HTTPSConnection(NAME, self.front.port, timeout=DEADLINE, context=self.front.context)
            try:
                connection.sock = self.front.tls(self.source)
                for _ in range(100):
                    self._read(connection)
                    if self.end.wait(0.02):
                        break
            except (OSError, RemoteDisconnected) as error:
                self.wrong.append(repr(error))
            finally:
                connection.close()

    def _read(self, connection: HTTPSConnection) -> None:
        connection.request("GET", f"/rpc/consensus?minHeight={self.height}", headers={"Host": NAME})
        answer = connection.getresponse()
        body = answer.read()
        self.statuses[answer.status] += 1
        if answer.status == 503 and answer.headers["Retry-After"]:
            return
        tip = answer.headers["Svc-Tip"] or ""
        seen = re.search(rb'"nextHeight":"(\d+)"', body)
        if answer.status != 200 or seen is None or int(seen[1]) != int(tip.partition(":")[0]) + 1:
            self.wrong.append(f"{answer.status} {tip} {body[:200]!r}")
        elif int(seen[1]) - 1 < self.height:
            self.wrong.append(f"after {self.height} came {tip}")
        else:
            self.height = int(seen[1]) - 1


def answered(node: RunningNode) -> float:
    return node.measured("svcd_http_requests_total", route="/rpc/consensus", status="200")


def kill_under_load(front: Front, first: RunningNode, others: Sequence[RunningNode]) -> None:
    """Kill one of ``others`` while blocks come and clients read, none of which may see more of it than 503."""
    end = Event()
    readers = [Reader(front, source, end) for source in SOURCES]
    threads = [Thread(target=reader.run) for reader in readers]
    try:
        for thread in threads:
            thread.start()
        wait_until(lambda: all(reader.statuses[200] >= 3 for reader in readers), "answers to everybody")
        used = [node for node in (first, *others) if answered(node)]
        victim = next(node for node in others if node in used)
        for number in range(30):
            first.mine(1)
            if number == 10:
                victim.kill()
            time.sleep(0.02)
        before = [reader.statuses[200] for reader in readers]
        wait_until(
            lambda: all(
                reader.height >= 30 and reader.statuses[200] > count
                for reader, count in zip(readers, before, strict=True)
            ),
            "the newest block for everybody",
        )
    finally:
        end.set()
        for thread in threads:
            thread.join(DEADLINE)
    assert [wrong for reader in readers for wrong in reader.wrong] == []
    assert len(used) >= 2, "the clients were on one node"


@needs("nginx")
def test_no_client_notices_more_than_503_when_a_node_is_killed(nodes: Nodes, tmp_path: Path) -> None:
    first, *others = started(nodes, 3)
    folder = tmp_path / "nginx"
    folder.mkdir()
    with front_of_several(folder, [first.port, *(node.port for node in others)]) as front:
        kill_under_load(front, first, others)


@needs("haproxy")
def test_a_node_that_is_not_ready_gets_no_requests(nodes: Nodes, tmp_path: Path) -> None:
    """HAProxy asks the port for health checks, and takes a node out that a client could be told an old chain by."""
    health = [free_port() for _ in range(3)]
    first, second = started(nodes, 2, health)
    options = ["--network=devnet", "--set=participation.alone=false", "--set=p2p.enabled=false"]
    lost = nodes.start(*options, f"--set=operator.healthListen=tcp:{health[2]}:interface=127.0.0.1", name="lost")
    folder = tmp_path / "haproxy"
    folder.mkdir()
    ports = [first.port, second.port, lost.port]
    with haproxy_of(folder, list(zip(ports, health, strict=True))) as front:
        wait_until(lambda: "Server nodes/node3 is DOWN" in (folder / "haproxy.log").read_text(), "a node taken out")
        kill_under_load(front, first, [second])
        assert lost.measured("svcd_http_requests_total", route="/rpc/consensus") == 0
        peers = front.ask("127.0.31.1", "/p2p/status")
        assert (peers.status, peers.error) == (404, "peers reach each node of this name at an endpoint of its own")
        first.kill()
        wait_until(lambda: front.ask("127.0.31.2", "/rpc/status").status == 503, "no node")
        away = front.ask("127.0.31.2", "/rpc/status")
        assert (away.headers["retry-after"], away.error) == ("2", "no node answers at present; try again in 2 s")


@needs("nginx")
def test_peers_are_not_behind_it_and_large_bodies_neither(nodes: Nodes, tmp_path: Path) -> None:
    (node,) = started(nodes, 1)
    with front_of_several(tmp_path, [node.port, free_port()]) as front:
        for source in SOURCES:
            assert front.ask(source, "/rpc/status").status == 200
        peers = front.ask("127.0.31.1", "/p2p/status")
        assert (peers.status, peers.error) == (404, "peers reach each node of this name at an endpoint of its own")
        large = front.ask("127.0.31.1", "/rpc/broadcast", b" " * (64 * 1024 + 1))
        assert (large.status, large.error) == (413, "the body is larger than 64 KiB")
        assert front.ask("127.0.31.1", "/ready").status in (404, 421)
        node.kill()
        away = front.ask("127.0.31.2", "/rpc/status")
        assert (away.status, away.headers["retry-after"]) == (503, "2")
        assert away.error == "no node answers at present; try again in 2 s"


def test_it_waits_longer_than_a_node_takes_for_any_answer() -> None:
    (patience,) = re.findall(r"proxy_read_timeout (\d+)s;", TEXT)
    assert int(patience) > max(route.seconds for route in ROUTES if route.bucket not in ("operator", "p2p"))
    (idle,) = re.findall(r"^    keepalive 32;.*?^    keepalive_timeout (\d+)s;", TEXT, re.MULTILINE | re.DOTALL)
    assert int(idle) < load().limits.idle_seconds
