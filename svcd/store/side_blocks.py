"""Side blocks, which are stored and not canonical: which of them stay, and which go first (docs/peers.md)."""

from typing import Final

from svcd.store.database import DatabaseConnection

_CONDEMNED: Final = bytes(32)
"""The side_work of blocks to which no reorganisation can lead any more."""
CONDEMNED_AT_ONCE: Final = 256
"""So many blocks are condemned in a few milliseconds."""
DELETE_TRANSFERS: Final = "DELETE FROM block_transaction WHERE id BETWEEN (?1 << 16) AND (?1 << 16) + 65535"
"""The transfers of a block, by its id."""
_LEAST: Final = (
    "SELECT id, hash, side_work FROM block "
    "WHERE side_work = (SELECT min(side_work) FROM block WHERE side_work NOT NULL) ORDER BY id DESC LIMIT 1"
)


def packed_work(work: int) -> bytes:
    """Cumulative work as 32 bytes, which sort as the numbers do."""
    return work.to_bytes(32, "big")


class SideBlocks:
    """Changes of side blocks, inside a transaction.

    The side_work of a block is the most work of its branch: at least that of each block that builds on it, and these
    have greater ids. So of the blocks with the least side_work, the one with the greatest id is the end of a branch.
    """

    def __init__(self, connection: DatabaseConnection) -> None:
        self._db = connection

    def raise_work(self, block_hash: bytes, work: int) -> None:
        """Let a side block and its ancestors be kept for at least the work of a descendant."""
        found: tuple[bytes] | None = (block_hash,)
        while found is not None:
            found = self._db.execute(
                "UPDATE block SET side_work = ?2 WHERE hash = ?1 AND side_work < ?2 AND side_work > ?3 "
                "RETURNING parent",
                (*found, packed_work(work), _CONDEMNED),
            ).fetchone()

    def condemn_children(self, block_hash: bytes) -> int:
        """Let side blocks on a block go first, CONDEMNED_AT_ONCE at most; gives how many have not been so before."""
        self._db.execute(
            "UPDATE block SET side_work = ?2 WHERE id IN "
            "(SELECT id FROM block WHERE parent = ?1 AND side_work > ?2 LIMIT ?3)",
            (block_hash, _CONDEMNED, CONDEMNED_AT_ONCE),
        )
        return self._db.changes()

    def trim(self, *, limit: int, spare: int, at_most: int) -> int | None:
        """Delete at most ``at_most`` blocks: condemned ones, and others until ``limit`` bytes are left.

        The branch with the least work goes first, and its newest block first. Branches with more work than ``spare``
        stay. Gives the least ``spare`` with which more must go, and None if no more must.
        """
        (excess,) = self._db.execute(
            "SELECT ifnull(sum(size), 0) - ? FROM block WHERE side_work IS NOT NULL", (limit,)
        ).fetchone()
        condemned, going = 0, _CONDEMNED
        while (least := self._db.execute(_LEAST).fetchone()) is not None:
            number, block_hash, side_work = least
            if side_work > going and excess <= 0:
                return None
            if (work := int.from_bytes(side_work, "big")) > spare:
                return work
            if not at_most or condemned >= CONDEMNED_AT_ONCE:
                return spare
            more = self.condemn_children(block_hash) if side_work == _CONDEMNED else 0
            condemned += more
            if not more:
                excess -= self.delete(number)
                at_most -= 1
                # The rest of the branch goes with its end.
                going = side_work
        return None

    def delete(self, number: int) -> int:
        """Delete a block, by its id, and its transfers; gives its size."""
        self._db.execute(DELETE_TRANSFERS, (number,))
        (size,) = self._db.execute("DELETE FROM block WHERE id = ? RETURNING size", (number,)).fetchone()
        return int(size)

    def delete_with_descendants(self, number: int, block_hash: bytes) -> list[bytes]:
        """Delete a block and its descendants; gives the hashes of these."""
        gone: list[bytes] = []
        parents = [(number, block_hash)]
        while parents:
            parent = parents.pop()
            children = self._db.execute("SELECT id, hash FROM block WHERE parent = ?", parent[1:]).fetchall()
            gone += [child_hash for _, child_hash in children]
            parents += children
            self.delete(parent[0])
        return gone
