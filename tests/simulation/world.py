"""A world of simulated nodes: time, mining, payments, weather, and what must be true of it."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from random import Random

from attrs import define, evolve, field

from svcd.chain.params import MAINNET, NetworkParams
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from svcd.interfaces import milliseconds
from tests.chains import COIN, address_of, key_of
from tests.simulation.clock import HeapClock
from tests.simulation.hostile import KINDS
from tests.simulation.network import Conditions, Network, Trace
from tests.simulation.node import SimulatedNode, SimulationSettings

PEOPLE = 1_000
"""Those who have coins from the beginning, and pay once."""
PARAMS = evolve(
    MAINNET,
    memory_kib=64,
    initial_target=2**255,
    max_target=2**255,
    allocations=tuple((address_of(f"person {n}", MAINNET.address_prefix), 100 * COIN) for n in range(PEOPLE)),
)
"""Mainnet, a block a minute, with work that costs nothing and coins to spend."""
BLOCK_SECONDS = PARAMS.slot_seconds * PARAMS.slots_per_block
PAYMENT_SECONDS = 20.0
CRASH_SECONDS = 200.0
"""From one crash to the next, on average."""
REST_SECONDS = (1.0, 300.0)
"""How long a node stays down."""
TURN_SECONDS = 600.0
"""How long somebody hostile does harm in the same way."""
KEEP_BLOCKS = 15
"""More than a partition of some minutes undoes, and fewer than a quarter of an hour brings."""
SEEDS = 2
"""How many of the first nodes all others know from the start."""
BEGIN_SECONDS = 1_000.0


@define(eq=False)
class World:
    """``count`` nodes in ``folder``; everything in it follows from ``seed``."""

    seed: int
    count: int
    folder: Path
    params: NetworkParams = PARAMS
    conditions: Conditions = field(factory=Conditions)
    behind_nat: Collection[int] = ()
    """The numbers of nodes that nobody can call."""
    pruned: Collection[int] = ()
    """The numbers of nodes that keep only the newest KEEP_BLOCKS whole."""
    mining: bool = True
    """Whether blocks are found by chance."""
    seeds: int = SEEDS
    begin: float = BEGIN_SECONDS
    """When it begins, in seconds after the genesis."""
    honest: list[SimulatedNode] = field(init=False)
    nodes: list[SimulatedNode] = field(init=False)
    network: Network = field(init=False)
    random: Random = field(init=False)
    paid: list[Transfer] = field(factory=list)
    """Transfers that an honest node took."""
    found: Counter[int] = field(factory=Counter)
    """How often the hashes of each node, by its number, were worth a block; it has found none if it did not search."""
    crashes: int = 0
    _payments: int = 0
    _paying: bool = False
    _crashing: bool = False

    def __attrs_post_init__(self) -> None:
        clock = HeapClock(self.params.genesis_time / 1000 + self.begin)
        self.random = Random(f"world {self.seed}")
        name = f"world {self.seed} of {self.count}"
        self.network = Network(name, clock, Random(f"network {self.seed}"), Trace(clock), self.conditions)
        self.nodes = []
        seeds: tuple[str, ...] = ()
        for number in range(self.count):
            settings = SimulationSettings(self.params, self.network, self.folder, seeds)
            keep_blocks = KEEP_BLOCKS if number in self.pruned else 0
            node = SimulatedNode(number, settings, public=number not in self.behind_nat, keep_blocks=keep_blocks)
            self.nodes.append(node)
            if number < self.seeds:
                seeds = (*seeds, node.endpoint)
            node.start()
        self.honest = list(self.nodes)
        if self.mining:
            self._now_and_then(BLOCK_SECONDS, self._find_block)

    @property
    def repeat(self) -> str:
        """The line that repeats this run."""
        return f"make simulate SEEDS={self.seed} NODES={self.count}"

    def _now_and_then(self, seconds: float, happen: Callable[[], None]) -> None:
        """Let something happen again and again, at random moments so far apart on average."""

        def happens() -> None:
            happen()
            self._now_and_then(seconds, happen)

        self.network.clock.callLater(self.random.expovariate(1 / seconds), happens)

    def _find_block(self) -> None:
        node = self.random.choice(self.nodes)
        if self.mining and node.running and node in self.honest:
            self.found[node.number] += 1
            node.mine()

    def blocks(self) -> Counter[int]:
        """How many blocks of the chain that all nodes have are those of each node, by its number."""
        reader = self.nodes[0].node_context.chain.reader
        numbers = {node.key.public: node.number for node in self.nodes}
        return Counter(numbers[key] for _, key, _ in reader.producers(1, self.common_height(self.nodes)))

    def turn_hostile(self, nodes: Sequence[SimulatedNode], turn: int = 0) -> None:
        """From now on these mean harm, each in one way after the other."""
        self.honest = [node for node in self.nodes if node not in nodes]
        for place, node in enumerate(nodes):
            node.turn_hostile(KINDS[(turn * len(nodes) + place) % len(KINDS)])
        self.network.clock.callLater(TURN_SECONDS, self.turn_hostile, nodes, turn + 1)

    def begin_payments(self) -> None:
        """From now on somebody pays at some node now and then."""
        self._paying = True
        self._now_and_then(PAYMENT_SECONDS, self._pay)

    def end_payments(self) -> None:
        """Nobody pays any more."""
        self._paying = False

    def _pay(self) -> None:
        node = self.random.choice(self.honest)
        if self._paying and node.running and self._payments < PEOPLE:
            transfer = self.payment()
            self.paid.append(transfer)
            node.take(transfer)
            self.network.trace.note("paid", node.endpoint, transfer.txid.hex())

    def payment(self) -> Transfer:
        """A transfer by somebody who has not paid yet."""
        now, number = milliseconds(self.network.clock), self._payments
        recipient = address_of("merchant", self.params.address_prefix)
        draft = Draft(
            recipient=recipient, amount=self.params.account_minimum, fee=self.params.minimum_fee, nonce=0, timestamp=now
        )
        self._payments += 1
        return sign_transfer(draft, seed=key_of(f"person {number}").seed, params=self.params)

    def begin_crashes(self) -> None:
        """From now on honest nodes are killed now and then, and started again a while later."""
        self._crashing = True
        self._now_and_then(CRASH_SECONDS, self._crash)

    def _crash(self) -> None:
        node = self.random.choice(self.honest)
        if self._crashing and node.running:
            self.crashes += 1
            self.network.trace.note(node.endpoint, "crashes at", node.tip.height)
            node.crash()
            self.network.clock.callLater(self.random.uniform(*REST_SECONDS), self._start, node)

    def end_crashes(self) -> None:
        """Let all be up, and stay so."""
        self._crashing = False
        for node in self.nodes:
            self._start(node)

    @staticmethod
    def _start(node: SimulatedNode) -> None:
        if not node.running:
            node.start()

    def run(self, seconds: float) -> None:
        """Let time pass, from one event to the next."""
        self.network.clock.run(seconds)

    def run_until(self, condition: Callable[[], bool], *, within: float) -> float:
        """The seconds, in tenths, until something is true; fails if it is not within so many."""
        began = self.network.clock.seconds()
        while not condition():
            assert self.network.clock.seconds() - began < within, f"not within {within} s; to repeat: {self.repeat}"
            self.run(0.1)
        return self.network.clock.seconds() - began

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
        stored = node.node_context.chain.reader.canonical(height)
        assert stored is not None
        return stored.point.hash
