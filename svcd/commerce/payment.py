"""When a transfer is the payment of an order, and how far it has come (docs/payments.md "Verification").

Functions of values: whoever asks has looked at chain and mempool, and hands in what there was to see.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from attrs import field, frozen

from svcd.chain.address import decode_address
from svcd.chain.transaction import Transfer
from svcd.chain.units import format_amount

DEFAULT_CONFIRMATIONS: Final = 12
HIGH_VALUE_CONFIRMATIONS: Final = 30
"""What is advised for large amounts."""
MAX_CONFIRMATIONS: Final = 1_000
SETTLEMENT_MODEL: Final = "canonical-chain-depth"
MAX_MISMATCHES: Final = 10
"""Transfers of another amount that are shown."""
MAX_COUNTED: Final = 32
"""So far are matching transfers counted: nobody can make a question dear by paying often."""


class State(StrEnum):
    """How far a payment has come, by what the node sees now."""

    UNPAID = "unpaid"
    PENDING = "pending"
    CONFIRMING = "confirming"
    CONFIRMED = "confirmed"


@frozen
class Terms:
    """What an order asks for; a transfer that differs in reference, recipient or amount is no payment of it."""

    reference: str
    recipient: str
    """The address."""
    amount: int
    """Base units."""
    required: int = DEFAULT_CONFIRMATIONS
    """The depth at which the payment counts as settled: 1 for the newest block."""
    since_height: int | None = None
    """Transfers in blocks below this height do not count."""
    key: bytes = field(repr=False)
    """The recipient's 20-byte key hash, which is what transfers have; whoever knows it may save reading it anew."""

    @key.default
    def _key_of_recipient(self) -> bytes:
        # Of whatever network the address is: that it is this node's has been checked where the address came in.
        return decode_address(self.recipient, self.recipient.partition("1")[0], "recipient")


@frozen
class Place:
    """Where a transfer stands on the canonical chain."""

    txid: bytes
    block_hash: bytes
    height: int
    position: int
    block_time: int
    """Unix milliseconds at which the block's slot begins."""


@frozen
class Tip:
    """The newest canonical block."""

    height: int
    hash: bytes


@frozen
class Mismatch:
    """A transfer to the recipient under the reference, but of another amount: a mistake of whoever pays, perhaps."""

    txid: bytes
    amount: int
    height: int | None
    """Of its block; None while it waits in the mempool."""


@frozen
class Sighting:
    """What one look at chain and mempool shows of a payment."""

    tip: Tip
    place: Place | None = None
    """The first matching transfer on the chain."""
    pending: bytes | None = None
    """Without one on the chain: the txid of the first matching transfer that waits."""
    match_count: int = 0
    """Matching transfers on the chain and waiting; no more than MAX_COUNTED are counted."""
    mismatches: tuple[Mismatch, ...] = ()

    @property
    def confirmations(self) -> int:
        """How deep the payment lies on the chain: 1 in the newest block, 0 if it is in none."""
        return 0 if self.place is None else self.tip.height - self.place.height + 1

    @property
    def txid(self) -> bytes | None:
        """The transfer that is taken for the payment."""
        return self.pending if self.place is None else self.place.txid


def matches(terms: Terms, transfer: Transfer) -> bool:
    """Whether ``transfer`` pays the order: reference, recipient and amount are what was asked for."""
    return (transfer.reference, transfer.recipient, transfer.amount) == (terms.reference, terms.key, terms.amount)


def is_old(terms: Terms, height: int) -> bool:
    """Whether a transfer in a block at ``height`` is from before the order, and does not count."""
    return terms.since_height is not None and height < terms.since_height


def sighting_of(
    terms: Terms,
    tip: Tip,
    *,
    places: Iterable[Place] = (),
    pending: Sequence[bytes] = (),
    mismatches: Iterable[Mismatch] = (),
) -> Sighting:
    """What is seen of a payment, from its matching transfers on the chain and, in order of arrival, in the mempool.

    The lowest (height, position) on the chain is the payment, whatever came later; else the first that arrived. Of the
    ``mismatches`` those with the nearest amounts are kept.
    """
    valid = [each for each in places if not is_old(terms, each.height)]
    valid.sort(key=lambda place: (place.height, place.position))
    # Between a commit and the moment in which the mempool hears of it, a transfer can be in both.
    placed = {place.txid for place in valid}
    waiting = [txid for txid in pending if txid not in placed]
    return Sighting(
        tip,
        place=valid[0] if valid else None,
        pending=waiting[0] if waiting and not valid else None,
        match_count=min(len(valid) + len(waiting), MAX_COUNTED),
        mismatches=_nearest(terms, mismatches),
    )


def _nearest(terms: Terms, mismatches: Iterable[Mismatch]) -> tuple[Mismatch, ...]:
    """Somebody may send a thousand other amounts; an honest mistake is near the right one."""
    seen: dict[bytes, Mismatch] = {}
    for mismatch in mismatches:
        if mismatch.height is not None or mismatch.txid not in seen:
            seen[mismatch.txid] = mismatch
    nearest = sorted(seen.values(), key=lambda mismatch: (abs(mismatch.amount - terms.amount), mismatch.txid))
    return tuple(nearest[:MAX_MISMATCHES])


def state_of(terms: Terms, sighting: Sighting) -> State:
    """How far the payment has come."""
    if sighting.place is None:
        return State.UNPAID if sighting.pending is None else State.PENDING
    return State.CONFIRMED if sighting.confirmations >= terms.required else State.CONFIRMING


def payment_record(terms: Terms, sighting: Sighting) -> dict[str, object]:
    """The result of a verification as clients read it (docs/payments.md "Verification")."""
    record: dict[str, object] = {
        "state": state_of(terms, sighting).value,
        "canonical": sighting.place is not None,
        "recipient": terms.recipient,
        "amount": str(terms.amount),
        "amountSvc": format_amount(terms.amount),
        "reference": terms.reference,
        "confirmations": sighting.confirmations,
        "requiredConfirmations": terms.required,
        "hardFinality": False,
        "settlementModel": SETTLEMENT_MODEL,
        "matchCount": sighting.match_count,
        "mismatches": [_mismatch_record(mismatch, sighting.tip) for mismatch in sighting.mismatches],
        "tip": {"height": str(sighting.tip.height), "hash": sighting.tip.hash.hex()},
    }
    if sighting.txid is not None:
        record["txid"] = sighting.txid.hex()
    if sighting.place is not None:
        record["blockHash"] = sighting.place.block_hash.hex()
        record["blockHeight"] = str(sighting.place.height)
        record["blockTime"] = str(sighting.place.block_time)
    if terms.since_height is not None:
        record["sinceHeight"] = str(terms.since_height)
    return record


def _mismatch_record(mismatch: Mismatch, tip: Tip) -> dict[str, object]:
    return {
        "txid": mismatch.txid.hex(),
        "amount": str(mismatch.amount),
        "amountSvc": format_amount(mismatch.amount),
        "confirmations": 0 if mismatch.height is None else tip.height - mismatch.height + 1,
    }
