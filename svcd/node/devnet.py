"""Devnet on demand: immediate blocks, reorganisations, coins from the faucet (docs/operator-api.md)."""

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import DeferredLock

from svcd.chain.address import decode_address, encode_address, key_hash
from svcd.chain.block import Block
from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.chain.params import FAUCET_SEED
from svcd.chain.signature import public_key_of
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from svcd.chain.transition import ChainPoint, head_after
from svcd.interfaces import milliseconds
from svcd.node.block_template import BlockTemplate, by_fee_rate, create_template
from svcd.node.chain_view import ChainView
from svcd.node.changes import THIS_NODE, BlockStatus
from svcd.node.node_context import NodeContext
from svcd.node.work_search import WorkSearch

_BATCH: Final = 16
"""Blocks made and submitted together; few, so that blocks of other nodes seldom come first."""
_ATTEMPTS: Final = 3
"""How often blocks are made again because blocks of other nodes came first."""
_LAG_SECONDS: Final = 5_400
"""How far before the present a chain begins, so that there are slots for blocks that are asked for at once.

There are some even if the computer's clock is set back by an hour.
"""
_OLD_SECONDS: Final = 43_200
"""How far before the present a block may lie: others follow at the average distance, which raises no alarm."""
MAX_BLOCKS: Final = 10_000
MAX_DEPTH: Final = 1_000


class Devnet:
    """Makes blocks on request, one request after the other."""

    def __init__(self, node: NodeContext, random: Callable[[int], bytes]) -> None:
        self._chain_manager, self._chain = node.chain_manager, node.chain
        self._transaction_pool, self._verifier = node.transaction_pool, node.verifier
        self._random, self._clock = random, node.clock
        self._lock = DeferredLock()

    async def mine(self, count: int, seed: bytes, following: int = 0) -> list[bytes]:
        """Make ``count`` blocks on the tip with the waiting transfers, signed by and paying ``seed``'s key.

        They leave room for the ``following`` blocks that the next requests ask for.
        Gives their hashes. Raises RuleViolation(SLOT) if the chain has caught up with the clock, and NotYet(BUSY) if
        blocks of other nodes keep coming first.
        """
        hashes: list[bytes] = []
        async with self._lock:
            while len(hashes) < count:
                left = count - len(hashes)
                later = max(left - _BATCH, 0) + following
                hashes += await self._make(min(left, _BATCH), seed, self._waiting, later=later)
        return hashes

    async def mine_now(self, seed: bytes) -> list[bytes]:
        """Make a block before the present as :meth:`mine` begins a chain, so that there is room for others after it.

        After newer blocks it comes at the average distance; none is made if there is no slot for it.
        """
        try:
            async with self._lock:
                return await self._make(1, seed, self._waiting, later=None)
        except RuleViolation as refused:
            if refused.code is not Refusal.SLOT:
                raise
            return []

    def _waiting(self) -> list[Transfer]:
        # Parked transfers may be covered by transfers that these very blocks include before them.
        return [*by_fee_rate(self._transaction_pool.mempool.lines()), *self._transaction_pool.parked]

    async def reorganise(self, depth: int, seed: bytes, *, drop_transactions: bool) -> list[bytes]:
        """Replace the newest ``depth`` blocks by ``depth`` + 1 empty ones; gives their hashes.

        The transfers of the undone blocks return to the mempool or, with ``drop_transactions``, are dropped. Raises
        RuleViolation(HEIGHT) for a depth beyond the genesis, and what :meth:`mine` raises.
        """
        dropped: list[bytes] = []

        def look() -> list[Transfer]:
            height = self._chain_manager.tip.height
            if depth > height:
                raise RuleViolation(Refusal.HEIGHT, f"depth must be at most {height}, the height of the chain")
            if drop_transactions:
                dropped.extend(self._txids(range(height - depth + 1, height + 1)))
            return []

        async with self._lock:
            hashes = await self._make(depth + 1, seed, look, undone=depth)
            # The next block that is mined must include the returned transfers.
            await self._transaction_pool.readmission_done()
            self._transaction_pool.drop(dropped)
        return hashes

    async def faucet(self, recipient: str, amount: int) -> bytes:
        """Send ``amount`` base units from the public faucet key; gives the txid. Raises RuleViolation."""
        params = self._chain.params
        decode_address(recipient, params.address_prefix, "recipient")
        sender = key_hash(public_key_of(FAUCET_SEED))
        async with self._lock:
            account = self._chain_manager.reader.account(sender)
            if account is None:
                address = encode_address(sender, params.address_prefix)
                raise RuleViolation(Refusal.BALANCE, f"the faucet {address} has nothing on this network")
            nonce = self._transaction_pool.mempool.pending_nonce(sender, account)
            now = milliseconds(self._clock)
            draft = Draft(recipient=recipient, amount=amount, fee=params.minimum_fee, nonce=nonce, timestamp=now)
            transfer = sign_transfer(draft, seed=FAUCET_SEED, params=params)
            await self._transaction_pool.submit(transfer)
        return transfer.txid

    def _txids(self, heights: Sequence[int]) -> list[bytes]:
        blocks = [self._chain_manager.reader.canonical(height) for height in heights]
        found = [self._chain_manager.reader.block(block, self._chain.params) for block in blocks if block]
        return [transfer.txid for block in found for transfer in block.transfers]

    async def _make(
        self, count: int, seed: bytes, waiting: Callable[[], list[Transfer]], *, undone: int = 0, later: int | None = 0
    ) -> list[bytes]:
        """Make blocks in the place of the chain's newest ``undone`` blocks, and submit them; gives their hashes.

        They leave room for ``later`` blocks; None dates the first one as the first of a chain. If blocks of other
        nodes come first they are made again, from the transfers that ``waiting`` gives then.
        """
        for _ in range(_ATTEMPTS):
            blocks = await self._forge(count, seed, waiting(), undone, later)
            # Our own, and the first of a branch may be far below the tip that the last one replaces.
            work = self._chain_manager.tip.work
            outcomes = await self._chain_manager.submit_blocks(blocks, proven_work=work, source=THIS_NODE)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
            # The first blocks of a branch may be side blocks until the last one gives it more work.
            if outcomes and outcomes[-1] is BlockStatus.CONNECTED:
                return [block.header.hash for block in blocks]
        raise NotYet(Wait.BUSY, f"blocks of others came first {_ATTEMPTS} times; try again")

    async def _forge(
        self, count: int, seed: bytes, waiting: list[Transfer], undone: int, later: int | None
    ) -> list[Block]:
        """A chain of new blocks; none if blocks of other nodes came first."""
        run, newest = self._chain.writer.run, self._chain.params.slot_at(milliseconds(self._clock))
        view, slots = await run(self._begin, undone)
        returned = self._transaction_pool.returned
        blocks: list[Block] = []
        for number in range(count):
            # In the slots of the replaced blocks they have the same work, and the additional block has more.
            slot = (
                slots[number]
                if number < len(slots)
                else self._next_slot(view.head.point, newest, None if later is None else count - number + later)
            )
            template = await run(self._assemble, view, seed, slot, waiting, returned)
            if template is None:
                return []
            block = await self._seal(template, seed)
            view.head = head_after(self._chain.params, view.head, block.header)
            held = {transfer.txid for transfer in block.transfers}
            waiting = [transfer for transfer in waiting if transfer.txid not in held]
            blocks.append(block)
        return blocks

    def _begin(self, depth: int) -> tuple[ChainView, list[int]]:
        """The chain without its newest ``depth`` blocks, and the slots of these."""
        chainstate = self._chain.chainstate
        height = chainstate.tip.height
        replaced = map(chainstate.store.canonical, range(height - depth + 1, height + 1))
        return chainstate.view(undone=depth), [stored.point.slot for stored in replaced if stored]

    def _assemble(
        self, view: ChainView, seed: bytes, slot: int, waiting: Sequence[Transfer], returned: frozenset[bytes]
    ) -> BlockTemplate | None:
        if self._chain.chainstate.tip != view.base:
            return None
        return create_template(view, seed=seed, slot=slot, transfers=waiting, returned=returned)

    def _next_slot(self, tip: ChainPoint, newest: int, left: int | None) -> int:
        """The slot of the next of ``left`` blocks: at the average distance, or of today if that would be long ago.

        With None it is _LAG_SECONDS before the ``newest``, or at the average distance if the tip is later.
        """
        params = self._chain.params
        slot = min(tip.slot + params.slots_per_block, newest)
        if left is None or newest - slot > _OLD_SECONDS // params.slot_seconds:
            room = (left - 1) * params.slots_per_block if left else 0
            slot = max(slot, newest - _LAG_SECONDS // params.slot_seconds - room)
        if slot <= tip.slot:
            wait = (tip.slot + 1 - newest) * params.slot_seconds
            raise RuleViolation(Refusal.SLOT, f"the chain has caught up with the clock: try again in {wait} s")
        return slot

    async def _seal(self, template: BlockTemplate, seed: bytes) -> Block:
        nonce = None
        while nonce is None:
            start = int.from_bytes(self._random(8), "big")
            nonce = await WorkSearch(template.header, self._chain.params.memory_kib, start).on(
                self._verifier, self._verifier.threads
            )
        return template.sealed(nonce, seed)
