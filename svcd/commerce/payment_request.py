"""The terms of an order, payment URIs and payment requests (docs/payments.md).

A wallet signs what a payment URI says, so there must be one way to read it: anything ambiguous is refused.
"""

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote, urlencode

from attrs import evolve, field, frozen

from svcd.chain.address import decode_address
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import check_reference
from svcd.chain.units import format_amount, format_coins, parse_amount

PROTOCOL: Final = "SVC-PAY"
VERSION: Final = 1

DEFAULT_CONFIRMATIONS: Final = 12
MAX_CONFIRMATIONS: Final = 1_000
MAX_LABEL: Final = 80
FORBIDDEN_IN_LABEL: Final = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""A regular expression's character class: control characters, line and paragraph separators, and the characters that
change the direction of text (Unicode's Bidi_Control)."""
SINCE_HEIGHT_MARGIN: Final = 100
"""A new order counts payments from this many blocks below the tip, since a reorganisation may move one down."""

LAST_TIME: Final = 253_402_300_799_999
"""The end of the year 9999, in Unix milliseconds: no order expires later."""

MAX_REFERENCE: Final = 64
REFUND_PREFIX: Final = "refund:"

SCHEME: Final = "svc:"
MAX_URI: Final = 2_048
"""Characters accepted; :func:`format_uri` writes 1,150 at most."""

_REMEMBERED: Final = 1_024
_FORBIDDEN_IN_LABEL: Final = re.compile(rf"[{FORBIDDEN_IN_LABEL}\ud800-\udfff]")
_CONFIRMATIONS: Final = re.compile("[1-9][0-9]{0,3}")
_PRINTABLE: Final = re.compile("[!-~]*")
_PARAMETER_NAME: Final = re.compile("[a-z][a-z0-9-]*")
_PARAMETER_VALUE: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*")
_REQUIRED_PREFIX: Final = "req-"


# Terms


@frozen(cache_hash=True)
class PaymentTerms:
    """The terms of an order; only a transfer with exactly this reference, recipient and amount pays it."""

    reference: str
    recipient: str
    """The address."""
    amount: int
    """Base units."""
    required: int = DEFAULT_CONFIRMATIONS
    """Confirmations until the payment counts as settled; the newest block gives one."""
    since_height: int | None = None
    """Transfers in blocks below this height do not count."""
    key: bytes = field(repr=False)
    """The recipient's 20-byte key hash, as transfers have it; derived from the address unless given."""

    @key.default
    def _key_of_recipient(self) -> bytes:
        # Any network's prefix will do: `parse_terms` has checked that the address is of this node's.
        return decode_address(self.recipient, self.recipient.partition("1")[0], "recipient")

    def excludes(self, height: int) -> bool:
        """Whether transfers in the block at ``height`` are too old to count."""
        return self.since_height is not None and height < self.since_height


def parse_terms(
    params: NetworkParams,
    *,
    reference: str,
    recipient: object,
    amount: int,
    required: int = DEFAULT_CONFIRMATIONS,
    since_height: int | None = None,
) -> PaymentTerms:
    """The terms of an order; raises RuleViolation(ADDRESS) unless ``recipient`` is an address of this network."""
    decode = _decode_recipient if isinstance(recipient, str) else decode_address
    key = decode(recipient, params.address_prefix, "recipient")
    return PaymentTerms(reference, str(recipient), amount, required, since_height, key)


_decode_recipient: Final = lru_cache(_REMEMBERED)(decode_address)
"""The orders of a merchant have the same recipient."""


def parse_reference(value: object) -> str:
    """The reference of an order; raises RuleViolation(REFERENCE).

    A transfer may carry ``.`` or ``..``, but URLs drop such path segments, so its payment could not be asked for.
    """
    try:
        reference = check_reference(value)
    except RuleViolation as violation:
        sentence = "reference must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -, such as order-1042"
        raise RuleViolation(violation.code, sentence) from None
    if reference in (".", ".."):
        raise RuleViolation(Refusal.REFERENCE, "reference must not be . or .., which URLs drop; add a letter")
    return reference


def parse_label(value: object) -> str | None:
    """The order's name as the payer reads it, None if it is empty; raises RuleViolation(FORMAT)."""
    if type(value) is not str or len(value) > MAX_LABEL:
        raise RuleViolation(Refusal.FORMAT, f"label must be a string of at most {MAX_LABEL} characters")
    forbidden = _FORBIDDEN_IN_LABEL.search(value)
    if forbidden:
        raise RuleViolation(
            Refusal.FORMAT,
            f"label contains U+{ord(forbidden[0]):04X}; "
            "control characters and those that change the direction of text are not allowed",
        )
    return value or None


def parse_confirmations(value: object) -> int:
    """The required confirmations, a JSON integer; raises RuleViolation(FORMAT)."""
    if type(value) is int and 1 <= value <= MAX_CONFIRMATIONS:
        return value
    raise RuleViolation(Refusal.FORMAT, f"confirmations must be a whole number from 1 to {MAX_CONFIRMATIONS}")


def parse_confirmations_text(text: str) -> int:
    """The required confirmations in a query or URI: digits, no leading zeros; raises RuleViolation(FORMAT)."""
    return parse_confirmations(int(text) if _CONFIRMATIONS.fullmatch(text) else text)


def parse_price(text: object) -> int:
    """Hundred-millionths of a currency in a decimal string; raises ValueError."""
    try:
        return parse_amount(text)
    except RuleViolation:
        raise ValueError(
            'must be a decimal such as "0.5", more than 0, at most 90071992.54740991, with at most 8 decimal places'
        ) from None


def resolve_amount(amount: int | None, base_units: int | None) -> int:
    """The one amount given, in base units; raises RuleViolation(AMOUNT) for both or neither."""
    if amount is not None and base_units is not None:
        raise RuleViolation(Refusal.AMOUNT, "amount and amountBaseUnits are both given; give one of them")
    if base_units is not None:
        return base_units
    if amount is None:
        raise RuleViolation(
            Refusal.AMOUNT, "the amount is missing: give amount in coins or amountBaseUnits in base units"
        )
    return amount


def status_path(terms: PaymentTerms) -> str:
    """The path of the route that verifies the payment; references need no quoting in a path."""
    query = {"recipient": terms.recipient, "amountBaseUnits": terms.amount, "confirmations": terms.required}
    if terms.since_height is not None:
        query["sinceHeight"] = terms.since_height
    return f"/rpc/commerce/payment/{terms.reference}?{urlencode(query)}"


def checkout_path(request: "PaymentRequest") -> str:
    """The path of the checkout, which the merchant may give a ``returnUrl`` and an ``until`` (docs/pages.md)."""
    terms = request.terms
    query = {
        "reference": terms.reference,
        "recipient": terms.recipient,
        "amount": format_amount(terms.amount),
        "confirmations": terms.required,
    }
    if terms.since_height is not None:
        query["sinceHeight"] = terms.since_height
    if request.label is not None:
        query["label"] = request.label
    return f"/pay/?{urlencode(query, quote_via=quote, safe='')}"


def wallet_path(request: "PaymentRequest") -> str:
    """The path of the wallet's page, which is opened with the payment URI (docs/wallet-page.md)."""
    return f"/wallet/?pay={quote(format_uri(request), safe='')}"


# Payment URIs (docs/wallets.md "References and payment links", RFC 3986)


@frozen
class PaymentRequest:
    """The content of a payment URI."""

    terms: PaymentTerms
    label: str | None = None
    """The merchant's name for the order, for people to read; not signed."""


def format_uri(request: PaymentRequest) -> str:
    """The payment URI of ``request``, without ``since_height``, which only the merchant needs."""
    terms = request.terms
    amount, label = format_amount(terms.amount), request.label
    tail = "" if label is None else f"&label={quote(label, safe='')}"
    return f"{SCHEME}{terms.recipient}?amount={amount}&ref={terms.reference}&confirmations={terms.required}{tail}"


def parse_uri(text: str, params: NetworkParams) -> PaymentRequest:
    """The payment request in a URI, for the network of ``params``.

    Raises RuleViolation(FORMAT, ADDRESS, AMOUNT or REFERENCE) with a sentence that says what is wrong.
    """
    if len(text) > MAX_URI or not _PRINTABLE.fullmatch(text):
        raise _refusal(f"a payment URI has at most {MAX_URI} characters, all printable ASCII; encode others with %")
    if not text.startswith(SCHEME) or "#" in text:
        raise _refusal("a payment URI begins with svc: in lower case and has no fragment (#)")
    recipient, _, query = text.removeprefix(SCHEME).partition("?")
    values = _parse_query(query)
    terms = parse_terms(
        params,
        reference=parse_reference(values["ref"]),
        recipient=recipient,
        amount=parse_amount(values["amount"]),
        required=parse_confirmations_text(values.get("confirmations", str(DEFAULT_CONFIRMATIONS))),
    )
    return PaymentRequest(terms, _decode_label(values["label"]) if "label" in values else None)


def _parse_query(query: str) -> dict[str, str]:
    """The parameters by name, not yet decoded."""
    values: dict[str, str] = {}
    for pair in query.split("&"):
        name, equals, value = pair.partition("=")
        if not _PARAMETER_NAME.fullmatch(name) or not equals:
            raise _refusal(f"{_excerpt(pair)} in the payment URI must be name=value with a name in lower case")
        if not _PARAMETER_VALUE.fullmatch(value):
            raise _refusal(f"{name} must be percent-encoded: two hex digits after each %, %22 for a quotation mark")
        if name in values:
            raise _refusal(f"{_excerpt(name)} appears more than once in the payment URI; give it once")
        if name.startswith(_REQUIRED_PREFIX):
            raise _refusal(f"the payment URI requires {_excerpt(name)}, which is unknown here; do not pay")
        values[name] = value
    for name in ("amount", "ref"):
        if name not in values:
            raise _refusal(f"the payment URI has no {name}; it must have amount and ref")
    return values


def _decode_label(encoded: str) -> str:
    try:
        label = parse_label(unquote(encoded, errors="strict"))
    except UnicodeDecodeError:
        raise _refusal("label must be percent-encoded UTF-8") from None
    if label is None:
        raise _refusal("label is empty; leave it out")
    return label


def _excerpt(text: str) -> str:
    return repr(text[:32])


def _refusal(sentence: str) -> RuleViolation:
    return RuleViolation(Refusal.FORMAT, sentence)


# Payment requests (docs/payments.md "POST /rpc/commerce/payment-request")


def refund_reference(reference: str | None, txid: bytes) -> str:
    """The reference of the refund of a payment: ``refund:`` and the payment's reference.

    Of a reference of more than 57 characters it has the first 40, a dot and the first 16 hex digits of its SHA-256; for
    a payment without a reference, the first 32 hex digits of its txid.
    """
    if reference is None:
        return f"{REFUND_PREFIX}{txid.hex()[:32]}"
    if len(REFUND_PREFIX) + len(reference) <= MAX_REFERENCE:
        return f"{REFUND_PREFIX}{reference}"
    return f"{REFUND_PREFIX}{reference[:40]}.{sha256(reference.encode('ascii')).hexdigest()[:16]}"


def missing_for_account(params: NetworkParams, amount: int, *, balance: int) -> int:
    """What ``amount`` lacks for a recipient with ``balance`` to have the account minimum, all in base units; 0 if none.

    A transfer that leaves its recipient with less is refused (docs/protocol.md 4).
    """
    return max(params.account_minimum - balance - amount, 0)


def warning_of(params: NetworkParams, amount: int, *, balance: int) -> str | None:
    """Why a recipient with ``balance`` cannot be paid ``amount`` now, both in base units; None if it can be."""
    missing = missing_for_account(params, amount, balance=balance)
    if not missing:
        return None
    has, least, enough = (
        format_coins(units, params.unit) for units in (balance, params.account_minimum, amount + missing)
    )
    return (
        f"nobody can pay this now: the recipient has {has} and must have {least} after a transfer; request at least"
        f" {enough}, or send coins to the recipient first"
    )


def request_record(
    params: NetworkParams, request: PaymentRequest, *, tip_height: int, warning: str | None = None
) -> dict[str, object]:
    """The API's form of a payment request made at ``tip_height``, with :func:`warning_of`; the node stores none."""
    since_height = max(tip_height - SINCE_HEIGHT_MARGIN, 0)
    request = evolve(request, terms=evolve(request.terms, since_height=since_height))
    terms = request.terms
    record: dict[str, object] = {
        "protocol": PROTOCOL,
        "version": VERSION,
        "networkId": params.network_id,
        "recipient": terms.recipient,
        "amount": str(terms.amount),
        "amountSvc": format_amount(terms.amount),
        "reference": terms.reference,
        "requiredConfirmations": terms.required,
        "paymentUri": format_uri(request),
        "walletPath": wallet_path(request),
        "checkoutPath": checkout_path(request),
        "statusPath": status_path(terms),
        "sinceHeight": str(since_height),
    }
    if request.label is not None:
        record["label"] = request.label
    if warning is not None:
        record["warning"] = warning
    return record
