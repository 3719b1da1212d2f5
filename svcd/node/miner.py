"""The miner: it makes the node's own blocks (docs/protocol.md 6)."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, cast

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svcd.chain.address import key_hash
from svcd.chain.block import Block, Header
from svcd.chain.errors import NotYet, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.signature import public_key_of
from svcd.chain.transition import (
    ChainPoint,
    producer_fault,
    producers_before,
)
from svcd.interfaces import Timer, Worker, milliseconds
from svcd.node.block_template import BlockTemplate, by_fee_rate, create_template
from svcd.node.changes import THIS_NODE, BlockStatus, ChainChange
from svcd.node.mempool import MempoolEntry, Removals
from svcd.node.node_context import NodeContext
from svcd.node.work_rate import AttemptCounts, WorkRate, expected_attempts
from svcd.node.work_search import WorkSearch


def next_slot(params: NetworkParams, tip: ChainPoint, now: int) -> int | None:
    """The slot in which to make a block on ``tip`` at ``now``, in Unix milliseconds (docs/protocol.md 10).

    The present slot or, if the tip has it already, the slot after the tip's: hash power that waits for a slot is lost.
    None if the slot lies so far ahead that other nodes would hold the block.
    """
    present = params.slot_at(now)
    slot = max(present, tip.slot + 1)
    return slot if slot <= present + params.drift_slots else None


_RENEW_SECONDS: Final = 5
"""How long a search may go on with a template that lacks newer transfers."""
_RETRY_SECONDS: Final = 5


@frozen
class _NotAllowed:
    """The list of producers does not let this node make the next block."""

    parent: bytes
    """The hash of the block on which another producer must make one."""
    why: str
    listed: bool
    """Whether it is on the list, and will be allowed after blocks of others."""


@frozen
class MinerSettings:
    """The configuration of a miner."""

    seed: bytes
    """The 32-byte seed of the key that signs the blocks and receives the reward."""
    threads: Worker
    workers: int
    random: Callable[[int], bytes]
    may_produce: Callable[[], bool]
    """Whether blocks may be made now: a node that is behind would only make forks."""
    enabled: bool = True
    """Whether participation is switched on at the start."""


class Miner(Service):
    """Makes blocks on the tip, one after the other, while it runs and participation is switched on."""

    log = Logger()

    def __init__(self, node: NodeContext, settings: MinerSettings) -> None:
        self.enabled = settings.enabled
        """Whether participation is switched on; not kept across a restart, which follows the configuration."""
        self._chain_manager, self._chain = node.chain_manager, node.chain
        self._transaction_pool, self._clock = node.transaction_pool, node.clock
        self._settings = settings
        self._lock = DeferredLock()
        self._loop: Deferred[None] | None = None
        """Fires when no more blocks are made and the threads are idle; None if it has fired."""
        self._search: WorkSearch | None = None
        self._renewal: Deferred[BlockTemplate | None] | None = None
        """The next template, which is assembled while the threads search with the last one."""
        self._stale = False
        self._refused: _NotAllowed | None = None
        """Why another producer must make the block on the tip; None if this node may."""
        self._pause: Deferred[None] | None = None
        self._timer: Timer | None = None
        self._stopping = False
        self._header: Header | None = None
        """Of the block that is being made; None while this node makes none."""
        self._finished_attempts = 0
        """Of the searches that have ended."""
        self._counts = AttemptCounts()
        node.chain_manager.subscribe(self)
        node.transaction_pool.subscribe(self)

    def startService(self) -> Deferred[None]:
        """Start making blocks, if participation is switched on."""
        super().startService()  # type: ignore[no-untyped-call]
        return self._update()

    def stopService(self) -> Deferred[None]:
        """Stop making blocks; fires when the threads are idle."""
        super().stopService()  # type: ignore[no-untyped-call]
        return self._update()

    def switch(self, enabled: bool) -> Deferred[None]:
        """Switch participation on or off; fires when blocks are made, or when the threads are idle."""
        if enabled != self.enabled:
            self.enabled = enabled
            self.log.info("participation is switched {state}", state="on" if enabled else "off")
        return self._update()

    @property
    def waits_for(self) -> str:
        """Why another producer must make the next block, while this node would make it; "" if there is no reason."""
        return self._refused.why if self._refused is not None and self._loop is not None else ""

    @property
    def attempts(self) -> int:
        """How many work nonces have been tried since the start."""
        return self._finished_attempts + (0 if self._search is None else self._search.attempts)

    def count_attempts(self) -> None:
        """Count the attempts for the rate; to be called every SAMPLE_SECONDS."""
        if self._header is None:
            self._counts.clear()
        else:
            self._counts.note(self._clock.seconds(), self.attempts)

    @property
    def work_rate(self) -> WorkRate | None:
        """How fast the next block is searched for; None while none is."""
        if self._header is None:
            return None
        return WorkRate(self._header.height, self._counts.per_second, expected_attempts(self._header))

    def _update(self) -> Deferred[None]:
        # One after the other, by the switch as it is then: off and on in quick succession ends with on.
        return self._lock.run(self._start_or_stop)

    async def _start_or_stop(self) -> None:
        self._stopping = not (self.running and self.enabled)
        if not self._stopping:
            self._loop = self._loop or Deferred.fromCoroutine(self._run())
        elif self._loop is not None:
            self._interrupt()
            if self._pause is not None:
                self._pause.cancel()
            try:
                await self._loop
            finally:
                self._loop = None

    def chain_changed(self, change: ChainChange) -> None:
        """End the search, whose block would not be on the tip, or the wait for a block of another producer."""
        self._interrupt()
        if self._refused is not None and self._pause is not None:
            self._pause.cancel()

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        """Note that the template is out of date; the next renewal includes new transfers."""
        self._stale = True

    def _interrupt(self) -> None:
        if self._search is not None:
            self._search.ended.set()

    async def _run(self) -> None:
        while not self._stopping:
            try:
                if self._settings.may_produce():
                    await self._make_block()
                else:
                    self._header = None
                    await self._sleep(_RETRY_SECONDS)
            except CancelledError:
                # The stop is cut off.
                raise
            except (RuleViolation, NotYet) as refusal:
                self.log.warn("our own block was refused: {why}", why=str(refusal))
                await self._sleep(_RETRY_SECONDS)
            except Exception:
                # An unexpected error must not end participation for good.
                self.log.failure("making a block failed; trying again in {seconds} s", seconds=_RETRY_SECONDS)
                await self._sleep(_RETRY_SECONDS)
        self._header = None
        if self._renewal is not None:
            await self._renewal.addErrback(lambda failure: self.log.failure("renewing a template failed", failure))
            self._renewal = None

    async def _make_block(self) -> None:
        template = await self._next_template()
        if template is None or not self._is_on_tip(template) or self._stopping:
            return
        block = await self._seal(template)
        if block is not None:
            outcome = await self._chain_manager.submit_block(block, source=THIS_NODE)
            if outcome is not BlockStatus.CONNECTED:
                self.log.info(
                    "our block {height} {hash} came too late: another one is in its place",
                    height=block.header.height,
                    hash=block.header.hash.hex(),
                )

    async def _next_template(self) -> BlockTemplate | None:
        """The template of a renewal, if it is on the tip, or else a new one."""
        renewal, self._renewal = self._renewal, None
        template = None if renewal is None else await renewal
        return template if template is not None and self._is_on_tip(template) else await self._new_template()

    async def _new_template(self) -> BlockTemplate | None:
        """A template on the tip, or None after a wait for a slot or for a block of another producer."""
        params, tip = self._chain_manager.params, self._chain_manager.tip
        slot = next_slot(params, tip, milliseconds(self._clock))
        if slot is None:
            self._header = None
            # No longer: the computer's clock, by which that is far ahead, may be set meanwhile.
            await self._sleep(min(self._seconds_to(tip.slot + 1 - params.drift_slots), _RETRY_SECONDS))
            return None
        self._stale = False
        pool = self._transaction_pool
        made = await self._chain.writer.run(self._assemble, slot, pool.mempool.lines(), pool.returned)
        self._note(made if isinstance(made, _NotAllowed) else None)
        if not isinstance(made, _NotAllowed):
            return made
        self._header = None
        if made.parent == self._chain_manager.tip.hash:
            await self._sleep(_RETRY_SECONDS)
        return None

    def _note(self, refused: _NotAllowed | None) -> None:
        """Log when the node's address is not on the list any more, or is on it again."""
        listed, was_listed = (each is None or each.listed for each in (refused, self._refused))
        self._refused = refused
        if refused is not None and was_listed and not listed:
            self.log.warn("no blocks are made: {why}", why=refused.why)
        elif listed and not was_listed:
            self.log.info("blocks are made again: the list of producers has this node's address")

    def _is_on_tip(self, template: BlockTemplate) -> bool:
        return template.header.parent_hash == self._chain_manager.tip.hash

    def _assemble(
        self, slot: int, lines: Iterable[tuple[MempoolEntry, ...]], returned: frozenset[bytes]
    ) -> BlockTemplate | _NotAllowed:
        if refused := self._find_refusal():
            return refused
        view, transfers = self._chain.chainstate.view(), by_fee_rate(lines)
        return create_template(view, seed=self._settings.seed, slot=slot, transfers=transfers, returned=returned)

    def _find_refusal(self) -> _NotAllowed | None:
        """Why this node may not make the block on the tip, if it may not; for the writer's thread."""
        params, head = self._chain.params, self._chain.chainstate.head
        height, producer = head.point.height + 1, key_hash(public_key_of(self._settings.seed))
        why = producer_fault(params, height=height, producer=producer, before=producers_before(params, head))
        if not why:
            return None
        listed = producer in params.producer_keys_at(height)
        later = (change.height for change in params.changes if change.height > height)
        returns = None if listed else next((each for each in later if producer in params.producer_keys_at(each)), None)
        if returns is not None:
            why += f"; it may again from height {returns} on"
        return _NotAllowed(head.point.hash, why, listed)

    async def _seal(self, template: BlockTemplate) -> Block | None:
        """The finished block, or None if tip, slot or mempool changed first."""
        settings = self._settings
        start = int.from_bytes(settings.random(8), "big")
        search = WorkSearch(template.header, self._chain_manager.params.memory_kib, start)
        self._search, self._header = search, template.header
        began = self._clock.seconds()
        self._watch(search, template.header.slot, began)
        try:
            nonce = await search.on(settings.threads, settings.workers, at_low_priority=True)
        finally:
            self._finished_attempts, self._search = self.attempts, None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        return None if nonce is None else template.sealed(nonce, settings.seed)

    def _watch(self, search: WorkSearch, slot: int, began: float) -> None:
        """Renew the template of a search whose slot is over, or that has been out of date for too long."""
        now = self._clock.seconds()
        self._timer = None
        over = self._seconds_to(slot + 1) <= 0
        if over or (self._stale and now - began >= _RENEW_SECONDS):
            self._renewal = Deferred.fromCoroutine(self._renew(search))
            return
        wait = min(self._seconds_to(slot + 1), max(began + _RENEW_SECONDS - now, 1))
        self._timer = self._clock.callLater(wait, self._watch, search, slot, began)

    async def _renew(self, search: WorkSearch) -> BlockTemplate | None:
        try:
            return await self._new_template()
        finally:
            search.ended.set()

    def _seconds_to(self, slot: int) -> float:
        return (self._chain_manager.params.slot_time(slot) - milliseconds(self._clock)) / 1000

    async def _sleep(self, seconds: float) -> None:
        """Wait; ends early if the miner is stopped."""
        self._pause = deferLater(cast(IReactorTime, self._clock), max(seconds, 0))
        with suppress(CancelledError):
            await self._pause
