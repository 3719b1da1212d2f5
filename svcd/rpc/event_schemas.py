"""The webhooks section of the OpenAPI document: the requests to receivers (docs/webhook-reference.md)."""

from collections.abc import Mapping
from typing import Final

from svcd.chain_schemas import (
    ADDRESS,
    BASE_UNITS,
    CHAIN_ID,
    CONFIRMATIONS,
    COUNT,
    GENESIS_HASH,
    HASH,
    NETWORK_ID,
    TIME,
    WHOLE_NUMBER,
)
from svcd.commerce.events import LATE, DropReason, EventType
from svcd.commerce.payment import PaymentState
from svcd.commerce.payment_list import AmountMismatch
from svcd.commerce.sender import TEST_EVENT
from svcd.node.chain_alarms import DEEP
from svcd.rpc import schemas
from svcd.rpc.openapi import Webhook
from svcd.web.field_types import Choice, Schema, Text, all_described, constant, described, with_example
from svcd.web.routes import Field, named_object

EVENT_ID: Final = Text(
    "svcevt_[0-9a-f]{32}",
    "must be the id of an event: svcevt_ and 32 lower-case hex characters",
    more={"examples": ["svcevt_0123456789abcdef0123456789abcdef"]},
    name="EventId",
)
SUBSCRIPTION_ID: Final = Text(
    "svcwh_[a-f0-9]{32}",
    "must be the id of a watch: svcwh_ and 32 lower-case hex characters",
    more={"examples": ["svcwh_0123456789abcdef0123456789abcdef"]},
    name="SubscriptionId",
)
_ALARM: Final = named_object(
    "NodeAlarm",
    all_described(
        {
            "kind": with_example({"type": "string"}, DEEP),
            "sentence": with_example({"type": "string"}, "a reorganisation has replaced 14 blocks"),
        },
        {
            "kind": "`outage`, `deep-reorganisation` or `standstill`.",
            "sentence": "The alarm, for people.",
        },
    ),
)
_MISMATCH: Final = named_object(
    "EventMismatch",
    all_described(
        {
            "txid": HASH,
            "sender": ADDRESS,
            "amount": BASE_UNITS,
            "amountSvc": schemas.COINS,
            "kind": {"type": "string", "enum": [*AmountMismatch, LATE]},
            "more": constant(True),
        },
        {
            "txid": "The transfer that does not pay the order.",
            "sender": "The address that sent it.",
            "amount": "Its amount in base units.",
            "amountSvc": "Its amount in coins.",
            "kind": "`too-little` or `too-much` for another amount, `duplicate` if another transfer pays the order, "
            "`late` if the watch had ended as `expired`.",
            "more": "Present in the sixteenth report of a watch: from then on read `GET /rpc/commerce/payments`, "
            "which lists all transfers.",
        },
    ),
    optional=["more"],
)
_DROP: Final = named_object(
    "Drop",
    all_described(
        {
            "reason": {"type": "string", "enum": [reason.value for reason in DropReason]},
            "txid": HASH,
            "replacedBy": HASH,
        },
        {
            "reason": "`replaced` by another transfer of the sender with the same nonce, `expired` after a day, "
            "`evicted` for lack of room or of balance, `unknown` if the node was down meanwhile.",
            "txid": "The transfer that left the mempool.",
            "replacedBy": "The transfer that replaced it.",
        },
    ),
    optional=["txid", "replacedBy"],
)
_BEGINNING: Final[Mapping[str, Schema]] = all_described(
    {"createdAt": TIME, "networkId": NETWORK_ID, "chainId": CHAIN_ID, "genesisHash": GENESIS_HASH},
    {
        "createdAt": "When the event was created.",
        "genesisHash": "Identifies the chain: compare it with that of `/rpc/commerce/info`.",
    },
)
EPOCH: Final = "Begins at 0 and grows with every `payment.reorged`; much higher after a restored backup."
SEQUENCE: Final = "Begins at 1 and grows with every event of the watch; events that are not sent leave gaps."
_MEMBERS_OF_WATCH: Final[Mapping[str, Schema]] = {
    **_BEGINNING,
    "subscriptionId": SUBSCRIPTION_ID.schema,
    "epoch": with_example(COUNT, 0),
    "sequence": with_example(COUNT, 1),
    "initial": with_example({"type": "boolean"}, False),
    "previousState": schemas.STATE.schema,
    "payment": schemas.EVENT_PAYMENT,
    "tip": schemas.TIP,
    "node": schemas.NODE_VIEW,
}
_OF_WATCH: Final = all_described(
    _MEMBERS_OF_WATCH,
    {
        "subscriptionId": "The watch.",
        "epoch": EPOCH,
        "sequence": SEQUENCE,
        "initial": "Whether the payment, or the alarm, was there when the watch was registered.",
        "previousState": "The `lastState` of the watch before the event.",
        "payment": "The result of verification at that moment.",
    },
)


def _event(name: str, event: Schema, more: Mapping[str, Schema], about: str) -> Schema:
    beginning = {"id": described(EVENT_ID.schema, "The same in every attempt."), "event": event}
    return named_object(name, {**beginning, **more}, about=about)


_STATES: Final = {
    EventType.PENDING: ("A matching transfer waits in the mempool", PaymentState.PENDING),
    EventType.CONFIRMING: ("A matching transfer is canonical, or its depth has changed", PaymentState.CONFIRMING),
    EventType.CONFIRMED: ("The payment has reached the required depth", PaymentState.CONFIRMED),
    EventType.REORGED: ("A reorganisation has taken the payment, or some of its depth, away", PaymentState.UNPAID),
    EventType.EXPIRED: ("The watch has ended without a confirmed payment", PaymentState.UNPAID),
}
PAYMENT_EVENT: Final = _event(
    "PaymentEvent",
    Choice(tuple(_STATES), name="PaymentEventType").schema,
    _OF_WATCH,
    "The state of a watched payment has changed.",
)
MISMATCHED_EVENT: Final = _event(
    "MismatchedEvent",
    constant(EventType.MISMATCHED.value),
    {**_OF_WATCH, "mismatch": _MISMATCH},
    "A transfer under the order's reference does not pay it.",
)
DROPPED_EVENT: Final = _event(
    "DroppedEvent",
    constant(EventType.DROPPED.value),
    {**_OF_WATCH, "dropped": _DROP},
    "A pending payment has left the mempool without a block.",
)
CONTENT: Final = named_object(
    "EventContent",
    {
        "payment": named_object(
            "ShortPayment",
            {
                "state": schemas.STATE.schema,
                "confirmations": CONFIRMATIONS,
                "txid": HASH,
                "blockHash": HASH,
                "blockHeight": WHOLE_NUMBER,
            },
            optional=["txid", "blockHash", "blockHeight"],
        ),
        "tip": schemas.TIP,
        "mismatch": _MISMATCH,
        "dropped": _DROP,
        "alarm": _ALARM,
    },
    optional=["mismatch", "dropped", "alarm"],
    about="What an event says, in short.",
)
ALARM_EVENT: Final = _event(
    "AlarmEvent",
    constant(EventType.ALARM.value),
    {**_OF_WATCH, "alarm": _ALARM},
    "Something is wrong with the chain or the node.",
)
TEST: Final = _event("TestEvent", constant(TEST_EVENT), _BEGINNING, "Sent by /rpc/commerce/webhooks/test.")

_SECONDS: Final = Text("[0-9]{1,15}", more={"examples": ["1795170611"]})
_EVENT_NAMES: Final = Choice((*EventType, TEST_EVENT))
SIGNED: Final = (
    Field("X-Svc-Event", _EVENT_NAMES, "The type of the event."),
    Field("X-Svc-Event-Id", EVENT_ID, "The id of the event, the same in every attempt."),
    Field("X-Svc-Timestamp", _SECONDS, "When this attempt was made, in Unix seconds."),
    Field(
        "X-Svc-Signature",
        Text("v1=[0-9a-f]{64}", more={"examples": ["v1=" + 4 * "0123456789abcdef"]}),
        "`v1=` and the HMAC-SHA256, in hex, of timestamp, dot and raw body under the signing secret.",
    ),
    Field("webhook-id", EVENT_ID, "The same id, for the verifiers of Standard Webhooks."),
    Field("webhook-timestamp", _SECONDS, "The same time, for the verifiers of Standard Webhooks."),
    Field(
        "webhook-signature",
        Text("v1,[A-Za-z0-9+/]{43}=( v1,[A-Za-z0-9+/]{43}=)?", more={"examples": ["v1," + 43 * "A" + "="]}),
        "The signature of Standard Webhooks; during a rotation a second one, under the previous secret.",
    ),
)
_RESPONSES: Final = {
    "2XX": "The receiver has accepted the event, and does not get it again.",
    "410": "The receiver wants no more events of this watch, and the watch ends.",
    "4XX": "The receiver refuses the event, which is sent again twice; after 401, 403, 404, 405, 408, 409, 425 and 429 "
    "as often as after 5XX.",
    "5XX": "The event is sent again later.",
}
_UNSEEN: Final[Mapping[str, object]] = dict.fromkeys(("txid", "blockHash", "blockHeight", "blockTime", "work"))
_DEPTHS: Final = {PaymentState.CONFIRMING: 3, PaymentState.CONFIRMED: 12}


def _payment(state: PaymentState) -> dict[str, object]:
    """The members of a payment in ``state`` in the example of an event."""
    depth = _DEPTHS.get(state, 0)
    more: dict[str, object] = {} if depth else {**_UNSEEN, "matchCount": 0}
    if state is PaymentState.PENDING:
        more = {name: None for name in _UNSEEN if name != "txid"}
    if state is PaymentState.CONFIRMING:
        more = {"work": {"hashesToUndo": "49140", "coreHoursToUndo": "0.0989", "workConfirmations": "3.00"}}
    return {"state": state.value, "canonical": depth > 0, "confirmations": depth, **more}


def _at(height: str) -> dict[str, object]:
    """The newest block at the moment of an event in its example."""
    return {"tip": {"height": height}, "node": {"height": height}}


def _webhook(name: str, summary: str, body: Schema, values: Mapping[str, object]) -> Webhook:
    return Webhook(
        name=name, summary=summary, tag="events", body=body, headers=SIGNED, responses=_RESPONSES, values=values
    )


_PAID_TOO_LITTLE: Final = {"amount": "2400000000", "amountSvc": "24"}
_BEFORE: Final[Mapping[EventType, Mapping[str, object]]] = {
    EventType.PENDING: {"previousState": "unpaid", **_at("2")},
    EventType.CONFIRMING: {"previousState": "pending", "sequence": 2, **_at("5")},
    EventType.CONFIRMED: {"previousState": "confirming", "sequence": 3},
    EventType.REORGED: {"previousState": "confirmed", "sequence": 4, "epoch": 1},
    EventType.EXPIRED: {"previousState": "unpaid"},
}
"""What the examples of the events of one watch have beside the payment."""
WEBHOOKS: Final = (
    *(
        _webhook(event, summary, PAYMENT_EVENT, {"event": event.value, "payment": _payment(state), **_BEFORE[event]})
        for event, (summary, state) in _STATES.items()
    ),
    _webhook(
        EventType.MISMATCHED,
        "A transfer under the order's reference does not pay it",
        MISMATCHED_EVENT,
        {
            "payment": {
                **_payment(PaymentState.UNPAID),
                "mismatches": [{"txid": 4 * "0123456789abcdef", **_PAID_TOO_LITTLE, "confirmations": 12}],
            },
            "mismatch": {**_PAID_TOO_LITTLE, "more": None},
        },
    ),
    _webhook(
        EventType.DROPPED,
        "A pending payment has left the mempool without a block",
        DROPPED_EVENT,
        {
            "payment": _payment(PaymentState.UNPAID),
            "previousState": "pending",
            "sequence": 2,
            "dropped": {"reason": "replaced", "replacedBy": 4 * "fedcba9876543210"},
        },
    ),
    _webhook(
        EventType.ALARM,
        "Something is wrong with the chain or the node",
        ALARM_EVENT,
        {"previousState": "confirmed", "sequence": 4},
    ),
    _webhook(TEST_EVENT, "A merchant has asked for a test of the callback", TEST, {}),
)
