"""Webhook events: their types, ids, and the bodies that are signed and sent (docs/webhook-reference.md "The body")."""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Final

from attrs import frozen

from svcd.chain.encoding import canonical
from svcd.chain.units import format_amount
from svcd.commerce.payment import Observation, PaymentState, payment_record
from svcd.commerce.payment_request import PaymentTerms
from svcd.store.webhook_events import EventRule


class EventType(StrEnum):
    """The types of events, as receivers read them."""

    PENDING = "payment.pending"
    CONFIRMING = "payment.confirming"
    CONFIRMED = "payment.confirmed"
    REORGED = "payment.reorged"
    EXPIRED = "payment.expired"
    DROPPED = "payment.dropped"
    MISMATCHED = "payment.mismatched"
    ALARM = "node.alarm"


DEFAULT_EVENTS: Final = frozenset(EventType) - {EventType.DROPPED, EventType.ALARM}
"""The events of a watch whose registration names none."""
_PROGRESS: Final = frozenset({EventType.PENDING, EventType.CONFIRMING, EventType.DROPPED})
EVENT_RULES: Final[Mapping[str, EventRule]] = {
    EventType.PENDING: EventRule(supersedes=_PROGRESS),
    EventType.CONFIRMING: EventRule(supersedes=_PROGRESS),
    EventType.CONFIRMED: EventRule(supersedes=_PROGRESS | {EventType.REORGED}, urgent=True),
    EventType.REORGED: EventRule(supersedes=_PROGRESS | {EventType.CONFIRMED, EventType.REORGED}, urgent=True),
    EventType.EXPIRED: EventRule(supersedes=_PROGRESS),
    EventType.DROPPED: EventRule(supersedes=_PROGRESS),
    EventType.MISMATCHED: EventRule(aside=True),
    EventType.ALARM: EventRule(aside=True),
}
"""What an event reports of a superseded one is no longer true, or its consequences are over. Only a later
``payment.confirmed`` ends those of a ``payment.reorged``. Events aside do not change the payment's state."""


@frozen
class NodeAlarm:
    """A condition of the chain or the node that merchants should know."""

    kind: str
    """Such as ``deep-reorganisation``."""
    sentence: str
    """For people."""


@frozen(kw_only=True)
class MismatchedTransfer:
    """A canonical transfer to an order's recipient under its reference that does not pay it."""

    txid: bytes
    sender: str
    """Address."""
    amount: int
    kind: str
    """A value of svcd.commerce.payment_list.AmountMismatch, or LATE."""
    more: bool = False
    """Whether this is the last event of its type from the watch; further mismatches get none."""


LATE: Final = "late"
"""The kind of a transfer of the right amount that came after its watch had ended."""


class DropReason(StrEnum):
    """Why a pending payment has left the mempool without a block."""

    REPLACED = "replaced"
    """Another transfer of the sender has its nonce."""
    EXPIRED = "expired"
    """Its timestamp is too old for any block."""
    EVICTED = "evicted"
    """There was no room for it, or the sender's balance is too small by now."""
    UNKNOWN = "unknown"
    """The node was down, or another node was the leader, when it left."""


@frozen
class Drop:
    """How a pending payment has left the mempool."""

    reason: DropReason
    txid: bytes | None = None
    """Its own; None if it is not known any more."""
    replaced_by: bytes | None = None
    """The txid of the transfer in its place, in the mempool or in a block; None if there is none, or none is found."""


UNKNOWN_DROP: Final = Drop(DropReason.UNKNOWN)


@frozen(kw_only=True)
class WebhookEvent:
    """One event of a watch, before it is stored."""

    type: EventType
    epoch: int
    sequence: int
    state: PaymentState
    """The payment's state that the event reports."""
    previous_state: PaymentState
    """The one that the events before it reported."""
    initial: bool
    """Whether it reports the state at the beginning of the watch, not a change."""
    observation: Observation
    alarm: NodeAlarm | None = None
    """The alarm of a ``node.alarm``, in addition to the payment."""
    mismatch: MismatchedTransfer | None = None
    """The transfer of a ``payment.mismatched``, in addition to the payment."""
    drop: Drop | None = None
    """Of a ``payment.dropped``, in addition to the payment."""


@frozen(kw_only=True)
class ChainIdentity:
    """The chain that events are about."""

    network_id: int
    chain_id: str
    genesis_hash: bytes


def event_id(watch_id: str, epoch: int, sequence: int) -> str:
    """``svcevt_`` and 32 hex characters, always the same for the same event."""
    return "svcevt_" + sha256(f"{watch_id}.{epoch}.{sequence}".encode("ascii")).hexdigest()[:32]


def event_body(event: WebhookEvent, *, chain: ChainIdentity, watch_id: str, terms: PaymentTerms, now: int) -> bytes:
    """The event as compact JSON of at most 4 KiB; ``now`` is the time of its creation in Unix milliseconds."""
    payment = payment_record(terms, event.observation, event.state)
    tip, node = payment.pop("tip"), payment.pop("node")
    return canonical(
        {
            "id": event_id(watch_id, event.epoch, event.sequence),
            "event": event.type.value,
            "createdAt": str(now),
            "networkId": chain.network_id,
            "chainId": chain.chain_id,
            "genesisHash": chain.genesis_hash.hex(),
            "subscriptionId": watch_id,
            "epoch": event.epoch,
            "sequence": event.sequence,
            "initial": event.initial,
            "previousState": event.previous_state.value,
            "payment": payment,
            "tip": tip,
            "node": node,
            **_subject(event),
        }
    )


def event_summary(event: WebhookEvent) -> dict[str, object]:
    """What the list of events shows of an event besides its delivery, under the names of the body."""
    observation, location = event.observation, event.observation.location
    payment: dict[str, object] = {"state": event.state.value, "confirmations": observation.confirmations}
    if observation.txid is not None:
        payment["txid"] = observation.txid.hex()
    if location is not None:
        payment |= {"blockHash": location.block_hash.hex(), "blockHeight": str(location.height)}
    tip = {"height": str(observation.tip.height), "hash": observation.tip.hash.hex()}
    return {"payment": payment, "tip": tip, **_subject(event)}


def _subject(event: WebhookEvent) -> dict[str, object]:
    """What the event is about besides the payment."""
    alarm = event.alarm
    return {
        **({} if alarm is None else {"alarm": {"kind": alarm.kind, "sentence": alarm.sentence}}),
        **({} if event.mismatch is None else {"mismatch": _mismatch_record(event.mismatch)}),
        **({} if event.drop is None else {"dropped": _drop_record(event.drop)}),
    }


def _drop_record(drop: Drop) -> dict[str, object]:
    record: dict[str, object] = {"reason": drop.reason.value}
    if drop.txid is not None:
        record["txid"] = drop.txid.hex()
    if drop.replaced_by is not None:
        record["replacedBy"] = drop.replaced_by.hex()
    return record


def _mismatch_record(mismatch: MismatchedTransfer) -> dict[str, object]:
    return {
        "txid": mismatch.txid.hex(),
        "sender": mismatch.sender,
        "amount": str(mismatch.amount),
        "amountSvc": format_amount(mismatch.amount),
        "kind": mismatch.kind,
        **({"more": True} if mismatch.more else {}),
    }
