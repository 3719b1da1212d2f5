"""Orders, payments and webhooks as values; money in base units, times in Unix milliseconds."""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote, urlencode

from svc_pay._svcd.visible_text import shown
from svc_pay.chain import (
    MAX_CONFIRMATIONS,
    Network,
    check_address,
    check_amount,
    check_number,
    check_reference,
    format_amount,
    network_of,
)
from svc_pay.errors import InvalidAnswer, InvalidInput
from svc_pay.members import Members

DEFAULT_CONFIRMATIONS: Final = 12
_OF_RECIPIENT: Any = None
"""What stands for the network of an order until that is read from its recipient: an order always has one."""
_MISMATCHES: Final = ("too-little", "too-much", "duplicate")
_DECIMAL: Final = re.compile(r"[0-9]{1,20}\.[0-9]{1,8}")


class State(StrEnum):
    """The state of a payment; a reorganisation can turn it back at any time."""

    UNPAID = "unpaid"
    PENDING = "pending"
    CONFIRMING = "confirming"
    CONFIRMED = "confirmed"

    @property
    def rank(self) -> int:
        """0 for unpaid up to 3 for confirmed."""
        return list(State).index(self)


def _state(text: str) -> State:
    try:
        return State(text)
    except ValueError:
        raise InvalidAnswer(f"{shown(text)!r} is not a state of a payment") from None


@dataclass(frozen=True, slots=True)
class Order:
    """What a shop asks to be paid, from its own records; a transfer pays it only if all three agree exactly."""

    reference: str
    """Unique in the shop: 1 to 64 of ``A-Z a-z 0-9 . _ : -``."""
    recipient: str
    """The address of the shop."""
    amount: int
    """Base units."""
    confirmations: int = DEFAULT_CONFIRMATIONS
    """How many the shop requires, 1 to 1000."""
    since_height: int | None = None
    """Transfers in blocks below this height do not count."""
    network: Network = field(default=_OF_RECIPIENT, repr=False)
    """The network of the recipient; it must be given unless that is mainnet or devnet."""

    def __post_init__(self) -> None:
        check_reference(self.reference)
        given: object = self.network
        if given is None:
            object.__setattr__(self, "network", network_of(self.recipient))
        elif not isinstance(given, Network):
            raise InvalidInput("network must be MAINNET, DEVNET or a network that read_network has returned")
        check_address(self.recipient, self.network)
        check_amount(self.amount)
        check_number(self.confirmations, "confirmations", least=1, greatest=MAX_CONFIRMATIONS)
        if self.since_height is not None:
            check_number(self.since_height, "since_height")

    def query(self) -> dict[str, str]:
        """The parameters of a verification."""
        query = {
            "recipient": self.recipient,
            "amountBaseUnits": str(self.amount),
            "confirmations": str(self.confirmations),
        }
        return query if self.since_height is None else {**query, "sinceHeight": str(self.since_height)}


@dataclass(frozen=True, slots=True)
class PaymentRequest:
    """A payment request of a node: what the buyer gets."""

    order: Order
    """To be stored by the shop, ``since_height`` included."""
    payment_uri: str
    """For the buyer's wallet, as a link or a QR code."""
    checkout_path: str
    wallet_path: str
    label: str | None
    warning: str | None = None
    """Why nobody can pay the request now, in a sentence: the recipient has too few coins for so small an amount."""

    def checkout_url(self, node: str, *, return_url: str | None = None, until: int | None = None) -> str:
        """The checkout at ``node``, the URL under which buyers reach it.

        ``return_url`` is the https:// URL of a page of the shop, ``until`` the time at which the order expires.
        """
        more = {"returnUrl": return_url, "until": until}
        query = urlencode({name: value for name, value in more.items() if value is not None})
        return f"{node.rstrip('/')}{self.checkout_path}{query and '&'}{query}"

    @classmethod
    def of(cls, order: Order, label: str | None, warning: str | None = None) -> "PaymentRequest":
        """That of an order: what a buyer pays, and where, is decided by the shop and by no node.

        The forms are those of docs/wallets.md, "References and payment links", and of docs/pages.md of svcd.
        """
        coins = format_amount(order.amount)
        named = "" if label is None else f"&label={quote(label, safe='')}"
        uri = f"svc:{order.recipient}?amount={coins}&ref={order.reference}&confirmations={order.confirmations}{named}"
        query = {"reference": order.reference, "recipient": order.recipient, "amount": coins}
        query |= {"confirmations": str(order.confirmations)}
        if order.since_height is not None:
            query["sinceHeight"] = str(order.since_height)
        checkout = f"/pay/?{urlencode(query, quote_via=quote, safe='')}{named}"
        return cls(order, uri, checkout, f"/wallet/?pay={quote(uri, safe='')}", label, warning)


@dataclass(frozen=True, slots=True)
class Tip:
    """A block at the end of a chain."""

    height: int
    hash: str

    @classmethod
    def parse(cls, members: Members) -> "Tip":
        """From `tip` or `node`."""
        return cls(members.number("height"), members.hash("hash"))


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A transfer under the reference of an order that does not pay it."""

    txid: str
    amount: int
    kind: str | None = None
    """``too-little``, ``too-much``, ``duplicate`` or ``late``; only in an event."""
    sender: str | None = None
    """Only in an event."""
    more: bool = False
    """True if this is the last one that the watch reports: read the list of payments from now on."""

    @classmethod
    def parse(cls, members: Members, recipient: str | None = None) -> "Mismatch":
        """From `mismatch` of an event, or from one of `mismatches`; ``recipient`` is that of the order, if known."""
        kind = members.one_of("kind", *_MISMATCHES, "late")
        sender = members.address("sender", recipient) if "sender" in members else None
        more = "more" in members and members.flag("more")
        return cls(members.hash("txid"), members.amount(), kind, sender, more)


@dataclass(frozen=True, slots=True)
class Work:
    """What undoing a payment takes, as its node says: compare it with what the goods are worth."""

    hashes_to_undo: int
    """The expected hashes for the payment's block and those on top of it."""
    core_hours_to_undo: Decimal
    """The same in hours of one core."""
    work_confirmations: Decimal
    """The same in blocks of the work that a block has today."""

    @classmethod
    def parse(cls, members: Members) -> "Work":
        """From the member `work` of a payment."""
        hours, confirmations = (members.text(name) for name in ("coreHoursToUndo", "workConfirmations"))
        if not (_DECIMAL.fullmatch(hours) and _DECIMAL.fullmatch(confirmations)):
            raise InvalidAnswer("the work of a payment must be decimals")
        return cls(members.number("hashesToUndo"), Decimal(hours), Decimal(confirmations))


@dataclass(frozen=True, slots=True)
class Payment:
    """What a node knows about the payment of an order, at one moment."""

    state: State
    reference: str
    recipient: str
    amount: int
    confirmations: int
    required_confirmations: int
    canonical: bool
    """Whether a block of the chain has the transfer."""
    match_count: int
    """2 if it was paid twice: refund one of them."""
    mismatches: tuple[Mismatch, ...]
    tip: Tip | None
    """The newest block; in an event it is a member of the event."""
    synced: bool | None
    """Whether the node's chain is the network's; in an event it is a member of the event."""
    txid: str | None
    block_hash: str | None
    block_height: int | None
    block_time: int | None
    work: Work | None = None
    """None while no block has the transfer."""

    @property
    def settled(self) -> bool:
        """Whether the shop may deliver now: confirmed, on the chain of the network. It may still be undone later."""
        return self.state is State.CONFIRMED and self.synced is True

    @classmethod
    def parse(cls, members: Members, *, earlier: bool = False) -> "Payment":
        """From the member `payment` of an answer or an event.

        ``earlier`` is true for the events about something else than the payment, whose state may be that of an earlier
        moment than their confirmations.
        """
        payment = cls._read(members)
        deep = payment.canonical and payment.confirmations >= payment.required_confirmations
        if payment.state is State.CONFIRMED and not deep and not earlier:
            raise InvalidAnswer("a confirmed payment must be canonical and have the required confirmations")
        return payment

    @classmethod
    def _read(cls, members: Members) -> "Payment":
        recipient = members.address("recipient")
        return cls(
            state=_state(members.text("state")),
            reference=members.text("reference"),
            recipient=recipient,
            amount=members.amount(),
            confirmations=members.count("confirmations"),
            required_confirmations=members.count("requiredConfirmations"),
            canonical=members.flag("canonical"),
            match_count=members.count("matchCount"),
            mismatches=tuple(Mismatch.parse(each, recipient) for each in members.objects("mismatches")),
            tip=Tip.parse(members.object("tip")) if "tip" in members else None,
            synced=members.object("node").flag("synced") if "node" in members else None,
            txid=members.hash_or_none("txid"),
            block_hash=members.hash_or_none("blockHash"),
            block_height=members.number_or_none("blockHeight"),
            block_time=members.number_or_none("blockTime"),
            work=Work.parse(members.object("work")) if "work" in members else None,
        )


@dataclass(frozen=True, slots=True)
class ReceivedTransfer:
    """A transfer to an address, whether or not it pays an order."""

    txid: str
    sender: str
    reference: str | None
    amount: int
    canonical: bool
    confirmations: int
    block_height: int | None
    mismatch: str | None
    """``too-little``, ``too-much`` or ``duplicate``; only if the amount of the order was given."""
    block_hash: str | None = None
    block_time: int | None = None

    @classmethod
    def parse(cls, members: Members, recipient: str | None = None) -> "ReceivedTransfer":
        """From one of `payments`, of the transfers to ``recipient``."""
        return cls(
            txid=members.hash("txid"),
            sender=members.address("sender", recipient),
            reference=members.text_or_none("reference"),
            amount=members.amount(),
            canonical=members.flag("canonical"),
            confirmations=members.count("confirmations"),
            block_height=members.number_or_none("blockHeight"),
            mismatch=members.one_of("mismatch", *_MISMATCHES),
            block_hash=members.hash_or_none("blockHash"),
            block_time=members.number_or_none("blockTime"),
        )


@dataclass(frozen=True, slots=True)
class Account:
    """The account of an address."""

    address: str
    balance: int
    nonce: int
    pending_nonce: int
    """The nonce for a new transfer."""
    pending_balance: int
    held_since: int | None = None
    """The slot since which it has held the minimum balance; matters to block producers only."""

    @classmethod
    def parse(cls, members: Members) -> "Account":
        """From the member `account` of an answer."""
        numbers = members.number
        return cls(
            members.text("address"),
            numbers("balance"),
            numbers("nonce"),
            numbers("pendingNonce"),
            numbers("pendingBalance"),
            members.number_or_none("heldSince"),
        )


_ENDINGS: Final = ("superseded", "refused", "abandoned", "dropped")


@dataclass(frozen=True, slots=True)
class Alarm:
    """A warning of the node about the chain."""

    kind: str
    """``outage``, ``deep-reorganisation`` or ``standstill``."""
    sentence: str

    @classmethod
    def parse(cls, members: Members) -> "Alarm":
        """From the member `alarm` of an event."""
        return cls(members.text("kind"), members.sentence("sentence"))


@dataclass(frozen=True, slots=True)
class Drop:
    """How a pending payment has left the mempool without a block."""

    reason: str
    """``replaced``, ``expired``, ``evicted`` or ``unknown``."""
    txid: str | None
    """Of the transfer that left; None if the node does not know it any more."""
    replaced_by: str | None
    """The transfer in its place, in the mempool or in a block; None if there is none."""

    @classmethod
    def parse(cls, members: Members) -> "Drop":
        """From the member `dropped` of an event."""
        return cls(members.text("reason"), members.hash_or_none("txid"), members.hash_or_none("replacedBy"))


@dataclass(frozen=True, slots=True)
class DeliveryContent:
    """What an event says, in short."""

    state: str
    confirmations: int
    txid: str | None
    block_hash: str | None
    """Of the payment's block."""
    block_height: int | None
    tip: Tip
    """The newest block, which has brought the event about."""
    mismatch: Mismatch | None
    dropped: Drop | None
    alarm: Alarm | None

    @classmethod
    def parse(cls, members: Members, recipient: str | None = None) -> "DeliveryContent":
        """From the member `content` of an event in a list; ``recipient`` is that of the order, if known."""
        payment = members.object("payment")
        return cls(
            state=payment.text("state"),
            confirmations=payment.count("confirmations"),
            txid=payment.hash_or_none("txid"),
            block_hash=payment.hash_or_none("blockHash"),
            block_height=payment.number_or_none("blockHeight"),
            tip=Tip.parse(members.object("tip")),
            mismatch=Mismatch.parse(members.object("mismatch"), recipient) if "mismatch" in members else None,
            dropped=Drop.parse(members.object("dropped")) if "dropped" in members else None,
            alarm=Alarm.parse(members.object("alarm")) if "alarm" in members else None,
        )


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event of a watch, and what has become of its delivery."""

    id: str
    event: str
    attempts: int
    delivered_at: int | None
    next_attempt_at: int | None
    last_status: int | None
    last_error: str | None
    created_at: int
    last_attempt_at: int | None
    ending: str | None
    """``superseded``, ``refused``, ``abandoned`` or ``dropped`` if it will not be sent any more."""
    content: DeliveryContent
    attempts_left: int | None = None
    """Of an event that waits for its delivery, else None."""

    @classmethod
    def parse(cls, members: Members, recipient: str | None = None) -> "Delivery":
        """From one of `events`, or `event`; ``recipient`` is that of the order, if known."""
        return cls(
            id=members.text("id"),
            event=members.text("event"),
            attempts=members.count("attempts"),
            delivered_at=members.number_or_none("deliveredAt"),
            next_attempt_at=members.number_or_none("nextAttemptAt"),
            last_status=members.count("lastStatus") if "lastStatus" in members else None,
            last_error=members.sentence_or_none("lastError"),
            created_at=members.number("createdAt"),
            last_attempt_at=members.number_or_none("lastAttemptAt"),
            ending=next((name for name in _ENDINGS if name in members and members.flag(name)), None),
            attempts_left=members.count("attemptsLeft") if "attemptsLeft" in members else None,
            content=DeliveryContent.parse(members.object("content"), recipient),
        )


@dataclass(frozen=True, slots=True)
class Breaker:
    """The open circuit breaker of a receiver that fails: it gets one delivery at a time. Unix milliseconds."""

    opened_at: int
    next_probe_at: int

    @classmethod
    def parse(cls, members: Members) -> "Breaker":
        """From the member `breaker` of a watch."""
        return cls(members.number("openedAt"), members.number("nextProbeAt"))


@dataclass(frozen=True, slots=True)
class Watch:
    """A registration for the events of an order."""

    id: str
    active: bool
    last_state: str
    callback_url: str
    wanted_events: tuple[str, ...]
    expires_at: int
    payment: Payment | None
    existing: bool
    """True if the registration repeated an earlier one."""
    ending: str | None
    """``expired``, ``closed``, ``cancelled`` or ``gone`` once it has ended."""
    reference: str
    recipient: str
    amount: int
    required_confirmations: int
    created_at: int
    more_mismatches: bool
    """True if it has reported as many mismatches as it may."""
    events: tuple[Delivery, ...] = field(default=())
    """The newest first; only if the watch was asked for by its id, or listed."""
    pay_until: int | None = None
    """Until when the payment must have been seen, in Unix milliseconds; None if the watch has no such deadline."""
    warning: str | None = None
    """What the node has to say against the registration, in a sentence; None if nothing."""
    closes_at_height: int | None = None
    """Before this height a watch whose payment has been confirmed does not end."""
    ended_at: int | None = None
    """In Unix milliseconds."""
    mismatches_until: int | None = None
    """Until when an ended watch reports mismatches; None if it reports none."""
    breaker: Breaker | None = None
    """None if the circuit breaker of the receiver is closed."""

    @classmethod
    def parse(cls, members: Members) -> "Watch":
        """From the member `subscription` of an answer, or one of `subscriptions`."""
        recipient = members.address("recipient")
        events = members.objects("events") if "events" in members else []
        return cls(
            id=members.text("id"),
            active=members.flag("active"),
            last_state=members.text("lastState"),
            callback_url=members.text("callbackUrl"),
            wanted_events=tuple(members.texts("wantedEvents")),
            expires_at=members.number("expiresAt"),
            payment=Payment.parse(members.object("payment")) if "payment" in members else None,
            existing="existing" in members and members.flag("existing"),
            ending=members.text_or_none("ending"),
            reference=members.text("reference"),
            recipient=recipient,
            amount=members.amount(),
            required_confirmations=members.count("requiredConfirmations"),
            created_at=members.number("createdAt"),
            more_mismatches="moreMismatches" in members and members.flag("moreMismatches"),
            events=tuple(Delivery.parse(each, recipient) for each in events),
            pay_until=members.number_or_none("payUntil"),
            warning=members.sentence_or_none("warning"),
            closes_at_height=members.number_or_none("closesAtHeight"),
            ended_at=members.number_or_none("endedAt"),
            mismatches_until=members.number_or_none("mismatchesUntil"),
            breaker=Breaker.parse(members.object("breaker")) if "breaker" in members else None,
        )


@dataclass(frozen=True, slots=True)
class WatchPage:
    """Some of the merchant's watches, the newest first."""

    watches: tuple[Watch, ...]
    next: str | None
    """``after`` of the following page; None if this is the last."""


@dataclass(frozen=True, slots=True)
class CallbackTest:
    """How a receiver answered to a `webhook.test`."""

    id: str
    status: int | None
    error: str | None
    milliseconds: int

    @classmethod
    def parse(cls, members: Members) -> "CallbackTest":
        """From the member `test` of an answer."""
        status = members.count("status") if "status" in members else None
        return cls(members.text("id"), status, members.sentence_or_none("error"), members.count("milliseconds"))
