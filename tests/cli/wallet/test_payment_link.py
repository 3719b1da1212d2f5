"""Links to pages contain the same data as payment URIs, and are parsed as the pages parse them."""

from urllib.parse import quote, urlencode

import pytest
from hypothesis import given

from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET
from svcd.cli.wallet.payment_link import PaymentLink, parse_link
from svcd.commerce.payment_request import PaymentRequest, PaymentTerms, format_uri
from tests.chains import COIN
from tests.cli.terminal import OTHER
from tests.commerce.test_payment_request import REQUESTS
from tests.pages.conftest import Shown, still
from tests.rpc.node import PARAMS

__all__ = ["still"]

ORDER = {"reference": "order-17", "recipient": OTHER, "amount": "2"}
REQUEST = PaymentRequest(PaymentTerms("order-17", OTHER, 2 * COIN, 12))


def checkout(host: str = "https://shop.example", **more: object) -> str:
    """The link to a checkout, with values that are not None."""
    values = {name: value for name, value in {**ORDER, **more}.items() if value is not None}
    return f"{host}/pay/?{urlencode(values)}"


def page(uri: str) -> str:
    """The link to a wallet page."""
    return f"https://node.example/wallet/?pay={quote(uri, safe='')}"


@given(REQUESTS)
def test_a_wallet_link_parses_like_its_uri(request: PaymentRequest) -> None:
    terms = request.terms
    more = {"confirmations": terms.required, "label": request.label}
    order = {"reference": terms.reference, "recipient": terms.recipient, "amount": None}
    assert parse_link(format_uri(request), DEVNET) == PaymentLink(request)
    assert parse_link(checkout(**order, amountBaseUnits=terms.amount, **more), DEVNET) == PaymentLink(request)
    link = page(format_uri(request))
    if len(link) <= 2048:
        assert parse_link(link, DEVNET) == PaymentLink(request)
        assert parse_link(link.replace("?", "#"), DEVNET) == PaymentLink(request)


@pytest.mark.parametrize("host", ["http://127.0.0.1:8645", "https://[::1]:8645", "https://shop.example"])
def test_the_host_is_ignored(host: str) -> None:
    assert parse_link(checkout(host), DEVNET) == PaymentLink(REQUEST)


def test_the_since_height_of_a_link_is_ignored() -> None:
    """Otherwise the author of a link could have an order paid twice without a warning."""
    assert parse_link(checkout(sinceHeight=1000), DEVNET) == PaymentLink(REQUEST)


@pytest.mark.parametrize("until", [0, 1_795_170_430_000, 253_402_300_799_999])
def test_a_checkout_link_says_when_the_order_expires(until: int) -> None:
    assert parse_link(checkout(until=until), DEVNET) == PaymentLink(REQUEST, until)
    beside = f"&returnUrl=https%3A%2F%2Fshop.example%2Fthanks&until={until}"
    assert parse_link(page(format_uri(REQUEST)) + beside, DEVNET) == PaymentLink(REQUEST, until)


@pytest.mark.parametrize("label", ["Tea+%26+cake", "Tea%20%26%20cake", "1%2B1;x=%zz", "%E2%82%AC"])
def test_a_link_is_parsed_as_the_checkout_parses_it(still: Shown, label: str) -> None:
    """The page shows the payment URI of what it has parsed."""
    recipient = still.node.address("bob")
    path = f"/pay/?reference=order-1&recipient={recipient}&amount=2.5&label={label}"
    request = parse_link(f"https://shop.example{path}", PARAMS).order
    assert format_uri(request) in [each.get("data-copy") for each in still.see(path).all("button")]


FORM = "a link to pay is https://HOST/pay/?reference=… of a checkout or https://HOST/wallet/#pay=…"
WHOLE = "the link to a wallet page must have pay= with a payment URI, percent-encoded as a whole"


@pytest.mark.parametrize(
    ("link", "sentence"),
    [
        ("https://shop.example/", FORM),
        ("HTTPS://shop.example/pay/?a=b", FORM),
        (checkout() + "#x", FORM),
        (page(format_uri(REQUEST)) + "#x", FORM),
        (checkout().replace("?", "#"), FORM),
        (checkout() + "é", FORM),
        (checkout("https://me:secret@shop.example"), FORM),
        (checkout("https://shop.example/elsewhere"), FORM),
        (checkout(label="x" * 2048), FORM),
        (checkout() + "&amount=3", "'amount' appears more than once in the link; give it once"),
        (checkout() + "&other=1&other=2", "'other' appears more than once in the link; give it once"),
        (checkout() + "&req-memo=1", "the link requires 'req-memo', which is unknown here; do not pay"),
        (checkout(reference=None), "the link to a checkout has no reference; it must have"),
        (checkout(recipient=None), "the link to a checkout has no recipient; it must have"),
        (checkout(amount=None), "the amount is missing"),
        (checkout(amountBaseUnits=2 * COIN), "amount and amountBaseUnits are both given"),
        (checkout(amount="1e3"), "amount must be a decimal"),
        (checkout(recipient=OTHER[:-1] + "q"), "wrong checksum"),
        (checkout(reference=".."), "URLs drop"),
        (checkout(confirmations=0), "confirmations must be"),
        *[
            (checkout(until=until), "until must be a whole number of milliseconds")
            for until in ("", "-1", "01", "1e3", "253402300800000", "tomorrow")
        ],
        (checkout(label="a\u202eb"), "label contains U+202E"),
        (checkout() + "&label=%ff", "the link must be UTF-8 in percent-encoding"),
        (page("svc:x").replace("pay=", "pay=%ff"), "the link must be UTF-8 in percent-encoding"),
        (f"https://node.example/wallet/?pay={format_uri(REQUEST)}", WHOLE),
        ("https://node.example/wallet/?", WHOLE),
        *[(page(format_uri(REQUEST)) + more, WHOLE) for more in ("&until=1&until=1", "&amount=1", "&req-memo=1", "&")],
        (page(format_uri(REQUEST)) + "&until=1e3", "until must be a whole number of milliseconds"),
        (page("bitcoin:x"), "a payment URI begins with svc:"),
        (page(page(format_uri(REQUEST))), "a payment URI begins with svc:"),
    ],
)
def test_invalid_links_are_rejected(link: str, sentence: str) -> None:
    with pytest.raises(RuleViolation) as refused:
        parse_link(link, DEVNET)
    assert sentence in refused.value.detail
