"""QR codes: the drawing encodes the text, and only addresses and payment URIs are drawn."""

import json
import re
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest
import segno
import zxingcpp
from PIL import Image

import svcd.pages
from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import DEVNET, MAINNET, NetworkParams
from svcd.commerce.payment_request import PaymentRequest, PaymentTerms, format_uri, parse_uri
from svcd.pages.layout import flattened
from svcd.pages.qr import MAX_CHARACTERS, qr_code, qr_text
from tests.pages.conftest import Shown
from tests.programs import needs
from tests.rpc.node import FAUCET, PARAMS

URI = f"svc:{FAUCET}?amount=2.5&ref=order-1&confirmations=12&label=Tea%20%26%20cake"

QR_MODULE = Path(svcd.pages.__file__).parent / "static" / "qr.mjs"


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


def drawn_by_the_pages(*texts: str) -> list[set[tuple[int, int]]]:
    """For each text the dark modules of the drawing that the pages make themselves, without the margin."""
    program = (
        f"import {{ drawCode }} from {json.dumps(str(QR_MODULE))};"
        "const drawn = (text) => { const code = {};"
        "const part = { setAttribute: (name, value) => { code[name] = value; } };"
        "drawCode({ setAttribute() {}, querySelector: () => part }, text); return code; };"
        f"console.log(JSON.stringify({json.dumps(texts)}.map(drawn)));"
    )
    command = ["node", "--input-type=module", "--eval", program]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    codes = []
    for code in json.loads(answer):
        assert re.fullmatch(r"(?:M[0-9]+ [0-9]+h1v1h-1z)+", code["d"])
        dark = {(int(x) - 4, int(y) - 4) for x, y in re.findall(r"M(\d+) (\d+)", code["d"])}
        assert int(code["width"]) == max(max(place) for place in dark) + 9
        codes.append(dark)
    return codes


def scanned(dark: set[tuple[int, int]]) -> list[str]:
    """What a camera reads."""
    side = max(max(place) for place in dark) + 9
    picture = Image.new("L", (side, side), 255)
    for x, y in dark:
        picture.putpixel((x + 4, y + 4), 0)
    larger = picture.resize((10 * side, 10 * side), Image.Resampling.NEAREST)
    return [each.text for each in zxingcpp.read_barcodes(larger, formats=zxingcpp.BarcodeFormat.QRCode)]


@needs("node")
@pytest.mark.parametrize("params", [DEVNET, MAINNET], ids=lambda params: params.name)
@pytest.mark.parametrize("key", [bytes(32), bytes(range(32)), b"\xff" * 32], ids=["zeros", "range", "ones"])
def test_the_wallet_draws_the_code_of_its_address_itself(key: bytes, params: NetworkParams) -> None:
    address = encode_address(key_hash(key), params.address_prefix)
    [dark] = drawn_by_the_pages(address)
    assert scanned(dark) == [address]
    # As many wrong bytes as the code corrects, so none was wrong before.
    wrong = {(28, 27), (28, 23), (28, 19), (28, 15), (28, 11), (26, 11), (26, 15)}
    assert scanned(dark ^ wrong) == [address]


FULL = (17, 32, 53, 78, 106, 134, 154, 192, 230, 271, 321, 367, 425)
"""Bytes that a code of each version from 1 on holds, at the lowest level of error correction."""


@needs("node")
def test_the_pages_draw_codes_of_every_length_up_to_425_bytes() -> None:
    text = "https://shop.example/wallet/#pay=" + quote(URI, safe="") + "x" * 300
    texts = [text[:length] for full in FULL for length in (full, full + 1)][:-1]
    codes = drawn_by_the_pages(*texts)
    assert [scanned(dark) for dark in codes] == [[each] for each in texts]
    matrices = [segno.make_qr(text[:full], error="l", mask=2, mode="byte", boost_error=False).matrix for full in FULL]
    assert codes[::2] == [
        {(x, y) for y, row in enumerate(matrix) for x, dark in enumerate(row) if dark} for matrix in matrices
    ]


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
