"""The canonical chain and its accounts: blocks are connected and disconnected here (docs/protocol.md 9, 10).

:class:`Chainstate` is synchronous and runs in the writer's thread, the only thread that changes rows of the chain's
database. The chain manager decides which blocks get here, and publishes the result.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from attrs import frozen
from twisted.logger import Logger

from svcd.chain.accounts import Account
from svcd.chain.block import Block, genesis_header
from svcd.chain.difficulty import next_target
from svcd.chain.encoding import parse_wire_object
from svcd.chain.errors import DAMAGE_ADVICE, Corrupt, NotYet, Refusal, RuleViolation, StateViolation, Wait
from svcd.chain.forkchoice import prefers
from svcd.chain.history import History
from svcd.chain.params import NetworkParams
from svcd.chain.state_tree import Overlay, StateTree
from svcd.chain.transition import (
    ChainPoint,
    Effect,
    apply_block,
    check_header,
    check_state_root,
    consensus_root,
    genesis_accounts,
    genesis_head,
    history_leaf,
)
from svcd.chain.work import block_work
from svcd.limits import SIDE_BLOCKS, limit
from svcd.node.chain_view import ChainView
from svcd.node.changes import (
    BlockStatus,
    ChainChange,
    CheckedBlock,
    ConnectResult,
    UndoneBlock,
    listed_txids,
)
from svcd.node.pending_change import PendingChange, PendingUndo
from svcd.node.stored_producers import check_stored_producers
from svcd.store.chain_store import ChainWriter, StoredBlock
from svcd.store.pruned import Pruned, ReorganisationBelowPruneHeight
from svcd.store.snapshot_staging import SnapshotStaging, StagingDamaged
from svcd.store.state_tree_file import NoSavedTree, SavedTree, StateTreeFile

MAX_SIDE_BYTES: Final = limit(256 * 1024 * 1024, "side blocks that are kept", "bytes", SIDE_BLOCKS)
"""Side blocks that are kept, but for those of a chain that headers have shown to have more work than the tip."""
_TRIMMED_AT_ONCE: Final = 8
"""Side blocks that are deleted in one commit: full ones take a few milliseconds each."""
_DELETED_FOR_EACH: Final = 2
"""Old blocks that are deleted for each new one, until no more are left than are to be kept."""
SIDE_DEPTH: Final = limit(144, "how far behind the tip a side block may be", "blocks", SIDE_BLOCKS)
"""Side blocks with as much less work than the tip as so many blocks have are not stored, unless headers show more."""
_STALE_SHARE: Final = 4
"""If more accounts than one for so many buckets have changed since the tree was saved, it is computed from all."""
_FEW_STALE: Final = 1_000
"""So few may be all of them."""
_MAX_PENDING_ACCOUNTS: Final = 20_000
"""Accounts that a reorganisation keeps in memory, 16 MB of them; more are written before its commit."""


@frozen
class AccountPath:
    """An account in the state tree, or its absence (docs/protocol.md 13)."""

    tip: ChainPoint
    """The block whose state root the path leads to."""
    leaf: tuple[bytes, Account] | None
    """The only account below the end of the path, by key hash; None if none is there."""
    siblings: Sequence[bytes]
    """The 32-byte hashes beside the path, from the deepest up to the root."""


class Chainstate:
    """The canonical chain as the writer's thread has it: tip, accounts on disk, and the state tree over them."""

    _log = Logger()

    def __init__(self, params: NetworkParams, store: ChainWriter, tree_file: StateTreeFile | None = None) -> None:
        """``tree_file`` has the state tree after some block, if there is one."""
        self.params = params
        self.store = store
        self._tree_file = tree_file
        self.saved_height = -1
        """The block from whose saved tree the tree was loaded; -1 if it was computed from all accounts."""
        self.head = genesis_head(params)
        """The newest canonical block."""
        self._tree = StateTree(store.account_rows)
        self.account_count = 0
        """How many accounts exist."""
        self._tree_is_stale = False
        """Whether the tree lacks accounts that have been committed."""
        self._pending = PendingChange(self.head, Overlay(self._tree, 0))
        self.steps = 0
        """Grows with every block applied or undone, and by :meth:`count_step`, so that a watchdog sees progress."""
        self.kept_from: Callable[[int], int] | None = None
        """Gives the height from which on blocks stay whole once the tip has the given one; None keeps all blocks."""
        self._trim_from: int | None = 0
        """The work of the tip from which on there may be more side blocks than are kept; None if there are not."""
        self._batch: dict[bytes, CheckedBlock] = {}
        self._invalid: dict[bytes, RuleViolation] = {}

    @property
    def tip(self) -> ChainPoint:
        """The chain variables after the newest canonical block."""
        return self.head.point

    def count_step(self) -> None:
        """Count a step of a long piece of work, such as a reorganisation; in the writer's thread."""
        self.steps += 1

    def load(self) -> ChainPoint:
        """Load the chain on disk, or write the genesis block.

        Raises Corrupt if the accounts do not give the state root of the tip, which are not all read if a saved tree
        does, or if a block is of a producer that the network's lists do not allow.
        """
        is_new = self.store.tip() is None
        if is_new:
            self._write_genesis()
        genesis, tip = self.store.canonical(0), self.store.tip()
        if genesis is None or tip is None or genesis.point.hash != self.params.genesis_hash:
            raise Corrupt(self._foreign_chain(genesis))
        self._check_producers(tip)
        newest = self.store.existing(tip.height)
        header = self.store.block_header(newest, self.params)
        if not is_new:
            self._load_tree(tip, header.state_root)
        if header.state_root != self._tree.root:
            raise Corrupt(_damaged_accounts(tip))
        self.head, self._tree_is_stale = self.store.head(newest, self.params), False
        return tip

    def _check_producers(self, tip: ChainPoint) -> None:
        """Check the producers of all canonical blocks, unless an earlier run has done so by the same lists.

        The lists before the first change are rules, to which the genesis commits.
        """
        checked, changes = self.store.checked_producers, self.params.changes_hash
        if self.params.producers and not checked.has(changes):
            check_stored_producers(self.store, self.params, tip.height)
            # Each block that is connected from here on is checked by these lists.
            checked.set(changes)

    def _load_tree(self, tip: ChainPoint, root: bytes) -> None:
        """Load the tree from its file, or compute it from all accounts."""
        if self._tree_file is not None:
            try:
                self._restore_tree(self._tree_file.read(), tip, root)
                return
            except NoSavedTree as reason:
                self._log.info("the state tree is computed from all accounts: {reason}", reason=str(reason))
        self.account_count, self.saved_height = self.store.count_accounts(), -1
        self._tree.load(self.store.every_account(), self.account_count)

    def _restore_tree(self, saved: SavedTree, tip: ChainPoint, root: bytes) -> None:
        """Restore the tree after ``tip`` from the tree after an earlier block; raises NoSavedTree.

        The accounts that were touched since are known from the undo records.
        """
        block = self.store.canonical(saved.height)
        if block is None or block.point.hash != saved.block:
            raise NoSavedTree(f"the saved one belongs to block {saved.height} of another chain")
        count = saved.accounts
        stale: set[bytes] = set()
        for height in range(saved.height + 1, tip.height + 1):
            try:
                before = self.store.undo(self.store.existing(height))
            except (Corrupt, Pruned) as error:
                raise NoSavedTree(str(error)) from error
            stale.update(before)
            count += sum(account is None for account in before.values())
            if len(stale) > max(_FEW_STALE, (1 << saved.level.depth) // _STALE_SHARE):
                raise NoSavedTree(f"the saved one is {tip.height - saved.height} blocks old")
        self._tree.restore(saved.level, count, stale)
        if self._tree.root != root:
            raise NoSavedTree(f"the saved one does not lead to the state root of block {tip.height}")
        self.account_count, self.saved_height = count, saved.height

    def tree_to_save(self) -> SavedTree | None:
        """The tree after the tip, copied for :class:`svcd.store.state_tree_file.StateTreeFile`.

        Takes 30 ms with 10^7 accounts. None if the tree in memory is not that of the tip.
        """
        if self._tree_is_stale or self.store.in_transaction:
            return None
        return SavedTree(self.tip.hash, self.tip.height, self.account_count, self._tree.known_level())

    def _foreign_chain(self, genesis: StoredBlock | None) -> str:
        """Why the chain on disk is not that of this node, and what to do."""
        chain_id, advice = self.params.chain_id, "use another data directory"
        if genesis is not None and parse_wire_object(genesis.header).get("networkId") == self.params.network_id:
            return f"the database has a chain of {chain_id} with other rules than this node's: {advice}"
        return f"the database does not have the chain of {chain_id}: {advice}"

    def _write_genesis(self) -> None:
        accounts, head = genesis_accounts(self.params), genesis_head(self.params)
        with self.store.commit():
            self.store.write_accounts(accounts)
            self.account_count, self.saved_height = len(accounts), -1
            self._tree.load(self.store.every_account(), self.account_count)
            root = consensus_root(self.params, head.point, History().root)
            header = genesis_header(self.params, state_root=self._tree.root, consensus_root=root)
            stored = self.store.add_block(Block(header, ()), head.point)
            self.store.connect_block(stored, (), undo={}, history=head.history.mountains)

    # Views

    def view(self, *, undone: int = 0) -> ChainView:
        """The canonical chain, or the chain as it would be without its newest ``undone`` blocks."""
        # First: it may reload the tip.
        state = self._overlay()
        view = ChainView(self.params, self.head, state, self.tip)
        for height in range(self.tip.height, self.tip.height - undone, -1):
            root = view.state.undo(self.store.undo(self.store.existing(height)))
            self._check_undone(root, self.store.existing(height - 1))
        if undone:
            view.head = self.store.head(self.store.existing(self.tip.height - undone), self.params)
        return view

    def _overlay(self) -> Overlay:
        if self.store.in_transaction:
            # The disk refused its rollback; its changes would be read as if committed.
            self.store.abandon()
        if self._tree_is_stale:
            self.load()
        return Overlay(self._tree, self.account_count)

    def account_path(self, key20: bytes) -> AccountPath:
        """The path to an account in the state tree after the tip."""
        # It may reload the tip.
        self._overlay()
        row, siblings = self._tree.path(key20)
        return AccountPath(self.tip, None if row is None else (row[0], Account(*row[1:])), siblings)

    # Connecting

    def connect(self, batch: Sequence[CheckedBlock]) -> ConnectResult:
        """Store the blocks of ``batch`` in order and execute those that win, all in one database transaction.

        An invalid block gets its outcome, and the others stand. Any other exception, a full disk for instance, leaves
        everything as it was. Raises ReorganisationBelowPruneHeight, which ends the node.
        """
        self._batch = {block.point.hash: block for block in batch}
        self._invalid = {}
        # First: it may reload the tip.
        state = self._overlay()
        self._tree.split_some()
        self._pending = PendingChange(self.head, state)
        change: ChainChange | None = None
        with self.store.commit():
            outcomes = [self._connect_block(block) for block in batch]
            pending = self._pending
            if pending.undone or pending.applied:
                self.store.write_accounts(pending.state.changed)
                # A block that was stored before this batch lost against an earlier tip, and still does.
                newest = self._batch[pending.tip.hash].block
                undone = self._undone_blocks()
                last, prune_height = self._save_disconnected(undone), self._delete_old_blocks()
                change = pending.as_change(newest, undone, last_disconnected=last, prune_height=prune_height)
            trim_from, work = 0 if pending.undone else self._trim_from, pending.tip.work
            if trim_from is not None and trim_from <= work:
                trim_from = self.store.side_blocks.trim(limit=MAX_SIDE_BYTES, spare=work, at_most=_TRIMMED_AT_ONCE)
        self._trim_from = trim_from
        if change is not None:
            self._set_tip(pending)
        # Both may be large.
        self._batch, self._pending = {}, PendingChange(self.head, Overlay(self._tree, self.account_count))
        return ConnectResult(outcomes, self._invalid, change)

    def adopt(self, staging: SnapshotStaging) -> ChainChange | None:
        """Make headers and state in ``staging`` the chain here, in one commit (docs/peers.md "Snapshots").

        None, and nothing but ``staging`` is changed, if the chain here is as good already, or has been pruned. Raises,
        and forgets what is staged, StagingDamaged if it is not whole, or its accounts do not give the state root of
        their block, and Corrupt if a header is of a producer that the network's lists do not allow.
        """
        with staging.discarding_damage():
            return self._adopt(staging)

    def _adopt(self, staging: SnapshotStaging) -> ChainChange | None:
        progress = staging.progress()
        if progress is None or progress.missing:
            raise StagingDamaged("the snapshot to start from is not whole")
        height = progress.manifest.height
        head, header = staging.head(height), staging.header(height)
        try:
            # An earlier run, which checked the headers, may have had other lists of producers.
            check_stored_producers(staging, self.params, height)
        except Corrupt:
            staging.clear()
            raise
        # First: it may reload the tip.
        state = self._overlay()
        if not prefers(head.point, self.tip) or self.store.prune_height():
            staging.clear()
            return None
        tree, count = StateTree(self.store.account_rows), progress.manifest.accounts
        tree.load(staging.every_account(), count)
        if tree.root != header.state_root:
            raise StagingDamaged(f"the accounts of the snapshot do not give the state root of block {height}")
        self._pending = pending = PendingChange(self.head, state)
        with self.store.commit():
            while pending.tip.height:
                self._disconnect_tip()
            undone = self._undone_blocks()
            last = self._save_disconnected(undone)
            staging.become_chain(height, accounts=count)
            self.store.set_prune_height(height + 1)
        self.head, self._tree, self.account_count, self.saved_height = head, tree, count, -1
        self._trim_from, self._tree_is_stale = 0, False
        self._pending = PendingChange(head, Overlay(tree, count))
        return ChainChange(head.point, undone, (), None, newest=None, last_disconnected=last, prune_height=height + 1)

    def _set_tip(self, change: PendingChange) -> None:
        """Go on from a committed change; a failure here must not keep listeners from hearing of the commit."""
        self.head, self.account_count, self._tree_is_stale = change.head, change.state.count, True
        try:
            self._tree = change.tree or self._tree
            self._tree.take(change.state)
        except MemoryError:
            self._log.failure("out of memory: the state tree is rebuilt with the next block")
        else:
            self._tree_is_stale = False

    def _delete_old_blocks(self) -> int:
        """Delete two old blocks for each block that this transaction has connected; gives the prune height."""
        if self.kept_from is not None:
            applied = self._pending.applied
            # The webhooks have not heard of the connected blocks, and the evaluated height may be that of undone ones.
            below = min(self.kept_from(self._pending.tip.height), applied[0].point.height)
            if self.store.delete_old_blocks(below=below, at_most=_DELETED_FOR_EACH * len(applied)):
                self._trim_from = 0
        return self.store.prune_height()

    def _undone_blocks(self) -> tuple[UndoneBlock, ...]:
        """The blocks that this transaction has undone, with the transfers that no new block includes."""
        pending = self._pending
        if not pending.undone:
            return ()
        listed = listed_txids(pending.applied)
        stored = partial(self.store.has_transaction, params=self.params)
        is_included = stored if listed is None else listed.__contains__
        return tuple(
            [
                UndoneBlock(block.point, tuple([each for each in block.transfers if not is_included(each.txid)]))
                for block in pending.undone
            ]
        )

    def _save_disconnected(self, undone: Sequence[UndoneBlock]) -> int:
        """Save the disconnected transfers for the mempool, which a crash must not lose; gives the last row, 0 if none.

        In the order of the chain.
        """
        disconnected = [each for block in reversed(undone) for each in block.disconnected]
        return self.store.save_disconnected(disconnected) if disconnected else 0

    def _connect_block(self, candidate: CheckedBlock) -> BlockStatus | RuleViolation | NotYet:
        header, point = candidate.block.header, candidate.point
        if self.store.point(point.hash) is not None:
            return BlockStatus.KNOWN
        if header.parent_hash in self._invalid:
            self._invalid[point.hash] = invalid_ancestor(header.parent_hash, StateViolation)
            return self._invalid[point.hash]
        if header.parent_hash != self._pending.tip.hash:
            parent = self.store.stored(header.parent_hash)
            if parent is None:
                return NotYet(Wait.ORPHAN, f"the parent {header.parent_hash.hex()} is not known")
            if self._is_below_prune_height(parent, would_win=prefers(point, self._pending.tip)):
                return self._refuse_below_prune_height(parent, max(point.work, candidate.proven_work))
        if not prefers(point, self._pending.tip):
            self.store.add_block(candidate.block, point, side_work=max(point.work, candidate.proven_work))
            self._trim_from = 0
            return BlockStatus.SIDE
        stored = self.store.add_block(candidate.block, point)
        # If this fails no other branch is better: each stored block was compared with the tip when it came.
        self._activate(stored)
        return self._invalid.get(point.hash, BlockStatus.CONNECTED)

    def _is_below_prune_height(self, parent: StoredBlock, *, would_win: bool) -> bool:
        """Whether the blocks above the last canonical block up to ``parent`` cannot all be undone.

        Looked up on a side branch, which may be long, only for a block that ``would_win``.
        """
        if not self.store.prune_height() or not (would_win or self.store.is_canonical(parent)):
            return False
        return self._fork(parent) + 1 < self.store.prune_height()

    def _refuse_below_prune_height(self, parent: StoredBlock, work: int) -> NotYet:
        """Refuse a block of a chain with so much work that this node cannot follow.

        Raises ReorganisationBelowPruneHeight if that is more than both the chain here and the headers of the start from
        a snapshot have. Until the blocks of those headers are here, it is easy to have more than the tip.
        """
        if work > max(self._pending.tip.work, self.store.proven_work()):
            raise ReorganisationBelowPruneHeight(self._fork(parent), self.store.prune_height())
        return NotYet(Wait.DEEP, "the block is below the blocks that this node has")

    def _fork(self, parent: StoredBlock) -> int:
        """The height of the last canonical block up to ``parent``."""
        return parent.point.height if self.store.is_canonical(parent) else self._branch_to(parent)[0].point.height - 1

    def _activate(self, target: StoredBlock) -> None:
        """Make ``target`` the tip; if a block on its branch is invalid that block is deleted, and the tip stays."""
        at = target
        try:
            if target.parent == self._pending.tip.hash:
                self._connect_tip(target)
                return
            branch, saved = self._branch_to(target), self._pending
            try:
                self._pending = saved.copy()
                with self.store.attempt():
                    while self._pending.tip.hash != branch[0].parent:
                        self._disconnect_tip()
                        self._write_many_accounts()
                    for at in branch:
                        self._connect_tip(at)
                        self._write_many_accounts()
            except RuleViolation:
                self._pending = saved
                raise
        except RuleViolation as violation:
            self._delete_invalid(at, violation)

    def _block_of(self, stored: StoredBlock) -> Block:
        candidate = self._batch.get(stored.point.hash)
        return candidate.block if candidate else self.store.block(stored, self.params)

    def _write_many_accounts(self) -> None:
        """Write the changed accounts within the open savepoint if there are many, so that memory does not hold them."""
        pending = self._pending
        if len(pending.state.changed) > _MAX_PENDING_ACCOUNTS:
            self.store.write_accounts(pending.state.changed)
            pending.tree = pending.tree or self._tree.copy()
            pending.tree.take(pending.state)
            pending.state = Overlay(pending.tree, pending.state.count)

    def _branch_to(self, target: StoredBlock) -> list[StoredBlock]:
        """The blocks from the first that is not canonical up to ``target``."""
        branch = [target]
        while True:
            parent = self.store.stored(branch[-1].parent)
            if parent is None:
                raise Corrupt(f"the parent of the stored block {branch[-1].point.hash.hex()} is missing")
            if self.store.is_canonical(parent):
                return branch[::-1]
            branch.append(parent)

    def _disconnect_tip(self) -> None:
        """Undo the newest canonical block."""
        pending = self._pending
        stored, parent = self.store.existing(pending.tip.height), self.store.existing(pending.tip.height - 1)
        block = self.store.block(stored, self.params)
        self._check_undone(pending.state.undo(self.store.disconnect_block(stored)), parent)
        pending.undo(PendingUndo(stored.point, block.transfers), self.store.head(parent, self.params))
        self.count_step()

    def _check_undone(self, root: bytes, parent: StoredBlock) -> None:
        """Raise Corrupt unless ``root`` is the state root of ``parent``, whose child has been undone."""
        if self.store.block_header(parent, self.params).state_root != root:
            height = parent.point.height
            raise Corrupt(
                f"the undo record of block {height + 1} does not give the state root of block {height}: {DAMAGE_ADVICE}"
            )

    def _connect_tip(self, stored: StoredBlock) -> None:
        """Execute a block on the tip; raises RuleViolation if the state after it is not the one it commits to.

        The header of a block from disk is checked again: an earlier run may have had another list of producers.
        """
        candidate, pending = self._batch.get(stored.point.hash), self._pending
        block = self._block_of(stored)
        head = candidate.head if candidate else check_header(self.params, pending.head, block.header)
        effect = self._execute(block)
        leaf = history_leaf(head.point, work=head.point.work - pending.tip.work)
        history = pending.head.history.completed_by(leaf)
        self.store.connect_block(stored, block.transfers, undo=effect.before, history=history)
        pending.apply(head, block)
        self.count_step()

    def _execute(self, block: Block) -> Effect:
        """Apply a block to the accounts; raises RuleViolation and leaves them as they were."""
        state = self._pending.state
        effect = apply_block(self.params, block, state)
        try:
            check_state_root(block.header, state.apply(effect))
        except RuleViolation:
            state.undo(effect.before)
            raise
        return effect

    def _delete_invalid(self, block: StoredBlock, violation: RuleViolation) -> None:
        """Delete an invalid block, and everything stored that builds on it."""
        self._invalid[block.point.hash] = StateViolation(violation.code, violation.detail)
        for block_hash in self.store.side_blocks.delete_with_descendants(block.id, block.point.hash):
            self._invalid[block_hash] = invalid_ancestor(block.point.hash, StateViolation)


def _damaged_accounts(tip: ChainPoint) -> str:
    return f"the accounts on disk do not give the state root of block {tip.height}: {DAMAGE_ADVICE}"


def invalid_ancestor(parent: bytes, kind: type[RuleViolation]) -> RuleViolation:
    """Why a block on the invalid block ``parent`` is invalid itself; ``kind`` is the kind of its parent's violation."""
    return kind(Refusal.ANCESTOR, f"the block builds on the invalid block {parent.hex()}")


def least_side_work(params: NetworkParams, tip: ChainPoint) -> int:
    """The cumulative work for which a side block is kept: SIDE_DEPTH blocks less than the tip's.

    A side block is not executed, and costs little to make if its branch forks off long ago, where the target was easy.
    """
    target = next_target(params, height=tip.height + 1, clock=tip.difficulty_clock)
    return tip.work - SIDE_DEPTH * block_work(target)
