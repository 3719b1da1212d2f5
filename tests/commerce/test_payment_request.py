"""Terms of orders, payment URIs and payment requests: what is accepted, and what is refused with which sentence."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET, NETWORKS
from svcd.cli.wallet.payment_link import parse_link
from svcd.commerce.payment_request import (
    MAX_CONFIRMATIONS,
    MAX_LABEL,
    MAX_URI,
    PaymentRequest,
    PaymentTerms,
    format_uri,
    parse_confirmations,
    parse_confirmations_text,
    parse_label,
    parse_reference,
    parse_terms,
    parse_uri,
    request_record,
    resolve_amount,
    warning_of,
)
from tests.chains import TEST_PARAMS, address_of, key_of

REFERENCES = st.text("ABCXYZabcxyz0189._:-", min_size=1, max_size=64).filter(lambda text: text not in (".", ".."))
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "payment_uri.json").read_text("utf-8"))
ADDRESS = address_of("bob", "svcd")
URI = f"svc:{ADDRESS}?amount=25&ref=A&confirmations=12"


@pytest.mark.parametrize("vector", VECTORS["valid"], ids=lambda vector: vector["name"])
def test_valid(vector: dict[str, Any]) -> None:
    request = parse_uri(vector["uri"], NETWORKS[vector["network"]])
    assert {
        "recipient": request.terms.recipient,
        "amountBaseUnits": str(request.terms.amount),
        "reference": request.terms.reference,
        "confirmations": request.terms.required,
        "label": request.label,
    } == vector["request"]
    assert request.terms.since_height is None
    assert format_uri(request) == vector["printed"]


@pytest.mark.parametrize("vector", VECTORS["invalid"], ids=lambda vector: vector["name"])
def test_invalid(vector: dict[str, Any]) -> None:
    with pytest.raises(RuleViolation):
        parse_uri(vector["uri"], NETWORKS[vector["network"]])


LABELS = st.text(min_size=1, max_size=MAX_LABEL).filter(
    lambda text: (
        all(not (c < " " or "\x7f" <= c <= "\x9f" or c in "\u061c\u200e\u200f") for c in text)
        and not any("\u2028" <= c <= "\u202e" or "\u2066" <= c <= "\u2069" for c in text)
    )
)
ODD = st.text("+&%=#é ?/;\"'<>~\U0001f4b0\u05d0", min_size=1, max_size=MAX_LABEL)
REQUESTS = st.builds(
    PaymentRequest,
    st.builds(
        PaymentTerms,
        REFERENCES,
        st.sampled_from(["alice", "bob", "carol"]).map(lambda name: address_of(name, "svcd")),
        st.integers(1, MAX_INTEGER),
        st.integers(1, MAX_CONFIRMATIONS),
    ),
    st.none() | LABELS | ODD,
)


@given(REQUESTS)
def test_a_formatted_uri_is_parsed_back(request: PaymentRequest) -> None:
    uri = format_uri(request)
    assert uri.isascii()
    assert len(uri) <= 1_150 < MAX_URI
    assert parse_uri(uri, DEVNET) == request


@given(
    st.text(max_size=60)
    | st.from_regex(r"svc:[ -~]*", fullmatch=True)
    | st.builds(str.__add__, st.just(URI), st.text())
)
def test_whatever_is_parsed_is_formatted_with_the_same_meaning(text: str) -> None:
    try:
        request = parse_uri(text, DEVNET)
    except RuleViolation:
        return
    assert parse_uri(format_uri(request), DEVNET) == request


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        (URI + "&ref=B", "'ref' appears more than once in the payment URI; give it once"),
        (URI + "&req-x=1", "the payment URI requires 'req-x', which is unknown here; do not pay"),
        (URI.replace("amount", "amounts"), "the payment URI has no amount; it must have amount and ref"),
        (URI + "&label=%", "label must be percent-encoded: two hex digits after each %, %22 for a quotation mark"),
        (URI + "&label=%ff", "label must be percent-encoded UTF-8"),
        (
            URI + "&label=%E2%80%AE",
            "label contains U+202E; control characters and those that change the direction of text are not allowed",
        ),
    ],
)
def test_the_sentence_says_what_is_wrong(uri: str, sentence: str) -> None:
    with pytest.raises(RuleViolation) as refused:
        parse_uri(uri, DEVNET)
    assert refused.value.detail == sentence


def test_a_uri_does_not_carry_since_height() -> None:
    assert format_uri(PaymentRequest(PaymentTerms("A", ADDRESS, 25 * 10**8, since_height=7))) == URI


@pytest.mark.parametrize("text", ["a", "Z", "0", "...", "._:-", "order-1042", "x" * 64])
def test_reference(text: str) -> None:
    assert parse_reference(text) == text


@pytest.mark.parametrize("value", ["", "x" * 65, "a b", "a/b", "é", "a\n", "A+B", None, 1, ["a"], True])
def test_an_invalid_reference_is_refused(value: Any) -> None:
    with pytest.raises(RuleViolation, match="reference must be 1 to 64 of the characters"):
        parse_reference(value)


@pytest.mark.parametrize("text", [".", ".."])
def test_a_reference_that_urls_drop_is_refused(text: str) -> None:
    with pytest.raises(RuleViolation, match=r"must not be \. or \.\."):
        parse_reference(text)


@pytest.mark.parametrize(
    "text", ["a", "x" * 80, "\U0001f4b0" * 80, "caf\u00e9 + tea & 5 %", "\u05e9\u05dc\u05d5\u05dd", "\u200d"]
)
def test_label(text: str) -> None:
    assert parse_label(text) == text


def test_an_empty_label_is_none() -> None:
    assert parse_label("") is None


@pytest.mark.parametrize("value", ["x" * 81, None, 5, ["a"]])
def test_an_invalid_label_is_refused(value: Any) -> None:
    with pytest.raises(RuleViolation, match="label must be a string of at most 80 characters"):
        parse_label(value)


@pytest.mark.parametrize(
    "odd", "\x00\x1f\x7f\x85\x9f\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ud800\udfff"
)
def test_a_label_with_deceptive_characters_is_refused(odd: str) -> None:
    with pytest.raises(RuleViolation, match=f"label contains U\\+{ord(odd):04X}"):
        parse_label(f"a{odd}b")


@pytest.mark.parametrize("value", [1, 12, 1000])
def test_confirmations(value: int) -> None:
    assert parse_confirmations(value) == parse_confirmations_text(str(value)) == value


@pytest.mark.parametrize("value", [0, -1, 1001, True, 1.0, "12", None, 10**400])
def test_invalid_confirmations_are_refused(value: Any) -> None:
    with pytest.raises(RuleViolation, match="confirmations must be a whole number from 1 to 1000"):
        parse_confirmations(value)


@pytest.mark.parametrize("text", ["", "0", "012", "+12", "-1", "1001", "12.0", " 12", "\uff11", "9" * 400, "12\n"])
def test_invalid_confirmations_in_a_query_are_refused(text: str) -> None:
    with pytest.raises(RuleViolation, match="confirmations must be a whole number from 1 to 1000"):
        parse_confirmations_text(text)


def test_either_form_of_the_amount() -> None:
    assert resolve_amount(5, None) == resolve_amount(None, 5) == 5


@pytest.mark.parametrize("both", [(5, 5), (5, 6)])
def test_both_forms_of_the_amount_are_refused_even_if_they_agree(both: tuple[int, int]) -> None:
    with pytest.raises(RuleViolation, match="both given; give one of them"):
        resolve_amount(*both)


def test_no_amount_is_refused() -> None:
    with pytest.raises(RuleViolation, match="amount is missing: give amount in coins or amountBaseUnits in base units"):
        resolve_amount(None, None)


def test_terms_know_the_key_of_their_recipient() -> None:
    terms = parse_terms(TEST_PARAMS, reference="A", recipient=address_of("bob", "svct"), amount=5)
    assert terms == PaymentTerms("A", address_of("bob", "svct"), 5, 12, None)
    assert terms.key == key_of("bob").hash


@pytest.mark.parametrize("recipient", [address_of("bob", "svcd"), address_of("bob", "svc"), "", "svct1q", "x", None, 5])
def test_recipient_of_another_network(recipient: Any) -> None:
    with pytest.raises(RuleViolation, match="recipient must be an address of this network"):
        parse_terms(TEST_PARAMS, reference="A", recipient=recipient, amount=5)


def test_terms_need_an_address() -> None:
    with pytest.raises(RuleViolation):
        PaymentTerms("order-1", address_of("bob", "svct")[:-1], 5000)


@given(REQUESTS)
def test_the_paths_of_a_record_lead_back_to_the_order(request: PaymentRequest) -> None:
    record = request_record(DEVNET, request, tip_height=0)
    (pay,) = parse_qs(urlsplit(str(record["walletPath"])).query)["pay"]
    assert parse_uri(pay, DEVNET) == request
    status = urlsplit(str(record["statusPath"]))
    assert unquote(status.path.rpartition("/")[2]) == request.terms.reference
    assert parse_qs(status.query)["amountBaseUnits"] == [str(request.terms.amount)]
    assert parse_link(f"https://pay.example{record['checkoutPath']}", DEVNET).order == request


@pytest.mark.parametrize(
    ("amount", "balance", "has", "least"),
    [
        (1, 0, "0", "0.01"),
        (999_999, 0, "0", "0.01"),
        (5, 400_000, "0.004", "0.006"),
        (1, 999_998, "0.00999998", "0.00000002"),
    ],
)
def test_an_amount_that_leaves_its_recipient_too_little(amount: int, balance: int, has: str, least: str) -> None:
    assert warning_of(DEVNET, amount, balance=balance) == (
        f"nobody can pay this now: the recipient has {has} SVC and must have 0.01 SVC after a transfer; request at"
        f" least {least} SVC, or send coins to the recipient first"
    )


@pytest.mark.parametrize(("amount", "balance"), [(1_000_000, 0), (1, 999_999), (1, 10**15)])
def test_an_amount_that_leaves_its_recipient_enough(amount: int, balance: int) -> None:
    assert warning_of(DEVNET, amount, balance=balance) is None
