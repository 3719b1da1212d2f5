"""An invitation to a network, followed on a fresh Debian by root; `make debian` runs this.

The founder's node is beside the machine, on loopback, so that the member's gets a port of its own.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from svcd.cli.invitation import ADDRESS, PORT
from tests.debian.conftest import FOLDER
from tests.debian.machine import Machine
from tests.debian.story import Operator
from tests.process_level.conftest import Nodes
from tests.process_level.founding import commands, found
from tests.process_level.pages import ROOT, run
from tests.process_level.running import RunningNode, free_port


@pytest.fixture
def founder(tmp_path: Path) -> Iterator[RunningNode]:
    nodes = Nodes(tmp_path)
    yield found(nodes, tmp_path)
    nodes.stop()


def test_who_follows_an_invitation_is_a_peer(founder: RunningNode, debian: Path, tmp_path: Path) -> None:
    text = run("svc --data-dir anna network invite fest.toml --repository /source --allow-private", tmp_path)
    program, rules, compare, _clone, install, _, peers = commands(text)
    (packages,) = re.findall(r"apt install (.*)", text)
    port = free_port()
    with Machine.copy(debian, FOLDER / "machine", ROOT) as machine:
        member = Operator(machine, "/root")
        machine.run(f"apt-get update; DEBIAN_FRONTEND=noninteractive apt-get install --yes {packages}")
        machine.run("git config --global --add safe.directory /source/.git")
        member.types(program)
        member.types(rules)
        assert founder.status()["genesisHash"] in member.types(compare)
        member.types(install.replace(ADDRESS, "127.0.0.1").replace(str(PORT), str(port)))
        node_id = founder.status()["nodeId"]
        member.waits("the founder among the member's peers", lambda: node_id in machine.run(f"{peers} || true"))
        member.waits("the chain", lambda: height(machine) >= 2)
        assert f"http://127.0.0.1:{port}" in run("svc --data-dir anna node peers", tmp_path)
        assert "Traceback" not in machine.run("journalctl -u svcd --output=cat")


def height(machine: Machine) -> int:
    return int(json.loads(machine.run("svc --data-dir /var/lib/svcd node status --json"))["height"])
