"""How long a block takes to reach all nodes, and what that costs, as the network grows.

    python -m tests.simulation.propagation [--transfers COUNT] [--line MBITS] [--latency MS] [--blocks COUNT] 10 300

prints one line of a table for each number of nodes; docs/performance.md shows what came out.
"""

import argparse
import gc
import resource
import tempfile
from collections import Counter
from functools import lru_cache
from pathlib import Path
from statistics import median, quantiles

from attrs import evolve, field, frozen

from svcd.chain import transaction
from svcd.chain.address import encode_address
from svcd.node.changes import ChainChange
from tests.chains import COIN
from tests.simulation.network import Conditions
from tests.simulation.node import SimulatedNode
from tests.simulation.ready import full_body, payer
from tests.simulation.world import PARAMS, World

WARM_UP = 180
BLOCKS = 5
PATIENCE = 60
"""Seconds for a block to be everywhere; nodes that lack it then are left out, and counted."""
HEADINGS = (
    "nodes|peers (median)|median|99 %|lack it|blocks posted|blocks fetched|headers told|KiB in, per node|KiB out, most"
)


@frozen
class Setting:
    """What is measured."""

    transfers: int
    """In each block, at most: a block has room for about 1,200 of them."""
    line: float | None
    """The rate of every node's line in bit/s, each way; None: no limit."""
    conditions: Conditions
    blocks: int


@frozen
class Arrivals:
    """Notes when each node has a block."""

    world: World
    times: dict[bytes, list[float]] = field(factory=dict)

    def chain_changed(self, change: ChainChange) -> None:
        """A node has a new tip."""
        for block in change.applied:
            self.times.setdefault(block.point.hash, []).append(self.world.network.clock.seconds())


def measure(count: int, folder: Path, setting: Setting) -> str:
    """One row of the table, whose headings are HEADINGS; counts and bytes are those of one block."""
    # Only those who pay have coins: a genesis of many accounts would be laid down by every node.
    payers = tuple((encode_address(payer(n).hash, PARAMS.address_prefix), 100 * COIN) for n in range(setting.blocks))
    params = evolve(PARAMS, allocations=payers)
    world = World(1, count, folder, params=params, conditions=setting.conditions, mining=False)
    gc.collect()
    gc.freeze()
    world.run(WARM_UP)
    network, arrivals = world.network, Arrivals(world)
    lines = [network.line(node.endpoint) for node in world.nodes]
    for node, line in zip(world.nodes, lines, strict=True):
        node.node_context.chain_manager.subscribe(arrivals)
        line.up.limit(setting.line)
        line.down.limit(setting.line)
    before = Counter(network.messages)
    received = sum(line.down.bytes for line in lines)
    sent = [line.up.bytes for line in lines]
    for number in range(setting.blocks):
        maker = world.random.choice([node for node in world.nodes if node.status.synced])
        began = network.clock.seconds()
        maker.mine(full_body(number, params)[: setting.transfers])
        while any(node.tip.height <= number for node in world.nodes) and network.clock.seconds() - began < PATIENCE:
            world.run(0.25)
        world.run(max(params.slot_seconds - (network.clock.seconds() - began), 0))
    messages = Counter(network.messages) - before
    received = sum(line.down.bytes for line in lines) - received
    most = max(line.up.bytes - old for line, old in zip(lines, sent, strict=True))
    delays = [time - times[0] for times in arrivals.times.values() for time in times[1:]]
    lacking = count * setting.blocks - sum(map(len, arrivals.times.values()))
    peers = median(len(peers_of(node)) for node in world.nodes)
    world.stop()
    per_block = [messages[path] / setting.blocks / count for path in ("/p2p/block", "/p2p/blocks", "/p2p/header")]
    kib = received / setting.blocks / count / 1024, most / setting.blocks / 1024
    cells = [f"{count}", f"{peers:g}", f"{median(delays):.2f} s", f"{quantiles(delays, n=100)[98]:.2f} s", f"{lacking}"]
    return _line([*cells, *(f"{each:.1f}" for each in (*per_block, *kib))])


def peers_of(node: SimulatedNode) -> list[object]:
    """Those that a node talks to."""
    return list(node.neighbours.peers.all())


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def remember_signatures() -> None:
    """Check each signature once: all nodes of this process would find the same."""
    transaction.is_valid = lru_cache(None)(transaction.is_valid)  # type: ignore[attr-defined]


def main() -> None:
    """Measure for every number of nodes on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.propagation", description=__doc__)
    parser.add_argument("counts", type=int, nargs="+", metavar="NODES")
    parser.add_argument("--transfers", type=int, default=0, metavar="COUNT", help="in each block, at most")
    parser.add_argument("--line", type=float, metavar="MBITS", help="of every node, in Mbit/s; else without a limit")
    parser.add_argument("--latency", type=float, metavar="MS", help="one way; else 20 to 200 ms")
    parser.add_argument("--blocks", type=int, default=BLOCKS, metavar="COUNT", help="how many are followed")
    arguments = parser.parse_args()
    latency = arguments.latency and arguments.latency / 1000
    conditions = Conditions() if latency is None else Conditions(latency=(latency, latency))
    line = arguments.line and arguments.line * 1e6
    setting = Setting(arguments.transfers, line, conditions, arguments.blocks)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    remember_signatures()
    headings = HEADINGS.split("|")
    print(_line(headings))
    print(_line(["---"] * len(headings)))
    for count in arguments.counts:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(count, Path(folder), setting), flush=True)


if __name__ == "__main__":
    main()
