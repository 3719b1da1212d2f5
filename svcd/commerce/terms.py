"""What an order may ask for, value by value; every fault is one sentence (docs/payments.md "Values")."""

import re
from typing import Final
from urllib.parse import urlencode

from svcd.chain.address import decode_address
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import check_reference
from svcd.commerce.payment import DEFAULT_CONFIRMATIONS, MAX_CONFIRMATIONS, Terms

MAX_LABEL: Final = 80
UNSHOWABLE: Final = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""What no label may hold, as a class of a regular expression: control characters, line and paragraph separators, and
what turns the direction of text around (Bidi_Control of the Unicode standard)."""
_UNSHOWABLE: Final = re.compile(rf"[{UNSHOWABLE}\ud800-\udfff]")
_CONFIRMATIONS: Final = re.compile("[1-9][0-9]{0,3}")


def parse_reference(value: object) -> str:
    """The reference of an order; raises RuleViolation(REFERENCE).

    A transfer may carry ``.`` or ``..`` too, but URLs swallow these, so that no one could ask for such a payment.
    """
    try:
        reference = check_reference(value)
    except RuleViolation as violation:
        sentence = "reference must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -, such as order-1042"
        raise RuleViolation(violation.code, sentence) from None
    if reference in (".", ".."):
        raise RuleViolation(Refusal.REFERENCE, "reference must not be . or .., which URLs swallow; add a letter")
    return reference


def parse_label(value: object) -> str | None:
    """A label to be shown to whoever pays, None for the empty one; raises RuleViolation(FORMAT)."""
    if type(value) is not str or len(value) > MAX_LABEL:
        raise RuleViolation(Refusal.FORMAT, f"label must be a string of at most {MAX_LABEL} characters")
    odd = _UNSHOWABLE.search(value)
    if odd:
        raise RuleViolation(
            Refusal.FORMAT,
            f"label holds U+{ord(odd[0]):04X}; control characters and those that turn text around are not allowed",
        )
    return value or None


def parse_confirmations(value: object) -> int:
    """How deep a payment has to lie, a JSON integer; raises RuleViolation(FORMAT)."""
    if type(value) is int and 1 <= value <= MAX_CONFIRMATIONS:
        return value
    raise RuleViolation(Refusal.FORMAT, f"confirmations must be a whole number from 1 to {MAX_CONFIRMATIONS}")


def parse_confirmations_text(text: str) -> int:
    """The same in a query or a payment URI: digits without a sign or leading zeros; raises RuleViolation(FORMAT)."""
    return parse_confirmations(int(text) if _CONFIRMATIONS.fullmatch(text) else text)


def one_amount(amount: int | None, base_units: int | None) -> int:
    """The amount of which exactly one form is given, in base units; raises RuleViolation(AMOUNT)."""
    if amount is not None and base_units is not None:
        raise RuleViolation(Refusal.AMOUNT, "amount and amountBaseUnits are both given; give one of them")
    if base_units is not None:
        return base_units
    if amount is None:
        raise RuleViolation(
            Refusal.AMOUNT, "the amount is missing: give amount in coins or amountBaseUnits in base units"
        )
    return amount


def terms_of(
    params: NetworkParams,
    *,
    reference: str,
    recipient: object,
    amount: int,
    required: int = DEFAULT_CONFIRMATIONS,
    since_height: int | None = None,
) -> Terms:
    """The terms of an order whose recipient must be of this network; raises RuleViolation(ADDRESS)."""
    key = decode_address(recipient, params.address_prefix, "recipient")
    return Terms(reference, str(recipient), amount, required, since_height, key)


def status_path(terms: Terms) -> str:
    """Where a node says whether the order is paid (docs/payments.md); no reference has to be quoted in a path."""
    query = {"recipient": terms.recipient, "amountBaseUnits": terms.amount, "confirmations": terms.required}
    if terms.since_height is not None:
        query["sinceHeight"] = terms.since_height
    return f"/rpc/commerce/payment/{terms.reference}?{urlencode(query)}"
