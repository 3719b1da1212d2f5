"""QR codes: the drawing encodes the text, and only addresses and payment URIs are drawn."""

import re
from urllib.parse import quote

import pytest
import segno

from svcd.commerce.payment_request import PaymentRequest, PaymentTerms, format_uri, parse_uri
from svcd.pages.layout import flattened
from svcd.pages.qr import MAX_CHARACTERS, qr_code, qr_text
from tests.pages.conftest import Shown
from tests.rpc.node import FAUCET, PARAMS

URI = f"svc:{FAUCET}?amount=2.5&ref=order-1&confirmations=12&label=Tea%20%26%20cake"


def modules(svg: str) -> set[tuple[int, int]]:
    """The dark modules of a drawing, without the quiet zone."""
    runs = re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", svg)
    return {(int(x) + step - 4, int(y) - 4) for x, y, length in runs for step in range(int(length))}


@pytest.mark.parametrize("text", [FAUCET, URI, URI.ljust(MAX_CHARACTERS, "x")])
def test_drawing_decodes_to_the_text(text: str) -> None:
    svg = flattened(qr_code(text, "code")).decode()
    matrix = segno.make_qr(text, error="l", mask=2).matrix
    assert modules(svg) == {(x, y) for y, row in enumerate(matrix) for x, dark in enumerate(row) if dark}
    side = len(matrix) + 8
    assert f'viewBox="0 0 {side} {side}"' in svg
    assert f'<rect width="{side}" height="{side}" fill="#fff"' in svg


@pytest.mark.parametrize("text", [FAUCET, URI])
def test_qr_code_is_served(still: Shown, text: str) -> None:
    response = still.ask(f"/qr.svg?data={quote(text, safe='')}")
    assert (response.status, response.headers["content-type"]) == (200, "image/svg+xml")
    assert response.body.startswith(b'<svg xmlns="http://www.w3.org/2000/svg"')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://example.org/",
        "hello",
        FAUCET[:-1],
        "svc1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc",
        URI + "&req-x=1",
        "SVC:" + FAUCET,
        f"{URI}{'%20' * 79}x",
    ],
)
def test_other_texts_are_refused(still: Shown, text: str) -> None:
    assert still.ask(f"/qr.svg?data={quote(text, safe='')}").status == 400


def test_long_label_is_left_out_of_the_code() -> None:
    terms = PaymentTerms("r" * 64, FAUCET, 2**53 - 1, 1000)
    short, long = PaymentRequest(terms, "Tea"), PaymentRequest(terms, "😀" * 80)
    assert qr_text(short) == format_uri(short)
    assert len(qr_text(long)) <= MAX_CHARACTERS
    assert parse_uri(qr_text(long), PARAMS) == PaymentRequest(terms)
