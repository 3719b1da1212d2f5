"""Tries what the settings say, and tells in one sentence each what is wrong."""

from collections.abc import Iterator

from django.utils.translation import gettext as _
from svc_pay import (
    DEFAULT_CONFIRMATIONS, ApiError, Client, NodeUnreachable, SvcPayError,
    Unauthorized, order_amount,
)

from .attempts import IDENTIFIER, new_reference
from .node import (
    RETRY_SECONDS, TIMEOUT, coins, network, node, open_transport, rates, text,
    webhook,
)


def trials(event) -> Iterator[tuple[bool, str]]:
    """Whether node, token, callback, public URL and rate are right, each with a sentence."""
    from .payment import SvcPay

    provider = SvcPay(event)
    settings = provider.settings
    for attempt in (_node, _token, _callback):
        try:
            with node(settings) as client:
                yield attempt(client, provider)
        except NodeUnreachable as error:
            yield False, _("The node does not answer, so nothing else of it was tried: {reason}").format(reason=error)
            break
        except Unauthorized:
            yield False, _("The node refuses the management token: copy it from the node's settings again.")
            break
        except SvcPayError as error:
            yield False, _("The node cannot be used: {reason}").format(reason=reason_of(error, text(settings, "node_url")))
            break
    if provider.public_node_url:
        yield _public(provider)
    yield _rate(event, settings)


def reason_of(error: SvcPayError, url: str) -> str:
    """What is wrong with a node, or with a URL at which something else answers."""
    if isinstance(error, ApiError) and error.status in (404, 405):
        # A node answers with neither of them to what is tried here.
        return _("{url} does not answer like a svcd node (status {status}): check the URL.").format(url=url, status=error.status)
    return str(error)


def _node(client, provider):
    settings = provider.settings
    made = client.payment_request(
        text(settings, "recipient"), 100_000_000, reference=new_reference(IDENTIFIER),
        confirmations=settings.get("confirmations", as_type=int, default=DEFAULT_CONFIRMATIONS),
    )
    if not client.payment(made.order).synced:
        return False, _("The node answers, but it is still catching up with its network: it confirms no payment until it has.")
    if made.warning:
        return False, _("The node answers, but nobody can pay to the address yet: {reason}").format(reason=made.warning)
    return True, _("The node answers, and knows the address.")


def _token(client, provider):
    client.watches(limit=1)
    return True, _("The node accepts the management token.")


def _callback(client, provider):
    webhook(provider.settings)
    try:
        outcome = client.test_callback(provider.webhook_url)
    except ApiError as error:
        return False, _("The node cannot send events to {url}: {reason}").format(url=provider.webhook_url, reason=error)
    if outcome.status == 401:
        return False, _("The events of the node are refused, because its signing secret is another one: copy it from the node's "
                        "settings again.")
    if outcome.error is not None:
        return False, _("The node cannot send events to {url}: {reason}").format(url=provider.webhook_url, reason=outcome.error)
    return True, _("The events of the node arrive, and are signed with the right secret.")


def _public(provider):
    url = provider.public_node_url
    try:
        with Client(
            url, timeout=TIMEOUT, retry_seconds=RETRY_SECONDS, network=network(provider.settings),
            transport=open_transport(url),
        ) as client:
            client.payment_request(
                text(provider.settings, "recipient"), 100_000_000, reference=new_reference(IDENTIFIER)
            )
    except SvcPayError as error:
        return False, _("The public URL {url} does not lead to a node of this network, so buyers get a button that does nothing: "
                        "{reason}").format(url=url, reason=reason_of(error, url))
    return True, _("The public URL leads to a node of this network.")


def _rate(event, settings):
    try:
        quote = order_amount("1", event.currency, rates(settings, event.currency).rate())
    except SvcPayError as error:
        return False, _("There is no rate, so nothing is sold for coins: {reason}").format(reason=error)
    return True, _("At {rate} {currency} for a coin, 1 {currency} is {amount}.").format(
        rate=quote.rate, currency=event.currency, amount=coins(settings, quote.amount)
    )
