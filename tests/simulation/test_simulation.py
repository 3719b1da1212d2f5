"""What must hold of many nodes together, whatever the network does to them.

A run is one seed. A failure names it, with the line that repeats it.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulation.hostile import BEHAVIOURS
from tests.simulation.network import Conditions
from tests.simulation.node import SimulatedNode
from tests.simulation.world import World

SEEDS = [int(seed) for seed in os.environ.get("SVCD_SIMULATION_SEEDS", "1").split(",")]
NODES = int(os.environ.get("SVCD_SIMULATION_NODES", "30"))
DEPTH = 6
"""Blocks at the end of the chain on which nodes may still differ for a while."""

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    worlds: list[World] = []

    def make(seed: int, count: int, conditions: Conditions | None = None) -> World:
        folder = tmp_path / f"{len(worlds)}"
        folder.mkdir()
        worlds.append(World(seed, count, folder, conditions=conditions or Conditions()))
        return worlds[-1]

    yield make
    for world in worlds:
        world.stop()


def agree(world: World, nodes: list[SimulatedNode], depth: int = DEPTH) -> None:
    """All ``nodes`` have a common chain that ends at most ``depth`` blocks below the highest of them."""
    highest = max(node.tip.height for node in nodes)
    common = world.common_height(nodes)
    assert highest - common <= depth, f"{highest - common} blocks apart; to repeat: {world.repeat}"
    assert highest > 0, f"no block was made; to repeat: {world.repeat}"


def test_the_same_seed_gives_the_same_run(make_world: MakeWorld) -> None:
    digests = []
    for _ in range(2):
        world = make_world(7, 4, Conditions(loss=0.1))
        world.run(600)
        digests.append((world.network.trace.digest, [node.tip.hash for node in world.nodes]))
    assert digests[0] == digests[1]


def test_another_seed_gives_another_run(make_world: MakeWorld) -> None:
    worlds = [make_world(seed, 3) for seed in (1, 2)]
    for world in worlds:
        world.run(120)
    assert worlds[0].network.trace.digest != worlds[1].network.trace.digest


def test_nodes_find_each_other_by_hints_alone(make_world: MakeWorld) -> None:
    world = make_world(3, 12)
    world.run(300)
    for node in world.nodes:
        assert len(node.neighbours.peers.outbound()) == 8, node.endpoint
    agree(world, world.nodes, depth=1)


def test_two_halves_agree_again_after_a_partition(make_world: MakeWorld) -> None:
    world = make_world(5, 8)
    world.run(120)
    endpoints = [node.endpoint for node in world.nodes]
    world.network.part([endpoints[:4], endpoints[4:]])
    world.run(1_800)
    assert world.common_height(world.nodes) < min(node.tip.height for node in world.nodes)
    world.network.part([])
    world.run(150)
    agree(world, world.nodes, depth=1)


def test_a_killed_node_comes_back_and_catches_up(make_world: MakeWorld) -> None:
    world = make_world(11, 5)
    world.run(600)
    victim = world.nodes[4]
    before = victim.tip.height
    victim.crash()
    world.run(1_200)
    victim.start()
    assert victim.tip.height == before
    world.run(120)
    agree(world, world.nodes, depth=1)


@pytest.mark.slow
@pytest.mark.deadline(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_an_hour_of_bad_weather_and_bad_neighbours(make_world: MakeWorld, seed: int) -> None:
    """A third of the requests is lost, the network falls apart twice, and one node in five is hostile."""
    world = make_world(seed, NODES, Conditions(loss=0.3))
    hostile = world.nodes[2::5]
    honest = [node for node in world.nodes if node not in hostile]
    for number, node in enumerate(hostile):
        node.turn_hostile(BEHAVIOURS[number % len(BEHAVIOURS)])
    world.run(900)
    for _ in range(2):
        shuffled = world.random.sample(world.nodes, len(world.nodes))
        world.network.part([[n.endpoint for n in shuffled[: NODES // 2]], [n.endpoint for n in shuffled[NODES // 2 :]]])
        world.run(450)
        world.network.part([])
        world.run(900)
    agree(world, honest)
    endpoints = {node.endpoint for node in honest}
    for node in honest:
        peers = {peer.endpoint for peer in node.neighbours.peers.outbound()}
        assert peers & endpoints, f"{node.endpoint} is eclipsed; to repeat: {world.repeat}"
        banned = {other.endpoint for other in honest if node.neighbours.peers.is_banned(other.key.public)}
        assert not banned, f"{node.endpoint} banned honest {banned}; to repeat: {world.repeat}"
