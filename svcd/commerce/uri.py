"""Payment URIs: what a merchant's page hands to a wallet (docs/payments.md "Payment URI", RFC 3986).

A wallet signs what it reads here, so no two programs may read one URI in two ways: what is not plain is refused.
"""

import re
from typing import Final
from urllib.parse import quote, unquote

from attrs import frozen

from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.units import format_amount, parse_amount
from svcd.commerce.payment import DEFAULT_CONFIRMATIONS, Terms
from svcd.commerce.terms import parse_confirmations_text, parse_label, parse_reference, terms_of

SCHEME: Final = "svc:"
MAX_URI: Final = 2_048
"""Characters; what is printed here has at most 1,150."""
_PRINTABLE: Final = re.compile("[!-~]*")
_NAME: Final = re.compile("[a-z][a-z0-9-]*")
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*")
_REQUIRED_NAME: Final = "req-"


@frozen
class PaymentRequest:
    """What a payment URI says."""

    terms: Terms
    label: str | None = None
    """What the merchant calls the order, for people to read; it is signed by nobody."""


def print_uri(request: PaymentRequest) -> str:
    """The payment URI of ``request``, whose ``since_height`` does not appear: it concerns the merchant alone."""
    terms = request.terms
    amount, label = format_amount(terms.amount), request.label
    tail = "" if label is None else f"&label={quote(label, safe='')}"
    return f"{SCHEME}{terms.recipient}?amount={amount}&ref={terms.reference}&confirmations={terms.required}{tail}"


def parse_uri(text: str, params: NetworkParams) -> PaymentRequest:
    """The request in a payment URI for the network of ``params``.

    Raises RuleViolation: FORMAT, ADDRESS, AMOUNT or REFERENCE, with a sentence that says what is wrong.
    """
    if len(text) > MAX_URI or not _PRINTABLE.fullmatch(text):
        raise _refusal(f"a payment URI has at most {MAX_URI} characters, all of printable ASCII; encode others with %")
    if not text.startswith(SCHEME) or "#" in text:
        raise _refusal("a payment URI begins with svc: in lower case and has no fragment (#)")
    recipient, _, query = text.removeprefix(SCHEME).partition("?")
    values = _values(query)
    terms = terms_of(
        params,
        reference=parse_reference(values["ref"]),
        recipient=recipient,
        amount=parse_amount(values["amount"]),
        required=parse_confirmations_text(values.get("confirmations", str(DEFAULT_CONFIRMATIONS))),
    )
    return PaymentRequest(terms, _label(values["label"]) if "label" in values else None)


def _values(query: str) -> dict[str, str]:
    """The values as they stand in the query, by name."""
    values: dict[str, str] = {}
    for pair in query.split("&"):
        name, equals, value = pair.partition("=")
        if not _NAME.fullmatch(name) or not equals:
            raise _refusal(f"{_shown(pair)} in the payment URI must be name=value with a name in lower case")
        if not _VALUE.fullmatch(value):
            raise _refusal(f"{name} must be percent-encoded: two hex digits after each %, %22 for a quotation mark")
        if name in values:
            raise _refusal(f"{_shown(name)} stands more than once in the payment URI; once is right")
        if name.startswith(_REQUIRED_NAME):
            raise _refusal(f"the payment URI asks for {_shown(name)}, which is not known here; do not pay")
        values[name] = value
    for name in ("amount", "ref"):
        if name not in values:
            raise _refusal(f"the payment URI has no {name}; it must have amount and ref")
    return values


def _label(encoded: str) -> str:
    try:
        label = parse_label(unquote(encoded, errors="strict"))
    except UnicodeDecodeError:
        raise _refusal("label must be UTF-8 in percent-encoding") from None
    if label is None:
        raise _refusal("label is empty; leave it out")
    return label


def _shown(part: str) -> str:
    return repr(part[:32])


def _refusal(sentence: str) -> RuleViolation:
    return RuleViolation(Refusal.FORMAT, sentence)
