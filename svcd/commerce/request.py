"""Payment requests as merchants get them: nothing is stored, the request is in its URI (docs/payments.md "Request")."""

from base64 import b32encode
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from svcd.chain.params import NetworkParams
from svcd.chain.units import format_amount
from svcd.commerce.terms import status_path
from svcd.commerce.uri import PaymentRequest, print_uri

PROTOCOL: Final = "SVC-PAY"
VERSION: Final = 1
HINDSIGHT: Final = 100
"""Blocks below the tip from which a payment of a new order counts: a reorganisation may put it a little lower."""
_RANDOM_BYTES: Final = 17
_RANDOM_CHARACTERS: Final = 26


def new_reference(random: Callable[[int], bytes]) -> str:
    """A reference that nobody has used: ``pay_`` and 130 random bits in base32."""
    return f"pay_{b32encode(random(_RANDOM_BYTES)).decode('ascii').lower()[:_RANDOM_CHARACTERS]}"


def request_record(params: NetworkParams, request: PaymentRequest, *, tip_height: int) -> dict[str, object]:
    """A payment request as clients read it, made while the tip is at ``tip_height``."""
    terms = request.terms
    uri = print_uri(request)
    record: dict[str, object] = {
        "protocol": PROTOCOL,
        "version": VERSION,
        "networkId": params.network_id,
        "recipient": terms.recipient,
        "amount": str(terms.amount),
        "amountSvc": format_amount(terms.amount),
        "reference": terms.reference,
        "requiredConfirmations": terms.required,
        "paymentUri": uri,
        "walletPath": f"/wallet/?pay={quote(uri, safe='')}",
        "statusPath": status_path(terms),
        "sinceHeight": str(max(tip_height - HINDSIGHT, 0)),
    }
    if request.label is not None:
        record["label"] = request.label
    return record
