"""What the routes for webhooks take from a request, and what a subscription looks like (docs/webhooks.md)."""

import re
from typing import Any, Final

from svcd.commerce.payment import MAX_CONFIRMATIONS, State
from svcd.commerce.watch import Ending, Event
from svcd.rpc import schemas
from svcd.web.routing import Field, Schema, object_schema

LEAST_TTL: Final = 60
MOST_TTL: Final = 604_800
_ID: Final = re.compile("svcwh_[0-9a-f]{32}")
_ID_SCHEMA: Final[Schema] = {"type": "string", "pattern": "^svcwh_[a-f0-9]{32}$"}


def _identifier(value: Any) -> str:
    if type(value) is str and _ID.fullmatch(value):
        return value
    raise ValueError("must be the id of a webhook: svcwh_ and 32 lower-case hex characters")


def _url(value: Any) -> str:
    if type(value) is str:
        return value
    raise ValueError("must be a string, such as https://shop.example.com/paid")


def _seconds(value: Any) -> int:
    if type(value) is int and LEAST_TTL <= value <= MOST_TTL:
        return value
    raise ValueError(f"must be a whole number of seconds from {LEAST_TTL} to {MOST_TTL}")


WEBHOOK: Final = Field("id", _identifier, _ID_SCHEMA, "The id that the registration gave.")
CALLBACK: Final = Field(
    "callbackUrl", _url, {"type": "string", "format": "uri", "maxLength": 2048}, "Where events are posted to."
)
TTL: Final = Field(
    "ttlSeconds",
    _seconds,
    {"type": "integer", "minimum": LEAST_TTL, "maximum": MOST_TTL},
    "How long to watch; the node may have a lower maximum, and has a default.",
    required=False,
)

_TIME_OR_NULL: Final[Schema] = {"oneOf": [schemas.DECIMAL, {"type": "null"}]}
_FLAG: Final[Schema] = {"const": True}
_EVENT: Final = object_schema(
    {
        "id": {"type": "string", "pattern": "^svcevt_[0-9a-f]{32}$"},
        "event": {"type": "string", "enum": [event.value for event in Event]},
        "createdAt": schemas.DECIMAL,
        "attempts": {"type": "integer", "minimum": 0},
        "deliveredAt": _TIME_OR_NULL,
        "nextAttemptAt": _TIME_OR_NULL,
        "lastError": {"type": ["string", "null"]},
        "superseded": _FLAG,
        "abandoned": _FLAG,
        "dropped": _FLAG,
    },
    optional=("superseded", "abandoned", "dropped"),
)
SUBSCRIPTION: Final = object_schema(
    {
        "subscription": object_schema(
            {
                "id": _ID_SCHEMA,
                "active": {"type": "boolean"},
                "reference": schemas.ORDER_REFERENCE,
                "recipient": schemas.ADDRESS,
                "amount": schemas.DECIMAL,
                "requiredConfirmations": {"type": "integer", "minimum": 1, "maximum": MAX_CONFIRMATIONS},
                "lastState": {"type": "string", "enum": [*(state.value for state in State), Ending.EXPIRED.value]},
                "callbackUrl": {"type": "string", "format": "uri"},
                "createdAt": schemas.DECIMAL,
                "expiresAt": schemas.DECIMAL,
                "payment": schemas.PAYMENT,
                "sinceHeight": schemas.DECIMAL,
                "ending": {"type": "string", "enum": [ending.value for ending in Ending]},
                "existing": _FLAG,
                "events": {"type": "array", "items": _EVENT, "maxItems": 32},
            },
            optional=("sinceHeight", "ending", "existing", "events"),
        )
    }
)
