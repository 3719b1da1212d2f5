"""Nodes as their operators run them, in processes of their own, that meet over real sockets."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.prepared_chain import build_blocks
from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.signature import public_key_of
from svcd.chain.snapshot import SNAPSHOT_BLOCKS
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from svcd.store.database import connect
from tests.process_level.conftest import DEVNET as ON_DEMAND
from tests.process_level.conftest import Nodes
from tests.process_level.conftest import nodes as nodes
from tests.process_level.running import RunningNode, free_port, wait_until
from tests.torture.audit import Books, audit

pytestmark = [pytest.mark.socket, pytest.mark.slow]

SOON = 30.0
"""Seconds in which nodes that know each other are in step again on a busy machine; far less than between renewals."""
BLOCKS, TRANSFERS = 1_000, 5
"""How many blocks a node has to fetch, and how many transfers there are in each."""
PATIENCE = 400.0
"""Seconds for these on a busy machine."""
GAP = 4
"""Slots between them: more than usual, so that the target eases and they are soon made."""


def address_of(seed: bytes) -> str:
    return encode_address(key_hash(public_key_of(seed)), DEVNET.address_prefix)


def somebody(number: int) -> bytes:
    """The seed of somebody's key."""
    return sha256(b"somebody %d" % number).digest()


def payment(sender: bytes, nonce: int, recipient: bytes, **fields: Any) -> Transfer:
    """A signed transfer of 1,000,000 base units, unless ``fields`` say otherwise."""
    draft = Draft(
        recipient=address_of(recipient),
        fee=DEVNET.minimum_fee,
        nonce=nonce,
        **{"amount": 1_000_000, "timestamp": DEVNET.genesis_time, **fields},
    )
    return sign_transfer(draft, seed=sender, params=DEVNET)


def bodies(blocks: int, each: int) -> Iterator[list[Transfer]]:
    """The transfers of so many blocks: coins for a hundred signers, half of them for an order."""
    nonce = 0
    for _ in range(blocks):
        body = []
        for _ in range(each):
            reference = f"order-{nonce}" if nonce % 2 else None
            body.append(payment(FAUCET_SEED, nonce, somebody(nonce % 100), amount=10**7, reference=reference))
            nonce += 1
        yield body


@pytest.fixture(scope="module")
def long_chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with 1,000 blocks and 5,000 transfers."""
    path = tmp_path_factory.mktemp("long") / "chain.sqlite"
    build_blocks(path, bodies(BLOCKS, TRANSFERS), gap=GAP)
    return path


@pytest.fixture(scope="module")
def trunk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a few blocks, after which a hundred signers have coins."""
    path = tmp_path_factory.mktemp("trunk") / "chain.sqlite"
    build_blocks(path, bodies(20, 20), gap=GAP)
    return path


def copy_database(database: Path, data_dir: Path) -> None:
    """Give a node a chain before it starts."""
    data_dir.mkdir(mode=0o700)
    shutil.copy(database, data_dir / "chain.sqlite")


def start(nodes: Nodes, name: str, port: int, *seeds: int, more: Sequence[str] = ()) -> RunningNode:
    """A node that can be called at its port and knows of those at others; ``more`` are further options."""
    known = ",".join(f'"http://127.0.0.1:{seed}"' for seed in seeds)
    options = (f"--set=http.publicUrl=http://127.0.0.1:{port}", f"--set=p2p.seeds=[{known}]", *more)
    return nodes.start(*ON_DEMAND, *options, name=name, port=port)


def verified(node: RunningNode) -> int:
    return int(node.ok(node.operator("/operator/status"))["status"]["peers"]["verified"])


def height(node: RunningNode) -> int:
    return int(node.status()["height"])


def agree(nodes: list[RunningNode]) -> bool:
    """Whether all have the same tip and the same roots."""
    tips = [node.status() for node in nodes]
    return len({(tip["hash"], tip["stateRoot"], tip["consensusRoot"]) for tip in tips}) == 1


def waits_at(node: RunningNode, txid: str) -> bool:
    """Whether a transfer is in a node's mempool."""
    return "but waits in the mempool" in node.get(f"/rpc/transaction/{txid}").json.get("error", "")


def audited(node: RunningNode) -> Books:
    """The books of a node that has been stopped."""
    return audit(node.data_dir / "chain.sqlite", DEVNET.rules)


def told(node: RunningNode) -> int:
    """How many transfers others have handed in at a node."""
    return int(node.measured("svcd_http_requests_total", method="POST", route="/p2p/transaction", status="200"))


@pytest.mark.deadline(120)
def test_three_nodes(nodes: Nodes, long_chain: Path) -> None:
    """They find each other from one seed, fetch the whole chain, and share transfers and blocks."""
    ports = [free_port() for _ in range(3)]
    copy_database(long_chain, nodes.folder / "first")
    first = start(nodes, "first", ports[0])
    second = start(nodes, "second", ports[1], ports[0])
    wait_until(lambda: verified(first) == 1, "a call back")
    third = start(nodes, "third", ports[2], ports[0])
    network = [first, second, third]
    wait_until(lambda: [verified(node) for node in network] == [2, 2, 2], "everybody knows everybody")
    wait_until(lambda: height(second) == height(third) == BLOCKS, "the whole chain", seconds=PATIENCE)
    assert agree(network)
    # The blocks that a devnet makes are of today.
    now = int(time.time() * 1000)
    last = payment(FAUCET_SEED, BLOCKS * TRANSFERS, somebody(0), reference="the-last", timestamp=now)
    broadcast(second, last, network)
    wait_until(lambda: told(first) > 0 and told(third) > 0, "a transfer that is handed on and not asked for")
    (block,) = third.mine(1)
    wait_until(lambda: all(node.status()["hash"] == block for node in network), "the next block")
    assert agree(network)
    wait_until(lambda: {node.status()["syncState"] for node in network} == {"synced"}, "nodes that know it")
    for node in network:
        found = node.ok(node.get(f"/rpc/transaction/{last.txid.hex()}"))["transaction"]
        assert (found["blockHash"], found["confirmations"]) == (block, 1)
        assert node.status()["syncLagBlocks"] == "0"
    nodes.stop()
    books = [audited(node) for node in network]
    assert {(len(each.transactions), len(each.payments)) for each in books} == {(5_001, 2_501)}


@pytest.mark.deadline(300)
def test_a_node_that_is_killed_again_and_again_starts_from_a_snapshot(nodes: Nodes) -> None:
    """It has the same state as the node that executed every block, and says from which block on it has transfers."""
    ports, random = [free_port(), free_port()], Random(1)
    length = 2 * SNAPSHOT_BLOCKS + 10
    (nodes.folder / "archive").mkdir(mode=0o700)
    build_blocks(nodes.folder / "archive" / "chain.sqlite", [*bodies(5, TRANSFERS), *[()] * (length - 5)], gap=GAP)
    archive = start(nodes, "archive", ports[0])

    def served() -> list[str]:
        return [each["height"] for each in archive.ok(archive.get("/p2p/status"))["status"]["snapshots"]]

    wait_until(lambda: str(SNAPSHOT_BLOCKS) in served(), "a snapshot")
    more = ("--set=chain.start=snapshot",)
    for _ in range(4):
        node = start(nodes, "fresh", ports[1], ports[0], more=more)
        # At any instant, not when something has happened.
        time.sleep(random.uniform(0.0, 2.0))
        node.kill()
    fresh = start(nodes, "fresh", ports[1], ports[0], more=more)
    wait_until(lambda: height(fresh) == length, "the whole chain", seconds=PATIENCE)
    assert agree([archive, fresh])
    first = SNAPSHOT_BLOCKS + 1
    assert (archive.status()["pruneHeight"], fresh.status()["pruneHeight"]) == ("0", str(first))
    assert fresh.measured("svcd_chain_prune_height") == first
    assert (fresh.get("/rpc/block/1").status, fresh.get(f"/rpc/block/{first}").status) == (410, 200)
    (block,) = archive.mine(1)
    wait_until(lambda: fresh.status()["hash"] == block, "the next block")
    assert agree([archive, fresh])
    # As docs/storage.md "Keeping only the newest blocks" says: to all blocks, and back by a snapshot.
    for way, lowest in (("blocks", 0), ("snapshot", first)):
        fresh.stop()
        (fresh.data_dir / "chain.sqlite").rename(fresh.data_dir / f"chain.sqlite-before-{way}")
        fresh = start(nodes, "fresh", ports[1], ports[0], more=(f"--set=chain.start={way}",))
        wait_until(lambda node=fresh: node.status()["hash"] == block, way, seconds=PATIENCE)  # type: ignore[misc]
        assert agree([archive, fresh])
        assert fresh.status()["pruneHeight"] == str(lowest)
        assert fresh.get("/rpc/block/1").status == (410 if lowest else 200)


def broadcast(node: RunningNode, transfer: Transfer, network: list[RunningNode]) -> None:
    """Hand a transfer to one node and wait until all have it."""
    body = b'{"transaction":' + transfer.wire + b"}"
    assert node.ok(node.post("/rpc/broadcast", body))["state"] == "accepted"
    wait_until(lambda: all(waits_at(each, transfer.txid.hex()) for each in network), "a transfer in every mempool")


@pytest.mark.story
@pytest.mark.deadline(120)
def test_two_nodes_that_were_cut_off(nodes: Nodes, trunk: Path) -> None:
    """50 blocks each, the same money spent in two ways; joined again, there is one chain, and the books are right."""
    ports = [free_port(), free_port()]
    spent: list[list[Transfer]] = []
    for side, port in enumerate(ports):
        copy_database(trunk, nodes.folder / f"{side}")
        node = start(nodes, f"{side}", port)
        spent.append(spend(node, side))
        node.stop()
    joined = [start(nodes, f"{side}", port, ports[1 - side]) for side, port in enumerate(ports)]
    wait_until(lambda: agree(joined), "one chain")
    winner = joined[0].ok(joined[0].get("/rpc/block/30"))["block"]["transactions"]
    lost = spent[0] if any(value["payload"]["paymentReference"] == "side-1" for value in winner) else spent[1]
    wait_until(lambda: all(what_became_of(node, lost) == ["gone", "waiting"] * 25 for node in joined), "what was lost")
    joined[0].mine(2)
    wait_until(lambda: agree(joined), "the next blocks")
    for node in joined:
        assert what_became_of(node, lost) == ["gone", "in the chain"] * 25
        answer = node.post("/rpc/broadcast", b'{"transaction":' + lost[0].wire + b"}")
        assert answer.error.startswith("nonce 0 is already used"), "whoever sends it again is told why"
    nodes.stop()
    for node in joined:
        # The audit compares every index, of addresses, transfers and references, with the blocks.
        assert audited(node).height == 72
        references = [str(payment[0]) for payment in audited(node).payments]
        assert references.count("side-0") + references.count("side-1") == 50 + 25


def spend(node: RunningNode, side: int) -> list[Transfer]:
    """50 blocks with a transfer in each: by turns one of money that the other side spends too, and one of its own."""
    made: list[Transfer] = []
    for number in range(50):
        shared = number % 2 == 0
        sender = somebody(number // 2 if shared else 50 + 25 * side + number // 2)
        # The blocks that a devnet makes are of today.
        now = int(time.time() * 1000)
        made.append(payment(sender, 0, somebody(200 + side), reference=f"side-{side}", timestamp=now))
        node.ok(node.post("/rpc/broadcast", b'{"transaction":' + made[-1].wire + b"}"))
        node.mine(1)
    return made


def what_became_of(node: RunningNode, transfers: list[Transfer]) -> list[str]:
    """For each transfer whether it is in the chain, waiting or gone."""
    found = []
    for transfer in transfers:
        answer = node.get(f"/rpc/transaction/{transfer.txid.hex()}")
        waiting = waits_at(node, transfer.txid.hex())
        found.append("in the chain" if answer.status == 200 else "waiting" if waiting else "gone")
    return found


@pytest.mark.deadline(1_800)
def test_a_node_that_is_killed_while_it_catches_up(nodes: Nodes, long_chain: Path, torture: bool) -> None:
    """It goes on from where it was: nothing that it had shown is lost, and nothing has to be repaired."""
    ports = [free_port(), free_port()]
    copy_database(long_chain, nodes.folder / "source")
    source = start(nodes, "source", ports[0])
    chance, kills, shown = Random(5), 0, 0
    while kills < (100 if torture else 5):
        syncing = start(nodes, "syncing", ports[1], ports[0])
        assert height(syncing) >= shown
        until = shown + chance.randrange(BLOCKS // 4)
        wait_until(lambda least=until, node=syncing: height(node) >= least, "progress")  # type: ignore[misc]
        # Not to wait for anything, but to hit any instant.
        time.sleep(chance.random() / 20)
        shown = height(syncing)
        syncing.kill()
        committed = height_on_disk(syncing)
        assert committed >= shown
        # One that had everything when it was killed was not killed while it caught up.
        kills += committed < BLOCKS
        if shown >= BLOCKS * 3 // 4:
            assert audited(syncing).height == committed
            shutil.rmtree(syncing.data_dir)
            shown = 0
    syncing = start(nodes, "syncing", ports[1], ports[0])
    wait_until(lambda: height(syncing) == BLOCKS, "the whole chain", seconds=PATIENCE)
    assert agree([source, syncing])
    nodes.stop()
    assert len(audited(syncing).transactions) == BLOCKS * TRANSFERS


def met(nodes: Nodes) -> tuple[RunningNode, RunningNode]:
    """Two nodes that have met: the second has the first as its seed, and the first learns of the second by that."""
    ports = [free_port(), free_port()]
    first = start(nodes, "first", ports[0])
    second = start(nodes, "second", ports[1], ports[0])
    wait_until(lambda: verified(first) == verified(second) == 1, "two nodes that have met")
    return first, second


def kept(node: RunningNode) -> str:
    """The text of a node's peers.json; "" if there is none."""
    path = node.data_dir / "peers.json"
    return path.read_text() if path.exists() else ""


@pytest.mark.story
def test_a_node_that_is_killed_in_its_first_minute_is_not_synced_before_it_has_what_its_peer_made(nodes: Nodes) -> None:
    first, second = met(nodes)
    wait_until(lambda: '"verified": true' in kept(first), "a peer that is remembered", seconds=SOON)
    first.kill()
    second.mine(3)
    first = start(nodes, "first", first.port)
    seen = []

    def in_step() -> bool:
        status = first.status()
        seen.append((status["syncState"], status["height"], first.operator("/ready").status))
        return bool(status["syncState"] == "synced")

    wait_until(in_step, "a node that is synced", seconds=SOON)
    assert seen[-1][1:] == ("3", 200), seen


def test_a_node_that_has_lost_its_memory_soon_hears_of_what_its_peer_made(nodes: Nodes) -> None:
    first, second = met(nodes)
    first.kill()
    (first.data_dir / "peers.json").unlink(missing_ok=True)
    second.mine(3)
    first = start(nodes, "first", first.port)
    wait_until(lambda: height(first) == 3, "the blocks of a peer that is not known any more", seconds=3 * SOON)


def test_a_node_that_starts_before_its_peer_meets_it_within_seconds(nodes: Nodes) -> None:
    first, second = met(nodes)
    nodes.stop()
    first = start(nodes, "first", first.port)
    assert first.status()["syncState"] == "catching-up", "it waits for the node that it knows"
    wait_until(lambda: first.status()["syncState"] == "synced", "a node that goes on without its peer", seconds=SOON)
    second = start(nodes, "second", second.port)
    wait_until(lambda: verified(first) == verified(second) == 1, "two nodes that have met again", seconds=SOON)


def height_on_disk(node: RunningNode) -> int:
    """The height of a node's chain when it was killed."""
    with closing(connect(node.data_dir / "chain.sqlite")) as db:
        (found,) = db.execute("SELECT max(height) FROM canonical").fetchone()
    return int(found)
