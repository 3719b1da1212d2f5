"""What the routes for merchants take from a request (docs/payments.md "Values")."""

from typing import Any, Final

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.units import parse_amount, parse_base_units
from svcd.commerce.payment import DEFAULT_CONFIRMATIONS, MAX_CONFIRMATIONS
from svcd.commerce.terms import (
    MAX_LABEL,
    UNSHOWABLE,
    parse_confirmations,
    parse_confirmations_text,
    parse_label,
    parse_reference,
)
from svcd.rpc import schemas
from svcd.rpc.fields import parse_height
from svcd.web.routing import Field, Schema


def _as_given(value: Any) -> object:
    """An address is judged with the network at hand."""
    return value


def parse_since_height(value: object) -> int:
    """A height as a decimal string; raises ValueError."""
    return parse_height(value if isinstance(value, str) else "")


_DECIMAL: Final[Schema] = {"type": "string", "pattern": r"^(0|[1-9][0-9]*)(\.[0-9]{1,8})?$", "maxLength": 32}
_DIGITS: Final[Schema] = {"type": "string", "pattern": "^0*[1-9][0-9]{0,15}$"}
_DEPTH: Final[Schema] = {
    "type": "integer",
    "minimum": 1,
    "maximum": MAX_CONFIRMATIONS,
    "default": DEFAULT_CONFIRMATIONS,
}
_DEPTH_SAYS: Final = "How deep the payment must lie: 1 for the newest block."
_EITHER: Final = "Either amount or amountBaseUnits must be given."

REFERENCE: Final = Field("reference", parse_reference, schemas.ORDER_REFERENCE, "The reference of the order.")
NEW_REFERENCE: Final = Field(
    "reference",
    parse_reference,
    schemas.ORDER_REFERENCE,
    "The reference of the order; one is made where it is left out.",
    required=False,
)
RECIPIENT: Final = Field("recipient", _as_given, schemas.ADDRESS, "The address that is to be paid.")
AMOUNT: Final = Field(
    "amount", parse_amount, _DECIMAL, f'The amount in coins, a string such as "25". {_EITHER}', required=False
)
AMOUNT_BASE_UNITS: Final = Field(
    "amountBaseUnits", parse_base_units, _DIGITS, f"The amount in base units, a string. {_EITHER}", required=False
)
CONFIRMATIONS: Final = Field(
    "confirmations", parse_confirmations, _DEPTH, _DEPTH_SAYS, required=False, default=DEFAULT_CONFIRMATIONS
)
CONFIRMATIONS_TEXT: Final = Field(
    "confirmations", parse_confirmations_text, _DEPTH, _DEPTH_SAYS, required=False, default=DEFAULT_CONFIRMATIONS
)
LABEL: Final = Field(
    "label",
    parse_label,
    {"type": "string", "maxLength": MAX_LABEL, "pattern": f"^[^{UNSHOWABLE}]*$"},
    "What people are shown as the name of the order.",
    required=False,
)
SINCE_HEIGHT: Final = Field(
    "sinceHeight",
    parse_since_height,
    schemas.DECIMAL,
    f"Transfers in blocks below this height, 0 to {MAX_INTEGER}, do not count.",
    required=False,
)

ORDER_QUERY: Final = (RECIPIENT, AMOUNT, AMOUNT_BASE_UNITS, CONFIRMATIONS_TEXT, SINCE_HEIGHT)
"""What says, beside the reference in the path, which order is meant: the same for a verification and for a proof."""
