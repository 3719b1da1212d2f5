"""How long a block takes to reach all nodes, and what that costs, as the network grows.

    python -m tests.simulation.propagation 10 30 100 300 1000

prints one line of a table for each number of nodes; docs/performance.md shows what came out.
"""

import resource
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles

from svcd.node.changes import Change
from tests.simulation.node import SimulatedNode
from tests.simulation.world import World

WARM_UP = 180
BLOCKS = 5


class Arrivals:
    """Notes when each node has a new tip."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.times: dict[bytes, list[float]] = {}
        for node in world.nodes:
            node.living.ledger.subscribe(self)

    def chain_changed(self, change: Change) -> None:
        for block in change.applied:
            self.times.setdefault(block.point.hash, []).append(self._world.network.clock.seconds())


def measure(count: int, folder: Path) -> str:
    """One row: nodes, median and 99th percentile of the seconds to each node, posts of blocks per block and node."""
    world = World(1, count, folder)
    world.run(WARM_UP)
    arrivals = Arrivals(world)
    before = world.network.messages.get("/p2p/block", 0)
    while sum(len(times) == count for times in arrivals.times.values()) < BLOCKS:
        world.run(10)
    delays = [time - times[0] for times in arrivals.times.values() if len(times) == count for time in times[1:]]
    sent = world.network.messages["/p2p/block"] - before
    peers = median(len(peers_of(node)) for node in world.nodes)
    world.stop()
    per_block = sent / len(arrivals.times)
    return (
        f"| {count} | {peers:g} | {median(delays):.2f} s | {quantiles(delays, n=100)[98]:.2f} s "
        f"| {per_block:.0f} | {per_block / count:.1f} |"
    )


def peers_of(node: SimulatedNode) -> list[object]:
    return list(node.neighbours.peers.all())


def main() -> None:
    """Measure for every number of nodes on the command line."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("| nodes | peers (median) | median | 99 % | posts of a block | per node |")
    print("|---|---|---|---|---|---|")
    for count in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            print(measure(count, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
