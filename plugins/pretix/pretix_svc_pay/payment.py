import logging
from collections import OrderedDict
from datetime import timedelta
from decimal import Decimal

import qrcode
import qrcode.image.svg
from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import IntegrityError, transaction
from django.db.models import F
from django.http import HttpRequest
from django.template.loader import get_template
from django.urls import reverse
from django.utils.safestring import mark_safe
from django.utils.timezone import now
from django.utils.translation import gettext, gettext_lazy as _
from pretix.base.forms import (
    SECRET_REDACTED, SecretKeySettingsField, SecretKeySettingsWidget,
)
from pretix.base.models import Order, OrderPayment, OrderRefund
from pretix.base.payment import BasePaymentProvider, PaymentException
from pretix.multidomain.urlreverse import eventreverse, eventreverse_absolute
from svc_pay import (
    DEFAULT_CONFIRMATIONS, MAINNET, Client, InvalidInput, PaymentRequest,
    RateRefused, RateSource, SvcPayError, Webhook, check_address,
    format_amount, network_of, order_amount, parse_network, refund_reference,
)

from .attempts import (
    IDENTIFIER, attempt_of, begin, execute_refund, follow, is_of_undone,
    new_reference,
)
from .models import Attempt, Note
from .node import coins, network, node, rates, text

logger = logging.getLogger(__name__)
MINUTES = 60
"""How long an attempt can be paid by default; a node accepts from 1 minute to 7 days."""


class HiddenSecretWidget(SecretKeySettingsWidget):
    """Shows that there is a secret, and never the secret, not even one that was typed into a form with another error."""

    def get_context(self, name, value, attrs):
        context = super().get_context(name, value, attrs)
        if context["widget"]["value"] != SECRET_REDACTED:
            context["widget"]["value"] = ""
        return context


class SecretField(SecretKeySettingsField):
    widget = HiddenSecretWidget


def qr_code(content: str) -> str:
    """A QR code as a picture in the page, for browsers without JavaScript, too."""
    code = qrcode.QRCode(error_correction=qrcode.constants.ERROR_CORRECT_M, border=4)
    code.add_data(content)
    code.make(fit=True)
    picture = code.make_image(image_factory=qrcode.image.svg.SvgPathImage)
    return mark_safe(picture.to_string(encoding="unicode"))


class SvcPay(BasePaymentProvider):
    identifier = IDENTIFIER
    verbose_name = _("SVC coins")
    execute_payment_needs_user = True
    abort_pending_allowed = False

    @property
    def public_name(self) -> str:
        """What buyers choose: by the name of the coins, where the network has one of its own."""
        own = network(self.settings)
        return self.verbose_name if own is None or own.unit == MAINNET.unit else own.unit

    @property
    def test_mode_message(self) -> str:
        return gettext(
            "In test mode, too, coins are really sent, on the network of your node. Use the node of a devnet to try "
            "payments with coins that are worth nothing."
        )

    # Settings

    @property
    def settings_form_fields(self) -> dict:
        own = [
            ("node_url", forms.CharField(
                label=_("URL of your node"),
                help_text=_("Where pretix reaches the node, such as https://node.example or http://127.0.0.1:8645. "
                            "It must have webhooks enabled."),
                required=True,
            )),
            ("public_node_url", forms.CharField(
                label=_("Public URL of your node"),
                help_text=_("Where buyers reach the pages of the node, if they do. Then they get a link to its checkout, "
                            "and their browser asks the node whether the payment has arrived."),
                required=False,
            )),
            ("token", SecretField(
                label=_("Management token"),
                help_text=_("Of the node, or of your section in it if it serves several merchants."),
                required=True,
            )),
            ("signing_secret", SecretField(
                label=_("Signing secret"),
                help_text=_("With which the node signs its events. While it is being rotated, both, with a space "
                            "between them."),
                required=True,
            )),
            ("insecure_http", forms.BooleanField(
                label=_("The node is in a private network of mine"),
                help_text=_("Allows http:// to another computer. Everybody on the way can read the token then."),
                required=False,
            )),
            ("recipient", forms.CharField(
                label=_("Address that buyers pay to"),
                help_text=_("An address of your wallet. pretix needs no key of it."),
                required=True,
            )),
            ("confirmations", forms.IntegerField(
                label=_("Confirmations"),
                help_text=_("How many blocks a payment needs before the order is paid. More make it less likely that a "
                            "reorganisation undoes it."),
                initial=DEFAULT_CONFIRMATIONS,
                validators=[MinValueValidator(1), MaxValueValidator(1000)],
                required=True,
            )),
            ("minutes", forms.IntegerField(
                label=_("Minutes to pay"),
                help_text=_("The amount of coins is fixed for so long. Then the attempt fails, and the buyer can try "
                            "again with a new amount, as long as the order has not expired."),
                initial=MINUTES,
                validators=[MinValueValidator(1), MaxValueValidator(7 * 24 * 60)],
                required=True,
            )),
            ("rate", forms.CharField(
                label=_("Fixed rate"),
                help_text=_("What one coin costs in {currency}, such as 0.48. Leave it empty if a URL names the rate.").format(
                    currency=self.event.currency
                ),
                required=False,
            )),
            ("rate_url", forms.CharField(
                label=_("URL of the rate"),
                help_text=_("Of a JSON document with the price of one coin in {currency}. Without a current rate nothing is "
                            "sold for coins.").format(currency=self.event.currency),
                required=False,
            )),
            ("rate_path", forms.CharField(
                label=_("Path in the JSON"),
                help_text=_("Names with dots between them, such as data.rates.EUR."),
                required=False,
            )),
            ("rate_max_age", forms.IntegerField(
                label=_("Maximum age of the rate in seconds"),
                initial=60,
                validators=[MinValueValidator(1), MaxValueValidator(24 * 3600)],
                required=False,
            )),
            ("network", forms.CharField(
                label=_("Network of your own"),
                help_text=_("What `svc network show FILE --json` prints. Leave it empty on mainnet and devnet."),
                widget=forms.Textarea(attrs={"rows": 3}),
                required=False,
            )),
        ]
        inherited = super().settings_form_fields
        enabled = inherited.pop("_enabled")
        return OrderedDict([("_enabled", enabled), *own, *inherited.items()])

    def settings_form_clean(self, cleaned_data):
        def given(name):
            value = cleaned_data.get(f"{self.settings.get_prefix()}{name}")
            return value.strip() if isinstance(value, str) else value

        errors = {}

        def check(name, attempt):
            try:
                return attempt()
            except SvcPayError as error:
                errors[f"{self.settings.get_prefix()}{name}"] = str(error)

        network = check("network", lambda: parse_network(given("network"))) if given("network") else None
        if given("node_url"):
            # Any token will do here: whether it is the right one only the node knows.
            check("node_url", lambda: Client(given("node_url"), token="-", insecure_http=bool(given("insecure_http"))).close())
        if given("public_node_url"):
            check("public_node_url", lambda: Client(given("public_node_url")).close())
        if given("signing_secret"):
            check("signing_secret", lambda: Webhook(given("signing_secret").split()))
        if given("recipient") and "network" not in self._named(errors):
            check("recipient", lambda: check_address(given("recipient"), network or network_of(given("recipient"))))
        if given("rate_url"):
            if given("rate"):
                errors[f"{self.settings.get_prefix()}rate"] = gettext("Give a fixed rate or a URL, not both.")
            check("rate_url", lambda: RateSource.url(
                self.event.currency, given("rate_url"), given("rate_path") or "", max_age=given("rate_max_age") or 60
            ))
            if not given("rate_path"):
                errors[f"{self.settings.get_prefix()}rate_path"] = gettext("The path of the rate in the JSON is missing.")
        elif not given("rate"):
            errors[f"{self.settings.get_prefix()}rate"] = gettext("Give a fixed rate, such as 0.48, or the URL of a rate.")
        else:
            try:
                RateSource.fixed(self.event.currency, given("rate"))
            except RateRefused:
                errors[f"{self.settings.get_prefix()}rate"] = gettext(
                    "{value} is not a rate: give a number above 0 with a point, such as 0.48."
                ).format(value=given("rate")[:40])
        if errors:
            raise ValidationError(errors)
        return cleaned_data

    def _named(self, errors):
        return {name.removeprefix(self.settings.get_prefix()) for name in errors}

    def settings_content_render(self, request: HttpRequest) -> str:
        return get_template("pretix_svc_pay/settings.html").render({
            "request": request,
            "test_url": reverse("plugins:pretix_svc_pay:test", kwargs={
                "organizer": self.event.organizer.slug, "event": self.event.slug,
            }),
            "webhook_url": self.webhook_url,
        })

    @property
    def webhook_url(self) -> str:
        """Where the node posts its events."""
        return eventreverse_absolute(self.event, "plugins:pretix_svc_pay:webhook")

    # Checkout

    def payment_is_valid_session(self, request: HttpRequest) -> bool:
        return True

    def _describe(self) -> str:
        return get_template("pretix_svc_pay/checkout.html").render({
            "minutes": self.settings.get("minutes", as_type=int, default=MINUTES),
        })

    def payment_form_render(self, request: HttpRequest, total: Decimal, order: Order = None) -> str:
        return self._describe()

    def checkout_confirm_render(self, request, order: Order = None, info_data: dict = None) -> str:
        return self._describe()

    def order_pending_mail_render(self, order: Order, payment: OrderPayment) -> str:
        return gettext("The page of your order shows how many coins to send, where to, and until when.")

    def execute_payment(self, request: HttpRequest, payment: OrderPayment):
        if Attempt.objects.filter(payment=payment).exists():
            return None
        minutes = self.settings.get("minutes", as_type=int, default=MINUTES)
        try:
            quote = order_amount(str(payment.amount), self.event.currency, rates(self.settings, self.event.currency).rate())
        except (RateRefused, InvalidInput) as error:
            return self._refuse(payment, error, gettext(
                "There is no current rate for coins, so you cannot pay with them now. Try again later, or choose "
                "another way to pay."
            ))
        attempt = None
        try:
            with node(self.settings) as client:
                made = client.payment_request(
                    text(self.settings, "recipient"),
                    quote.amount,
                    reference=new_reference(payment.full_id),
                    label=self._label(payment.order),
                    confirmations=self.settings.get("confirmations", as_type=int, default=DEFAULT_CONFIRMATIONS),
                )
                until = now() + timedelta(minutes=minutes)
                if payment.order.expires > now():
                    # After that the places may be sold to others.
                    until = min(until, payment.order.expires)
                checkout_url = self._checkout_url(made, payment.order, until)
                with transaction.atomic():
                    attempt = begin(made, payment=payment, quote=quote, pay_until=until, checkout_url=checkout_url)
                follow(client, attempt)
        except IntegrityError:  # The other one of two clicks has begun it.
            return None
        except SvcPayError as error:
            # Nobody has seen the request, and nobody may pay what is not watched.
            if attempt is not None:
                attempt.delete()
            return self._refuse(payment, error, gettext(
                "The payment cannot be prepared at present. Try again later, or choose another way to pay."
            ))
        payment.info_data = {
            "reference": attempt.reference,
            "coins": format_amount(attempt.amount),
            "rate": attempt.rate,
            "rate_at": attempt.rate_at.isoformat(),
        }
        payment.save(update_fields=["info"])

    def _refuse(self, payment: OrderPayment, error: SvcPayError, sentence: str) -> None:
        if Attempt.objects.filter(payment=payment).exists():
            return  # The other one of two clicks has begun it.
        logger.warning("The payment %s cannot be made: %s", payment.full_id, error)
        payment.fail(log_data={"reason": str(error)}, send_mail=False)
        raise PaymentException(sentence)

    def _label(self, order: Order) -> str:
        name = "".join(each if each.isprintable() else " " for each in str(self.event.name))
        return f"{name[:60].strip()} {order.code}"

    # Pages of an order

    def payment_pending_render(self, request: HttpRequest, payment: OrderPayment) -> str:
        attempt = attempt_of(payment)
        if attempt is None:
            return ""
        state_url = eventreverse(self.event, "plugins:pretix_svc_pay:state", kwargs={
            "order": payment.order.code, "hash": payment.order.tagged_secret("plugins:pretix_svc_pay"),
            "payment": payment.pk,
        })
        open_ = payment.state in (OrderPayment.PAYMENT_STATE_CREATED, OrderPayment.PAYMENT_STATE_PENDING)
        payable = open_ and attempt.state == "unpaid" and now() < attempt.pay_until
        wrong = attempt.wrong_amounts() if open_ and attempt.state == "unpaid" else []
        return get_template("pretix_svc_pay/pending.html").render({
            "request": request,
            "event": self.event,
            "attempt": attempt,
            "open": open_,
            "payable": payable,
            "wrong": [coins(self.settings, note.amount) for note in wrong],
            "amount": coins(self.settings, attempt.amount),
            "to_copy": format_amount(attempt.amount),
            "qr_code": qr_code(attempt.payment_uri) if payable else "",
            "checkout_code": qr_code(attempt.checkout_url) if payable and attempt.checkout_url.startswith("https:") else "",
            "order_url": self._order_url(payment.order),
            "state_url": state_url,
            "node_state_url": self._node_state_url(attempt) if open_ else "",
        }, request=request)

    @property
    def public_node_url(self) -> str:
        """Where browsers of buyers reach the node; empty if they do not."""
        return text(self.settings, "public_node_url").rstrip("/")

    def _checkout_url(self, made: PaymentRequest, order: Order, until) -> str:
        if not self.public_node_url:
            return ""
        order_url = self._order_url(order)
        return made.checkout_url(
            self.public_node_url,
            return_url=order_url if order_url.startswith("https://") else None,
            until=int(until.timestamp() * 1000),
        )

    def _order_url(self, order: Order) -> str:
        return eventreverse_absolute(self.event, "presale:event.order", kwargs={"order": order.code, "secret": order.secret})

    def _node_state_url(self, attempt: Attempt) -> str:
        if not self.public_node_url:
            return ""
        return (
            f"{self.public_node_url}/rpc/commerce/payment/{attempt.reference}?recipient={attempt.recipient}"
            f"&amountBaseUnits={attempt.amount}&confirmations={attempt.confirmations}&sinceHeight={attempt.since_height}"
        )

    def payment_control_render(self, request: HttpRequest, payment: OrderPayment) -> str:
        attempt = attempt_of(payment)
        return "" if attempt is None else self._control(request, attempt)

    def refund_control_render(self, request: HttpRequest, refund: OrderRefund) -> str:
        attempt = attempt_of(refund)
        if attempt is None:
            if not is_of_undone(refund):
                return ""
            return get_template("pretix_svc_pay/control_undone.html").render({"refund": refund})
        return self._control(request, attempt)

    def _control(self, request, attempt):
        notes = [
            {
                "note": note,
                "amount": coins(self.settings, note.amount),
                "reference": refund_reference(attempt.reference, note.txid),
                "command": self._refund_command(attempt, note),
            }
            for note in attempt.notes.all()
        ]
        is_refund = attempt.refund is not None
        due = is_refund and attempt.refund.state == OrderRefund.REFUND_STATE_TRANSIT
        undone = due and attempt.refund.payment.svc_pay_attempt.undone
        return get_template("pretix_svc_pay/control.html").render({
            "request": request,
            "attempt": attempt,
            "amount": coins(self.settings, attempt.amount),
            "notes": notes,
            "is_refund": is_refund,
            "undone": undone,
            "due": due and not undone,
            "qr_code": qr_code(attempt.payment_uri) if due and not undone else "",
        }, request=request)

    def _refund_command(self, attempt: Attempt, note: Note) -> str:
        """How staff send back what does not pay an attempt; empty if nothing is to be sent back."""
        if attempt.refund_id is not None or note.kind not in Note.TRANSFERS or note.sender is None:
            return ""
        return f"svc wallet refund {note.txid} --confirmations {attempt.confirmations}"

    # Refunds

    def payment_refund_supported(self, payment: OrderPayment) -> bool:
        return Attempt.objects.filter(payment=payment, was_settled=True).exists()

    def payment_partial_refund_supported(self, payment: OrderPayment) -> bool:
        return self.payment_refund_supported(payment)

    def execute_refund(self, refund: OrderRefund):
        execute_refund(refund)

    # Data

    def shred_payment_info(self, obj):
        attempt = attempt_of(obj)
        if attempt is not None:
            attempt.notes.update(sender=None)
            if isinstance(obj, OrderRefund):
                # An answer that was asked for before does not count any more.
                Attempt.objects.filter(pk=attempt.pk).update(
                    recipient="", payment_uri="", checkout_url="", look_at=None, revision=F("revision") + 1
                )
        super().shred_payment_info(obj)

    def api_payment_details(self, payment: OrderPayment):
        return self._details(payment)

    def api_refund_details(self, refund: OrderRefund):
        return self._details(refund)

    def _details(self, paid):
        attempt = attempt_of(paid)
        return {} if attempt is None else {
            "reference": attempt.reference,
            "recipient": attempt.recipient,
            "coins": format_amount(attempt.amount),
            "rate": attempt.rate,
            "state": attempt.state,
            "txid": attempt.txid,
        }

    def matching_id(self, payment: OrderPayment):
        attempt = attempt_of(payment)
        return attempt and attempt.txid

    def refund_matching_id(self, refund: OrderRefund):
        attempt = attempt_of(refund)
        return attempt and attempt.txid
