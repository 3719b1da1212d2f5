"""A node on a workbench: the chain on a real disk, with a clock and workers that the test moves."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from attrs import define, field, frozen
from twisted.internet.defer import Deferred, execute
from twisted.internet.task import Clock

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.chain.params import NetworkParams
from svcd.chain.state_root import state_root
from svcd.chain.transaction import Transfer
from svcd.interfaces import Worker
from svcd.node.chain_manager import ChainManager
from svcd.node.chainstate import Chainstate
from svcd.node.changes import BlockOutcome, BlockStatus, ChainChange
from svcd.node.clock_guard import ClockGuard
from svcd.node.database_health import DatabaseHealth
from svcd.node.mempool import Mempool, MempoolEntry, RemovalReason, Removals
from svcd.node.open_chain import LongReads, OpenChain
from svcd.node.snapshots import Snapshots
from svcd.node.threads import InlineWorker
from svcd.node.transaction_pool import TransactionPool
from svcd.node.verifier import Verifier
from svcd.store.chain_store import ChainReader, ChainWriter
from svcd.store.database import open_reader, open_writer
from svcd.store.mempool_journal import FILE, JOURNAL, MempoolJournal, read_journal
from tests.chains import TEST_PARAMS
from tests.store.contents import STATE, Contents, contents
from tests.support import has_result, result_of

P = ParamSpec("P")
T = TypeVar("T")

LATE = 50_000
"""The slot that a bench's clock begins at: no block of a test is early, and no transfer of theirs too old."""


class Stepped:
    """A worker that does a piece of work when the test says so."""

    def __init__(self) -> None:
        self._jobs: list[tuple[Deferred[Any], Callable[[], Any]]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        done: Deferred[T] = Deferred()
        self._jobs.append((done, lambda: function(*args, **kwargs)))
        return done

    def step(self, number: int = 0) -> None:
        """Do one piece of work, the oldest unless said otherwise."""
        done, job = self._jobs.pop(number)
        execute(job).chainDeferred(done)

    def fail(self, error: Exception) -> None:
        """Let the oldest piece of work end with an error instead."""
        done, _ = self._jobs.pop(0)
        done.errback(error)

    def finish(self) -> None:
        """Do all work, that which comes of it included."""
        while self._jobs:
            self.step()


@define
class Witness:
    """A listener that writes down what it is told."""

    changes: list[ChainChange] = field(factory=list)
    pool: list[tuple[list[bytes], list[bytes]]] = field(factory=list)
    """Pairs of txids added and removed."""
    reasons: dict[bytes, RemovalReason] = field(factory=dict)
    """Why each transfer was removed, by txid."""

    def chain_changed(self, change: ChainChange) -> None:
        self.changes.append(change)

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        self.pool.append(([entry.transfer.txid for entry in added], [entry.transfer.txid for entry in removed]))
        self.reasons |= {entry.transfer.txid: reason for entry, reason in removed.items()}


def code_of(outcome: BlockOutcome) -> BlockStatus | Refusal | Wait:
    """What became of a block, in one word."""
    return outcome.code if isinstance(outcome, RuleViolation | NotYet) else outcome


@frozen
class Node:
    """The parts of a node that tests look at."""

    chain: OpenChain
    store: ChainWriter
    verifier: Verifier
    chain_manager: ChainManager
    transaction_pool: TransactionPool
    clock: Clock
    connections: tuple[Any, Any]
    journal: MempoolJournal
    health: DatabaseHealth
    """Of the mempool's journal."""
    witness: Witness = field(factory=Witness)

    @property
    def chainstate(self) -> Chainstate:
        return self.chain.chainstate

    @property
    def mempool(self) -> Mempool:
        return self.transaction_pool.mempool

    def written(self) -> dict[int, Transfer]:
        """The transfers in the journal that have not left, by number."""
        return read_journal(self.journal.path).transfers

    @property
    def tip(self) -> bytes:
        """The hash of the tip."""
        return self.chain_manager.tip.hash

    @property
    def root(self) -> bytes:
        """The state root by the tree in memory."""
        return self.chainstate.view().state.root

    def submit(self, *blocks: Block | bytes) -> list[BlockStatus | Refusal | Wait]:
        """What becomes of the blocks, handed in as one batch."""
        outcomes = result_of(self.chain_manager.submit_blocks([wire_of(block) for block in blocks]))
        return [code_of(outcome) for outcome in outcomes]

    def send(self, transfer: Transfer, *, on_lookup: Callable[[], None] = lambda: None) -> str:
        """What becomes of a transfer of a client that pays for look-ups."""
        reception = self.transaction_pool.submit(transfer, on_lookup=on_lookup)
        self.clock.advance(0)
        try:
            return result_of(reception)
        except RuleViolation as refusal:
            return refusal.code

    def settle(self) -> None:
        """Let all come to its end: transfers that come in, and those of undone blocks."""
        finished = Deferred.fromCoroutine(self.transaction_pool.finished())
        while not has_result(finished):
            self.clock.advance(0)

    def state(self) -> Contents:
        """Every byte that blocks change."""
        return contents(self.connections[0], STATE)

    def holds(self, block: Block) -> bool:
        """Whether the block is stored."""
        return self.store.stored(block.header.hash) is not None

    def accounts(self) -> dict[bytes, Account]:
        """Every account on disk."""
        return {key: Account(balance, nonce, held) for key, balance, nonce, held in self.store.every_account()}

    def check(self) -> None:
        """The chain in memory and on disk is one and the same, and adds up."""
        accounts = self.accounts()
        stored = self.store.stored(self.tip)
        assert stored is not None
        header = self.store.block_header(stored, self.chain.params)
        assert self.store.tip() == self.chainstate.tip == self.chain_manager.tip == stored.point
        assert state_root(accounts.items()) == header.state_root
        assert self.root == header.state_root
        assert sum(account.balance for account in accounts.values()) == stored.point.issued

    def close(self) -> None:
        """Let go of the files, the writer last; nothing else is written."""
        self.chain_manager.stop()
        self.journal.close()
        for connection in reversed(self.connections):
            connection.close()


def wire_of(block: Block | bytes) -> bytes:
    """The canonical JSON of a block, or other bytes as they are."""
    return block if isinstance(block, bytes) else block.wire()


def late_clock(params: NetworkParams = TEST_PARAMS) -> Clock:
    """A clock at which no block of a test is early."""
    clock = Clock()
    clock.advance(params.slot_time(LATE) / 1000)
    return clock


@frozen(kw_only=True)
class Setting:
    """What a node is made of, but for its folder."""

    params: NetworkParams = TEST_PARAMS
    clock: Clock = field(factory=late_clock)
    writer: Worker = field(factory=InlineWorker)
    checker: Worker = field(factory=InlineWorker)
    capacity: int = 1000
    threads: int = 2
    max_transactions: int = 50_000
    max_bytes: int = 2**26
    journal_thread: Worker = field(factory=InlineWorker)
    make_journal: type[MempoolJournal] = MempoolJournal


def open_node(folder: Path, setting: Setting) -> Node:
    """A node that has loaded what is in ``folder``; the waiting transfers are left to the test."""
    path, params, clock = folder / "chain.sqlite", setting.params, setting.clock
    with ExitStack() as opened:
        writing = opened.enter_context(closing(open_writer(path)))
        reading = opened.enter_context(closing(open_reader(path)))
        store, reader = ChainWriter(writing), ChainReader(reading)
        chainstate = Chainstate(params, store)
        chainstate.load()
        journal = opened.enter_context(closing(setting.make_journal(folder / FILE, params)))
        journal.load()
        opened.pop_all()
    mempool = Mempool(params, max_transactions=setting.max_transactions, max_bytes=setting.max_bytes)
    verifier = Verifier(
        params, setting.checker, threads=setting.threads, capacity=setting.capacity, known=mempool.transfer
    )
    chain = OpenChain(params, reader, LongReads(setting.checker, reading, lambda _: None), chainstate, setting.writer)
    chain_manager = ChainManager(chain, verifier, clock)
    health = DatabaseHealth(lambda: None, JOURNAL)
    worker = setting.journal_thread
    pool = TransactionPool(
        chain,
        mempool,
        journal=journal,
        health=health,
        worker=worker,
        verifier=verifier,
        guard=ClockGuard(clock),
    )
    chain_manager.subscribe(pool)
    chain_manager.list_changes_for(pool.waiting)
    node = Node(chain, store, verifier, chain_manager, pool, clock, (writing, reading), journal, health)
    chain_manager.subscribe(node.witness)
    pool.subscribe(node.witness)
    return node


def snapshots_beside(database: Path, chain_manager: ChainManager, **changes: Any) -> Snapshots:
    """The snapshots of a node on a bench, which are made in the caller's thread and without a pause."""
    parts = {"files": InlineWorker(), "reader": InlineWorker(), "may_make": lambda: True}
    clock = {"seconds": lambda: 0.0, "sleep": lambda _: None}
    return Snapshots(chain_manager, database, **{**parts, **clock, **changes})


@contextmanager
def running(folder: Path, setting: Setting | None = None) -> Iterator[Node]:
    """A node for as long as the block lasts."""
    node = open_node(folder, setting or Setting())
    try:
        yield node
    finally:
        node.close()
