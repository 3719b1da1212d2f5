"""What a shop hands to somebody who pays: a payment URI, or the address of a page that says the same.

Nobody is asked: a checkout's address holds the whole order (docs/pages.md "Checkout"), and that of a wallet page the
payment URI. So a link is trusted no more than a payment URI, whatever host stands in it.
"""

import re
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import parse_qsl, unquote

from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.units import parse_amount, parse_base_units
from svcd.commerce.payment import DEFAULT_CONFIRMATIONS
from svcd.commerce.terms import one_amount, parse_confirmations_text, parse_label, parse_reference, terms_of
from svcd.commerce.uri import MAX_URI, PaymentRequest, parse_uri

T = TypeVar("T")

_WEB: Final = re.compile("https?://", re.IGNORECASE)
_LINK: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+/(pay|wallet)/\?([!\"$-~]*)")
_REQUIRED_NAME: Final = "req-"
_ONE_URI: Final = "pay="


def parse_link(text: str, params: NetworkParams) -> PaymentRequest:
    """What ``text`` asks a wallet of ``params`` to pay: a payment URI, or a link to a checkout or a wallet page.

    Raises RuleViolation: FORMAT, ADDRESS, AMOUNT or REFERENCE, with a sentence that says what is wrong.
    """
    if not _WEB.match(text):
        return parse_uri(text, params)
    match = _LINK.fullmatch(text)
    if match is None or len(text) > MAX_URI:
        raise _refusal(
            "a link to pay is https://HOST/pay/?reference=… of a checkout or https://HOST/wallet/?pay=…, without a"
            f" fragment (#), of at most {MAX_URI} characters, all of printable ASCII"
        )
    page, query = match.groups()
    return parse_uri(_uri_in(query), params) if page == "wallet" else _order_in(query, params)


def _uri_in(query: str) -> str:
    """The payment URI in the query of a wallet page, whose parts it must not share with anything else."""
    if not query.startswith(_ONE_URI) or "&" in query:
        raise _refusal("the link to a wallet page must have pay= with a payment URI, percent-encoded as a whole")
    return _decoded(lambda: unquote(query.removeprefix(_ONE_URI), errors="strict"))


def _order_in(query: str, params: NetworkParams) -> PaymentRequest:
    """The order in the query of a checkout, read as the page itself reads it.

    Its ``sinceHeight`` is for the merchant: whoever pays wants to hear of every payment that was made before.
    """
    pairs = _decoded(lambda: parse_qsl(query, keep_blank_values=True, errors="strict"))
    values = dict(pairs)
    for name in values:
        if [each for each, _ in pairs].count(name) > 1:
            raise _refusal(f"{name[:32]!r} stands more than once in the link; once is right")
        if name.startswith(_REQUIRED_NAME):
            raise _refusal(f"the link asks for {name[:32]!r}, which is not known here; do not pay")
    for name in ("reference", "recipient"):
        if name not in values:
            raise _refusal(f"the link to a checkout has no {name}; it must have reference, recipient and amount")
    amount, units = values.get("amount"), values.get("amountBaseUnits")
    terms = terms_of(
        params,
        reference=parse_reference(values["reference"]),
        recipient=values["recipient"],
        amount=one_amount(
            None if amount is None else parse_amount(amount), None if units is None else parse_base_units(units)
        ),
        required=parse_confirmations_text(values.get("confirmations", str(DEFAULT_CONFIRMATIONS))),
    )
    return PaymentRequest(terms, parse_label(values.get("label", "")))


def _decoded(decode: Callable[[], T]) -> T:
    try:
        return decode()
    except UnicodeDecodeError:
        raise _refusal("the link must be UTF-8 in percent-encoding") from None


def _refusal(sentence: str) -> RuleViolation:
    return RuleViolation(Refusal.FORMAT, sentence)
