"""The fields of requests to the chain and payment routes (docs/http.md, docs/payments.md "Values")."""

from functools import partial
from typing import Final, TypedDict

from svcd.chain.encoding import MAX_INTEGER, decimal_u53
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import check_reference, fold_case
from svcd.chain.units import parse_amount, parse_base_units
from svcd.chain_schemas import ADDRESS as ADDRESS_SCHEMA
from svcd.chain_schemas import REFERENCE as REFERENCE_SCHEMA
from svcd.chain_schemas import SIGNED_TRANSACTION, WHOLE_NUMBER
from svcd.chain_schemas import SINCE_HEIGHT as SINCE_HEIGHT_SCHEMA
from svcd.commerce.feed import CURSOR_CHARACTERS, MAX_ENTRIES, parse_cursor
from svcd.commerce.payment_list import Cursor
from svcd.commerce.payment_request import (
    DEFAULT_CONFIRMATIONS,
    FORBIDDEN_IN_LABEL,
    MAX_CONFIRMATIONS,
    MAX_LABEL,
    PaymentTerms,
    parse_label,
    parse_price,
    parse_reference,
    parse_terms,
    resolve_amount,
)
from svcd.commerce.payment_waiters import MAX_SECONDS
from svcd.rpc import schemas
from svcd.web.field_types import Custom, Hex, Int, Schema, Text, component, digits_up_to
from svcd.web.routes import Field

HEIGHT_TYPE: Final = Int(0, MAX_INTEGER)
TXID_TYPE: Final = Hex(32, any_case=True)
NEWEST: Final = (MAX_INTEGER, MAX_INTEGER)
"""A cursor after every transfer."""


def _cursor(text: str) -> tuple[int, int]:
    height, _, position = text.partition("-")
    return int(height), int(position)


CURSOR_TYPE: Final = Text(
    "(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})",
    "must be the `next` of the page before, such as 120-3",
    _cursor,
    {"examples": ["120-3"]},
)
_LIST_CURSOR_TYPE: Final = Text(
    "-".join(3 * ["(0|[1-9][0-9]{0,15})"]),
    "must be the `next` of the page before, such as 120-3-0",
    Cursor.parse,
    {"examples": ["120-3-0"]},
)
AMOUNT_TYPE: Final = Custom(
    component(
        "Decimal",
        {
            "type": "string",
            "pattern": r"^(0|[1-9][0-9]{0,7})(\.[0-9]{1,8})?$",
            "not": {"pattern": r"^[0.]+$"},
            "description": "A decimal string greater than 0 with at most 8 decimal places; of an amount, coins.",
            "examples": ["25"],
        },
    ),
    parse_amount,
)
_BASE_UNITS: Final = component(
    "BaseUnits",
    {
        "type": "string",
        "pattern": f"^0*{digits_up_to(MAX_INTEGER)}$",
        "not": {"pattern": "^0+$"},
        "description": "An amount in base units greater than 0, a decimal string.",
        "examples": ["2500000000"],
    },
)


def whole_number(name: str, description: str, schema: Schema = WHOLE_NUMBER) -> Field:
    """An optional field with a whole number as a string of digits."""
    return Field(name, Custom(schema, partial(decimal_u53, what=name)), description, default=None)


HEIGHT: Final = Field("height", HEIGHT_TYPE, "The height; the genesis is 0.")
ADDRESS: Final = Field("address", Custom(ADDRESS_SCHEMA), "An address of this node's network.")
TXID: Final = Field("txid", TXID_TYPE, "The transaction id.")
LIMIT: Final = Field("limit", Int(1, 100), "How many transfers to return at most.", default=25)
BEFORE: Final = Field("before", CURSOR_TYPE, "The `next` of the previous page.", default=None)
BEFORE_ARRIVAL: Final = whole_number("before", "The `next` of the previous page.")
TRANSACTION: Final = Field("transaction", Custom(SIGNED_TRANSACTION, fold_case), "The signed transfer to broadcast.")

_REFERENCE: Final = Custom(schemas.ORDER_REFERENCE, parse_reference)

REFERENCE: Final = Field("reference", _REFERENCE, "The reference of the order.")
NEW_REFERENCE: Final = Field("reference", _REFERENCE, "The reference of the order; generated if omitted.", default=None)
RECIPIENT: Final = Field("recipient", Custom(ADDRESS_SCHEMA), "The address to be paid.")
AMOUNT: Final = Field(
    "amount",
    AMOUNT_TYPE,
    'The amount in coins, a string such as "25".',
    default=None,
)
_PRICE: Final = Custom(AMOUNT_TYPE.schema, parse_price)
COIN_PRICE: Final = Field("coinPrice", _PRICE, "What a coin costs, in any currency; 1 if omitted.", default=None)
HASH_PRICE: Final = Field(
    "hashPrice",
    _PRICE,
    "What an hour of one core costs to rent, in the same currency; 0.01 if omitted.",
    default=None,
)
AMOUNT_BASE_UNITS: Final = Field(
    "amountBaseUnits",
    Custom(_BASE_UNITS, parse_base_units),
    "The amount in base units, a string.",
    default=None,
)
CONFIRMATIONS: Final = Field(
    "confirmations",
    Int(1, MAX_CONFIRMATIONS),
    "The confirmations that the payment needs; a payment in the newest block has 1.",
    default=DEFAULT_CONFIRMATIONS,
)
AFTER: Final = Field("after", _LIST_CURSOR_TYPE, "The `next` of the previous page.", default=None)
LISTED_REFERENCE: Final = Field(
    "reference",
    Custom(REFERENCE_SCHEMA, check_reference),
    "Only transfers under this reference; if omitted, all transfers.",
    default=None,
)
LISTED_AMOUNTS: Final = tuple(
    Field(each.name, each.type, f"The amount of the order in {unit}: each transfer then has `mismatch`.", default=None)
    for each, unit in ((AMOUNT, "coins"), (AMOUNT_BASE_UNITS, "base units"))
)
_LABEL: Final[Schema] = {
    "type": "string",
    "maxLength": MAX_LABEL,
    "pattern": f"^[^{FORBIDDEN_IN_LABEL}]*$",
    "examples": ["Two coffees"],
}
LABEL: Final = Field(
    "label",
    Custom(_LABEL, parse_label),
    "The name of the order, for people.",
    default=None,
)
SINCE_HEIGHT: Final = whole_number(
    "sinceHeight",
    f"Transfers in blocks below this height, 0 to {MAX_INTEGER}, do not count.",
    SINCE_HEIGHT_SCHEMA,
)
WAIT: Final = Field(
    "wait",
    Int(1, MAX_SECONDS),
    "Answer as soon as the payment differs from `state` or changes otherwise, at the latest after this many seconds.",
    default=None,
)
_FEED_CURSOR: Final = component(
    "FeedCursor",
    {
        "type": "string",
        "minLength": CURSOR_CHARACTERS[0],
        "maxLength": CURSOR_CHARACTERS[1],
        "pattern": "^[A-Za-z0-9_-]+$",
        "description": "The end of an answer of a feed.",
        "examples": [schemas.SOME_CURSOR],
    },
)
FEED_AFTER: Final = Field(
    "after",
    Custom(_FEED_CURSOR, parse_cursor),
    "The `next` of the answer before, of this node or another one; without it the feed begins at `sinceHeight`.",
    default=None,
)
FEED_SINCE: Final = whole_number(
    "sinceHeight",
    "Payments in blocks below this height are left out; give the same with each request of a feed.",
    SINCE_HEIGHT_SCHEMA,
)
FEED_LIMIT: Final = Field("limit", Int(1, MAX_ENTRIES), "How many entries to return at most.", default=100)
FEED_WAIT: Final = Field(
    "wait",
    WAIT.type,
    "If nothing has changed since `after`, answer as soon as something has, at the latest after this many seconds.",
    default=None,
)
STATE: Final = Field(
    "state",
    schemas.STATE,
    "The state in the last answer; required with `wait`.",
    default=None,
)

AMOUNTS: Final = (AMOUNT.name, AMOUNT_BASE_UNITS.name)
"""An order has exactly one of them."""
ORDER_QUERY: Final = (RECIPIENT, AMOUNT, AMOUNT_BASE_UNITS, CONFIRMATIONS, SINCE_HEIGHT)
"""The fields of an order beside its reference."""


class OrderValues(TypedDict):
    """The values of ORDER_QUERY."""

    recipient: object
    amount: int | None
    amount_base_units: int | None
    confirmations: int
    since_height: int | None


def terms_from(params: NetworkParams, reference: str, order: OrderValues) -> PaymentTerms:
    """The terms of an order; raises RuleViolation for a wrong recipient, and for no or two amounts."""
    return parse_terms(
        params,
        reference=reference,
        recipient=order["recipient"],
        amount=resolve_amount(order["amount"], order["amount_base_units"]),
        required=order["confirmations"],
        since_height=order["since_height"],
    )
