"""A disk that fails while branches are exchanged: the tree in memory follows it, whatever it refuses."""

from itertools import count
from typing import Any

import apsw
import pytest
from attrs import define

from svcd.chain.block import Block
from svcd.chain.transition import apply_block
from svcd.node.chainstate import Chainstate
from svcd.node.changes import CheckedBlock
from svcd.store.chain_store import ChainWriter
from svcd.store.database import DatabaseConnection, DatabaseCursor
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import Node
from tests.node.connecting import branch, connect, connect_all, fork, sound


def test_a_full_disk_in_a_reorganisation_changes_nothing(node: Node, chain: ChainBuilder) -> None:
    trunk, old, new = fork(chain, 10)
    connect_all(node, chain, *trunk, *old)
    before = node.state()
    writer = node.connections[0]
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(apsw.FullError, match="full"):
        connect(node, chain, *new)
    assert node.state() == before
    sound(node, chain, old[-1])
    writer.execute("PRAGMA max_page_count = 1000000")
    connect_all(node, chain, *new)


@define
class Unreliable:
    """A connection that refuses one statement, some time from now, or ``more`` than one."""

    connection: DatabaseConnection
    left: int = 0
    more: int = 0
    rolls_back: bool = True
    """Whether roll-backs are never among them."""
    stuck: bool = False
    """Whether it refuses every roll-back."""

    @property
    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def execute(self, statement: str, *values: Any) -> DatabaseCursor:
        rolling_back = statement.startswith("ROLLBACK")
        if rolling_back and self.stuck:
            raise apsw.IOError("disk I/O error")
        if not rolling_back or not self.rolls_back:
            self._count()
        return self.connection.execute(statement, *values)

    def changes(self) -> int:
        return self.connection.changes()

    def last_insert_rowid(self) -> int:
        return self.connection.last_insert_rowid()

    def executemany(self, *args: Any) -> DatabaseCursor:
        self._count()
        return self.connection.executemany(*args)

    def _count(self) -> None:
        self.left -= 1
        if -self.more <= self.left <= 0:
            raise apsw.IOError("disk I/O error")

    def fail(self, left: int, more: int = 0) -> None:
        """Refuse the statement after ``left - 1`` others, and ``more`` after it."""
        self.left, self.more = left, more

    def mend(self) -> None:
        self.left, self.more, self.stuck = 0, 0, False


@define
class Shaken:
    """A chainstate on a disk that fails, about to exchange two blocks for three with new accounts."""

    node: Node
    chain: ChainBuilder
    old: list[Block]
    new: list[Block]
    disk: Unreliable
    chainstate: Chainstate

    @classmethod
    def on(cls, node: Node, chain: ChainBuilder, *, rolls_back: bool = True) -> "Shaken":
        trunk, old, new = fork(chain, 2)
        connect_all(node, chain, *trunk, *old)
        disk = Unreliable(node.connections[0], rolls_back=rolls_back)
        connection: Any = disk
        chainstate = Chainstate(TEST_PARAMS, ChainWriter(connection))
        chainstate.load()
        return cls(node, chain, old, new, disk, chainstate)

    def try_to_exchange(self) -> bool:
        """Whether the disk let the new blocks win."""
        try:
            self.chainstate.connect([CheckedBlock(block, self.chain.head_after(block)) for block in self.new])
        except apsw.Error:
            return False
        return True

    def get_stuck(self, statement: int) -> None:
        """Fail at a statement, and leave the transaction open on a disk that is sound again."""
        self.disk.fail(statement)
        self.disk.stuck = True
        assert not self.try_to_exchange()
        self.disk.mend()
        assert self.disk.in_transaction

    def stands_on(self, block: Block) -> None:
        """The tip and the tree are those after ``block``."""
        assert self.chainstate.view().state.root == block.header.state_root
        assert self.chainstate.tip == self.chain.point_after(block)

    def takes(self, block: Block) -> None:
        """A block of somebody honest is executed and does not look bad."""
        state = self.chainstate.view().state
        assert state.apply(apply_block(TEST_PARAMS, block, state)) == block.header.state_root


@pytest.mark.parametrize("rolls_back", [True, False])
@pytest.mark.parametrize("more", [0, 1, 2, 5, 1000])
def test_whichever_statements_fail_nothing_has_changed(
    node: Node, chain: ChainBuilder, more: int, rolls_back: bool
) -> None:
    """The tree in memory follows the disk, wherever the disk gives up in a reorganisation with new accounts."""
    shaken = Shaken.on(node, chain, rolls_back=rolls_back)
    before = node.state()
    for statement in count(1):
        shaken.disk.fail(statement, more)
        if shaken.try_to_exchange():
            break
        shaken.disk.mend()
        shaken.stands_on(shaken.old[-1])
        assert node.state() == before
    shaken.disk.mend()
    assert statement > 50, "it is a long way"
    shaken.stands_on(shaken.new[-1])


@pytest.mark.parametrize("statement", [5, 30, 50])
def test_a_roll_back_that_is_refused_does_not_stop_the_next(node: Node, chain: ChainBuilder, statement: int) -> None:
    shaken = Shaken.on(node, chain)
    shaken.get_stuck(statement)
    shaken.takes(branch(chain, shaken.old[-1], 1, "h")[0])
    shaken.stands_on(shaken.old[-1])
    assert not shaken.disk.in_transaction
    assert shaken.try_to_exchange()
    shaken.stands_on(shaken.new[-1])


@pytest.mark.parametrize("statement", [5, 30, 50])
def test_a_refused_rollback_is_completed_by_the_next_writer(node: Node, chain: ChainBuilder, statement: int) -> None:
    """The next to write is not always the chainstate: transfers that wait are written in transactions of their own."""
    shaken = Shaken.on(node, chain)
    before = node.state()
    shaken.get_stuck(statement)
    with shaken.chainstate.store.commit():
        shaken.chainstate.store.write_accounts({bytes(20): None})
    assert node.state() == before
    shaken.takes(branch(chain, shaken.old[-1], 1, "h")[0])
    shaken.stands_on(shaken.old[-1])
