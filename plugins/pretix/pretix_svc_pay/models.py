"""What is to be paid on the chain, and what is known of it."""

from django.db import models
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from pretix.base.models import Event, Order, OrderPayment, OrderRefund
from svc_pay import Network, Order as Terms, State


class Attempt(models.Model):
    """One request for coins: an attempt of a buyer to pay an order, or a refund, which the organizer pays.

    Each has a reference of its own, so that a transfer for one attempt never pays another.
    """

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="svc_pay_attempts")
    payment = models.OneToOneField(OrderPayment, null=True, on_delete=models.CASCADE, related_name="svc_pay_attempt")
    refund = models.OneToOneField(OrderRefund, null=True, on_delete=models.CASCADE, related_name="svc_pay_attempt")
    created = models.DateTimeField(auto_now_add=True)

    reference = models.CharField(max_length=64, unique=True)
    recipient = models.CharField(max_length=128)
    amount = models.BigIntegerField()
    """Base units."""
    confirmations = models.PositiveIntegerField()
    since_height = models.BigIntegerField()
    payment_uri = models.TextField()
    checkout_url = models.TextField(blank=True)
    """At the node, for browsers; empty if buyers do not reach it."""
    pay_until = models.DateTimeField(null=True)
    """The buyer's deadline; null for a refund, which has none."""

    price = models.CharField(max_length=64, null=True)
    """What the amount was calculated from, and how; null for a refund, which returns coins of the payment."""
    currency = models.CharField(max_length=10, null=True)
    rate = models.CharField(max_length=64, null=True)
    rate_at = models.DateTimeField(null=True)

    state = models.CharField(max_length=16, default=State.UNPAID.value)
    """The newest known State of the payment; confirmed only if the node was in sync."""
    depth = models.PositiveIntegerField(default=0)
    txid = models.CharField(max_length=64, null=True)
    height = models.BigIntegerField(null=True)
    """Of the block with the transfer; null without one."""
    was_settled = models.BooleanField(default=False)
    undone = models.BooleanField(default=False)
    """True from a reorganisation that undid a settled payment until it is settled again."""

    revision = models.BigIntegerField(default=0)
    """How many answers of the node were stored: one that was asked for before the newest was stored does not count."""
    asked = models.DateTimeField(default=now)
    """When an open page has made pretix ask the node."""
    look_at = models.DateTimeField(null=True, db_index=True, default=now)
    """When the periodic task asks the node next; null if only an event, an open page or the feed gives a reason to."""
    told_height = models.BigIntegerField(default=0)
    """The tip of the newest answer that counted, of the feed or about the payment: a node that is behind it does not count."""
    follow_until = models.DateTimeField(null=True, db_index=True)
    """Until when the feed of the recipient is read for a payment; null for a refund, which goes to the buyer."""

    class Meta:
        ordering = ("pk",)
        indexes = (
            models.Index(fields=("recipient", "state"), name="svc_pay_recipient_state"),
            models.Index(fields=("recipient", "height"), name="svc_pay_recipient_height"),
        )

    def terms(self, network: Network | None) -> Terms:
        """What is to be paid, from the shop's own records."""
        given = (self.reference, self.recipient, self.amount, self.confirmations, self.since_height)
        return Terms(*given, network=network)

    def open_transfers(self) -> models.QuerySet:
        """The notes about transfers besides the payment, which are still to be sent back."""
        return self.notes.filter(kind__in=Note.TRANSFERS, state=Note.OPEN)

    def wrong_amounts(self) -> models.QuerySet:
        """The notes about other amounts than that of the attempt, which were not sent back."""
        return self.open_transfers().exclude(kind="duplicate")


class Feed(models.Model):
    """Up to where an event has read the feed of an address that its buyers pay to.

    No two events share one, not even for the same address: each has its own node, which only its organizer trusts.
    """

    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="svc_pay_feeds")
    recipient = models.CharField(max_length=128)
    place = models.TextField(blank=True)
    """The text of a Place of the client; empty before the first answer."""

    class Meta:
        unique_together = (("event", "recipient"),)

    @property
    def attempts(self) -> models.QuerySet:
        """Those that are paid to the address."""
        return Attempt.objects.filter(order__event=self.event_id, recipient=self.recipient, payment__isnull=False)


class Note(models.Model):
    """Something that a person must look at, until it is done or withdrawn."""

    OPEN, DONE, WITHDRAWN = "open", "done", "withdrawn"
    """Withdrawn if what it says no longer holds, because the chain was reorganised."""
    TRANSFERS = ("too-little", "too-much", "duplicate")
    """The kinds that concern a transfer besides the payment, for which a refund is proposed."""

    KINDS = {
        "too-little": _("Too few coins were sent. They pay nothing."),
        "too-much": _("Too many coins were sent. They pay nothing, because the amount must match exactly."),
        "duplicate": _("The same payment was made twice."),
        "late": _("Coins were sent after the time to pay was over. Once they have their confirmations, the payment is "
                  "accepted if there are places, and refunded otherwise."),
        "late-taken": _("Coins were sent after the time to pay was over. The payment was accepted, because there were places."),
        "surplus": _("The payment was confirmed, but the order was paid in another way or canceled before. Refund the "
                     "payment as any other."),
        "no-places": _("The payment was confirmed, but the order cannot be paid any more. A refund was created."),
        "returned": _("The payment is on the chain again, although you have processed its refund."),
        "refund-undone": _("A reorganisation has undone the transfer of a refund that was done. Most such transfers are "
                           "confirmed again within minutes: do not pay twice."),
    }

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="notes")
    created = models.DateTimeField(auto_now_add=True)
    kind = models.CharField(max_length=16)
    txid = models.CharField(max_length=64)
    amount = models.BigIntegerField()
    sender = models.CharField(max_length=128, null=True)
    height = models.BigIntegerField(null=True)
    """Of the block with the transfer."""
    state = models.CharField(max_length=16, default=OPEN)
    back_txid = models.CharField(max_length=64, null=True)
    """The transfer that sends the coins back; null without one."""
    back_height = models.BigIntegerField(null=True)

    class Meta:
        ordering = ("pk",)
        unique_together = (("attempt", "kind", "txid"),)

    @property
    def sentence(self) -> str:
        """What has happened."""
        return self.KINDS[self.kind]
