"""What becomes of a small world in which everything goes wrong that can.

    python -m tests.simulation.trace SEED NODES SECONDS

prints a hash over everything that happened: the same for the same numbers, wherever and whenever it is run.
"""

import sys
import tempfile
from pathlib import Path

from tests.simulation.network import Conditions
from tests.simulation.world import World


def trace(seed: int, count: int, seconds: float, folder: Path) -> str:
    """The hash of the trace, 64 hex characters, and the tips of the honest nodes."""
    world = World(seed, count, folder, conditions=Conditions(loss=0.1), behind_nat={3})
    world.network.slow = {world.nodes[4].endpoint}
    world.turn_hostile(world.nodes[5:])
    world.begin_payments()
    world.begin_crashes()
    world.run(seconds)
    world.end_crashes()
    tips = [node.tip.hash.hex() for node in world.honest]
    world.stop()
    return " ".join([world.network.trace.digest, *tips])


def main(seed: str, count: str, seconds: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(trace(int(seed), int(count), float(seconds), Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
