"""Payment links: payment URIs, and URLs of checkout and wallet pages that contain the same data.

No server is contacted: the URL of a checkout contains the whole order (docs/pages.md "Checkout"), and that of a wallet
page the payment URI. A link is therefore trusted no more than a payment URI, and its host does not matter.
"""

import re
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import parse_qsl, unquote

from attrs import frozen

from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.units import parse_amount, parse_base_units
from svcd.commerce.payment_request import (
    DEFAULT_CONFIRMATIONS,
    LAST_TIME,
    MAX_URI,
    PaymentRequest,
    parse_confirmations_text,
    parse_label,
    parse_reference,
    parse_terms,
    parse_uri,
    resolve_amount,
)

T = TypeVar("T")

_WEB: Final = re.compile("https?://", re.IGNORECASE)
_LINK: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+/(pay/\?|wallet/[?#])([!\"$-~]*)")
_REQUIRED_NAME: Final = "req-"
_URI_NAME: Final = "pay"
_BESIDE_URI: Final = ("returnUrl", "until")
"""What the link to a wallet page may have behind the payment URI."""
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,14}")


@frozen
class PaymentLink:
    """The content of a link."""

    order: PaymentRequest
    until: int | None = None
    """When the order expires, in Unix milliseconds; a payment URI cannot say it."""


def parse_link(text: str, params: NetworkParams) -> PaymentLink:
    """The order in a payment URI, or in the URL of a checkout or wallet page, for the network of ``params``.

    Raises RuleViolation: FORMAT, ADDRESS, AMOUNT or REFERENCE.
    """
    if not _WEB.match(text):
        return PaymentLink(parse_uri(text, params))
    match = _LINK.fullmatch(text)
    if match is None or len(text) > MAX_URI:
        raise _refusal(
            "a link to pay is https://HOST/pay/?reference=… of a checkout or https://HOST/wallet/#pay=…, without"
            f" another fragment (#), of at most {MAX_URI} characters, all of printable ASCII"
        )
    page, query = match.groups()
    return _wallet_page_in(query, params) if page.startswith("wallet") else _checkout_in(query, params)


def _wallet_page_in(query: str, params: NetworkParams) -> PaymentLink:
    """The order in the query or the fragment of a wallet page: a payment URI, and what may be behind it."""
    first, *others = (pair.partition("=") for pair in query.split("&"))
    names = [name for name, _, _ in others]
    if first[0] != _URI_NAME or len(names) != len(set(names)) or not set(names) <= set(_BESIDE_URI):
        raise _refusal("the link to a wallet page must have pay= with a payment URI, percent-encoded as a whole")
    order = parse_uri(_decoded(lambda: unquote(first[2], errors="strict")), params)
    until = next((value for name, _, value in others if name == "until"), None)
    return PaymentLink(order, None if until is None else _time_in(until))


def _checkout_in(query: str, params: NetworkParams) -> PaymentLink:
    """The order in the query of a checkout, parsed as the page parses it.

    ``sinceHeight`` is ignored: it is for the merchant, while the payer must be warned of every earlier payment.
    """
    pairs = _decoded(lambda: parse_qsl(query, keep_blank_values=True, errors="strict"))
    values = dict(pairs)
    for name in values:
        if [each for each, _ in pairs].count(name) > 1:
            raise _refusal(f"{name[:32]!r} appears more than once in the link; give it once")
        if name.startswith(_REQUIRED_NAME):
            raise _refusal(f"the link requires {name[:32]!r}, which is unknown here; do not pay")
    for name in ("reference", "recipient"):
        if name not in values:
            raise _refusal(f"the link to a checkout has no {name}; it must have reference, recipient and amount")
    amount, units = values.get("amount"), values.get("amountBaseUnits")
    terms = parse_terms(
        params,
        reference=parse_reference(values["reference"]),
        recipient=values["recipient"],
        amount=resolve_amount(
            None if amount is None else parse_amount(amount), None if units is None else parse_base_units(units)
        ),
        required=parse_confirmations_text(values.get("confirmations", str(DEFAULT_CONFIRMATIONS))),
    )
    order = PaymentRequest(terms, parse_label(values.get("label", "")))
    return PaymentLink(order, _time_in(values["until"]) if "until" in values else None)


def _time_in(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > LAST_TIME:
        raise _refusal(f"until must be a whole number of milliseconds since 1970, at most {LAST_TIME}")
    return int(text)


def _decoded(decode: Callable[[], T]) -> T:
    try:
        return decode()
    except UnicodeDecodeError:
        raise _refusal("the link must be UTF-8 in percent-encoding") from None


def _refusal(sentence: str) -> RuleViolation:
    return RuleViolation(Refusal.FORMAT, sentence)
