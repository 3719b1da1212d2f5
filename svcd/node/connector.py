"""Blocks into state: what the writer thread does inside one database transaction (docs/protocol.md 9, 10).

Everything here is synchronous and runs in the one thread that may write. The ledger decides what comes here and tells
the others what came of it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from attrs import define
from twisted.logger import Logger

from svcd.chain.block import Block, genesis_header
from svcd.chain.commitment import Commitment, Overlay
from svcd.chain.errors import Corrupt, NotYet, Refusal, RuleViolation, Wait
from svcd.chain.forkchoice import prefers
from svcd.chain.params import NetworkParams
from svcd.chain.transition import (
    ChainPoint,
    apply_block,
    check_roots,
    consensus_root,
    genesis_accounts,
    genesis_point,
)
from svcd.node.changes import Applied, Candidate, Change, Connected, Progress, Standing, Undone
from svcd.store.chain_store import ChainWriter, StoredBlock


@define
class ChainView:
    """A chain that is not written: what is done with it, such as a block laid over it, changes nothing else."""

    params: NetworkParams
    tip: ChainPoint
    state: Overlay
    """The accounts after the tip."""
    below: ChainPoint
    """The tip on disk that it was made of."""
    reading: Callable[[], AbstractContextManager[None]]
    """Inside, many accounts are read in less time than one by one."""


class Connector:
    """The canonical chain as the writer thread holds it: its tip, its accounts on disk, and the tree over them."""

    _log = Logger()

    def __init__(self, params: NetworkParams, store: ChainWriter) -> None:
        self.params = params
        self.store = store
        self.tip = genesis_point(params)
        """The chain variables after the newest canonical block."""
        self._tree = Commitment(store.account_rows)
        self._accounts = 0
        """How many exist."""
        self._behind = False
        """Whether the tree lacks what has been committed."""
        self._progress = Progress(self.tip, Overlay(self._tree, 0))
        self.steps = 0
        """Grows with every block that is applied or undone: a long piece of work is seen to move on."""
        self._parsed: dict[bytes, Candidate] = {}
        self._refused: dict[bytes, RuleViolation] = {}

    def load(self) -> ChainPoint:
        """Take up the chain on disk, or begin one; raises Corrupt if the accounts are not those the tip commits to."""
        if self.store.tip() is None:
            self._begin()
        genesis, tip = self.store.canonical(0), self.store.tip()
        if genesis is None or tip is None or genesis.point.hash != self.params.genesis_hash:
            raise Corrupt(f"the database does not hold {self.params.chain_id}: use another data directory")
        self._accounts = self.store.count_accounts()
        self._tree.load(self.store.every_account(), self._accounts)
        header = self.store.block_header(self._canonical(tip.height), self.params)
        if header.state_root != self._tree.root:
            raise Corrupt(
                f"the accounts on disk do not give the state root of block {tip.height}: try `svc db rebuild`, restore "
                "the database from a backup, or move it away and the node fetches the chain again"
            )
        self.tip, self._behind = tip, False
        return tip

    def _begin(self) -> None:
        accounts, point = genesis_accounts(self.params), genesis_point(self.params)
        with self.store.commit():
            self.store.write_accounts(accounts)
            self._tree.load(self.store.every_account(), len(accounts))
            roots = {"state_root": self._tree.root, "consensus_root": consensus_root(self.params, point)}
            header = genesis_header(self.params, **roots)
            self.store.extend(self.store.add_block(Block(header, ()), point), (), undo={})

    def view(self, *, without: int = 0) -> ChainView:
        """The canonical chain, or what it would be without its newest blocks."""
        # First, for it may find that the tip is another one.
        state = self._overlay()
        view = ChainView(self.params, self.tip, state, self.tip, self._reading)
        for height in range(self.tip.height, self.tip.height - without, -1):
            view.state.undo(self.store.undo(self._canonical(height)))
            view.tip = self._canonical(height - 1).point
        return view

    def is_true(self, view: ChainView) -> bool:
        """Whether what ``view`` was made of is still the canonical chain; else it shows what never was."""
        return view.below == self.tip

    def _reading(self) -> AbstractContextManager[None]:
        self._abandon()
        return self.store.snapshot()

    def _abandon(self) -> None:
        """End what a roll-back left open that the disk did not allow: it would be read as if it were committed."""
        if self.store.in_transaction:
            self.store.abandon()

    def _overlay(self) -> Overlay:
        self._abandon()
        if self._behind:
            self.load()
        return Overlay(self._tree, self._accounts)

    def connect(self, batch: Sequence[Candidate]) -> Connected:
        """Store and, where they win, execute the blocks of ``batch`` in order, in one database transaction.

        A block that fails gets its outcome while the others stand. Any other exception, one of the disk for instance,
        leaves everything as it was.
        """
        self._parsed = {candidate.point.hash: candidate for candidate in batch}
        self._refused = {}
        # First, for it may find that the tip is another one.
        state = self._overlay()
        self._progress = Progress(self.tip, state)
        change: Change | None = None
        with self.store.commit():
            outcomes = [self._submit(candidate) for candidate in batch]
            progress = self._progress
            if progress.moved:
                self.store.write_accounts(progress.state.changed)
                # Blocks that were stored before have lost against an earlier tip.
                newest = self._parsed[progress.tip.hash].block
                change = progress.change(newest, returned=self._keep_fallen_out())
        if change is not None:
            self._follow(change.tip, progress.state)
        # They may be large.
        self._parsed, self._progress = {}, Progress(self.tip, Overlay(self._tree, self._accounts))
        return Connected(outcomes, self._refused, change)

    def _follow(self, tip: ChainPoint, state: Overlay) -> None:
        """Go on from ``tip``, whose ``state`` is on disk by now: whatever fails here must not keep that from others."""
        self.tip, self._accounts, self._behind = tip, state.count, True
        try:
            self._tree.take(state)
        except MemoryError:
            self._log.failure("memory is short: the tree over the accounts is built anew with the next block")
        else:
            self._behind = False

    def _keep_fallen_out(self) -> int:
        """Keep the transfers of undone blocks in the same commit: a crash must not lose them before they wait again."""
        held = {txid for block in self._progress.applied for txid in block.txids}
        fallen = [t for block in reversed(self._progress.undone) for t in block.transfers if t.txid not in held]
        return self.store.keep_returned([(0, transfer) for transfer in fallen]) if fallen else 0

    def _retract_tip(self) -> None:
        """Undo the newest canonical block."""
        self.steps += 1
        progress = self._progress
        stored = self._canonical(progress.tip.height)
        block = self.store.block(stored, self.params)
        parent = self._canonical(progress.tip.height - 1)
        progress.state.undo(self.store.retract(stored, block.transfers))
        if progress.applied:
            progress.applied.pop()
        else:
            progress.undone.append(Undone(stored.point, block.transfers))
            progress.kept += len(block.transfers)
            progress.let_newest_go()
        progress.tip = parent.point

    def _submit(self, candidate: Candidate) -> Standing | RuleViolation | NotYet:
        header, point = candidate.block.header, candidate.point
        if self.store.point(point.hash) is not None:
            return Standing.KNOWN
        if header.parent_hash in self._refused:
            self._refused[point.hash] = descendant(header.parent_hash)
            return self._refused[point.hash]
        if self.store.point(header.parent_hash) is None:
            return NotYet(Wait.ORPHAN, f"the parent {header.parent_hash.hex()} is not known")
        stored = self.store.add_block(candidate.block, point)
        if not prefers(point, self._progress.tip):
            return Standing.SIDE
        # If it fails there is no better one to turn to: every stored block was judged against the tip when it came.
        self._advance_to(stored)
        return self._refused.get(point.hash, Standing.CONNECTED)

    def _advance_to(self, target: StoredBlock) -> None:
        """Make ``target`` the tip; if a block on the way fails, nothing has changed but that it is forgotten."""
        at = target
        try:
            if target.parent == self._progress.tip.hash:
                self._apply(target)
                return
            branch, saved = self._branch_to(target), self._progress
            try:
                self._progress = saved.copy()
                with self.store.attempt():
                    while self._progress.tip.hash != branch[0].parent:
                        self._retract_tip()
                    for at in branch:
                        self._apply(at)
            except RuleViolation:
                self._progress = saved
                raise
        except RuleViolation as violation:
            self._forget(at, violation)

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

    def _apply(self, stored: StoredBlock) -> None:
        candidate = self._parsed.get(stored.point.hash)
        block = candidate.block if candidate else self.store.block(stored, self.params)
        progress = self._progress
        effect = apply_block(self.params, block, progress.state)
        try:
            check_roots(self.params, block.header, point=stored.point, state_root=progress.state.apply(effect))
        except RuleViolation:
            progress.state.undo(effect.before)
            raise
        self.store.extend(stored, block.transfers, effect.before)
        self.steps += 1
        progress.tip = stored.point
        if progress.undone and not progress.applied and progress.undone[-1].point.hash == stored.point.hash:
            progress.kept -= len(progress.undone.pop().transfers)
            progress.let_go = min(progress.let_go, len(progress.undone))
        else:
            progress.applied.append(Applied(stored.point, tuple([transfer.txid for transfer in block.transfers])))

    def _forget(self, failed: StoredBlock, violation: RuleViolation) -> None:
        """Delete a stored block that broke a rule, and everything stored that builds on it."""
        self._refused[failed.point.hash] = violation
        for block_hash in self.store.delete_with_descendants(failed):
            self._refused[block_hash] = descendant(failed.point.hash)

    def _canonical(self, height: int) -> StoredBlock:
        stored = self.store.canonical(height)
        if stored is None:
            raise Corrupt(f"the canonical block at height {height} is missing")
        return stored


def descendant(parent: bytes) -> RuleViolation:
    """Why a block on the invalid block ``parent`` is invalid itself."""
    return RuleViolation(Refusal.ANCESTOR, f"the block builds on the invalid block {parent.hex()}")
