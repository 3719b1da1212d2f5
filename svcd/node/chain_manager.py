"""The one entrance for blocks: every block, from any source, is checked and connected here.

A batch goes through two stages, in the order of docs/protocol.md 10: its blocks are checked, in the verifier's threads,
and then connected, in the writer's thread, in one commit. Listeners are notified after the commit.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Final, Protocol, TypeVar

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from svcd.bounded_dict import BoundedDict
from svcd.chain.block import Block, Header, parse_block, parse_posted_block
from svcd.chain.errors import Corrupt, NotYet, Refusal, RuleViolation, Wait
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.transition import ChainHead, ChainPoint, check_header
from svcd.interfaces import Clock, Timer, milliseconds
from svcd.limits import FUTURE_BLOCKS, SIDE_BLOCKS, limit
from svcd.node.chainstate import invalid_ancestor, least_side_work
from svcd.node.changes import BlockOutcome, BlockStage, BlockStatus, ChainChange, CheckedBlock, HeaderCheck
from svcd.node.open_chain import OpenChain
from svcd.node.pinned_block import ChainPin, PinnedBlock
from svcd.node.tasks import TaskGroup
from svcd.node.verifier import REMEMBERED_HEADERS, Parser, Verdict, Verifier
from svcd.store.chain_store import ChainReader
from svcd.store.snapshot_staging import SnapshotStaging

REMEMBERED_INVALID: Final = limit(
    4_096, "invalid blocks that are remembered", "blocks", "Filling the memory of invalid blocks"
)
MAX_WANTED: Final = limit(REMEMBERED_HEADERS, "blocks that are kept because of their headers", "blocks", SIDE_BLOCKS)
_REMEMBERED_READS: Final = 256
MAX_FUTURE_BLOCKS: Final = limit(64, "early blocks that are held", "blocks", FUTURE_BLOCKS)
MAX_SLOTS_AHEAD: Final = limit(60, "how early a block may be", "slots", FUTURE_BLOCKS)

T = TypeVar("T")
OnStage = Callable[[BlockStage], object]
"""Called when a batch enters a stage."""


class ChainListener(Protocol):
    """A listener to changes of the canonical chain."""

    def chain_changed(self, change: ChainChange) -> None:
        """Called in the reactor's thread after each commit that changed the chain, in order."""


@define(eq=False)
class _Batch:
    """Blocks submitted together; the dictionaries have their indexes as keys."""

    proven_work: int = 0
    """The cumulative work that headers have shown for the chain of these blocks."""
    source: str = ""
    """See :attr:`svcd.node.changes.ChainChange.source`."""
    blocks: list[Block | None] = field(factory=list)
    """None for a text that is no block."""
    placed: dict[int, CheckedBlock] = field(factory=dict)
    """Blocks whose parents are known."""
    duplicates: dict[int, Header] = field(factory=dict)
    """The headers of blocks that are being processed already."""
    outcomes: dict[int, BlockOutcome] = field(factory=dict)
    after: "set[_Batch]" = field(factory=set)
    """Earlier batches with parents or duplicates of these blocks; there are no cycles."""
    done: Deferred[None] = field(factory=Deferred)
    """Fires when the batch has its outcomes."""

    def valid(self) -> list[tuple[int, CheckedBlock]]:
        """The placed blocks that have passed all checks so far."""
        return [(index, placed) for index, placed in self.placed.items() if index not in self.outcomes]


class ChainManager:
    """Accepts blocks, and notifies its listeners of changes of the chain."""

    log = Logger()

    def __init__(
        self, chain: OpenChain, verifier: Verifier, clock: Clock, *, expect: PinnedBlock | None = None
    ) -> None:
        """No chain is followed that does not have the block ``expect``, if there is one."""
        self.params = chain.params
        self.pin = ChainPin(expect, clock)
        self.reader, self.long_reads = chain.reader, chain.long_reads
        head = chain.chainstate.head
        self.tip = head.point
        self.prune_height, self.proven_work = chain.reader.prune_height(), chain.reader.proven_work()
        """As the methods of :class:`svcd.store.chain_store.ChainReader`, without a query; for the reactor's thread."""
        self._chain, self._verifier, self._clock = chain, verifier, clock
        self._listeners: list[ChainListener] = []
        self._waiting: Callable[[], Collection[Transfer]] = tuple
        self._parse_lock = DeferredLock()
        self._connect_lock = DeferredLock()
        """Held from before a commit until the listeners have heard of it: the disk may be ahead of ``tip``."""
        self._tasks = TaskGroup()
        self._stopping = False
        self._reads = ExitStack()
        """Holds the transaction that the reads of this turn of the reactor share, if there is one."""
        self._pending: dict[bytes, tuple[_Batch, ChainHead]] = {}
        """The blocks in process by hash: their children can be checked meanwhile, and are connected after them."""
        self._ended: deque[_Batch] = deque()
        """Batches that are done and whose Deferreds have still to fire."""
        self._invalid: BoundedDict[bytes, type[RuleViolation]] = BoundedDict(REMEMBERED_INVALID)
        """By hash the blocks that were found invalid, and the kind of the violation."""
        self._heads: BoundedDict[bytes, ChainHead] = BoundedDict(REMEMBERED_HEADERS)
        """By hash the blocks whose headers have been checked, stored or not; others are read from the disk."""
        self._heads[head.point.hash] = head
        self._read_heads: BoundedDict[bytes, ChainHead] = BoundedDict(_REMEMBERED_READS)
        """By hash blocks that were read from the disk. Who asks for them must not push checked headers out."""
        self._wanted: BoundedDict[bytes, int] = BoundedDict(MAX_WANTED)
        """Blocks that are kept however deep they are, and the work that headers have shown for their chain."""
        self._future = FutureBlocks(clock, chain.params, self._resubmit)

    def subscribe(self, listener: ChainListener) -> None:
        """Notify ``listener`` of every later change, after the listeners that subscribed before."""
        self._listeners.append(listener)

    def list_changes_for(self, waiting: Callable[[], Collection[Transfer]]) -> None:
        """List what became of the transfers that ``waiting`` returns, in a change too large to list everything."""
        self._waiting = waiting

    def read(self, query: Callable[[ChainReader], T]) -> tuple[T, ChainPoint]:
        """The result of a short ``query`` and the tip of the commit that it read; for the reactor's thread."""
        if self._connect_lock.locked:
            with self.reader.snapshot():
                return query(self.reader), self.reader.existing_tip()
        if not self.reader.in_transaction:
            # SQLite takes a third of the time of a short query to begin and end its transaction, which the other reads
            # of this turn of the reactor save.
            self._reads.enter_context(self.reader.snapshot())
            self._clock.callLater(0, self.end_shared_commit)
        return query(self.reader), self.tip

    def end_shared_commit(self) -> None:
        """Let later reads see later commits; called before the writer gets something to commit, and at the end."""
        self._reads.close()

    @property
    def busy(self) -> bool:
        """Whether blocks are being processed."""
        return self._tasks.busy

    def stop(self) -> Deferred[None]:
        """Refuse further blocks and drop those held for their slot; fires when all batches are done."""
        self._stopping = True
        self._future.clear()
        return self._tasks.drained()

    def submit_blocks(
        self,
        batch: Sequence[bytes | Block],
        on_stage: OnStage | None = None,
        *,
        proven_work: int = 0,
        source: str = "",
    ) -> Deferred[list[BlockOutcome]]:
        """The outcomes of blocks, canonical JSON or parsed, parents before children; fires after the commit.

        ``proven_work`` is the cumulative work that verified headers have shown for the chain of these blocks. Without
        it, blocks far below the tip are not kept (:meth:`keeps`). Cancelling the Deferred does not stop the work: the
        sender may disconnect, the chain goes on. ``source`` is that of the change (svcd.node.changes.ChainChange).
        """
        return self._tasks.start(self._submit(_Batch(proven_work, source), batch, parse_block, on_stage or _ignore))

    def adopt_snapshot(self, staging: SnapshotStaging) -> Deferred[bool]:
        """Make a whole snapshot the chain here; whether it was, as :meth:`svcd.node.chainstate.Chainstate.adopt` says.

        Fires after the commit, with all listeners told. Fails with StagingDamaged or Corrupt.
        """
        return self._tasks.start(self._adopt(staging))

    async def _adopt(self, staging: SnapshotStaging) -> bool:
        async with self._connect_lock:
            self.end_shared_commit()
            change = await self._chain.writer.run(self._chain.chainstate.adopt, staging)
            if change is not None:
                # Nothing else changes it.
                self.proven_work = self.reader.proven_work()
                await self._publish(change)
        return change is not None

    def keeps(self, work: int) -> bool:
        """Whether a side block is kept for so much cumulative work, its own or that of the chain it belongs to.

        See :func:`svcd.node.chainstate.least_side_work`.
        """
        return work >= least_side_work(self.params, self.tip)

    def want(self, hashes: Iterable[bytes], work: int) -> None:
        """Keep these blocks when they are posted: verified headers have shown that their chain has so much work."""
        for block_hash in hashes:
            self._wanted[block_hash] = work

    async def submit_posted(self, body: bytes, source: str = "") -> tuple[BlockOutcome, bytes]:
        """The outcome of the block in the body of a POST of ``source``, any JSON of it, and the block's hash.

        The hash is b"" if the body is no block. The genesis is always known; its hash is the network's.
        """
        batch = _Batch(source=source)
        (outcome,) = await self._tasks.start(self._submit(batch, [body], parse_posted_block, _ignore))
        block = next(iter(batch.blocks), None)
        if block is not None and self._is_genesis(block):
            return outcome, self.params.genesis_hash
        return outcome, block.header.hash if block else b""

    async def submit_block(self, data: bytes | Block, *, source: str = "") -> BlockStatus:
        """The status of one block; raises RuleViolation or NotYet."""
        (outcome,) = await self.submit_blocks([data], source=source)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def head(self, block_hash: bytes) -> ChainHead | None:
        """A stored block, canonical or not, as the block to build on."""
        if self.reader.point(block_hash) is None:
            return None
        head = self._known_head(block_hash)
        if head is None:
            # In a thread: the headers of a branch may have to be read. Not as a long read, behind those of clients.
            head = await self._chain.writer.run(self._read_head, block_hash)
            if head is not None:
                self._read_heads[block_hash] = head
        return head

    def _known_head(self, block_hash: bytes) -> ChainHead | None:
        return self._heads.get(block_hash) or self._read_heads.get(block_hash)

    def _read_head(self, block_hash: bytes) -> ChainHead | None:
        store = self._chain.chainstate.store
        stored = store.stored(block_hash)
        return None if stored is None else store.head(stored, self.params, self._known_head)

    def checked_head(self, block_hash: bytes) -> ChainHead | None:
        """A block whose header has been checked lately, stored or not, as the block to build on."""
        return self._heads.get(block_hash)

    async def check_headers(self, parent: ChainHead, headers: Sequence[Header]) -> HeaderCheck:
        """Check ``headers``, each the child of the one before and the first the child of ``parent``.

        Checks all that headers show: place, time, target, consensus root, the producer's signature and participation
        work (docs/protocol.md 10). The state is not checked: the block of a valid header may still be invalid.
        """
        heads, failure = await self._verifier.run(self._link_headers, parent, headers)
        for index, head in enumerate(heads):
            if head.point.hash in self._invalid:
                heads, failure = heads[:index], self._known_invalid(head.point.hash)
                break
        verdicts = await self._verifier.check_headers(headers[: len(heads)])
        bad = next((index for index, verdict in enumerate(verdicts) if verdict is not None), None)
        if bad is not None:
            heads, failure = heads[:bad], verdicts[bad]
        for head in heads:
            self._heads[head.point.hash] = head
        return HeaderCheck(heads, failure)

    def _link_headers(
        self, parent: ChainHead, headers: Sequence[Header]
    ) -> tuple[list[ChainHead], RuleViolation | NotYet | None]:
        """Each header as the block to build on, up to the first one that is in a wrong place."""
        params = self.params
        heads: list[ChainHead] = []
        latest = params.slot_at(milliseconds(self._clock)) + params.drift_slots
        for header in headers:
            try:
                parent = check_header(params, parent, header)
            except RuleViolation as violation:
                return heads, violation
            if header.slot > latest:
                return heads, NotYet(Wait.EARLY, f"slot {header.slot} lies in the future")
            if (refusal := self.pin.refusal(parent.point)) is not None:
                return heads, refusal
            heads.append(parent)
        return heads, None

    def _resubmit(self, data: bytes, source: str) -> None:
        self.submit_blocks([data], source=source).addErrback(
            lambda failure: self.log.failure("a held block failed", failure)
        )

    async def _submit(
        self, batch: _Batch, data: Sequence[bytes | Block], parser: Parser, on_stage: OnStage
    ) -> list[BlockOutcome]:
        if self._stopping:
            return [_stopping() for _ in data]
        try:
            on_stage(BlockStage.PARSE)
            # Batches are parsed in the order of their arrival: children must not overtake their parents.
            await self._parse_lock.run(self._parse, batch, data, parser)
            on_stage(BlockStage.VERIFY)
            await self._verify(batch)
            on_stage(BlockStage.CONNECT)
            await self._connect(batch)
            return [batch.outcomes[index] for index in range(len(data))]
        finally:
            for placed in batch.placed.values():
                del self._pending[placed.point.hash]
            # Otherwise each batch would keep all earlier ones in memory.
            batch.after.clear()
            self._end(batch)

    def _end(self, batch: _Batch) -> None:
        """Release the batches that wait for ``batch``; in a loop, because recursion could exceed the stack."""
        self._ended.append(batch)
        if len(self._ended) == 1:
            while self._ended:
                self._ended[0].done.callback(None)
                self._ended.popleft()

    # Checking

    async def _parse(self, batch: _Batch, data: Sequence[bytes | Block], parser: Parser) -> None:
        """Make the checks that need nothing but the block and its parent, on the chain or in process."""
        for index, (block, verdict) in enumerate(await self._verifier.parse_and_check(data, parser)):
            batch.blocks.append(block)
            outcome = verdict if block is None else await self._link(batch, index, block, verdict)
            if outcome is not None:
                batch.outcomes[index] = outcome

    async def _link(self, batch: _Batch, index: int, block: Block, verdict: Verdict) -> BlockOutcome | None:
        """Put a block behind its parent, so that its children can follow; gives its outcome if it has one already."""
        header = block.header
        if header.hash in self._pending:
            batch.duplicates[index] = header
            batch.after.add(self._pending[header.hash][0])
            return None
        outcome = self._known(block) or verdict
        if outcome is not None:
            return outcome
        try:
            parent = await self._parent(batch, header.parent_hash)
            # The hash covers all that is checked here.
            head = self._heads.get(header.hash) or check_header(self.params, parent, header)
        except RuleViolation as violation:
            self._remember_invalid(header.hash, violation)
            return violation
        except NotYet as reason:
            return reason
        if (refusal := self.pin.refusal(head.point)) is not None:
            return refusal
        if (too_far := self._future.too_far(header.slot)) is not None:
            return too_far
        proven_work = max(batch.proven_work, self._wanted.get(header.hash, 0))
        if not self.keeps(max(head.point.work, proven_work)):
            return NotYet(Wait.DEEP, "the block is too far below the tip: show by headers that its chain has more work")
        self._heads[header.hash] = head
        batch.placed[index] = CheckedBlock(block, head, proven_work)
        self._pending[header.hash] = batch, head
        return None

    def _known(self, block: Block) -> BlockOutcome | None:
        block_hash = block.header.hash
        if self._is_genesis(block):
            return BlockStatus.KNOWN
        known = BlockStatus.KNOWN if self.reader.point(block_hash) is not None else None
        return self._known_invalid(block_hash) or known

    def _is_genesis(self, block: Block) -> bool:
        """Whether it is the block at height 0 as ``/p2p/blocks`` sends it, whose hash is not the network's."""
        return block.header.height == 0 and block.header.hash == self._computed_genesis_hash

    @cached_property
    def _computed_genesis_hash(self) -> bytes:
        """The hash that the header of the genesis would have by the rule for all other blocks."""
        stored = self.reader.stored(self.params.genesis_hash)
        if stored is None:
            raise Corrupt(f"the genesis of {self.params.chain_id} is not on disk")
        return self.reader.block_header(stored, self.params).hash

    def _known_invalid(self, block_hash: bytes) -> RuleViolation | None:
        kind = self._invalid.get(block_hash)
        if kind is None:
            return None
        self._invalid.move_to_end(block_hash)
        return kind(Refusal.KNOWN_INVALID, f"block {block_hash.hex()} was found invalid before")

    def _remember_invalid(self, block_hash: bytes, violation: RuleViolation) -> None:
        self._invalid[block_hash] = type(violation)

    async def _parent(self, batch: _Batch, parent_hash: bytes) -> ChainHead:
        if parent_hash in self._invalid:
            raise invalid_ancestor(parent_hash, self._invalid[parent_hash])
        if parent_hash in self._pending:
            other, head = self._pending[parent_hash]
            batch.after.add(other)
            return head
        parent = await self.head(parent_hash)
        if parent is None:
            raise NotYet(Wait.ORPHAN, f"the parent {parent_hash.hex()} is not known")
        return parent

    async def _verify(self, batch: _Batch) -> None:
        """Check participation work, the signatures of transfers, and the time."""
        for index, placed in batch.valid():
            # Whoever sends a held block again must not have its work computed again.
            if (held := self._future.held(placed.block.header)) is not None:
                batch.outcomes[index] = held
        valid = batch.valid()
        try:
            verdicts = await self._verifier.check_work_and_signatures([placed.block for _, placed in valid])
        except NotYet as busy:
            for index in range(len(batch.blocks)):
                batch.outcomes.setdefault(index, busy)
            return
        for (index, placed), verdict in zip(valid, verdicts, strict=True):
            if verdict is not None:
                self._remember_invalid(placed.point.hash, verdict)
            # A block is held only once its work has been checked, because few are held.
            outcome = verdict or (
                _stopping() if self._stopping else self._future.hold_if_future(placed.block, batch.source)
            )
            if outcome is not None:
                batch.outcomes[index] = outcome

    # Connecting

    async def _connect(self, batch: _Batch) -> None:
        if len(batch.outcomes) < len(batch.blocks):
            for other in batch.after - {batch}:
                await other.done
        for index, placed in batch.valid():
            parent = placed.block.header.parent_hash
            if parent in self._invalid:
                violation = batch.outcomes[index] = invalid_ancestor(parent, self._invalid[parent])
                self._remember_invalid(placed.point.hash, violation)
        if valid := batch.valid():
            async with self._connect_lock:
                self.end_shared_commit()
                result = await self._chain.writer.run(self._chain.chainstate.connect, [placed for _, placed in valid])
                batch.outcomes.update(zip([index for index, _ in valid], result.outcomes, strict=True))
                for block_hash, violation in result.invalid.items():
                    self._remember_invalid(block_hash, violation)
                if result.change is not None:
                    await self._publish(evolve(result.change, source=batch.source))
        for index, header in batch.duplicates.items():
            batch.outcomes.setdefault(index, self._outcome_of_copy(header))

    def _outcome_of_copy(self, header: Header) -> BlockOutcome:
        """The outcome of a duplicate once the first copy has been processed."""
        if self.reader.point(header.hash) is not None:
            return BlockStatus.KNOWN
        waits = self._future.held(header) or NotYet(
            Wait.BUSY, "another copy of this block was processed first and could not be stored; send it again"
        )
        return self._known_invalid(header.hash) or waits

    async def _publish(self, change: ChainChange) -> None:
        """Notify the listeners, once what concerns the mempool is listed."""
        if not change.is_listed:
            # In a thread: there may be ten thousand to look up. One that comes meanwhile is checked after the commit.
            with self.log.failuresHandled("looking up the transfers of the mempool failed"):
                store = self._chain.chainstate.store
                change = await self._chain.writer.run(change.listed_for, self._waiting(), self.params, store)
        self.tip, self.prune_height = change.tip, change.prune_height
        for listener in self._listeners:
            with self.log.failuresHandled("notifying {listener} of a change of the chain failed", listener=listener):
                listener.chain_changed(change)


def _ignore(_: BlockStage) -> None:
    """The default for OnStage."""


def _stopping() -> NotYet:
    return NotYet(Wait.BUSY, "the node is stopping; send this block again later")


class FutureBlocks:
    """Blocks ahead of the local clock, held until their slot begins (docs/protocol.md 10).

    At most 64 blocks, at most 60 slots ahead; ``resubmit`` gets the canonical JSON of each when it is due, and who
    brought it.
    """

    def __init__(self, clock: Clock, params: NetworkParams, resubmit: Callable[[bytes, str], None]) -> None:
        self._clock = clock
        self._params = params
        self._resubmit = resubmit
        self._timers: dict[bytes, Timer] = {}

    def too_far(self, slot: int) -> NotYet | None:
        """Why a block is not held whose slot is too far ahead; None if it is not."""
        return _too_far(slot) if self._slots_ahead(slot) > MAX_SLOTS_AHEAD else None

    def hold_if_future(self, block: Block, source: str) -> NotYet | None:
        """Hold a block beyond the present slot and the drift, if there is room; gives why it is not connected now."""
        block_hash, slot = block.header.hash, block.header.slot
        if self._slots_ahead(slot) <= 0:
            return None
        if block_hash not in self._timers:
            if len(self._timers) == MAX_FUTURE_BLOCKS or self.too_far(slot):
                return _too_far(slot)
            due = self._params.slot_time(slot - self._params.drift_slots)
            seconds = (due - milliseconds(self._clock)) / 1000
            self._timers[block_hash] = self._clock.callLater(seconds, self._release, block_hash, block.wire(), source)
        return self.held(block.header)

    def held(self, header: Header) -> NotYet | None:
        """Why a held block is not connected now; None if it is not held, or its slot has begun by a new time."""
        if header.hash not in self._timers or self._slots_ahead(header.slot) <= 0:
            return None
        return NotYet(Wait.EARLY, f"slot {header.slot} lies in the future; the block is kept until it is due")

    def _slots_ahead(self, slot: int) -> int:
        return slot - self._params.drift_slots - self._params.slot_at(milliseconds(self._clock))

    def _release(self, block_hash: bytes, data: bytes, source: str) -> None:
        del self._timers[block_hash]
        self._resubmit(data, source)

    def clear(self) -> None:
        """Drop all blocks."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


def _too_far(slot: int) -> NotYet:
    return NotYet(Wait.EARLY, f"slot {slot} lies too far in the future; send the block again when it is due")
