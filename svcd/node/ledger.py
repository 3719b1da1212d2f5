"""The one door for blocks: wherever one comes from, it enters the chain through the ledger.

In two stages, and in the order of docs/protocol.md 10: it is checked, which takes the verifier's threads, and then
connected, in the writer's thread, as one commit. Only then is anybody told.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, Protocol

from attrs import define, field, frozen
from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from svcd.chain.block import Block, Header, parse_block, parse_posted_block
from svcd.chain.errors import Corrupt, NotYet, Refusal, RuleViolation, Wait
from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint, check_header, check_place, extend
from svcd.node.changes import Candidate, Change, HeaderCheck, Outcome, Stage, Standing
from svcd.node.connector import Connector, descendant
from svcd.node.early import EarlyBlocks
from svcd.node.long_reads import LongReads
from svcd.node.recent import Recent
from svcd.node.threads import Worker
from svcd.node.underway import Underway
from svcd.node.verifier import Reading, Verdict, Verifier
from svcd.ports import Clock, milliseconds
from svcd.store.chain_store import ChainReader

REMEMBERED_INVALID: Final = 4_096
Entering = Callable[[Stage], object]
"""Called when a batch enters a stage."""


class ChainListener(Protocol):
    """Whoever wants to hear of the canonical chain."""

    def chain_changed(self, change: Change) -> None:
        """Called in the reactor's thread after each commit that changed the chain, in order."""


@frozen
class Chain:
    """A chain on disk: its rules, readers for the reactor and for what takes long, the connector for the writer."""

    params: NetworkParams
    reader: ChainReader
    long_reads: LongReads
    connector: Connector
    writer: Worker


@define(eq=False)
class _Batch:
    """Blocks that were handed in together, and what has become of them so far, by their index."""

    blocks: list[Block | None] = field(factory=list)
    """None for what holds no block."""
    placed: dict[int, Candidate] = field(factory=dict)
    """Those that have found their place behind their parents."""
    same: dict[int, bytes] = field(factory=dict)
    """The hashes of those that were under way already."""
    outcomes: dict[int, Outcome] = field(factory=dict)
    after: "set[_Batch]" = field(factory=set)
    """Those that hold parents of ours, or the same blocks. They came before: no two wait for each other."""
    over: Deferred[None] = field(factory=Deferred)
    """Fires when the batch has its outcomes, and holds up no other any more."""

    def going(self) -> list[tuple[int, Candidate]]:
        """Those that have found their place and failed no check so far."""
        return [(index, placed) for index, placed in self.placed.items() if index not in self.outcomes]


class Ledger:
    """Takes blocks in, and tells its listeners how the chain changed."""

    log = Logger()

    def __init__(self, chain: Chain, verifier: Verifier, clock: Clock) -> None:
        self.params = chain.params
        self.reader, self.long_reads = chain.reader, chain.long_reads
        self.tip = chain.connector.tip
        self._chain, self._verifier, self._clock = chain, verifier, clock
        self._listeners: list[ChainListener] = []
        self._entrance = DeferredLock()
        self._underway = Underway()
        self._stopping = False
        self._ahead: dict[bytes, tuple[_Batch, ChainPoint]] = {}
        """By hash the blocks under way: children may be checked while their parents are, and wait for them then."""
        self._ended: deque[_Batch] = deque()
        """Those that are not under way any more, and have still to tell others."""
        self._invalid: Recent[bytes, None] = Recent(REMEMBERED_INVALID)
        self._early = EarlyBlocks(clock, chain.params, self._resubmit)

    def subscribe(self, listener: ChainListener) -> None:
        """Tell ``listener`` of every later change, after those who subscribed before."""
        self._listeners.append(listener)

    @property
    def busy(self) -> bool:
        """Whether blocks are on their way into the chain."""
        return self._underway.busy

    def stop(self) -> Deferred[None]:
        """Take in no more and let go of the blocks that wait for their slot; fires when what has begun is finished."""
        self._stopping = True
        self._early.clear()
        return self._underway.finished()

    def submit_blocks(
        self, batch: Sequence[bytes | Block], entering: Entering | None = None
    ) -> Deferred[list[Outcome]]:
        """The outcomes of blocks, canonical JSON or parsed, parents before children; committed when it fires.

        Cancelling the Deferred does not stop the work: whoever sent the blocks may go away, the chain goes on.
        """
        return self._underway.keep(self._submit(_Batch(), batch, parse_block, entering or _nobody))

    async def submit_posted(self, body: bytes) -> tuple[Outcome, bytes]:
        """What becomes of the block in the body of a post, in any spelling of JSON, and the hash of the block.

        The hash is b"" where the body holds no block, and that of the network for the genesis, which is always known.
        """
        batch = _Batch()
        (outcome,) = await self._underway.keep(self._submit(batch, [body], parse_posted_block, _nobody))
        block = next(iter(batch.blocks), None)
        if block is not None and self._is_genesis(block):
            return outcome, self.params.genesis_hash
        return outcome, block.header.hash if block else b""

    async def submit_block(self, data: bytes | Block) -> Standing:
        """The same for one block; raises RuleViolation or NotYet."""
        (outcome,) = await self.submit_blocks([data])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def check_headers(self, parent: ChainPoint, headers: Sequence[Header]) -> HeaderCheck:
        """How far ``headers``, each the child of the one before and the first of ``parent``, are a chain with work.

        Everything that a header shows is checked: place, time, target, consensus root, the producer's signature and
        the participation work (docs/protocol.md 10). The state is not: a block may still turn out to be invalid.
        """
        points, failure = await self._verifier.run(self._place_headers, parent, headers)
        for index, point in enumerate(points):
            if point.hash in self._invalid:
                points, failure = points[:index], self._known_invalid(point.hash)
                break
        verdicts = await self._verifier.check_headers(headers[: len(points)])
        bad = next((index for index, verdict in enumerate(verdicts) if verdict is not None), None)
        return HeaderCheck(points, failure) if bad is None else HeaderCheck(points[:bad], verdicts[bad])

    def _place_headers(
        self, parent: ChainPoint, headers: Sequence[Header]
    ) -> tuple[list[ChainPoint], RuleViolation | NotYet | None]:
        """The chain variables after each header, up to the first that cannot stand where it does."""
        params = self.params
        points: list[ChainPoint] = []
        latest = params.slot_at(milliseconds(self._clock)) + params.drift_slots
        for header in headers:
            try:
                parent = check_header(params, parent, header)
            except RuleViolation as violation:
                return points, violation
            if header.slot > latest:
                return points, NotYet(Wait.EARLY, f"slot {header.slot} lies in the future")
            points.append(parent)
        return points, None

    def _resubmit(self, data: bytes) -> None:
        self.submit_blocks([data]).addErrback(lambda failure: self.log.failure("a held block failed", failure))

    async def _submit(
        self, batch: _Batch, data: Sequence[bytes | Block], reading: Reading, entering: Entering
    ) -> list[Outcome]:
        if self._stopping:
            return [_stopping() for _ in data]
        try:
            entering(Stage.PARSE)
            # One batch after the other, in the order in which they came: children must not overtake their parents.
            await self._entrance.run(self._enter, batch, data, reading)
            entering(Stage.VERIFY)
            await self._check(batch)
            entering(Stage.CONNECT)
            await self._connect(batch)
            return [batch.outcomes[index] for index in range(len(data))]
        finally:
            for placed in batch.placed.values():
                del self._ahead[placed.point.hash]
            # Else each batch would keep all those before it in memory.
            batch.after.clear()
            self._end(batch)

    def _end(self, batch: _Batch) -> None:
        """Let those go on that wait for ``batch``, one after the other: a row of them may be longer than the stack."""
        self._ended.append(batch)
        if len(self._ended) == 1:
            while self._ended:
                self._ended[0].over.callback(None)
                self._ended.popleft()

    # The first stage

    async def _enter(self, batch: _Batch, data: Sequence[bytes | Block], reading: Reading) -> None:
        """The checks that need no more than the parent, which is on the chain or under way."""
        for index, (block, wrong) in enumerate(await self._verifier.read(data, reading)):
            batch.blocks.append(block)
            outcome = wrong if block is None else self._place(batch, index, block, wrong)
            if outcome is not None:
                batch.outcomes[index] = outcome

    def _place(self, batch: _Batch, index: int, block: Block, wrong: Verdict) -> Outcome | None:
        """Find a block's place behind its parent, and let its children follow; or what has become of it already."""
        header = block.header
        if header.hash in self._ahead:
            batch.same[index] = header.hash
            batch.after.add(self._ahead[header.hash][0])
            return None
        outcome = self._known(block) or wrong
        if outcome is not None:
            return outcome
        try:
            parent = self._parent(batch, header.parent_hash)
            check_place(self.params, parent, header)
            self._early.refuse_far(header.slot)
        except RuleViolation as violation:
            self._remember_invalid(header.hash)
            return violation
        except NotYet as reason:
            return reason
        placed = batch.placed[index] = Candidate(block, extend(self.params, parent, header))
        self._ahead[header.hash] = batch, placed.point
        return None

    def _known(self, block: Block) -> Outcome | None:
        block_hash = block.header.hash
        if self._is_genesis(block):
            return Standing.KNOWN
        known = Standing.KNOWN if self.reader.point(block_hash) is not None else None
        return self._known_invalid(block_hash) or known

    def _is_genesis(self, block: Block) -> bool:
        """Whether it is the block at height 0 as ``/p2p/blocks`` shows it, without the hash that the network has."""
        return block.header.height == 0 and block.header.hash == self._shown_genesis

    @cached_property
    def _shown_genesis(self) -> bytes:
        """What the id of the genesis would be if it were made as later blocks are."""
        stored = self.reader.stored(self.params.genesis_hash)
        if stored is None:
            raise Corrupt(f"the genesis of {self.params.chain_id} is not on disk")
        return self.reader.block_header(stored, self.params).hash

    def _known_invalid(self, block_hash: bytes) -> RuleViolation | None:
        if block_hash not in self._invalid:
            return None
        self._invalid.move_to_end(block_hash)
        return RuleViolation(Refusal.KNOWN_INVALID, f"block {block_hash.hex()} was found invalid before")

    def _parent(self, batch: _Batch, parent_hash: bytes) -> ChainPoint:
        if parent_hash in self._invalid:
            raise descendant(parent_hash)
        if parent_hash in self._ahead:
            other, point = self._ahead[parent_hash]
            batch.after.add(other)
            return point
        parent = self.reader.point(parent_hash)
        if parent is None:
            raise NotYet(Wait.ORPHAN, f"the parent {parent_hash.hex()} is not known")
        return parent

    async def _check(self, batch: _Batch) -> None:
        """Participation work, the signatures of transfers, and whether it is time."""
        going = batch.going()
        try:
            verdicts = await self._verifier.check_work([placed.block for _, placed in going])
        except NotYet as busy:
            for index in range(len(batch.blocks)):
                batch.outcomes.setdefault(index, busy)
            return
        for (index, placed), verdict in zip(going, verdicts, strict=True):
            if verdict is not None:
                self._remember_invalid(placed.point.hash)
            outcome = verdict or self._held(placed.block)
            if outcome is not None:
                batch.outcomes[index] = outcome

    def _held(self, block: Block) -> NotYet | None:
        """Keep a block that is not due yet, now that its work is known to be good: places for those are few."""
        if self._stopping:
            return _stopping()
        try:
            self._early.hold_if_early(block.header.hash, slot=block.header.slot, data=block.wire)
        except NotYet as early:
            return early
        return None

    # The second stage

    async def _connect(self, batch: _Batch) -> None:
        if len(batch.outcomes) < len(batch.blocks):
            for other in batch.after - {batch}:
                await other.over
        for index, placed in batch.going():
            parent = placed.block.header.parent_hash
            if parent in self._invalid:
                self._remember_invalid(placed.point.hash)
                batch.outcomes[index] = descendant(parent)
        if going := batch.going():
            candidates = [placed for _, placed in going]
            connected = await self._chain.writer.run(self._chain.connector.connect, candidates)
            batch.outcomes.update(zip([index for index, _ in going], connected.outcomes, strict=True))
            for block_hash in connected.refused:
                self._remember_invalid(block_hash)
            if connected.change is not None:
                self._publish(connected.change)
        for index, block_hash in batch.same.items():
            batch.outcomes.setdefault(index, self._outcome_of_the_first(block_hash))

    def _outcome_of_the_first(self, block_hash: bytes) -> Outcome:
        """What a block is that was under way before."""
        if self.reader.point(block_hash) is not None:
            return Standing.KNOWN
        busy = NotYet(Wait.BUSY, "the same block was on its way and has not arrived; send it again")
        return self._known_invalid(block_hash) or busy

    def _publish(self, change: Change) -> None:
        self.tip = change.tip
        for listener in self._listeners:
            with self.log.failuresHandled("telling {listener} of a change", listener=listener):
                listener.chain_changed(change)

    def _remember_invalid(self, block_hash: bytes) -> None:
        self._invalid[block_hash] = None


def _nobody(_: Stage) -> None:
    """Nobody wants to know how far a batch is."""


def _stopping() -> NotYet:
    return NotYet(Wait.BUSY, "the node is stopping; send this block again later")
