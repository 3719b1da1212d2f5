"""Saves the state tree now and then and at a clean stop, in a thread (docs/storage.md)."""

from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.interfaces import Worker
from svcd.node.changes import ChainChange
from svcd.node.open_chain import OpenChain
from svcd.store.state_tree_file import StateTreeFile

MAX_BLOCKS: Final = 5_000
"""Blocks after which the tree is saved; a start reads the undo record of each one since."""
MIN_CHANGED: Final = 10_000
CHANGED_SHARE: Final = 16
"""Accounts that blocks may change until the tree is saved: so many, or one in so many of all, if that is more.

The accounts of their buckets are read again by a start after a kill, which takes some seconds with 10^7 accounts; and
saving more often would write more bytes than the blocks do.
"""


class StateTreeKeeper:
    """A listener to the chain that saves the state tree when enough of it has changed."""

    log = Logger()

    def __init__(self, chain: OpenChain, file: StateTreeFile, worker: Worker) -> None:
        """``worker`` waits for the disk."""
        self._chain, self._file, self._worker = chain, file, worker
        self._height = chain.chainstate.saved_height
        """Of the block to which the file belongs, or that is being saved; -1 for none."""
        self._blocks = self._changed = 0
        """How many blocks came, and how many accounts they changed, since that block."""
        self._dirty = self._height != chain.chainstate.tip.height
        self._is_due = False
        """Whether the tree is to be saved, again if it is being saved."""
        self._saving: Deferred[None] = succeed(None)

    def chain_changed(self, change: ChainChange) -> None:
        """See :class:`svcd.node.chain_manager.ChainListener`."""
        self._dirty = True
        self._blocks += len(change.applied)
        self._changed += len(change.accounts or ())
        outdated = change.newest is None or any(block.point.height <= self._height for block in change.undone)
        if outdated or self._blocks >= MAX_BLOCKS or self._changed >= self._most_changed():
            self._save()

    def _most_changed(self) -> int:
        return max(MIN_CHANGED, self._chain.chainstate.account_count // CHANGED_SHARE)

    def _save(self) -> None:
        self._is_due = True
        if self._saving.called:
            self._saving = Deferred.fromCoroutine(self._save_while_due()).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        self.log.failure("saving the state tree failed", failure)

    async def _save_while_due(self) -> None:
        while self._is_due:
            self._is_due = False
            await self._copy_and_write()

    async def _copy_and_write(self) -> None:
        self._blocks = self._changed = 0
        try:
            tree = await self._chain.writer.run(self._chain.chainstate.tree_to_save)
            if tree is None:
                return
            self._height = tree.height
            await self._worker.run(self._file.write, tree)
        except OSError as error:
            self.log.warn(
                "the state tree cannot be saved: {why}; if it cannot be saved later either, the next start computes it "
                "from all accounts",
                why=str(error),
            )
        else:
            self._dirty = self._chain.chainstate.tip.hash != tree.block

    async def finish(self) -> None:
        """Save the tree after the tip, for the next start; no block may come any more."""
        await self._saving
        if self._dirty:
            self._save()
            await self._saving
