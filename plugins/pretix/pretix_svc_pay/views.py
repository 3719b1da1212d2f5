import logging
from datetime import timedelta

from django.contrib import messages
from django.db import OperationalError
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.timezone import now
from django.views import View
from django.views.decorators.clickjacking import xframe_options_exempt
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from pretix.base.models import Order
from pretix.base.services.locking import LockTimeoutException
from pretix.control.views.event import PaymentProviderSettings
from svc_pay import (
    InvalidAnswer, InvalidInput, InvalidSignature, State, SvcPayError,
    WatchEvent,
)

from .attempts import IDENTIFIER, look, take
from .models import Attempt
from .node import node, webhook as verifier
from .trial import trials

logger = logging.getLogger(__name__)
MOST_BYTES = 16 * 1024
"""How long the body of an event may be; those of the node have at most 4096."""
FRESH = timedelta(seconds=3)
"""How often an open page makes pretix ask the node at most."""


@csrf_exempt
@require_POST
def webhook(request, *args, **kwargs):
    """Take an event of the node; 401 if it is not from the node."""
    provider = request.event.get_payment_providers(cached=True).get(IDENTIFIER)
    if provider is None:
        raise Http404()
    try:
        length = int(request.headers.get("Content-Length") or 0)
    except ValueError:
        return HttpResponse(status=400)
    if length > MOST_BYTES:
        return HttpResponse(status=413)
    try:
        event = verifier(provider.settings).verify(request.body, request.headers)
    except (InvalidSignature, InvalidInput) as error:
        logger.warning("A callback for %s is refused: %s", request.event.slug, error)
        return HttpResponse(status=401)
    except InvalidAnswer as error:
        logger.warning("A callback for %s cannot be read: %s", request.event.slug, error)
        return HttpResponse(status=400)
    if isinstance(event, WatchEvent):
        attempt = Attempt.objects.filter(reference=event.payment.reference, order__event=request.event).first()
        if attempt is None:
            logger.info("%s %s: no such attempt", event.name, event.payment.reference)
            return HttpResponse(status=200)
        try:
            done = take(attempt, event)
        except (LockTimeoutException, OperationalError, SvcPayError) as error:
            # 409 and not 503, with which the node would slow down the events of all other orders.
            logger.warning("%s %s: to be sent again: %s", event.name, attempt.reference, error)
            return HttpResponse(status=409)
        logger.info("%s %s: %s", event.name, attempt.reference, done)
    return HttpResponse(status=200)


@method_decorator(xframe_options_exempt, "dispatch")
class StateView(View):
    """What the page of an order asks: whether there is something new to show."""

    def get(self, request, *args, **kwargs):
        try:
            order = request.event.orders.get_with_secret_check(
                code=kwargs["order"], received_secret=kwargs["hash"].lower(), tag="plugins:pretix_svc_pay"
            )
        except Order.DoesNotExist:
            raise Http404("Unknown order")
        attempt = get_object_or_404(Attempt, order=order, payment_id=kwargs["payment"])
        provider = request.event.get_payment_providers(cached=True).get(IDENTIFIER)
        # Marks the moment in the same statement, so that many pages at once ask the node once.
        stale = Attempt.objects.filter(pk=attempt.pk, asked__lte=now() - FRESH)
        if provider is not None and attempt.state != State.CONFIRMED and stale.update(asked=now()):
            try:
                with node(provider.settings) as client:
                    look(client, attempt)
            except (LockTimeoutException, OperationalError, SvcPayError) as error:
                logger.warning("The node of %s cannot be asked: %s", request.event.slug, error)
        attempt.refresh_from_db()
        answer = JsonResponse({
            "state": attempt.state,
            "confirmations": attempt.depth,
            "wrong": attempt.wrong_amounts().count() if attempt.state == "unpaid" else 0,
            "payment": attempt.payment.state,
            "order": order.status,
        })
        answer["Cache-Control"] = "no-store"
        return answer


class TestView(PaymentProviderSettings):
    """Saves the form of the settings, and tries what it says."""

    def dispatch(self, request, *args, **kwargs):
        self.kwargs["provider"] = IDENTIFIER
        return super().dispatch(request, *args, **kwargs)

    def get(self, request, *args, **kwargs):
        if request.method == "POST":  # The form has an error, and is shown again.
            return super().get(request, *args, **kwargs)
        return redirect(self.get_success_url())

    def get_success_url(self):
        return reverse("control:event.settings.payment.provider", kwargs={
            "organizer": self.request.event.organizer.slug, "event": self.request.event.slug, "provider": IDENTIFIER,
        })

    def post(self, request, *args, **kwargs):
        answer = super().post(request, *args, **kwargs)
        if answer.status_code == 302:
            # The settings are committed, so that the worker which takes the test callback knows them.
            for right, sentence in trials(request.event):
                (messages.success if right else messages.error)(request, sentence)
        return answer
