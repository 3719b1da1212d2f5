"""The state of a payment, computed from what chain and mempool show (docs/payments.md).

Pure functions: svcd.commerce.payment_lookup reads chain and mempool. What each verification makes anew is a tuple,
since making an instance of a frozen class takes twice the time.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from attrs import frozen

from svcd.chain.units import format_amount
from svcd.commerce.payment_request import PaymentTerms

HIGH_VALUE_CONFIRMATIONS: Final = 30
"""Recommended for large amounts."""
SETTLEMENT_MODEL: Final = "canonical-chain-depth"
DESCRIPTION: Final = (
    "Experimental, no hard finality: a reorganisation can undo any payment, even one that is confirmed."
)
"""The warning for merchants and buyers about every payment (docs/payments.md)."""
MAX_MISMATCHES: Final = 10
"""Transfers of a wrong amount that a verification lists."""
MAX_COUNTED: Final = 32
"""Matching transfers that are counted, so that paying often cannot make verification slow."""
HASHES_PER_CORE_SECOND: Final = 138
"""Argon2id with the 8 MiB of mainnet on one core of a server of 2026 (docs/performance.md "Figures")."""
HASHES_PER_CORE_HOUR: Final = HASHES_PER_CORE_SECOND * 3600


class PaymentState(StrEnum):
    """The state of a payment, as this node sees it now."""

    UNPAID = "unpaid"
    PENDING = "pending"
    CONFIRMING = "confirming"
    CONFIRMED = "confirmed"


class PaymentLocation(NamedTuple):
    """The block of the canonical chain that has a payment, and its position there."""

    txid: bytes
    block_hash: bytes
    height: int
    position: int
    block_time: int
    """Start of the block's slot, Unix milliseconds."""


class ChainTip(NamedTuple):
    """The newest canonical block."""

    height: int
    hash: bytes


class Mismatch(NamedTuple):
    """A transfer with the order's reference and recipient but another amount, perhaps by mistake."""

    txid: bytes
    amount: int
    height: int | None
    """Of its block; None while it is in the mempool."""


@frozen(cache_hash=True)
class PaymentWork:
    """The work between a payment and an attacker who wants to undo it (svcd/commerce/reorg_cost.py)."""

    hashes: int
    """The expected hashes for the payment's block and those on top of it."""
    hashes_per_block: int
    """Those of a block today, at least 1."""


WorkOf = Callable[[bytes, ChainTip], PaymentWork | None]
"""Returns the work from the block with a hash up to a tip; None if the node has dropped one of them."""


class Observation(NamedTuple):
    """The transfers of a payment on the chain and in the mempool at one moment."""

    tip: ChainTip
    location: PaymentLocation | None = None
    """Of the first matching transfer on the chain."""
    pending: bytes | None = None
    """The txid of the first matching transfer in the mempool, if none is on the chain."""
    arrival: int | None = None
    """When the payment came into the mempool, in Unix milliseconds; None if that is unknown, or was not asked for."""
    match_count: int = 0
    """Matching transfers on the chain and in the mempool, counted up to MAX_COUNTED."""
    mismatches: tuple[Mismatch, ...] = ()
    synced: bool = True
    """Whether the node's chain was the network's, as far as the node knew."""
    work: PaymentWork | None = None
    """None if the payment is in no block. It follows from tip and location."""

    @property
    def confirmations(self) -> int:
        """The payment's depth on the chain: 1 in the newest block, 0 in none."""
        return 0 if self.location is None else self.tip.height - self.location.height + 1

    @property
    def txid(self) -> bytes | None:
        """The transfer that counts as the payment."""
        return self.pending if self.location is None else self.location.txid


def observe(
    terms: PaymentTerms,
    tip: ChainTip,
    *,
    locations: Iterable[PaymentLocation] = (),
    pending: Sequence[bytes] = (),
    mismatches: Sequence[Mismatch] = (),
    synced: bool = True,
    work_of: WorkOf | None = None,
) -> Observation:
    """The observation of a payment from its matching transfers on the chain and, by arrival, in the mempool.

    The payment is the transfer with the lowest (height, position), or else the first that arrived. Of the
    ``mismatches``, those with the nearest amounts are kept.
    """
    counted = list(locations)
    if terms.since_height is not None:
        counted = [each for each in counted if not terms.excludes(each.height)]
    if len(counted) > 1:
        counted.sort(key=lambda location: (location.height, location.position))
    waiting = pending
    if counted and pending:
        # A transfer may be in both: the mempool hears of a block only after its commit.
        on_chain = {location.txid for location in counted}
        waiting = [txid for txid in pending if txid not in on_chain]
    return Observation(
        tip,
        location=counted[0] if counted else None,
        pending=waiting[0] if waiting and not counted else None,
        match_count=min(len(counted) + len(waiting), MAX_COUNTED),
        mismatches=_nearest(terms, mismatches) if mismatches else (),
        synced=synced,
        work=work_of(counted[0].block_hash, tip) if counted and work_of else None,
    )


def _nearest(terms: PaymentTerms, mismatches: Iterable[Mismatch]) -> tuple[Mismatch, ...]:
    """The mismatches nearest to the right amount, where honest mistakes are, however many other transfers arrive."""
    by_txid: dict[bytes, Mismatch] = {}
    for mismatch in mismatches:
        if mismatch.height is not None or mismatch.txid not in by_txid:
            by_txid[mismatch.txid] = mismatch
    nearest = sorted(by_txid.values(), key=lambda mismatch: (abs(mismatch.amount - terms.amount), mismatch.txid))
    return tuple(nearest[:MAX_MISMATCHES])


def payment_state(terms: PaymentTerms, observation: Observation) -> PaymentState:
    """The state that ``observation`` shows."""
    if observation.location is None:
        return PaymentState.UNPAID if observation.pending is None else PaymentState.PENDING
    return PaymentState.CONFIRMED if observation.confirmations >= terms.required else PaymentState.CONFIRMING


def told_state(terms: PaymentTerms, observation: Observation) -> PaymentState:
    """The state that events and pages report: confirmed only while the node is in sync and has the newest blocks."""
    state = payment_state(terms, observation)
    return PaymentState.CONFIRMING if state is PaymentState.CONFIRMED and not observation.synced else state


def payment_record(terms: PaymentTerms, observation: Observation, state: PaymentState) -> dict[str, object]:
    """The API's form of a payment in ``state`` (docs/payments.md)."""
    record: dict[str, object] = json.loads(payment_json(terms, observation, state))
    return record


def payment_json(terms: PaymentTerms, observation: Observation, state: PaymentState) -> str:
    """The same as JSON, written in a sixth of the time of an encoder: no text in it has a character to escape."""
    tip, location = observation.tip, observation.location
    mismatches = ",".join([_mismatch_json(mismatch, tip) for mismatch in observation.mismatches])
    members = [
        f'{{"state":"{state.value}","canonical":{_JSON_BOOL[location is not None]},"recipient":"{terms.recipient}",'
        f'"amount":"{terms.amount}","amountSvc":"{format_amount(terms.amount)}","reference":"{terms.reference}",'
        f'"confirmations":{observation.confirmations},"requiredConfirmations":{terms.required},"hardFinality":false,'
        f'"settlementModel":"{SETTLEMENT_MODEL}","matchCount":{observation.match_count},"mismatches":[{mismatches}],'
        f"{tip_json(tip, observation.synced)}"
    ]
    txid = observation.txid
    if txid is not None:
        members.append(f',"txid":"{txid.hex()}"')
    if location is not None:
        members.append(
            f',"blockHash":"{location.block_hash.hex()}","blockHeight":"{location.height}",'
            f'"blockTime":"{location.block_time}"'
        )
    if observation.work is not None:
        members.append(f',"work":{_work_json(observation.work)}')
    if terms.since_height is not None:
        members.append(f',"sinceHeight":"{terms.since_height}"')
    return "".join(members) + "}"


_JSON_BOOL: Final = ("false", "true")


def _mismatch_json(mismatch: Mismatch, tip: ChainTip) -> str:
    confirmations = 0 if mismatch.height is None else tip.height - mismatch.height + 1
    return (
        f'{{"txid":"{mismatch.txid.hex()}","amount":"{mismatch.amount}",'
        f'"amountSvc":"{format_amount(mismatch.amount)}","confirmations":{confirmations}}}'
    )


@lru_cache(16)
def tip_json(tip: ChainTip, synced: bool) -> str:
    """The members ``tip`` and ``node`` of answers; the same for all payments until the next block."""
    at = f'"height":"{tip.height}","hash":"{tip.hash.hex()}"'
    return f'"tip":{{{at}}},"node":{{{at},"synced":{_JSON_BOOL[synced]}}}'


@lru_cache(1_024)
def _work_json(work: PaymentWork) -> str:
    # All payments in a block have the same.
    return json.dumps(work_record(work), separators=(",", ":"))


def work_record(work: PaymentWork) -> dict[str, object]:
    """The API's form of the work of a payment."""
    return {
        "hashesToUndo": str(work.hashes),
        "coreHoursToUndo": _decimal(work.hashes * 10_000 // HASHES_PER_CORE_HOUR, 4),
        "workConfirmations": _decimal(work.hashes * 100 // work.hashes_per_block, 2),
    }


def _decimal(units: int, places: int) -> str:
    whole, rest = divmod(units, 10**places)
    return f"{whole}.{rest:0{places}}"
