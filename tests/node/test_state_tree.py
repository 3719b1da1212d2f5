"""The saved state tree: a start from it is one from all accounts, or it is not used (docs/storage.md)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from svcd.chain import state_tree
from svcd.chain.errors import Corrupt, Refusal
from svcd.node import chainstate as chainstate_module
from svcd.node import state_tree_keeper
from svcd.node.block_template import create_template
from svcd.node.chainstate import Chainstate
from svcd.node.changes import BlockStatus, CheckedBlock
from svcd.node.state_tree_keeper import StateTreeKeeper
from svcd.store.chain_store import ChainWriter
from svcd.store.state_tree_file import NoSavedTree, SavedTree, StateTreeFile
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import Node, Stepped, running
from tests.node.connecting import branch, connect, connect_all
from tests.support import has_result, result_of

STEPS = st.tuples(st.integers(0, 4), st.integers(1, 4), st.booleans())
"""How many blocks are replaced, by how many more, and whether the tree is saved then."""


@pytest.fixture
def file(tmp_path: Path) -> StateTreeFile:
    return StateTreeFile(tmp_path / "node" / "chain.sqlite")


def save(node: Node, file: StateTreeFile) -> SavedTree:
    """Save the tree after the tip."""
    tree = node.chainstate.tree_to_save()
    assert tree is not None
    file.write(tree)
    return tree


def opened(node: Node, file: StateTreeFile | None) -> Chainstate:
    """The chain on disk as another start finds it."""
    chainstate = Chainstate(TEST_PARAMS, node.store, file)
    chainstate.load()
    return chainstate


def same(found: Chainstate, expected: Chainstate) -> bool:
    """Whether two trees are of the same accounts, and lead to each of them in the same way."""
    paths = [(found._tree.path(row[0]), expected._tree.path(row[0])) for row in expected.store.every_account()]
    return all(path == other for path, other in paths) and (found.tip, found.account_count, found._tree.root) == (
        expected.tip,
        expected.account_count,
        expected._tree.root,
    )


@pytest.fixture(autouse=True, scope="module")
def two_accounts_are_too_many_for_a_bucket() -> Iterator[None]:
    """Small trees have branches, as only those with many accounts close together do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_tree, "_DENSE", 1)
        patch.setattr(state_tree, "_DENSE_BELOW", 1)
        yield


@given(st.lists(STEPS, max_size=8))
def test_a_start_from_the_file_is_a_start_from_all_accounts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]]
) -> None:
    """Whatever blocks came and went since, until the saved block itself went; then the file is not used."""
    chain, folder = ChainBuilder(), tmp_path_factory.mktemp("node")
    file, saved, blocks = StateTreeFile(folder / "chain.sqlite"), b"", branch(ChainBuilder(), None, 0, "t")
    with running(folder) as node:
        for number, (replaced, more, saves) in enumerate(steps):
            kept = blocks[: len(blocks) - replaced] if replaced else blocks
            gone = len(blocks) - len(kept)
            new = branch(chain, kept[-1] if kept else None, gone + more, f"n{number}")
            connect_all(node, chain, *new)
            blocks = [*kept, *new]
            saved = save(node, file).block if saves else saved
        again = opened(node, file)
        assert same(again, opened(node, None))
        assert (again.saved_height >= 0) == (saved in [block.header.hash for block in blocks])
        # And it takes the next block.
        (block,) = branch(chain, blocks[-1] if blocks else None, 1, "next")
        candidate = CheckedBlock(block, chain.head_after(block))
        assert again.connect([candidate]).outcomes == [BlockStatus.CONNECTED]


def test_levels_that_the_saved_tree_does_not_have_are_added(
    node: Node, chain: ChainBuilder, file: StateTreeFile
) -> None:
    save(node, file)
    blocks = branch(chain, None, 20, "b")
    connect_all(node, chain, *blocks)
    again = opened(node, file)
    assert again.saved_height == 0
    assert again.account_count == node.store.count_accounts()
    assert again._tree.depth == node.chainstate._tree.depth > file.read().level.depth
    assert again.view().state.root == node.root


def test_of_many_blocks_only_the_buckets_that_they_touched_are_read(
    node: Node, chain: ChainBuilder, file: StateTreeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = branch(chain, None, 30, "b")
    connect_all(node, chain, *blocks[:-1])
    save(node, file)
    connect_all(node, chain, blocks[-1])
    read: list[int] = []
    real = ChainWriter.account_rows

    def rows(store: ChainWriter, ranges: Any) -> Any:
        read.append(len(ranges))
        return real(store, ranges)

    monkeypatch.setattr(ChainWriter, "account_rows", rows)
    monkeypatch.setattr(ChainWriter, "every_account", None)
    monkeypatch.setattr(ChainWriter, "count_accounts", None)
    assert opened(node, file).saved_height == 29
    assert sum(read) <= 3


# When the file is not used


def reason(node: Node, file: StateTreeFile) -> str:
    """Why a start does not use the file, as the log tells it; the tree is right all the same."""
    with capturedLogs() as events:
        again = opened(node, file)
    assert again.saved_height == -1
    assert same(again, opened(node, None))
    (told,) = [event for event in events if "state tree" in (event.get("log_format") or "")]
    return str(told["reason"])


def test_a_missing_or_damaged_file(node: Node, chain: ChainBuilder, file: StateTreeFile) -> None:
    connect_all(node, chain, *branch(chain, None, 3, "b"))
    assert reason(node, file) == f"there is no {file.path}"
    save(node, file)
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-33] + bytes([whole[-33] ^ 1]) + whole[-32:])
    assert reason(node, file) == f"{file.path} is damaged: its checksum is wrong"


def test_a_file_of_another_chain(node: Node, chain: ChainBuilder, file: StateTreeFile) -> None:
    connect_all(node, chain, *branch(chain, None, 3, "b"))
    save(node, file)
    connect_all(node, chain, *branch(chain, None, 5, "c"))
    assert reason(node, file) == "the saved one belongs to block 3 of another chain"
    file.write(evolve(file.read(), height=99))
    assert reason(node, file) == "the saved one belongs to block 99 of another chain"


def test_a_file_with_wrong_nodes(node: Node, chain: ChainBuilder, file: StateTreeFile) -> None:
    connect_all(node, chain, *branch(chain, None, 3, "b"))
    tree = save(node, file)
    tree.level.hashes[0] ^= 1
    file.write(tree)
    assert reason(node, file) == "the saved one does not lead to the state root of block 3"


def test_an_undo_record_that_is_missing(node: Node, chain: ChainBuilder, file: StateTreeFile) -> None:
    blocks = branch(chain, None, 3, "b")
    connect_all(node, chain, *blocks[:1])
    save(node, file)
    connect_all(node, chain, *blocks[1:])
    node.connections[0].execute("DELETE FROM undo WHERE block = (SELECT block FROM canonical WHERE height = 2)")
    assert reason(node, file) == "the undo record of the canonical block at height 2 is missing"


def test_a_file_that_is_too_old(
    node: Node, chain: ChainBuilder, file: StateTreeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chainstate_module, "_FEW_STALE", 1)
    blocks = branch(chain, None, 5, "b")
    connect_all(node, chain, *blocks[:1])
    save(node, file)
    connect_all(node, chain, *blocks[1:])
    assert reason(node, file) == "the saved one is 4 blocks old"


# Accounts that the disk has changed, which a start from the file does not read


DAMAGE = "accounts on disk do not have the hash that the state tree has for them: try `svc db rebuild`"


def test_no_block_is_built_on_damaged_accounts_or_refused_because_of_them(
    node: Node, chain: ChainBuilder, file: StateTreeFile
) -> None:
    blocks = branch(chain, None, 3, "b")
    connect_all(node, chain, *blocks[:2])
    save(node, file)
    right = chain.account_after(blocks[1], "alice")
    alice = key_of("alice").hash
    node.store.write_accounts({alice: evolve(right, balance=10**6)})
    again = opened(node, file)
    candidate = CheckedBlock(blocks[2], chain.head_after(blocks[2]))
    with pytest.raises(Corrupt, match=DAMAGE):
        again.connect([candidate])
    with pytest.raises(Corrupt, match=DAMAGE):
        create_template(again.view(), seed=key_of("alice").seed, slot=blocks[1].header.slot + 1, transfers=())
    with pytest.raises(Corrupt, match=DAMAGE):
        again.account_path(alice)
    node.store.write_accounts({alice: right})
    assert again.connect([candidate]).outcomes == [BlockStatus.CONNECTED]


def test_an_undo_record_that_does_not_lead_back(node: Node, chain: ChainBuilder) -> None:
    """Neither is a block built on the accounts that it gives, nor another branch refused because of them."""
    blocks, others = branch(chain, None, 3, "b"), branch(chain, None, 4, "c")
    connect_all(node, chain, *blocks)
    db = node.connections[0]
    db.execute(
        "UPDATE undo SET data = (SELECT data FROM undo WHERE block = (SELECT block FROM canonical WHERE "
        "height = 1)) WHERE block = (SELECT block FROM canonical WHERE height = 3)"
    )
    with pytest.raises(Corrupt, match="the undo record of block 3 does not give the state root of block 2"):
        connect_all(node, chain, *others)
    with pytest.raises(Corrupt, match="the undo record of block 3"):
        node.chainstate.view(undone=1)
    assert node.chainstate.tip.hash == blocks[-1].header.hash


def test_a_block_with_a_wrong_root_is_refused_as_before(node: Node, chain: ChainBuilder, file: StateTreeFile) -> None:
    block = chain.block(break_=Refusal.STATE_ROOT)
    assert connect(node, chain, block).change is None


# When it is saved


class Keeping:
    """A keeper whose writes are done when a test says so."""

    def __init__(self, node: Node, file: StateTreeFile) -> None:
        self.disk = Stepped()
        self.keeper = StateTreeKeeper(node.chain, file, self.disk)
        node.chain_manager.subscribe(self.keeper)


def test_the_tree_is_saved_after_so_many_blocks(
    node: Node, chain: ChainBuilder, file: StateTreeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks go on while it is written, and none of them starts another write beside it."""
    monkeypatch.setattr(state_tree_keeper, "MAX_BLOCKS", 3)
    keeping = Keeping(node, file)
    blocks = branch(chain, None, 7, "b")
    node.submit(*blocks[:2])
    assert len(keeping.disk) == 0
    node.submit(blocks[2])
    node.submit(*blocks[3:])
    assert len(keeping.disk) == 1
    keeping.disk.step()
    assert file.read().height == 3
    finished = Deferred.fromCoroutine(keeping.keeper.finish())
    keeping.disk.step()
    assert has_result(finished)
    assert file.read().height == 7
    result_of(Deferred.fromCoroutine(keeping.keeper.finish()))
    assert len(keeping.disk) == 0, "it is not saved twice"


def test_a_reorganisation_while_the_tree_is_written_has_it_written_again(
    node: Node, chain: ChainBuilder, file: StateTreeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a start after a kill would compute the tree from all accounts."""
    monkeypatch.setattr(state_tree_keeper, "MAX_BLOCKS", 3)
    keeping = Keeping(node, file)
    node.submit(*branch(chain, None, 3, "b"))
    assert len(keeping.disk) == 1
    others = branch(chain, None, 4, "c")
    node.submit(*others)
    assert node.tip == others[-1].header.hash
    keeping.disk.finish()
    assert file.read().block == others[-1].header.hash


def test_the_tree_is_saved_when_many_accounts_have_changed(
    node: Node, chain: ChainBuilder, file: StateTreeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tree_keeper, "MIN_CHANGED", 6)
    keeping = Keeping(node, file)
    for block in branch(chain, None, 2, "b"):
        assert len(keeping.disk) == 0
        node.submit(block)
    assert len(keeping.disk) == 1


def test_the_tree_is_saved_when_its_block_was_undone(node: Node, chain: ChainBuilder, file: StateTreeFile) -> None:
    node.submit(*branch(chain, None, 2, "b"))
    save(node, file)
    node.chainstate.load()
    keeping = Keeping(node, file)
    keeping.keeper._height = 2
    node.submit(*branch(chain, None, 4, "c"))
    keeping.disk.step()
    assert file.read().height == 4


def test_a_tree_that_cannot_be_saved_keeps_nothing_waiting(
    node: Node, chain: ChainBuilder, file: StateTreeFile
) -> None:
    keeping = Keeping(node, file)
    node.submit(*branch(chain, None, 2, "b"))
    finished = Deferred.fromCoroutine(keeping.keeper.finish())
    with capturedLogs() as events:
        keeping.disk.fail(OSError(28, "No space left on device"))
    assert has_result(finished)
    (told,) = [event for event in events if "cannot be saved" in (event.get("log_format") or "")]
    assert "No space left" in told["why"]
    with pytest.raises(NoSavedTree):
        file.read()
