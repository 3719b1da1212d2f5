"""The one door for blocks: wherever one comes from, it enters the chain through the ledger.

It validates in the order of docs/protocol.md 10, each stage where it belongs: parsing, signatures and participation
work in the verifier's threads, the state in the writer's thread, as one commit. Only then is anybody told.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, Protocol

from attrs import define, frozen
from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from svcd.chain.block import Block, Header, parse_block, parse_posted_block
from svcd.chain.errors import Corrupt, NotYet, Refusal, RuleViolation, Wait
from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint, check_header, check_place, extend
from svcd.node.changes import Candidate, Change, HeaderCheck, Outcome, Stage, Standing
from svcd.node.connector import Connector
from svcd.node.early import EarlyBlocks
from svcd.node.flight import Flight
from svcd.node.long_reads import LongReads
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
class _Item:
    """A block on its way through the stages; it leaves at the first door it fails.

    It waits for flights that had begun when it came, never for later ones: so no two can wait for each other.
    """

    data: bytes | Block
    read: Reading = parse_block
    block: Block | None = None
    flight: Flight | None = None
    outcome: Outcome | None = None
    parent: Flight | None = None
    """Its parent, if that is on its way."""
    twin: Flight | None = None
    """The same block, if it is on its way already: its outcome is that of the other."""


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
        self._flights: dict[bytes, Flight] = {}
        self._invalid: OrderedDict[bytes, None] = OrderedDict()
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
        return self._underway.keep(self._submit([_Item(data) for data in batch], entering or _nobody))

    async def submit_posted(self, body: bytes) -> tuple[Outcome, bytes]:
        """What becomes of the block in the body of a post, in any spelling of JSON, and the hash of the block.

        The hash is b"" where the body holds no block, and that of the network for the genesis, which is always known.
        """
        item = _Item(body, parse_posted_block)
        (outcome,) = await self._underway.keep(self._submit([item], _nobody))
        if item.block is not None and self._is_genesis(item.block):
            return outcome, self.params.genesis_hash
        return outcome, item.block.header.hash if item.block else b""

    async def submit_block(self, data: bytes) -> Standing:
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

    async def _submit(self, items: list[_Item], entering: Entering) -> list[Outcome]:
        if self._stopping:
            return [_stopping() for _ in items]
        try:
            entering(Stage.PARSE)
            # One batch after the other, in the order in which they came: children must not overtake their parents.
            await self._entrance.run(self._enter, items)
            entering(Stage.VERIFY)
            await self._check_work(items)
            entering(Stage.CONNECT)
            await self._parents_landed(items)
            await self._connect(items)
        finally:
            self._land(items)
        await self._twins_landed(items)
        return [item.outcome for item in items if item.outcome is not None]

    async def _enter(self, items: list[_Item]) -> None:
        """The checks that need no more than the parent, which is on the chain or on its way."""
        for item, parsed in zip(
            items, await self._verifier.parse([(item.read, item.data) for item in items]), strict=True
        ):
            if isinstance(parsed, Block):
                item.block = parsed
                item.outcome = self._known(parsed)
                item.twin = self._flights.get(parsed.header.hash) if item.outcome is Standing.KNOWN else None
            else:
                item.outcome = parsed
        blocks = _waiting(items)
        _settle(items, await self._verifier.check_seals(blocks))
        for item in items:
            if item.outcome is None:
                self._place(item)

    def _known(self, block: Block) -> Outcome | None:
        block_hash = block.header.hash
        if self._is_genesis(block):
            return Standing.KNOWN
        invalid = self._known_invalid(block_hash)
        if invalid is None and (block_hash in self._flights or self.reader.point(block_hash) is not None):
            return Standing.KNOWN
        return invalid

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

    def _place(self, item: _Item) -> None:
        """Find the block's place behind its parent, and let its children follow."""
        header = _block(item).header
        try:
            if header.hash in self._flights:
                item.outcome, item.twin = Standing.KNOWN, self._flights[header.hash]
                return
            parent = self._parent(header.parent_hash)
            check_place(self.params, parent, header)
            self._early.refuse_far(header.slot)
        except RuleViolation as violation:
            self._remember_invalid(header.hash)
            item.outcome = violation
        except NotYet as reason:
            item.outcome = reason
        else:
            item.parent = self._flights.get(header.parent_hash)
            item.flight = self._flights[header.hash] = Flight(extend(self.params, parent, header))

    def _parent(self, parent_hash: bytes) -> ChainPoint:
        if parent_hash in self._invalid:
            raise RuleViolation(Refusal.ANCESTOR, f"the block builds on the invalid block {parent_hash.hex()}")
        flight = self._flights.get(parent_hash)
        parent = flight.point if flight else self.reader.point(parent_hash)
        if parent is None:
            raise NotYet(Wait.ORPHAN, f"the parent {parent_hash.hex()} is not known")
        return parent

    async def _check_work(self, items: list[_Item]) -> None:
        try:
            verdicts = await self._verifier.check_work(_waiting(items))
        except NotYet as busy:
            for item in items:
                item.outcome = item.outcome or busy
            return
        for item in _settle(items, verdicts):
            self._remember_invalid(_block(item).header.hash)
        for item in items:
            if item.outcome is None:
                item.outcome = self._held(item)

    def _held(self, item: _Item) -> NotYet | None:
        """Keep a block that is not due yet, now that its work is known to be good: places for those are few."""
        header = _block(item).header
        if self._stopping:
            return _stopping()
        try:
            self._early.hold_if_early(header.hash, slot=header.slot, data=_block(item).wire)
        except NotYet as early:
            return early
        return None

    async def _parents_landed(self, items: list[_Item]) -> None:
        ours = {item.flight for item in items}
        for item in items:
            if item.outcome is None:
                parent = _block(item).header.parent_hash
                if item.parent is not None and item.parent not in ours:
                    await item.parent.landed()
                if parent in self._invalid:
                    self._remember_invalid(_block(item).header.hash)
                    item.outcome = RuleViolation(
                        Refusal.ANCESTOR, f"the block builds on the invalid block {parent.hex()}"
                    )

    async def _twins_landed(self, items: list[_Item]) -> None:
        """What is known because it was on its way is known only once it has arrived."""
        for item in items:
            if item.twin is not None:
                await item.twin.landed()
                block_hash = _block(item).header.hash
                if self.reader.point(block_hash) is None:
                    busy = NotYet(Wait.BUSY, "the same block was on its way and has not arrived; send it again")
                    item.outcome = self._known_invalid(block_hash) or busy

    async def _connect(self, items: list[_Item]) -> None:
        flying = [item for item in items if item.outcome is None]
        candidates = [Candidate(item.block, item.flight.point) for item in flying if item.block and item.flight]
        if not candidates:
            return
        connected = await self._chain.writer.run(self._chain.connector.connect, candidates)
        for item, outcome in zip(flying, connected.outcomes, strict=True):
            item.outcome = outcome
        for block_hash in connected.refused:
            self._remember_invalid(block_hash)
        if connected.change is not None:
            self._publish(connected.change)

    def _publish(self, change: Change) -> None:
        self.tip = change.tip
        for listener in self._listeners:
            with self.log.failuresHandled("telling {listener} of a change", listener=listener):
                listener.chain_changed(change)

    def _land(self, items: list[_Item]) -> None:
        for item in items:
            if item.flight is not None:
                self._flights.pop(item.flight.point.hash).land()

    def _remember_invalid(self, block_hash: bytes) -> None:
        self._invalid[block_hash] = None
        self._invalid.move_to_end(block_hash)
        if len(self._invalid) > REMEMBERED_INVALID:
            self._invalid.popitem(last=False)


def _nobody(_: Stage) -> None:
    """Nobody wants to know how far a batch is."""


def _stopping() -> NotYet:
    return NotYet(Wait.BUSY, "the node is stopping; send this block again later")


def _block(item: _Item) -> Block:
    if item.block is None:
        raise ValueError("the block has not been parsed")
    return item.block


def _waiting(items: list[_Item]) -> list[Block]:
    return [_block(item) for item in items if item.outcome is None]


def _settle(items: list[_Item], verdicts: list[Verdict]) -> list[_Item]:
    """Give the items that wait their verdicts; those that were refused are returned."""
    waiting = [item for item in items if item.outcome is None]
    for item, verdict in zip(waiting, verdicts, strict=True):
        item.outcome = verdict
    return [item for item in waiting if item.outcome is not None]
