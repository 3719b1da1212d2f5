"""Payment requests: references that nobody can guess, and links that lead back to the same order."""

from secrets import token_bytes
from urllib.parse import parse_qs, unquote, urlsplit

from hypothesis import given

from svcd.chain.params import DEVNET
from svcd.commerce.payment import Terms
from svcd.commerce.request import new_reference, request_record
from svcd.commerce.terms import parse_reference
from svcd.commerce.uri import PaymentRequest, parse_uri
from tests.chains import address_of
from tests.commerce.test_uri import REQUESTS

BOB = address_of("bob", "svcd")


def test_record() -> None:
    request = PaymentRequest(Terms("order-1", BOB, 25 * 10**8), "Tea & cake")
    uri = f"svc:{BOB}?amount=25&ref=order-1&confirmations=12&label=Tea%20%26%20cake"
    assert request_record(DEVNET, request, tip_height=250) == {
        "protocol": "SVC-PAY",
        "version": 1,
        "networkId": 2,
        "recipient": BOB,
        "amount": "2500000000",
        "amountSvc": "25",
        "reference": "order-1",
        "label": "Tea & cake",
        "requiredConfirmations": 12,
        "paymentUri": uri,
        "walletPath": f"/wallet/?pay=svc%3A{BOB}%3Famount%3D25%26ref%3Dorder-1%26confirmations%3D12"
        "%26label%3DTea%2520%2526%2520cake",
        "statusPath": f"/rpc/commerce/payment/order-1?recipient={BOB}&amountBaseUnits=2500000000&confirmations=12",
        "sinceHeight": "150",
    }


def test_without_a_label_there_is_none() -> None:
    assert "label" not in request_record(DEVNET, PaymentRequest(Terms("order-1", BOB, 1)), tip_height=5)


def test_no_height_is_below_the_first_block() -> None:
    record = request_record(DEVNET, PaymentRequest(Terms("order-1", BOB, 1)), tip_height=99)
    assert record["sinceHeight"] == "0"


@given(REQUESTS)
def test_links_lead_back_to_the_order(request: PaymentRequest) -> None:
    record = request_record(DEVNET, request, tip_height=0)
    (pay,) = parse_qs(urlsplit(str(record["walletPath"])).query)["pay"]
    assert parse_uri(pay, DEVNET) == request
    status = urlsplit(str(record["statusPath"]))
    assert unquote(status.path.rpartition("/")[2]) == request.terms.reference
    assert parse_qs(status.query)["amountBaseUnits"] == [str(request.terms.amount)]


def test_new_references_have_130_random_bits() -> None:
    assert new_reference(bytes) == "pay_" + "a" * 26
    assert new_reference(lambda size: b"\xff" * size) == "pay_" + "7" * 26
    made = {new_reference(token_bytes) for _ in range(1000)}
    assert len(made) == 1000
    assert all(parse_reference(text) == text and len(text) == 30 for text in made)
