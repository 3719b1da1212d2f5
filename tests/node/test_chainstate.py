"""Blocks into state, in one database transaction each time (docs/protocol.md 9, 10)."""

from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve
from twisted.logger import LogEvent

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.errors import Corrupt, Refusal, Wait
from svcd.chain.params import DEVNET
from svcd.chain.state_tree import StateTree
from svcd.chain.transition import apply_block, genesis_accounts, genesis_head
from svcd.node.chain_view import ChainView
from svcd.node.chainstate import Chainstate
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import Node, Setting, running
from tests.node.conftest import MakeNode
from tests.node.connecting import (
    CONNECTED,
    KNOWN,
    SIDE,
    branch,
    codes,
    commits,
    connect,
    connect_all,
    fork,
    hashes,
    sound,
)
from tests.store.contents import contents

# Loading


def test_a_new_database_begins_with_the_genesis(node: Node, chain: ChainBuilder) -> None:
    assert node.chainstate.head == genesis_head(TEST_PARAMS)
    assert node.store.accounts(list(genesis_accounts(TEST_PARAMS))) == genesis_accounts(TEST_PARAMS)
    sound(node, chain, None)
    genesis = node.store.canonical(0)
    assert genesis is not None
    header = node.store.block_header(genesis, TEST_PARAMS)
    assert header.state_root == node.root


def test_the_genesis_of_devnet_is_the_published_one(tmp_path: Path) -> None:
    with running(tmp_path, Setting(params=DEVNET)) as node:
        genesis = node.store.stored(DEVNET.genesis_hash)
        assert genesis is not None
        assert node.store.block_header(genesis, DEVNET).state_root == node.root


def test_a_chain_is_taken_up_where_it_was_left(make_node: MakeNode, chain: ChainBuilder) -> None:
    blocks = chain.chain("genesis: b[1..5]\nb3: c4\nb2 pays 5 from alice to dave")
    node = make_node()
    connect(node, chain, *blocks.values())
    state, tip = node.state(), node.chainstate.tip
    node.close()
    again = make_node()
    assert again.chainstate.tip == tip
    assert again.state() == state
    sound(again, chain, blocks["b5"])
    connect_all(again, chain, chain.block(blocks["b5"]))


def test_a_database_of_another_network_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as node, pytest.raises(Corrupt) as refusal:
        Chainstate(DEVNET, node.store).load()
    assert str(refusal.value) == "the database does not have the chain of SVC-DEVNET: use another data directory"


def test_a_chain_of_earlier_rules_is_refused(tmp_path: Path) -> None:
    final = evolve(TEST_PARAMS, account_minimum=2)
    with running(tmp_path) as node, pytest.raises(Corrupt) as refusal:
        Chainstate(final, node.store).load()
    assert str(refusal.value) == (
        "the database has a chain of SVC-TEST with other rules than this node's: use another data directory"
    )


def test_accounts_that_do_not_give_the_state_root_are_refused(node: Node, chain: ChainBuilder) -> None:
    connect_all(node, chain, chain.block())
    node.store.write_accounts({key_of("alice").hash: Account(1)})
    with pytest.raises(Corrupt, match="do not give the state root of block 1: try `svc db rebuild`"):
        Chainstate(TEST_PARAMS, node.store).load()


def test_a_tip_whose_header_is_damaged_is_refused(node: Node, chain: ChainBuilder) -> None:
    block = chain.block()
    connect_all(node, chain, block)
    other = chain.block(block).header.wire()
    node.connections[0].execute("UPDATE block SET header = ? WHERE height = 1", (other,))
    with pytest.raises(Corrupt, match="height 1 does not have its own hash"):
        Chainstate(TEST_PARAMS, node.store).load()


# One block after the other


def test_a_block_on_the_tip_becomes_the_tip(node: Node, chain: ChainBuilder) -> None:
    (block,) = chain.chain("genesis: b1\nb1 pays 5000 from alice to dave for order-1").values()
    change = connect_all(node, chain, block)
    assert change.undone == ()
    assert [(applied.point, applied.transfer_count, applied.txids) for applied in change.applied] == [
        (chain.point_after(block), 1, tuple(transfer.txid for transfer in block.transfers))
    ]
    assert change.accounts == {key_of(name).hash: chain.account_after(block, name) for name in ("alice", "dave", "b")}
    assert node.store.transaction(block.transfers[0].txid, TEST_PARAMS) is not None


def test_blocks_of_one_batch_share_one_commit(node: Node, chain: ChainBuilder) -> None:
    blocks = list(chain.chain("genesis: b[1..20]").values())
    with commits(node) as seen:
        change = connect_all(node, chain, *blocks)
    assert seen[:2] == ["BEGIN IMMEDIATE", "COMMIT"]
    assert seen.count("COMMIT") == 1
    assert [applied.point.hash for applied in change.applied] == hashes(blocks)


def test_a_block_that_is_stored_is_known(node: Node, chain: ChainBuilder) -> None:
    blocks = chain.chain("genesis: b[1..2]\ngenesis: c1")
    connect(node, chain, *blocks.values())
    before = node.state()
    connected = connect(node, chain, *blocks.values())
    assert codes(connected) == [KNOWN, KNOWN, KNOWN]
    assert connected.change is None
    assert node.state() == before


def test_a_block_twice_in_one_batch(node: Node, chain: ChainBuilder) -> None:
    block = chain.block()
    assert codes(connect(node, chain, block, block)) == [CONNECTED, KNOWN]


def test_a_block_without_its_parent_waits(node: Node, chain: ChainBuilder) -> None:
    blocks = list(chain.chain("genesis: b[1..3]").values())
    connected = connect(node, chain, blocks[1], blocks[0], blocks[2])
    assert codes(connected) == [Wait.ORPHAN, CONNECTED, Wait.ORPHAN]
    assert not node.holds(blocks[1])
    assert connected.invalid == {}


def test_a_lighter_branch_is_stored_and_not_executed(node: Node, chain: ChainBuilder) -> None:
    blocks = chain.chain("genesis: b[1..3]\ngenesis: c[1..2]\nc1 has an invalid state root\nc2 has an invalid nonce")
    change = connect_all(node, chain, blocks["b1"], blocks["b2"], blocks["b3"])
    before = node.state()
    connected = connect(node, chain, blocks["c1"], blocks["c2"])
    assert codes(connected) == [SIDE, SIDE], "nobody has looked at their state"
    assert connected.change is None
    assert node.holds(blocks["c1"])
    assert node.holds(blocks["c2"])
    assert node.state() == before
    assert node.chainstate.tip == change.tip


STATE_RULES = [
    Refusal.TIMESTAMP,
    Refusal.NONCE,
    Refusal.BALANCE,
    Refusal.MULTIPLIER,
    Refusal.STATE_ROOT,
]


@pytest.mark.parametrize("rule", STATE_RULES)
def test_a_block_that_breaks_a_rule_of_the_state(node: Node, chain: ChainBuilder, rule: Refusal) -> None:
    first = chain.block()
    bad = chain.block(first, transfers=[chain.transfer("alice", "erin", 5)], break_=rule)
    connect_all(node, chain, first)
    before = node.state()
    connected = connect(node, chain, bad)
    assert codes(connected) == [rule]
    assert connected.invalid.keys() == {bad.header.hash}
    assert connected.change is None
    assert node.state() == before
    assert not node.holds(bad)
    connect_all(node, chain, chain.block(first))


def test_an_invalid_block_does_not_harm_the_rest_of_its_batch(node: Node, chain: ChainBuilder) -> None:
    blocks = chain.chain("genesis: b[1..4]\nb2: c[3..4]\nb3 has an invalid balance")
    b1, b2, b3, b4, c3, c4 = blocks.values()
    connected = connect(node, chain, b1, b2, b3, b4, c3, c4)
    assert codes(connected) == [CONNECTED, CONNECTED, Refusal.BALANCE, Refusal.ANCESTOR, CONNECTED, CONNECTED]
    assert connected.invalid.keys() == {b3.header.hash, b4.header.hash}
    assert not node.holds(b3)
    assert not node.holds(b4)
    sound(node, chain, c4)


# Views


def executed(view: ChainView, chain: ChainBuilder, block: Block) -> bytes:
    """Lay a block over a view; gives the state root after it."""
    view.head = chain.head_after(block)
    return view.state.apply(apply_block(TEST_PARAMS, block, view.state))


def test_changes_over_a_view_leave_no_trace(node: Node, chain: ChainBuilder) -> None:
    trunk, old, new = fork(chain, 3)
    connect_all(node, chain, *trunk, *old)
    before, blocks_before = node.state(), contents(node.store._db, ["block"])
    view = node.chainstate.view(undone=len(old))
    assert view.head == chain.head_after(trunk[-1])
    assert view.state.root == trunk[-1].header.state_root
    for block in new:
        assert executed(view, chain, block) == block.header.state_root
    keys = list(chain.accounts_after(new[-1]) | chain.accounts_after(old[-1]))
    assert view.state.accounts(keys) == chain.accounts_after(new[-1])
    assert node.state() == before
    assert contents(node.store._db, ["block"]) == blocks_before
    sound(node, chain, old[-1])
    connect_all(node, chain, *new)


def test_two_views_know_nothing_of_each_other(node: Node, chain: ChainBuilder) -> None:
    b = chain.chain("genesis: b1\ngenesis: c1\nb1 pays 5 from alice to x\nc1 pays 6 from alice to y")
    views = [node.chainstate.view(), node.chainstate.view()]
    for view, block in zip(views, b.values(), strict=True):
        assert executed(view, chain, block) == block.header.state_root
    sound(node, chain, None)


def test_a_view_down_to_the_genesis_and_no_further(node: Node, chain: ChainBuilder) -> None:
    root = node.root
    connect_all(node, chain, *branch(chain, None, 3, "t"))
    view = node.chainstate.view(undone=3)
    assert (view.head, view.state.root) == (genesis_head(TEST_PARAMS), root)
    with pytest.raises(Corrupt, match="canonical block at height -1 is missing"):
        node.chainstate.view(undone=4)


def test_a_tree_that_memory_was_too_short_for_is_built_anew(
    node: Node,
    chain: ChainBuilder,
    monkeypatch: pytest.MonkeyPatch,
    expected_errors: Callable[..., list[LogEvent]],
) -> None:
    """What was committed is told, and the next block goes on from there."""
    first, second = (chain.chain("genesis: b[1..2]\nb1 pays 5 from alice to x\nb2 pays 5 from alice to y")).values()

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(StateTree, "take", fail)
        connected = connect(node, chain, first)
    assert connected.change is not None
    assert connected.change.tip == node.chainstate.tip
    assert len(expected_errors(MemoryError)) == 1
    connect_all(node, chain, second)
