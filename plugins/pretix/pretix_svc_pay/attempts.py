"""What becomes of orders and refunds, by what the node says of their payments.

Events, feeds, open pages and the periodic task all lead to ``look``: it asks the node, and what the node says now counts.
An event may be old, or come twice, so that it is no more than a reason to ask. ``record`` stores the answer and draws the
conclusions in one transaction; they follow from what is stored, so that a repetition changes nothing.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from secrets import token_hex

from django.db import IntegrityError, transaction
from django.db.models import Sum
from django.utils.timezone import now
from django.utils.translation import gettext as _, gettext_lazy
from pretix.base.models import Order, OrderPayment, OrderRefund, Quota
from pretix.base.payment import PaymentException
from pretix.helpers import OF_SELF
from pretix.multidomain.urlreverse import eventreverse_absolute
from svc_pay import (
    EVENT_NAMES, Client, Payment, PaymentRequest, Quote, ReceivedTransfer,
    State, SvcPayError, WatchEvent, refund_reference,
)

from .models import Attempt, Note
from .node import node, text

logger = logging.getLogger(__name__)

IDENTIFIER = "svc_pay"
"""Of the payment provider."""
LOG_NOTE = "pretix_svc_pay.note"
LOG_UNDONE = "pretix_svc_pay.undone"
LOG_SETTLED_AGAIN = "pretix_svc_pay.settled_again"
EVENTS = [name for name in EVENT_NAMES if name != "node.alarm"]
REFUND_SECONDS = 7 * 24 * 3600
"""How long the payment of a refund is watched at a time; the periodic task follows it after that."""
ON_THE_WAY = timedelta(minutes=1)
"""How long after its deadline an attempt still waits for a block of a time before it, as the node's watch does."""
LATE = timedelta(days=30)
"""How long the feed is read for an attempt after its deadline and after each news of it, and a note is followed."""
MOST_NOTES = 20
"""How many notes an attempt has at most: everybody can send further transfers under its reference."""
MOST_DEPTH = 2**31 - 1
"""The greatest depth that the database has room for; a node may say more."""
NOTHING_TO_REFUND = gettext_lazy("The payment is not on the chain at present, so there is nothing to refund. Try again later.")
SHREDDED = "pretix has shredded the refund"
UNDONE = {"svc_pay": "undone"}
"""What marks the external refund of a payment that a reorganisation has undone."""


def is_of_undone(refund: OrderRefund) -> bool:
    """Whether a refund is the external one of a payment that a reorganisation has undone."""
    return refund.info_data.get("svc_pay") == UNDONE["svc_pay"]


def attempt_of(paid: OrderPayment | OrderRefund) -> Attempt | None:
    """The attempt of a payment or a refund; None if it has none."""
    attempts = Attempt.objects.filter(payment=paid) if isinstance(paid, OrderPayment) else Attempt.objects.filter(refund=paid)
    return attempts.first()


def when(milliseconds: int) -> datetime:
    """A Unix time."""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


# Beginning


def new_reference(full_id: str) -> str:
    """The code of a payment or refund of pretix, which staff can read, and something that no other attempt has."""
    return f"{full_id[:40]}.{token_hex(8)}"


def begin(
    made: PaymentRequest,
    *,
    payment: OrderPayment | None = None,
    refund: OrderRefund | None = None,
    quote: Quote | None = None,
    pay_until: datetime | None = None,
    checkout_url: str = "",
) -> Attempt:
    """Store what is to be paid. It must be stored before it is watched: an event can come before the answer to that."""
    attempt = Attempt(
        order=(payment or refund).order,
        payment=payment,
        refund=refund,
        reference=made.order.reference,
        recipient=made.order.recipient,
        amount=made.order.amount,
        confirmations=made.order.confirmations,
        since_height=made.order.since_height,
        payment_uri=made.payment_uri,
        checkout_url=checkout_url,
        pay_until=pay_until,
        look_at=now() if pay_until is None else pay_until + ON_THE_WAY,
        follow_until=None if pay_until is None else pay_until + LATE,
    )
    if quote is not None:
        attempt.price, attempt.currency, attempt.rate = quote.price, quote.currency, quote.rate
        attempt.rate_at = when(quote.rate_at)
    attempt.save()
    return attempt


def follow(client: Client, attempt: Attempt) -> None:
    """Let the node report the payment of an attempt; raises SvcPayError. The same registration twice is one."""
    event = attempt.order.event
    limit = {"ttl_seconds": REFUND_SECONDS}
    # Rounded up: the node's event that the time is over must not come before it is over here.
    left = None if attempt.pay_until is None else math.ceil((attempt.pay_until - now()).total_seconds())
    if left is not None and left > 0:
        limit = {"pay_within_seconds": max(left, 60)}
    url = eventreverse_absolute(event, "plugins:pretix_svc_pay:webhook")
    client.register(attempt.terms(client.network), url, events=EVENTS, **limit)


# What is known


def take(attempt: Attempt, event: WatchEvent) -> str:
    """Ask about the payment that a verified event concerns, and return what was done, in a few words for the log.

    Raises SvcPayError if the node does not answer, so that it must send the event again.
    """
    if not attempt.recipient:
        return SHREDDED
    settings = attempt.order.event.get_payment_providers(cached=True)[IDENTIFIER].settings
    with node(settings) as client:
        if event.mismatch is not None and event.mismatch.kind == "late":
            # The watch has ended, and the payment may have been seen with too few confirmations.
            follow(client, attempt)
        return look(client, attempt)


def look(client: Client, attempt: Attempt) -> str:
    """Ask the node about an attempt, and store what it says; raises SvcPayError."""
    for _attempt in range(3):
        attempt.refresh_from_db()
        if not attempt.recipient:
            return SHREDDED
        payment = client.payment(attempt.terms(client.network))
        told = attempt.open_transfers()
        sent, sent_back = None, {}
        if payment.mismatches or payment.match_count > 1 or told.exists():
            sent = client.payments(
                attempt.recipient, reference=attempt.reference, amount=attempt.amount, since_height=attempt.since_height
            )
            if attempt.refund_id is None:
                for sender in set(told.exclude(sender=None).values_list("sender", flat=True)):
                    sent_back[sender] = sent_back_to(client, attempt, sender)
        done = record(attempt, payment, sent, sent_back)
        if done != "overtaken":
            break
    return done


def sent_back_to(client: Client, attempt: Attempt, sender: str) -> list[ReceivedTransfer]:
    """What `svc wallet refund` has sent back to a sender under the reference of an attempt; raises SvcPayError."""
    found = client.payments(
        sender, reference=refund_reference(attempt.reference, ""), since_height=attempt.since_height
    )
    return [each for each in found if each.sender == attempt.recipient]


def put_off(attempts, time: timedelta) -> None:
    """Ask about these later, so that others have their turn."""
    Attempt.objects.filter(pk__in=[each.pk for each in attempts], look_at__isnull=False).update(look_at=now() + time)


def locked(attempt: Attempt) -> Attempt:
    """Lock an attempt, and before it its order, as pretix does: of two payments the second finds the order paid."""
    order = Order.objects.select_for_update(of=OF_SELF).get(pk=attempt.order_id)
    row = Attempt.objects.select_for_update(of=OF_SELF).get(pk=attempt.pk)
    row.order = order
    return row


def record(
    attempt: Attempt,
    payment: Payment,
    sent: Sequence[ReceivedTransfer] | None = None,
    sent_back: Mapping[str, Sequence[ReceivedTransfer]] | None = None,
) -> str:
    """Store an answer of the node, and let it have its consequences, in one transaction.

    It was asked for when the attempt was read, and does not count if anything was stored since. ``sent`` are all
    transfers under the reference, if they were asked for, and ``sent_back`` those back to their senders, by sender.
    """
    with transaction.atomic():
        row = locked(attempt)
        if row.revision != attempt.revision:
            return "overtaken"
        row.revision += 1
        # One that is behind what was told before may not know the payment, or not that it is undone.
        current = payment.synced is True and payment.tip is not None and payment.tip.height >= row.told_height
        settled = current and payment.settled
        state = State.CONFIRMING if payment.state is State.CONFIRMED and not settled else payment.state
        row.state, row.txid = state.value, payment.txid or row.txid
        row.depth = min(payment.confirmations, MOST_DEPTH) if payment.canonical else 0
        row.height = payment.block_height
        if current:
            row.told_height = payment.tip.height
            conclude(row, settled)
            if sent is not None:
                note_transfers(row, sent, sent_back or {})
        row.look_at = next_look(row) if current else now() + timedelta(minutes=1)
        if row.refund_id is None:
            row.follow_until = max(row.follow_until or now(), now() + LATE)
        row.save()
    if row.notes.filter(kind="no-places", state=Note.OPEN).exists():
        execute_created_refunds(row.order)
    return "recorded"


def next_look(row: Attempt) -> datetime | None:
    """When to ask again although nothing gives a reason to; None for never."""
    told = row.open_transfers().last()
    moments = [next_look_at_payment(row), None if told is None else next_look_at_note(told)]
    return min((moment for moment in moments if moment is not None), default=None)


def next_look_at_note(told: Note) -> datetime | None:
    """When to ask whether a transfer that staff were told of has been sent back; None for never."""
    time = now()
    if time > told.created + LATE:
        return None
    return time + (timedelta(minutes=10) if time < told.created + timedelta(days=1) else timedelta(hours=6))


def next_look_at_payment(row: Attempt) -> datetime | None:
    """When to ask again about the payment itself; None for never.

    The feed of the shop's address tells of payments, but not when a deadline is over. Refunds go to other addresses.
    """
    time = now()
    if row.refund_id is not None:
        # As long as the node watches it for a reorganisation.
        deep = row.state == State.CONFIRMED and row.depth >= row.confirmations + max(2 * row.confirmations, 30)
        return None if deep else time + timedelta(minutes=10)
    end = row.pay_until + ON_THE_WAY
    return end if row.state == State.UNPAID and end > time else None


# What follows from it


def conclude(row: Attempt, settled: bool) -> None:
    """Change the payment or the refund of pretix, and ``row``, by what is now known of ``row``."""
    if row.refund_id is not None:
        return conclude_refund(row, settled)
    payment = OrderPayment.objects.select_for_update(of=OF_SELF).get(pk=row.payment_id)
    payment.order = row.order
    waits = payment.state in (OrderPayment.PAYMENT_STATE_CREATED, OrderPayment.PAYMENT_STATE_PENDING)
    if settled:
        row.was_settled = True
        settle(row, payment)
    elif row.was_settled and payment.state == OrderPayment.PAYMENT_STATE_CONFIRMED:
        undo(row, payment)
    elif row.state == State.UNPAID:
        row.notes.filter(kind="late", state=Note.OPEN).update(state=Note.WITHDRAWN)
        if waits and row.pay_until is not None and row.pay_until + ON_THE_WAY <= now():
            payment.fail(log_data={"reason": "expired"})
        elif payment.state == OrderPayment.PAYMENT_STATE_PENDING:
            # The transfer has left the mempool: the buyer may choose another way to pay again.
            payment.state = OrderPayment.PAYMENT_STATE_CREATED
            payment.save(update_fields=["state"])
    elif payment.state == OrderPayment.PAYMENT_STATE_CREATED:
        payment.state = OrderPayment.PAYMENT_STATE_PENDING
        payment.save(update_fields=["state"])
    elif payment.state == OrderPayment.PAYMENT_STATE_FAILED:
        note(row, "late")


def settle(row: Attempt, payment: OrderPayment) -> None:
    """The payment has its confirmations: pay the order, or say what else is to be done with it."""
    if payment.state == OrderPayment.PAYMENT_STATE_CONFIRMED:
        if row.undone:
            settled_again(row, payment)
    elif payment.state == OrderPayment.PAYMENT_STATE_REFUNDED:
        if row.undone:
            row.undone = False
            note(row, "returned")
    else:
        row.notes.filter(kind="late").delete()
        order = payment.order
        needed = order.pending_sum
        is_late = payment.state == OrderPayment.PAYMENT_STATE_FAILED
        try:
            payment.confirm()
        except Quota.QuotaExceededException:
            refund = order.refunds.create(
                state=OrderRefund.REFUND_STATE_CREATED,
                source=OrderRefund.REFUND_SOURCE_ADMIN,
                amount=payment.amount,
                payment=payment,
                provider=payment.provider,
            )
            order.log_action("pretix.event.order.refund.created", {"local_id": refund.local_id, "provider": refund.provider})
            note(row, "no-places")
        else:
            if is_late:
                note(row, "late-taken", state=Note.DONE)
            if payment.amount > needed:
                note(row, "surplus")


def undo(row: Attempt, payment: OrderPayment) -> None:
    """A reorganisation has undone a payment: the order stays paid, and a person decides."""
    if row.undone:
        return
    row.undone = True
    amount = payment.amount - payment.refunded_amount
    if amount > Decimal("0.00"):
        refund = payment.create_external_refund(amount=amount, info="{}")
        refund.info_data = {**UNDONE, "reference": row.reference, "txid": row.txid}
        refund.save(update_fields=["info"])
    payment.order.log_action(LOG_UNDONE, {"local_id": payment.local_id, "txid": row.txid})


def settled_again(row: Attempt, payment: OrderPayment) -> None:
    """The payment that was undone is confirmed again: nothing is to be refunded."""
    row.undone = False
    for refund in payment.refunds.filter(state=OrderRefund.REFUND_STATE_EXTERNAL, provider=IDENTIFIER):
        if is_of_undone(refund):
            refund.state = OrderRefund.REFUND_STATE_CANCELED
            refund.save(update_fields=["state"])
            payment.order.log_action("pretix.event.order.refund.canceled", {"local_id": refund.local_id, "provider": IDENTIFIER})
    payment.order.log_action(LOG_SETTLED_AGAIN, {"local_id": payment.local_id, "txid": row.txid})


def conclude_refund(row: Attempt, settled: bool) -> None:
    """A refund is done when the transfer to the buyer is confirmed."""
    refund = OrderRefund.objects.select_for_update(of=OF_SELF).get(pk=row.refund_id)
    refund.order = row.order
    if settled:
        row.was_settled, row.undone = True, False
        row.notes.filter(kind="refund-undone", state=Note.OPEN).update(state=Note.WITHDRAWN)
        if refund.state != OrderRefund.REFUND_STATE_DONE:
            refund.done()
        if refund.payment is not None and refund.payment.state == OrderPayment.PAYMENT_STATE_REFUNDED:
            asked_for = Note.objects.filter(attempt__payment=refund.payment, kind__in=("surplus", "no-places"))
            asked_for.filter(state=Note.OPEN).update(state=Note.DONE, back_txid=row.txid, back_height=row.height)
    elif row.was_settled and not row.undone:
        row.undone = True
        note(row, "refund-undone")


def note_transfers(
    row: Attempt, sent: Sequence[ReceivedTransfer], sent_back: Mapping[str, Sequence[ReceivedTransfer]]
) -> None:
    """Tell of the transfers that do not pay an attempt, and store what has become of those that were told."""
    wrong = {each.txid: each for each in sent if each.canonical and each.mismatch is not None}
    for each in wrong.values():
        note(row, each.mismatch, each)
    told = row.notes.filter(kind__in=Note.TRANSFERS)
    row.open_transfers().exclude(txid__in=wrong).update(state=Note.WITHDRAWN)
    for sender, refunds in sent_back.items():
        owed = 0
        for each in told.filter(sender=sender).exclude(state=Note.WITHDRAWN):
            owed += each.amount
            back = covering(refunds, owed)
            if each.state == Note.OPEN and back is not None:
                each.back_txid, each.back_height = back.txid, back.block_height
                if back.canonical and back.confirmations >= row.confirmations:
                    each.state = Note.DONE
                each.save()


def covering(refunds: Sequence[ReceivedTransfer], owed: int) -> ReceivedTransfer | None:
    """The refund with which all that is owed has been sent back; None if less was sent."""
    for each in sorted(refunds, key=lambda each: (not each.canonical, each.block_height or 0)):
        owed -= each.amount
        if owed <= 0:
            return each
    return None


def note(row: Attempt, kind: str, transfer: ReceivedTransfer | None = None, *, state: str = Note.OPEN) -> bool:
    """Tell staff once: in the log of the order, by a notification, and by the date on which they follow the order up."""
    txid, amount, sender, height = row.txid or "", row.amount, None, None
    if transfer is not None:
        txid, amount, sender, height = transfer.txid, transfer.amount, transfer.sender, transfer.block_height
        if row.notes.count() >= MOST_NOTES and not row.notes.filter(kind=kind, txid=txid).exists():
            return False
    made, told = Note.objects.get_or_create(
        attempt=row, kind=kind, txid=txid, defaults={"amount": amount, "sender": sender, "state": state, "height": height}
    )
    if made.state == Note.WITHDRAWN:
        made.state, told = state, True
    if told or made.height != height:
        made.height = height
        made.save()
    if told:
        order = row.order
        order.log_action(LOG_NOTE, {"kind": kind, "txid": txid, "reference": row.reference})
        if order.custom_followup_at is None and state == Note.OPEN:
            order.custom_followup_at = now().astimezone(order.event.timezone).date()
            order.save(update_fields=["custom_followup_at"])
    return told


# Refunds


def execute_created_refunds(order) -> None:
    """Execute the refunds that ``settle`` has created, after its transaction; what fails, the periodic task repeats."""
    for refund in order.refunds.filter(
        state=OrderRefund.REFUND_STATE_CREATED, provider=IDENTIFIER, svc_pay_attempt__isnull=True
    ):
        try:
            execute_refund(refund)
        except PaymentException as error:
            logger.warning("The refund %s waits: %s", refund.full_id, error)


def check_share(refund: OrderRefund) -> None:
    """Raise PaymentException if others have begun to refund what this one is to refund, such as by a second click."""
    payment = OrderPayment.objects.select_for_update(of=OF_SELF).get(pk=refund.payment_id)
    begun = payment.refunds.exclude(pk=refund.pk).filter(
        state__in=(OrderRefund.REFUND_STATE_TRANSIT, OrderRefund.REFUND_STATE_DONE)
    )
    if (begun.aggregate(sum=Sum("amount"))["sum"] or 0) + refund.amount > payment.amount:
        raise PaymentException(_("Together with its other refunds, more would be refunded than was paid."))


def execute_refund(refund: OrderRefund) -> None:
    """Ask the organizer to pay the sender of a payment back, and follow that transfer; raises PaymentException."""
    attempt = attempt_of(refund.payment) if refund.payment is not None else None
    if attempt is None or attempt.txid is None:
        raise PaymentException(_("No transfer is known that has paid this payment."))
    if attempt.undone:
        raise PaymentException(NOTHING_TO_REFUND)
    # By the rate of the payment, and never more than the share.
    amount = int(attempt.amount * Fraction(refund.amount) / Fraction(refund.payment.amount))
    provider = refund.order.event.get_payment_providers(cached=True).get(IDENTIFIER)
    if provider is None:
        raise PaymentException(_("The plugin is not enabled for this event."))
    settings = provider.settings
    try:
        with node(settings) as client:
            sent = client.payments(attempt.recipient, reference=attempt.reference)
            senders = [each.sender for each in sent if each.txid == attempt.txid and each.canonical]
            if not senders:
                raise PaymentException(NOTHING_TO_REFUND)
            made = client.payment_request(
                senders[0],
                amount,
                reference=new_reference(refund.full_id),
                label=_("Refund {code}").format(code=refund.full_id),
                confirmations=attempt.confirmations,
            )
            try:
                with transaction.atomic():
                    check_share(refund)
                    public = text(settings, "public_node_url")
                    begun = begin(made, refund=refund, checkout_url=made.checkout_url(public) if public else "")
                    refund.state = OrderRefund.REFUND_STATE_TRANSIT
                    refund.info_data = {"reference": begun.reference, "recipient": begun.recipient, "amount": begun.amount}
                    refund.save(update_fields=["state", "info"])
            except IntegrityError:  # Another process has begun it.
                refund.refresh_from_db()
                return
            try:
                follow(client, begun)
            except SvcPayError as error:
                # The periodic task asks about it all the same.
                logger.warning("The refund %s is not watched: %s", refund.full_id, error)
    except SvcPayError as error:
        raise PaymentException(_("The node cannot prepare the refund: {reason}").format(reason=error)) from None
