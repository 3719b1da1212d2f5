"""The merchant's routes for webhooks (docs/webhooks.md), guarded by the management token."""

from typing import Final

from attrs import field, frozen

from svcd.chain.params import NetworkParams
from svcd.commerce.follower import Behind
from svcd.commerce.subscriptions import Order, TooManyWatches
from svcd.commerce.terms import one_amount, terms_of
from svcd.commerce.webhooks import Webhooks
from svcd.net.calls import CallFailed
from svcd.net.pinned import PinnedCaller
from svcd.net.targets import BadTarget, Rules, Target
from svcd.rpc import payment_fields as fields
from svcd.rpc.webhook_fields import CALLBACK, SUBSCRIPTION, TTL, WEBHOOK
from svcd.web.answers import Answer
from svcd.web.bearer import require_bearer
from svcd.web.errors import HttpError
from svcd.web.routing import Asked, Guard, Route

LOOK_UP_SECONDS: Final = 5.0
FULL_SECONDS: Final = 60
"""When to ask again where there is no room: watches end all the time."""


@frozen(kw_only=True)
class Offer:
    """On what terms this node takes in watches; ``problem`` is why it takes in none, or ""."""

    problem: str
    token: str = field(repr=False)
    default_ttl: int
    """Seconds."""
    max_ttl: int


def _check_enabled(room: "WebhookRoutes", _request: Asked) -> None:
    if room.offer.problem:
        raise HttpError(503, room.offer.problem)


def _check_token(room: "WebhookRoutes", request: Asked) -> None:
    require_bearer(request, room.offer.token)


ENABLED: Final = Guard(503, "Webhooks are not enabled on this node, or cannot work.", _check_enabled)
MANAGER: Final = Guard(401, "The management token is missing or wrong.", _check_token, scheme="bearer")


_GUARDS: Final = (ENABLED, MANAGER)
_UNKNOWN: Final = "There is no webhook of that id, or it has been over for more than 30 days."


class WebhookRoutes:
    """Begins, shows and ends watches. ``webhooks`` is None where they are not enabled or cannot work."""

    def __init__(
        self, params: NetworkParams, offer: Offer, *, webhooks: Webhooks | None, rules: Rules, caller: PinnedCaller
    ) -> None:
        self.offer = offer
        self._params = params
        self._webhooks = webhooks
        self._rules = rules
        self._caller = caller

    @Route(
        "POST",
        "/rpc/commerce/webhooks",
        "Watch one payment and be told of every change",
        bucket="webhooks",
        guards=_GUARDS,
        body_fields=(
            fields.RECIPIENT,
            fields.AMOUNT,
            fields.AMOUNT_BASE_UNITS,
            fields.REFERENCE,
            fields.CONFIRMATIONS,
            fields.SINCE_HEIGHT,
            CALLBACK,
            TTL,
        ),
        answers={201: SUBSCRIPTION},
        errors={429: "There are too many watches already, or too many requests."},
    )
    async def register(
        self,
        *,
        recipient: object,
        amount: int | None,
        amount_base_units: int | None,
        reference: str,
        confirmations: int,
        since_height: int | None,
        callback_url: str,
        ttl_seconds: int | None,
    ) -> Answer:
        """Answer POST /rpc/commerce/webhooks."""
        terms = terms_of(
            self._params,
            reference=reference,
            recipient=recipient,
            amount=one_amount(amount, amount_base_units),
            required=confirmations,
            since_height=since_height,
        )
        seconds = ttl_seconds or self.offer.default_ttl
        if seconds > self.offer.max_ttl:
            raise HttpError(400, f"ttlSeconds must be at most {self.offer.max_ttl} on this node")
        target = await self._checked(callback_url)
        order = Order(terms=terms, callback_url=target.url, host=target.host, ttl_ms=1000 * seconds)
        try:
            return 201, {"subscription": await self._living.register(order)}
        except TooManyWatches as full:
            raise HttpError(429, str(full), ((b"Retry-After", b"%d" % FULL_SECONDS),)) from full
        except Behind as behind:
            sentence = "the node has lost its newest blocks and fetches them again; try again in some minutes"
            raise HttpError(503, sentence) from behind

    @Route(
        "GET",
        "/rpc/commerce/webhooks/{id}",
        "A watch, its payment as it stands, and its newest events",
        bucket="webhooks",
        guards=_GUARDS,
        path_fields=(WEBHOOK,),
        answers={200: SUBSCRIPTION},
        errors={404: _UNKNOWN},
    )
    async def show(self, id: str) -> Answer:  # noqa: A002
        """Answer GET /rpc/commerce/webhooks/{id}."""
        return _found(await self._living.show(id))

    @Route(
        "POST",
        "/rpc/commerce/webhooks/{id}/cancel",
        "End a watch: no further events",
        bucket="webhooks",
        guards=_GUARDS,
        path_fields=(WEBHOOK,),
        answers={200: SUBSCRIPTION},
        errors={404: _UNKNOWN},
    )
    async def cancel(self, id: str) -> Answer:  # noqa: A002
        """Answer POST /rpc/commerce/webhooks/{id}/cancel."""
        return _found(await self._living.cancel(id))

    @property
    def _living(self) -> Webhooks:
        if self._webhooks is None:
            raise HttpError(503, self.offer.problem)
        return self._webhooks

    async def _checked(self, url: str) -> Target:
        """The callback, read once and looked up; every delivery looks it up anew."""
        try:
            target = self._rules.parse(url)
            pinned = await self._caller.pin(target, seconds=LOOK_UP_SECONDS)
        except BadTarget as bad:
            raise HttpError(400, str(bad)) from bad
        except CallFailed as failed:
            raise HttpError(400, f"callbackUrl: {failed}") from failed
        await pinned.close()
        return target


def _found(subscription: dict[str, object] | None) -> Answer:
    if subscription is None:
        raise HttpError(404, "there is no webhook of that id here")
    return {"subscription": subscription}
