"""Deletes old blocks from the chain's database, some transfers to a commit (docs/storage.md)."""

from sqlite3 import Connection
from typing import Final

from attrs import frozen

from svcd.store import database
from svcd.store.chain_store import ChainWriter, StoredBlock

_BYTES_OF_A_TRANSFER: Final = 512
"""About as much of a side block is deleted in the time of a transfer with its index entries."""

_ENTRIES_OF_A_TRANSFER: Final = 4


@frozen
class Deleted:
    """What one commit has deleted."""

    transfers: int
    """How many transfers would have taken the same time."""
    more: bool
    """Whether something is left to delete."""


class BlockDeletion(ChainWriter):
    """Deletes transfers, undo records, index entries and side blocks; headers, history nodes and accounts stay.

    The prune height grows in the commit that deletes the first of a block. What is left of that block, if the node is
    killed, is deleted by the next call.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._branch: list[tuple[int, bytes]] = []
        """Where the search for the end of a branch is, from its first block on: rows and hashes."""

    def delete_some(self, *, below: int, at_most: int) -> Deleted:
        """Delete in one commit of the blocks below height ``below``.

        About ``at_most`` transfers are deleted; a block counts as one, and so do 512 bytes of a side block and each
        block that the search for the end of a branch passes. The commit leaves the log to
        :func:`svcd.store.database.checkpoint`.
        """
        left = at_most
        with database.without_checkpoint(self._db), self.commit():
            while left > 0:
                height = self.prune_height()
                if height:
                    left -= self._delete_some_of(self.existing(height - 1), left)
                    if left <= 0:
                        break
                removed = self._entries.sweep(_ENTRIES_OF_A_TRANSFER * left)
                left -= -(-removed // _ENTRIES_OF_A_TRANSFER)
                if left <= 0:
                    break
                if height >= below:
                    return Deleted(at_most - left, more=False)
                self.set_prune_height(height + 1)
                left -= 1
        return Deleted(at_most - left, more=True)

    def _delete_some_of(self, block: StoredBlock, at_most: int) -> int:
        """Delete transfers of a canonical block, then the branches that lost to it; gives how much of ``at_most``."""
        rows = self._db.execute(
            "SELECT id FROM block_transaction WHERE id BETWEEN (?1 << 16) AND (?1 << 16) + 65535 ORDER BY id LIMIT ?2",
            (block.id, at_most),
        ).fetchall()
        if rows:
            self._db.execute("DELETE FROM block_transaction WHERE id BETWEEN (? << 16) AND ?", (block.id, rows[-1][0]))
        deleted = len(rows)
        deleted += self._delete_side_blocks(block, at_most - deleted)
        if deleted < at_most:
            self._db.execute("DELETE FROM undo WHERE block = ?", (block.id,))
        return deleted

    def _delete_side_blocks(self, block: StoredBlock, at_most: int) -> int:
        """Delete the branches beside a canonical block, their ends first: no reorganisation can lead there any more.

        A long branch takes several calls. Gives how many transfers would have taken the same time.
        """
        took, branch = 0, self._branch
        # Since the last call the end of the branch may have been trimmed; a block goes after all that build on it.
        while branch and not self._is_stored(*branch[-1]):
            branch.pop()
            took += 1
        while took < at_most:
            parent = branch[-1][1] if branch else block.parent
            child = self._db.execute(
                "SELECT id, hash FROM block WHERE parent = ? AND id <> ? LIMIT 1", (parent, block.id)
            ).fetchone()
            if child is not None:
                branch.append(child)
                took += 1
            elif branch:
                took += 1 + self._delete(branch.pop()[0]) // _BYTES_OF_A_TRANSFER
            else:
                break
        return took

    def _is_stored(self, number: int, block_hash: bytes) -> bool:
        row = self._db.execute("SELECT 1 FROM block WHERE id = ? AND hash = ?", (number, block_hash)).fetchone()
        return row is not None
