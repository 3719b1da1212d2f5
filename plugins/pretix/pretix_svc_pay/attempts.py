"""What becomes of orders and refunds, by what the node says of their payments.

What is known comes in any order and more than once: from events, and from answers of the node. ``record`` stores it and
draws the conclusions in one transaction; they follow from what is stored, so that a repetition changes nothing.
"""

import logging
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
    EVENT_NAMES, Client, Mismatch, Payment, PaymentRequest, Quote, State,
    SvcPayError, WatchEvent,
)

from .models import Attempt, Note
from .node import network, node, text

logger = logging.getLogger(__name__)

IDENTIFIER = "svc_pay"
"""Of the payment provider."""
LOG_NOTE = "pretix_svc_pay.note"
LOG_UNDONE = "pretix_svc_pay.undone"
LOG_SETTLED_AGAIN = "pretix_svc_pay.settled_again"
EVENTS = [name for name in EVENT_NAMES if name != "node.alarm"]
REFUND_SECONDS = 7 * 24 * 3600
"""How long the payment of a refund is watched at a time; the periodic task follows it after that."""
LATE = timedelta(days=30)
"""How long after its deadline an attempt is still looked at now and then."""
MOST_NOTES = 20
"""How many notes an attempt has at most: everybody can send further transfers under its reference."""
NOTHING_TO_REFUND = gettext_lazy("The payment is not on the chain at present, so there is nothing to refund. Try again later.")
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
    left = None if attempt.pay_until is None else int((attempt.pay_until - now()).total_seconds())
    if left is not None and left > 0:
        limit = {"pay_within_seconds": max(left, 60)}
    url = eventreverse_absolute(event, "plugins:pretix_svc_pay:webhook")
    client.register(attempt.terms(client.network), url, events=EVENTS, **limit)


# What is known


def take(attempt: Attempt, event: WatchEvent) -> str:
    """Store what a verified event says, and return what was done, in a few words for the log.

    Raises SvcPayError if the node must send the event again, because it was needed and did not answer.
    """
    if not attempt.recipient:
        return "pretix has shredded the refund"
    settings = attempt.order.event.get_payment_providers(cached=True)[IDENTIFIER].settings
    terms = attempt.terms(network(settings))
    if not event.concerns(terms):
        return "it is about another payment"
    if event.mismatch is not None:
        done = note_mismatch(attempt, event.mismatch)
        if event.mismatch.kind == "late":
            # The watch has ended, and the payment may have been seen with too few confirmations.
            with node(settings) as client:
                follow(client, attempt)
        return "noted" if done else "known before"
    if event.alarm is not None:
        return "an alarm"
    place = (event.subscription_id, *event.place)
    settled = event.settles(terms)
    return record(attempt, event.payment, settled, newest=place, ended=event.name == "payment.expired")


def look(client: Client, attempt: Attempt) -> str:
    """Ask the node about an attempt, and store what it says; raises SvcPayError."""
    for _attempt in range(3):
        attempt.refresh_from_db()
        terms = attempt.terms(client.network)
        payment = client.payment(terms)
        ended = attempt.pay_until is not None and attempt.pay_until + timedelta(minutes=1) < now()
        ended = ended and payment.state is State.UNPAID and payment.synced is True
        done = record(attempt, payment, payment.settled, ended=ended, certain=payment.synced is True)
        if done != "overtaken":
            break
    if payment.mismatches or payment.match_count > 1:
        for each in client.payments(
            attempt.recipient, reference=attempt.reference, amount=attempt.amount, since_height=attempt.since_height
        ):
            if each.mismatch is not None and each.canonical:
                note_mismatch(attempt, Mismatch(each.txid, each.amount, each.mismatch, each.sender))
    return done


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
    settled: bool,
    *,
    newest: tuple[str, int, int] | None = None,
    ended: bool = False,
    certain: bool = True,
) -> str:
    """Store the state of a payment, and let it have its consequences, in one transaction.

    ``newest`` is the place of the event that tells the state; without one it was asked for when the attempt was read,
    and does not count if anything was stored since. ``ended`` says that nobody waits for the payment any more, and
    ``certain`` that the node is in sync.
    """
    with transaction.atomic():
        row = locked(attempt)
        if newest is not None:
            if row.watch == newest[0] and newest[1:] <= row.place[1:]:
                return "nothing new"
            row.watch, row.epoch, row.sequence = newest
        elif (row.place, row.look_at) != (attempt.place, attempt.look_at):
            return "overtaken"
        state = State.CONFIRMING if payment.state is State.CONFIRMED and not settled else payment.state
        row.state, row.txid = state.value, payment.txid or row.txid
        row.depth = payment.confirmations if payment.canonical else 0
        if certain:
            conclude(row, settled, ended)
        row.look_at = next_look(row)
        row.save()
    if row.notes.filter(kind="no-places").exists():
        execute_created_refunds(row.order)
    return "recorded"


def next_look(row: Attempt) -> datetime | None:
    """When to ask again about a payment of which events may be lost; None for never."""
    time = now()
    if row.undone or row.state in (State.PENDING, State.CONFIRMING):
        return time + timedelta(minutes=1)
    if row.state == State.CONFIRMED:
        # As long as the node watches it for a reorganisation.
        deep = row.depth >= row.confirmations + max(2 * row.confirmations, 30)
        return None if deep else time + timedelta(minutes=10)
    if row.refund is not None:
        return time + timedelta(minutes=10)
    if row.pay_until is None or time < row.pay_until + timedelta(minutes=5):
        return time + timedelta(minutes=1)
    return time + timedelta(hours=6) if time < row.pay_until + LATE else None


# What follows from it


def conclude(row: Attempt, settled: bool, ended: bool) -> None:
    """Change the payment or the refund of pretix, and ``row``, by what is now known of ``row``."""
    if row.refund_id is not None:
        return conclude_refund(row, settled)
    payment = OrderPayment.objects.select_for_update(of=OF_SELF).get(pk=row.payment_id)
    payment.order = row.order
    if settled:
        row.was_settled = True
        settle(row, payment)
    elif row.was_settled and payment.state == OrderPayment.PAYMENT_STATE_CONFIRMED:
        undo(row, payment)
    elif ended:
        if payment.state in (OrderPayment.PAYMENT_STATE_CREATED, OrderPayment.PAYMENT_STATE_PENDING):
            payment.fail(log_data={"reason": "expired"})
    elif row.state == State.UNPAID:
        if payment.state == OrderPayment.PAYMENT_STATE_PENDING:
            # The transfer has left the mempool: the buyer may choose another way to pay again.
            payment.state = OrderPayment.PAYMENT_STATE_CREATED
            payment.save(update_fields=["state"])
    elif payment.state == OrderPayment.PAYMENT_STATE_CREATED:
        payment.state = OrderPayment.PAYMENT_STATE_PENDING
        payment.save(update_fields=["state"])


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
        order = payment.order
        needed = order.pending_sum
        late = row.notes.filter(kind="late", txid=row.txid or "")
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
            late.delete()
            note(row, "no-places")
        else:
            late.update(kind="late-taken")
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
        if refund.state != OrderRefund.REFUND_STATE_DONE:
            refund.done()
    elif row.was_settled and not row.undone:
        row.undone = True
        note(row, "refund-undone")


def note_mismatch(attempt: Attempt, transfer: Mismatch) -> bool:
    """Tell staff once of a transfer that does not pay an attempt, in a transaction of its own."""
    with transaction.atomic():
        return note(locked(attempt), transfer.kind, transfer)


def note(row: Attempt, kind: str, transfer: Mismatch | None = None) -> bool:
    """Tell staff once: in the log of the order, by a notification, and by the date on which they follow the order up."""
    txid, amount, sender = row.txid or "", row.amount, None
    if transfer is not None:
        txid, amount, sender = transfer.txid, transfer.amount, transfer.sender
        if kind == "late" and row.was_settled and txid == row.txid:
            return False  # It has paid the order meanwhile, or is refunded.
        if row.notes.count() >= MOST_NOTES:
            return False
    made, created = Note.objects.get_or_create(
        attempt=row, kind=kind, txid=txid, defaults={"amount": amount, "sender": sender}
    )
    if created:
        order = row.order
        order.log_action(LOG_NOTE, {"kind": kind, "txid": txid, "reference": row.reference})
        if order.custom_followup_at is None:
            order.custom_followup_at = now().astimezone(order.event.timezone).date()
            order.save(update_fields=["custom_followup_at"])
    return created


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
