"""A mainnet node without peers: it waits, or, where it may be alone, takes part."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.process_level.conftest import Nodes
from tests.process_level.running import wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]

GENESIS = "162757d6c59dd9e5ae5b82bd4501e1a8e5eb9ca709bc64eb520ce4707169d227"
HEX = re.compile("[0-9a-f]{64}")
NUMBER = re.compile("[0-9]+")
FIRST_BLOCK_SECONDS = 600.0


def check_status(status: dict[str, Any]) -> None:
    """Hold a status to what is fixed for mainnet, and to the form of all required fields."""
    fixed = {
        "softwareVersion": "0.0.1",
        "protocolVersion": "1.0",
        "networkId": 1,
        "chainId": "SVC-MAINNET",
        "genesisHash": GENESIS,
    }
    assert {name: status[name] for name in fixed} == fixed
    assert all(NUMBER.fullmatch(status[name]) for name in ("height", "slot", "time"))
    assert all(HEX.fullmatch(status[name]) for name in ("hash", "stateRoot", "consensusRoot"))
    assert re.fullmatch("svcnode_[0-9a-f]{32}", status["nodeId"])


def niceness(pid: int) -> set[int]:
    """The nice values of a process's threads (proc_pid_stat(5), field 19; the name before them may hold blanks)."""
    stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return {int(stat.rpartition(")")[2].split()[16]) for stat in stats}


def test_a_node_without_peers_is_catching_up(nodes: Nodes) -> None:
    node = nodes.start("--network=mainnet")
    status = node.status()
    check_status(status)
    assert (status["height"], status["hash"], status["syncState"]) == ("0", GENESIS, "catching-up")
    ready = node.operator("/ready")
    assert (ready.status, ready.error) == (
        503,
        "not ready: no verified peer has answered, and [participation] alone is not set",
    )
    assert node.operator("/health").status == 200
    assert node.operator("/operator/mine", {"blocks": 1}).status == 404


def test_a_node_that_may_be_alone_takes_part(nodes: Nodes, torture: bool) -> None:
    """And given time, where long counts are wanted, makes a block."""
    node = nodes.start("--set=participation.enabled=true", "--set=participation.alone=true")
    status = node.status()
    check_status(status)
    assert status["syncState"] == "synced"
    assert node.operator("/ready").status == 200
    report = node.ok(node.operator("/operator/status"))["status"]
    assert report["participation"]["address"].startswith("svc1q")
    assert report["participation"]["address"] not in str(status)
    wait_until(lambda: 19 in niceness(node.process.pid), "a thread that searches for work")
    if torture:
        wait_until(lambda: int(node.status()["height"]) >= 1, "a block", seconds=FIRST_BLOCK_SECONDS)
