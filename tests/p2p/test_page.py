"""docs/peers.md: its two nodes do what it says."""

import json
import re
import shlex
from typing import Any

import pytest

from tests.process_level.conftest import Nodes
from tests.process_level.conftest import nodes as nodes
from tests.process_level.pages import agrees, blocks_in, run, section
from tests.process_level.running import RunningNode, free_port, wait_until
from tests.programs import needs

TEXT = section("docs/peers.md", "## Two nodes on one computer")
PREFIX = "twistd -n --pidfile= svcd "


def start(nodes: Nodes, command: str) -> RunningNode:
    """A node as a command of the page starts it."""
    words = shlex.split(command.replace("\\\n", ""))
    assert shlex.join(words).startswith(PREFIX.strip())
    options = words[len(PREFIX.split()) :]
    (name,) = (option.partition("=")[2] for option in options if option.startswith("--data-dir="))
    (listen,) = (option for option in options if option.startswith("--listen="))
    rest = [option for option in options if not option.startswith(("--data-dir=", "--listen="))]
    return nodes.start(*rest, name=name, port=int(re.findall(r"\d+", listen)[0]))


@pytest.mark.socket
@pytest.mark.slow
@needs("curl")
def test_two_nodes_on_one_computer(nodes: Nodes) -> None:
    ports = {port: str(free_port()) for port in ("18661", "18662")}
    path, first, second, peers, mined, status = (
        re.sub("1866[12]", lambda port: ports[port[0]], block.text) for block in blocks_in(TEXT, "sh")
    )
    assert path.startswith("export PATH=")
    mine, blocks = mined.splitlines()
    (shown,) = (json.loads(block.text) for block in blocks_in(TEXT, "json"))

    def ask(command: str) -> Any:
        return json.loads(run(command, nodes.folder))

    alpha, beta = start(nodes, first), start(nodes, second)
    wait_until(lambda: len(ask(peers)["peers"]) == 1, "a peer that has been verified")
    assert agrees(shown, ask(peers))
    assert ask(mine)
    wait_until(lambda: len(ask(blocks)["blocks"]) == 1, "the block on the other node")
    beta.stop()
    for _ in range(3):
        ask(mine)
    beta = start(nodes, second)
    wait_until(lambda: ask(status)["status"]["height"] == "4", "the blocks that it lacked")
    # All commands again, with the data that is there.
    for node in (alpha, beta):
        node.stop()
    start(nodes, first)
    start(nodes, second)
    wait_until(lambda: len(ask(peers)["peers"]) == 1, "the peer again")
    assert ask(mine)
    wait_until(lambda: len(ask(blocks)["blocks"]) == 5, "the next block on the other node")
    assert ask(status)["status"]["height"] == "5"
