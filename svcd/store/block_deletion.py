"""Deletes old blocks from the chain's database, some transfers to a commit (docs/operations.md "Storage")."""

from typing import Final

from svcd.chain.params import NetworkParams
from svcd.chain.transaction import parse_canonical_transfer
from svcd.store import database
from svcd.store.chain_store import ChainWriter, StoredBlock

_BYTES_OF_A_TRANSFER: Final = 512
"""About as much of a side block is deleted in the time of a transfer, which is in indexes, too."""


class BlockDeletion(ChainWriter):
    """Deletes transfers, undo records, index rows and side blocks; headers, history nodes and accounts stay.

    The prune height grows in the commit that deletes the first of a block. What is left of that block, if the node is
    killed, is deleted by the next call.
    """

    def delete_some(self, params: NetworkParams, *, below: int, at_most: int) -> bool:
        """Delete in one commit of the blocks below height ``below``; gives whether something is left to delete.

        About ``at_most`` transfers are deleted; a block counts as one, and 512 bytes of a side block count as one. The
        commit leaves the log to :func:`svcd.store.database.checkpoint`.
        """
        with database.without_checkpoint(self._db), self.commit():
            while at_most > 0:
                height = self.prune_height()
                if height:
                    deleted = self._delete_some_of(params, self.existing(height - 1), at_most)
                    if deleted >= at_most:
                        return True
                    at_most -= deleted
                if height >= below:
                    return False
                self.set_prune_height(height + 1)
                at_most -= 1
        return True

    def _delete_some_of(self, params: NetworkParams, block: StoredBlock, at_most: int) -> int:
        """Delete transfers of a canonical block, then the branches that lost to it; gives how much of ``at_most``."""
        rows = self._db.execute(
            "SELECT position, body FROM block_transaction WHERE block = ? ORDER BY position LIMIT ?",
            (block.id, at_most),
        ).fetchall()
        if rows:
            first, last = rows[0][0], rows[-1][0]
            transfers = [parse_canonical_transfer(body, params) for _, body in rows]
            self._delete_places(transfers, block.point.height, first)
            self._db.execute("DELETE FROM block_transaction WHERE block = ? AND position <= ?", (block.id, last))
        deleted = len(rows)
        deleted += self._delete_side_blocks(block, at_most - deleted)
        if deleted < at_most:
            self._db.execute("DELETE FROM undo WHERE block = ?", (block.id,))
        return deleted

    def _delete_side_blocks(self, block: StoredBlock, at_most: int) -> int:
        """Delete the branches beside a canonical block, their ends first: no reorganisation can lead there any more.

        Gives how many transfers would have taken the same time.
        """
        deleted = 0
        path: list[tuple[int, bytes]] = []
        while deleted < at_most:
            parent = path[-1][1] if path else block.parent
            child = self._db.execute(
                "SELECT id, hash FROM block WHERE parent = ? AND id <> ? LIMIT 1", (parent, block.id)
            ).fetchone()
            if child is not None:
                path.append(child)
            elif path:
                deleted += 1 + self._delete(path.pop()[0]) // _BYTES_OF_A_TRANSFER
            else:
                break
        return deleted
