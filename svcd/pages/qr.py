"""QR codes of addresses and payment URIs, drawn by the node (ISO/IEC 18004, docs/pages.md "QR codes")."""

from functools import lru_cache
from itertools import groupby
from typing import Final

import segno
from twisted.web.template import Tag

from svcd.chain.address import decode_address
from svcd.chain.params import NetworkParams
from svcd.commerce.uri import SCHEME, PaymentRequest, parse_uri, print_uri
from svcd.pages.layout import flattened
from svcd.pages.parts import tag
from svcd.pages.routes import page
from svcd.web.answers import Rendered
from svcd.web.errors import HttpError
from svcd.web.routing import Field

MAX_CHARACTERS: Final = 300
"""Beyond it a code is too dense for phones, and takes long to draw."""
_QUIET: Final = 4
_MASK: Final = 2
"""Trying out all eight takes five times as long, on the thread that everybody waits for."""
_REMEMBERED: Final = 256


def code_of(request: PaymentRequest) -> str:
    """What the QR code of ``request`` holds: its URI, without a label that would make the code too dense."""
    uri = print_uri(request)
    return uri if len(uri) <= MAX_CHARACTERS else print_uri(PaymentRequest(request.terms))


@lru_cache(_REMEMBERED)
def _outline(text: str) -> tuple[int, str]:
    """The number of modules along one side, and the dark ones as the outline of an SVG path."""
    matrix = segno.make_qr(text, error="l", mask=_MASK).matrix
    drawn = []
    for y, row in enumerate(matrix):
        x = 0
        for dark, run in groupby(row):
            length = len(list(run))
            if dark:
                drawn.append(f"M{x + _QUIET} {y + _QUIET}h{length}v1h-{length}z")
            x += length
    return len(matrix) + 2 * _QUIET, "".join(drawn)


def qr_code(text: str, says: str) -> Tag:
    """The QR code of ``text``, black on white in every colour scheme; ``says`` is for those who hear it."""
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
        aria_label=says,
        class_="qr",
    )


class QrRoute:
    """Draws what pages of this node show as a picture; nothing else, so that nobody borrows the node for it."""

    def __init__(self, params: NetworkParams) -> None:
        self._params = params

    @page(
        "/qr.svg",
        "The QR code of an address or a payment URI",
        query_fields=(Field("data", str, {"type": "string"}, "An address or a payment URI of this network."),),
        cost=4,
    )
    def draw(self, data: str) -> Rendered:
        """Answer GET /qr.svg."""
        if len(data) > MAX_CHARACTERS:
            raise HttpError(400, f"a QR code is drawn of at most {MAX_CHARACTERS} characters; leave the label out")
        self._check(data)
        body = flattened(qr_code(data, "QR code"))
        return Rendered(body, content_type=b"image/svg+xml")

    def _check(self, data: str) -> None:
        if data.startswith(SCHEME):
            parse_uri(data, self._params)
        else:
            decode_address(data, self._params.address_prefix, "data")
