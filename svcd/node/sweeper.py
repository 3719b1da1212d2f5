"""Sweeps block rewards from the node's key to the operator's own address ([participation] payTo; docs/block-key.md).

A transfer restarts the holding period of its sender (docs/protocol.md 9), so the block key sends as seldom as
`sweepAbove` allows, and everything at once. :func:`plan_sweep` decides, as a pure function; :class:`Sweeper` asks it
after every change of the chain, signs the transfer, and submits it to the transaction pool like any other.

Of one surplus there are never two transfers: a sweep is planned only while no transfer of the key waits, and while none
is in the newest DEPTH blocks, so that two sweeps which a reorganisation of DEPTH blocks could bring together have the
same nonce. It spends only what the key had DEPTH blocks ago, so that such a reorganisation cannot take coins away that
the holding minimum needs.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

import apsw
from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from svcd.chain.accounts import Account
from svcd.chain.address import encode_address, key_hash
from svcd.chain.difficulty import multiplier
from svcd.chain.errors import RuleViolation
from svcd.chain.params import BASIS_POINTS, NetworkParams
from svcd.chain.signature import public_key_of
from svcd.chain.transaction import Draft, sign_transfer
from svcd.chain.units import format_amount
from svcd.interfaces import milliseconds
from svcd.node.changes import ChainChange
from svcd.node.fees import Fees
from svcd.node.mempool import MempoolEntry, Removals
from svcd.node.node_context import NodeContext
from svcd.node.tasks import TaskGroup
from svcd.node.transaction_pool import SubmitResult
from svcd.store.chain_store import ChainReader
from svcd.store.database import DiskError

DEPTH: Final = 60
"""A sweep spends what the key had so many blocks ago, and waits until the transfer before it is as deep."""
FEE_SHARE: Final = 1000
"""The fee of a sweep is at most one in so many base units of the surplus; the sweep waits for a lower one."""


class Held(StrEnum):
    """Why no sweep is due; the text is a clause for the operator."""

    SMALL = "the balance does not exceed the holding minimum by more than sweepAbove"
    NOT_DEEP = f"rewards or the last transfer of the key are not {DEPTH} blocks deep yet"
    WAITING = "a transfer of the key waits for a block"
    FEE = f"the fee that a transfer needs now is more than one {FEE_SHARE}th of the surplus"
    REFUSED = "the mempool or its disk refused it; the log has the reason"
    NOT_SYNCED = "the node is not in sync with the network"
    STOPPED = "the node starts or stops"


@frozen
class Sweep:
    """A sweep that is due: amount and fee in base units, and the nonce."""

    amount: int
    fee: int
    nonce: int


def surplus(params: NetworkParams, account: Account) -> int:
    """The base units of ``account`` above the holding minimum."""
    return max(account.balance - params.holding_minimum, 0)


def plan_sweep(params: NetworkParams, *, above: int, now: Account, deep: Account, fee: int) -> Sweep | Held:
    """The sweep that is due for the block key, or why none is.

    Args:
        above: base units; a surplus that exceeds them is swept.
        now: the account after the tip.
        deep: the account DEPTH blocks before, or after the genesis if that is later.
        fee: base units that a transfer needs now.
    """
    if surplus(params, now) <= above:
        return Held.SMALL
    # No transfer lies between the two, so the balance has only grown since.
    spendable = surplus(params, deep)
    if deep.nonce != now.nonce or spendable <= above:
        return Held.NOT_DEEP
    if fee * FEE_SHARE > spendable:
        return Held.FEE
    return Sweep(spendable - fee, fee, now.nonce)


def holding_loss(params: NetworkParams, age: int) -> int:
    """What a transfer costs a producer that has held the minimum for ``age`` slots, until it has held it as long again.

    In slots of the producer's rewards at the lowest multiplier, times 10,000: each step of the schedule is missed for
    as many slots as it takes to reach it again.
    """
    steps = pairwise(params.multiplier_schedule)
    return sum((points - before) * min(age, held) for (_, before), (held, points) in steps)


@frozen
class SweepSettings:
    """The configuration of a sweeper."""

    seed: bytes
    """The 32-byte seed of the block key."""
    pay_to: str
    """The address that gets the rewards; it is not that of the key."""
    above: int
    """Base units."""
    may_send: Callable[[], bool]
    """Whether the chain is the network's, as far as the node knows."""
    depth: int = DEPTH
    """Blocks."""


@frozen
class _SweepBasis:
    """What a plan depends on, of one commit."""

    tip: bytes
    now: Account
    deep: Account


class Sweeper(Service):
    """Sweeps the rewards of the block key while it runs."""

    log = Logger()

    def __init__(self, node: NodeContext, settings: SweepSettings) -> None:
        self._chain_manager, self._chain = node.chain_manager, node.chain
        self._transaction_pool, self._clock = node.transaction_pool, node.clock
        self._params = node.chain_manager.params
        self._settings = settings
        self._key = key_hash(public_key_of(settings.seed))
        self._tasks = TaskGroup()
        self._again = False
        self.held: Held | None = Held.STOPPED
        """Why there was no sweep at the last change of the chain; None if there was one."""
        self.sweeps = 0
        """How many sweeps the mempool has admitted since the start."""
        self.swept = 0
        """The base units that they pay."""
        self.last: bytes | None = None
        """The txid of the newest of them."""
        node.chain_manager.subscribe(self)
        node.transaction_pool.subscribe(self)

    def startService(self) -> None:
        """Sweep what is due, and again after each change of the chain."""
        super().startService()  # type: ignore[no-untyped-call]
        self._consider()

    def stopService(self) -> Deferred[None]:
        """Plan no further sweep; fires when the last one has been submitted. Cancelling it cancels no sweep."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._again = False
        return self._tasks.drained()

    @property
    def above(self) -> int:
        """The base units of surplus that must be exceeded."""
        return self._settings.above

    def surplus(self) -> int:
        """The base units of the key above the holding minimum, after the tip."""
        return surplus(self._params, self._account(self._chain_manager.reader))

    def record(self) -> dict[str, object]:
        """The state of the sweeps for the operator, as a JSON object; amounts in coins."""
        return {
            "unit": self._params.unit,
            "payTo": self._settings.pay_to,
            "sweepAbove": format_amount(self._settings.above),
            "surplus": format_amount(self.surplus()),
            "waitsFor": None if self.held is None else self.held.value,
            "transfers": self.sweeps,
            "lastTxid": None if self.last is None else self.last.hex(),
        }

    def chain_changed(self, change: ChainChange) -> None:
        """Look whether a sweep is due."""
        self._consider()

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        """Look whether a sweep is due once a transfer of the key has left the mempool, by expiry for instance."""
        if any(entry.transfer.sender == self._key for entry in removed):
            self._consider()

    def _consider(self) -> None:
        if not self.running:
            return
        self._again = True
        if not self._tasks.busy:
            self._tasks.start(self._work()).addErrback(
                lambda failure: self.log.failure("sweeping the rewards failed; the next block tries again", failure)
            )

    async def _work(self) -> None:
        while self._again:
            self._again = False
            self.held = await self._sweep()

    async def _sweep(self) -> Held | None:
        """Submit the sweep that is due, if one is."""
        if surplus(self._params, self._account(self._chain_manager.reader)) <= self._settings.above:
            return Held.SMALL
        if (held := self._held()) is not None:
            return held
        read = await self._chain.long_reads.ask(self._read)
        if read.tip != self._chain_manager.tip.hash:
            # Committed and not published yet: the change that follows looks again.
            return Held.NOT_DEEP
        fee = Fees(self._chain_manager, self._transaction_pool.mempool).suggested()
        planned = plan_sweep(self._params, above=self._settings.above, now=read.now, deep=read.deep, fee=fee)
        # From here to the submission in one turn: a transfer that another program signs with the key comes before this
        # one, or finds it waiting.
        held = planned if isinstance(planned, Held) else self._held()
        if held is not None or isinstance(planned, Held):
            return held
        return await self._submit(planned, read.now)

    def _held(self) -> Held | None:
        if not self.running:
            return Held.STOPPED
        if not self._settings.may_send():
            return Held.NOT_SYNCED
        return Held.WAITING if self._transaction_pool.has_from(self._key) else None

    async def _submit(self, planned: Sweep, account: Account) -> Held | None:
        params, pay_to = self._params, self._settings.pay_to
        draft = Draft(
            recipient=pay_to,
            amount=planned.amount,
            fee=planned.fee,
            nonce=planned.nonce,
            timestamp=milliseconds(self._clock),
        )
        transfer = sign_transfer(draft, seed=self._settings.seed, params=params)
        slot = self._chain_manager.tip.slot
        try:
            result = await self._transaction_pool.submit(transfer)
        except RuleViolation as refusal:
            self.log.warn(
                "the sweep of {amount} {unit} to {payee} was refused: {why}",
                amount=format_amount(planned.amount),
                unit=params.unit,
                payee=pay_to,
                why=str(refusal),
            )
            return Held.REFUSED
        except (apsw.Error, DiskError):
            # The pool has reported it; the node tries the disk again by itself.
            return Held.REFUSED
        if result is SubmitResult.ACCEPTED:
            self.sweeps += 1
            self.swept += planned.amount
            self.last = transfer.txid
            self.log.info(
                "sweeping {amount} {unit} from {address} to {payee} in transfer {txid}, for a fee of {fee} {unit}; the "
                "holding multiplier of {before} begins again at {after}, which costs as much as {hours} hours of "
                "rewards",
                amount=format_amount(planned.amount),
                unit=params.unit,
                address=encode_address(self._key, params.address_prefix),
                payee=pay_to,
                txid=transfer.txid.hex(),
                fee=format_amount(planned.fee),
                before=multiplier(params, account, slot),
                after=BASIS_POINTS,
                hours=self._lost_hours(account, slot),
            )
        return None

    def _lost_hours(self, account: Account, slot: int) -> int:
        age = 0 if account.held_since is None else max(slot - account.held_since, 0)
        return holding_loss(self._params, age) * self._params.slot_seconds // (BASIS_POINTS * 3600)

    def _read(self, reader: ChainReader) -> _SweepBasis:
        tip = reader.existing_tip()
        height = max(tip.height - self._settings.depth, 0)
        # Where the blocks since then are not all here, as after a start from a snapshot, nothing counts as settled.
        known = height + 1 >= reader.prune_height()
        deep = reader.account_after(self._key, height) if known else None
        return _SweepBasis(tip.hash, self._account(reader), deep or Account())

    def _account(self, reader: ChainReader) -> Account:
        return reader.account(self._key) or Account()
