"""One branch gives way to another, as one database transaction or not at all (docs/protocol.md 10)."""

import pytest
from twisted.internet.defer import Deferred

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.errors import Corrupt, Refusal
from svcd.chain.forkchoice import tie_winner
from svcd.node import chainstate, pending_change
from svcd.node.chainstate import Chainstate
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import Node
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
from tests.support import result_of

# Reorganisations


def state_by_hash(node: Node) -> dict[str, object]:
    """Everything that blocks change, with hashes in place of the numbers under which blocks are stored."""
    state: dict[str, object] = dict(node.state())
    for table, columns in {"canonical": "t.height, b.hash", "undo": "b.hash, t.data"}.items():
        rows = node.connections[0].execute(f"SELECT {columns} FROM {table} t JOIN block b ON b.id = t.block")  # noqa: S608
        state[table] = set(rows)
    return state


@pytest.fixture
def few_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than three changed accounts are written before the commit."""
    monkeypatch.setattr(chainstate, "_MAX_PENDING_ACCOUNTS", 3)


@pytest.mark.parametrize("depth", [1, 10, 200])
@pytest.mark.parametrize("in_memory", [3, chainstate._MAX_PENDING_ACCOUNTS])
def test_a_reorganisation_is_one_transaction(
    make_node: MakeNode, chain: ChainBuilder, depth: int, in_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chainstate, "_MAX_PENDING_ACCOUNTS", in_memory)
    trunk, old, new = fork(chain, depth)
    node = make_node()
    connect_all(node, chain, *trunk, *old)
    assert set(codes(connect(node, chain, *new[:-1]))) == {SIDE}
    with commits(node) as seen:
        change = connect_all(node, chain, new[-1])
    assert seen[:2] == ["BEGIN IMMEDIATE", "COMMIT"]
    assert seen.count("COMMIT") == 1
    assert [undone.point.hash for undone in change.undone] == hashes(old[::-1])
    assert [undone.disconnected[0].wire for undone in change.undone] == [block.transfers[0].wire for block in old[::-1]]
    assert [applied.point.hash for applied in change.applied] == hashes(new)
    fresh = make_node("fresh")
    connect_all(fresh, chain, *trunk, *new)
    assert state_by_hash(node) == state_by_hash(fresh)


def test_a_change_says_how_every_account_is_now(node: Node, chain: ChainBuilder) -> None:
    trunk, old, new = fork(chain, 3)
    connect_all(node, chain, *trunk, *old)
    change = connect(node, chain, *new).change
    assert change is not None
    assert change.accounts is not None
    after = chain.accounts_after(new[-1])
    gone = {key_of(f"b{height}").hash for height in (3, 4, 5)} | {key_of("b").hash}
    assert gone <= change.accounts.keys()
    assert not gone & after.keys()
    assert change.accounts == {key: after.get(key, Account()) for key in change.accounts}
    untouched = after.keys() - change.accounts.keys()
    assert {key: after[key] for key in untouched} == {
        key: account for key, account in chain.accounts_after(trunk[-1]).items() if key in untouched
    }


@pytest.mark.usefixtures("few_in_memory")
def test_a_change_of_very_many_accounts_does_not_list_them(node: Node, chain: ChainBuilder) -> None:
    """Listeners get those of the senders in the mempool."""
    included, kept = (chain.transfer("bob", "dave", 5, nonce=nonce) for nonce in (0, 1))
    waits, uses_its_nonce = (chain.transfer("carol", "dave", amount, nonce=0) for amount in (5, 6))
    old = branch(chain, None, 2, "b")
    new = [chain.block(producer="n", transfers=[included, uses_its_nonce])]
    new += branch(chain, new[0], 2, "n")
    node.submit(*old)
    for transfer in (included, kept, waits):
        assert node.send(transfer) == "accepted"
    node.submit(*new)
    assert set(node.witness.changes[-1].accounts or ()) == {key_of("bob").hash, key_of("carol").hash}
    assert [entry.transfer for entry in node.mempool.entries()] == [kept]


def test_the_tree_does_not_grow_with_every_reorganisation(node: Node, chain: ChainBuilder) -> None:
    """Its depth goes by the number of accounts, and undone blocks take theirs with them."""
    trunk, old, new = fork(chain, 3)
    connect_all(node, chain, *trunk, *old)
    connect_all(node, chain, *new)
    for number in range(8):
        behind = (old, new)[number % 2]
        behind += branch(chain, behind[-1], 2, f"r{number}")
        assert len(connect_all(node, chain, *behind[-2:]).undone) > 3
        assert node.chainstate.account_count == node.store.count_accounts()
    fresh = Chainstate(TEST_PARAMS, node.store)
    fresh.load()
    assert node.chainstate._tree.depth == fresh._tree.depth


def test_there_and_back_in_one_batch(node: Node, chain: ChainBuilder) -> None:
    """Only what is different in the end is told."""
    trunk, old, new = fork(chain, 3)
    more = branch(chain, old[-1], 2, "b")
    connect_all(node, chain, *trunk, *old)
    change = connect_all(node, chain, *new, *more)
    assert change.undone == ()
    assert [applied.point.hash for applied in change.applied] == hashes(more)


def test_there_and_half_the_way_back_in_one_batch(node: Node, chain: ChainBuilder) -> None:
    trunk, old, new = fork(chain, 4)
    other = branch(chain, old[1], 5, "d")
    connect_all(node, chain, *trunk, *old)
    change = connect_all(node, chain, *new, *other)
    assert [undone.point.hash for undone in change.undone] == hashes(old[:1:-1])
    assert [applied.point.hash for applied in change.applied] == hashes(other)
    assert [undone.disconnected[0].wire for undone in change.undone] == [
        block.transfers[0].wire for block in old[:1:-1]
    ]


def test_in_a_deep_reorganisation_the_newest_transfers_are_let_go(
    node: Node, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_change, "_MAX_DISCONNECTED", 3)
    trunk, old, new = fork(chain, 5)
    connect_all(node, chain, *trunk, *old)
    change = connect_all(node, chain, *new)
    assert [len(undone.disconnected) for undone in change.undone] == [0, 0, 1, 1, 1]
    assert [undone.point.hash for undone in change.undone] == hashes(old[::-1])


def test_a_very_large_change_does_not_list_its_transfers(
    node: Node, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_change, "MAX_LISTED", 3)
    trunk, old, new = fork(chain, 4)
    connect_all(node, chain, *trunk, *old)
    change = connect_all(node, chain, *new)
    assert change.txids is None
    assert [(applied.transfer_count, applied.txids) for applied in change.applied] == [
        (len(block.transfers), None) for block in new
    ]
    (block,) = branch(chain, new[-1], 1, "d")
    assert connect_all(node, chain, block).txids == {block.transfers[0].txid}


def test_transfers_let_go_on_the_way_are_no_trouble_on_the_way_back(
    node: Node, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_change, "_MAX_DISCONNECTED", 2)
    trunk, old, new = fork(chain, 5)
    other = branch(chain, old[1], 6, "d")
    connect_all(node, chain, *trunk, *old)
    change = connect_all(node, chain, *new, *other)
    assert [undone.point.hash for undone in change.undone] == hashes(old[:1:-1])
    assert [len(undone.disconnected) for undone in change.undone] == [0, 0, 0]
    back = connect_all(node, chain, *branch(chain, old[-1], 7, "e"))
    assert [len(undone.disconnected) for undone in back.undone] == [0, 0, 0, 0, 1, 1]


# Reorganisations that fail


def failing(chain: ChainBuilder) -> dict[str, Block]:
    """A branch b, and a branch c that overtakes it with its third block, whose state root is invalid."""
    return chain.chain(
        """
        genesis: t1 b[2..4]
        t1: c[2..5]
        c3: d[4..5]
        b3 is at slot 9
        c4 has an invalid state root
        b2 pays 5 from alice to bob
        c2 pays 6 from alice to carol
        c3 pays 7 from carol to dave
        c4 pays 8 from carol to erin
        d4 pays 9 from alice to erin
        """
    )


def before_the_failure(node: Node, chain: ChainBuilder) -> dict[str, Block]:
    """The blocks of :func:`failing`, connected up to the moment before the invalid one."""
    b = failing(chain)
    connect_all(node, chain, b["t1"], b["b2"], b["b3"], b["b4"])
    assert codes(connect(node, chain, b["c2"], b["c3"])) == [SIDE, SIDE]
    return b


def test_a_reorganisation_whose_third_block_is_invalid_rolls_back_wholly(node: Node, chain: ChainBuilder) -> None:
    b = before_the_failure(node, chain)
    before, root_before = node.state(), node.root
    connected = connect(node, chain, b["c4"])
    assert codes(connected) == [Refusal.STATE_ROOT]
    assert connected.invalid.keys() == {b["c4"].header.hash}
    assert connected.change is None
    assert node.state() == before
    assert node.root == root_before
    sound(node, chain, b["b4"])


@pytest.mark.usefixtures("few_in_memory")
def test_accounts_that_were_written_before_a_failure_roll_back(node: Node, chain: ChainBuilder) -> None:
    test_a_reorganisation_whose_third_block_is_invalid_rolls_back_wholly(node, chain)


@pytest.mark.usefixtures("few_in_memory")
def test_an_invalid_block_after_a_reorganisation_that_wrote_accounts(node: Node, chain: ChainBuilder) -> None:
    """In one batch: the disk does not agree with the committed state then, and is not damaged."""
    trunk, old, new = fork(chain, 3)
    connect_all(node, chain, *trunk, *old)
    bad = chain.block(new[-1], break_=Refusal.STATE_ROOT)
    assert codes(connect(node, chain, *new, bad))[-1] == Refusal.STATE_ROOT
    sound(node, chain, new[-1])


def test_a_failed_branch_is_forgotten_but_its_valid_parent_is_kept(node: Node, chain: ChainBuilder) -> None:
    b = before_the_failure(node, chain)
    connect(node, chain, b["c4"])
    assert [node.holds(b[name]) for name in ("c2", "c3", "c4")] == [True, True, False]
    change = connect_all(node, chain, b["d4"])
    assert [applied.point.hash for applied in change.applied] == hashes([b["c2"], b["c3"], b["d4"]])
    connect_all(node, chain, b["d5"])


def test_descendants_of_an_invalid_block_are_invalid(node: Node, chain: ChainBuilder) -> None:
    b = chain.chain(
        """
        genesis: b[1..4]
        genesis: c[1..5]
        c2: f[3..4]
        c1: e2
        c2 has an invalid nonce
        """
    )
    connect_all(node, chain, *(b[f"b{n}"] for n in range(1, 5)))
    assert codes(connect(node, chain, *(b[n] for n in ("c1", "c2", "c3", "f3", "f4", "e2")))) == [SIDE] * 6
    connected = connect(node, chain, b["c4"], b["c5"])
    assert set(codes(connected)[1:]) == {Refusal.ANCESTOR}
    gone = {b[name].header.hash for name in ("c2", "c3", "c4", "c5", "f3", "f4")}
    assert connected.invalid.keys() == gone
    assert connected.invalid[b["c2"].header.hash].code is Refusal.NONCE
    assert {b[name].header.hash for name in b if not node.holds(b[name])} == gone
    sound(node, chain, b["b4"])


def test_the_ancestors_of_an_invalid_block_may_win(node: Node, chain: ChainBuilder) -> None:
    b = chain.chain("genesis: b[1..2]\ngenesis: c[1..5]\nc5 has an invalid multiplier")
    connect_all(node, chain, b["b1"], b["b2"])
    connected = connect(node, chain, *(b[f"c{n}"] for n in range(1, 6)))
    assert connected.outcomes[3] is CONNECTED
    assert codes(connected)[4] is Refusal.MULTIPLIER
    assert connected.change is not None
    assert connected.change.tip == chain.point_after(b["c4"])
    sound(node, chain, b["c4"])


def test_a_lost_parent_is_corrupt_and_changes_nothing(node: Node, chain: ChainBuilder) -> None:
    b = chain.chain("genesis: b1\ngenesis: c[1..3]")
    connect_all(node, chain, b["b1"])
    for name in ("c1", "c2"):
        node.store.add_block(b[name], chain.point_after(b[name]))
    node.connections[0].execute("DELETE FROM block WHERE hash = ?", (b["c1"].header.hash,))
    before = node.state()
    with pytest.raises(Corrupt, match=f"parent of the stored block {b['c2'].header.hash.hex()} is missing"):
        connect(node, chain, b["c3"])
    assert node.state() == before
    sound(node, chain, b["b1"])


# Ties


def test_a_tie_is_not_asked_again(node: Node, chain: ChainBuilder) -> None:
    rivals = [chain.block(producer=f"r{number}") for number in range(8)]
    a, b = next(
        (a, b)
        for a in rivals
        for b in rivals
        if a is not b and tie_winner(a.header.hash, b.header.hash) == a.header.hash
    )
    connect_all(node, chain, a)
    assert codes(connect(node, chain, b, b, a)) == [SIDE, KNOWN, KNOWN]
    connect_all(node, chain, chain.block(b))


# Transfers that fell out


def test_transfers_of_undone_blocks_wait_on_disk_with_the_commit(make_node: MakeNode, chain: ChainBuilder) -> None:
    """Nothing else is given time to write them: neither the mempool nor a settled end."""
    kept, fallen, later = (chain.transfer("alice", "bob", amount, nonce=amount - 1) for amount in (1, 2, 3))
    old = chain.block(transfers=[kept, fallen])
    oldest = chain.block(old, transfers=[later])
    new = [chain.block(producer="n", transfers=[kept])]
    for _ in range(2):
        new.append(chain.block(new[-1]))
    node = make_node()
    connect_all(node, chain, old, oldest)
    assert node.store.disconnected() == []
    with commits(node) as seen:
        connect_all(node, chain, *new)
    assert seen.count("COMMIT") == 1
    node.close()
    again = make_node()
    assert [body for _, body in again.store.disconnected()] == [fallen.wire, later.wire]
    assert result_of(Deferred.fromCoroutine(again.transaction_pool.load())) == 2
    assert [entry.transfer.txid for entry in again.mempool.entries()] == [fallen.txid, later.txid]


def test_no_transfer_waits_that_only_changed_its_block(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 1)
    connect_all(node, chain, chain.block(transfers=[transfer]))
    first = chain.block(producer="n")
    connect_all(node, chain, first, chain.block(first, transfers=[transfer]))
    assert node.store.disconnected() == []
