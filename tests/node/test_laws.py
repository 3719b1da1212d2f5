"""What holds for any blocks in any order (docs/protocol.md 9, 10)."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.chain.block import Block
from svcd.chain.errors import Wait
from svcd.chain.forkchoice import tie_winner
from svcd.node import chainstate
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import Node, running
from tests.node.connecting import sound, undoing
from tests.node.trees import CHAINS, TREES, Sprout, grow
from tests.store.small_runs import small_runs
from tests.torture.audit import audit

FOLDERS = count()
EXAMPLES = min(settings().max_examples, 2000)
"""Each makes a database, which takes its time."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laws")


@pytest.fixture(scope="module", autouse=True)
def _accounts_in_runs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        small_runs(patch)
        yield


def fresh(folder: Path) -> Path:
    """A folder that no other example has used."""
    path = folder / str(next(FOLDERS))
    path.mkdir()
    return path


def valid_blocks(chain: ChainBuilder, blocks: list[Block]) -> list[Block]:
    """Those that are valid together with all that they stand on."""
    by_hash: dict[bytes, Block | None] = {TEST_PARAMS.genesis_hash: None}
    waiting = list(blocks)
    while True:
        ready = [block for block in waiting if block.header.parent_hash in by_hash]
        good = [block for block in ready if not chain.verdict(by_hash[block.header.parent_hash], block)]
        if not good:
            return [block for block in by_hash.values() if block is not None]
        by_hash.update({block.header.hash: block for block in good})
        waiting = [block for block in waiting if block not in good]


def hand_in(node: Node, blocks: list[Block], random: Random) -> None:
    """Every block in random batches; those that nobody can judge yet, again."""
    while blocks:
        random.shuffle(blocks)
        waiting: list[Block] = []
        progress = False
        while blocks:
            batch = [blocks.pop() for _ in range(min(random.randint(1, 5), len(blocks)))]
            outcomes = node.submit(*batch)
            waiting += [block for block, outcome in zip(batch, outcomes, strict=True) if outcome is Wait.ORPHAN]
            progress = progress or Wait.ORPHAN not in outcomes or len(set(outcomes)) > 1
        if not progress:
            return
        blocks = waiting


@settings(max_examples=EXAMPLES)
@given(tree=TREES, seed=st.integers(0, 2**32), in_memory=st.sampled_from([0, 5, chainstate._MAX_PENDING_ACCOUNTS]))
def test_any_order_of_arrival_ends_at_the_same_chain(
    folder: Path, tree: list[Sprout], seed: int, in_memory: int
) -> None:
    """Even if a reorganisation keeps few changed accounts, ``in_memory``, until its commit."""
    chain = ChainBuilder()
    blocks = grow(chain, tree)
    valid = valid_blocks(chain, blocks)
    path = fresh(folder)
    with pytest.MonkeyPatch.context() as patch, running(path) as node:
        patch.setattr(chainstate, "_MAX_PENDING_ACCOUNTS", in_memory)
        hand_in(node, blocks, Random(seed))
        node.check()
        most = max([chain.point_after(block).work for block in valid], default=0)
        best = {block.header.hash: block for block in valid if chain.point_after(block).work == most}
        assert node.chain_manager.tip.work == most
        if len(best) == 1:
            assert node.tip in best
        elif len(best) == 2:
            assert node.tip == tie_winner(*best)
        sound(node, chain, best.get(node.tip))
    books = audit(path / "chain.sqlite", TEST_PARAMS.rules)
    assert books.tip == node.tip


@settings(max_examples=EXAMPLES)
@given(tree=CHAINS)
def test_undoing_restores_every_byte_and_every_root(folder: Path, tree: list[Sprout]) -> None:
    chain = ChainBuilder()
    blocks = grow(chain, tree)
    with running(fresh(folder)) as node:
        moments = [(node.state(), node.root)]
        for block in blocks:
            node.submit(block)
            moments.append((node.state(), node.root))
            sound(node, chain, block)

        with undoing(node) as undo:
            for state, root in moments[-2::-1]:
                assert undo() == root
                assert node.state() == state
        assert (node.state(), node.root) == moments[-1]
        assert node.chainstate.view(undone=len(blocks)).state.root == moments[0][1]


@settings(max_examples=EXAMPLES // 3)
@given(tree=CHAINS)
def test_the_sum_of_all_balances_is_what_was_issued(folder: Path, tree: list[Sprout]) -> None:
    chain = ChainBuilder()
    issued = sum(units for _, units in TEST_PARAMS.allocations)
    with running(fresh(folder)) as node:
        for block in grow(chain, tree):
            node.submit(block)
            issued += TEST_PARAMS.reward(block.header.height)
            assert node.chain_manager.tip.issued == issued
            assert sum(account.balance for account in node.accounts().values()) == issued
