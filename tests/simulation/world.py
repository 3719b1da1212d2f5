"""A world of simulated nodes: time, mining, weather, and what must be true of it."""

from pathlib import Path
from random import Random

from attrs import define, evolve, field

from svcd.chain.params import NetworkParams
from tests.chains import TEST_PARAMS
from tests.simulation.clock import HeapClock
from tests.simulation.network import Conditions, Network, Trace
from tests.simulation.node import SimulatedNode

PARAMS = evolve(
    TEST_PARAMS,
    slot_seconds=10,
    slots_per_block=6,
    half_life_slots=720,
    gap_cap_slots=720,
    drift_slots=2,
    initial_target=2**255,
)
"""Mainnet's rhythm, a block a minute, with work that costs nothing."""
BLOCK_SECONDS = PARAMS.slot_seconds * PARAMS.slots_per_block
SEEDS = 2
"""The first nodes, which all others know from the start."""


@define(eq=False)
class World:
    """``count`` nodes in ``folder``; everything in it follows from ``seed``."""

    seed: int
    count: int
    folder: Path
    params: NetworkParams = PARAMS
    conditions: Conditions = field(factory=Conditions)
    nodes: list[SimulatedNode] = field(init=False)
    network: Network = field(init=False)
    random: Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        clock = HeapClock(self.params.genesis_time / 1000 + 1_000)
        self.random = Random(f"world {self.seed}")
        name = f"world {self.seed} of {self.count}"
        self.network = Network(name, clock, Random(f"network {self.seed}"), Trace(clock), self.conditions)
        self.nodes = []
        seeds: list[str] = []
        for number in range(self.count):
            folder = self.folder / str(number)
            node = SimulatedNode(number, params=self.params, network=self.network, folder=folder, seeds=list(seeds))
            self.nodes.append(node)
            if number < SEEDS:
                seeds.append(node.endpoint)
            node.start()
        self._schedule_block()

    @property
    def repeat(self) -> str:
        """The line that repeats this run."""
        return f"make simulate SEEDS={self.seed} NODES={self.count}"

    def _schedule_block(self) -> None:
        self.network.clock.callLater(self.random.expovariate(1 / BLOCK_SECONDS), self._find_block)

    def _find_block(self) -> None:
        node = self.random.choice(self.nodes)
        if node.running:
            node.mine()
        self._schedule_block()

    def run(self, seconds: float) -> None:
        """Let time pass, from one event to the next."""
        self.network.clock.run(seconds)

    def stop(self) -> None:
        """Close every node's files."""
        for node in self.nodes:
            if node.running:
                node.crash()

    def common_height(self, nodes: list[SimulatedNode]) -> int:
        """The height up to which all ``nodes`` have the same chain."""
        height = min(node.tip.height for node in nodes)
        while len({self._hash(node, height) for node in nodes}) > 1:
            height -= 1
        return height

    @staticmethod
    def _hash(node: SimulatedNode, height: int) -> bytes:
        stored = node.living.chain.reader.canonical(height)
        assert stored is not None
        return stored.point.hash
