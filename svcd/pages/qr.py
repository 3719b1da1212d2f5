"""QR codes of addresses and payment URIs, drawn by the node (ISO/IEC 18004, docs/pages.md)."""

from functools import lru_cache
from itertools import groupby
from typing import Final

import segno
from twisted.web.template import Tag

from svcd.chain.address import decode_address
from svcd.chain.params import NetworkParams
from svcd.commerce.payment_request import SCHEME, PaymentRequest, format_uri, parse_uri
from svcd.pages.html import tag
from svcd.pages.layout import flattened
from svcd.pages.routes import page
from svcd.pages.texts import Message
from svcd.web.field_types import Text
from svcd.web.responses import HttpError, Response
from svcd.web.routes import Field

MAX_CHARACTERS: Final = 300
"""A longer text gives a code that is too dense for phone cameras and slow to draw."""
_QUIET_ZONE: Final = 4
_MASK: Final = 2
"""A fixed mask: choosing the best of the eight takes five times as long, in the reactor's thread."""
_CACHE_SIZE: Final = 256


def qr_text(request: PaymentRequest) -> str:
    """The text of the QR code of ``request``: its URI, without the label if that would make the code too dense."""
    uri = format_uri(request)
    return uri if len(uri) <= MAX_CHARACTERS else format_uri(PaymentRequest(request.terms))


@lru_cache(_CACHE_SIZE)
def _outline(text: str) -> tuple[int, str]:
    """The width in modules including the quiet zone, and the dark modules as an SVG path."""
    matrix = segno.make_qr(text, error="l", mask=_MASK).matrix
    drawn = []
    for y, row in enumerate(matrix):
        x = 0
        for dark, run in groupby(row):
            length = len(list(run))
            if dark:
                drawn.append(f"M{x + _QUIET_ZONE} {y + _QUIET_ZONE}h{length}v1h-{length}z")
            x += length
    return len(matrix) + 2 * _QUIET_ZONE, "".join(drawn)


def qr_code(text: str, label: str | Message) -> Tag:
    """The QR code of ``text``, black on white in every colour scheme; ``label`` is the text for screen readers."""
    size, outline = _outline(text)
    paper = tag("rect", width=str(size), height=str(size), fill="#fff")
    ink = tag("path", d=outline, fill="#000")
    return tag(
        "svg",
        paper,
        ink,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {size} {size}",
        shape_rendering="crispEdges",
        role="img",
        aria_label=label,
        class_="qr",
    )


class QrCodeRoute:
    """Draws addresses and payment URIs only, so that others do not use the node as a QR code service."""

    def __init__(self, params: NetworkParams) -> None:
        self._params = params

    @page(
        "/qr.svg",
        "The QR code of an address or a payment URI",
        query_fields=(Field("data", Text(), "An address or a payment URI of this network."),),
        cost=4,
    )
    def draw(self, data: str) -> Response:
        """Answer GET /qr.svg."""
        if len(data) > MAX_CHARACTERS:
            raise HttpError(400, f"a QR code has room for at most {MAX_CHARACTERS} characters; leave the label out")
        self._check(data)
        body = flattened(qr_code(data, "QR code"))
        return Response(body, content_type=b"image/svg+xml")

    def _check(self, data: str) -> None:
        if data.startswith(SCHEME):
            parse_uri(data, self._params)
        else:
            decode_address(data, self._params.address_prefix, "data")
