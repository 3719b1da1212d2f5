"""A start from a snapshot: headers and accounts wait beside the chain, and become the chain in one commit."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import apsw
import pytest

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.transition import ChainHead, genesis_head, head_after
from svcd.node.changes import BlockStatus
from svcd.node.mempool import RemovalReason
from svcd.store.database import DatabaseConnection, is_damage
from svcd.store.snapshot_staging import SnapshotStaging, StagingDamaged
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import Node, running
from tests.p2p.remote_node import snapshot_of
from tests.store.contents import contents
from tests.store.damage import PAGE, change_last_byte, flip_bit, overwrite, pages_of
from tests.support import result_of

MOST = 4
STAGING = ["snapshot_header", "snapshot_progress", "snapshot_chunk", "snapshot_account"]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with running(tmp_path) as node:
        yield node


@pytest.fixture(scope="module")
def chain() -> ChainBuilder:
    return ChainBuilder()


@pytest.fixture(scope="module")
def blocks(chain: ChainBuilder) -> list[Block]:
    return grow(chain, 40)


def grow(chain: ChainBuilder, count: int, on: Block | None = None, name: str = "b") -> list[Block]:
    """Blocks with a transfer each to somebody new."""
    made: list[Block] = []
    for number in range(count):
        parent = made[-1] if made else on
        nonce = chain.account_after(parent, "alice").nonce
        transfer = chain.transfer("alice", f"{name}{number}", 7, nonce=nonce)
        slot = chain.point_after(parent).slot + 2
        made.append(chain.block(parent, slot=slot, producer=name, transfers=[transfer]))
    return made


def heads_of(blocks: Sequence[Block]) -> list[ChainHead]:
    """The genesis and each block as the block to build on."""
    heads = [genesis_head(TEST_PARAMS)]
    for block in blocks:
        heads.append(head_after(TEST_PARAMS, heads[-1], block.header))
    return heads


def staging_of(node: Node) -> SnapshotStaging:
    return SnapshotStaging(node.connections[0], TEST_PARAMS)


def add_headers(staging: SnapshotStaging, blocks: Sequence[Block], *, first: int = 0, each: int = 7) -> None:
    """Add the headers of a chain from index ``first`` on, a few to a commit."""
    heads = heads_of(blocks)
    for at in range(first, len(blocks), each):
        some = [block.header for block in blocks[at : at + each]]
        staging.add_headers(heads[at], some, heads[at + 1 : at + 1 + len(some)])


def add_state(staging: SnapshotStaging, chain: ChainBuilder, block: Block) -> None:
    """Add the accounts after a block, and leave out chunks that are there."""
    manifest, _ = snapshot_of(chain, block, MOST)
    accounts = sorted(chain.accounts_after(block).items())
    progress = staging.progress()
    if progress is None or progress.manifest != manifest:
        staging.begin_state(manifest)
    progress = staging.progress()
    assert progress is not None
    for index in progress.missing:
        staging.add_chunk(index, accounts[manifest.starts[index] : manifest.starts[index + 1]])


def adopt(node: Node, staging: SnapshotStaging) -> bool:
    return result_of(node.chain_manager.adopt_snapshot(staging))


def start_at(node: Node, chain: ChainBuilder, blocks: Sequence[Block], height: int) -> None:
    staging = staging_of(node)
    add_headers(staging, blocks)
    add_state(staging, chain, blocks[height - 1])
    assert adopt(node, staging)


def served(connection: DatabaseConnection, height: int) -> dict[str, list[tuple[object, ...]]]:
    """What a start from a snapshot must have as every other node has it."""
    history = connection.execute("SELECT height, level, node FROM history WHERE height <= ? ORDER BY 1, 2", (height,))
    canonical = connection.execute(
        "SELECT b.height, b.hash, b.parent, b.slot, b.clock, b.work, b.issued, b.header, b.side_work "
        "FROM canonical c JOIN block b ON b.id = c.block WHERE c.height <= ? ORDER BY c.height",
        (height,),
    )
    return {"history": history.fetchall(), "canonical": canonical.fetchall()}


# Headers


@pytest.mark.parametrize("each", [1, 3, 40])
def test_every_header_can_be_built_on_as_if_its_block_were_there(node: Node, blocks: list[Block], each: int) -> None:
    staging, heads = staging_of(node), heads_of(blocks)
    assert staging.tip() == heads[0].point
    add_headers(staging, blocks, each=each)
    assert staging.tip() == heads[-1].point
    for height in range(len(blocks) + 1):
        assert staging.head(height) == heads[height]
        assert staging.point(height) == heads[height].point
    assert staging.point(len(blocks) + 1) is None
    assert [staging.header(height).wire() for height in (1, 40)] == [block.header.wire() for block in blocks[::39]]
    with pytest.raises(StagingDamaged):
        staging.header(41)
    with pytest.raises(StagingDamaged):
        staging.head(41)


def test_headers_change_nothing_of_the_chain(node: Node, chain: ChainBuilder, blocks: list[Block]) -> None:
    before = node.state()
    add_headers(staging_of(node), blocks)
    assert node.state() == before
    assert not node.holds(blocks[0])
    assert node.submit(*blocks[:3]) == [BlockStatus.CONNECTED] * 3


def test_a_branch_replaces_what_was_above_its_fork(node: Node, chain: ChainBuilder, blocks: list[Block]) -> None:
    staging = staging_of(node)
    add_headers(staging, blocks)
    branch = [*blocks[:10], *grow(chain, 12, blocks[9], "c")]
    add_headers(staging, branch, first=10)
    assert staging.tip() == heads_of(branch)[-1].point
    assert staging.head(22) == heads_of(branch)[-1]


def test_a_branch_below_the_snapshot_s_block_ends_its_state(
    node: Node, chain: ChainBuilder, blocks: list[Block]
) -> None:
    staging = staging_of(node)
    add_headers(staging, blocks)
    add_state(staging, chain, blocks[19])
    add_headers(staging, [*blocks[:20], *grow(chain, 3, blocks[19], "c")], first=20)
    assert staging.progress() is not None
    add_headers(staging, [*blocks[:19], *grow(chain, 3, blocks[18], "d")], first=19)
    assert staging.progress() is None
    assert list(staging.every_account()) == []


# State


def test_chunks_come_in_any_order_and_are_there_after_a_restart(
    tmp_path: Path, chain: ChainBuilder, blocks: list[Block]
) -> None:
    manifest, _ = snapshot_of(chain, blocks[19], MOST)
    accounts = sorted(chain.accounts_after(blocks[19]).items())
    with running(tmp_path) as node:
        staging = staging_of(node)
        assert staging.progress() is None
        staging.begin_state(manifest)
        for index in (3, 0):
            staging.add_chunk(index, accounts[manifest.starts[index] : manifest.starts[index + 1]])
    with running(tmp_path) as node:
        progress = staging_of(node).progress()
        assert progress is not None
        assert progress.manifest == manifest
        assert set(range(len(manifest.chunks))) - set(progress.missing) == {0, 3}


def test_another_snapshot_takes_the_place_of_the_first(node: Node, chain: ChainBuilder, blocks: list[Block]) -> None:
    staging = staging_of(node)
    add_state(staging, chain, blocks[9])
    add_state(staging, chain, blocks[19])
    accounts = {key: Account(balance, nonce, held) for key, balance, nonce, held in staging.every_account()}
    assert accounts == chain.accounts_after(blocks[19])


def test_staged_state_and_headers_can_be_dropped(node: Node, chain: ChainBuilder, blocks: list[Block]) -> None:
    staging = staging_of(node)
    add_headers(staging, blocks)
    add_state(staging, chain, blocks[19])
    staging.clear()
    assert (staging.progress(), list(staging.every_account()), staging.tip().height) == (None, [], 0)


# Adoption


@pytest.mark.parametrize("height", [1, 20, 31, 32, 40])
def test_the_adopted_chain_is_that_of_all_other_nodes(
    node: Node, chain: ChainBuilder, blocks: list[Block], tmp_path: Path, height: int
) -> None:
    (tmp_path / "other").mkdir()
    with running(tmp_path / "other") as other:
        other.submit(*blocks[:height])
        start_at(node, chain, blocks, height)
        assert node.chainstate.head == other.chainstate.head
        assert node.accounts() == other.accounts()
        assert served(node.connections[0], height) == served(other.connections[0], height)
        assert contents(node.connections[0], STAGING) == contents(other.connections[0], STAGING)
        node.check()
        assert node.store.prune_height() == node.chain_manager.prune_height == height + 1
        later = blocks[height:] or grow(chain, 3, blocks[-1])
        assert node.submit(*later) == other.submit(*later) == [BlockStatus.CONNECTED] * len(later)
        node.check()
        assert node.state()["account_entry"] == other.state()["account_entry"]


def test_listeners_are_told_once_after_the_commit(node: Node, chain: ChainBuilder, blocks: list[Block]) -> None:
    start_at(node, chain, blocks, 20)
    (change,) = node.witness.changes
    assert (change.tip, change.accounts, change.newest) == (node.chain_manager.tip, {}, None)
    assert (change.undone, change.applied) == ((), ())


def test_a_node_reopens_the_chain_that_began_with_a_snapshot(
    tmp_path: Path, chain: ChainBuilder, blocks: list[Block]
) -> None:
    with running(tmp_path) as node:
        start_at(node, chain, blocks, 20)
        head = node.chainstate.head
    with running(tmp_path) as node:
        assert node.chainstate.head == head
        node.check()
        assert node.submit(*blocks[20:]) == [BlockStatus.CONNECTED] * 20


def test_a_second_start_from_a_snapshot_in_the_same_database_is_refused(
    node: Node, chain: ChainBuilder, blocks: list[Block]
) -> None:
    """The tables that were given away are there again, and empty; a chain that has been pruned is not replaced."""
    start_at(node, chain, blocks, 20)
    staging, before = staging_of(node), node.state()
    add_headers(staging, blocks)
    add_state(staging, chain, blocks[29])
    assert not adopt(node, staging)
    assert node.state() == before
    assert (staging.progress(), staging.tip().height) == (None, 0)


@pytest.mark.parametrize("common", [0, 3])
def test_blocks_that_were_here_are_undone_and_their_transfers_wait(
    node: Node, chain: ChainBuilder, blocks: list[Block], common: int
) -> None:
    """Anybody can make a block on the genesis, and must not stop a start from a snapshot with it."""
    payment = chain.transfer("bob", "dave", 5, nonce=0)
    parent = blocks[common - 1] if common else None
    own = chain.block(parent, slot=chain.point_after(parent).slot + 2, producer="mallory", transfers=[payment])
    assert node.submit(*blocks[:common], own) == [BlockStatus.CONNECTED] * (common + 1)
    start_at(node, chain, blocks, 20)
    node.settle()
    node.check()
    assert [block.point.height for block in node.witness.changes[-1].undone] == list(range(common + 1, 0, -1))
    assert payment.txid in {entry.transfer.txid for entry in node.mempool.entries()}
    assert node.submit(*blocks[20:]) == [BlockStatus.CONNECTED] * 20
    transfers = node.connections[0].execute(
        "SELECT count(*) FROM block_transaction x JOIN canonical c ON c.block = x.block"
    )
    assert transfers.fetchone() == (20,)


def test_a_chain_with_more_work_is_not_replaced(node: Node, chain: ChainBuilder, blocks: list[Block]) -> None:
    node.submit(*blocks)
    staging = staging_of(node)
    add_headers(staging, blocks)
    add_state(staging, chain, blocks[19])
    assert not adopt(node, staging)
    assert node.tip == blocks[-1].header.hash
    assert staging.tip().height == 0


def test_a_snapshot_that_is_not_whole_is_not_adopted(node: Node, chain: ChainBuilder, blocks: list[Block]) -> None:
    staging = staging_of(node)
    add_headers(staging, blocks)
    with pytest.raises(StagingDamaged):
        adopt(node, staging)
    staging.begin_state(snapshot_of(chain, blocks[19], MOST)[0])
    with pytest.raises(StagingDamaged):
        adopt(node, staging)
    node.check()


def test_accounts_that_do_not_give_the_state_root_are_fetched_again(
    node: Node, chain: ChainBuilder, blocks: list[Block]
) -> None:
    staging = staging_of(node)
    add_headers(staging, blocks)
    add_state(staging, chain, blocks[19])
    node.connections[0].execute(
        "UPDATE snapshot_account SET balance = balance + 1 WHERE key = (SELECT max(key) FROM snapshot_account)"
    )
    with pytest.raises(StagingDamaged) as damage:
        adopt(node, staging)
    assert str(damage.value) == "the accounts of the snapshot do not give the state root of block 20"
    assert (staging.progress(), staging.tip().height) == (None, 0)
    node.check()
    start_at(node, chain, blocks, 20)
    node.check()


def staged(folder: Path, chain: ChainBuilder, blocks: list[Block]) -> Path:
    """The database of a stopped node that has all headers and the state after block 20."""
    with running(folder) as node:
        node.submit(*blocks[:3])
        add_headers(staging_of(node), blocks)
        add_state(staging_of(node), chain, blocks[19])
    return folder / "chain.sqlite"


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_in_what_is_staged_is_never_in_the_chain(
    tmp_path: Path, chain: ChainBuilder, blocks: list[Block], seed: int
) -> None:
    random = Random(seed)
    path = staged(tmp_path, chain, blocks)
    page = random.choice(pages_of(path, STAGING[seed % len(STAGING)]))
    flip_bit(path, page, random)
    with running(tmp_path) as node:
        staging = staging_of(node)
        with pytest.raises(StagingDamaged) as raised:
            adopt(node, staging)
        assert str(raised.value) == (
            "what was fetched for the start from a snapshot is damaged: a page fails its checksum"
        )
        assert node.chain_manager.tip.height == 3
        assert (staging.progress(), list(staging.every_account()), staging.tip().height) == (None, [], 0)
        assert node.connections[0].execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        start_at(node, chain, blocks, 20)
        node.check()
    with running(tmp_path) as node:
        assert node.submit(*blocks[20:]) == [BlockStatus.CONNECTED] * 20
        node.check()


@pytest.mark.parametrize("other", ["", "block_transaction"])
def test_staged_pages_that_cannot_be_removed_are_damage_of_the_database(
    tmp_path: Path, chain: ChainBuilder, blocks: list[Block], other: str
) -> None:
    """The root of the headers is all zeros, or names a page of another table, which the removal would free."""
    path = staged(tmp_path, chain, blocks)
    root = pages_of(path, "snapshot_header")[0]
    if other:
        # The last child of an inner page.
        overwrite(path, root, 8, pages_of(path, other)[0].to_bytes(4, "big"))
    else:
        overwrite(path, root, 0, bytes(PAGE))
    with running(tmp_path) as node:
        with pytest.raises(apsw.Error) as raised:
            adopt(node, staging_of(node))
        assert is_damage(raised.value)
        node.check()


def test_damage_in_the_chain_is_not_taken_for_damage_in_what_is_staged(
    tmp_path: Path, chain: ChainBuilder, blocks: list[Block]
) -> None:
    path = staged(tmp_path, chain, blocks)
    change_last_byte(path, pages_of(path, "snapshot_chunk")[0])
    with running(tmp_path) as node:
        change_last_byte(path, pages_of(path, "block_transaction")[0])
        with pytest.raises(apsw.IOError) as raised:
            adopt(node, staging_of(node))
        assert is_damage(raised.value)
        assert staging_of(node).tip().height == 40, "nothing has been removed"


def test_other_errors_are_no_damage(node: Node, chain: ChainBuilder, blocks: list[Block]) -> None:
    staging = staging_of(node)
    add_headers(staging, blocks)
    with pytest.raises(apsw.SQLError), staging.discarding_damage():
        node.connections[0].execute("SELECT nothing")
    assert staging.tip().height == 40


def test_transfers_that_wait_are_checked_against_the_adopted_state(
    node: Node, chain: ChainBuilder, blocks: list[Block]
) -> None:
    """The sender has moved on by then, in blocks that never come here."""
    stale, good = chain.transfer("alice", "erin", 9, nonce=0), chain.transfer("bob", "erin", 9, nonce=0)
    assert node.send(stale) == node.send(good) == "accepted"
    start_at(node, chain, blocks, 20)
    assert node.witness.reasons == {stale.txid: RemovalReason.CONFLICT}
    assert [entry.transfer.txid for entry in node.mempool.entries()] == [good.txid]


# Kills


def killing(connection: DatabaseConnection, statements: int) -> None:
    """Let the process die at the statement after so many."""
    left = [statements]

    def progress() -> bool:
        left[0] -= 1
        return left[0] < 0

    connection.set_progress_handler(progress, 50)


def go_on(node: Node, chain: ChainBuilder, blocks: Sequence[Block]) -> None:
    """Do what is left of a start at block 20."""
    staging = staging_of(node)
    add_headers(staging, blocks, first=staging.tip().height, each=1)
    add_state(staging, chain, blocks[19])
    adopt(node, staging)


def kill_while_it_starts(folder: Path, chain: ChainBuilder, blocks: Sequence[Block], steps: int) -> bool:
    """Start in a process that is killed after so many steps of SQLite; whether it was not done by then."""
    left = [steps]

    def step() -> bool:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    process = os.fork()
    if not process:
        try:
            with running(folder) as node:
                node.connections[0].set_progress_handler(step, 5)
                go_on(node, chain, blocks)
        finally:
            os._exit(0)
    _, status = os.waitpid(process, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.slow
def test_kill_at_400_random_instants_costs_at_most_one_commit(
    tmp_path: Path, chain: ChainBuilder, blocks: list[Block]
) -> None:
    """Each start is killed again and again until it is done, and has then the accounts that all other nodes have."""
    random, kills, starts = Random(400), 0, 0
    while kills < 400:
        folder, starts = tmp_path / str(starts), starts + 1
        folder.mkdir()
        seen = 0
        while kill_while_it_starts(folder, chain, blocks, random.randrange(1, 3_000)):
            kills += 1
            with running(folder) as node:
                staging, height = staging_of(node), node.chain_manager.tip.height
                node.check()
                assert height in (0, 20)
                progress = staging.progress()
                done = 0 if progress is None else len(progress.manifest.chunks) - len(progress.missing)
                now = 1_000 if height else staging.tip().height + done
                assert now >= seen
                seen = now
        with running(folder) as node:
            assert node.chain_manager.tip.height == 20
            assert node.accounts() == chain.accounts_after(blocks[19])
            node.check()
            assert node.submit(*blocks[20:]) == [BlockStatus.CONNECTED] * 20
    assert starts > 10


@pytest.mark.parametrize("seed", range(20))
def test_a_start_goes_on_where_it_was(tmp_path: Path, chain: ChainBuilder, blocks: list[Block], seed: int) -> None:
    """However often it is interrupted: by a statement that ends in the middle of its work, and a new process."""
    random, seen = Random(seed), 0
    for instant in [*(random.randrange(600) for _ in range(6)), None]:
        with running(tmp_path) as node:
            staging = staging_of(node)
            if node.chain_manager.tip.height == 0:
                assert staging.tip().height >= seen
                seen = staging.tip().height
                if instant is not None:
                    killing(node.connections[0], instant)
                with suppress(apsw.Error):
                    go_on(node, chain, blocks)
                node.connections[0].set_progress_handler(None)
    with running(tmp_path) as node:
        assert node.chain_manager.tip.height == 20
        node.check()
        assert node.accounts() == chain.accounts_after(blocks[19])
        assert node.submit(*blocks[20:]) == [BlockStatus.CONNECTED] * 20
