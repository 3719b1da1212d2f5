"""A network whose list of producers changes: whatever blocks arrive, the node follows those that may be made (8a)."""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.chain.block import Block
from svcd.chain.errors import Corrupt, Refusal
from svcd.chain.params import NetworkParams
from svcd.node.changes import BlockStatus
from svcd.store.chain_store import ChainReader
from svcd.store.snapshot_staging import SnapshotStaging
from tests.chains import ChainBuilder, with_producers
from tests.node.bench import Node, Setting, running
from tests.node.connecting import sound
from tests.node.test_laws import hand_in
from tests.p2p.remote_node import snapshot_of
from tests.support import result_of

LETTERS = "abcde"
FOLDERS = count()
EXAMPLES = min(settings().max_examples, 1000)
"""Each makes a database, which takes its time."""

CHANGED = with_producers("abc", (4, "cde"))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with running(tmp_path, Setting(params=CHANGED)) as node:
        yield node


def branch(chain: ChainBuilder, on: Block | None, letters: str) -> list[Block]:
    """Blocks by these producers, one on the other."""
    made: list[Block] = []
    for letter in letters:
        made.append(chain.block(made[-1] if made else on, producer=letter))
    return made


def test_a_reorganisation_over_a_change(node: Node) -> None:
    chain = ChainBuilder(CHANGED)
    old = branch(chain, None, "abcde")
    assert node.submit(*old) == [BlockStatus.CONNECTED] * 5
    new = branch(chain, old[0], "cbdcdc")
    assert node.submit(*new)[-1] is BlockStatus.CONNECTED
    sound(node, chain, new[-1])
    # The new tip is by c, so that d and e may go on.
    refused = [chain.block(new[-1], producer=letter) for letter in "abc"]
    assert [node.submit(block) for block in refused] == [[Refusal.PRODUCER]] * 3
    assert node.submit(chain.block(new[-1], producer="e")) == [BlockStatus.CONNECTED]


def test_a_longer_branch_that_ignores_a_change_is_not_followed(node: Node) -> None:
    chain = ChainBuilder(CHANGED)
    trunk = branch(chain, None, "abc")
    [tip] = branch(chain, trunk[-1], "d")
    node.submit(*trunk, tip)
    outcomes = node.submit(*branch(chain, trunk[-1], "abcabcabc"))
    assert outcomes == [Refusal.PRODUCER] + [Refusal.ANCESTOR] * 8
    sound(node, chain, tip)


@pytest.mark.parametrize("height", [3, 4, 5])
def test_a_start_from_a_snapshot_at_a_change(node: Node, height: int) -> None:
    """Just before it, at its first block, and just after."""
    chain = ChainBuilder(CHANGED)
    blocks = branch(chain, None, "abcdede"[: max(height, 4)])
    staging = staged(node, chain, blocks, height)
    assert [staging.head(at) for at in range(1, len(blocks) + 1)] == [chain.head_after(block) for block in blocks]
    assert result_of(node.chain_manager.adopt_snapshot(staging))
    tip = blocks[height - 1]
    assert node.chainstate.head == chain.head_after(tip)
    last = "abcdede"[height - 1]
    for letter in LETTERS:
        may = letter in "cde" and letter != last
        verdict = chain.verdict(tip, chain.block(tip, producer=letter))
        assert (verdict is None) is may
    assert node.submit(chain.block(tip, producer="a")) == [Refusal.PRODUCER]
    assert node.submit(chain.block(tip, producer=last)) == [Refusal.PRODUCER]
    assert node.submit(chain.block(tip, producer="d" if last != "d" else "e")) == [BlockStatus.CONNECTED]


def staged(node: Node, chain: ChainBuilder, blocks: Sequence[Block], height: int) -> SnapshotStaging:
    """The headers of ``blocks``, and the state after the one at ``height``, beside the chain of a node."""
    staging = SnapshotStaging(node.connections[0], node.chain.params)
    headers = [block.header for block in blocks]
    staging.add_headers(chain.head_after(None), headers, [chain.head_after(block) for block in blocks])
    tip = blocks[height - 1]
    manifest, _ = snapshot_of(chain, tip, 100)
    staging.begin_state(manifest)
    staging.add_chunk(0, sorted(chain.accounts_after(tip).items()))
    return staging


# A database whose blocks break the lists of the network's file


def stored(folder: Path, params: NetworkParams, letters: str) -> ChainBuilder:
    """Put a chain by these producers into a folder."""
    chain = ChainBuilder(params)
    with running(folder, Setting(params=params)) as node:
        assert set(node.submit(*branch(chain, None, letters))) == {BlockStatus.CONNECTED}
    return chain


def test_a_file_with_the_same_lists_for_all_stored_blocks_opens_the_database(tmp_path: Path) -> None:
    stored(tmp_path, CHANGED, "abcde")
    for params in (
        CHANGED,
        with_producers("abc", (4, "cde"), (6, "a")),
        with_producers("abc", (4, "ecd")),
        with_producers("abc", (4, "dxy"), (5, "cde")),
    ):
        with running(tmp_path, Setting(params=params)) as node:
            assert node.chain_manager.tip.height == 5


@pytest.mark.parametrize(
    ("params", "letter", "fault"),
    [
        (with_producers("abc"), "d", "is not one of the 3 that may make the block at height 4"),
        (with_producers("abc", (5, "cde")), "d", "is not one of the 3 that may make the block at height 4"),
        (with_producers("abc", (3, "cd"), (5, "cd")), "e", "is not one of the 2 that may make the block at height 5"),
        (
            with_producers("abc", (4, "cde"), (5, "abcd")),
            "e",
            "is not one of the 4 that may make the block at height 5",
        ),
    ],
)
def test_a_file_that_was_edited_for_stored_blocks_is_refused_in_one_sentence(
    tmp_path: Path, params: NetworkParams, letter: str, fault: str
) -> None:
    chain = stored(tmp_path, CHANGED, "abcde")
    with pytest.raises(Corrupt) as refusal, running(tmp_path, Setting(params=params)):
        pass
    assert str(refusal.value).startswith(
        f"the stored chain breaks the list of producers in the network's file: the producer {chain.address(letter)} "
        f"{fault}; use the file "
    )


def test_a_larger_list_for_stored_blocks_is_refused_for_a_producer_that_made_too_many(tmp_path: Path) -> None:
    chain = stored(tmp_path, with_producers("ab"), "abab")
    with pytest.raises(Corrupt) as refusal, running(tmp_path, Setting(params=with_producers("ab", (4, "abcd")))):
        pass
    assert (
        f"the producer {chain.address('b')} made one of the 2 blocks before height 4: another one must make the block "
        "there; use the file with which this chain was made or, if this one is right, move the database away and the "
        "node fetches the chain again"
    ) in str(refusal.value)


def reads_of_all_producers(folder: Path, params: NetworkParams, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a start of a node reads the producers of the stored blocks."""
    reads: list[int] = []
    producers = ChainReader.producers

    def reading(reader: ChainReader, first: int, last: int) -> Any:
        reads.append(last)
        return producers(reader, first, last)

    with monkeypatch.context() as patched:
        patched.setattr(ChainReader, "producers", reading)
        with running(folder, Setting(params=params)) as node:
            node.check()
    return len(reads)


def test_stored_blocks_are_read_once_for_the_same_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if blocks have come since, or if a list has another order."""
    chain = stored(tmp_path, CHANGED, "abcd")
    assert reads_of_all_producers(tmp_path, CHANGED, monkeypatch) == 0
    same, other = with_producers("abc", (4, "edc")), with_producers("abc", (4, "cde"), (9, "a"))
    assert reads_of_all_producers(tmp_path, same, monkeypatch) == 0
    assert reads_of_all_producers(tmp_path, other, monkeypatch) == 1
    assert reads_of_all_producers(tmp_path, other, monkeypatch) == 0
    assert reads_of_all_producers(tmp_path, CHANGED, monkeypatch) == 1, "the lists before are not remembered"
    with running(tmp_path, Setting(params=CHANGED)) as node:
        tip = branch(chain, None, "abcd")[-1]
        assert node.submit(*branch(chain, tip, "e")) == [BlockStatus.CONNECTED]
    assert reads_of_all_producers(tmp_path, CHANGED, monkeypatch) == 0
    with pytest.raises(Corrupt), running(tmp_path, Setting(params=with_producers("abc", (4, "cd"), (6, "ab")))):
        pass
    with pytest.raises(Corrupt), running(tmp_path, Setting(params=with_producers("abc", (4, "cd"), (6, "ab")))):
        pass


def test_headers_that_an_earlier_run_staged_do_not_become_the_chain_with_another_list(tmp_path: Path) -> None:
    old, new = with_producers("abc"), with_producers("abc", (3, "ab"))
    chain = ChainBuilder(old)
    blocks = branch(chain, None, "abcab")
    with running(tmp_path, Setting(params=new)) as node:
        staging = staged(node, chain, blocks, 5)
        with pytest.raises(Corrupt, match="is not one of the 2 that may make the block at height 3"):
            result_of(node.chain_manager.adopt_snapshot(staging))
        assert (staging.tip().height, node.chain_manager.tip.height) == (0, 0)
        node.check()


def test_a_side_branch_from_disk_that_breaks_the_list_of_a_new_file_does_not_become_the_chain(tmp_path: Path) -> None:
    """An earlier run stored it under another list."""
    old, new = with_producers("abc"), with_producers("abc", (3, "ab"))
    chain = ChainBuilder(old)
    trunk = branch(chain, None, "a")
    short, long = branch(chain, trunk[-1], "bab"), branch(chain, trunk[-1], "bcb")
    with running(tmp_path, Setting(params=old)) as node:
        node.submit(*trunk, *short)
        node.submit(*long[:2])
        assert node.tip == short[-1].header.hash
        assert node.holds(long[1])
    with running(tmp_path, Setting(params=new)) as node:
        more = branch(chain, long[1], "aba")
        assert node.submit(*more)[-1] not in (BlockStatus.CONNECTED, BlockStatus.SIDE)
        node.check()
        assert node.tip == short[-1].header.hash
        assert not node.holds(long[1])


# Any lists and any changes of them


@frozen
class Step:
    """A block to be made."""

    parent: int
    """How many blocks before this one its parent stands; the genesis if there are not so many."""
    choice: int
    """Which of the producers makes it."""
    allowed: bool
    """Whether it is one of those that may, if there is one."""


LISTS = st.lists(st.sampled_from(LETTERS), min_size=1, unique=True).map("".join)
CHANGES = st.lists(st.tuples(st.integers(1, 9), LISTS), max_size=3, unique_by=lambda change: change[0]).map(sorted)
NETWORKS = st.builds(lambda first, changes: with_producers(first, *changes), LISTS, CHANGES)
STEPS = st.lists(
    st.builds(Step, st.sampled_from([1, 1, 1, 2, 4]), st.integers(0, 9), st.sampled_from([True] * 5 + [False])),
    min_size=4,
    max_size=12,
)


def allowed_after(chain: ChainBuilder, made: str) -> str:
    """The letters of those that may make the block after those by ``made``, by the words of docs/protocol.md 8a."""
    height = len(made) + 1
    addresses = chain.params.producers
    for change in chain.params.changes:
        if change.height <= height:
            addresses = change.producers
    before = made[max(0, len(made) - len(addresses) // 2) :]
    return "".join(letter for letter in LETTERS if chain.address(letter) in addresses and letter not in before)


@settings(max_examples=EXAMPLES)
@given(params=NETWORKS, steps=STEPS, seed=st.integers(0, 2**32))
def test_any_network_follows_exactly_the_blocks_that_may_be_made(
    tmp_path_factory: pytest.TempPathFactory, params: NetworkParams, steps: list[Step], seed: int
) -> None:
    chain = ChainBuilder(params)
    blocks: list[Block] = []
    made: dict[Block | None, str] = {None: ""}
    """The producers of each valid block and of those before it."""
    for step in steps:
        parent = blocks[-step.parent] if step.parent <= len(blocks) else None
        before = made.get(parent)
        may = allowed_after(chain, before or "")
        letters = (may if step.allowed else "".join(set(LETTERS) - set(may))) or LETTERS
        letter = sorted(letters)[step.choice % len(letters)]
        block = chain.block(parent, producer=letter)
        if before is not None:
            refused = chain.verdict(parent, block)
            assert (refused is None) is (letter in may)
            if not refused:
                made[block] = before + letter
        blocks.append(block)

    folder = tmp_path_factory.mktemp("producers")
    setting = Setting(params=params)
    with running(folder, setting) as node:
        hand_in(node, list(blocks), Random(seed))
        node.check()
        most = max(chain.point_after(block).work for block in made)
        assert node.chain_manager.tip.work == most
        assert node.tip in {chain.point_after(block).hash for block in made}
    with running(folder, setting) as node:
        for block in made:
            if block is not None and (stored := node.store.stored(block.header.hash)):
                assert node.store.head(stored, params) == chain.head_after(block)
        assert node.chainstate.head.point == node.chain_manager.tip
