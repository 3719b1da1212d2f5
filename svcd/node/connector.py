"""Blocks into state: what the writer thread does inside one database transaction (docs/protocol.md 9, 10).

Everything here is synchronous and runs in the one thread that may write. The ledger decides what comes here and tells
the others what came of it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from svcd.chain.accounts import Account
from svcd.chain.block import Block, genesis_header
from svcd.chain.commitment import Commitment
from svcd.chain.errors import Corrupt, NotYet, Refusal, RuleViolation, Wait
from svcd.chain.forkchoice import prefers
from svcd.chain.params import NetworkParams
from svcd.chain.transition import (
    ChainPoint,
    Effect,
    apply_block,
    check_roots,
    consensus_root,
    genesis_accounts,
    genesis_point,
)
from svcd.node.changes import Applied, Candidate, Change, Connected, Progress, Standing, Undone
from svcd.store.chain_store import ChainWriter, StoredBlock

T = TypeVar("T")


class _TakeBackError(Exception):
    """Raised to leave a rehearsal."""


class Connector:
    """The canonical chain as the writer thread holds it: its tip, its accounts on disk, and the tree over them."""

    def __init__(self, params: NetworkParams, store: ChainWriter) -> None:
        self.params = params
        self.store = store
        self._commitment = Commitment(store.account_rows)
        self._progress = Progress(genesis_point(params), 0)
        self._touched: set[bytes] = set()
        self._torn = False
        self._depth = 0
        self.steps = 0
        """Grows with every block that is applied or undone: a long piece of work is seen to move on."""
        self._parsed: dict[bytes, Candidate] = {}
        self._refused: dict[bytes, RuleViolation] = {}

    @property
    def tip(self) -> ChainPoint:
        """The chain variables after the newest canonical block."""
        return self._progress.tip

    def load(self) -> ChainPoint:
        """Take up the chain on disk, or begin one; raises Corrupt if the accounts are not those the tip commits to."""
        # Until the last line: what fails on the way must not leave half a tree that looks whole.
        self._torn = True
        if self.store.tip() is None:
            self._begin()
        genesis, tip = self.store.canonical(0), self.store.tip()
        if genesis is None or tip is None or genesis.point.hash != self.params.genesis_hash:
            raise Corrupt(f"the database does not hold {self.params.chain_id}: use another data directory")
        count = self.store.count_accounts()
        self._progress = Progress(tip, count)
        self._commitment.load(self.store.every_account(), count)
        header = self.store.block_header(self._canonical(tip.height), self.params)
        if header.state_root != self._commitment.root:
            raise Corrupt(
                f"the accounts on disk do not give the state root of block {tip.height}: try `svc db rebuild`, restore "
                "the database from a backup, or move it away and the node fetches the chain again"
            )
        self._torn = False
        return tip

    def _begin(self) -> None:
        accounts, point = genesis_accounts(self.params), genesis_point(self.params)
        with self.store.commit():
            self.store.write_accounts(accounts)
            self._commitment.load(self.store.every_account(), len(accounts))
            roots = {"state_root": self._commitment.root, "consensus_root": consensus_root(self.params, point)}
            header = genesis_header(self.params, **roots)
            self.store.extend(self.store.add_block(Block(header, ()), point), (), undo={})

    def connect(self, batch: Sequence[Candidate]) -> Connected:
        """Store and, where they win, execute the blocks of ``batch`` in order, in one database transaction.

        A block that fails gets its outcome while the others stand. Any other exception, one of the disk for instance,
        leaves everything as it was.
        """
        self._mend()
        self._parsed = {candidate.point.hash: candidate for candidate in batch}
        self._refused = {}
        self._progress = Progress(self.tip, self._progress.accounts)
        self._touched = set()
        with self._restoring(), self.store.commit():
            outcomes = [self._submit(candidate) for candidate in batch]
            returned = self._keep_fallen_out()
        self._parsed = {}
        done = self._progress
        changed = done.undone or done.applied
        undone, applied = tuple(done.undone), tuple(done.applied)
        change = Change(done.tip, undone, applied, done.now, returned=returned) if changed else None
        return Connected(outcomes, self._refused, change)

    def _keep_fallen_out(self) -> int:
        """Keep the transfers of undone blocks in the same commit: a crash must not lose them before they wait again."""
        held = {txid for block in self._progress.applied for txid in block.txids}
        fallen = [t for block in reversed(self._progress.undone) for t in block.transfers if t.txid not in held]
        return self.store.keep_returned([(0, transfer) for transfer in fallen]) if fallen else 0

    def rehearse(self, action: Callable[[], T]) -> T:
        """What ``action`` returns; everything that it did to the chain is taken back."""
        self._mend()
        result: list[T] = []
        try:
            with self._restoring(), self.store.attempt():
                result.append(action())
                raise _TakeBackError
        except _TakeBackError:
            return result[0]

    def root_after(self, effect: Effect) -> bytes:
        """The state root that ``effect`` would lead to."""

        def write() -> bytes:
            self._touched |= effect.after.keys()
            return self._write(effect.after, effect.before)[0]

        return self.rehearse(write)

    def append(self, candidate: Candidate) -> None:
        """Execute a block on the tip, within a rehearsal; raises RuleViolation."""
        self._parsed[candidate.point.hash] = candidate
        self._apply(self.store.add_block(candidate.block, candidate.point))

    def retract_tip(self) -> None:
        """Undo the newest canonical block, within a transaction or a rehearsal."""
        self.steps += 1
        stored = self._canonical(self.tip.height)
        block = self.store.block(stored, self.params)
        before = self.store.retract(stored, block.transfers)
        parent = self._canonical(self.tip.height - 1)
        progress = self._progress
        self._touched |= before.keys()
        self.store.write_accounts(before)
        progress.accounts -= sum(account is None for account in before.values())
        self._commitment.update(before, progress.accounts)
        progress.now.update({key: account or Account() for key, account in before.items()})
        if progress.applied:
            progress.applied.pop()
        else:
            progress.undone.append(Undone(stored.point, block.transfers))
            progress.kept += len(block.transfers)
            progress.let_newest_go()
        progress.tip = parent.point

    @contextmanager
    def _restoring(self) -> Iterator[None]:
        """If the database rolls back what is done inside, the tip and the tree go back with it."""
        saved, touched = self._progress, self._touched
        self._progress, self._touched = saved.copy(), set()
        self._depth += 1
        try:
            yield
        except BaseException:
            self._progress = saved
            # A roll-back that the disk refused leaves rows that are read now and that somebody will yet take back.
            self._torn |= self._depth == 1 and self.store.in_transaction
            self._take_back(self._touched)
            raise
        finally:
            self._depth -= 1
            self._touched |= touched

    def _take_back(self, keys: Collection[bytes]) -> None:
        """Bring the tree to what is on disk after a roll-back."""
        try:
            self._commitment.update(keys, self._progress.accounts)
        except BaseException:
            self._torn = True
            raise

    def _mend(self) -> None:
        """If the disk failed in the middle of a roll-back, begin anew from it; else good blocks would look bad."""
        if not self._depth and self.store.in_transaction:
            self._torn = True
            self.store.abandon()
        if self._torn and not self._depth:
            self.load()

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
        if not prefers(point, self.tip):
            return Standing.SIDE
        # If it fails there is no better one to turn to: every stored block was judged against the tip when it came.
        self._advance_to(stored)
        return self._refused.get(point.hash, Standing.CONNECTED)

    def _advance_to(self, target: StoredBlock) -> None:
        """Make ``target`` the tip; if a block on the way fails, nothing has changed but that it is forgotten."""
        branch = [target]
        if target.parent != self.tip.hash:
            branch = self._branch_to(target)
        at = target
        try:
            if len(branch) == 1 and target.parent == self.tip.hash:
                self._apply(target)
            else:
                with self._restoring(), self.store.attempt():
                    while self.tip.hash != branch[0].parent:
                        self.retract_tip()
                    for at in branch:
                        self._apply(at)
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
        effect = apply_block(self.params, block, self.store)
        self._touched |= effect.after.keys()
        try:
            with self.store.attempt():
                root, accounts = self._write(effect.after, effect.before)
                check_roots(self.params, block.header, point=stored.point, state_root=root)
                self.store.extend(stored, block.transfers, effect.before)
        except BaseException:
            self._take_back(effect.after)
            raise
        self.steps += 1
        progress = self._progress
        progress.accounts, progress.tip = accounts, stored.point
        progress.now.update(effect.after)
        if progress.undone and not progress.applied and progress.undone[-1].point.hash == stored.point.hash:
            progress.kept -= len(progress.undone.pop().transfers)
            progress.let_go = min(progress.let_go, len(progress.undone))
        else:
            progress.applied.append(Applied(stored.point, tuple([transfer.txid for transfer in block.transfers])))

    def _write(self, after: dict[bytes, Account], before: dict[bytes, Account | None]) -> tuple[bytes, int]:
        """Write accounts; gives the state root and the number of accounts after it."""
        self.store.write_accounts(after)
        accounts = self._progress.accounts + sum(account is None for account in before.values())
        return self._commitment.update(after, accounts), accounts

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
