"""How a page declares its route, the fields of pages (the others: `rpc/fields.py`), and the security headers."""

import re
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from svcd.chain.units import parse_amount
from svcd.commerce.payment_request import LAST_TIME
from svcd.rpc.fields import HEIGHT_TYPE
from svcd.web.field_types import Int, Schema, Text
from svcd.web.responses import Headers
from svcd.web.routes import Field, Route

_HTML: Final[Mapping[int, Schema]] = {200: {"type": "string"}}
_HASH: Final = re.compile("[0-9a-fA-F]{64}")
MAX_SEARCH_TEXT: Final = 128
MAX_RETURN_URL: Final = 1_024
_RETURN_URL: Final = re.compile(r"https://([a-z0-9-]+(?:\.[a-z0-9-]+)*(?::[0-9]{1,5})?)(?:[/?#][!#-;=?-\[\]_a-z~]*)?")
"""In group 1 host and port, as browsers show them. A user before the host, which would pass for one, is not matched."""

_DECIMAL_COMMA: Final = re.compile(r"0,[0-9]+|[0-9]+,(?![0-9]{3}\Z)[0-9]+")


@frozen
class ReturnUrl:
    """The address of a page of the shop."""

    url: str
    host: str
    """With the port, if there is one."""


def parse_block_id(text: str) -> int | bytes:
    """The height or the 32-byte hash of a block; raises ValueError."""
    if _HASH.fullmatch(text):
        return bytes.fromhex(text)
    try:
        return HEIGHT_TYPE.parse_text(text)
    except ValueError:
        raise ValueError(f"must be a height from 0 to {HEIGHT_TYPE.maximum} or a hash of 64 hex characters") from None


def parse_search_text(text: str) -> str:
    """The text to search for, without surrounding white space; raises ValueError."""
    if len(text) > MAX_SEARCH_TEXT:
        raise ValueError(f"a search text has at most {MAX_SEARCH_TEXT} characters")
    # Pages show numbers with narrow spaces between the groups of digits.
    return text.strip().replace("\N{NARROW NO-BREAK SPACE}", "")


def parse_typed_amount(text: str, unit: str) -> int:
    """Base units of an amount that a person has typed or pasted, such as ``2,5 SVC``; raises RuleViolation.

    A comma is taken for the decimal point unless it may separate thousands: where exactly three digits follow it, and
    what precedes it is not a lone 0. ``typedAmount`` in ``static/amounts.mjs`` does the same for the wallet.
    """
    number = re.sub(f"[ \N{NO-BREAK SPACE}]?{unit}\\Z", "", text).replace("\N{NARROW NO-BREAK SPACE}", "")
    return parse_amount(number.replace(",", ".") if _DECIMAL_COMMA.fullmatch(number) else number)


BLOCK: Final = Field("block", Text(convert=parse_block_id), "The height or the hash of a block.")
FIRST: Final = Field("first", HEIGHT_TYPE, "Where the list begins.", default=0)
BEFORE_HEIGHT: Final = Field(
    "before", Int(1, HEIGHT_TYPE.maximum), "Show the blocks below this height.", default=HEIGHT_TYPE.maximum
)
BEFORE_ARRIVAL: Final = Field("before", HEIGHT_TYPE, "Show the transfers that arrived earlier.", default=None)
FILE_NAME: Final = Field("name", Text(), "The name of a file.")
SEARCH_TEXT: Final = Field("q", Text(convert=parse_search_text), "The text to search for.", default="")

EXPECTED_RECIPIENT: Final = Field(
    "recipient", Text(convert=parse_search_text), "Compare the payments with this recipient.", default=""
)
EXPECTED_AMOUNT: Final = Field(
    "amount", Text(convert=parse_search_text), "Compare the payments with this amount in coins.", default=""
)


def parse_return_url(text: str) -> ReturnUrl:
    """The address of the shop's page to which a buyer may return; raises ValueError."""
    match = _RETURN_URL.fullmatch(text) if len(text) <= MAX_RETURN_URL else None
    if match is None:
        raise ValueError(
            f"must be an https:// address of at most {MAX_RETURN_URL} characters of printable ASCII, with the host in "
            "lower case and without a user"
        )
    return ReturnUrl(text, match[1])


RETURN_URL: Final = Field(
    "returnUrl", Text(convert=parse_return_url), "Where the buyer may return to the shop.", default=None
)
UNTIL: Final = Field(
    "until", Int(0, LAST_TIME), "When the order expires, in milliseconds since 1970-01-01 UTC.", default=None
)


def page(
    path: str,
    summary: str,
    *,
    path_fields: tuple[Field, ...] = (),
    query_fields: tuple[Field, ...] = (),
    cost: float = 2,
) -> Route:
    """The route of a page at ``path``; it draws ``cost`` tokens from the bucket of the JSON reads."""
    return Route(
        "GET",
        path,
        summary,
        bucket="read",
        answers=_HTML,
        path_fields=path_fields,
        query_fields=query_fields,
        cost=cost,
        media_type="text/html",
    )


HTML: Final = b"text/html; charset=utf-8"

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    b"manifest-src 'self'; worker-src 'none'; base-uri 'none'; form-action %s; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
POLICY_WITH_WORKER: Final = (
    (_POLICY % b"'none'")
    .replace(b"worker-src 'none'", b"worker-src 'self'")
    .replace(b"trusted-types 'none'", b"trusted-types svc-worker")
)
"""That of the pages which start a worker to check proofs (static/wallet-checking.mjs, static/proof.mjs)."""
_WORKER_POLICY: Final = b"default-src 'none'; script-src 'wasm-unsafe-eval'; frame-ancestors 'none'"
_FEATURES: Final = (
    "accelerometer autoplay camera display-capture encrypted-media fullscreen geolocation gyroscope hid magnetometer "
    "microphone midi payment picture-in-picture publickey-credentials-get screen-wake-lock serial usb "
    "xr-spatial-tracking"
).split()
_COMMON: Final[Headers] = (
    (b"X-Frame-Options", b"DENY"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
    (b"Cross-Origin-Embedder-Policy", b"require-corp"),
    (b"Permissions-Policy", ", ".join(f"{feature}=()" for feature in _FEATURES).encode("ascii")),
)
WALLET_HEADERS: Final[Headers] = (
    (b"Content-Security-Policy", POLICY_WITH_WORKER),
    (
        b"Permissions-Policy",
        ", ".join(f"{feature}={'(self)' if feature == 'camera' else '()'}" for feature in _FEATURES).encode("ascii"),
    ),
)
"""The wallet may start a worker, and use the camera, to scan payment links."""
WORKER_HEADERS: Final[Headers] = ((b"Content-Security-Policy", _WORKER_POLICY),)
"""A worker computes Argon2id in WebAssembly, and loads nothing."""
REFERENCE_HEADERS: Final[Headers] = ((b"Cross-Origin-Opener-Policy", b"unsafe-none"), (b"Cache-Control", b"no-cache"))
"""Of the API reference, beside :func:`sandbox`.

A document in a sandbox can have no opener policy
(https://html.spec.whatwg.org/multipage/browsing-the-web.html#create-navigation-params-by-fetching).
"""
SANDBOXED_HEADERS: Final[Headers] = ((b"Cross-Origin-Resource-Policy", b"cross-origin"),)
"""Of the files that the API reference loads."""
_NAMED_HOST: Final = re.compile(rb"[A-Za-z0-9.-]+(?::[0-9]+)?")

VARY: Final = (b"Vary", b"Accept-Language")
"""Of every page, whose language depends on that of the client."""
SECURITY_HEADERS: Final[Headers] = ((b"Content-Security-Policy", _POLICY % b"'none'"), *_COMMON)
"""For files, and for pages without the search form."""
SECURITY_HEADERS_WITH_FORM: Final[Headers] = ((b"Content-Security-Policy", _POLICY % b"'self'"), *_COMMON)
"""For pages with the search form."""
SECURITY_HEADERS_WITH_WORKER: Final[Headers] = ((b"Content-Security-Policy", POLICY_WITH_WORKER), *_COMMON)
"""For pages without the search form that start a worker."""


def sandbox(host: bytes) -> tuple[bytes, bytes]:
    """The policy of the API reference at ``host``.

    It runs a large script that is not ours, so it has an origin of its own, and nothing of the wallet's. For WebKit
    ``'self'`` is that origin, too, where the script asks for something, hence the host.
    """
    asked = b"'self'"
    if _NAMED_HOST.fullmatch(host):
        asked += b" http://%b https://%b" % (host, host)
    return (
        b"Content-Security-Policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src %b; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        b"sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox allow-downloads" % asked,
    )
