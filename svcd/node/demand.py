"""Devnet at the operator's word: blocks at once, reorganisations, coins from the faucet (docs/operations.md)."""

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import DeferredLock

from svcd.chain.address import decode_address, encode_address, key_hash
from svcd.chain.block import Block
from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.chain.params import FAUCET_SEED, NetworkParams
from svcd.chain.signature import public_key_of
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from svcd.chain.transition import ChainPoint, extend
from svcd.node.assembly import Proposal, assemble, by_fee
from svcd.node.changes import Standing
from svcd.node.connector import ChainView
from svcd.node.ledger import Chain, Ledger
from svcd.node.search import Search
from svcd.node.transfers import Transfers
from svcd.node.verifier import Verifier
from svcd.ports import Clock, milliseconds

_BATCH: Final = 16
"""Blocks made and handed in together: few enough that what is made is not often overtaken by others' blocks."""
_ATTEMPTS: Final = 3
"""How often blocks are made before others' blocks have come first too often."""
MAX_BLOCKS: Final = 10_000
MAX_DEPTH: Final = 1_000


class OnDemand:
    """Makes the blocks of a devnet when asked; one request after the other."""

    def __init__(
        self,
        ledger: Ledger,
        chain: Chain,
        *,
        transfers: Transfers,
        verifier: Verifier,
        random: Callable[[int], bytes],
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._chain = chain
        self._verifier = verifier
        self._transfers = transfers
        self._random = random
        self._clock = clock
        self._turn = DeferredLock()

    @property
    def params(self) -> NetworkParams:
        """The network's parameters."""
        return self._ledger.params

    async def mine(self, count: int, seed: bytes) -> list[bytes]:
        """The hashes of ``count`` new blocks on the tip that hold what waits, signed and paid by ``seed``'s key.

        Raises RuleViolation(SLOT) where the chain has caught up with the clock, NotYet(BUSY) where others' blocks come
        so fast that these do not get into the chain.
        """
        return await self._turn.run(self._mine, count, seed)

    async def _mine(self, count: int, seed: bytes) -> list[bytes]:
        hashes: list[bytes] = []
        while len(hashes) < count:
            hashes += await self._make(min(count - len(hashes), _BATCH), seed, self._waiting)
        return hashes

    def _waiting(self) -> list[Transfer]:
        # What is kept aside may be covered by what is mined before it, in these very blocks.
        return [*by_fee(self._transfers.mempool.lines()), *self._transfers.aside]

    async def reorganise(self, depth: int, seed: bytes, *, drop_transactions: bool) -> list[bytes]:
        """The hashes of ``depth`` + 1 empty blocks that take the place of the newest ``depth``.

        The transfers of the blocks that fall out wait again or, with ``drop_transactions``, are gone. Raises
        RuleViolation(HEIGHT) for a depth beyond the genesis, and what :meth:`mine` raises.
        """
        return await self._turn.run(self._reorganise, depth, seed, drop_transactions)

    async def _reorganise(self, depth: int, seed: bytes, drop_transactions: bool) -> list[bytes]:
        dropped: list[bytes] = []

        def look() -> list[Transfer]:
            height = self._ledger.tip.height
            if depth > height:
                raise RuleViolation(Refusal.HEIGHT, f"depth must be at most {height}, the height of the chain")
            if drop_transactions:
                dropped.extend(self._txids(range(height - depth + 1, height + 1)))
            return []

        hashes = await self._make(depth + 1, seed, look, without=depth)
        # Whoever mines next expects to find in the block what has fallen out.
        await self._transfers.settled()
        self._transfers.drop(dropped)
        return hashes

    async def faucet(self, recipient: str, amount: int) -> bytes:
        """The txid of a transfer of ``amount`` base units from the public faucet key; raises RuleViolation."""
        return await self._turn.run(self._faucet, recipient, amount)

    async def _faucet(self, recipient: str, amount: int) -> bytes:
        params = self.params
        decode_address(recipient, params.address_prefix, "recipient")
        sender = key_hash(public_key_of(FAUCET_SEED))
        account = self._ledger.reader.account(sender)
        if account is None:
            address = encode_address(sender, params.address_prefix)
            raise RuleViolation(Refusal.BALANCE, f"the faucet {address} has nothing on this network")
        nonce = self._transfers.mempool.pending_nonce(sender, account)
        now = milliseconds(self._clock)
        draft = Draft(recipient=recipient, amount=amount, fee=params.minimum_fee, nonce=nonce, timestamp=now)
        transfer = sign_transfer(draft, seed=FAUCET_SEED, params=params)
        await self._transfers.submit(transfer)
        return transfer.txid

    def _txids(self, heights: Sequence[int]) -> list[bytes]:
        blocks = [self._ledger.reader.canonical(height) for height in heights]
        found = [self._ledger.reader.block(block, self.params) for block in blocks if block]
        return [transfer.txid for block in found for transfer in block.transfers]

    async def _make(
        self, count: int, seed: bytes, waiting: Callable[[], list[Transfer]], *, without: int = 0
    ) -> list[bytes]:
        """The hashes of new blocks, all of them in the chain, in the place of its newest ``without``.

        They are made anew, with what is ``waiting`` then, if others' blocks came first.
        """
        for _ in range(_ATTEMPTS):
            blocks = await self._forge(count, seed, waiting(), without)
            outcomes = await self._ledger.submit_blocks(blocks)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
            # The first blocks of a branch may lie beside the chain until the last one turns the scales.
            if outcomes and outcomes[-1] is Standing.CONNECTED:
                return [block.header.hash for block in blocks]
        raise NotYet(Wait.BUSY, f"blocks of others came first {_ATTEMPTS} times; try again")

    async def _forge(self, count: int, seed: bytes, waiting: list[Transfer], without: int) -> list[Block]:
        """Blocks that fit on one another, and on the chain unless others' blocks come first; none if they have."""
        run, newest = self._chain.writer.run, self.params.slot_at(milliseconds(self._clock))
        view, slots = await run(self._begin, without)
        blocks: list[Block] = []
        for number in range(count):
            # In the slots of those that they replace blocks have the same work, and one more has more.
            slot = slots[number] if number < len(slots) else self._next_slot(view.tip, newest)
            proposal = await run(self._assemble, view, seed, slot, waiting)
            if proposal is None:
                return []
            block = await self._seal(proposal, seed)
            view.tip = extend(self.params, view.tip, block.header)
            held = {transfer.txid for transfer in block.transfers}
            waiting = [transfer for transfer in waiting if transfer.txid not in held]
            blocks.append(block)
        return blocks

    def _begin(self, depth: int) -> tuple[ChainView, list[int]]:
        """The chain without its newest ``depth`` blocks, and their slots."""
        connector = self._chain.connector
        height = connector.tip.height
        replaced = map(connector.store.canonical, range(height - depth + 1, height + 1))
        return connector.view(without=depth), [stored.point.slot for stored in replaced if stored]

    def _assemble(self, view: ChainView, seed: bytes, slot: int, waiting: Sequence[Transfer]) -> Proposal | None:
        return assemble(view, seed=seed, slot=slot, transfers=waiting) if self._chain.connector.is_true(view) else None

    def _next_slot(self, tip: ChainPoint, newest: int) -> int:
        params = self.params
        slot = min(tip.slot + params.slots_per_block, newest)
        if slot <= tip.slot:
            raise RuleViolation(
                Refusal.SLOT, f"the chain has caught up with the clock: try again in {params.slot_seconds} s"
            )
        return slot

    async def _seal(self, proposal: Proposal, seed: bytes) -> Block:
        nonce = None
        while nonce is None:
            start = int.from_bytes(self._random(8), "big")
            nonce = await Search(proposal.header, self.params.memory_kib, start).on(
                self._verifier, self._verifier.lanes
            )
        return proposal.sealed(nonce, seed)
