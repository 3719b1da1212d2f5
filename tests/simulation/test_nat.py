"""A node that nobody can call, with mainnet's rhythm: it asks, and so it knows within ten seconds what others know."""

import pytest

from svcd.node import chainstate
from svcd.p2p import branch_push
from tests.simulation.conftest import MakeWorld
from tests.simulation.world import World

SECONDS = 10.0
"""One slot of mainnet."""


@pytest.fixture(params=[0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def world(make_world: MakeWorld, request: pytest.FixtureRequest) -> World:
    """Five nodes that have met, the last of them behind NAT; no block is made unless the test does."""
    world = make_world(request.param, 5, behind_nat={4}, mining=False)
    world.run(60)
    hidden = world.nodes[4]
    assert len(hidden.neighbours.peers.outbound()) >= 2
    assert not any(node.neighbours.peers.get(hidden.endpoint) for node in world.nodes), "nobody can call it"
    return world


def test_it_sees_a_new_block_within_a_slot(world: World) -> None:
    maker, hidden = world.nodes[0], world.nodes[4]
    for _ in range(5):
        height = maker.tip.height
        maker.mine()
        assert maker.tip.height == height + 1
        world.run_until(lambda: hidden.tip.hash == maker.tip.hash, within=SECONDS)
        world.run(world.random.uniform(SECONDS, 20))


def test_it_sees_a_waiting_transfer_within_a_slot(world: World) -> None:
    maker, hidden = world.nodes[0], world.nodes[4]
    for _ in range(5):
        transfer = world.payment()
        maker.take(transfer)
        world.run_until(lambda transfer=transfer: hidden.has_waiting(transfer), within=SECONDS)  # type: ignore[misc]
        world.run(world.random.uniform(1, 20))


def test_its_blocks_and_transfers_reach_all_nodes_at_once(world: World) -> None:
    others, hidden = world.nodes[:4], world.nodes[4]
    transfer = world.payment()
    hidden.take(transfer)
    world.run_until(lambda: all(node.has_waiting(transfer) for node in others), within=2)
    hidden.mine()
    world.run_until(lambda: all(node.has_in_chain(transfer) for node in others), within=2)


def test_it_catches_up_when_it_comes_back(world: World) -> None:
    maker, hidden = world.nodes[0], world.nodes[4]
    hidden.crash()
    for _ in range(40):
        maker.mine()
        world.run(60)
    hidden.start()
    world.run_until(lambda: hidden.tip == maker.tip and hidden.status.synced, within=SECONDS)


def cut_off(world: World) -> None:
    """Let the hidden node make ten blocks, and the others seven, while they cannot reach each other; then they can."""
    maker, hidden = world.nodes[0], world.nodes[4]
    world.network.part([[node.endpoint for node in world.nodes[:4]], [hidden.endpoint]])
    for number in range(10):
        for node in (maker, hidden) if number < 7 else (hidden,):
            node.mine()
        world.run(60)
    world.network.part([])
    assert maker.tip.height + 3 == hidden.tip.height


def test_a_branch_made_behind_nat_arrives_without_another_block(world: World) -> None:
    cut_off(world)
    tip = world.nodes[4].tip
    world.run_until(lambda: {node.tip.hash for node in world.nodes} == {tip.hash}, within=120)


def test_a_branch_made_behind_nat_arrives_from_far_below_the_tip(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others do not keep its first blocks before the headers of all have shown more work than their own chain."""
    monkeypatch.setattr(chainstate, "SIDE_DEPTH", 2)
    cut_off(world)
    tip = world.nodes[4].tip
    world.run_until(lambda: {node.tip.hash for node in world.nodes} == {tip.hash}, within=120)


def test_a_long_branch_made_behind_nat_arrives_in_rounds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others show their own chain until they have more of the longer one than is handed in at a time."""
    monkeypatch.setattr(branch_push, "ROUND_BYTES", 3 * branch_push.MIN_BLOCK_BYTES)
    cut_off(world)
    hidden = world.nodes[4]

    for _ in range(10):
        hidden.mine()
        world.run(60)

    assert {node.tip.hash for node in world.nodes} == {hidden.tip.hash}
