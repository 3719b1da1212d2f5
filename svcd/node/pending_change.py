"""The change of the chain within an open transaction."""

from typing import Final

from attrs import define, evolve, field, frozen

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.state_tree import Overlay, StateTree
from svcd.chain.transaction import Transfer
from svcd.chain.transition import ChainHead, ChainPoint
from svcd.node.changes import MAX_LISTED, AppliedBlock, ChainChange, CommittedBlock, UndoneBlock

_MAX_DISCONNECTED: Final = 50_000
"""Transfers of undone blocks that one reorganisation returns to the mempool; beyond that the newest are dropped."""


@frozen
class PendingUndo:
    """A block undone in the open transaction."""

    point: ChainPoint
    transfers: tuple[Transfer, ...]
    """All of its transfers; none if there are newer ones than _MAX_DISCONNECTED to return to the mempool."""


@define
class PendingChange:
    """The tip and the accounts within the open transaction, and the blocks undone and applied since it began."""

    head: ChainHead
    """The tip."""
    state: Overlay
    """The accounts; written at the end of the transaction, or before if there are many."""
    tree: StateTree | None = None
    """The state tree over accounts that were written before the end; None if none were.

    With it, the disk agrees with no state that was committed.
    """
    undone: list[PendingUndo] = field(factory=list)
    """Newest first."""
    applied: list[AppliedBlock] = field(factory=list)
    undone_transfers: int = 0
    """How many transfers ``undone`` contains."""
    emptied: int = 0
    """How many entries of ``undone`` have lost their transfers to _MAX_DISCONNECTED."""
    applied_transfers: int = 0
    """How many transfers ``applied`` contains."""
    lists_txids: bool = True
    """Whether ``applied`` has the ids of its transfers; not any more once there have been more than MAX_LISTED."""

    def copy(self) -> "PendingChange":
        """A copy to return to."""
        tree = None if self.tree is None else self.tree.copy()
        undone, applied = list(self.undone), list(self.applied)
        return evolve(self, state=self.state.copy(tree), tree=tree, undone=undone, applied=applied)

    @property
    def tip(self) -> ChainPoint:
        """The chain variables after the tip."""
        return self.head.point

    def undo(self, block: PendingUndo, parent: ChainHead) -> None:
        """Note that the tip has been undone; a block that was applied in this transaction just disappears."""
        self.head = parent
        if self.applied:
            self.applied_transfers -= self.applied.pop().transfer_count
            return
        self.undone.append(block)
        self.undone_transfers += len(block.transfers)
        while self.undone_transfers > _MAX_DISCONNECTED:
            newest = self.undone[self.emptied]
            self.undone[self.emptied] = PendingUndo(newest.point, ())
            self.undone_transfers -= len(newest.transfers)
            self.emptied += 1

    def apply(self, head: ChainHead, block: Block) -> None:
        """Note that ``block`` is the tip; one that was undone in this transaction is back where it was."""
        self.head, point = head, head.point
        if self.undone and not self.applied and self.undone[-1].point.hash == point.hash:
            self.undone_transfers -= len(self.undone.pop().transfers)
            self.emptied = min(self.emptied, len(self.undone))
        else:
            self._list(AppliedBlock(point, len(block.transfers), None), block)

    def _list(self, applied: AppliedBlock, block: Block) -> None:
        self.applied_transfers += applied.transfer_count
        if self.lists_txids and self.applied_transfers > MAX_LISTED:
            self.lists_txids = False
            self.applied = [evolve(each, txids=None) for each in self.applied]
        if self.lists_txids:
            applied = evolve(applied, txids=tuple([transfer.txid for transfer in block.transfers]))
        self.applied.append(applied)

    def as_change(
        self, newest: Block, undone: tuple[UndoneBlock, ...], *, last_disconnected: int, prune_height: int
    ) -> ChainChange:
        """The change for the listeners; ``newest`` is the block at the tip, ``undone`` are the blocks of that name."""
        accounts: dict[bytes, Account] | None = None
        if self.tree is None:
            accounts = {key: account or Account() for key, account in self.state.changed.items()}
        applied, tip = tuple(self.applied), CommittedBlock.of(newest)
        return ChainChange(
            self.tip,
            undone,
            applied,
            accounts,
            newest=tip,
            last_disconnected=last_disconnected,
            prune_height=prune_height,
        )
