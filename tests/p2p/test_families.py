"""Nodes in network namespaces of their own, of which one has no IPv4 and the other has both families."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.process_level.conftest import DEVNET
from tests.process_level.namespaces import Machine, NodeOnMachine, needs_namespaces
from tests.process_level.running import wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow, needs_namespaces]

PORT = 8645
HOSTS = """127.0.0.1 localhost
::1 localhost
fd77::3 both.example.com.
fd77::2 both.example.com.
10.77.0.2 both.example.com.
"""
"""The name of the node with both families, with the dot with which nodes look it up; the first address is nobody's."""
OPTIONS = (
    *DEVNET[:-1],
    '--set=limits.exempt=["127.0.0.0/8", "::1/128", "fd77::/64", "10.77.0.0/24"]',
    "--set=p2p.allowPrivate=true",
)


class Nodes:
    """Starts nodes on machines; all are stopped, and then the machines removed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        hosts = folder / "hosts"
        hosts.write_text(HOSTS)
        self.ipv6_only, self.both = Machine(hosts), Machine(hosts)
        for machine in (self.ipv6_only, self.both):
            stack.callback(machine.remove)
        self.ipv6_only.link(self.both)
        self.ipv6_only.add_address("fd77::1/64")
        self.both.add_address("fd77::2/64")
        self.both.add_address("10.77.0.2/24")

    def start(self, machine: Machine, name: str, host: str, *seeds: str) -> NodeOnMachine:
        """A node that tells ``host`` as its own and knows of those at ``seeds``."""
        known = ", ".join(f'"http://{seed}:{PORT}"' for seed in seeds)
        options = (*OPTIONS, f"--set=http.publicUrl=http://{host}:{PORT}", f"--set=p2p.seeds=[{known}]")
        node = NodeOnMachine(machine, self._folder / name, PORT, *options)
        self._stack.callback(node.kill)
        node.wait_ready()
        return node


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield Nodes(tmp_path, stack)


def verified(node: NodeOnMachine) -> int:
    return int(node.ok(node.operator("/operator/status"))["status"]["peers"]["verified"])


@pytest.mark.deadline(240)
@pytest.mark.parametrize("first_to_call", ["ipv6-only", "both"])
def test_a_node_without_ipv4_and_one_with_both_families_meet(nodes: Nodes, first_to_call: str) -> None:
    """They verify each other, and a block that is made on one arrives on the other, both ways."""
    calls = first_to_call == "ipv6-only"
    ipv6_only = nodes.start(nodes.ipv6_only, "ipv6-only", "[fd77::1]", *(["both.example.com"] if calls else []))
    both = nodes.start(nodes.both, "both", "both.example.com", *([] if calls else ["[fd77::1]"]))
    network = [ipv6_only, both]
    wait_until(lambda: [verified(node) for node in network] == [1, 1], "two nodes that know each other")
    for maker in network:
        (block,) = maker.mine(1)
        wait_until(lambda block=block: {node.status()["hash"] for node in network} == {block}, "the block")
    for node in network:
        node.stop()
