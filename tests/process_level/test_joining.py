"""Nodes that find each other by the URLs that they were told."""

import re
import shlex
from datetime import datetime
from http.client import HTTPConnection

import pytest

from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.pages import ROOT
from tests.process_level.running import DEADLINE, RunningNode, exchange, free_port, wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]


PREFIX = "twistd -n --pidfile= svcd "


def shown() -> list[list[str]]:
    """The options of the nodes in the section "Joining a network" of docs/operations.md."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.split("\n## Joining a network\n")[1].split("\n## ")[0]
    text = "\n".join(line.removeprefix("    ") for line in section.splitlines() if line.startswith("    "))
    commands = text.replace("\\\n", "").splitlines()
    assert all(command.startswith(PREFIX) for command in commands)
    return [shlex.split(command.removeprefix(PREFIX)) for command in commands]


def started(nodes: Nodes, options: list[str], ports: dict[str, int]) -> RunningNode:
    """A node with these options, each port in them replaced by one that is free."""
    (name,) = (option.partition("=")[2] for option in options if option.startswith("--data-dir="))
    (listen,) = (re.findall(r"\d+", option)[0] for option in options if option.startswith("--listen="))
    others = [re.sub(r"(?<=:)\d{5}\b", lambda port: str(ports[port[0]]), option) for option in options]
    others = [option for option in others if not option.startswith("--data-dir=")]
    return nodes.start(*others, name=name, port=ports[listen])


def peers(node: RunningNode) -> int:
    return int(node.ok(node.operator("/operator/status"))["status"]["peers"]["verified"])


def test_the_example_of_joining_a_network(nodes: Nodes) -> None:
    first, second = shown()
    ports = {port: free_port() for port in set(re.findall(r"(?<=:)\d{5}\b", " ".join(first + second)))}
    assert len(ports) == 2
    founder = started(nodes, first, ports)
    assert founder.operator("/ready").status == 200
    joined = started(nodes, second, ports)
    wait_until(lambda: peers(joined) == peers(founder) == 1, "two nodes that have met")
    (block,) = founder.mine(1)
    wait_until(lambda: joined.status()["hash"] == block, "the block of the other node")
    wait_until(lambda: joined.operator("/ready").status == 200, "a node that is ready")


def test_a_node_that_starts_calls_others_at_once(nodes: Nodes) -> None:
    """It looks once a second whom to call, the first time when it begins to listen."""
    port = free_port()
    nodes.start(*DEVNET, f"--set=http.publicUrl=http://127.0.0.1:{port}", name="first", port=port)

    def seconds_to_meet(name: str) -> float:
        joining = nodes.start(*DEVNET, f'--set=p2p.seeds=["http://127.0.0.1:{port}"]', name=name)
        wait_until(lambda: peers(joining) == 1, "the other node")
        (met,) = [event["time"] for event in joining.events if event["message"].startswith("met ")]
        listens = max(event["time"] for event in joining.events if event["message"].startswith("listening on "))
        return (datetime.fromisoformat(met) - datetime.fromisoformat(listens)).total_seconds()

    # A busy machine may be slow once, but not each time.
    assert any(seconds_to_meet(f"second-{number}") < 0.9 for number in range(4))


def test_a_node_under_another_url_than_it_names_is_not_kept(nodes: Nodes) -> None:
    named, seed = free_port(), free_port()
    nodes.start(*DEVNET, f"--set=http.publicUrl=http://127.0.0.1:{named}", name="first", port=seed)
    options = (*DEVNET, f'--set=p2p.seeds=["http://127.0.0.1:{seed}"]')
    joining = nodes.start(*options, name="second")
    wait_until(lambda: "answers and names as its endpoint" in joining.output, "a word about the URL")
    assert peers(joining) == 0


@pytest.mark.parametrize("own", ["", "https://peers.example.org"])
def test_an_endpoint_for_peers_is_told_under_its_own_url(nodes: Nodes, own: str) -> None:
    port = free_port()
    node = nodes.start(
        *DEVNET,
        f"--set=p2p.listen=tcp:{port}:interface=127.0.0.1",
        "--set=http.publicUrl=https://node.example.org",
        f"--set=p2p.publicUrl={own}",
    )
    told = node.ok(exchange(HTTPConnection("127.0.0.1", port, timeout=DEADLINE), "GET", "/p2p/status"))["status"]
    assert told["endpoint"] == (own or "https://node.example.org")
    assert node.get("/p2p/status").status == 404
