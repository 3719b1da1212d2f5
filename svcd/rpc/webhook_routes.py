"""The merchants' routes for webhooks (docs/webhook-reference.md), guarded by the management token of each."""

from collections.abc import Callable, Mapping
from typing import Final, Unpack

from attrs import evolve, field, frozen

from svcd.chain.params import NetworkParams
from svcd.chain_schemas import ADDRESS, BASE_UNITS, COUNT, PRUNE_HEIGHT, PRUNED, SINCE_HEIGHT, TIME, WHOLE_NUMBER
from svcd.commerce.events import DEFAULT_EVENTS, EventType
from svcd.commerce.payment import PaymentState
from svcd.commerce.payment_request import MAX_CONFIRMATIONS
from svcd.commerce.sender import MAX_TESTS, TEST_EVENT, CallbackTester, TooManyTests
from svcd.commerce.signing import SigningKeys
from svcd.commerce.watch import EndReason
from svcd.commerce.watch_operations import NotRedeliverable, Selection, TooManyWatches, UnknownWatch, WatchRequest
from svcd.commerce.webhook_service import WebhookService
from svcd.net.calls import CallFailed
from svcd.net.http_client import PinnedClient
from svcd.net.targets import BadTarget, Rules, Target
from svcd.rpc import fields, schemas
from svcd.rpc.event_schemas import CONTENT, EPOCH, EVENT_ID, SEQUENCE, SUBSCRIPTION_ID
from svcd.rpc.fields import OrderValues, terms_from
from svcd.web.field_types import (
    Choice,
    Int,
    Names,
    Schema,
    Text,
    all_described,
    constant,
    described,
    or_null,
    with_example,
)
from svcd.web.request import IncomingRequest
from svcd.web.responses import HttpError, Renderable, service_unavailable, too_many_requests
from svcd.web.routes import Field, Guard, Route, named_object, object_schema, require_bearer

MIN_TTL: Final = 60
MAX_TTL: Final = 604_800
_STATES: Final = (*(state.value for state in PaymentState), EndReason.EXPIRED.value)

_LAST_STATE: Final = Choice(_STATES, name="LastState")

WATCH: Final = Field("id", SUBSCRIPTION_ID, "The id that the registration gave.")
_URL: Final[Schema] = {"format": "uri", "maxLength": 2048, "examples": ["https://shop.example.com/paid"]}
CALLBACK: Final = Field(
    "callbackUrl",
    Text(more=_URL, rule="must be a string, such as https://shop.example.com/paid"),
    "Where events are posted to.",
)
TTL: Final = Field(
    "ttlSeconds",
    Int(MIN_TTL, MAX_TTL, 86_400),
    "The lifetime of the watch; the node has a maximum, and a default, which with `payWithinSeconds` is the maximum.",
    default=None,
)
PAY_WITHIN: Final = Field(
    "payWithinSeconds",
    Int(MIN_TTL, MAX_TTL, 3_600),
    "How long the payment has time to be seen, in the mempool or in a block; at most `ttlSeconds`.",
    default=None,
)

_EVENT_NAMES: Final = Names(
    tuple(event.value for event in EventType),
    name="EventType",
    example=(EventType.CONFIRMED.value, EventType.REORGED.value),
)
MAX_PAGE: Final = 50
EVENT: Final = Field("eventId", EVENT_ID, "The id of an event of this watch.")
STATE: Final = Field(
    "state",
    _LAST_STATE,
    "Only webhooks with this lastState.",
    default=None,
)
HOST: Final = Field(
    "host", Text(more={"examples": ["shop.example.com"]}), "Only webhooks with a callback at this host.", default=None
)
REFERENCE: Final = Field(
    "reference", fields.REFERENCE.type, "Only watches of the order with this reference.", default=None
)
AFTER: Final = Field("after", SUBSCRIPTION_ID, "The `next` of the page before.", default=None)
PAGE_LIMIT: Final = Field("limit", Int(1, MAX_PAGE), "How many webhooks to return at most.", default=20)
EVENTS: Final = Field(
    "events",
    _EVENT_NAMES,
    "The events to send; all but `payment.dropped` and `node.alarm` if it is left out.",
    default=None,
)

_TIME_OR_NULL: Final = or_null(TIME)
_STATUS_OR_NULL: Final = or_null({"type": "integer", "minimum": 200, "maximum": 599, "examples": [204]})
_ERROR_OR_NULL: Final = with_example(or_null({"type": "string"}), None)
_FLAG: Final = constant(True)
_NOT_WAITING: Final[Mapping[str, object]] = {
    "event": EventType.CONFIRMED.value,
    "epoch": 0,
    "sequence": 3,
    "attempts": 1,
    **dict.fromkeys(("attemptsLeft", "superseded", "abandoned", "refused", "dropped")),
    "content": {"payment": {"state": "confirmed"}, **dict.fromkeys(("mismatch", "dropped", "alarm"))},
}
_SENT_AGAIN: Final = {"event": {**_NOT_WAITING, "attemptsLeft": 16, "sequence": 3}}
_WATCHED: Final[Mapping[str, object]] = {
    "lastState": "confirmed",
    "expiresAt": "1795257011703",
    "closesAtHeight": "44",
    **dict.fromkeys(("payUntil", "pruneHeight", "ending", "endedAt", "mismatchesUntil", "breaker", "moreMismatches")),
    **dict.fromkeys(("existing", "warning")),
    "events": _NOT_WAITING,
}
_NEW: Final = {
    "subscription": {
        **_WATCHED,
        "lastState": "unpaid",
        "payUntil": "1795174211703",
        "closesAtHeight": None,
        "events": None,
        "payment": {
            "state": "unpaid",
            "canonical": False,
            "confirmations": 0,
            "matchCount": 0,
            **dict.fromkeys(("txid", "blockHash", "blockHeight", "blockTime", "work")),
        },
    }
}
_CANCELLED: Final = {
    "subscription": {
        **_WATCHED,
        "active": False,
        "closesAtHeight": None,
        "ending": "cancelled",
        "endedAt": "1795170671703",
    }
}
"""Examples: a watch of a confirmed payment, one that is new, and one that has been cancelled."""
_EVENT: Final = named_object(
    "EventDelivery",
    all_described(
        {
            "id": EVENT_ID.schema,
            "event": _EVENT_NAMES.one.schema,
            "epoch": COUNT,
            "sequence": COUNT,
            "createdAt": TIME,
            "attempts": {"type": "integer", "minimum": 0},
            "attemptsLeft": COUNT,
            "lastAttemptAt": _TIME_OR_NULL,
            "lastStatus": _STATUS_OR_NULL,
            "deliveredAt": _TIME_OR_NULL,
            "nextAttemptAt": with_example(_TIME_OR_NULL, None),
            "lastError": _ERROR_OR_NULL,
            "superseded": _FLAG,
            "abandoned": _FLAG,
            "refused": _FLAG,
            "dropped": _FLAG,
            "content": CONTENT,
        },
        {
            "id": "The id of the event.",
            "epoch": EPOCH,
            "sequence": SEQUENCE,
            "createdAt": "When the event was created.",
            "attempts": "How often it was sent.",
            "attemptsLeft": "How often it will still be sent; present while it waits.",
            "lastAttemptAt": "When it was sent last; null before the first attempt.",
            "lastStatus": "The status of the receiver's last answer; null without one.",
            "deliveredAt": "When the receiver accepted it; null if it has not.",
            "nextAttemptAt": "The earliest time of the next attempt, of the event that is next; otherwise null.",
            "lastError": "Why the last attempt failed: `dns`, `refused-address`, `refused-url`, `connect`, `tls`, "
            "`timeout`, `protocol`, `too-large`, `status 500` (or another status), `host-broken` or `internal`; null "
            "if it did not.",
            "superseded": "Not sent any more: a newer event made it obsolete.",
            "abandoned": "Not sent any more: all attempts failed.",
            "refused": "Not sent any more: the receiver rejected it.",
            "dropped": "Not sent any more: the watch ended first.",
        },
    ),
    optional=("attemptsLeft", "superseded", "abandoned", "refused", "dropped"),
    about="An event of a watch, and the result of its delivery.",
)
_SUBSCRIPTION: Final = named_object(
    "Subscription",
    all_described(
        {
            "id": SUBSCRIPTION_ID.schema,
            "active": {"type": "boolean"},
            "reference": schemas.ORDER_REFERENCE,
            "recipient": ADDRESS,
            "amount": BASE_UNITS,
            "requiredConfirmations": Int(1, MAX_CONFIRMATIONS, 12).schema,
            "lastState": _LAST_STATE.schema,
            "callbackUrl": CALLBACK.schema,
            "wantedEvents": _EVENT_NAMES.schema,
            "createdAt": TIME,
            "expiresAt": TIME,
            "payUntil": TIME,
            "closesAtHeight": WHOLE_NUMBER,
            "payment": schemas.PAYMENT,
            "sinceHeight": SINCE_HEIGHT,
            "pruneHeight": PRUNE_HEIGHT,
            "ending": {"type": "string", "enum": [ending.value for ending in EndReason]},
            "endedAt": TIME,
            "mismatchesUntil": TIME,
            "breaker": named_object(
                "ReceiverBreaker",
                {
                    "openedAt": described(TIME, "Since when the receiver fails."),
                    "nextProbeAt": described(TIME, "When the next delivery is tried."),
                },
            ),
            "moreMismatches": _FLAG,
            "existing": _FLAG,
            "warning": with_example(
                {"type": "string"}, "the watch may end before the payment is confirmed; ask for more seconds"
            ),
            "events": {"type": "array", "items": _EVENT, "maxItems": 32},
        },
        {
            "id": "The id of the watch.",
            "active": "Whether the watch can still send events about its payment.",
            "recipient": "The address that is to be paid.",
            "amount": "The exact amount of the order, in base units.",
            "requiredConfirmations": "How many confirmations the payment needs to be `confirmed`.",
            "lastState": "The state of the payment that the watch has reported last, or `expired`.",
            "wantedEvents": "The events that are sent.",
            "createdAt": "When the watch was registered.",
            "expiresAt": "When the watch ends, unless the payment is confirmed.",
            "payUntil": "The deadline of the buyer: until then the payment must have been seen.",
            "closesAtHeight": "Present once the payment was confirmed: the watch does not end before this height.",
            "payment": "The result of verification at this moment.",
            "sinceHeight": "Transfers in blocks below this height do not count.",
            "ending": "How the watch ended: `expired` without a confirmed payment, `closed` after one, `cancelled` by "
            "the merchant, or `gone` by an answer 410 of the receiver.",
            "endedAt": "When the watch ended.",
            "mismatchesUntil": "Until when a watch that has ended still reports mismatches.",
            "breaker": "Present while the receiver fails and gets only one delivery at a time.",
            "moreMismatches": "There are more mismatches than the watch reports: read `GET /rpc/commerce/payments`.",
            "existing": "The same watch was active already, and no new one was registered.",
            "warning": "Present if the watch lasts less than twice the time that its confirmations take.",
            "events": "The newest 32 events, newest first.",
        },
    ),
    optional=(
        *("payUntil", "closesAtHeight", "sinceHeight", "pruneHeight", "ending", "endedAt"),
        *("mismatchesUntil", "breaker", "moreMismatches", "existing", "warning", "events"),
    ),
)
SUBSCRIPTION: Final = named_object("SubscriptionAnswer", {"subscription": _SUBSCRIPTION})
SUBSCRIPTIONS: Final = object_schema(
    {
        "subscriptions": {"type": "array", "items": _SUBSCRIPTION, "maxItems": MAX_PAGE},
        "next": described(
            with_example(or_null(SUBSCRIPTION_ID.schema), None),
            "The `after` of the following page; null on the last one.",
        ),
    }
)
TEST: Final = object_schema(
    {
        "test": named_object(
            "CallbackTest",
            all_described(
                {
                    "id": EVENT_ID.schema,
                    "event": constant(TEST_EVENT),
                    "status": _STATUS_OR_NULL,
                    "error": _ERROR_OR_NULL,
                    "milliseconds": COUNT,
                },
                {
                    "status": "The status of the receiver's answer; null without one.",
                    "error": "Null if the receiver answered 2xx, otherwise a value of `lastError`.",
                    "milliseconds": "How long the test took.",
                },
            ),
        )
    }
)


LOOK_UP_SECONDS: Final = 5.0
LOOK_UP_AGAIN_SECONDS: Final = 30
"""The `Retry-After` if the callback's name could not be resolved."""
TEST_AGAIN_SECONDS: Final = 10
"""The `Retry-After` of a test while others run."""
FULL_SECONDS: Final = 60
"""The `Retry-After` if a limit on watches is reached: watches end all the time."""


@frozen(kw_only=True)
class Merchant:
    """A merchant and its secrets; no merchant sees the watches of another (docs/webhook-reference.md)."""

    name: str
    """Stored with each of its watches."""
    token: str = field(repr=False)
    """Authorises its requests."""
    previous_token: str = field(default="", repr=False)
    """Authorises them too, until ``previous_until``; "" for none."""
    previous_until: int = 0
    """Unix milliseconds."""
    read_only_token: str = field(default="", repr=False)
    """Authorises what changes and sends nothing; "" for none."""
    keys: SigningKeys
    recipients: frozenset[str] = frozenset()
    """The addresses whose payments it may watch; empty for all."""

    def may_watch(self, recipient: str) -> bool:
        """Whether it may watch payments to an address."""
        return not self.recipients or recipient in self.recipients


@frozen(kw_only=True)
class WebhookPolicy:
    """The terms on which this node accepts watches; ``problem`` is why it accepts none, or ""."""

    problem: str
    merchants: tuple[Merchant, ...]
    default_ttl: int
    """Seconds."""
    max_ttl: int


def _check_enabled(owner: "WebhookRoutes", _request: IncomingRequest) -> None:
    if owner.policy.problem:
        raise HttpError(503, owner.policy.problem)


def _authorised(owner: "WebhookRoutes", request: IncomingRequest) -> tuple[Merchant, bool]:
    """The merchant of the request's token, and whether the token is read-only; raises HttpError 401."""
    now, valid = owner.now(), list[tuple[str, Merchant, bool]]()
    for merchant in owner.policy.merchants:
        valid.append((merchant.token, merchant, False))
        if merchant.previous_token and now < merchant.previous_until:
            valid.append((merchant.previous_token, merchant, False))
        if merchant.read_only_token:
            valid.append((merchant.read_only_token, merchant, True))
    _, merchant, read_only = valid[require_bearer(request, *(token for token, _, _ in valid))]
    return merchant, read_only


def _merchant(owner: "WebhookRoutes", request: IncomingRequest) -> Merchant:
    return _authorised(owner, request)[0]


def _check_may_change(owner: "WebhookRoutes", request: IncomingRequest) -> None:
    _, read_only = _authorised(owner, request)
    if read_only:
        raise HttpError(403, "this token is read-only: it lists and shows webhooks; use the management token")


ENABLED: Final = Guard(503, "Webhooks are not enabled on this node, or cannot work.", _check_enabled)
MERCHANT: Final = Guard(
    401, "The management token is missing or wrong.", _merchant, scheme="bearer", argument="merchant"
)
MAY_CHANGE: Final = Guard(403, "The token is read-only.", _check_may_change)

_READING: Final = (ENABLED, MERCHANT)
_CHANGING: Final = (ENABLED, MERCHANT, MAY_CHANGE)
_NO_LOOK_UP: Final = (
    "Webhooks do not work on this node, or not now; if callbackUrl's host cannot be looked up, `Retry-After` says "
    "after how many seconds to ask again."
)
_MAX_PAGE_BYTES: Final = 1536 * 1024
_UNKNOWN: Final = "There is no watch with that id, or it ended more than 30 days ago."


class WebhookRoutes:
    """Begins, shows and ends watches. ``webhooks`` is None where they are not enabled or cannot work."""

    def __init__(
        self,
        params: NetworkParams,
        policy: WebhookPolicy,
        *,
        webhooks: WebhookService | None,
        rules: Rules,
        callers: Mapping[str, PinnedClient],
        tester: CallbackTester | None,
        now: Callable[[], int],
    ) -> None:
        """``callers`` look up callbacks, one for each merchant, by its name; ``now`` returns Unix milliseconds."""
        self.policy = policy
        self.now = now
        self._params = params
        self._webhooks = webhooks
        self._rules = rules
        self._callers = callers
        self._tester = tester

    def set_merchants(self, merchants: tuple[Merchant, ...]) -> None:
        """Serve these merchants from the next request on; ``callers`` has one for each of them."""
        self.policy = evolve(self.policy, merchants=merchants)

    @Route(
        "POST",
        "/rpc/commerce/webhooks",
        "Register a watch, which sends an event for every change of one payment",
        bucket="webhooks",
        guards=_CHANGING,
        body_fields=(
            fields.RECIPIENT,
            fields.AMOUNT,
            fields.AMOUNT_BASE_UNITS,
            fields.REFERENCE,
            fields.CONFIRMATIONS,
            fields.SINCE_HEIGHT,
            CALLBACK,
            TTL,
            PAY_WITHIN,
            EVENTS,
        ),
        one_of=fields.AMOUNTS,
        body_name="NewSubscription",
        example=_NEW,
        answers={201: SUBSCRIPTION},
        errors={
            410: "This node has only later blocks than the one from which on payments are to count.",
            429: "There are too many watches already, or too many requests.",
            503: _NO_LOOK_UP,
        },
        error_members=PRUNED,
    )
    async def register(
        self,
        reference: str,
        *,
        merchant: Merchant,
        callback_url: str,
        ttl_seconds: int | None,
        pay_within_seconds: int | None,
        events: frozenset[str] | None,
        **order: Unpack[OrderValues],
    ) -> Renderable:
        """Answer POST /rpc/commerce/webhooks."""
        terms = terms_from(self._params, reference, order)
        if not merchant.may_watch(terms.recipient):
            raise HttpError(400, "recipient: payments to this address may not be watched with this token")
        seconds = self._lifetime(ttl_seconds, pay_within_seconds)
        target = await self._checked(merchant, callback_url)
        request = WatchRequest(
            merchant=merchant.name,
            terms=terms,
            callback_url=target.url,
            host=target.host,
            ttl_ms=1000 * seconds,
            pay_within_ms=None if pay_within_seconds is None else 1000 * pay_within_seconds,
            events=DEFAULT_EVENTS if events is None else frozenset(map(EventType, events)),
        )
        try:
            record = await self._service.register(request)
        except TooManyWatches as full:
            raise too_many_requests(FULL_SECONDS, str(full)) from full
        warning = self._warning(terms.required, seconds, pay_within_seconds)
        return 201, {"subscription": {**record, "warning": warning} if warning else record}

    def _lifetime(self, ttl: int | None, pay_within: int | None) -> int:
        """The lifetime of a watch in seconds; raises HttpError."""
        policy = self.policy
        if ttl is not None and ttl > policy.max_ttl:
            raise HttpError(400, f"ttlSeconds must be at most {policy.max_ttl} on this node")
        if pay_within is None:
            return ttl or policy.default_ttl
        seconds = ttl or policy.max_ttl
        if pay_within > seconds:
            what = f"{policy.max_ttl} on this node" if ttl is None else f"ttlSeconds, which is {ttl}"
            raise HttpError(400, f"payWithinSeconds must be at most {what}")
        return seconds

    def _warning(self, required: int, ttl: int, pay_within: int | None) -> str:
        """What is wrong with a watch that may end before a payment made in time is confirmed; "" if nothing is."""
        expected = required * self._params.slots_per_block * self._params.slot_seconds
        remaining = ttl - (pay_within or 0)
        if remaining >= 2 * expected:
            return ""
        sentence = f"{required} confirmations take about {expected} s, and this watch ends"
        if pay_within is None:
            return (
                f"{sentence} after {ttl} s even if a payment is on its way: give the buyer's deadline as"
                " payWithinSeconds instead of ttlSeconds"
            )
        larger = (
            f"a larger ttlSeconds, at most {self.policy.max_ttl} on this node, or " if ttl < self.policy.max_ttl else ""
        )
        return (
            f"{sentence} {remaining} s after the buyer's deadline even if a payment is on its way: give {larger}a"
            " shorter payWithinSeconds"
        )

    @Route(
        "GET",
        "/rpc/commerce/webhooks/{id}",
        "A watch, the state of its payment, and its newest events",
        bucket="webhooks",
        guards=_READING,
        path_fields=(WATCH,),
        answers={200: SUBSCRIPTION},
        example={"subscription": _WATCHED},
        errors={404: _UNKNOWN},
        other_methods="to end this watch, POST to its path followed by /cancel",
    )
    async def show(self, id: str, *, merchant: Merchant) -> Renderable:  # noqa: A002
        """Answer GET /rpc/commerce/webhooks/{id}."""
        return _found(await self._service.show(merchant.name, id))

    @Route(
        "POST",
        "/rpc/commerce/webhooks/{id}/cancel",
        "End a watch: no further events",
        bucket="webhooks",
        guards=_CHANGING,
        path_fields=(WATCH,),
        answers={200: SUBSCRIPTION},
        example=_CANCELLED,
        errors={404: _UNKNOWN},
    )
    async def cancel(self, id: str, *, merchant: Merchant) -> Renderable:  # noqa: A002
        """Answer POST /rpc/commerce/webhooks/{id}/cancel."""
        return _found(await self._service.cancel(merchant.name, id))

    @Route(
        "GET",
        "/rpc/commerce/webhooks",
        "The merchant's watches with their newest events, newest first",
        bucket="webhooks",
        by_size=_MAX_PAGE_BYTES,
        guards=_READING,
        query_fields=(REFERENCE, STATE, HOST, AFTER, PAGE_LIMIT),
        answers={200: SUBSCRIPTIONS},
        example={"subscriptions": _WATCHED},
    )
    async def page(
        self,
        *,
        reference: str | None,
        state: str | None,
        host: str | None,
        after: str | None,
        limit: int,
        merchant: Merchant,
    ) -> Renderable:
        """Answer GET /rpc/commerce/webhooks."""
        selection = Selection(state=state, host=host, after=after, limit=limit, reference=reference)
        try:
            page = await self._service.page(merchant.name, selection)
        except UnknownWatch as error:
            raise HttpError(
                400, "after: must be the `next` of a page; the watch with that id is no longer stored"
            ) from error
        return {"subscriptions": page.records, "next": page.next}

    @Route(
        "POST",
        "/rpc/commerce/webhooks/{id}/events/{eventId}/redeliver",
        "Send an event again, with the same id and body",
        bucket="webhooks",
        guards=_CHANGING,
        path_fields=(WATCH, EVENT),
        answers={202: object_schema({"event": _EVENT})},
        example=_SENT_AGAIN,
        errors={
            404: "The watch has no event with that id; the newest 32 are stored.",
            409: "The event cannot be sent again: its body is no longer stored, or the watch was cancelled.",
        },
    )
    async def redeliver(self, id: str, event_id: str, *, merchant: Merchant) -> Renderable:  # noqa: A002
        """Answer POST /rpc/commerce/webhooks/{id}/events/{eventId}/redeliver."""
        try:
            event = await self._service.redeliver(merchant.name, id, event_id)
        except NotRedeliverable as error:
            raise HttpError(409, str(error)) from error
        if event is None:
            raise HttpError(404, "this node has no event with that id for a watch with that id")
        return 202, {"event": event}

    @Route(
        "POST",
        "/rpc/commerce/webhooks/test",
        "Send a signed webhook.test to a callback",
        bucket="webhooks",
        guards=_CHANGING,
        body_fields=(CALLBACK,),
        answers={200: TEST},
        errors={429: "Two tests of the merchant have not ended yet, or there are too many requests.", 503: _NO_LOOK_UP},
    )
    async def test(self, callback_url: str, *, merchant: Merchant) -> Renderable:
        """Answer POST /rpc/commerce/webhooks/test."""
        target = await self._checked(merchant, callback_url)
        if self._tester is None:
            raise HttpError(503, self.policy.problem)
        try:
            test = await self._tester.test(merchant.name, target.url)
            if self._webhooks is not None and test["status"] is not None and test["error"] is None:
                self._webhooks.test_accepted(merchant.name, target.url)
            return {"test": test}
        except TooManyTests as error:
            sentence = f"{MAX_TESTS} tests have not ended yet; try again in {TEST_AGAIN_SECONDS} s"
            raise too_many_requests(TEST_AGAIN_SECONDS, sentence) from error

    @property
    def _service(self) -> WebhookService:
        if self._webhooks is None:
            raise HttpError(503, self.policy.problem)
        return self._webhooks

    async def _checked(self, merchant: Merchant, url: str) -> Target:
        """Parse the callback URL and resolve its host, which every delivery resolves anew."""
        try:
            target = self._rules.parse(url)
            pinned = await self._callers[merchant.name].pin(target, seconds=LOOK_UP_SECONDS)
        except BadTarget as bad:
            raise HttpError(400, str(bad)) from bad
        except CallFailed as failed:
            if failed.category == "refused-address":
                raise HttpError(400, f"callbackUrl: {failed}") from failed
            sentence = f"callbackUrl: {failed}; try again, or give a name that the DNS knows"
            raise service_unavailable(sentence, LOOK_UP_AGAIN_SECONDS) from failed
        await pinned.close()
        return target


def _found(subscription: dict[str, object] | None) -> Renderable:
    if subscription is None:
        raise HttpError(404, "this node has no watch with that id")
    return {"subscription": subscription}
