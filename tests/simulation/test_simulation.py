"""What must hold of many nodes together, whatever the network does to them.

A run is one seed. A failure shows it, with the line that repeats it.
"""

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
from svcd.node import snapshots
from svcd.p2p import snapshot_start
from svcd.p2p.chain_sync import HOLD_SECONDS
from svcd.p2p.snapshot_start import StartMode
from tests.simulation.conftest import MakeWorld
from tests.simulation.hostile import KINDS
from tests.simulation.network import Conditions
from tests.simulation.node import SimulatedNode
from tests.simulation.trace import trace
from tests.simulation.world import KEEP_BLOCKS, World

ROOT = Path(__file__).parent.parent.parent
SEEDS = [int(seed) for seed in os.environ.get("SVCD_SIMULATION_SEEDS", "2,3").split(",")]
ENOUGH_NODES = 30
"""One in five of them is hostile; fewer would not get to each of the twelve kinds in half an hour."""
NODES = int(os.environ.get("SVCD_SIMULATION_NODES") or 12)
"""`make simulate` takes enough, and other seeds."""
DEPTH = 6
"""Blocks at the end of the chain on which nodes may still differ while the weather is bad."""


def agree(world: World, nodes: list[SimulatedNode], depth: int = DEPTH) -> None:
    """All ``nodes`` have a common chain that ends at most ``depth`` blocks below the highest of them."""
    highest = max(node.tip.height for node in nodes)
    assert highest > 0, "no block was made"
    assert highest - world.common_height(nodes) <= depth, {node.endpoint: node.tip.height for node in nodes}


@pytest.mark.slow
@pytest.mark.socket
def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    """In another process, where the order of sets and all addresses in memory are others."""
    found = {trace(7, 14, 200, tmp_path)}
    command = [sys.executable, "-m", "tests.simulation.trace", "7", "14", "200"]
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert found == {done.stdout}


def test_a_world_says_how_to_repeat_it(make_world: MakeWorld, capsys: pytest.CaptureFixture[str]) -> None:
    make_world(9, 1)
    assert capsys.readouterr().out == "seed 9; to repeat: make simulate SEEDS=9 NODES=1\n"


def test_another_seed_gives_another_run(make_world: MakeWorld) -> None:
    worlds = [make_world(seed, 3) for seed in (1, 2)]
    for world in worlds:
        world.run(120)
    assert worlds[0].network.trace.digest != worlds[1].network.trace.digest


def test_nodes_find_each_other_by_hints_alone(make_world: MakeWorld) -> None:
    world = make_world(3, 12)
    world.run(300)
    for node in world.nodes:
        assert node.neighbours.peers.missing() == 0, node.endpoint
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


def test_new_nodes_get_the_chain_from_archive_nodes_among_pruned_ones(make_world: MakeWorld) -> None:
    """One that keeps all blocks, and one that keeps few."""
    archives, newcomers = (2, 5, 7), (6, 7)
    world = make_world(13, 8, pruned=[number for number in range(8) if number not in archives])
    few, all_blocks = late = [world.nodes[number] for number in newcomers]
    for node in late:
        node.crash()
    world.run(2_400)
    others = world.nodes[:6]
    agree(world, others, depth=1)
    for node in others:
        below = 0 if node.number in archives else node.tip.height - KEEP_BLOCKS + 1
        assert node.prune_height == below, node.endpoint
    assert others[0].prune_height > KEEP_BLOCKS
    for node in late:
        node.start()
        assert node.tip.height == 0
    world.run(300)
    agree(world, world.nodes, depth=1)
    # None of a batch is deleted in its own commit, and later two for each new block.
    world.run(2_000)
    assert few.prune_height == few.tip.height - KEEP_BLOCKS + 1
    assert all_blocks.prune_height == 0
    check_company(world)


def test_nodes_are_switched_from_archive_to_pruned_and_back(make_world: MakeWorld) -> None:
    world = make_world(17, 6, pruned=[3])
    world.run(2_000)
    pruned, archive = world.nodes[3], world.nodes[4]
    floor = pruned.prune_height
    assert floor > 1
    assert archive.prune_height == 0
    for node, keep_blocks in ((pruned, 0), (archive, KEEP_BLOCKS)):
        node.crash()
        node.keep_blocks = keep_blocks
        node.start()
    # One whole block less with each new one: two are deleted, and one is added.
    world.run(1_800)
    agree(world, world.nodes, depth=1)
    assert archive.prune_height == archive.tip.height - KEEP_BLOCKS + 1
    # What was deleted comes back only with the whole chain.
    assert pruned.prune_height == floor
    pruned.crash()
    for file in (world.folder / "3").glob("chain.sqlite*"):
        file.unlink()
    pruned.start()
    assert pruned.tip.height == 0
    world.run(300)
    agree(world, world.nodes, depth=1)
    assert pruned.prune_height == 0
    reader = pruned.node_context.chain.reader
    for height in range(1, pruned.tip.height + 1):
        assert reader.wire(reader.existing(height))


@pytest.fixture
def small_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot every five blocks, and a start from one if there are more than twenty."""
    for module, name, blocks in (
        (snapshots, "SNAPSHOT_BLOCKS", 5),
        (snapshots, "DEPTH", 2),
        (snapshot_start, "SNAPSHOT_BLOCKS", 5),
        (snapshot_start, "DEPTH", 5),
        (snapshot_start, "MIN_BLOCKS", 20),
    ):
        monkeypatch.setattr(module, name, blocks)


@pytest.mark.usefixtures("small_snapshots")
@pytest.mark.parametrize("archives", [[], pytest.param([0, 2, 5], marks=pytest.mark.slow)])
def test_new_nodes_start_from_snapshots_among_archive_and_pruned_nodes(
    make_world: MakeWorld, archives: list[int]
) -> None:
    """Even where no node has all blocks any more."""
    newcomers = (6, 7)
    world = make_world(19, 8, pruned=[number for number in range(8) if number not in (*archives, *newcomers)])
    others, late = world.nodes[:6], [world.nodes[number] for number in newcomers]
    for node in late:
        node.crash()
        node.start_mode = StartMode.AUTOMATIC
    world.run(2_400)
    agree(world, others, depth=1)
    for node in late:
        node.start()
        world.run(200)
        agree(world, [*others, node], depth=1)
        assert node.prune_height > 20
        assert node.prune_height % 5 == 1
    check_company(world)
    # They make blocks, and take part in a reorganisation, as all others do.
    endpoints = [node.endpoint for node in world.nodes]
    world.network.part([[endpoints[0], endpoints[6]], [*endpoints[1:6], endpoints[7]]])
    world.run(150)
    world.network.part([])
    world.run(150)
    agree(world, world.nodes, depth=1)
    check_company(world)


def wait_for_the_next_slot(params: NetworkParams, tip: ChainPoint, now: int) -> int | None:
    """The present slot, or None while a block has it."""
    present = params.slot_at(now)
    return present if present > tip.slot else None


def hours_of_mining(make_world: MakeWorld, *, waiting: Collection[int]) -> tuple[float, float]:
    """Blocks for each time that hashes were worth one, in all and of node 0 alone.

    The nodes ``waiting``, by number, do not search while a block has the present slot.
    """
    world = make_world(1, 3)
    for number in waiting:
        world.nodes[number].choose_slot = wait_for_the_next_slot
    world.run(8 * 3_600)
    # The last blocks may not have arrived yet.
    world.mining = False
    world.run(60)
    made, found = world.blocks(), world.found
    print(
        f"{made.total()} blocks of {found.total()}, {made[0]} of {found[0]} of node 0, while {waiting or 'none'} wait"
    )
    return made.total() / found.total(), made[0] / found[0]


@pytest.mark.slow
@pytest.mark.deadline(300)
def test_no_hash_power_idles_while_a_block_has_the_present_slot(make_world: MakeWorld) -> None:
    """If all waited for the next slot, a twelfth of all work would be lost, and who does not wait would gain by it."""
    of_all, of_first = hours_of_mining(make_world, waiting=())
    assert of_all >= 0.99
    assert of_first / of_all <= 1.01
    of_all, _ = hours_of_mining(make_world, waiting=(0, 1, 2))
    assert of_all <= 0.95
    of_all, of_first = hours_of_mining(make_world, waiting=(1, 2))
    assert of_first / of_all >= 1.03


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.deadline(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_bad_weather_and_bad_neighbours(make_world: MakeWorld, seed: int) -> None:
    """30 % of the requests are lost, some lines are slow, the network falls apart twice, nodes are killed, one in ten
    cannot be called, and one in five is hostile. When the weather clears, nothing is left of it.

    With 30 nodes that is half an hour, and with fewer less.
    """
    world, minute = stormy(make_world, seed, NODES), 60 * NODES / ENOUGH_NODES
    world.run(max(2.5 * minute, 60))
    world.begin_crashes()
    world.run(max(2.5 * minute, 120))
    for _ in range(2):
        fall_apart(world, apart=max(3.75 * minute, 120), together=max(6.25 * minute, 240))
    world.end_crashes()
    world.run(60)
    agree(world, world.honest)
    check_company(world)
    assert world.crashes
    if NODES >= ENOUGH_NODES:
        assert set(world.network.harm) == {kind.__name__ for kind in KINDS}
    clear_up(world, max(4 * minute, 120))


def stormy(make_world: MakeWorld, seed: int, count: int) -> World:
    """A world in bad weather: payments are made, one node in three keeps few blocks, and one in five is hostile."""
    world = make_world(seed, count, Conditions(loss=0.3), behind_nat=range(8, count, 10), pruned=range(1, count, 3))
    world.network.slow = {node.endpoint for node in world.nodes[4::10]}
    world.turn_hostile(world.nodes[2::5])
    world.begin_payments()
    return world


def fall_apart(world: World, *, apart: int, together: int) -> None:
    """Let the network be two for so many seconds, then one again."""
    shuffled = [node.endpoint for node in world.random.sample(world.nodes, world.count)]
    world.network.part([shuffled[: world.count // 2], shuffled[world.count // 2 :]])
    world.run(apart)
    world.network.part([])
    world.run(together)


def clear_up(world: World, seconds: int) -> None:
    """Let the weather clear, for so many seconds with those who mean harm, then without: nothing is left of it."""
    world.end_payments()
    world.network.conditions = Conditions()
    assert share_behind(world, seconds) < 0.2, "claims hold honest nodes up"
    check_company(world)
    world.network.part([[node.endpoint for node in world.honest]])
    world.run(2 * HOLD_SECONDS)
    check_quiet(world)


def share_behind(world: World, seconds: int) -> float:
    """Let time pass; how much of it an honest node took itself to be behind, on average."""
    samples = []
    for _ in range(seconds // 5):
        world.run(5)
        samples += [bool(node.status.behind) for node in world.honest]
    return sum(samples) / len(samples)


def check_company(world: World) -> None:
    """Every honest node, public or not, talks to honest ones, and has banned none of them."""
    public = {node.endpoint for node in world.honest if node.key.endpoint}
    for node in world.honest:
        peers = node.neighbours.peers
        assert {peer.endpoint for peer in peers.outbound()} & public, f"{node.endpoint} is eclipsed"
        banned = [other.endpoint for other in world.honest if peers.is_banned(other.key.node_id)]
        banned += [endpoint for endpoint in sorted(public) if peers.bans.is_endpoint_banned(endpoint, peers.node.now())]
        assert not banned, f"{node.endpoint} banned honest nodes"


def check_quiet(world: World) -> None:
    """All honest nodes have the same chain with all payments in it that they keep, and find nothing wrong."""
    agree(world, world.honest, depth=1)
    archive = next(node for node in world.honest if not node.keep_blocks)
    heights = {transfer.txid: archive.height_of(transfer) for transfer in world.paid}
    for node in world.honest:
        assert not node.neighbours.peers.alarm, node.endpoint
        assert not node.status.behind, node.endpoint
        kept = [transfer for transfer in world.paid if heights[transfer.txid] >= node.prune_height]
        lost = [transfer.txid.hex() for transfer in kept if not node.has_in_chain(transfer)]
        assert not lost, f"{node.endpoint} lacks payments"
