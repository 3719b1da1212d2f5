"""Participation: the node makes blocks and hands them in at the same door as everybody (docs/protocol.md 6)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredLock, succeed
from twisted.logger import Logger

from svcd.chain.block import Block
from svcd.chain.errors import NotYet, RuleViolation
from svcd.node.assembly import Proposal, assemble, by_fee
from svcd.node.changes import Change
from svcd.node.ledger import Chain, Ledger
from svcd.node.mempool import Entry, Mempool
from svcd.node.search import Search
from svcd.node.threads import Worker
from svcd.ports import Clock, Timer, milliseconds

_RENEW_SECONDS: Final = 5
"""How long a search may go on without the transfers that have come in since."""
_RETRY_SECONDS: Final = 5


@frozen
class Workshop:
    """What a producer works with."""

    seed: bytes
    """The 32-byte seed of the key that signs blocks and is paid."""
    threads: Worker
    workers: int
    random: Callable[[int], bytes]
    may_produce: Callable[[], bool]
    """Whether blocks may be made now; a node that is behind would only make forks."""


class Producer:
    """Searches for work on the present tip with as many threads as it has workers."""

    log = Logger()

    def __init__(self, ledger: Ledger, chain: Chain, *, mempool: Mempool, workshop: Workshop, clock: Clock) -> None:
        self._ledger = ledger
        self._chain = chain
        self._mempool = mempool
        self._workshop = workshop
        self._clock = clock
        self._search: Search | None = None
        self._stale = False
        self._running: Deferred[None] | None = None
        self._pause: Deferred[None] | None = None
        self._timer: Timer | None = None
        self._stopping = False

    @property
    def active(self) -> bool:
        """Whether the producer has been started and not stopped."""
        return self._running is not None

    def start(self) -> None:
        """Begin to make blocks; nothing if it already does."""
        if self._running is None:
            self._stopping = False
            self._running = Deferred.fromCoroutine(self._run())

    async def stop(self) -> None:
        """Make no more blocks; done when the threads have put down their work."""
        running, self._stopping = self._running, True
        if running is None:
            return
        self._interrupt()
        if self._pause is not None:
            self._pause.cancel()
        await running
        self._running = None

    def chain_changed(self, change: Change) -> None:
        """Work on an old tip is of no use."""
        self._interrupt()

    def pool_changed(self, added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        """New transfers are taken up at the next renewal."""
        self._stale = True

    def _interrupt(self) -> None:
        if self._search is not None:
            self._search.end()

    async def _run(self) -> None:
        while not self._stopping:
            try:
                if self._workshop.may_produce():
                    await self._make_block()
                else:
                    await self._sleep(_RETRY_SECONDS)
            except (RuleViolation, NotYet) as refusal:
                self.log.warn("our own block was refused: {why}", why=str(refusal))
                await self._sleep(_RETRY_SECONDS)
            except Exception:
                # Whatever it was must not end participation for good; the log has it whole.
                self.log.failure("making a block failed; trying again in {seconds} s", seconds=_RETRY_SECONDS)
                await self._sleep(_RETRY_SECONDS)

    async def _make_block(self) -> None:
        slot = self._ledger.params.slot_at(milliseconds(self._clock))
        if slot <= self._ledger.tip.slot:
            await self._sleep(self._seconds_to(self._ledger.tip.slot + 1))
            return
        self._stale = False
        lines = self._mempool.lines()
        proposal = await self._chain.writer.run(self._assemble, slot, lines)
        if proposal.header.parent_hash != self._ledger.tip.hash or self._stopping:
            return
        block = await self._seal(proposal)
        if block is not None:
            standing = await self._ledger.submit_block(block)
            self.log.info(
                "made block {height} {hash} with {count} transfers: {standing}",
                standing=standing.value,
                height=block.header.height,
                hash=block.header.hash.hex(),
                count=len(block.transfers),
            )

    def _assemble(self, slot: int, lines: Iterable[tuple[Entry, ...]]) -> Proposal:
        return assemble(self._chain.connector.view(), seed=self._workshop.seed, slot=slot, transfers=by_fee(lines))

    async def _seal(self, proposal: Proposal) -> Block | None:
        """The finished block, or None if the tip, the slot or the waiting transfers moved on first."""
        shop = self._workshop
        start = int.from_bytes(shop.random(8), "big")
        search = Search(proposal.header, self._ledger.params.memory_kib, start)
        self._search = search
        began = self._clock.seconds()
        self._watch(search, proposal.header.slot, began)
        try:
            nonce = await search.on(shop.threads, shop.workers, nicely=True)
        finally:
            self._search = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        return None if nonce is None else proposal.sealed(nonce, shop.seed)

    def _watch(self, search: Search, slot: int, began: float) -> None:
        """End a search whose slot is over, or that leaves out transfers for too long."""
        now = self._clock.seconds()
        self._timer = None
        over = self._seconds_to(slot + 1) <= 0
        if over or (self._stale and now - began >= _RENEW_SECONDS):
            search.end()
            return
        wait = min(self._seconds_to(slot + 1), max(began + _RENEW_SECONDS - now, 1))
        self._timer = self._clock.callLater(wait, self._watch, search, slot, began)

    def _seconds_to(self, slot: int) -> float:
        return (self._ledger.params.slot_time(slot) - milliseconds(self._clock)) / 1000

    async def _sleep(self, seconds: float) -> None:
        """Wait; ends early when the producer is told to stop."""
        self._pause = Deferred()
        call = self._clock.callLater(max(seconds, 0), self._pause.callback, None)
        try:
            await self._pause
        except CancelledError:
            call.cancel()
        finally:
            self._pause = None


class ProducerService(Service):
    """Makes blocks from the end of its start to the beginning of its stop, while that is wanted."""

    def __init__(self, producer: Producer, *, enabled: bool = True) -> None:
        self._producer = producer
        self._turn = DeferredLock()
        self.enabled = enabled
        """Whether making blocks is wanted; of this run, since the next one begins as it is configured."""

    def startService(self) -> Deferred[None]:
        """Begin, if that is wanted."""
        super().startService()  # type: ignore[no-untyped-call]
        return self._follow()

    def stopService(self) -> Deferred[None]:
        """Stop; the Deferred fires when the threads have put down their work."""
        super().stopService()  # type: ignore[no-untyped-call]
        return self._follow()

    def switch(self, enabled: bool) -> Deferred[None]:
        """Begin or end making blocks; the Deferred fires when that is done."""
        if enabled != self.enabled:
            self.enabled = enabled
            self._producer.log.info("participation is switched {state}", state="on" if enabled else "off")
        return self._follow()

    def _follow(self) -> Deferred[None]:
        # One after the other, each looking at what is wanted by then: off and on at once ends with on.
        return self._turn.run(self._do_what_is_wanted)

    def _do_what_is_wanted(self) -> Deferred[None]:
        if self.running and self.enabled:
            self._producer.start()
            return succeed(None)
        return Deferred.fromCoroutine(self._producer.stop())
