import json
import logging
from datetime import timedelta
from urllib.parse import urlsplit

from django.db import OperationalError
from django.db.models.signals import pre_save
from django.dispatch import receiver
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from django_scopes import scopes_disabled
from pretix.base.logentrytypes import OrderLogEntryType, log_entry_types
from pretix.base.middleware import add_to_response_csp
from pretix.base.models import LogEntry, Order, OrderRefund
from pretix.base.notifications import ParametrizedOrderNotificationType
from pretix.base.services.locking import LockTimeoutException
from pretix.base.signals import (
    periodic_task, register_notification_types, register_payment_providers,
)
from pretix.presale.signals import process_response
from svc_pay import (
    NodeUnreachable, SvcPayError, TooManyRequests, Unauthorized, Unavailable,
)

from .attempts import (
    IDENTIFIER, LOG_NOTE, LOG_SETTLED_AGAIN, LOG_UNDONE,
    execute_created_refunds, look, put_off,
)
from .feeds import feeds_of, read
from .models import Attempt, Note
from .node import node

logger = logging.getLogger(__name__)
AT_ONCE = 500
"""How many attempts one run of the periodic task asks about at most; the others have their turn in the next."""


@receiver(register_payment_providers, dispatch_uid="pretix_svc_pay_provider")
def register_payment_provider(sender, **kwargs):
    from .payment import SvcPay

    return SvcPay


@receiver(periodic_task, dispatch_uid="pretix_svc_pay_periodic")
def look_at_attempts(sender, **kwargs):
    """Make good what an event should have told."""
    with scopes_disabled():
        look_at_due(Attempt.objects.all())
        waiting = Order.objects.filter(
            refunds__state=OrderRefund.REFUND_STATE_CREATED, refunds__provider=IDENTIFIER,
            refunds__svc_pay_attempt__isnull=True, refunds__created__lte=now() - timedelta(minutes=1),
        )
        for order in waiting.distinct():
            execute_created_refunds(order)


def look_at_due(every):
    """Read the feeds for these attempts, and ask the node about each attempt that a feed or the clock has made due."""
    for event, recipient in feeds_of(every):
        provider = event.get_payment_providers(cached=True).get(IDENTIFIER)
        if provider is not None:
            try:
                with node(provider.settings) as client:
                    read(client, event, recipient)
            except (LockTimeoutException, OperationalError, SvcPayError) as error:  # The next run repeats it.
                logger.warning("The feed of %s for %s cannot be read: %s", recipient, event.slug, error)
    due = every.filter(look_at__lte=now()).select_related("order__event__organizer").order_by("look_at")
    by_event = {}
    for attempt in due[:AT_ONCE]:
        by_event.setdefault(attempt.order.event, []).append(attempt)
    for event, attempts in by_event.items():
        provider = event.get_payment_providers(cached=True).get(IDENTIFIER)
        if provider is None:  # The plugin was disabled for the event.
            put_off(attempts, timedelta(hours=1))
            continue
        try:
            with node(provider.settings) as client:
                for attempt in attempts:
                    look_at_one(client, attempt)
        except SvcPayError as error:
            logger.warning("The node of %s cannot be asked about payments: %s", event.slug, error)
            put_off(attempts, timedelta(minutes=1))


def look_at_one(client, attempt):
    """Ask about one attempt; raises SvcPayError if the others need not be asked about either."""
    try:
        look(client, attempt)
    except (NodeUnreachable, Unavailable, Unauthorized, TooManyRequests):
        raise
    except (LockTimeoutException, OperationalError) as error:  # The next run repeats it.
        logger.warning("The payment %s cannot be looked at now: %s", attempt.reference, error)
    except SvcPayError as error:
        logger.warning("The payment %s cannot be looked at: %s", attempt.reference, error)
        put_off([attempt], timedelta(hours=1))


# What staff see


@log_entry_types.new()
class NoteLogEntryType(OrderLogEntryType):
    action_type = LOG_NOTE

    def display(self, logentry, data):
        return _("SVC coins: {sentence} See the payment for details.").format(sentence=Note.KINDS.get(data.get("kind"), ""))


@log_entry_types.new_from_dict({
    LOG_UNDONE: _("A reorganisation has undone the payment {local_id} in coins. The order stays paid; decide what to do, "
                  "unless the payment is confirmed again."),
    LOG_SETTLED_AGAIN: _("The payment {local_id} in coins, which a reorganisation had undone, is confirmed again."),
})
class StateLogEntryType(OrderLogEntryType):
    pass


@receiver(register_notification_types, dispatch_uid="pretix_svc_pay_notifications")
def notification_types(sender, **kwargs):
    return (
        ParametrizedOrderNotificationType(
            sender, LOG_NOTE, _("A payment in coins needs attention"), _("A payment in coins for order {order.code} needs attention."),
        ),
        ParametrizedOrderNotificationType(
            sender, LOG_UNDONE, _("A payment in coins was undone"), _("The payment in coins for order {order.code} was undone."),
        ),
    )


@receiver(pre_save, sender=LogEntry, dispatch_uid="pretix_svc_pay_secrets")
def keep_secrets_out_of_the_log(sender, instance, **kwargs):
    """pretix logs the new values of a changed form, and hides those of secrets only in some places."""
    if instance.action_type != "pretix.event.payment.provider" or IDENTIFIER not in (instance.data or ""):
        return
    data = json.loads(instance.data)
    if data.get("provider") == IDENTIFIER:
        values = data.get("new_values") or {}
        for name in ("token", "signing_secret"):
            key = f"payment_{IDENTIFIER}_{name}"
            if values.get(key):
                values[key] = "********"
        instance.data = json.dumps(data, sort_keys=True)


@receiver(process_response, dispatch_uid="pretix_svc_pay_csp")
def allow_the_node(sender, request, response, **kwargs):
    """Let the page of an order ask the node."""
    from .payment import SvcPay

    if request.resolver_match is not None and request.resolver_match.url_name == "event.order":
        provider = SvcPay(sender)
        if provider.is_enabled and provider.public_node_url:
            # Without a path: with one, only exactly that URL would be allowed.
            node_at = urlsplit(provider.public_node_url)
            add_to_response_csp(response, {"connect-src": [f"{node_at.scheme}://{node_at.netloc}"]})
    return response
