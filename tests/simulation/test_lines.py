"""What slow and long lines make of catching up and of a new block: as fast as the line, and nothing twice."""

from pathlib import Path

import pytest
from attrs import frozen
from twisted.internet.defer import Deferred

from svcd.node.changes import BlockStatus
from tests.simulation.conftest import MakeWorld
from tests.simulation.network import Conditions
from tests.simulation.node import SimulatedNode
from tests.simulation.ready import ReadyChain, empty_chain, full_chains
from tests.simulation.world import World
from tests.support import result_of

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.deadline(600)]

BLOCKS = {1: 8, 2: 8, 8: 16, 50: 32}
"""How many full blocks there are to fetch, by the rate in Mbit/s."""
EMPTY_BLOCKS = 3_000
LATENCY = 0.02
BITS = 8


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> dict[int, ReadyChain]:
    """Chains of full blocks by height."""
    return full_chains(tmp_path_factory.mktemp("full"), sorted(set(BLOCKS.values())))


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> ReadyChain:
    """A long chain of empty blocks."""
    return empty_chain(tmp_path_factory.mktemp("empty"), EMPTY_BLOCKS)


@frozen
class CatchingUp:
    """A world in which the last node is new, and the others have a chain; nobody makes blocks."""

    world: World
    chain: ReadyChain

    @property
    def new(self) -> SimulatedNode:
        return self.world.nodes[-1]

    def run(self, within: float) -> float:
        """The seconds from the first request of the new node until it has the chain, to the tenth."""
        world, new, peers = self.world, self.new, self.world.nodes[:-1]
        line = world.network.line(new.endpoint)
        world.run_until(lambda: line.up.bytes > 0, within=10)
        met: set[str] = set()

        def has_all() -> bool:
            check_company(new, peers)
            known = {peer.endpoint for peer in new.neighbours.peers.all()}
            assert met <= known, "honest peers were dropped"
            met.update(known)
            return new.tip == peers[0].tip

        return world.run_until(has_all, within=within)


def check_company(new: SimulatedNode, peers: list[SimulatedNode]) -> None:
    """No peer of the new node is banned or doubted."""
    known = new.neighbours.peers
    assert not [peer.endpoint for peer in known.all() if peer.unproven_claims], "honest peers are doubted"
    assert not [peer.endpoint for peer in peers if known.is_banned(peer.key.node_id)], "honest peers are banned"


def catching_up(make_world: MakeWorld, chain: ReadyChain, *, peers: int, latency: float) -> CatchingUp:
    """``peers`` nodes with ``chain`` and one without, which is about to start."""
    conditions = Conditions(latency=(latency, latency))

    def prepare(world_folder: Path) -> None:
        chain.give(world_folder, range(peers))

    world = make_world(
        1, peers + 1, conditions, prepare=prepare, mining=False, seeds=peers, begin=chain.seconds + 1_000
    )
    new = world.nodes[-1]
    new.crash()
    # The others meet, so that nothing else is on the line but what the new node asks for.
    world.run(90)
    assert world.network.line(new.endpoint).down.bytes == 0
    new.start()
    return CatchingUp(world, chain)


@pytest.mark.parametrize(("mbits", "peers"), [(1, 8), (2, 1), (8, 3), (50, 1), (50, 8)])
def test_a_new_node_arrives_at_the_rate_of_its_line(
    make_world: MakeWorld, full: dict[int, ReadyChain], mbits: int, peers: int
) -> None:
    chain = full[BLOCKS[mbits]]
    catching = catching_up(make_world, chain, peers=peers, latency=LATENCY)
    line = catching.world.network.line(catching.new.endpoint)
    line.down.limit(mbits * 1e6)
    at_best = chain.bytes * BITS / (mbits * 1e6)
    catching.run(within=1.25 * at_best)
    assert line.down.bytes <= 1.1 * chain.bytes, "blocks were fetched more than once"
    # It has met all of them, and keeps them.
    catching.world.run(60)
    assert len(catching.new.neighbours.peers.all()) == peers
    check_company(catching.new, catching.world.nodes[:-1])


def test_a_full_block_reaches_eight_peers_over_a_slow_uplink(
    make_world: MakeWorld, full: dict[int, ReadyChain]
) -> None:
    """One after the other, eight copies would take 35 s of the line, and all of them at once longer than a call."""
    world = make_world(1, 9, Conditions(latency=(LATENCY, LATENCY)), mining=False)
    world.run(120)
    maker, others = world.nodes[0], world.nodes[1:]
    assert len(maker.neighbours.peers.all()) == 8
    world.network.line(maker.endpoint).up.limit(2e6)
    block = full[min(full)].blocks[0]
    assert (
        result_of(Deferred.fromCoroutine(maker.node_context.chain_manager.submit_block(block))) is BlockStatus.CONNECTED
    )
    world.run_until(lambda: all(node.tip == maker.tip for node in others), within=40)


@pytest.mark.parametrize(("round_trip", "share"), [(0.1, 0.5), (0.2, 0.4)])
def test_a_long_round_trip_is_waited_for_a_few_times_only(
    make_world: MakeWorld, empty: ReadyChain, round_trip: float, share: float
) -> None:
    """Where no time passes but on the line, whole round trips are all there is to count.

    A node that takes in 2,400 blocks a second without delay does so at ``share`` of that rate if it waits no longer.
    """
    at_best = len(empty.blocks) / 2_400
    catching = catching_up(make_world, empty, peers=1, latency=round_trip / 2)
    catching.run(within=at_best / share - at_best)
