"""Links to pages say what a payment URI says, and are read as the pages themselves read them."""

from urllib.parse import quote, urlencode

import pytest
from hypothesis import given

from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET
from svcd.commerce.payment import Terms
from svcd.commerce.uri import PaymentRequest, print_uri
from svcd.wallet.links import parse_link
from tests.chains import COIN
from tests.commerce.test_uri import REQUESTS
from tests.pages.conftest import Shown, still
from tests.rpc.node import PARAMS
from tests.wallet.terminal import OTHER

__all__ = ["still"]

ORDER = {"reference": "order-17", "recipient": OTHER, "amount": "2"}
REQUEST = PaymentRequest(Terms("order-17", OTHER, 2 * COIN, 12))


def checkout(host: str = "https://shop.example", **more: object) -> str:
    """The link to a checkout, with values that are not None."""
    values = {name: value for name, value in {**ORDER, **more}.items() if value is not None}
    return f"{host}/pay/?{urlencode(values)}"


def page(uri: str) -> str:
    """The link to a wallet page."""
    return f"https://node.example/wallet/?pay={quote(uri, safe='')}"


@given(REQUESTS)
def test_a_payment_link_says_what_its_uri_says(request: PaymentRequest) -> None:
    terms = request.terms
    more = {"confirmations": terms.required, "label": request.label}
    order = {"reference": terms.reference, "recipient": terms.recipient, "amount": None}
    assert parse_link(print_uri(request), DEVNET) == request
    assert parse_link(checkout(**order, amountBaseUnits=terms.amount, **more), DEVNET) == request
    link = page(print_uri(request))
    if len(link) <= 2048:
        assert parse_link(link, DEVNET) == request


@pytest.mark.parametrize("host", ["http://127.0.0.1:8645", "https://[::1]:8645", "https://shop.example"])
def test_the_host_does_not_matter(host: str) -> None:
    assert parse_link(checkout(host), DEVNET) == REQUEST


def test_payments_before_some_height_are_warned_of_too() -> None:
    """Or the author of a link could have an order paid twice without a word."""
    assert parse_link(checkout(sinceHeight=1000), DEVNET) == REQUEST


@pytest.mark.parametrize("label", ["Tea+%26+cake", "Tea%20%26%20cake", "1%2B1;x=%zz", "%E2%82%AC"])
def test_a_link_is_read_as_the_checkout_reads_it(still: Shown, label: str) -> None:
    """Which shows the payment URI of what it has read."""
    recipient = still.node.address("bob")
    path = f"/pay/?reference=order-1&recipient={recipient}&amount=2.5&label={label}"
    request = parse_link(f"https://shop.example{path}", PARAMS)
    assert print_uri(request) in [each.get("data-copy") for each in still.see(path).all("button")]


FORM = "a link to pay is https://HOST/pay/?reference=… of a checkout or https://HOST/wallet/?pay=…"
WHOLE = "the link to a wallet page must have pay= with a payment URI, percent-encoded as a whole"


@pytest.mark.parametrize(
    ("link", "sentence"),
    [
        ("https://shop.example/", FORM),
        ("HTTPS://shop.example/pay/?a=b", FORM),
        (checkout() + "#x", FORM),
        (checkout() + "é", FORM),
        (checkout("https://me:secret@shop.example"), FORM),
        (checkout("https://shop.example/elsewhere"), FORM),
        (checkout(label="x" * 2048), FORM),
        (checkout() + "&amount=3", "'amount' stands more than once in the link; once is right"),
        (checkout() + "&other=1&other=2", "'other' stands more than once in the link; once is right"),
        (checkout() + "&req-memo=1", "the link asks for 'req-memo', which is not known here; do not pay"),
        (checkout(reference=None), "the link to a checkout has no reference; it must have"),
        (checkout(recipient=None), "the link to a checkout has no recipient; it must have"),
        (checkout(amount=None), "the amount is missing"),
        (checkout(amountBaseUnits=2 * COIN), "amount and amountBaseUnits are both given"),
        (checkout(amount="1e3"), "amount must be a decimal"),
        (checkout(recipient=OTHER[:-1] + "q"), "wrong checksum"),
        (checkout(reference=".."), "URLs swallow"),
        (checkout(confirmations=0), "confirmations must be"),
        (checkout(label="a\u202eb"), "label holds U+202E"),
        (checkout() + "&label=%ff", "the link must be UTF-8 in percent-encoding"),
        (page("svc:x").replace("pay=", "pay=%ff"), "the link must be UTF-8 in percent-encoding"),
        (f"https://node.example/wallet/?pay={print_uri(REQUEST)}", WHOLE),
        ("https://node.example/wallet/?", WHOLE),
        (page("bitcoin:x"), "a payment URI begins with svc:"),
        (page(page(print_uri(REQUEST))), "a payment URI begins with svc:"),
    ],
)
def test_what_is_not_plain_is_refused(link: str, sentence: str) -> None:
    with pytest.raises(RuleViolation) as refused:
        parse_link(link, DEVNET)
    assert sentence in refused.value.detail
